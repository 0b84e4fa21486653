# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times one kernel of the companion, for whoever changes it.

  measure.py LIBRARY gemm/sm90_wgmma_bf16 M N K [--fast]
  measure.py LIBRARY attention/sm90_wgmma_bf16 BATCH HEADS LENGTH HEAD_DIM [--heads-kv N] [--head-dim-v N] [--causal]
  measure.py LIBRARY attention_backward/sm90_wgmma_bf16 BATCH HEADS LENGTH HEAD_DIM [...] [--unordered]

LIBRARY is that of the kernel's source, such as BUILD/perf/support/libattikos_perf_attention_sm90_bf16.so, a target of
the build, or that of its operation. More of them after --beside, from other builds, take turns with it: a change and
what it was before are measured in one process. Prints each one's median time and TFLOP/s, of a causal problem with
half the operations.
"""

import argparse

import torch
from companion_torch import Companion, times

# What the last part of a kernel's name says of the element types: of operands and of the result.
TYPES = {
    "bf16": (torch.bfloat16, torch.bfloat16), "f16": (torch.float16, torch.float16),
    "f32": (torch.float32, torch.float32), "tf32": (torch.float32, torch.float32),
    "tf32x3": (torch.float32, torch.float32), "f64": (torch.float64, torch.float64),
    "e4m3": (torch.float8_e4m3fn, torch.bfloat16), "f8": (torch.float8_e4m3fn, torch.bfloat16),
    "s8": (torch.int8, torch.int32),
}  # fmt: skip


def random(shape, dtype):
    if dtype == torch.int8:
        return torch.randint(-127, 128, shape, device="cuda", dtype=dtype)
    return torch.randn(shape, device="cuda").to(dtype)


def gemm_calls(libraries, kernel, given):
    m, n, k = given.extents
    dtype, dtype_out = TYPES[kernel.rsplit("_", 1)[-1]]
    a, b = random((m, k), dtype), random((n, k), dtype)
    c = torch.empty((m, n), device="cuda", dtype=dtype_out)
    compute = {"tf32": 1, "tf32x3": 2}.get(kernel.rsplit("_", 1)[-1], 0)
    calls = [library.product(a, b, c, kernel=kernel, compute=compute, fast=given.fast) for library in libraries]
    return calls, 2 * m * n * k


def attention_calls(libraries, kernel, given):
    batch, heads, length, d = given.extents
    dv, heads_kv = given.head_dim_v or d, given.heads_kv or heads
    dtype, dtype_out = TYPES[kernel.rsplit("_", 1)[-1]]
    q = random((batch, heads, length, d), dtype)
    k, v = random((batch, heads_kv, length, d), dtype), random((batch, heads_kv, length, dv), dtype)
    out = torch.empty((batch, heads, length, dv), device="cuda", dtype=dtype_out)
    numbers = {"causal": int(given.causal), "tf32x3": int(kernel.endswith("tf32x3"))}
    calls = [library.attention(q, k, v, out, kernel=kernel, **numbers) for library in libraries]
    return calls, 2 * batch * heads * length * length * (d + dv) // (2 if given.causal else 1)


def attend(q, k, v, causal, rows=4096):
    """out and the log-sum-exp, of one head after the other so many rows at a time."""
    out = torch.empty(*q.shape[:3], v.shape[3], device="cuda", dtype=q.dtype)
    lse = torch.empty(q.shape[:3], device="cuda")
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            shared = h * k.shape[1] // q.shape[1]
            for begin in range(0, q.shape[2], rows):
                some = slice(begin, begin + rows)
                scores = (q[b, h, some] @ k[b, shared].T).float() * q.shape[3] ** -0.5
                if causal:
                    scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu(begin + 1), float("-inf"))
                lse[b, h, some] = scores.logsumexp(1)
                out[b, h, some] = scores.softmax(1).to(q.dtype) @ v[b, shared]
    return out, lse


def backward_calls(libraries, kernel, given):
    batch, heads, length, d = given.extents
    dv, heads_kv = given.head_dim_v or d, given.heads_kv or heads
    dtype, _ = TYPES[kernel.rsplit("_", 1)[-1]]
    q, dout = random((batch, heads, length, d), dtype), random((batch, heads, length, dv), dtype)
    k, v = random((batch, heads_kv, length, d), dtype), random((batch, heads_kv, length, dv), dtype)
    out, lse = attend(q, k, v, given.causal)
    options = {"kernel": kernel, "causal": given.causal, "unordered": given.unordered}
    calls = [library.attention_backward(q, k, v, out, lse, dout, **options) for library in libraries]
    return calls, batch * heads * length * length * (6 * d + 4 * dv) // (2 if given.causal else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", metavar="LIBRARY")
    parser.add_argument("kernel", metavar="KERNEL")
    parser.add_argument("extents", metavar="EXTENT", type=int, nargs="+")
    parser.add_argument("--beside", metavar="LIBRARY", action="append", default=[])
    parser.add_argument("--heads-kv", type=int)
    parser.add_argument("--head-dim-v", type=int)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--unordered", action="store_true")
    parser.add_argument("--rounds", type=int, default=11)
    given = parser.parse_args()
    known = {"gemm": (gemm_calls, 3), "attention": (attention_calls, 4), "attention_backward": (backward_calls, 4)}
    make, wanted = known.get(given.kernel.split("/")[0], (None, -1))
    if len(given.extents) != wanted:
        parser.error("give a gemm kernel three extents, one of attention or its gradients four")
    paths = [given.library, *given.beside]
    calls, operations = make([Companion(path) for path in paths], given.kernel, given)
    for path, seconds in zip(paths, times(calls, rounds=given.rounds)):
        print(f"{seconds * 1e6:10.1f} us {operations / seconds * 1e-12:8.1f} TFLOP/s  {path}")


if __name__ == "__main__":
    main()
