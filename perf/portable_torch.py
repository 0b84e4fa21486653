# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The portable kernels on a device against what PyTorch calls for the same, in one process.

  portable_torch.py LIBRARY [--out FILE] [--families LIST] [--seed N] [--shapes N]

LIBRARY is the target attikos_perf_portable of a build with Kokkos's CUDA, perf/support/libattikos_perf_portable.so.
Random normal data; peers and ours take turns, medians of their times by events. "ratio" is the peer's time over ours,
"error" the norm of the difference of the two results over that of the peer's. A causal problem counts half the
operations, gradients ten for a pair and feature. Families, all of them unless a list is given:

  products   cubes: float32 (IEEE), float64, bfloat16, float16 and int8 beside cuBLAS and cuBLASLt, int8 with A and B
             along K
  attention  B 2, H 16: bfloat16 beside Flash, float32 beside the memory-efficient back end, float64 unfused
  gradients  the same
  functors   a bias by distance in a score functor, of 64-bit and of 32-bit positions, beside the call without
  batched    products of 8 cubed to 64 cubed beside cuBLAS's batches, with the times of the compiled kernels and of
             team_gemm by a team for each product, a thread of 32 lanes for every 4 KiB of an operand
  gated      gated_mlp of given shapes beside the two products and what joins them in PyTorch
  random     products of shapes of a seed, half of them with strides that are multiples of no 16 bytes
  random_attention  attention and gradients of shapes of a seed
  rows       norms, softmax, quantize (float8, a factor of each row), cross entropy and gradients: given shapes and, but
             for quantize and cross entropy, as many of a seed, of any length up to 16384 and, for gradients, half of
             them above 8192, some with padded rows or an odd base; in a graph over tensors that rotate past L2, beside
             PyTorch and a copy of 1 GiB
  decode     one query, given shapes and as many of a seed, in pages, too: the rate at which the cache is read over that
             of a copy of 1 GiB; beside the fastest of PyTorch's back ends. Calls back to back in a graph, over caches
             that rotate past L2
