# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention against PyTorch's back ends (cuDNN, Flash, memory-efficient), in one process.

  peers_torch.py LIBRARY [--out FILE] [--quick] [--families LIST]
  peers_torch.py [LIBRARY] --backward [--out FILE] [--families LIST] [--seed N] [--portable]

LIBRARY is the target attikos_perf_attention of a build, perf/support/libattikos_perf_attention.so. Random normal
data; peers and ours take turns, medians of their times by events; a causal problem counts half the operations.
"ratio" is ours over the best back end. r16 is PyTorch's bfloat16 product of 8192³ with B transposed, over 681
TFLOP/s, r8 that of float8 with fast sums over 1277, before and after: they carry published figures to the card and
its clocks of the day. Families, all of them unless a list is given:

  dense    16384 tokens in all, heads × head_dim = 2048 (or as near as it gets), 16-bit types
  packed   sequences of random lengths in one tensor, against ours of as many tokens in sequences of one length that
           cost the same
  short    many short sequences, also as a share of what a copy moves; 24 calls of each side are one CUDA graph
  types    float8, float32 (beside our IEEE product of 4096³), tf32x3, float64 (beside unfused PyTorch)
  sm80     the kernels for any strides, beside Flash
  options  a window, softcap, ALiBi and a bias beside the same call without
  pages    keys and values in pages of 1 to 256 positions beside the same in one piece
  apart    values with a head_dim of their own
  grouped  32 heads of queries, few of them each, that share 8 of keys, beside the back ends that take such

--backward measures gradients, ours through the Python package or, if LIBRARY is given, of attikos_perf_attention_backward,
which has no packed sequences and no options; deterministic unless "unordered" is said, in CUDA graphs. Ten operations count for a pair and a feature. Families: dense, short, packed, options, types and sm80 as above;
random, 30 shapes of a seed and, reported apart, five of an odd head_dim. Calls that would run the portable kernel,
which takes seconds, are listed; --portable measures them too.

