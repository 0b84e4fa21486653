# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forward attention against PyTorch's back ends (cuDNN, Flash, memory-efficient), in one process.

  nvcc -std=c++20 -O2 -shared -Xcompiler -fPIC -Iinclude -IBUILD/include perf/support/companion_attention.cpp \\
    BUILD/cuda_specializations/libattikos_cuda.a -o companion.so
  peers_torch.py ./companion.so [--out FILE] [--quick]

Random normal data, 16384 tokens in all, heads × head_dim = 2048 (or as near as it gets); peers and ours take turns,
medians of their times by events; a causal problem counts half the operations. "ratio" is ours over the best back
end. r16 is PyTorch's bfloat16 product of 8192³ with B transposed, over 681 TFLOP/s, before and after: it carries
published figures to the card and its clocks of the day. "packed" cases are sequences of random lengths in one
tensor, against ours of as many tokens in sequences of one length that cost the same.
"""

import argparse
import ctypes
import json
import random
import statistics

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

TOKENS, HIDDEN = 16384, 2048
PEERS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def times(calls, rounds=5, budget_ms=2.0):
    """Median seconds of each call; the calls take turns."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    repeats, all_times = [], [[] for _ in calls]

    def measure(call, count):
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / count

    for call in calls:
        measure(call, 2)
        repeats.append(max(1, min(50, int(budget_ms * 1e-3 / measure(call, 1)))))
    for _ in range(rounds):
        for call, count, mine in zip(calls, repeats, all_times):
            mine.append(measure(call, count))
    return [statistics.median(mine) for mine in all_times]


class Companion:
    def __init__(self, path):
        self.function = ctypes.CDLL(path).attikos_perf_attention

    def call(self, q, k, v, out, lse, causal, cu_seqlens=None):
        """A function that attends; q, k, v, out are [batch, heads, positions, features]."""
        batch = q.shape[0] if cu_seqlens is None else cu_seqlens.numel() - 1
        extents = (ctypes.c_int64 * 7)(batch, q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3])
        strides = (ctypes.c_int64 * 16)(*(s for t in (q, k, v, out) for s in t.stride()))
        half, reason = q.dtype == torch.float16, ctypes.c_char_p()
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (q, k, v, out, lse)]
        packed = ctypes.c_void_p(None if cu_seqlens is None else cu_seqlens.data_ptr())
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

        def run():
            status = self.function(
                int(half), *pointers, extents, strides, int(causal), packed, stream, ctypes.byref(reason)
            )
            if status:
                raise RuntimeError(f"status {status}: {(reason.value or b'').decode()}")

        run.operands = q, k, v, out, lse, cu_seqlens  # whose memory would be given to others
        return run


def peer(backend, q, k, v, causal):
    def run():
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return run


def dense_case(ours, dtype, head_dim, length, causal):
    batch, heads = TOKENS // length, HIDDEN // head_dim
    q, k, v = (torch.randn(batch, heads, length, head_dim, device="cuda", dtype=dtype) for _ in range(3))
    out, lse = torch.full_like(q, float("nan")), torch.empty(batch, heads, length, device="cuda")
    calls, names = [ours.call(q, k, v, out, lse, causal)], ["attikos"]
    for name, backend in PEERS.items():
        call = peer(backend, q, k, v, causal)
        try:
            expected = call()
        except RuntimeError:  # the back end has no kernel for this case
            continue
        calls.append(call)
        names.append(name)
    operations = 4 * batch * heads * length * length * head_dim * (0.5 if causal else 1)
    rates = {name: operations / t * 1e-12 for name, t in zip(names, times(calls))}
    error = (out.float() - expected.float()).abs().max().item()
    if not error < 0.03:
        raise RuntimeError(f"head_dim {head_dim}, length {length}: differs from PyTorch by {error}")
    case = {"family": "dense", "dtype": str(dtype)[6:], "head_dim": head_dim, "length": length, "causal": causal}
    case.update({f"{name}:TFLOP/s": round(rate, 1) for name, rate in rates.items()})
    case["ratio"] = round(rates["attikos"] / max(rate for name, rate in rates.items() if name != "attikos"), 3)
    return case


def packed_case(ours, head_dim, causal, sequences=64, shortest=32, longest=4096):
    lengths = [random.randint(shortest, longest) for _ in range(sequences)]
    total, squares = sum(lengths), sum(n * n for n in lengths)
    length = round(squares / total / 128) * 128
    batch, heads = round(total / length), HIDDEN // head_dim
    offsets = [0]
    for n in lengths:
        offsets.append(offsets[-1] + n)
    cu_seqlens = torch.tensor(offsets, device="cuda", dtype=torch.int32)

    def tensors(count, positions):
        shape = (count, positions, heads, head_dim)
        return [torch.randn(shape, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for _ in range(4)]

    packed = ours.call(*tensors(1, total), torch.empty(heads, total, device="cuda"), causal, cu_seqlens)
    dense = ours.call(*tensors(batch, length), torch.empty(batch, heads, length, device="cuda"), causal)
    factor = 4e-12 * heads * head_dim * (0.5 if causal else 1)
    t = times([packed, dense])
    rates = factor * squares / t[0], factor * batch * length * length / t[1]
    return {
        "family": "packed", "dtype": "bfloat16", "head_dim": head_dim, "causal": causal, "sequences": sequences,
        "length": length, "attikos:TFLOP/s": round(rates[0], 1), "dense:TFLOP/s": round(rates[1], 1),
        "ratio": round(rates[0] / rates[1], 3),
    }  # fmt: skip


def product_rate():
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2e-12 * 8192**3 / times([lambda: a @ b.t()])[0] / 681


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("companion")
    parser.add_argument("--out")
    parser.add_argument("--quick", action="store_true", help="bfloat16, lengths 512, 2048, 16384")
    arguments = parser.parse_args()
    ours = Companion(arguments.companion)
    torch.manual_seed(0)
    random.seed(1)
    lengths = (512, 2048, 16384) if arguments.quick else (512, 1024, 2048, 4096, 8192, 16384)
    grid = [(torch.bfloat16, d, lengths) for d in (64, 128, 256)]
    grid += [] if arguments.quick else [(torch.float16, d, lengths) for d in (64, 128, 256)]
    grid += [(torch.bfloat16, d, (512, 2048, 16384)) for d in (32, 96, 192)]
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "r16": [round(product_rate(), 3)]}
    report["cases"] = []

    def add(case):
        report["cases"].append(case)
        print(*(f"{key} {value}" for key, value in case.items()), flush=True)

    for dtype, head_dim, of_lengths in grid:
        for length in of_lengths:
            for causal in (False, True):
                add(dense_case(ours, dtype, head_dim, length, causal))
    for head_dim in (64, 128, 256):
        for causal in (False, True):
            add(packed_case(ours, head_dim, causal))
    report["r16"].append(round(product_rate(), 3))
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")
    for dtype, head_dim, _ in grid:
        ratios = [
            c["ratio"] for c in report["cases"]
            if c["family"] == "dense" and c["head_dim"] == head_dim and c["dtype"] == str(dtype)[6:]
        ]  # fmt: skip
        print(str(dtype)[6:], head_dim, f"mean {statistics.mean(ratios):.3f} least {min(ratios):.3f}")
    print("r16", report["r16"])


if __name__ == "__main__":
    main()
