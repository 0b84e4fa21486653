# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""append_kv against copies of as many bytes, in one process.

  append_kv_torch.py LIBRARY [--out FILE]

LIBRARY is the target attikos_perf_append_kv of a build. head_dim 128, random normal data; caches hold what is new and
as much again. Calls are launched back to back in a CUDA graph over tensors that rotate past L2; ours, PyTorch's copy
of keys and values of one call in one piece, and a copy of 1 GiB take turns, medians of their times by events. A call
moves each new element once in and once out. "of copy" is ours over the rate of the copy of 1 GiB, "of same" the time
of the copy of as many bytes over ours.
"""

import argparse
import ctypes
import json

import torch
from companion_torch import TYPES, context, copy_call, graph_of, times

HEAD_DIM = 128
# batch, heads, new tokens, rotated, pages of so many positions or 0: one piece, type
CASES = [(16, 8, 1024, rotated, page, torch.bfloat16) for rotated in (False, True) for page in (0, 16)]
CASES += [(16, 8, 1024, rotated, 0, dtype) for rotated in (False, True) for dtype in (torch.float32, torch.float64)]
CASES += [(64, 1, 2048, True, 0, torch.bfloat16)]
CASES += [(batch, 8, 1, rotated, page, torch.bfloat16) for batch in (1, 128) for rotated in (False, True)
          for page in (0, 16)]  # fmt: skip


class Cache:
    """New keys and values in one tensor, a cache of twice as many positions, tables; another set for each."""

    def __init__(self, function, batch, heads, tokens, rotated, page_size, dtype):
        def random(*shape):
            return torch.randn(shape, device="cuda", dtype=dtype)

        self.new = random(2, batch, heads, tokens, HEAD_DIM)
        self.copied = torch.empty_like(self.new)
        positions = max(64, 2 * tokens)
        pages = batch * positions // page_size if page_size else 0
        shape = (pages, heads, page_size) if page_size else (batch, heads, positions)
        self.cache = torch.full((2, *shape, HEAD_DIM), float("nan"), device="cuda", dtype=dtype)
        self.lengths = torch.randint(0, positions - tokens + 1, (batch,), device="cuda", dtype=torch.int32)
        self.table = torch.randperm(pages, device="cuda").to(torch.int32) if page_size else None
        angles = torch.rand((positions, HEAD_DIM // 2), device="cuda", dtype=torch.float64).repeat(1, 2) * 6.28
        self.tables = (angles.cos().float(), angles.sin().float()) if rotated else (None, None)
        self.function, self.page = function, (page_size, pages)
        self.extents = (ctypes.c_int64 * 5)(batch, heads, tokens, positions, HEAD_DIM)
        self.strides = (ctypes.c_int64 * 8)(*self.new[0].stride(), *self.cache[0].stride())

    def call(self):
        tensors = (*self.new, *self.cache)
        stream, reason = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), ctypes.c_char_p()
        lengths, table, cos, sin = (
            ctypes.c_void_p(None if t is None else t.data_ptr()) for t in (self.lengths, self.table, *self.tables)
        )
        status = self.function(
            TYPES[self.new.dtype], *(ctypes.c_void_p(t.data_ptr()) for t in tensors), self.extents, self.strides,
            lengths, table, ctypes.c_int64(self.page[0]), ctypes.c_int64(self.page[1]), cos, sin,
            ctypes.c_int64(self.extents[3]), stream, ctypes.byref(reason),
        )  # fmt: skip
        if status:
            raise RuntimeError(f"status {status}: {(reason.value or b'').decode()}")

    def copy(self):
        self.copied.copy_(self.new)

    def check(self):
        """Compares what was appended with PyTorch's own."""
        batch, heads, tokens, positions, _ = self.extents
        plain = self.cache
        if self.table is not None:
            plain = plain[:, self.table.long()].view(2, batch, -1, heads, self.page[0], HEAD_DIM)
            plain = plain.transpose(2, 3).flatten(3, 4)
        at = self.lengths.long()[:, None] + torch.arange(tokens, device="cuda")
        index = at[None, :, None, :, None].expand(2, -1, heads, -1, HEAD_DIM)
        got, expected = plain.gather(3, index).double(), self.new.double()
        if self.tables[0] is not None:
            k, (cos, sin) = expected[0], (t.double()[at][:, None] for t in self.tables)
            turned = torch.cat((-k[..., HEAD_DIM // 2 :], k[..., : HEAD_DIM // 2]), -1)
            expected = torch.stack((k * cos + turned * sin, expected[1]))
        if not torch.allclose(got, expected, rtol=torch.finfo(self.new.dtype).eps, atol=1e-6):
            raise RuntimeError(f"{list(self.extents)}: differs by {(got - expected).abs().max().item()}")
        if int(self.cache.isnan().sum()) != self.cache.numel() - self.new.numel():
            raise RuntimeError(f"{list(self.extents)}: wrote elsewhere")


def append_case(function, batch, heads, tokens, rotated, page_size, dtype):
    moved = 4 * batch * heads * tokens * HEAD_DIM * dtype.itemsize
    sets = max(2, min(128, 400_000_000 // moved + 1))
    caches = [Cache(function, batch, heads, tokens, rotated, page_size, dtype) for _ in range(sets)]
    count = max(1, 16 // sets)
    calls = [graph_of([c.call for c in caches] * count), graph_of([c.copy for c in caches] * count)]
    caches[0].check()
    copy, bytes_of_copy = copy_call()
    seconds = times([*calls, copy])
    each, same = (t / (sets * count) for t in seconds[:2])
    return {"batch": batch, "heads": heads, "tokens": tokens, "rotated": rotated, "page_size": page_size,
            "type": TYPES[dtype].decode(), "us": round(each * 1e6, 2), "attikos:GB/s": round(moved / each * 1e-9, 1),
            "of copy": round(moved / each / (bytes_of_copy / seconds[2]), 3), "of same": round(same / each, 3)}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("companion")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    function = ctypes.CDLL(arguments.companion).attikos_perf_append_kv
    torch.manual_seed(0)
    report = {**context(), "cases": []}
    for case in CASES:
        report["cases"].append(append_case(function, *case))
        print(*(f"{key} {value}" for key, value in report["cases"][-1].items()), flush=True)
        torch.cuda.empty_cache()
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
