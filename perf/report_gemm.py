# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The README's table of products on a GPU, and a plot, from perf_gemm's JSON file.

  report_gemm.py FILE               prints the table: geometric means and the worst case of each group
  report_gemm.py FILE --plot PNG    draws rates of square products against their size (needs matplotlib)
"""

import argparse
import json
import math
import re

GROUPS = [  # title, types, keep(shape)
    ("bfloat16, 1024 … 16384 cubed and rectangles, four transposes", "bfloat16_bfloat16_bfloat16", "large"),
    ("float16, the same", "float16_float16_float16", "large"),
    ("float8 E4M3 → bfloat16, fast sums", "float8_e4m3_float8_e4m3_bfloat16 fast", "large"),
    ("float8 E4M3 → bfloat16, promoted sums", "float8_e4m3_float8_e4m3_bfloat16", "large"),
    ("int8 → int32, from 2048 cubed on", "int8_int8_int32", "large"),
    ("bfloat16, M 1 … 64 against a layer's weights", "bfloat16_bfloat16_bfloat16", "few"),
    ("float16, M 1 … 64", "float16_float16_float16", "few"),
    ("float8, M 1 … 64, fast sums", "float8_e4m3_float8_e4m3_bfloat16 fast", "few"),
    ("bfloat16, M 128 … 512", "bfloat16_bfloat16_bfloat16", "some"),
    ("float8, M 128 … 512, fast sums", "float8_e4m3_float8_e4m3_bfloat16 fast", "some"),
    ("float32 IEEE, from 1024 cubed on", "float32_float32_float32", "large"),
    ("bfloat16, 512 cubed", "bfloat16_bfloat16_bfloat16", "small"),
]


def cases(path):
    data = json.load(open(path, encoding="utf-8"))
    for run in data["benchmarks"]:
        if run.get("error_occurred") or "cublaslt:ratio" not in run:
            continue
        parts = run["run_name"].split("/")
        match = re.match(r"m(\d+)_n(\d+)_k(\d+)_([nt]{2})", parts[4])
        m, n, k = (int(match[i]) for i in (1, 2, 3))
        types = parts[3] + (" fast" if "fast" in parts else "")
        kind = ("few" if m <= 64 else "some" if m <= 512 and n > m else "small" if m <= 512 else "large")
        if types == "int8_int8_int32" and m < 2048:
            continue
        yield {"kernel": parts[1], "types": types, "m": m, "n": n, "k": k, "ops": match[4], "kind": kind,
               "rate": run["GFLOP/s"] / 1000, "first": run["cublaslt:ratio"],
               "best": run.get("cublaslt_best:ratio", float("nan")),
               "peer": run["cublaslt:GFLOP/s"] / 1000}, data["context"]


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def table(rows):
    print("| products | cases | × first heuristic: mean, worst | × best of ten: mean, worst |\n|---|---|---|---|")
    for title, types, kind in GROUPS:
        group = [r for r in rows if r["types"] == types and r["kind"] == kind and r["kernel"] != "portable"]
        if group:
            first, best = [r["first"] for r in group], [r["best"] for r in group]
            print(f"| {title} | {len(group)} | {mean(first):.2f}, {min(first):.2f} | "
                  f"{mean(best):.2f}, {min(best):.2f} |")


def plot(rows, context, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for types in dict.fromkeys(r["types"] for r in rows):
        square = sorted((r["m"], r["rate"], r["peer"]) for r in rows
                        if r["types"] == types and r["m"] == r["n"] == r["k"] and r["ops"] == "nt")
        if len(square) < 3:
            continue
        line, = axes.plot([s[0] for s in square], [s[1] for s in square], marker="o", label=types.replace("_", " "))
        axes.plot([s[0] for s in square], [s[2] for s in square], linestyle="--", color=line.get_color())
    axes.set_xscale("log", base=2)
    axes.set_xlabel("M = N = K (solid: Attikos, dashed: cuBLASLt's first heuristic)")
    axes.set_ylabel("TFLOP/s")
    axes.set_title(context.get("device", ""))
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=100, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--plot")
    options = parser.parse_args()
    pairs = list(cases(options.file))
    rows = [row for row, _ in pairs]
    table(rows)
    if options.plot:
        plot(rows, pairs[0][1], options.plot)


if __name__ == "__main__":
    main()
