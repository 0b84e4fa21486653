# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables and plot of what multi_gpu_torch.py measured, and its forward passes as perf/plan/compare.py reads them.

  report_multi_gpu.py FILE [--plot FILE] [--runs FILE [--from LENGTH]]
"""

import argparse
import json

OURS = ("ring", "all_gather", "all_to_all")
SHOWN = ("ring", *(f"{name}, peers" for name in OURS))
BEST = "ring, peers"
THEIRS = ("PyTorch, allgather", "PyTorch, alltoall")


def best(rates, names):
    return max((rates[name] for name in names if name in rates), default=None)


def name_of(case):
    mask = "causal" if case["causal"] else "full"
    return f"{case['length'] // 1024}k {mask}, forward{' and backward' if case['backward'] else ''}"


def table(report):
    print(f"{report['ranks']} × {report['device']}, PyTorch {report['torch']}, NCCL {report['nccl']}; TFLOP/s a GPU\n")
    print(f"| tokens in all | one GPU | {' | '.join(SHOWN)} | PyTorch's | {BEST} of one GPU | {BEST} × PyTorch's |")
    print("|---" * (5 + len(SHOWN)) + "|")
    for case in report["times"]:
        rates = case["TFLOP/s a GPU"]
        peer = best(rates, THEIRS)
        ours = [f"{rates[name]:.0f}" if name in rates else "" for name in ("one GPU", *SHOWN)]
        of_peer = f"{rates[BEST] / peer:.2f}" if peer else ""
        print(f"| {name_of(case)} | {' | '.join(ours)} | {peer or 0:.0f} | {case['efficiency'][BEST]:.2f} | {of_peer} |")
    for case in report["packed"]:
        rates = case["TFLOP/s a GPU"]
        ours = [f"{rates[name]:.0f}" if name in rates else "" for name in ("one GPU", *SHOWN)]
        what = f"{case['sequences']} sequences, forward{' and backward' if case['backward'] else ''}"
        print(f"| {what} | {' | '.join(ours)} | | {case['efficiency'][BEST]:.2f} | |")


def products(report):
    """The feed-forward block, beside the same products without messages."""
    columns = ("ours", "ours, peers", "ours, no messages", "PyTorch", "PyTorch, no messages")
    print(f"\n| rows | {' | '.join(columns)} | ours, peers × PyTorch's |")
    print("|---" * (2 + len(columns)) + "|")
    for case in report["mlp"]:
        rates = case["TFLOP/s a GPU"]
        found = " | ".join(f"{rates[name]:.0f}" for name in columns)
        print(f"| {case['rows']} | {found} | {case['ratio']['ours, peers']:.2f} |")


def host(report):
    """What calls take the host, of reports that have it."""
    cases = report.get("enqueue", [])
    calls = [case for case in cases if "messages" not in case]
    if not calls:
        return
    columns = [*dict.fromkeys(name for case in calls for name in case["microseconds"])]
    print(f"\nMicroseconds until a call returns\n\n| | {' | '.join(columns)} |")
    print("|---" * (1 + len(columns)) + "|")
    for case in calls:
        both = f"forward{' and backward' if case['backward'] else ''}"
        name = name_of(case) if "length" in case else f"{case['sequences']} sequences, {both}"
        print(f"| {name} | {' | '.join(str(case['microseconds'].get(column, '')) for column in columns)} |")
    for case in cases:
        if "messages" in case:
            found = ", ".join(f"{microseconds} by {name}" for name, microseconds in case["microseconds"].items())
            print(f"\n{case['messages']} messages of a step of the ring: {found}")


def plot(report, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    panels = [(causal, backward) for backward in (False, True) for causal in (True, False)]
    figure, axes = pyplot.subplots(1, len(panels), figsize=(14, 3.8), sharey=True)
    lines = {"one GPU": "k--", "ring": "C0o:", "ring, peers": "C0o-", "all_gather, peers": "C1s-",
             "all_to_all, peers": "C2^-"}  # fmt: skip
    for axis, (causal, backward) in zip(axes, panels):
        cases = [c for c in report["times"] if (c["causal"], c["backward"]) == (causal, backward)]
        lengths = [c["length"] / 1024 for c in cases]
        for name, style in lines.items():
            axis.plot(lengths, [c["TFLOP/s a GPU"].get(name) for c in cases], style, label=name)
        axis.plot(lengths, [best(c["TFLOP/s a GPU"], THEIRS) for c in cases], "C3x-", label="PyTorch's context parallel")
        axis.set_xscale("log", base=2)
        axis.set_xticks(lengths, [f"{n:g}k" for n in lengths])
        axis.set_title(f"{'causal' if causal else 'full'}, forward{' and backward' if backward else ''}", fontsize=10)
        axis.set_xlabel("tokens in all")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("TFLOP/s a GPU")
    axes[0].set_ylim(bottom=0)
    axes[-1].legend(fontsize=8)
    figure.suptitle(f"{report['ranks']} × {report['device']}, 16 heads × 128, bfloat16", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def runs(report, shortest):
    """Calls as attikos-measure describes them."""
    heads, head_dim = 16, 128
    for case in report["times"]:
        if case["backward"] or case["length"] < shortest:
            continue
        operations = 4 * heads * head_dim * case["length"] ** 2 / (2 if case["causal"] else 1)
        for layout in OURS:
            yield {
                "ranks": report["ranks"], "length": case["length"], "heads": heads, "kv_heads": heads,
                "head_dim": head_dim, "type": "bfloat16", "causal": case["causal"], "layout": layout,
                "seconds": operations / report["ranks"] / (case["TFLOP/s a GPU"][layout] * 1e12),
            }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--plot")
    parser.add_argument("--runs")
    parser.add_argument("--from", dest="shortest", type=int, default=0)
    arguments = parser.parse_args()
    with open(arguments.file, encoding="utf-8") as file:
        report = json.load(file)
    table(report)
    products(report)
    host(report)
    if arguments.plot:
        plot(report, arguments.plot)
    if arguments.runs:
        with open(arguments.runs, "w", encoding="utf-8") as file:
            json.dump(list(runs(report, arguments.shortest)), file)


if __name__ == "__main__":
    main()