"""

import argparse
import contextlib
import ctypes
import json
import random
import statistics

import torch
import torch.nn.functional as functional
from companion_torch import TYPES, context, copy_call, graph_of, in_graph, in_turn, times
from torch.nn.attention import SDPBackend, sdpa_kernel

BATCH, HEADS = 2, 16
L2 = 100_000_000
BACK_ENDS = {
    torch.bfloat16: ("flash", SDPBackend.FLASH_ATTENTION),
    torch.float16: ("flash", SDPBackend.FLASH_ATTENTION),
    torch.float32: ("efficient", SDPBackend.EFFICIENT_ATTENTION),
    torch.float64: ("math", SDPBackend.MATH),
}
COMPILED = {torch.float32: "gemm/sm80_small_f32", torch.float64: "gemm/sm80_small_f64"}
FAMILIES = (
    "products", "batched", "gated", "attention", "gradients", "functors", "random", "random_attention", "rows", "decode",
)  # fmt: skip


class Portable:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)

    def _checked(self, call, *arguments):
        stream, reason = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), ctypes.c_char_p()
        if call(*arguments, stream, ctypes.byref(reason)):
            raise RuntimeError((reason.value or b"").decode())

    def product(self, a, b, c, kernel="portable", threads=0):
        """A function that computes c = a·b of matrices, or batches of them, of any strides; by team_gemm() if it is
        told of how many `threads`."""
        batches = [t if t.dim() == 3 else t[None] for t in (a, b, c)]
        strides = (ctypes.c_int64 * 9)(*(s for t in batches for s in t.stride()))
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in batches]
        extents = (ctypes.c_int64 * 4)(*batches[2].shape, a.shape[-1])
        call = self.library.attikos_perf_portable_team_gemm if threads else self.library.attikos_perf_portable_gemm
        how = threads or kernel.encode()

        def run():
            self._checked(call, TYPES[a.dtype], how, *pointers, extents, strides)

        run.operands = a, b, c
        return run

    def gated(self, x, gate, up, out):
        """A function that computes out = silu(x·gateᵀ)·(x·upᵀ)."""
        tensors = x, gate, up, out
        strides = (ctypes.c_int64 * 8)(*(s for t in tensors for s in t.stride()))
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in tensors]
        extents = (ctypes.c_int64 * 3)(*x.shape, gate.shape[0])

        def run():
            self._checked(self.library.attikos_perf_portable_gated_mlp, TYPES[x.dtype], *pointers, extents, strides)

        run.operands = tensors
        return run

    def attention(self, q, k, v, out, lse, *, dout=None, gradients=(), causal=False, functor=0):
        """A function that attends, or, given dout and `gradients` dq, dk and dv, computes those."""
        tensors = [q, k, v, out, *([dout, *gradients] if gradients else [])]
        strides = (ctypes.c_int64 * (4 * len(tensors)))(*(s for t in tensors for s in t.stride()))
        pointers = (ctypes.c_void_p * len(tensors))(*(t.data_ptr() for t in tensors))
        extents = (ctypes.c_int64 * 6)(*q.shape[:2], k.shape[1], q.shape[2], k.shape[2], q.shape[3])

        def run():
            self._checked(
                self.library.attikos_perf_portable_attention, TYPES[q.dtype], pointers,
                ctypes.c_void_p(lse.data_ptr()), extents, strides, int(bool(gradients)), int(causal), functor,
            )  # fmt: skip

        run.operands = *tensors, lse
        return run

    def decode(self, q, k, v, out, lengths, table=None):
        """A function that decodes q over caches k and v, of pages where there is a table."""
        tensors = q, k, v, out
        strides = (ctypes.c_int64 * 16)(*(s for t in tensors for s in t.stride()))
        pointers = (ctypes.c_void_p * 4)(*(t.data_ptr() for t in tensors))
        page_size, pages = (0, 0) if table is None else (k.shape[2], k.shape[0])
        positions = k.shape[2] if table is None else table.shape[1] * page_size
        extents = (ctypes.c_int64 * 7)(*q.shape[:2], k.shape[1], q.shape[2], positions, q.shape[3], pages)

        def run():
            self._checked(
                self.library.attikos_perf_portable_decode, TYPES[q.dtype], pointers, ctypes.c_void_p(lengths.data_ptr()),
                ctypes.c_void_p(None if table is None else table.data_ptr()), ctypes.c_int64(page_size), extents,
                strides, 0,
            )  # fmt: skip

        run.operands = *tensors, lengths, table
        return run

    def rows(self, family, x, dout, out, vectors, values):
        """A function of rows; `vectors`: weight, bias, dweight and dbias, `values`: labels, losses and their lse."""
        tensors = x, dout, out, *vectors, *values
        pointers = (ctypes.c_void_p * len(tensors))(*(t.data_ptr() for t in tensors))
        strides = (ctypes.c_int64 * 3)(*(t.stride(0) for t in tensors[:3]))
        rows, columns = (ctypes.c_int64(n) for n in x.shape)

        def run():
            self._checked(
                self.library.attikos_perf_portable_rows, family.encode(), TYPES[x.dtype], pointers, rows, columns, strides
            )  # fmt: skip

        run.operands = tensors
        return run


def times_of_graphs(calls, count=4, rounds=5):
    """Median seconds of each call; graphs of `count` of them take turns."""
    stream, begin, end = torch.cuda.Stream(), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    graphs, all_times = [], [[] for _ in calls]
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    stream.synchronize()
    for call in calls:
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1], stream=stream, capture_error_mode="relaxed"):
            for _ in range(count):
                call()
    with torch.cuda.stream(stream):
        for turn in range(rounds + 1):
            for graph, mine in zip(graphs, all_times):
                begin.record(stream)
                graph.replay()
                end.record(stream)
                end.synchronize()
                if turn > 0:
                    mine.append(begin.elapsed_time(end) * 1e-3 / count)
    return [statistics.median(mine) for mine in all_times]


def error(got, want):
    want = want.double()
    return float(f"{((got.double() - want).norm() / want.norm()).item():.2g}")


def result(family, dtype, operations, ours, theirs, peer, **more):
    seconds, of_peer = times([ours, theirs], rounds=3, budget_ms=1.0)
    return {
        "family": family, "dtype": str(dtype).removeprefix("torch."), **more, "peer": peer,
        "TFLOP/s": round(operations / seconds * 1e-12, 2), "peer:TFLOP/s": round(operations / of_peer * 1e-12, 2),
        "ratio": round(of_peer / seconds, 3),
    }  # fmt: skip


def normal(shape, dtype):
    if dtype == torch.int8:
        return torch.randint(-8, 8, shape, device="cuda", dtype=dtype)
    return torch.randn(shape, device="cuda", dtype=torch.float32 if dtype != torch.float64 else dtype).to(dtype)


def product_case(ours, family, dtype, m, n, k, pad=0):
    """`pad`: what rows of A and B are longer than they need be."""
    a = normal((m, k + pad), dtype)[:, :k]
    b = normal((n, k + pad), dtype)[:, :k].t() if dtype == torch.int8 else normal((k, n + pad), dtype)[:, :n]
    c = torch.empty((m, n), device="cuda", dtype=torch.int32 if dtype == torch.int8 else dtype)
    mine = ours.product(a, b, c)
    theirs = (lambda: torch._int_mm(a, b)) if dtype == torch.int8 else (lambda: a @ b)
    mine()
    difference = error(c, theirs())
    return {
        **result(family, dtype, 2 * m * n * k, mine, theirs, "cublas", m=m, n=n, k=k, pad=pad), "error": difference
    }  # fmt: skip


def batched_case(ours, dtype, extent, batch):
    """Times come from graphs: products this short take less than their launches."""
    a, b, c, out = (normal((batch, extent, extent), dtype) for _ in range(4))
    threads = 1
    while threads * 4096 < extent * extent * a.element_size():
        threads *= 2
    mine, of_team = ours.product(a, b, c), ours.product(a, b, c, threads=threads)
    theirs = lambda: torch.bmm(a, b, out=out)  # noqa: E731
    calls = {"us": mine, "team_gemm": of_team, "cublas": theirs, "copy": lambda: out.copy_(c)}
    if dtype in COMPILED:  # and if the library has it, as a build with the companion does
        with contextlib.suppress(RuntimeError):
            compiled = ours.product(a, b, c, COMPILED[dtype])
            compiled()
            calls["compiled"] = compiled
    mine()
    difference = error(c, torch.bmm(a.double(), b.double()))
    took = dict(zip(calls, times_of_graphs(list(calls.values()))))
    return {
        "family": "batched", "dtype": str(dtype).removeprefix("torch."), "extent": extent, "batch": batch,
        "threads": threads, **{name: round(seconds * 1e6, 2) for name, seconds in took.items()}, "peer": "cublas",
        **({"of compiled": round(took["compiled"] / took["us"], 3)} if "compiled" in took else {}),
        "ratio": round(took["cublas"] / took["us"], 3), "error": difference,
    }  # fmt: skip


def gated_case(ours, dtype, tokens, hidden, intermediate):
    x = normal((tokens, hidden), dtype) * hidden**-0.5
    gate, up = (normal((intermediate, hidden), dtype) for _ in range(2))
    out = torch.empty((tokens, intermediate), device="cuda", dtype=dtype)
    mine = ours.gated(x, gate, up, out)
    theirs = lambda: functional.silu(x @ gate.t()) * (x @ up.t())  # noqa: E731
    mine()
    difference = error(out, theirs())
    return {
        **result("gated", dtype, 4 * tokens * hidden * intermediate, mine, theirs, "torch", tokens=tokens,
                 hidden=hidden, intermediate=intermediate), "error": difference
    }  # fmt: skip


def attention_case(
    ours, family, dtype, length, head_dim, causal, *, backward=False, functor=0, shape=None, keys=None
):
    batch, heads = shape or (BATCH, HEADS)
    keys = keys or length
    name, back_end = BACK_ENDS[dtype]
    q = normal((batch, heads, length, head_dim), dtype)
    k, v = (normal((batch, heads, keys, head_dim), dtype) for _ in range(2))
    out = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], device="cuda", dtype=torch.promote_types(dtype, torch.float32))
    forward = ours.attention(q, k, v, out, lse, causal=causal, functor=functor)
    forward()
    plain = ours.attention(q, k, v, torch.empty_like(q), torch.empty_like(lse), causal=causal)
    pairs = length * keys / (2 if causal else 1)
    operations = (10 if backward else 4) * batch * heads * pairs * head_dim
    what = {"batch": batch, "heads": heads, "queries": length, "keys": keys, "head_dim": head_dim, "causal": causal}
    if functor:
        what["position_bits"] = functor
    with sdpa_kernel(back_end):
        if not backward:
            if functor:
                return result(family, dtype, operations, forward, plain, "without", **what)
            theirs = lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=causal)  # noqa: E731
            difference = error(out, theirs())
            return {**result(family, dtype, operations, forward, theirs, name, **what), "error": difference}
        dout = normal(q.shape, dtype)
        gradients = [torch.empty_like(t) for t in (q, k, v)]
        mine = ours.attention(q, k, v, out, lse, dout=dout, gradients=gradients, causal=causal, functor=functor)
        mine()
        if functor:
            plain()
            unlike = [torch.empty_like(t) for t in (q, k, v)]
            without = ours.attention(*plain.operands, dout=dout, gradients=unlike, causal=causal)
            return {**result(family, dtype, operations, mine, without, "without", **what), "direction": "backward"}
        inputs = [t.detach().requires_grad_() for t in (q, k, v)]
        attended = functional.scaled_dot_product_attention(*inputs, is_causal=causal)
        theirs = lambda: torch.autograd.grad(attended, inputs, dout, retain_graph=True)  # noqa: E731
        difference = max(error(a, b) for a, b in zip(gradients, theirs()))
        return {**result(family, dtype, operations, mine, theirs, name, **what), "error": difference}


class RowOperands:
    """Tensors of a function. `pad`: what rows are longer than they need be; `base`: elements in front of the first."""

    def __init__(self, family, dtype, rows, columns, pad, base):
        def matrix():
            whole = normal((base + rows * (columns + pad),), dtype)
            return whole[base:].view(rows, columns + pad)[:, :columns]

        self.x, self.dout, self.out = (matrix() for _ in range(3))
        if family == "softmax_backward":
            self.x.copy_(torch.softmax(self.x, -1))
        if family == "quantize":
            self.out = torch.empty((rows, columns), device="cuda", dtype=torch.float8_e4m3fn)
        self.vectors = [normal((columns,), dtype) for _ in range(4)]
        self.labels = torch.randint(columns, (rows,), device="cuda")
        self.loss, self.lse = torch.rand(rows, device="cuda"), self.x.float().logsumexp(-1)

    def ours(self, portable, family):
        return portable.rows(family, self.x, self.dout, self.out, self.vectors, (self.labels, self.loss, self.lse))

    def theirs(self, family):
        x, dout, (weight, bias, _, _), labels = self.x, self.dout, self.vectors, self.labels
        shape, aten = weight.shape, torch.ops.aten
        if family == "rms_norm_backward":
            rstd = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
            return lambda: aten._fused_rms_norm_backward(dout, x, shape, rstd, weight, [True, True])
        if family == "layer_norm_backward":
            mean = x.float().mean(-1, keepdim=True)
            inverse = torch.rsqrt(x.float().var(-1, keepdim=True, correction=0) + 1e-5)
            masks = [True, True, True]
            return lambda: aten.native_layer_norm_backward(dout, x, shape, mean, inverse, weight, bias, masks)
        return {
            "rms_norm": lambda: functional.rms_norm(x, shape, weight, 1e-6),
            "layer_norm": lambda: functional.layer_norm(x, shape, weight, bias),
            "softmax": lambda: torch.softmax(x, -1),
            "quantize": lambda: (x.float() / (x.abs().amax(-1, keepdim=True).float() / 448)).to(self.out.dtype),
            "cross_entropy": lambda: functional.cross_entropy(x, labels, reduction="none"),
            "cross_entropy_backward": lambda: self.gradient_of_logits(),
            "softmax_backward": lambda: aten._softmax_backward_data(dout, x, -1, x.dtype),
        }[family]

    def gradient_of_logits(self):
        p = (self.x.float() - self.lse[:, None]).exp() * self.loss[:, None]
        return p.scatter_add_(1, self.labels[:, None], -self.loss[:, None]).to(self.x.dtype)

    def results(self, family):
        return (self.loss,) if family == "cross_entropy" else (self.out, *self.vectors[2:])


def rows_case(portable, family, dtype, rows, columns, pad=0, base=0):
    elements = rows * columns
    moved = elements * {
        "quantize": dtype.itemsize + 1, "cross_entropy": dtype.itemsize, "cross_entropy_backward": 2 * dtype.itemsize
    }.get(family, (3 if "backward" in family else 2) * dtype.itemsize)  # fmt: skip
    sets = max(1, min(64, 2 * L2 // moved + 1))
    operands = [RowOperands(family, dtype, rows, columns, pad, base) for _ in range(sets)]
    count = max(sets, min(64, 4 * L2 // moved + 1))
    first = operands[0]
    first.ours(portable, family)()
    wanted = first.theirs(family)()
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    difference = max(error(a, b) for a, b in zip(first.results(family), wanted))
    calls = [[o.ours(portable, family) for o in operands], [o.theirs(family) for o in operands]]
    graphs = [in_graph(in_turn(of_one), count, 1) for of_one in calls]
    copy, copied = copy_call()
    seconds, of_peer, of_copy = times([*(g[0] for g in graphs), copy], rounds=3, budget_ms=1.0)
    seconds, of_peer = seconds / count, of_peer / count
    return {
        "family": "rows", "function": family, "dtype": str(dtype).removeprefix("torch."), "rows": rows,
        "columns": columns, "pad": pad, "base": base, "peer": "torch", "us": round(seconds * 1e6, 2),
        "of copy": round(moved / seconds / (copied / of_copy), 3), "ratio": round(of_peer / seconds, 3),
        "error": difference, "graphs": all(g[1] for g in graphs),
    }  # fmt: skip


class DecodeOperands:
    """A query, a cache of keys and values, in pages if so asked, and an output."""

    def __init__(self, dtype, batch, heads, heads_kv, keys, head_dim, page_size):
        pages = batch * -(-keys // page_size) if page_size else 0
        shape = (pages, heads_kv, page_size) if page_size else (batch, heads_kv, keys)
        self.q = normal((batch, heads, 1, head_dim), dtype)
        self.k, self.v = (normal((*shape, head_dim), dtype) for _ in range(2))
        self.out = torch.empty_like(self.q)
        self.lengths = torch.full((batch,), keys, device="cuda", dtype=torch.int32)
        self.table = torch.randperm(pages, device="cuda").view(batch, -1).to(torch.int32) if page_size else None

    def plain(self):
        """Queries, keys and values in one piece."""
        if self.table is None:
            return self.q, self.k, self.v
        keys = int(self.lengths[0])
        return self.q, *(t[self.table.long()].transpose(1, 2).flatten(2, 3)[:, :, :keys] for t in (self.k, self.v))


def decode_peers(operands):
    """PyTorch's back ends that take the operands, by name, each as a function for every one of them; unfused where no
    other does."""
    grouped = operands[0].q.shape[1] != operands[0].k.shape[1]
    peers = {}
    for back_end in (
        SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH
    ):  # fmt: skip

        def call(o, back_end=back_end):
            with sdpa_kernel(back_end):
                return functional.scaled_dot_product_attention(o.q, o.k, o.v, enable_gqa=grouped)

        if peers and back_end == SDPBackend.MATH:
            continue
        try:
            call(operands[0])
            peers[back_end.name.lower().removesuffix("_attention")] = [lambda o=o, call=call: call(o) for o in operands]
        except RuntimeError:
            continue
    return peers


def decode_case(ours, dtype, batch, heads, heads_kv, keys, head_dim, page_size=0):
    element = torch.empty((), dtype=dtype).element_size()
    moved = 2 * element * batch * heads_kv * keys * head_dim
    operands = [
        DecodeOperands(dtype, batch, heads, heads_kv, keys, head_dim, page_size)
        for _ in range(min(16, 300_000_000 // moved + 1))
    ]
    mine = [ours.decode(o.q, o.k, o.v, o.out, o.lengths, o.table) for o in operands]
    mine[0]()
    with sdpa_kernel(SDPBackend.MATH):
        q, k, v = (t[:1].double() for t in operands[0].plain())
        wanted = functional.scaled_dot_product_attention(q, k, v, enable_gqa=heads != heads_kv)
        del q, k, v
    difference = error(operands[0].out[:1], wanted)
    calls = {"ours": graph_of(mine)}
    if page_size == 0:
        calls |= {name: graph_of(peer) for name, peer in decode_peers(operands).items()}
    copy, copied = copy_call()
    seconds = dict(zip((*calls, "copy"), times([*calls.values(), copy], rounds=3, budget_ms=1.0)))
    rate = copied / seconds.pop("copy")
    of_copy = {name: round(moved * len(operands) / time / rate, 3) for name, time in seconds.items()}
    peer = min((name for name in seconds if name != "ours"), key=seconds.get, default=None)
    case = {
        "family": "decode", "dtype": str(dtype).removeprefix("torch."), "batch": batch, "heads": heads,
        "heads_kv": heads_kv, "keys": keys, "head_dim": head_dim, "page_size": page_size,
        "us": round(seconds["ours"] / len(operands) * 1e6, 2), "copy:GB/s": round(rate * 1e-9, 1),
        "of copy": of_copy["ours"], "error": difference,
    }  # fmt: skip
    if peer is not None:
        case |= {"peer": peer, "peer of copy": of_copy[peer], "ratio": round(seconds[peer] / seconds["ours"], 3)}
    return case


def decode_cases(ours, seed, count):
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for batch, keys in ((1, 1024), (1, 8192), (1, 65536), (4, 8192), (16, 1024), (16, 8192), (64, 1024), (64, 4096)):
            for heads_kv in (32, 8, 4) if (batch, keys) == (16, 8192) else (8,):
                yield decode_case(ours, dtype, batch, 32, heads_kv, keys, 128)
        for head_dim in (64, 96, 256):
            yield decode_case(ours, dtype, 16, 32, 8, 4096, head_dim)
        for page_size in (16, 64):
            yield decode_case(ours, dtype, 16, 32, 8, 8192, 128, page_size)
    yield decode_case(ours, torch.float64, 16, 32, 8, 8192, 128)
    draw = random.Random(f"decode {seed}")
    for _ in range(count):
        dtype = draw.choice((torch.bfloat16, torch.float16, torch.float32))
        heads_kv, group = draw.choice((4, 8, 16, 32)), draw.choice((1, 4, 8))
        head_dim = draw.choice((40, 64, 72, 80, 96, 128, 128, 192, 256))
        keys = int(2 ** draw.uniform(10, 16))
        batch = draw.choice([b for b in (1, 4, 16, 64) if b * keys * heads_kv * head_dim < 2**28] or [1])
        page_size = draw.choice((0, 0, 0, 1, 16, 64, 100))
        yield decode_case(ours, dtype, batch, heads_kv * group, heads_kv, keys, head_dim, page_size)


def cases(ours, families, seed, count):
    if "products" in families:
        for dtype, sizes in (
            (torch.float32, (1024, 2048, 4096, 8192)), (torch.float64, (1024, 2048, 4096)),
            (torch.bfloat16, (2048, 4096, 8192)), (torch.float16, (4096,)), (torch.int8, (4096, 8192)),
        ):  # fmt: skip
            for n in sizes:
                yield product_case(ours, "products", dtype, n, n, n)
    if "batched" in families:
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            for extent, batch in ((8, 100000), (16, 100000), (24, 10000), (32, 10000), (48, 10000), (64, 10000)):
                yield batched_case(ours, dtype, extent, batch)
    if "gated" in families:
        for dtype in (torch.bfloat16, torch.float32, torch.float64):
            for case in ((2048, 2048, 5632), (64, 2048, 5632), (777, 1112, 2048)):
                yield gated_case(ours, dtype, *case)
    grid = [
        (dtype, length, head_dim)
        for dtype, lengths in (
            (torch.bfloat16, (2048, 4096)), (torch.float16, (4096,)), (torch.float32, (2048, 4096)),
            (torch.float64, (1024,)),
        )
        for length in lengths
        for head_dim in ((64, 128, 256) if length == lengths[0] else (64, 128))
    ]  # fmt: skip
    for family in ("attention", "gradients"):
        for case in grid if family in families else ():
            for causal in (False, True):
                yield attention_case(ours, family, *case, causal, backward=family == "gradients")
    if "functors" in families:
        for dtype in (torch.bfloat16, torch.float32):
            for backward in (False, True):
                for bits in (64, 32):
                    yield attention_case(ours, "functors", dtype, 4096, 128, False, backward=backward, functor=bits)
    if "rows" in families:
        with torch.cuda.stream(torch.cuda.Stream()):  # one that may be captured
            yield from row_cases(ours, seed, count)
    if "decode" in families:
        yield from decode_cases(ours, seed, count)
    draw = random.Random(seed)
    for i in range(count):
        dtype = draw.choice((torch.float32, torch.bfloat16, torch.float64))
        m, n, k = (int(2 ** draw.uniform(7, 13 if dtype != torch.float64 else 11.5)) for _ in range(3))
        if "random" in families:
            yield product_case(ours, "random", dtype, m, n, k, pad=i % 2)
    for i in range(count if "random_attention" in families else 0):
        dtype = draw.choice((torch.float32, torch.bfloat16))
        head_dim = draw.choice((32, 40, 64, 80, 96, 128))
        length, keys = (int(2 ** draw.uniform(7, 12)) for _ in range(2))
        shape = draw.choice((1, 2, 4)), draw.choice((4, 8, 16))
        yield attention_case(
            ours, "random_attention", dtype, length, head_dim, False, backward=i % 3 == 2, shape=shape, keys=keys
        )


SHAPES = (16384, 4096), (32768, 1024), (8192, 8192), (2048, 4096), (64, 4096), (1, 4096)
CLASSES = (8192, 32000), (2048, 128256), (16384, 4096), (64, 32000)
ROWS = {
    "rms_norm": (*SHAPES, (13015, 5684), (16384, 4095)),
    "layer_norm": (*SHAPES, (13015, 5684), (16384, 4095)),
    "softmax": (*SHAPES, (16384, 4095), (7533, 3239)),
    "quantize": SHAPES,
    "cross_entropy": CLASSES,
    "cross_entropy_backward": CLASSES,
    "rms_norm_backward": (*SHAPES, (16384, 4095), (21382, 10864), (4096, 16384)),
    "layer_norm_backward": (*SHAPES, (16384, 4095), (4096, 12981), (4096, 16384)),
    "softmax_backward": (*SHAPES, (16384, 4095), (4096, 12981), (4096, 16384)),
}
DRAWN = "rms_norm", "layer_norm", "softmax", "rms_norm_backward", "layer_norm_backward", "softmax_backward"


def row_cases(ours, seed, count):
    for family, shapes in ROWS.items():
        for shape in shapes:
            yield rows_case(ours, family, torch.bfloat16, *shape)
        draw = random.Random(f"{family} {seed}")
        for i in range(count if family in DRAWN else 0):
            dtype = draw.choice((torch.bfloat16, torch.bfloat16, torch.float32))
            least = 13 if "backward" in family and i % 2 else 6
            columns = int(2 ** draw.uniform(least, 14))
            rows = int(2 ** draw.uniform(25, 27)) // columns
            yield rows_case(ours, family, dtype, rows, columns, draw.choice((0, 0, 1, 3)), draw.choice((0, 0, 1, 4)))


def summary(report):
    groups = {}
    for case in report["cases"]:
        if case["family"] == "decode":
            groups.setdefault(("decode", "", case["dtype"], "copy"), []).append(case["of copy"])
            if "ratio" in case:
                groups.setdefault(("decode", "", case["dtype"], "PyTorch"), []).append(case["ratio"])
            continue
        if case["family"] == "rows":
            long = "long" if case["columns"] > 8192 else "short"
            groups.setdefault((case["function"], long, case["dtype"], "copy"), []).append(case["of copy"])
            groups.setdefault((case["function"], long, case["dtype"], case["peer"]), []).append(case["ratio"])
            continue
        if "of compiled" in case:
            groups.setdefault((case["family"], "product", case["dtype"], "compiled"), []).append(case["of compiled"])
        kind = "attention" if "heads" in case else "product"
        groups.setdefault((case["family"], kind, case["dtype"], case["peer"]), []).append(case["ratio"])
    for (family, kind, dtype, peer), ratios in groups.items():
        ordered = sorted(ratios)
        print(
            f"{family:19s} {kind:9s} {dtype:9s} of {peer:9s} {len(ordered):3d} cases: mean "
            f"{statistics.geometric_mean(ordered):.3f}, tenth percentile {ordered[len(ordered) // 10]:.3f}, "
            f"worst {ordered[0]:.3f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--out")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shapes", type=int, default=50, help="random shapes of each kind")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    report = {**context(), "seed": arguments.seed, "cases": []}
    for case in cases(Portable(arguments.library), arguments.families.split(","), arguments.seed, arguments.shapes):
        report["cases"].append(case)
        print(*(f"{key} {value}" for key, value in case.items()), flush=True)
        if arguments.out:
            with open(arguments.out, "w", encoding="utf-8") as file:
                json.dump(report, file, indent=1)
                file.write("\n")
    summary(report)


if __name__ == "__main__":
    main()
