#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How far predictions are from what was measured.

  mpiexec -n 2 attikos-measure --out machine.json --runs runs.json
  compare.py attikos-plan machine.json runs.json

Prints each run with its prediction, and last the median and the worst of |predicted/measured − 1|.
"""

import json
import statistics
import subprocess
import sys


def predicted(command, machine, run):
    words = [command, "--machine", machine, "--format", "json", "--layers", "1", "--type", run["type"]]
    for option in ("ranks", "length", "heads", "kv_heads", "head_dim"):
        words += ["--" + option.replace("_", "-"), str(run[option])]
    if not run["causal"]:
        words.append("--full")
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    for row in json.loads(done.stdout)["predictions"]:
        if row["layout"] == run["layout"]:
            return row["seconds"]
    raise ValueError(f"no prediction of {run['layout']}")


def main(command, machine, runs):
    with open(runs, encoding="utf-8") as file:
        measured = json.load(file)
    errors = []
    print("ranks  length  mask    layout        measured ms  predicted ms  error")
    for run in measured:
        seconds = predicted(command, machine, run)
        error = seconds / run["seconds"] - 1
        errors.append(abs(error))
        mask = "causal" if run["causal"] else "full"
        print(
            f"{run['ranks']:5} {run['length']:7}  {mask:6}  {run['layout']:12} {1e3 * run['seconds']:12.3f}"
            f" {1e3 * seconds:13.3f} {100 * error:+5.0f} %"
        )
    print(f"median {100 * statistics.median(errors):.0f} %, worst {100 * max(errors):.0f} %")


if __name__ == "__main__":
    main(*sys.argv[1:])
