# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of products on a GPU in docs/performance.md, and a plot, from perf_gemm's JSON file.

  report_gemm.py FILE               prints the table: what each row is to reach and what it reaches, as geometric
                                    means, and its worst case; rows without a measurement say so
  report_gemm.py FILE --cases       prints every case with its kernel, rate and ratios below it
  report_gemm.py FILE --plot PNG    draws rates of square products against their size (needs matplotlib)

Peers: F is cuBLASLt's first heuristic, B the best of its first ten. Where a file holds cases of several runs, each says
under `measured` on which day; its context is that of the last.
"""

import argparse
import json
import math
import re

LARGE = "1024³ … 16384³ and four rectangles"
# title, goal, keep(case), [(heading, value(case))]: the heading "×F" stands for a mean and the worst case.
OF_ONE = ("of one factor a matrix", lambda c: c["tensor:ratio"])
F, B = ("×F", lambda c: c["cublaslt:ratio"]), ("×B", lambda c: c["cublaslt_best:ratio"])


def gemm(types, keep=lambda c: True):
    return lambda c: c["family"] == "gemm" and c["types"] == types and keep(c)


def large(c):
    return c["m"] > 512 or c["n"] < c["m"]


def square(c):
    return c["m"] == c["n"] == c["k"] and c["m"] >= 1024


def scaled(how):
    return lambda c: c["family"] == "gemm_scaled" and c["types"] == f"{E4} {how}"


def block_scales(keep):
    return lambda c: c["family"] == "gemm_block_scales" and keep(c)


def groups(types, count):
    return lambda c: c["family"] == "gemm_grouped" and c["types"] == types and c["batch"] == count


def few(c):
    return c["m"] <= 64 and c["n"] > c["m"]


def some(c):
    return 64 < c["m"] <= 512 and c["n"] > c["m"]


def copy_share(c):
    """GB/s over those of a copy of as many bytes."""
    return c["GB/s"] / c["copy:GB/s"]


def beyond_copy(c):
    """Microseconds of a launch beyond those of copying its bytes."""
    return 1e-3 * c["bytes"] * (1 / c["GB/s"] - 1 / c["copy:GB/s"])


def batch_goal(c):
    """Over the lower of the two goals of a batch."""
    return max(c["cublas:ratio"] / 1.2, copy_share(c) / 0.85)


def bandwidth(least, most):
    return lambda c: c["family"] == "gemm_bandwidth" and few(c) and least < c["weight_bytes"] <= most


E4 = "float8_e4m3_float8_e4m3_bfloat16"
F32, F64 = "float32_float32_float32", "float64_float64_float64"
I8 = "int8_int8_int32"
BF, FP = "bfloat16_bfloat16_bfloat16", "float16_float16_float16"
NEVER = float("inf")

ROWS = [
    (f"bfloat16, {LARGE}, four transposes", "≥ 1.03 F, ≥ 1.00 B, none < 0.95 B", gemm(BF, large), [F, B]),
    (f"float16, the same", "≥ 1.03 F, ≥ 1.00 B, none < 0.95 B", gemm(FP, large), [F, B]),
    ("float8 → bfloat16, promoted sums", "≥ 1.00 F, none < 0.93 F", gemm(E4, large), [F, B]),
    ("float8 → bfloat16, fast sums", "≥ 1.00 F, none < 0.93 F", gemm(E4 + " fast", large), [F, B]),
    ("float8, a factor a matrix, promoted sums", "≥ 1.00 F, none < 0.93 F", scaled("tensor"), [F, B]),
    ("float8, a factor a matrix, fast sums", "≥ 1.00 F, none < 0.93 F", scaled("fast tensor"), [F, B]),
    ("float8, a factor a row, promoted sums", "≥ 1.00 F, none < 0.93 F", scaled("rows"), [F, B]),
    ("float8, a factor a row, fast sums", "≥ 1.00 F, none < 0.93 F", scaled("fast rows"), [F, B]),
    ("float8, blocks of 1 × 128 by 128 × 128, M 4096 and 8192", "≥ 0.95 of one factor", block_scales(large), [OF_ONE]),
    ("float8, the same, M 1 … 512", "", block_scales(lambda c: not large(c)), [OF_ONE]),
    ("int8 → int32, from 2048³ on, K-major operands", "≥ 1.02 F, ≥ 0.98 B",
     gemm(I8, lambda c: c["m"] >= 2048 and c["ops"] == "nt"), [F, B]),
    ("int8 → int32, from 2048³ on, B [K, N]", "≥ 1.10 F",
     gemm(I8, lambda c: c["m"] >= 2048 and c["ops"] == "nn"), [F, B]),
    ("bfloat16, M 1 … 64 against a layer's weights", "≥ 1.05 F", gemm(BF, few), [F, B]),
    ("float16, M 1 … 64", "≥ 1.05 F", gemm(FP, few), [F, B]),
    ("float8, M 1 … 64, fast sums", "≥ 1.12 F", gemm(E4 + " fast", few), [F, B]),
    ("M 1 … 64, weights beyond 100 MB, in a graph", "≥ 0.92 of copy", bandwidth(100e6, NEVER),
     [("of copy", copy_share)]),
    ("M 1 … 64, weights of 50 to 100 MB, in a graph", "≥ 0.84 of copy", bandwidth(50e6, 100e6),
     [("of copy", copy_share)]),
    ("M 1 … 64, weights below 50 MB, in a graph", "≤ 3 µs beyond copy", bandwidth(0, 50e6),
     [("µs beyond copy", beyond_copy)]),
    ("float32 IEEE, 1024³ … 8192³, four transposes", "≥ 0.97 F", gemm(F32, square), [F, B]),
    ("gated MLP, M 16, 512, 4096", "≥ 1.10", lambda c: c["family"] == "gated_mlp", [F, B]),
    ("bfloat16, M 128 … 512", "≥ 1.05 F", gemm(BF, some), [F, B]),
    ("float16, M 128 … 512", "≥ 1.05 F", gemm(FP, some), [F, B]),
    ("float8, M 128 … 512, fast sums", "≥ 1.05 F", gemm(E4 + " fast", some), [F, B]),
    ("float64, 1024³ … 8192³, four transposes", "≥ 0.95 F", gemm(F64, square), [F, B]),
    ("float32, batches of 8³ … 64³", "≥ 1.2 × cuBLAS or 0.85 of copy",
     lambda c: c["family"] == "gemm_batched" and c["types"] == F32,
     [("× cuBLAS", lambda c: c["cublas:ratio"]), ("of copy", copy_share), ("× the lower goal", batch_goal)]),
    ("float64, batches of 8³ … 64³", "≥ 1.2 × cuBLAS or 0.85 of copy",
     lambda c: c["family"] == "gemm_batched" and c["types"] == F64,
     [("× cuBLAS", lambda c: c["cublas:ratio"]), ("of copy", copy_share), ("× the lower goal", batch_goal)]),
    *((f"{name}, {count} ragged groups of rows{factors}", "≥ 0.90 of one product", groups(types, count),
       [("of one product", lambda c: c["one:ratio"])])
      for name, factors, types in (("bfloat16", "", BF), ("float8", ", one factor each", E4 + " tensor"),
                                   ("float8", ", factors of rows", E4 + " rows"))
      for count in (8, 64)),
    ("tf32, 2048³ … 8192³", "", gemm(F32 + " tf32", square), [F, B]),
    ("tf32x3, 2048³ … 8192³", "≥ 1.8 × float32", gemm(F32 + " tf32x3", square),
     [("× cuBLAS float32", lambda c: c["cublaslt_float32:ratio"])]),
    ("tf32x3, worst error beside float32's", "≤ 2", gemm(F32 + " tf32x3", square),
     [("× error", lambda c: c["error"] / c["cublaslt_float32:error"])]),
    ("bfloat16 and float16, 512³, in a graph", "≥ 1.0 F",
     lambda c: c["family"] == "gemm_bandwidth" and c["m"] == c["n"] == c["k"] == 512, [F]),
]


def cases(path):
    """Every measured case as a dictionary of its counters and of what its name says; and the run's context."""
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    result = {}
    for run in data["benchmarks"]:
        if run.get("error_occurred"):
            print(f"failed: {run['run_name']}: {run.get('error_message', '')}")
            continue
        family, kernel, _, types, shape, *rest = run["run_name"].split("/")
        match = re.match(r"m(\d+)_n(\d+)_k(\d+)(?:_([nt]{2}))?(?:_b(\d+))?", shape)
        if not match or "warm" in rest:
            continue
        m, n, k = (int(match[i]) for i in (1, 2, 3))
        bytes_of_weight = 1 if types.startswith("float8") else 2
        # A portable case counts where there is no other kernel for the same product.
        key = (family, types, shape, *rest)
        if key in result and kernel == "portable":
            continue
        result[key] = run | {"family": family, "kernel": kernel, "types": " ".join([types] + rest[:-1]), "m": m,
                             "n": n, "k": k, "ops": match[4], "batch": int(match[5] or 1),
                             "weight_bytes": n * k * bytes_of_weight}
    return list(result.values()), data["context"]


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def values_of(group, value):
    """Of the cases that have it: a peer may not offer a product, and --peers may leave one out."""
    found = []
    for case in group:
        try:
            found.append(value(case))
        except (KeyError, ZeroDivisionError):
            pass
    return found


