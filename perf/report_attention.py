# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables and plots of what peers_torch.py and decode_torch.py measured.

  report_attention.py FILE [--plot FILE] [--plot-random FILE]
"""

import argparse
import json
import math

# TFLOP/s of FlashAttention-3 on one H200 at length 16384: head_dim, causal (bfloat16, heads × head_dim 2048).
FLASH_ATTENTION_3 = {(64, False): 522, (128, False): 690, (256, False): 743,
                     (64, True): 514, (128, True): 660, (256, True): 713}
FLASH_ATTENTION_3_BACKWARD = {(64, False): 512, (128, False): 597, (256, False): 457,
                              (64, True): 531, (128, True): 593, (256, True): 457}
PEERS = ("cudnn", "flash", "efficient")


def is_backward(report):
    return report.get("direction") == "backward"


def of_flash_attention_3(report, case):
    """The share of FlashAttention-3's published rate times that of the card's products, before and after the run; of
    gradients those in any order."""
    key, rate = "attikos:TFLOP/s", FLASH_ATTENTION_3
    if is_backward(report):
        key, rate = "unordered:TFLOP/s", FLASH_ATTENTION_3_BACKWARD
    share = case[key] / rate[case["head_dim"], case["causal"]]
    return share / max(report["r16"]), share / min(report["r16"])


def geometric_mean(numbers):
    return math.exp(sum(map(math.log, numbers)) / len(numbers))


def spread(cases, key="ratio"):
    """Geometric mean, tenth percentile, least; None where no case has the key."""
    ratios = sorted(c[key] for c in cases if key in c)
    return (geometric_mean(ratios), ratios[len(ratios) // 10], ratios[0]) if ratios else None


def summary(report):
    """A line for each type and head_dim of the dense grid, and for the random shapes, with the worst ten of those."""
    cases = report["cases"]
    for dtype in ("bfloat16", "float16"):
        for head_dim in sorted({c.get("head_dim", 0) for c in cases}):
            for key in ("ratio", "unordered ratio", "of unordered"):
                found = spread(dense(report, dtype, head_dim), key)
                if found:
                    print(f"{dtype} {head_dim} {key}: geometric mean {found[0]:.3f} least {found[2]:.3f}")
    for family in ("random", "odd"):
        drawn = [c for c in cases if c["family"] == family and "ratio" in c]
        if drawn:
            print(family, len(drawn), "geometric mean {:.3f} tenth percentile {:.3f} least {:.3f}".format(*spread(drawn)))
            for c in sorted(drawn, key=lambda c: c["ratio"])[:10]:
                print("  ", *(f"{key} {value}" for key, value in c.items() if key not in ("family", "timing", "dtype")))


def dense(report, dtype, head_dim):
    return [c for c in report["cases"]
            if c["family"] == "dense" and c["dtype"] == dtype and c["head_dim"] == head_dim]


def table(report):
    dims = sorted({c["head_dim"] for c in report["cases"]})
    ordered = "| unordered | of unordered: mean, least " if is_backward(report) else ""
    print(f"| type, head_dim | lengths | × best peer: mean, least {ordered}| TFLOP/s at 16384: full, causal |")
    print("|---" * (6 if ordered else 4) + "|")
    for dtype in ("bfloat16", "float16"):
        for head_dim in dims:
            group = [c for c in dense(report, dtype, head_dim) if "ratio" in c]
            if not group:
                continue
            ratios = [c["ratio"] for c in group]
            mean = geometric_mean(ratios)
            longest = {c["causal"]: c["attikos:TFLOP/s"] for c in group if c["length"] == 16384}
            lengths = sorted({c["length"] for c in group})
            ordered = ""
            if is_backward(report):
                loose, kept = spread(group, "unordered ratio"), spread(group, "of unordered")
                ordered = f"| {loose[0]:.2f}, {loose[2]:.2f} | {kept[0]:.2f}, {kept[2]:.2f} "
            print(f"| {dtype}, {head_dim} | {lengths[0]} … {lengths[-1]} | {mean:.2f}, {min(ratios):.2f} {ordered}"
                  f"| {longest[False]:.0f}, {longest[True]:.0f} |")
    print(f"\nr16 {report['r16'][0]} before, {report['r16'][-1]} after")
    for head_dim, causal in FLASH_ATTENTION_3:
        for c in dense(report, "bfloat16", head_dim):
            if c["length"] == 16384 and c["causal"] == causal:
                low, high = of_flash_attention_3(report, c)
                print(f"head_dim {head_dim} {'causal' if causal else 'full'}: "
                      f"{low:.2f} to {high:.2f} of FlashAttention-3 × r16")


FLOAT8_FLASH_ATTENTION_3 = {64: 659, 128: 900, 256: 1146}  # the same for float8, full


def others(report):
    """What is not of the dense 16-bit grid, a line a case."""
    def line(c, *parts):
        order = "" if "causal" not in c else " causal" if c["causal"] else " full"
        name = f"{c['family']}, {c['dtype']}, head_dim {c['head_dim']}, length {c['length']}{order}"
        print(f"| {name} | {'; '.join(parts)} |")

    print("| case | reached |\n|---|---|")
    for c in report["cases"]:
        family, rate = c["family"], c.get("attikos:TFLOP/s", 0)
        if rate == 0:
            line(c, f"runs {c['kernel']}, not measured")
        elif family == "packed":
            line(c, f"{rate:.0f} TFLOP/s", f"{c['ratio']:.2f} of sequences of one length")
        elif family == "short":
            line(c, f"batch {c['batch']}", f"{c['ratio']:.2f} × best peer",
                 *([f"{c['of copy']:.2f} of copy"] if "of copy" in c else []))
        elif family == "float8":
            same = c.get("head_dim_v", c["head_dim"]) == c["head_dim"]
            known = same and c["head_dim"] in FLOAT8_FLASH_ATTENTION_3 and not c["causal"] and c["length"] == 16384
            share = [rate / FLOAT8_FLASH_ATTENTION_3[c["head_dim"]] / r for r in report["r8"]] if known else []
            beside = [f"{min(share):.2f} to {max(share):.2f} of FlashAttention-3 × r8"] if known else []
            line(c, *([] if same else [f"head_dim of v {c['head_dim_v']}"]), f"{rate:.0f} TFLOP/s", *beside)
        elif family in ("random", "odd"):
            continue  # summary()
        elif family == "float32":
            line(c, f"IEEE {rate:.1f} TFLOP/s, {c['of product']:.2f} of our product",
                 f"tf32x3 {c['tf32x3 ratio']:.2f} × memory-efficient")
        elif family == "float64":
            line(c, f"{rate:.1f} TFLOP/s", f"{c['ratio']:.2f} × unfused")
        elif family == "sm80":
            line(c, f"{rate:.0f} TFLOP/s", f"{c['ratio']:.2f} × Flash")
        elif family == "options":
            line(c, f"{c['option']}: {c['ratio']:.2f} of without")
        elif family == "pages":
            line(c, f"pages of {c['page_size']}: {c['ratio']:.2f} of in one piece")
        elif family == "grouped":
            line(c, f"batch {c['batch']}, {c['queries']} queries of {c['heads']} heads", f"{rate:.0f} TFLOP/s",
                 *([f"{c['ratio']:.2f} × best peer"] if "ratio" in c else []))
        elif family == "apart":
            line(c, f"head_dim of v {c['head_dim_v']}", f"{rate:.0f} TFLOP/s",
                 *([f"{c['ratio']:.2f} × best peer"] if "ratio" in c else []))


def decode(report):
    print("| decode: type, batch, length, queries, page size | µs | of copy |\n|---|---|---|")
    for c in report["cases"]:
        dtype, pages = c.get("dtype", "bfloat16"), c["page_size"] or "none"
        print(f"| {dtype}, {c['batch']}, {c['length']}, {c['queries']}, {pages} | {c['us']:.1f} | {c['of copy']:.2f} |")


def plot_decode(report, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = [c for c in report["cases"] if c["queries"] == 1 and c.get("dtype", "bfloat16") == "bfloat16"]
    names = [f"B{c['batch']} S{c['length'] // 1024}k" + (f"\npages of {c['page_size']}" if c["page_size"] else "")
             for c in cases]  # fmt: skip
    figure, axis = pyplot.subplots(figsize=(11, 4.5))
    bars = (-0.2, "copy:GB/s", "copy"), (0, "attikos:GB/s", "Attikos"), (0.2, "flash:GB/s", "PyTorch Flash")
    for offset, key, label in bars:
        axis.bar([i + offset for i in range(len(cases))], [c.get(key, 0) for c in cases], 0.2, label=label)
    axis.set_xticks(range(len(cases)), names)
    axis.set_ylabel("GB/s of keys and values")
    axis.set_title(f"{report['device']}, decode, 32 query heads on 8 key heads, head_dim 128, bfloat16")
    axis.legend()
    figure.savefig(path, dpi=100, bbox_inches="tight")


def plot(report, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = ("bfloat16", (64, 128, 256)), ("bfloat16", (32, 96, 192)), ("float16", (64, 128, 256))
    figure, axes = pyplot.subplots(len(rows), 2, figsize=(11, 12), sharey="row")
    published = FLASH_ATTENTION_3_BACKWARD if is_backward(report) else FLASH_ATTENTION_3
    for (dtype, dims), row in zip(rows, axes):
        for axis, causal in zip(row, (False, True)):
            for head_dim in dims:
                group = sorted((c for c in dense(report, dtype, head_dim) if c["causal"] == causal and "ratio" in c),
                               key=lambda c: c["length"])
                lengths = [c["length"] for c in group]
                ours = [c["attikos:TFLOP/s"] for c in group]
                line, = axis.plot(lengths, ours, marker="o", label=f"head_dim {head_dim}")
                best = [max(c.get(f"{name}:TFLOP/s", 0) for name in PEERS) for c in group]
                axis.plot(lengths, best, linestyle="--", color=line.get_color())
                if dtype == "bfloat16" and (head_dim, causal) in published:
                    scaled = published[head_dim, causal] * sum(report["r16"]) / len(report["r16"])
                    axis.plot([16384], [scaled], marker="*", markersize=11, color=line.get_color())
            axis.set_xscale("log", base=2)
            axis.set_title(f"{report['device']}, {dtype}, {'causal' if causal else 'full'}")
            axis.legend()
        row[0].set_ylabel("TFLOP/s")
    figure.supxlabel("length (solid: Attikos, dashed: PyTorch's best back end, star: FlashAttention-3 × r16)", y=0.07)
    figure.savefig(path, dpi=80, bbox_inches="tight")


def plot_random(report, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 4))
    for family, label in ("random", "head_dim a multiple of 8"), ("odd", "odd head_dim"):
        ratios = sorted(c["ratio"] for c in report["cases"] if c["family"] == family and "ratio" in c)
        axis.plot([(i + 0.5) / len(ratios) for i in range(len(ratios))], ratios, marker="o", label=label)
    axis.axhline(1, color="gray", linewidth=0.8)
    axis.set_xlabel("share of the shapes")
    axis.set_ylabel("× PyTorch's best back end")
    axis.set_title(f"{report['device']}, attention's gradients, bfloat16, shapes of seed {report['seed']}")
    axis.legend()
    figure.savefig(path, dpi=80, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--plot")
    parser.add_argument("--plot-random", help="the random shapes of gradients, sorted")
    options = parser.parse_args()
    with open(options.file, encoding="utf-8") as file:
        report = json.load(file)
    if "queries" in report["cases"][0]:
        decode(report)
        if options.plot:
            plot_decode(report, options.plot)
        return
    if any(c["family"] == "dense" for c in report["cases"]):
        table(report)
        if options.plot:
            plot(report, options.plot)
    if options.plot_random:
        plot_random(report, options.plot_random)
    if any(c["family"] != "dense" for c in report["cases"]):
        others(report)
    summary(report)


if __name__ == "__main__":
    main()
