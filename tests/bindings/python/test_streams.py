# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls on PyTorch's CUDA tensors as PyTorch's users make them: memory from its caching allocator, any call in a CUDA
graph by the documented way, tensors that are freed while the device still works on them, nothing that waits for it."""

import contextlib
import ctypes
import functools
import importlib.util
import types
import unittest
from unittest import mock

import attikos
import ml_dtypes
import numpy as np
from attikos import _arrays, _context, _host, _lifetimes, flash_attn
from calls import examples
from test_border import long_only

torch = None
if importlib.util.find_spec("torch"):
    import torch

CUDA = bool(attikos.has_cuda() and torch and torch.cuda.is_available())
WAYS = {"short": contextlib.nullcontext, "long": long_only}
A_WHILE = 400_000_000  # cycles, some tenths of a second


def tensor(array, device="cuda"):
    """An array of NumPy as a tensor with memory of its own."""
    narrow = {"bfloat16": np.int16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}.get(array.dtype.name)
    made = torch.from_numpy(np.array(array if narrow is None else array.view(narrow)))
    return (made if narrow is None else made.view(getattr(torch, array.dtype.name))).to(device)


def bits(x):
    return x.detach().contiguous().flatten().view(torch.uint8).cpu()


def results(found):
    return [x for x in (found if isinstance(found, tuple) else (found,)) if x is not None]


def normal(*shape, dtype=None):
    return torch.randn(shape, device="cuda", dtype=dtype or torch.bfloat16)


class WorkspaceOfTorch(unittest.TestCase):
    """The functions that a context gives to libattikos, with memory of the host in the place of a device's."""

    def call(self, allocate):
        self.lent, self.kept = {}, []
        cuda = types.SimpleNamespace(caching_allocator_alloc=allocate, caching_allocator_delete=lambda at: self.lent.pop(at))
        with mock.patch.dict("sys.modules", torch=types.SimpleNamespace(cuda=cuda)):
            context = _context.Context(("cpu", 0), 0, of_torch=True)
            q, k = (np.ones((1, 2, s, 64), np.float32) for s in (1, 4096))
            out, options = np.empty_like(q), attikos._library.DecodeOptions(splits=8)
            operands = [attikos._arrays.operand_of("decode", "x", x) for x in (q, k, k, out)]
            attikos._library.library.attikos_decode(
                context.handle, *(x.pointer() for x in operands), None, ctypes.byref(options)
            )
        return out

    def test_a_call_borrows_it(self):
        asked = []

        def allocate(size, device, stream):
            asked.append((size, device, stream))
            memory = np.empty(size + 64, np.uint8)
            at = memory.ctypes.data + -memory.ctypes.data % 64
            self.lent[at] = memory
            return at

        np.testing.assert_array_equal(self.call(allocate), 1)
        self.assertTrue(asked)
        for size, *where in asked:
            self.assertGreater(size, 0)
            self.assertEqual(where, [0, 0])
        self.assertEqual(self.lent, {})

    def test_none_left(self):
        def allocate(size, device, stream):
            raise MemoryError

        with self.assertRaisesRegex(attikos.ResourceError, "the caller's allocator did not give"):
            self.call(allocate)


@unittest.skipIf(torch is None, "needs PyTorch")
class NumbersOfTheHost(unittest.TestCase):
    """Lists that become arrays of a device, which is PyTorch's `meta` here."""

    def made(self, values, capturing):
        like = types.SimpleNamespace(place=("cuda", 0), kind=_arrays.TORCH, owner=torch.empty(2, device="meta"))
        with mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: capturing):
            return _host.int32_array("decode", "lengths_kv", values, like)

    def test_in_a_capture(self):
        self.assertEqual(self.made([3, 3], True).shape, (2,))
        self.assertEqual(self.made([3, 17], False).shape, (2,))
        with self.assertRaisesRegex(attikos.ArgumentError, "decode: lengths_kv lies on the host.*cannot be captured"):
            self.made([3, 17], True)


