# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The companion's attention, its gradients and products on PyTorch's tensors, and times of calls that take turns."""

import collections
import ctypes
import itertools
import os
import statistics
import subprocess

import torch


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


class Options(ctypes.Structure):
    """As in support/companion_attention.cpp."""

    _fields_ = [
        ("causal", ctypes.c_int32), ("tf32x3", ctypes.c_int32), ("window", ctypes.c_int64),
        ("softcap", ctypes.c_double), ("alibi", ctypes.c_void_p), ("bias", ctypes.c_void_p),
        ("cu_seqlens", ctypes.c_void_p), ("kernel", ctypes.c_char_p), ("page_table", ctypes.c_void_p),
        ("page_size", ctypes.c_int64), ("num_pages", ctypes.c_int64),
    ]  # fmt: skip


TYPES = {torch.bfloat16: b"bfloat16", torch.float16: b"float16", torch.float32: b"float32",
         torch.float64: b"float64", torch.float8_e4m3fn: b"float8_e4m3", torch.float8_e5m2: b"float8_e5m2",
         torch.int8: b"int8", torch.int32: b"int32"}


class Companion:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)

    def attention(self, q, k, v, out, lse=None, *, kernel="", alibi=None, bias=None, cu_seqlens=None, page_table=None,
                  **numbers):
        """A function that attends; q, k, v, out are [batch, heads, positions, features], with a page table [batch,
        pages of each] k and v [pages, heads, page_size, features]. `numbers`: causal, tf32x3, window, softcap."""
        batch = q.shape[0] if cu_seqlens is None else cu_seqlens.numel() - 1
        length = k.shape[2]
        if page_table is not None:
            length *= page_table.shape[1]
            numbers |= {"page_size": k.shape[2], "num_pages": k.shape[0]}
        extents = (ctypes.c_int64 * 7)(batch, q.shape[1], k.shape[1], q.shape[2], length, q.shape[3], v.shape[3])
        strides = (ctypes.c_int64 * 16)(*(s for t in (q, k, v, out) for s in t.stride()))
        pointers = [ctypes.c_void_p(None if t is None else t.data_ptr()) for t in (q, k, v, out, lse)]
        tensors = {"alibi": alibi, "bias": bias, "cu_seqlens": cu_seqlens, "page_table": page_table}
        options = Options(
            **numbers, kernel=kernel.encode(),
            **{name: None if t is None else t.data_ptr() for name, t in tensors.items()},
        )  # fmt: skip

        def run():
            stream, reason = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), ctypes.c_char_p()
            status = self.library.attikos_perf_attention(
                TYPES[q.dtype], *pointers, extents, strides, ctypes.byref(options), stream, ctypes.byref(reason)
            )
            if status:
                raise RuntimeError(f"status {status}: {(reason.value or b'').decode()}")

        run.operands = q, k, v, out, lse, tensors  # whose memory would be given to others
        return run

    def attention_backward(self, q, k, v, out, lse, dout, *, kernel="", causal=False, unordered=False):
        """A function that computes dq, dk and dv, its `gradients`, of [batch, heads, positions, features]."""
        gradients = [torch.full_like(t, float("nan")) for t in (q, k, v)]
        tensors = (q, k, v, out, dout, *gradients)
        extents = (ctypes.c_int64 * 7)(*q.shape[:2], k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3])
        strides = (ctypes.c_int64 * 32)(*(s for t in tensors for s in t.stride()))
        pointers = (ctypes.c_void_p * 8)(*(t.data_ptr() for t in tensors))
        size = ctypes.c_int64()

        def run(workspace=None):
            stream, reason = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), ctypes.c_char_p()
            status = self.library.attikos_perf_attention_backward(
                TYPES[q.dtype], pointers, ctypes.c_void_p(lse.data_ptr()), extents, strides, int(causal),
                int(unordered), kernel.encode(), ctypes.c_void_p(None if workspace is None else workspace.data_ptr()),
                ctypes.byref(size), stream, ctypes.byref(reason),
            )  # fmt: skip
            if status:
                raise RuntimeError(f"status {status}: {(reason.value or b'').decode()}")

        run()
        memory = torch.full((max(1, size.value),), 255, device="cuda", dtype=torch.uint8)

        def call():
            run(memory)

        call.operands, call.gradients = (*tensors, lse), gradients
        return call

    def product(self, a, b, c, *, kernel="", compute=0, fast=False):
        """A function that multiplies a [m, k] by b [n, k] transposed into c [m, n], all dense. `compute`: 0 IEEE, 1
        tf32, 2 tf32x3; `fast`: sums of float8 products as the tensor cores have them."""
        stream, reason = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), ctypes.c_char_p()
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (a, b, c)]
        extents = [ctypes.c_int64(n) for n in (a.shape[0], b.shape[0], a.shape[1])]

        def run():
            status = self.library.attikos_perf_gemm(
                TYPES[a.dtype], TYPES[c.dtype], *pointers, *extents, compute, int(fast), kernel.encode(), stream,
                ctypes.byref(reason)
            )  # fmt: skip
            if status:
                raise RuntimeError(f"status {status}: {(reason.value or b'').decode()}")

        run.operands = a, b, c
        return run


def packed_sequences(draw, count=64, shortest=32, longest=4096):
    """Offsets of sequences of lengths that `draw` gives, the sum of their squares, and the number and length of
    sequences of one length that are as many tokens and cost the same."""
    lengths = [draw.randint(shortest, longest) for _ in range(count)]
    total, squares = sum(lengths), sum(n * n for n in lengths)
    length = round(squares / total / 128) * 128
    return list(itertools.accumulate(lengths, initial=0)), squares, round(total / length), length


def pairs_of_window(length, window):
    """Pairs of the 128-key blocks that a causal window touches, of rows of 128 queries."""
    return 128 * 128 * sum(row + 1 - max(0, (row * 128 - window) // 128) for row in range(length // 128))


def in_turn(calls):
    """A function that makes the next of the calls each time: their operands rotate past L2."""
    turns = itertools.cycle(calls)
    return lambda: next(turns)()


def in_graph(call, count, results):
    """A function that makes `count` calls as one CUDA graph, so that no launch is waited for, and whether it does:
    what cannot be captured is called as usual. Of what the calls return, the latest `results` keep their memory."""
    latest = collections.deque(maxlen=results)
    call()
    torch.cuda.synchronize()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph, stream=None if stream == torch.cuda.default_stream() else stream):
            for _ in range(count):
                latest.append(call())
    except RuntimeError:

        def all_of_them():
            for _ in range(count):
                latest.append(call())

        return all_of_them, False
    return graph.replay, True


def graph_of(calls):
    """A function that replays the calls back to back. What they set up for a stream they do before the capture."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    return graph.replay


def copy_call():
    """A copy of 1 GiB, and the bytes that it reads and writes."""
    source = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    return lambda: target.copy_(source), 2 * source.numel()


def context():
    """What a file of results says of the machine; ATTIKOS_COMMIT names the state of the library."""
    fields = "driver_version,clocks.sm,clocks.max.sm,clocks.max.memory,power.limit"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    values = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0].split(", ")
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "attikos_commit": os.environ.get("ATTIKOS_COMMIT", "unknown"),
        **dict(zip(fields.split(","), values)),
    }