def summary(heading, values):
    if not values:
        return f"{heading}: not measured"
    if heading.startswith("µs"):
        return f"at most {max(values):.1f} {heading}"
    worst = max(values) if "error" in heading else min(values)
    return f"{mean(values):.2f} {heading}, worst {worst:.2f}"


def table(all_cases, details):
    print("| products | cases | to reach | reached |\n|---|---|---|---|")
    for title, goal, keep, columns in ROWS:
        group = [c for c in all_cases if keep(c)]
        reached = "; ".join(summary(heading, values_of(group, value)) for heading, value in columns)
        print(f"| {title} | {len(group)} | {goal} | {reached if group else 'not measured'} |")
        for c in group if details else ():
            ratios = " ".join(f"{heading} {v[0]:.3f}" for heading, value in columns if (v := values_of([c], value)))
            shape = f"m{c['m']} n{c['n']} k{c['k']} {c['ops'] or ''}"
            print(f"    {c['kernel']} {shape}: {c['median_ms']:.4f} ms, {ratios}")


# What a panel's peers are called in a case, and in its legend.
PEERS = (("cublaslt", "cuBLASLt, first heuristic"), ("cublaslt_best", "cuBLASLt, best of ten"),
         ("cublaslt_float32", "cuBLASLt, float32"))