class Holding(unittest.TestCase):
    """Which tensors PyTorch's allocator hears of, with a PyTorch that writes down what it is told."""

    class Tensor:
        is_cuda = True

        def __init__(self):
            self.recorded = []

        def get_device(self):
            return 1

        def record_stream(self, stream):
            self.recorded.append(stream)

    def held(self, stream_id, address):
        stream = types.SimpleNamespace(stream_id=stream_id)
        inside = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: address)
        cuda = types.SimpleNamespace(current_stream=lambda device: stream)
        first, second, other = self.Tensor(), self.Tensor(), np.ones(3)
        fake = types.SimpleNamespace(_C=inside, cuda=cuda, Tensor=self.Tensor)
        with mock.patch.dict("sys.modules", torch=fake), mock.patch.object(_lifetimes, "_streams", {}):
            for _ in range(2):
                _lifetimes.hold(first, other, second, None)
        self.assertEqual(first.recorded, second.recorded)
        return [x is stream for x in first.recorded]

    def test_on_streams_of_torch(self):
        self.assertEqual(self.held(0, 0), [True, True])
        self.assertEqual(self.held(35, 4096), [True, True])

    def test_on_others_streams(self):
        """They may be gone when the tensor is freed."""
        self.assertEqual(self.held(8192, 8192), [])


@unittest.skipUnless(CUDA, "needs a CUDA device and PyTorch")
class Memory(unittest.TestCase):
    def cases(self):
        """{name: call}, each of which has outputs and needs workspace."""
        q, k = normal(2, 8, 1, 128), normal(2, 8, 16384, 128)
        heads = [normal(2, 8, 1024, 64) for _ in range(4)]
        out, lse = attikos.attention(*heads[:3], causal=True, return_lse=True)
        return {
            "decode": lambda: attikos.decode(q, k, k, splits=16),
            "attention_backward": lambda: attikos.attention_backward(*heads[:3], out, lse, heads[3], causal=True),
        }

    def test_shows_in_memory_allocated(self):
        for name, call in self.cases().items():
            for way, scope in WAYS.items():
                with self.subTest(name, way=way), scope():
                    call()
                    torch.cuda.synchronize()
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
                    before = torch.cuda.memory_allocated()
                    found = results(call())
                    after, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
                    self.assertGreaterEqual(after - before, sum(x.numel() * x.element_size() for x in found))
                    self.assertGreater(peak, after, "workspace")
                    del found
                    self.assertEqual(torch.cuda.memory_allocated(), before)


