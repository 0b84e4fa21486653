# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Device facts, validation and timing."""

import contextlib
import dataclasses
import importlib.util
import io
import math
import time
import unittest

import attikos
import numpy as np


class Device(unittest.TestCase):
    def test_facts(self):
        host = attikos.detect_host()
        self.assertIs(host.arch, attikos.GPUArch.HOST)
        self.assertTrue(host.name and host.simd and host.host_isa and host.num_sms > 0 and host.total_memory_gb > 0)
        names = [f.name for f in dataclasses.fields(attikos.GPUCapabilities)]
        self.assertEqual(names[:9], ["name", "arch", "compute_capability", "has_tma", "has_fp8",
                                     "has_warpgroup_mma", "sram_per_sm", "num_sms", "total_memory_gb"])  # fmt: skip
        values = {a.name: a.value for a in attikos.GPUArch}
        self.assertEqual({**values, **{"VOLTA": "sm_70", "TURING": "sm_75", "AMPERE": "sm_80", "ADA": "sm_89",
                                       "HOPPER": "sm_90", "BLACKWELL": "sm_100", "UNKNOWN": "unknown"}}, values)  # fmt: skip

    def test_without_a_gpu(self):
        if attikos.has_cuda():
            self.skipTest("there is one")
        for base in (RuntimeError, attikos.DeviceError):
            with self.assertRaises(base):
                attikos.detect_gpu()
            for wrong in (2**32, -1):
                with self.assertRaises(base):
                    attikos.detect_gpu(wrong)
        self.assertFalse(attikos.supports_fp8())
        features = attikos.check_hopper_features()
        self.assertEqual(set(features), {"tma_available", "fp8_available", "wgmma_available", "arch", "compute_capability"})
        self.assertFalse(features["tma_available"] or features["fp8_available"] or features["wgmma_available"])

    def test_print(self):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            attikos.print_gpu_info()
            attikos.print_gpu_info(attikos.detect_host())
        self.assertIn("Architecture", text.getvalue())

    def test_selector(self):
        selector = attikos.AdaptiveKernelSelector()
        blocks = selector.get_matmul_config()
        self.assertEqual(blocks, attikos.get_matmul_config())
        self.assertEqual(selector.get_attention_config(), attikos.get_attention_config())
        a = np.ones((512, 512), np.float32)
        self.assertEqual(selector.select_matmul_kernel()(a, a, **blocks)[0, 0], 512)
        self.assertEqual(attikos.triton_matmul(a, a, **attikos.get_matmul_config())[0, 0], 512)
        self.assertEqual(set(attikos.get_attention_config()), {"block_m", "block_n"})
        q = np.ones((1, 1, 4, 8), np.float32)
        self.assertEqual(selector.select_attention_kernel()(q, q, q).shape, q.shape)
        self.assertIs(attikos.get_optimal_matmul(), selector.select_matmul_kernel())
        self.assertIs(attikos.get_optimal_attention(), selector.select_attention_kernel())


