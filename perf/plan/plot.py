#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws what attikos-plan predicts: efficiency, time and memory over ranks, a line for each layout.

  attikos-plan --machine FILE --format csv | plot.py --out plan.svg
  plot.py plan.csv --out plan.png [--title TEXT]

Needs matplotlib. Layouts that cannot be on a number of ranks have no point there, and those that do not fit into a
rank's memory a hollow one.
"""

import argparse
import collections
import csv
import sys


def read(lines):
    """(ranks, row) of each layout's possible rows."""
    layouts = collections.defaultdict(list)
    for row in csv.DictReader(lines):
        if row["seconds"]:
            layouts[row["layout"]].append(row)
    return layouts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="?", help="a file; standard input without one")
    parser.add_argument("--out", required=True)
    parser.add_argument("--title", default="")
    arguments = parser.parse_args()
    if arguments.csv:
        with open(arguments.csv, encoding="utf-8", newline="") as file:
            layouts = read(file)
    else:
        layouts = read(sys.stdin)
    if not layouts:
        sys.exit("plot.py: there is no row with a time; expected the output of attikos-plan --format csv")

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for layout, rows in layouts.items():
        ranks = [int(row["ranks"]) for row in rows]
        columns = (
            [100 * float(row["efficiency"]) for row in rows],
            [float(row["seconds"]) for row in rows],
            [float(row["device_bytes"]) / 1e9 for row in rows],
        )
        for axis, values in zip(axes, columns):
            line = axis.plot(ranks, values, label=layout)[0]
            for fits, face in (("1", line.get_color()), ("0", "none")):
                shown = [(n, value) for n, value, row in zip(ranks, values, rows) if row["fits"] == fits]
                axis.plot(*zip(*shown), "o", color=line.get_color(), markerfacecolor=face) if shown else None
    for axis, name in zip(axes, ("% of one rank's rate", "seconds", "GB a rank")):
        axis.set(xlabel="ranks", ylabel=name)
        axis.set_xscale("log", base=2)
        axis.grid(alpha=0.25)
    axes[0].set_ylim(0, 102)
    axes[1].set_yscale("log")
    axes[2].set_yscale("log")
    axes[0].legend(frameon=False)
    figure.suptitle(arguments.title)
    figure.savefig(arguments.out)


if __name__ == "__main__":
    main()