@unittest.skipUnless(CUDA, "needs a CUDA device and PyTorch")
class Captures(unittest.TestCase):
    """Warmed up on one stream, captured on another, which the library has never seen: PyTorch's documented way."""

    LEFT_OUT = {"reference_attention"}  # computes on the host

    def replayed(self, call, fresh):
        """What a graph of the call gives once its inputs hold `fresh` numbers instead of 0, and what a call gives then."""
        static = {name: x.clone() for name, x in fresh.items()}

        def fill():
            for name, x in static.items():
                x.copy_(fresh[name])

        def outputs(found):
            return [bits(x) for x in [*results(found), *static.values()]]

        fill()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                call(**static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        for x in static.values():
            if x.is_floating_point():
                (x if x.element_size() > 1 else x.view(torch.uint8)).zero_()
        with torch.cuda.graph(graph):
            captured = call(**static)
        fill()
        graph.replay()
        got = outputs(captured)
        fill()
        return got, outputs(call(**static))

    def check_same(self, pair):
        got, want = pair
        self.assertEqual(len(got), len(want))
        for at, (one, other) in enumerate(zip(got, want)):
            self.assertTrue(torch.equal(one, other), f"array {at}")

    def test_any_call(self):
        for kind in (np.float32, ml_dtypes.bfloat16):
            for at, example in enumerate(examples(kind)):
                if example.name in self.LEFT_OUT:
                    continue
                fresh = {name: tensor(x) for name, x in example.arrays.items()}
                if kind is not np.float32 and "sinks" in fresh:
                    fresh["sinks"] = fresh["sinks"].float()
                for way, scope in WAYS.items():
                    with self.subTest(example.name, at=at, kind=np.dtype(kind).name, way=way), scope():
                        self.check_same(self.replayed(functools.partial(example.function, **example.settings), fresh))

    def test_calls_that_need_workspace(self):
        """Long keys, few rows and deep products, where the small arrays of the examples need none."""
        last = {name: normal(2, s, 8, 64) for name, s in (("q", 1), ("k", 4000), ("v", 4000))}
        cache = {"q": normal(2, 1, 8, 64), "k_cache": normal(2, 4000, 8, 64), "v_cache": normal(2, 4000, 8, 64),
                 "k": normal(2, 1, 8, 64), "v": normal(2, 1, 8, 64),
                 "cache_seqlens": torch.tensor([3000, 17], dtype=torch.int32, device="cuda")}  # fmt: skip
        heads = {name: normal(2, 8, 700, 64) for name in ("q", "k", "v")}
        mask = {**heads, "mask": torch.rand(2, 1, 700, 700, device="cuda") > 0.3}
        eight = {name: normal(2, 8, s, 64).to(torch.float8_e4m3fn) for name, s in (("q", 1), ("k", 4000), ("v", 4000))}
        wide = {"a": normal(16, 16384), "b": normal(16384, 64)}
        narrow = {"a": wide["a"].to(torch.float8_e4m3fn), "b": normal(64, 16384).to(torch.float8_e4m3fn)}
        cases = {
            "few queries": (lambda **x: flash_attn.flash_attn_func(**x), last),
            "new keys": (lambda **x: flash_attn.flash_attn_with_kvcache(**x, causal=True), cache),
            "mask": (lambda **x: attikos.attention(**x), mask),
            "kernel": (lambda **x: attikos.attention(**x, causal=True, kernel="portable"), heads),
            "scores that are stored": (lambda **x: attikos.tiled_attention(**x), heads),
            "float8 cache": (lambda **x: attikos.decode(**x, splits=8), eight),
            "deep product": (lambda **x: attikos.gemm(**x), wide),
            "deep float8 product": (
                lambda **x: attikos.gemm(**x, trans_b=True, scale_a=0.5, out_dtype=torch.bfloat16), narrow
            ),
        }  # fmt: skip
        for name, (call, fresh) in cases.items():
            for way, scope in WAYS.items():
                with self.subTest(name, way=way), scope():
                    self.check_same(self.replayed(call, fresh))

    def test_recorded_gradients(self):
        x = [normal(2, 300, 4, 64) for _ in range(3)]

        def step(q, k, v):
            leaves = [t.detach().requires_grad_() for t in (q, k, v)]
            out = flash_attn.flash_attn_func(*leaves, causal=True)
            return (out.detach(), *torch.autograd.grad(out, leaves, out.detach()))

        for way, scope in WAYS.items():
            with self.subTest(way=way), scope():
                self.check_same(self.replayed(step, dict(zip("qkv", x))))

    def test_errors_are_ours_and_leave_the_capture(self):
        x, q = normal(70, 512), normal(2, 1, 8, 64)
        keys = normal(2, 64, 8, 64)
        want = attikos.softmax(attikos.gemm(x, x, trans_b=True))
        refused = {
            "shapes": (attikos.ShapeMismatchError, "gemm", lambda: attikos.gemm(x, x)),
            "options": (attikos.ArgumentError, "softcap", lambda: flash_attn.flash_attn_func(q, q, q, softcap=-1.0)),
            "kernels": (attikos.Error, "no_such", lambda: attikos.gemm(x, x, trans_b=True, kernel="no_such")),
            "numbers of the host": (
                attikos.ArgumentError, "cache_seqlens",
                lambda: flash_attn.flash_attn_with_kvcache(q, keys, keys, cache_seqlens=[3, 17]),
            ),
        }  # fmt: skip
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            product = attikos.gemm(x, x, trans_b=True)
            for name, (error, words, call) in refused.items():
                for way, scope in WAYS.items():
                    with self.subTest(name, way=way), scope(), self.assertRaisesRegex(error, words):
                        call()
            out = attikos.softmax(product)
        graph.replay()
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(out, want))
        for name, (error, words, call) in refused.items():
            with self.subTest(name, caught="outside"):
                with self.assertRaisesRegex(error, words):
                    with torch.cuda.graph(torch.cuda.CUDAGraph()):
                        attikos.softmax(x)
                        call()
                self.assertTrue(torch.equal(attikos.softmax(attikos.gemm(x, x, trans_b=True)), want))
                again = torch.cuda.CUDAGraph()
                with torch.cuda.graph(again):
                    out = attikos.softmax(attikos.gemm(x, x, trans_b=True))
                again.replay()
                torch.cuda.synchronize()
                self.assertTrue(torch.equal(out, want))