class Validation(unittest.TestCase):
    def test_right_functions_pass(self):
        for dtype in ("float16", np.float32, attikos.DType.float64):
            good, largest = attikos.validate_matmul(attikos.triton_matmul, 33, 20, 47, dtype=dtype, device="cpu")
            self.assertIs(good, True)
            self.assertLess(largest, 0.1)
            for causal in (False, True):
                good, largest = attikos.validate_attention(
                    attikos.flash_attention, 2, 3, 40, 32, causal=causal, dtype=dtype, device="cpu"
                )
                self.assertIs(good, True)
                self.assertLess(largest, 1e-2)

    def test_every_function_of_this_package(self):
        """In every type that has a tolerance to fall under: bfloat16's own rounding is larger than the default one."""
        for dtype in ("float16", "bfloat16", "float32", "float64"):
            for m, n, k in ((64, 64, 64), (300, 200, 500)):
                for function in (attikos.triton_matmul, attikos.gemm, lambda a, b: attikos.gemm(a, b, kernel="portable")):
                    good, _ = attikos.validate_matmul(function, m, n, k, dtype=dtype, device="cpu")
                    self.assertTrue(good, f"{dtype} {m}")
                good, _ = attikos.validate_matmul(lambda a, b: attikos.gemm(a, b, 1.02), m, n, k, dtype=dtype, device="cpu")
                self.assertFalse(good, dtype)
            for function in (attikos.flash_attention, attikos.tiled_attention, attikos.naive_attention,
                             attikos.reference_attention,
                             lambda q, k, v, is_causal: attikos.attention(q, k, v, causal=is_causal)):  # fmt: skip
                for causal in (False, True):
                    good, _ = attikos.validate_attention(
                        function, 2, 2, 70, 32, causal=causal, dtype=dtype, device="cpu"
                    )
                    self.assertTrue(good, f"{dtype} {function}")

    def test_products_of_16_bits_take_no_minutes(self):
        """NumPy's own product of float16 is a loop over elements, a hundred times as long as one of float32."""
        begin = time.perf_counter()
        for dtype in ("float16", "bfloat16"):
            attikos.validate_matmul(attikos.gemm, 512, 512, 512, dtype=dtype, device="cpu")
            runner = attikos.BenchmarkRunner(device="cpu", warmup=0, rep=10)
            runner.benchmark_matmul(lambda a, b: a, [(1024, 1024, 1024)], dtype=dtype)
        self.assertLess(time.perf_counter() - begin, 5)

    def test_no_such_device(self):
        if not attikos.has_cuda() and importlib.util.find_spec("torch"):
            with self.assertRaises(attikos.DeviceError):
                attikos.validate_matmul(attikos.gemm, 4, 4, 4, device="cuda")

    def test_wrong_functions_fail(self):
        good, largest = attikos.validate_matmul(lambda a, b: attikos.gemm(a, b, 1.1), 8, 8, 8, device="cpu")
        self.assertFalse(good)
        self.assertGreater(largest, 0.01)
        good, _ = attikos.validate_attention(
            lambda q, k, v, causal: attikos.flash_attention(q, k, v, causal=not causal), 1, 1, 9, 8, device="cpu"
        )
        self.assertFalse(good)
        self.assertEqual(attikos.validate_matmul(lambda a, b: a[:1], 4, 5, 6, device="cpu"), (False, math.inf))
        self.assertEqual(
            attikos.validate_matmul(lambda a, b: np.full((4, 5), np.nan), 4, 5, 6, device="cpu"), (False, math.inf)
        )

    def test_verbose(self):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            attikos.validate_matmul(attikos.gemm, 4, 4, 4, device="cpu", verbose=True)
            attikos.validate_attention(attikos.flash_attention, 1, 1, 4, 4, device="cpu", verbose=True)
        self.assertEqual(text.getvalue().count("passed"), 2)

    def test_reference(self):
        rng = np.random.default_rng(0)
        q, k, v = (rng.standard_normal((2, 2, 6, 4)) for _ in range(3))
        out = attikos.reference_attention(q, k, v, causal=True)
        np.testing.assert_allclose(out[..., 0, :], v[..., 0, :])
        np.testing.assert_allclose(out, attikos.flash_attention(q, k, v, causal=True), atol=1e-13)
        long = attikos.reference_attention(q[..., :2, :], k, v, causal=True)
        np.testing.assert_allclose(long[..., 1, :], attikos.reference_attention(q[..., 1:2, :], k, v)[..., 0, :])
        self.assertEqual(attikos.reference_attention(*(x.astype(np.float16) for x in (q, k, v))).dtype, np.float16)


class Benchmark(unittest.TestCase):
    def test_function(self):
        calls = []
        median, low, high = attikos.benchmark_fn(lambda x, y=0: calls.append((x, y)), 1, warmup=2, rep=5, y=3)
        self.assertEqual(calls, [(1, 3)] * 7)
        self.assertTrue(0 <= low <= median <= high)
        self.assertEqual(len(attikos.benchmark_fn(lambda: None, warmup=0, rep=3, quantiles=[0.1, 0.9])), 2)

    def test_runner(self):
        runner = attikos.BenchmarkRunner(device="cpu", warmup=1, rep=3)
        blocks = [{"block_m": 8, "block_n": 8, "block_k": 8}]
        products = runner.benchmark_matmul(attikos.triton_matmul, [(16, 24, 32)], blocks, dtype="float32")
        self.assertEqual([r.name for r in products], ["NumPy", "Attikos", "Attikos"])
        self.assertEqual([r.block_config for r in products], [None, None, blocks[0]])
        attention = runner.benchmark_attention(attikos.flash_attention, [16, 32], 1, 2, 8, causal=True, dtype="float32")
        self.assertEqual([r.size for r in attention], [(1, 2, 16, 8)] * 2 + [(1, 2, 32, 8)] * 2)
        stored = runner.benchmark_attention(attikos.tiled_attention, [16], 1, 2, 8, causal=True, dtype="float32")
        runner.results = runner.results[: -len(stored)]
        for result in products + attention + stored:
            self.assertIsInstance(result, attikos.BenchmarkResult)
            self.assertTrue(result.time_ms > 0 and result.tflops > 0 and result.memory_mb > 0)
        self.assertEqual(runner.results, products + attention)
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            runner.print_comparison_table(title="All")
            runner.print_comparison_table(products)
        lines = text.getvalue().splitlines()
        self.assertEqual(lines[0], "All")
        self.assertEqual(len(lines), 3 + 7 + 3 + 3)
        runner.clear_results()
        self.assertEqual(runner.results, [])


if __name__ == "__main__":
    unittest.main()