FILE is written anew after each case: a run that is ended early leaves what it measured.
"""

import argparse
import json
import random

import report_attention
import torch
import torch.nn.functional as functional
from companion_torch import (
    Companion, context, copy_call, in_graph, in_turn, packed_sequences, pairs_of_window, times,
)  # fmt: skip
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

TOKENS, HIDDEN = 16384, 2048
PEERS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def peer(backend, q, k, v, causal):
    def run():
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return run


def operations_of(batch, heads, length, head_dim, causal):
    return 4 * batch * heads * length * length * head_dim * (0.5 if causal else 1)


def operands(dtype, batch, heads, length, head_dim):
    """q, k, v, a poisoned out and the log-sum-exp."""
    shape = batch, heads, length, head_dim
    q, k, v = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(3))
    return q, k, v, torch.full_like(q, float("nan")), torch.empty(shape[:3], device="cuda")


def peer_calls(sets, causal, names=tuple(PEERS)):
    """Calls of the back ends that have a kernel for the case, by name, and what the last of them returns."""
    calls, expected = {}, None
    for name in names:
        of_sets = [peer(PEERS[name], q, k, v, causal) for q, k, v, *_ in sets]
        try:
            expected = of_sets[0]()
        except RuntimeError:  # the back end has no kernel for this case
            continue
        calls[name] = in_turn(of_sets)
    return calls, expected


def require_close(case, out, expected, most=0.03):
    error = (out.float() - expected.float()).abs().max().item()
    if not error < most:
        raise RuntimeError(f"{case}: differs from PyTorch by {error}")


def rates_of(case, operations, calls):
    """Adds the rates of calls by name, and ours over the best of the others, to a case."""
    seconds = times(list(calls.values()))
    rates = {name: operations / t * 1e-12 for name, t in zip(calls, seconds)}
    case.update({f"{name}:TFLOP/s": round(rate, 1) for name, rate in rates.items()})
    others = [rate for name, rate in rates.items() if name != "attikos"]
    if others:
        case["ratio"] = round(rates["attikos"] / max(others), 3)
    return dict(zip(calls, seconds))


def dense_case(ours, dtype, head_dim, length, causal, family="dense", kernel="", peers=tuple(PEERS)):
    batch, heads = TOKENS // length, HIDDEN // head_dim
    x = operands(dtype, batch, heads, length, head_dim)
    calls = {"attikos": ours.attention(*x, causal=causal, kernel=kernel)}
    others, expected = peer_calls([x], causal, peers)
    case = {"family": family, "dtype": str(dtype)[6:], "head_dim": head_dim, "length": length, "causal": causal}
    rates_of(case, operations_of(batch, heads, length, head_dim, causal), {**calls, **others})
    require_close(case, x[3], expected)
    return case


def short_case(ours, dtype, batch, length, head_dim, causal, copy, heads=8, count=24):
    """Each call takes less time than PyTorch takes to launch it: both sides' are captured."""
    moved = 4 * 2 * batch * heads * length * head_dim
    sets = [operands(dtype, batch, heads, length, head_dim) for _ in range(max(2, 300_000_000 // moved + 1))]
    calls = {"attikos": in_turn([ours.attention(*x, causal=causal) for x in sets])}
    others, expected = peer_calls(sets, causal)
    graphs = {name: in_graph(call, count, len(sets)) for name, call in {**calls, **others}.items()}
    uncaptured = [name for name, (_, captured) in graphs.items() if not captured]
    case = {"family": "short", "dtype": str(dtype)[6:], "batch": batch, "heads": heads, "head_dim": head_dim,
            "length": length, "causal": causal,
            "timing": ", but not ".join(["graph", *uncaptured])}  # fmt: skip
    operations = count * operations_of(batch, heads, length, head_dim, causal)
    seconds = rates_of(case, operations, {name: graph for name, (graph, _) in graphs.items()})["attikos"]
    require_close(case, sets[0][3], expected)
    call, bytes_of_copy = copy
    case["of copy"] = round(count * moved / seconds / (bytes_of_copy / times([call])[0]), 3)
    return case


def packed_case(ours, head_dim, causal):
    offsets, squares, batch, length = packed_sequences(random)
    total, heads = offsets[-1], HIDDEN // head_dim
    cu_seqlens = torch.tensor(offsets, device="cuda", dtype=torch.int32)

    def tensors(count, positions):
        shape = (count, positions, heads, head_dim)
        return [torch.randn(shape, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for _ in range(4)]

    lse = torch.empty(heads, total, device="cuda"), torch.empty(batch, heads, length, device="cuda")
    packed = ours.attention(*tensors(1, total), lse[0], causal=causal, cu_seqlens=cu_seqlens)
    dense = ours.attention(*tensors(batch, length), lse[1], causal=causal)
    factor = 4e-12 * heads * head_dim * (0.5 if causal else 1)
    t = times([packed, dense])
    rates = factor * squares / t[0], factor * batch * length * length / t[1]
    return {
        "family": "packed", "dtype": "bfloat16", "head_dim": head_dim, "causal": causal, "sequences": len(offsets) - 1,
        "length": length, "attikos:TFLOP/s": round(rates[0], 1), "dense:TFLOP/s": round(rates[1], 1),
        "ratio": round(rates[0] / rates[1], 3),
    }  # fmt: skip


def float8_case(ours, head_dim, length, causal, head_dim_v=None):
    head_dim_v = head_dim_v or head_dim
    batch, heads = TOKENS // length, HIDDEN // max(head_dim, head_dim_v)
    q, k, v, out, lse = operands(torch.bfloat16, batch, heads, length, head_dim)
    if head_dim_v != head_dim:
        v = torch.randn(batch, heads, length, head_dim_v, device="cuda", dtype=torch.bfloat16)
        out = torch.full_like(v, float("nan"))
    q, k, v = (t.to(torch.float8_e4m3fn) for t in (q, k, v))
    call = ours.attention(q, k, v, out, lse, causal=causal)
    call()
    case = {"family": "float8", "dtype": "float8_e4m3", "head_dim": head_dim, "head_dim_v": head_dim_v,
            "length": length, "causal": causal}  # fmt: skip
    # Back ends that want one head_dim get zeros, and scale by that of q.
    wide = [functional.pad(t.to(torch.bfloat16), (0, max(head_dim, head_dim_v) - t.shape[3])) for t in (q, k, v)]
    wide[0] *= (max(head_dim, head_dim_v) / head_dim) ** 0.5
    expected = peer(PEERS["flash"], *wide, causal)()[..., :head_dim_v]
    require_close(case, out, expected, 0.2)  # weights are rounded to float8
    operations = operations_of(batch, heads, length, (head_dim + head_dim_v) / 2, causal)
    rates_of(case, operations, {"attikos": call})
    return case


def float32_case(ours, head_dim, length, causal):
    batch, heads = TOKENS // length, HIDDEN // head_dim
    x = operands(torch.float32, batch, heads, length, head_dim)
    calls = {"attikos": ours.attention(*x, causal=causal)}
    calls["attikos"]()
    others, expected = peer_calls([x], causal, ("efficient",))
    case = {"family": "float32", "dtype": "float32", "head_dim": head_dim, "length": length, "causal": causal}
    require_close(case, x[3], expected, 1e-4)
    calls["tf32x3"] = ours.attention(*x, causal=causal, tf32x3=1)
    a, b, c = (torch.randn(4096, 4096, device="cuda") for _ in range(3))
    calls["product"] = ours.product(a, b, c, kernel="gemm/sm90_simt_f32")
    seconds = rates_of(case, operations_of(batch, heads, length, head_dim, causal), {**calls, **others})
    require_close(case, x[3], expected, 1e-4)
    del case["product:TFLOP/s"], case["ratio"]
    product = 2 * 4096**3 / seconds["product"] * 1e-12
    case["product:TFLOP/s"] = round(product, 1)
    case["of product"] = round(case["attikos:TFLOP/s"] / product, 3)
    case["tf32x3 ratio"] = round(case["tf32x3:TFLOP/s"] / case["efficient:TFLOP/s"], 3)
    return case


def float64_case(ours, head_dim, length, causal):
    heads = HIDDEN // head_dim
    q, k, v, out, _ = operands(torch.float64, 1, heads, length, head_dim)
    hidden = torch.ones(length, length, device="cuda", dtype=torch.bool).triu(1) if causal else None

    def unfused():
        scores = q @ k.transpose(2, 3) * head_dim**-0.5
        if causal:
            scores.masked_fill_(hidden, float("-inf"))
        return torch.softmax(scores, -1) @ v

    calls = {"attikos": ours.attention(q, k, v, out, causal=causal), "unfused": unfused}
    case = {"family": "float64", "dtype": "float64", "head_dim": head_dim, "length": length, "causal": causal}
    rates_of(case, operations_of(1, heads, length, head_dim, causal), calls)
    require_close(case, out, unfused(), 1e-6)
    return case


def option_case(ours, head_dim, name, length=4096):
    """A call with one option beside the same without. A window's operations are those of the 128-key blocks it
    touches, of rows of 128 queries."""
    batch, heads = TOKENS // length, HIDDEN // head_dim
    if name == "window":
        batch, length = 1, TOKENS
    x = operands(torch.bfloat16, batch, heads, length, head_dim)
    options = {
        "window": {"causal": 1, "window": 1024},
        "softcap": {"softcap": 30.0},
        "alibi": {"alibi": torch.rand(heads, device="cuda")},
        "bias": {"bias": torch.randn(length, length, device="cuda", dtype=torch.bfloat16)},
    }[name]
    causal = options.get("causal", 0)
    seconds = times([ours.attention(*x, **options), ours.attention(*x, causal=causal)])
    factor = 4e-12 * batch * heads * head_dim
    plain = factor * length * length * (0.5 if causal else 1)
    share = plain
    if name == "window":
        share = factor * pairs_of_window(length, 1024)
    rates = share / seconds[0], plain / seconds[1]
    return {"family": "options", "dtype": "bfloat16", "head_dim": head_dim, "option": name, "length": length,
            "attikos:TFLOP/s": round(rates[0], 1), "plain:TFLOP/s": round(rates[1], 1),
            "ratio": round(rates[0] / rates[1], 3)}  # fmt: skip


def pages_case(ours, head_dim, causal, page_size):
    """Pages in random order, of which each sequence has as many as it fills."""
    batch, heads, count = 4, HIDDEN // head_dim, 4096 // page_size
    length = count * page_size
    q, k, v, out, lse = operands(torch.bfloat16, batch, heads, length, head_dim)
    table = torch.randperm(batch * count, device="cuda", dtype=torch.int32).view(batch, count)

    def paged(x):
        pages = x.unflatten(2, (count, page_size)).transpose(1, 2).reshape(batch * count, heads, page_size, head_dim)
        result = torch.empty_like(pages)
        result[table.flatten().long()] = pages
        return result

    plain = ours.attention(q, k, v, out, lse, causal=int(causal))
    plain()
    expected = out.clone()
    in_pages = ours.attention(q, paged(k), paged(v), out, lse, causal=int(causal), page_table=table)
    out.fill_(float("nan"))
    in_pages()
    require_close({"family": "pages", "page_size": page_size}, out, expected, 1e-9 if page_size % 8 == 0 else 0.03)
    seconds = times([in_pages, plain])
    work = 1e-12 * operations_of(batch, heads, length, head_dim, causal)
    return {"family": "pages", "dtype": "bfloat16", "head_dim": head_dim, "page_size": page_size, "length": length,
            "causal": causal, "attikos:TFLOP/s": round(work / seconds[0], 1),
            "plain:TFLOP/s": round(work / seconds[1], 1), "ratio": round(seconds[1] / seconds[0], 3)}  # fmt: skip


def apart_case(ours, head_dim, head_dim_v, causal):
    """Queries and keys of one head_dim, values of another, beside the best back end that takes them."""
    batch, heads, length = 4, 16, 4096
    q, k, _, _, lse = operands(torch.bfloat16, batch, heads, length, head_dim)
    v = torch.randn(batch, heads, length, head_dim_v, device="cuda", dtype=torch.bfloat16)
    out = torch.full_like(v, float("nan"))
    case = {"family": "apart", "dtype": "bfloat16", "head_dim": head_dim, "head_dim_v": head_dim_v, "length": length,
            "causal": causal}  # fmt: skip
    calls, expected = peer_calls([(q, k, v)], causal)
    mine = ours.attention(q, k, v, out, lse, causal=int(causal))
    mine()
    if expected is not None:
        require_close(case, out, expected)
    operations = operations_of(batch, heads, length, (head_dim + head_dim_v) / 2, causal)
    rates_of(case, operations, {"attikos": mine} | calls)
    return case


def grouped_case(ours, head_dim, batch, queries, keys, causal, heads=32, heads_kv=8):
    shape = batch, heads, queries, head_dim
    q = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(batch, heads_kv, keys, head_dim, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out, lse = torch.full_like(q, float("nan")), torch.empty(shape[:3], device="cuda")
    mine, expected, calls = ours.attention(q, k, v, out, lse, causal=causal), None, {}
    mine()
    mask = causal_lower_right(queries, keys) if causal else None

    def peer_of(backend):
        def run():
            with sdpa_kernel(backend):
                return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)

        return run

    for name in ("cudnn", "flash"):
        try:
            expected = peer_of(PEERS[name])()
        except RuntimeError:  # the back end has no kernel for this case
            continue
        calls[name] = peer_of(PEERS[name])
    case = {"family": "grouped", "dtype": "bfloat16", "heads": heads, "heads_kv": heads_kv, "head_dim": head_dim,
            "batch": batch, "queries": queries, "length": keys, "causal": causal}  # fmt: skip
    if expected is not None:
        require_close(case, out, expected)
    pairs = queries * keys - (queries * (queries - 1) / 2 if causal else 0)
    rates_of(case, 4 * batch * heads * pairs * head_dim, {"attikos": mine} | calls)
    return case


def product_rates():
    """r16 and r8."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    a8, b8 = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    one = torch.ones((), device="cuda")

    def scaled():
        return torch._scaled_mm(a8, b8.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)

    seconds = times([lambda: a @ b.t(), scaled])
    return round(2e-12 * 8192**3 / seconds[0] / 681, 3), round(2e-12 * 8192**3 / seconds[1] / 1277, 3)


def dense_grid(quick):
    lengths = (512, 2048, 16384) if quick else (512, 1024, 2048, 4096, 8192, 16384)
    grid = [(torch.bfloat16, d, lengths) for d in (64, 128, 256)]
    grid += [] if quick else [(torch.float16, d, lengths) for d in (64, 128, 256)]
    return grid + [(torch.bfloat16, d, (512, 2048, 16384)) for d in (32, 96, 192)]


def cases(ours, families, quick):
    """Functions of the cases that make up the families."""
    both = (False, True)
    if "dense" in families:
        for dtype, head_dim, lengths in dense_grid(quick):
            for length in lengths:
                for causal in both:
                    yield lambda a=(dtype, head_dim, length, causal): dense_case(ours, *a)
    if "packed" in families:
        for head_dim in (64, 128, 256):
            for causal in both:
                yield lambda a=(head_dim, causal): packed_case(ours, *a)
    if "short" in families:
        copy = copy_call()
        for dtype in (torch.bfloat16,) if quick else (torch.bfloat16, torch.float16):
            for batch, length, head_dim in ((512, 64, 64), (512, 64, 32), (256, 128, 64), (128, 256, 64)):
                for causal in both:
                    yield lambda a=(dtype, batch, length, head_dim, causal): short_case(ours, *a, copy)
    if "types" in families:
        for causal in both:
            for head_dim in (64, 128, 256):
                for length in (16384,) if quick else (2048, 16384):
                    yield lambda a=(head_dim, length, causal): float8_case(ours, *a)
            for head_dim, head_dim_v in ((32, 32), (96, 96), (192, 192), (192, 128), (64, 256)):
                yield lambda a=(head_dim, 16384, causal, head_dim_v): float8_case(ours, *a)
            for head_dim in (64, 128):
                for length in (4096,) if quick else (1024, 4096):
                    yield lambda a=(head_dim, length, causal): float32_case(ours, *a)
                    yield lambda a=(head_dim, length, causal): float64_case(ours, *a)
    if "sm80" in families:
        for head_dim in (64, 128, 256):
            for length in (4096,) if quick else (1024, 4096, 16384):
                for causal in both:
                    yield lambda a=(head_dim, length, causal): dense_case(
                        ours, torch.bfloat16, *a, "sm80", "attention/sm80_mma_bf16", ("flash",)
                    )
    if "options" in families:
        for head_dim in (64, 128, 256):
            for name in ("window", "softcap", "alibi", "bias"):
                yield lambda a=(head_dim, name): option_case(ours, *a)
    if "pages" in families:
        for head_dim in (64, 128, 256):
            for causal in both:
                for page_size in (1, 4, 16, 24, 64, 256):
                    yield lambda a=(head_dim, causal, page_size): pages_case(ours, *a)
    if "apart" in families:
        for head_dim, head_dim_v in ((192, 128), (64, 256), (64, 512)):
            for causal in both:
                yield lambda a=(head_dim, head_dim_v, causal): apart_case(ours, *a)
    if "grouped" in families:
        for head_dim in (64, 128):
            for batch, queries, keys in ((16, 16, 4096), (16, 64, 4096), (8, 160, 4096), (4, 512, 4096)):
                for causal in both:
                    yield lambda a=(head_dim, batch, queries, keys, causal): grouped_case(ours, *a)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("companion", nargs="?")
    parser.add_argument("--out")
    parser.add_argument("--backward", action="store_true", help="gradients, through the Python package or the library")
    parser.add_argument("--seed", type=int, default=1, help="of the random shapes of --backward")
    parser.add_argument("--portable", action="store_true", help="measure the portable kernel of --backward too")
    parser.add_argument("--quick", action="store_true", help="fewer types and lengths")
    parser.add_argument("--families")
    arguments = parser.parse_args()
    if not arguments.backward and arguments.companion is None:
        parser.error("give a library, or --backward")
    torch.manual_seed(0)
    random.seed(1)
    report = {**context(), "cases": []}
    if arguments.backward:
        from backward_torch import cases as backward_cases

        library = None if arguments.companion is None else Companion(arguments.companion)
        todo = backward_cases(PEERS, arguments.families, arguments.seed, arguments.portable, library)
        report |= {"direction": "backward", "seed": arguments.seed}
    else:
        families = arguments.families or "dense,packed,short,types,sm80,options,pages,apart,grouped"
        todo = cases(Companion(arguments.companion), families.split(","), arguments.quick)

    def write():
        if arguments.out:
            with open(arguments.out, "w", encoding="utf-8") as file:
                json.dump(report, file, indent=1)
                file.write("\n")

    before = product_rates()
    report["r16"], report["r8"] = [before[0]], [before[1]]
    for case in todo:
        report["cases"].append(case())
        print(*(f"{key} {value}" for key, value in report["cases"][-1].items()), flush=True)
        write()
    report["r16"], report["r8"] = (list(pair) for pair in zip(before, product_rates()))
    write()
    print("r16", report["r16"], "r8", report["r8"])
    report_attention.summary(report)


if __name__ == "__main__":
    main()