@unittest.skipUnless(CUDA, "needs a CUDA device and PyTorch")
class Lifetimes(unittest.TestCase):
    """Tensors that are freed as soon as a call returns, whose kernels have not begun: the stream is busy."""

    ROWS = 4096, 1024

    def calls(self):
        """{name: call of a tensor of ROWS of bfloat16}"""
        weight = normal(1024)
        square, leaf = normal(1024, 64), normal(1024, 64).requires_grad_()
        lengths = torch.full((4,), 1024, dtype=torch.int32, device="cuda")
        query = normal(4, 1, 16, 64)

        def heads(x):
            return x.view(4, 16, 1024, 64)

        return {
            "gemm": lambda x: attikos.gemm(x, square),
            "second argument": lambda x: attikos.gemm(square, x, trans_a=True, trans_b=True),
            "rms_norm": lambda x: attikos.rms_norm(x, weight),
            "residual": lambda x: attikos.rms_norm(weight.expand(4096, 1024), weight, residual=x)[0],
            "attention": lambda x: attikos.attention(*(heads(x),) * 3, causal=True),
            "mask": lambda x: attikos.attention(*(heads(x),) * 3, mask=torch.ones(1024, 1024, device="cuda").bool()),
            "cache": lambda x: flash_attn.flash_attn_with_kvcache(
                query, *(x.view(4, 1024, 16, 64),) * 2, cache_seqlens=lengths
            ),
            "recorded": lambda x: torch.autograd.grad(attikos.gemm(x, leaf).sum(), leaf)[0],
        }  # fmt: skip

    def numbers(self):
        return torch.arange(4096 * 1024, device="cuda").reshape(self.ROWS).remainder(31).sub(15).bfloat16() / 16

    def place(self):
        return torch.empty(self.ROWS, device="cuda", dtype=torch.bfloat16)

    def freed(self, call, made_on):
        """The result of a call on a tensor of that stream, whose memory is filled with NaN there as soon as it can be had;
        and whether that was at once."""
        here, numbers = torch.cuda.current_stream(), self.numbers()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # of that stream there is no memory but the tensor's
        call(numbers)  # and of this one what the call needs: to get more may wait for the device
        torch.cuda.synchronize()
        with torch.cuda.stream(made_on):
            x = self.place().copy_(numbers)
            at = x.data_ptr()
        here.wait_stream(made_on)
        torch.cuda._sleep(A_WHILE)
        found = call(x)
        there = torch.cuda.memory_allocated()
        del x
        self.assertLess(torch.cuda.memory_allocated(), there, "a call keeps its input")
        with torch.cuda.stream(made_on):
            after = self.place().fill_(float("nan"))
        torch.cuda.synchronize()
        return found, after.data_ptr() == at

    def test_made_on_another_stream(self):
        for name, call in self.calls().items():
            for way, scope in WAYS.items():
                with self.subTest(name, way=way), scope():
                    want = call(self.numbers())
                    torch.cuda.synchronize()
                    found, reused = self.freed(call, torch.cuda.Stream())
                    self.assertFalse(reused, "memory was given out that a call reads")
                    self.assertTrue(torch.equal(found, want))

    def test_that_this_would_show(self):
        """PyTorch's own operators leave it to the caller: their input is overwritten."""
        found, reused = self.freed(lambda x: x + 0, torch.cuda.Stream())
        self.assertTrue(reused)
        self.assertTrue(found.isnan().any())

    def test_written_on_another_stream(self):
        side = torch.cuda.Stream()
        for way, scope in WAYS.items():
            with self.subTest(way=way), scope():
                x = self.numbers()
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
                with torch.cuda.stream(side):
                    out = self.place()
                    at = out.data_ptr()
                torch.cuda._sleep(A_WHILE)
                attikos.softmax(x, out=out)
                del out
                with torch.cuda.stream(side):
                    after = self.place().zero_()
                self.assertNotEqual(after.data_ptr(), at)
                torch.cuda.synchronize()
                self.assertFalse(after.any())

    def test_of_the_same_stream(self):
        """Memory is given out again at once, in the stream's order, and so is workspace."""
        side = torch.cuda.Stream()
        for name, call in self.calls().items():
            for way, scope in WAYS.items():
                with self.subTest(name, way=way), scope():
                    want = call(self.numbers())
                    torch.cuda.synchronize()
                    with torch.cuda.stream(side):
                        found, _ = self.freed(call, side)
                    self.assertTrue(torch.equal(found, want))

    def test_many_streams(self):
        """Results of calls on four streams, whose inputs, made here, are dropped while all of them work."""
        square = normal(1024, 64)
        streams = [torch.cuda.Stream() for _ in range(4)]
        want = {k: attikos.gemm(self.numbers() * k, square) for k in range(1, 9)}
        torch.cuda.synchronize()
        for scope in WAYS.values():
            with scope():
                found = []
                for turn in range(64):
                    k, stream = turn % 8 + 1, streams[turn % 4]
                    x = self.numbers() * k
                    stream.wait_stream(torch.cuda.current_stream())
                    with torch.cuda.stream(stream):
                        torch.cuda._sleep(2_000_000)
                        found.append((k, attikos.gemm(x, square)))
                    del x
                torch.cuda.synchronize()
                for k, got in found:
                    self.assertTrue(torch.equal(got, want[k]), k)


