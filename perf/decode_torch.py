# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decode against what a copy moves, and PyTorch's Flash back end, in one process.

  decode_torch.py LIBRARY [--out FILE]

LIBRARY is the target attikos_perf_decode of a build. 32 query heads, 8 key heads, head_dim 128, bfloat16 or
float8_e4m3 with a bfloat16 result, random normal data. Calls are launched back to back in a CUDA graph over caches
that rotate past L2; ours, PyTorch's (of bfloat16) and the copy take turns, medians of their times by events. "of
copy" is the rate at which the cache is read over that of a copy of 1 GiB, read and written.
"""

import argparse
import ctypes
import json

import torch
import torch.nn.functional as functional
from companion_torch import TYPES, context, copy_call, graph_of, times
from torch.nn.attention import SDPBackend, sdpa_kernel

HEADS, HEADS_KV, HEAD_DIM = 32, 8, 128
# batch, length, queries, pages of so many positions or 0: one piece
SHAPES = [(1, 32768, 1, 0), (16, 8192, 1, 0), (128, 4096, 1, 0)]
SHAPES += [(batch, length, 1, page) for page in (16, 64) for batch, length, _, _ in SHAPES[:3]]
SHAPES += [(1, 32768, 16, 0), (16, 8192, 16, 0)]
CASES = [(dtype, *shape) for dtype in (torch.bfloat16, torch.float8_e4m3fn) for shape in SHAPES]


class Cache:
    """Keys, values and their table, and one query; another set for each that is made."""

    def __init__(self, function, dtype, batch, length, queries, page_size):
        def random(*shape):
            return torch.randn(shape, device="cuda", dtype=torch.bfloat16).to(dtype)

        pages = batch * length // page_size if page_size else 0
        shape = (pages, HEADS_KV, page_size) if page_size else (batch, HEADS_KV, length)
        self.q = random(batch, HEADS, queries, HEAD_DIM)
        self.k, self.v = random(*shape, HEAD_DIM), random(*shape, HEAD_DIM)
        self.out = torch.full(self.q.shape, float("nan"), device="cuda", dtype=torch.bfloat16)
        self.lengths = torch.full((batch,), length, device="cuda", dtype=torch.int32)
        self.table = torch.randperm(pages, device="cuda").to(torch.int32) if page_size else None
        self.function, self.page = function, (page_size, pages)
        self.extents = (ctypes.c_int64 * 7)(batch, HEADS, HEADS_KV, queries, length, HEAD_DIM, HEAD_DIM)
        self.strides = (ctypes.c_int64 * 16)(*(s for t in (self.q, self.k, self.v, self.out) for s in t.stride()))
        self.workspace, size = None, ctypes.c_int64()
        self.call(size)
        self.workspace = torch.empty(max(1, size.value), device="cuda", dtype=torch.uint8)

    def call(self, size=None):
        tensors = (self.q, self.k, self.v, self.out, self.lengths, self.table, self.workspace)
        q, k, v, out, lengths, table, workspace = (
            ctypes.c_void_p(None if t is None else t.data_ptr()) for t in tensors
        )
        stream, reason = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), ctypes.c_char_p()
        status = self.function(
            TYPES[self.q.dtype], q, k, v, out, self.extents, self.strides, lengths, table, ctypes.c_int64(self.page[0]),
            ctypes.c_int64(self.page[1]), workspace, None if size is None else ctypes.byref(size), stream,
            ctypes.byref(reason),
        )  # fmt: skip
        if status:
            raise RuntimeError(f"status {status}: {(reason.value or b'').decode()}")

    def plain(self):
        """Queries, keys and values in bfloat16 and one piece."""
        q, k, v = (t.to(torch.bfloat16) for t in (self.q, self.k, self.v))
        if self.table is None:
            return q, k, v
        batch, page_size = self.lengths.numel(), self.page[0]
        return q, *(
            t[self.table.long()].view(batch, -1, HEADS_KV, page_size, HEAD_DIM).transpose(1, 2).flatten(2, 3)
            for t in (k, v)
        )


def flash(q, k, v):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def decode_case(function, dtype, batch, length, queries, page_size):
    moved = 2 * dtype.itemsize * batch * length * HEADS_KV * HEAD_DIM
    caches = [
        Cache(function, dtype, batch, length, queries, page_size) for _ in range(max(2, 400_000_000 // moved + 1))
    ]
    count = max(1, 16 // len(caches))
    calls = [graph_of([c.call for c in caches] * count)]
    expected = flash(*caches[0].plain()) if queries == 1 else None
    if expected is not None:
        error = (caches[0].out.float() - expected.float()).abs().max().item()
        if not error < 0.01:
            raise RuntimeError(f"batch {batch}, length {length}: differs from PyTorch by {error}")
        if page_size == 0 and dtype == torch.bfloat16:
            calls.append(graph_of([lambda c=c: flash(c.q, c.k, c.v) for c in caches] * count))
    copy, bytes_of_copy = copy_call()
    calls.append(copy)
    seconds = times(calls)
    launches = len(caches) * count
    copied = bytes_of_copy / seconds[-1] * 1e-9
    rates = [moved * launches / t * 1e-9 for t in seconds[:-1]]
    case = {"dtype": TYPES[dtype].decode(), "batch": batch, "length": length, "queries": queries,
            "page_size": page_size, "us": round(seconds[0] / launches * 1e6, 2), "attikos:GB/s": round(rates[0], 1),
            "copy:GB/s": round(copied, 1), "of copy": round(rates[0] / copied, 3)}  # fmt: skip
    if len(rates) > 1:
        case["flash:GB/s"] = round(rates[1], 1)
    return case


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("companion")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    function = ctypes.CDLL(arguments.companion).attikos_perf_decode
    torch.manual_seed(0)
    report = {**context(), "cases": []}
    for case in CASES:
        report["cases"].append(decode_case(function, *case))
        print(*(f"{key} {value}" for key, value in report["cases"][-1].items()), flush=True)
        torch.cuda.empty_cache()
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