def plot(all_cases, context, path):
    """A panel for each type of products: rates of squares, A along K and B along K, against their size."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = {}
    for c in all_cases:
        if c["family"] == "gemm" and c["kernel"] != "portable" and c["m"] == c["n"] == c["k"] and c["ops"] == "nt":
            panels.setdefault(c["types"], []).append(c)
    panels = {types: sorted(group, key=lambda c: c["m"]) for types, group in panels.items() if len(group) > 2}
    columns = 3
    figure, grid = pyplot.subplots(-(-len(panels) // columns), columns, figsize=(12, 3 * -(-len(panels) // columns)),
                                   squeeze=False, layout="constrained")
    for axes in grid.flat[len(panels):]:
        axes.axis("off")
    for axes, (types, group) in zip(grid.flat, panels.items()):
        a, _, rest = types.replace("float8_e4m3", "e4m3").partition("_")
        b, _, c = rest.partition("_")
        axes.set_title(f"{a} → {c}" if a == b else types)
        rates = [("attikos", "Attikos", "o-")] + [(peer, name, "--") for peer, name in PEERS]
        for key, name, style in rates:
            rate = "GFLOP/s" if key == "attikos" else f"{key}:GFLOP/s"
            points = [(c["m"], c[rate] / 1e3) for c in group if rate in c]
            if points:
                axes.plot(*zip(*points), style, label=name)
        axes.set_xscale("log", base=2)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("TFLOP/s")
        axes.set_xlabel("M = N = K")
        axes.legend(fontsize=7, loc="lower right")
    figure.suptitle(f"{context.get('device', '')}, CUDA {context.get('cuda_compiler', '')}, driver "
                    f"{context.get('cuda_driver', '')}, at most {context.get('max_sm_clock_mhz', '?')} MHz; "
                    f"Attikos {context.get('attikos_commit', '')}", fontsize=10)
    figure.savefig(path, dpi=100)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--cases", action="store_true")
    parser.add_argument("--plot")
    options = parser.parse_args()
    all_cases, context = cases(options.file)
    table(all_cases, options.cases)
    days = sorted({c["measured"] for c in all_cases if "measured" in c})
    if days:
        print(f"measured from {days[0]} to {days[-1]}")
    if options.plot:
        plot(all_cases, context, options.plot)


if __name__ == "__main__":
    main()