@unittest.skipUnless(CUDA, "needs a CUDA device and PyTorch")
class NothingWaits(unittest.TestCase):
    """attikos.flash_attn reads no array of a device unless it is told to check: calls return while the stream is busy."""

    def calls(self):
        """{name: call with further arguments} with lengths, offsets and tables on the device, where each function has
        them; those that take `check`, and others."""

        def i32(*numbers):
            return torch.tensor(numbers, dtype=torch.int32, device="cuda")

        f = flash_attn
        q, k, v = (normal(2, 64, 4, 64) for _ in range(3))
        one, new = normal(2, 1, 4, 64), normal(2, 1, 4, 64)
        pages, table = normal(8, 64, 4, 64), i32(0, 1, 2, 3).view(2, 2)
        offsets, lengths = i32(0, 50, 128), i32(40, 33)
        cos, sin = normal(128, 32), normal(128, 32)
        flat = [x.reshape(128, 4, 64) for x in (q, k, v)]
        slopes, rows, left = torch.rand(4, device="cuda"), i32(1, 0), i32(3, 1)  # copies from the host wait
        varlen = (offsets, offsets, 78, 78)
        checked = {
            "varlen": lambda **m: f.flash_attn_varlen_func(*flat, *varlen, causal=True, **m),
            "varlen, slopes": lambda **m: f.flash_attn_varlen_func(*flat, *varlen, alibi_slopes=slopes, **m),
            "varlen, pages": lambda **m: f.flash_attn_varlen_func(
                flat[0], pages, pages, *varlen, block_table=table, **m),
            "varlen, kvpacked": lambda **m: f.flash_attn_varlen_kvpacked_func(flat[0], torch.stack(flat[1:], 1), *varlen, **m),
            "varlen, qkvpacked": lambda **m: f.flash_attn_varlen_qkvpacked_func(torch.stack(flat, 1), offsets, 78, **m),
            "cache": lambda **m: f.flash_attn_with_kvcache(one, k, v, cache_seqlens=lengths, **m),
            "cache, many queries": lambda **m: f.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, **m),
            "cache, new keys": lambda **m: f.flash_attn_with_kvcache(one, k, v, new, new, cos, sin, lengths, causal=True, **m),
            "cache, pages": lambda **m: f.flash_attn_with_kvcache(
                one, pages, pages, cache_seqlens=lengths, block_table=table, **m),
            "cache, rows": lambda **m: f.flash_attn_with_kvcache(
                one, k, v, new, new, cache_seqlens=lengths, cache_batch_idx=rows, **m),
        }  # fmt: skip
        others = {
            "dense": lambda: f.flash_attn_func(q, k, v, causal=True),
            "slopes": lambda: f.flash_attn_func(q, k, v, alibi_slopes=slopes, return_attn_probs=True),
            "kvpacked": lambda: f.flash_attn_kvpacked_func(q, torch.stack((k, v), 2)),
            "qkvpacked": lambda: f.flash_attn_qkvpacked_func(torch.stack((q, k, v), 2)),
            "padding on the left": lambda: f.flash_attn_with_kvcache(
                one, k, v, cache_seqlens=lengths, cache_leftpad=left),
            "one length": lambda: f.flash_attn_with_kvcache(one, k, v, new, new, cache_seqlens=17),
        }  # fmt: skip
        return checked, others

    def returns_before(self, call):
        """Whether a call comes back while the stream is still busy with what was there before it."""
        call()  # what is compiled, loaded and allocated once
        torch.cuda.synchronize()
        torch.cuda._sleep(A_WHILE)
        busy = torch.cuda.Event()
        busy.record()
        call()
        waited = busy.query()
        torch.cuda.synchronize()
        return not waited

    def test_unless_checked(self):
        checked, others = self.calls()
        for way, scope in WAYS.items():
            for name, call in {**checked, **others}.items():
                with self.subTest(name, way=way), scope():
                    self.assertTrue(self.returns_before(call))
            for name, call in checked.items():
                with self.subTest(name, way=way, check=True), scope():
                    self.assertFalse(self.returns_before(lambda: call(check=True)))


if __name__ == "__main__":
    unittest.main()
