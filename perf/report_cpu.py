# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Summary and plot of what peers_torch_cpu.py measured.

  report_cpu.py FILE [--plot FILE]

Of each family and type: number of shapes, geometric mean, tenth percentile and least of the ratios, the ten worst
shapes. The plot has the ratios sorted, a line for each type.
"""

import argparse
import json

from report_attention import spread

SHARES = ("of copy", "of copy of least", "of register loop")


def groups(report):
    """{(family, type): its cases}, in the order in which they were first measured."""
    found = {}
    for case in report["cases"]:
        found.setdefault((case["family"], case.get("dtype", "").partition(" ")[0]), []).append(case)
    return found


def labels(case):
    hidden = ("family", "ratio", "ratio of least", "openblas ratio", "of unpacked", "of unpacked of least", *SHARES)
    return ", ".join(f"{key} {value}" for key, value in case.items() if key not in hidden and not key.endswith(":us"))


def summary(report, worst=10):
    for (family, dtype), cases in groups(report).items():
        for case in cases:
            if "refused" in case:
                print(f"{family}: {case['refused']}")
        found = spread(cases)
        if found:
            print(f"{family} {dtype}: {sum('ratio' in c for c in cases)} shapes, geometric mean {found[0]:.2f}, tenth "
                  f"percentile {found[1]:.2f}, least {found[2]:.2f} x PyTorch; by least times "
                  "{:.2f}, {:.2f}, {:.2f}".format(*spread(cases, "ratio of least")))  # fmt: skip
            for case in sorted((c for c in cases if "ratio" in c), key=lambda c: c["ratio"])[:worst]:
                print(f"    {case['ratio']:.2f}  {labels(case)}")
        openblas = spread(cases, "openblas ratio")
        if openblas:
            print("    beside OpenBLAS: geometric mean {:.2f}, tenth percentile {:.2f}, least {:.2f}".format(*openblas))
        for key, of in (("of unpacked", "unpacked"), ("of unpacked of least", "unpacked by least times")):
            if unpacked := spread(cases, key):
                print("    x {}: geometric mean {:.2f}, tenth percentile {:.2f}, least {:.2f}".format(of, *unpacked))
        for case in cases:
            shares = [f"{key} {case[key]:.2f}" for key in SHARES if key in case]
            if shares and family != "drawn_rows":
                print(f"    {', '.join(shares)}  {labels(case)}")


def plot(report, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    families = list(dict.fromkeys(c["family"] for c in report["cases"] if "ratio" in c))
    figure, axes = pyplot.subplots(1, len(families), figsize=(4 * len(families), 4), sharey=True, squeeze=False)
    for family, axis in zip(families, axes[0]):
        for (of, dtype), cases in groups(report).items():
            ratios = sorted(c["ratio"] for c in cases if "ratio" in c)
            if of == family and ratios:
                axis.plot([(i + 0.5) / len(ratios) for i in range(len(ratios))], ratios, marker=".", label=dtype)
        axis.axhline(1, color="gray", linewidth=0.8)
        axis.set_yscale("log")
        axis.set_title(family)
        axis.legend()
    axes[0][0].set_ylabel("x PyTorch")
    figure.suptitle(f"{report['processor']}, {report['simd']}, {report['threads']} threads, PyTorch {report['torch']}, "
                    f"seed {report['seed']}; shapes sorted by ratio")  # fmt: skip
    figure.savefig(path, dpi=80, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--plot")
    options = parser.parse_args()
    with open(options.file, encoding="utf-8") as file:
        report = json.load(file)
    summary(report)
    if options.plot:
        plot(report, options.plot)


if __name__ == "__main__":
    main()
