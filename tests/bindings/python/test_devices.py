# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forked processes, streams that come and go, captures without a call before them, devices that fail. What changes
or ends its process runs in one of its own."""

import contextlib
import os
import subprocess
import sys
import types
import unittest
from unittest import mock

import numpy as np

import attikos
from attikos import _context

try:
    import torch
except ImportError:
    torch = None


def run(code: str) -> str:
    """What a program prints; it must end well and say nothing else."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=300)
    if done.returncode != 0 or done.stderr:
        raise AssertionError(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


FORK = """
import os, sys, numpy, attikos
x = numpy.ones((256, 256), numpy.float32)
y = attikos.gemm(x, x)
child = os.fork()
if child == 0:
    import signal
    signal.alarm(60)
    good = (attikos.gemm(x, x) == y).all() and (attikos.softmax(x) == numpy.float32(1 / 256)).all()
    os._exit(0 if good else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert (attikos.gemm(x, x) == y).all()
print("good")
"""

LOADER = """
import numpy, torch, attikos

class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        x = torch.full((64, 64), float(index))
        return attikos.gemm(x, x), torch.from_numpy(attikos.softmax(numpy.ones((4, 8), numpy.float32)))

if __name__ == "__main__":
    attikos.gemm(torch.ones(300, 300), torch.ones(300, 300))
    loader = torch.utils.data.DataLoader(Items(), batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=100)
    for at, (product, rows) in enumerate(loader):
        for within in range(2):
            assert (product[within] == 64 * float(2 * at + within) ** 2).all()
        assert (rows == 0.125).all()
    print("good")
"""


class ForkedProcesses(unittest.TestCase):
    def test_calls_on_the_cpu_work(self):
        self.assertEqual(run(FORK), "good\n")

    @unittest.skipIf(torch is None, "needs PyTorch")
    def test_workers_of_a_data_loader(self):
        self.assertEqual(run(LOADER), "good\n")

    @unittest.skipUnless(attikos.has_cuda() and torch, "needs a CUDA device and PyTorch")
    def test_calls_on_cuda_raise(self):
        code = """
import os, torch, attikos
x = torch.ones(64, 64, device="cuda")
attikos.softmax(x)
child = os.fork()
if child == 0:
    try:
        attikos._context.Context(("cuda", 0), 0)
    except attikos.DeviceError as error:
        os._exit(0 if "forked" in str(error) and "spawn" in str(error) else 2)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("good")
"""
        self.assertEqual(run(code), "good\n")


class FakeStream:
    """A stream of PyTorch, as far as stream() asks."""

    def __init__(self, pointer=0, device=None):
        self.cuda_stream, self.device = pointer, device


def fake_torch(available=True):
    """A PyTorch with two devices and a current stream on each."""
    current = {0: FakeStream(0, 0), 1: FakeStream(0, 1)}

    @contextlib.contextmanager
    def stream(chosen):
        device = chosen.device if chosen.device is not None else 0
        before, current[device] = current[device], chosen
        try:
            yield
        finally:
            current[device] = before

    cuda = types.SimpleNamespace(
        is_available=lambda: available, is_initialized=lambda: True, Stream=FakeStream, ExternalStream=FakeStream,
        default_stream=lambda: FakeStream(0, 0), stream=stream, current_stream=lambda device: current[device],
    )  # fmt: skip
    return types.SimpleNamespace(cuda=cuda)


class StreamsOfTorch(unittest.TestCase):
    """attikos.stream() and PyTorch's current stream are one, so memory of tensors is memory of that stream."""

    def setUp(self):
        self.torch = fake_torch()
        patch = mock.patch.dict(sys.modules, {"torch": self.torch})
        patch.start()
        self.addCleanup(patch.stop)

    def streams(self):
        return [_context.stream_for(("cuda", device)) for device in (0, 1)]

    def test_is_current_in_torch_inside(self):
        with attikos.stream(640):
            self.assertEqual(self.torch.cuda.current_stream(0).cuda_stream, 640)
            self.assertEqual(self.streams(), [640, 0])
        self.assertEqual(self.streams(), [0, 0])

    def test_of_another_device(self):
        with attikos.stream(FakeStream(64, 1)):
            self.assertEqual(self.streams(), [0, 64])

    def test_the_innermost_holds(self):
        with attikos.stream(64), self.torch.cuda.stream(FakeStream(128, 0)):
            self.assertEqual(self.streams(), [128, 0])
            with attikos.stream(192):
                self.assertEqual(self.streams(), [192, 0])
            self.assertEqual(self.streams(), [128, 0])

    def test_an_error_restores_it(self):
        with self.assertRaises(ZeroDivisionError), attikos.stream(64):
            1 / 0
        self.assertEqual(self.streams(), [0, 0])

    def test_torch_that_comes_later(self):
        with mock.patch.dict(sys.modules):
            del sys.modules["torch"]
            scope = attikos.stream(64)
            scope.__enter__()
        with mock.patch.object(_context, "has_cuda", lambda: True):
            self.assertEqual(self.streams(), [64, 64])
            with self.assertRaisesRegex(attikos.DeviceError, "softmax: PyTorch was imported inside"):
                _context.expect_stream_of_torch("softmax")
        scope.__exit__(None, None, None)
        _context.expect_stream_of_torch("softmax")


class Contexts(unittest.TestCase):
    def test_a_thread_keeps_a_bounded_number(self):
        with mock.patch.object(_context, "Context", lambda place, stream, _: (place, stream)):
            with mock.patch.object(_context, "_contexts", types.SimpleNamespace()):
                for pointer in range(1000):
                    with mock.patch.object(_context, "stream_for", lambda place, at=pointer: at):
                        self.assertEqual(_context.context_for(("cuda", 0)), (("cuda", 0), pointer))
                self.assertEqual(len(_context._contexts.known), _context.MOST_CONTEXTS)


CAPTURE = """
import torch, attikos
import attikos.flash_attn as fa
torch.manual_seed(0)
q, k, v = (torch.randn(2, 300, 4, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
x = torch.randn(70, 512, device="cuda", dtype=torch.bfloat16)
w = torch.randn(512, device="cuda", dtype=torch.bfloat16)
cache = torch.randn(2, 3000, 4, 64, device="cuda", dtype=torch.bfloat16)

def block():
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        out = fa.flash_attn_func(*leaves, causal=True)
        out.backward(torch.ones_like(out))
    one = fa.flash_attn_with_kvcache(q[:, :1], cache, cache)
    wide = attikos.gemm(x, x, trans_b=True)
    return [out.detach(), *(t.grad for t in leaves), one, wide, attikos.rms_norm(wide.new_ones(4, 512), w), attikos.softmax(wide)]
{before}
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = block()
graph.replay()
torch.cuda.synchronize()
eager = block()
torch.cuda.synchronize()
for at, (a, b) in enumerate(zip(captured, eager)):
    assert torch.equal(a, b), at
for t in (q, k, v, x):
    t.mul_(0.5)
graph.replay()
torch.cuda.synchronize()
for at, (a, b) in enumerate(zip(captured, block())):
    assert torch.equal(a, b), at
del graph, captured
again = torch.cuda.CUDAGraph()
with torch.cuda.graph(again):
    captured = block()
again.replay()
torch.cuda.synchronize()
for at, (a, b) in enumerate(zip(captured, block())):
    assert torch.equal(a, b), at
print("good")
"""


@unittest.skipUnless(attikos.has_cuda() and torch and torch.cuda.is_available(), "needs a CUDA device and PyTorch")
class Cuda(unittest.TestCase):
    def test_capture_is_the_first_use_of_all(self):
        self.assertEqual(run(CAPTURE.replace("{before}", "")), "good\n")

    def test_capture_after_a_call_on_another_stream(self):
        self.assertEqual(run(CAPTURE.replace("{before}", "block(); torch.cuda.synchronize()")), "good\n")

    def test_numbers_in_a_capture(self):
        """What is given as a number becomes an array on the device without a copy, which would end the capture."""
        x = torch.randint(-3, 4, (64, 64), device="cuda", dtype=torch.int8)
        x8 = torch.randn(64, 64, device="cuda").to(torch.float8_e4m3fn)

        def calls():
            scales = {"scale_a": 0.5, "scale_b": 3.0}
            return (attikos.gemm(x8, x8, trans_b=True, out_dtype=torch.bfloat16, **scales),
                    attikos.gemm(x8, x8, trans_b=True, out_dtype=torch.float8_e4m3fn, scale_out=8.0).float(),
                    attikos.gemm(x, x, trans_b=True, zero_point_a=2, zero_point_b=-1),
                    attikos.dequantize(x8, 0.25))  # fmt: skip

        want = calls()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = calls()
        graph.replay()
        torch.cuda.synchronize()
        for one, other in zip(got, want):
            self.assertTrue(torch.equal(one, other))

    def test_two_graphs_and_calls_side_by_side(self):
        """Each has workspace of its own."""
        x = torch.randn(2, 2000, 4, 64, device="cuda", dtype=torch.float32)
        query = x[:, :1].contiguous()

        def call(scale):
            return attikos.flash_attn.flash_attn_with_kvcache(query * scale, x, x)

        graphs, outs, streams = [], [], [torch.cuda.Stream() for _ in range(3)]
        want = [call(s) for s in (1.0, 2.0, 3.0)]
        for scale in (1.0, 2.0):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                outs.append(call(scale))
            graphs.append(graph)
        torch.cuda.synchronize()
        for _ in range(50):
            for graph, stream in zip(graphs, streams):
                with torch.cuda.stream(stream):
                    graph.replay()
            with torch.cuda.stream(streams[2]):
                eager = call(3.0)
        torch.cuda.synchronize()
        for got, expected in zip([*outs, eager], want):
            self.assertTrue(torch.equal(got, expected))

    def test_streams_come_and_go(self):
        x = torch.randn(1, 4000, 4, 64, device="cuda")
        want = attikos.flash_attn.flash_attn_with_kvcache(x[:, :1], x, x)
        import ctypes

        runtime = ctypes.CDLL(None)
        if not hasattr(runtime, "cudaStreamCreateWithFlags"):
            import glob

            found = glob.glob(os.path.join(os.path.dirname(torch.__file__), "..", "nvidia", "**", "libcudart.so*"), recursive=True)
            runtime = ctypes.CDLL(found[0] if found else "libcudart.so")

        def once():
            handle = ctypes.c_void_p()
            self.assertEqual(runtime.cudaStreamCreateWithFlags(ctypes.byref(handle), 1), 0)
            with attikos.stream(handle.value):
                got = attikos.flash_attn.flash_attn_with_kvcache(x[:, :1], x, x)
                self.assertTrue(torch.equal(got, want))
            torch.cuda.synchronize()
            return handle

        def round_of(count):
            for handle in [once() for _ in range(count)]:  # all there at once, so that no two are the same
                self.assertEqual(runtime.cudaStreamDestroy(handle), 0)
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            return torch.cuda.mem_get_info()[0]

        # What is free is the device's, and other programs take of it and give back: what streams leave behind grows in
        # every five rounds, theirs does not. What others gave back must not hide it, so that more is no good either.
        rounds = [round_of(80) for _ in range(2)]
        for _ in range(25):
            rounds.append(round_of(80))
            if len(rounds) > 6 and abs(rounds[-6] - rounds[-1]) < 32 << 20:
                return
        self.fail(f"bytes that were free after each 80 streams: {rounds}")

    def test_results_belong_to_the_stream(self):
        """Memory that is freed on a stream is not given out to calls on it before its work is done."""
        side = torch.cuda.Stream()
        with attikos.stream(side):
            self.assertEqual(torch.cuda.current_stream(), side)
            out = attikos.softmax(torch.zeros(1 << 20, 8, device="cuda"))
        side.synchronize()
        self.assertTrue((out == 0.125).all())

    def test_a_device_that_fails(self):
        code = """
import contextlib, os, torch, attikos
x = torch.ones(8, 8, device="cuda")
attikos.softmax(x)
torch.cuda.synchronize()
null = os.open(os.devnull, os.O_WRONLY)
kept = os.dup(2), os.dup(1)
os.dup2(null, 2), os.dup2(null, 1)  # the assertion's own words
x[torch.tensor([99], device="cuda")]
context = attikos._context.Context(("cuda", 0), 0)
said = []
for call in (lambda: attikos.flash_attn and context.synchronize(), lambda: attikos.softmax(x), context.synchronize):
    try:
        call()
    except attikos.DeviceError as error:
        said.append(str(error))
os.dup2(kept[0], 2), os.dup2(kept[1], 1)
assert len(said) == 3 and all("CUDA device 0 has failed" in line for line in said), said
import numpy
assert (attikos.softmax(numpy.zeros((2, 4), numpy.float32)) == 0.25).all()  # the CPU is as good as ever
print("good", flush=True)
os.dup2(null, 2)  # PyTorch's own destructors
"""
        self.assertEqual(run(code), "good\n")

    @unittest.skipUnless(torch and torch.cuda.device_count() > 1, "needs two CUDA devices")
    def test_two_devices(self):
        for device in ("cuda:1", "cuda:0", "cuda:1"):
            x = torch.randn(1, 3000, 2, 64, device=device)
            got = attikos.flash_attn.flash_attn_with_kvcache(x[:, :1], x, x)
            want = attikos.flash_attn.flash_attn_with_kvcache(x[:, :1].cpu(), x.cpu(), x.cpu())
            torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
        self.assertEqual(torch.cuda.current_device(), 0)


if __name__ == "__main__":
    unittest.main()
