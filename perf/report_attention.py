# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables and a plot of what peers_torch.py measured.

  report_attention.py FILE [--plot FILE]
"""

import argparse
import json
import math

# TFLOP/s of FlashAttention-3 on one H200 at length 16384: head_dim, causal (bfloat16, heads × head_dim 2048).
FLASH_ATTENTION_3 = {(64, False): 522, (128, False): 690, (256, False): 743,
                     (64, True): 514, (128, True): 660, (256, True): 713}
PEERS = ("cudnn", "flash", "efficient")


def dense(report, dtype, head_dim):
    return [c for c in report["cases"]
            if c["family"] == "dense" and c["dtype"] == dtype and c["head_dim"] == head_dim]


def table(report):
    dims = sorted({c["head_dim"] for c in report["cases"]})
    print("| type, head_dim | lengths | × best peer: mean, least | TFLOP/s at 16384: full, causal |\n|---|---|---|---|")
    for dtype in ("bfloat16", "float16"):
        for head_dim in dims:
            group = dense(report, dtype, head_dim)
            if not group:
                continue
            ratios = [c["ratio"] for c in group]
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            longest = {c["causal"]: c["attikos:TFLOP/s"] for c in group if c["length"] == 16384}
            lengths = sorted({c["length"] for c in group})
            print(f"| {dtype}, {head_dim} | {lengths[0]} … {lengths[-1]} | {mean:.2f}, {min(ratios):.2f} "
                  f"| {longest[False]:.0f}, {longest[True]:.0f} |")
    low, high = min(report["r16"]), max(report["r16"])
    print(f"\nr16 {report['r16'][0]} before, {report['r16'][1]} after")
    for (head_dim, causal), rate in FLASH_ATTENTION_3.items():
        for c in dense(report, "bfloat16", head_dim):
            if c["length"] == 16384 and c["causal"] == causal:
                share = c["attikos:TFLOP/s"] / rate
                print(f"head_dim {head_dim} {'causal' if causal else 'full'}: "
                      f"{share / high:.2f} to {share / low:.2f} of FlashAttention-3 × r16")
    for c in report["cases"]:
        if c["family"] == "packed":
            print(f"packed, head_dim {c['head_dim']} {'causal' if c['causal'] else 'full'}: {c['ratio']} of dense")


def plot(report, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.5), sharey=True)
    for axis, causal in zip(axes, (False, True)):
        for head_dim in (64, 128, 256):
            group = sorted((c for c in dense(report, "bfloat16", head_dim) if c["causal"] == causal),
                           key=lambda c: c["length"])
            lengths = [c["length"] for c in group]
            line, = axis.plot(lengths, [c["attikos:TFLOP/s"] for c in group], marker="o", label=f"head_dim {head_dim}")
            best = [max(c.get(f"{name}:TFLOP/s", 0) for name in PEERS) for c in group]
            axis.plot(lengths, best, linestyle="--", color=line.get_color())
        axis.set_xscale("log", base=2)
        axis.set_title(f"{report['device']}, bfloat16, {'causal' if causal else 'full'}")
        axis.set_xlabel("length (solid: Attikos, dashed: PyTorch's best back end)")
    axes[0].set_ylabel("TFLOP/s")
    axes[0].legend()
    figure.savefig(path, dpi=100, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--plot")
    options = parser.parse_args()
    with open(options.file, encoding="utf-8") as file:
        report = json.load(file)
    table(report)
    if options.plot:
        plot(report, options.plot)


if __name__ == "__main__":
    main()
