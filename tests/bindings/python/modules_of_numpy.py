# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cases of test_modules.py, for a process without PyTorch."""

import copy
import pickle
import time
import unittest

import attikos
import numpy as np
from attikos import nn

assert nn.torch is None


def normal(*shape, dtype=np.float32, seed=13):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype)


def tables(seqlen, head_dim, dtype):
    angle = np.arange(seqlen)[:, None] / 100.0 ** (np.arange(head_dim // 2) / (head_dim // 2))
    angle = np.concatenate([angle, angle], 1)
    return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)


class Modules(unittest.TestCase):
    def test_rms_norm_rope(self):
        module = attikos.FusedRMSNormRoPE(48, 16, eps=1e-5)
        cos, sin = tables(7, 16, np.float32)
        x = normal(2, 7, 48)
        module.weight[...] = normal(48)
        weight = np.asarray(module.weight)
        np.testing.assert_array_equal(module(x, cos, sin), attikos.fused_rmsnorm_rope(x, weight, cos, sin, 1e-5, 3))
        half = module(x.astype(np.float16), cos, sin)
        self.assertEqual(half.dtype, np.float16)
        for hidden, head in ((48, 15), (48, 32), (0, 2), (48, 0)):
            with self.assertRaises(ValueError):
                attikos.FusedRMSNormRoPE(hidden, head)

    def test_gated_mlp(self):
        module = attikos.FusedGatedMLP(24, 13, "gelu")
        x = normal(2, 5, 24)
        expected = attikos.fused_gated_mlp(x, np.asarray(module.gate_weight), np.asarray(module.up_weight), "gelu")
        np.testing.assert_array_equal(module(x), expected)
        self.assertEqual([name for name, _ in module.named_parameters()], ["gate_weight", "up_weight"])
        self.assertEqual(len(list(module.parameters())), 2)
        with self.assertRaises(ValueError):
            attikos.FusedGatedMLP(24, 13, "relu")

    def test_state(self):
        first, second = attikos.FusedGatedMLP(8, 4), attikos.FusedGatedMLP(8, 4)
        x = normal(3, 8)
        self.assertFalse(np.array_equal(first(x), second(x)))
        second.load_state_dict(first.state_dict())
        np.testing.assert_array_equal(first(x), second(x))
        self.assertTrue(first.training)
        self.assertFalse(first.eval().training)

    def test_types_devices_and_seeds(self):
        for make in (
            lambda **more: attikos.FusedRMSNormRoPE(48, 16, **more), lambda **more: attikos.FusedGatedMLP(24, 13, **more),
            lambda **more: attikos.FP8Linear(24, 10, True, **more),
        ):  # fmt: skip
            for dtype in (np.float64, np.float32, "float16", attikos.DType.float64):
                for parameter in make(dtype=dtype, device="cpu").parameters():
                    self.assertEqual(parameter.dtype, np.dtype(getattr(dtype, "name", dtype)))
            with self.assertRaises(attikos.DeviceError):
                make(device="cuda")
            with self.assertRaises(attikos.UnsupportedDtypeError):
                make(dtype=np.int32)
            weights = []
            for seed in (1, 1, 2):
                np.random.seed(seed)
                weights.append([p.tobytes() for p in make().parameters()])
            self.assertEqual(weights[0], weights[1])
            if "RMSNorm" not in repr(make()):
                self.assertNotEqual(weights[0], weights[2])
        for sizes in ((2.5, 3), ("4", 3), (2**64, 3), (0, 3), (-1, 3)):
            with self.assertRaises(attikos.Error):
                attikos.FP8Linear(*sizes)

    def test_text(self):
        self.assertEqual(repr(attikos.FusedRMSNormRoPE(48, 16)), "FusedRMSNormRoPE(hidden_dim=48, head_dim=16, eps=1e-06)")
        self.assertEqual(repr(attikos.FusedGatedMLP(8, 4)),
                         "FusedGatedMLP(hidden_dim=8, intermediate_dim=4, activation='silu')")  # fmt: skip
        self.assertEqual(repr(attikos.FP8Linear(8, 4)), "FP8Linear(in_features=8, out_features=4, bias=False)")

    def test_pickles(self):
        x, (cos, sin) = normal(2, 7, 48), tables(7, 16, np.float32)
        for module, arguments in ((attikos.FusedRMSNormRoPE(48, 16), (cos, sin)), (attikos.FusedGatedMLP(48, 5), ()),
                                  (attikos.FP8Linear(48, 5, True), ())):  # fmt: skip
            want = module(x, *arguments)
            for again in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
                np.testing.assert_array_equal(again(x, *arguments), want)


class Linear(unittest.TestCase):
    def test_values(self):
        for bias in (False, True):
            layer = attikos.FP8Linear(24, 10, bias=bias)
            x = normal(6, 24)
            expected = attikos.fp8_gemm(x, np.asarray(layer.weight).T)
            if bias:
                layer.bias[...] = np.arange(10)
                expected = expected + np.arange(10).astype(np.float16)
            out = layer(x)
            self.assertEqual(out.dtype, np.float16)
            np.testing.assert_array_equal(out, expected)
            np.testing.assert_array_equal(layer(x.reshape(2, 3, 24)), expected.reshape(2, 3, 10))
            np.testing.assert_array_equal(layer(x[0]), attikos.fp8_gemm(x[:1], np.asarray(layer.weight).T)[0]
                                          + (np.arange(10).astype(np.float16) if bias else 0))  # fmt: skip
        self.assertEqual(attikos.FP8Linear(8, 4, output_dtype=np.float32)(normal(2, 8)).dtype, np.float32)
        with self.assertRaises(attikos.ShapeMismatchError):
            layer(normal(6, 23))

    def test_infinities_show(self):
        layer = attikos.FP8Linear(16, 8)
        x = normal(4, 16)
        x[1, 3] = np.inf
        self.assertEqual(np.isnan(layer(x)).any(axis=1).tolist(), [False, True, False, False])
        layer.weight[5, 0] = -np.inf
        self.assertTrue(np.isnan(layer(normal(4, 16))[:, 5]).all())

    def test_the_kept_weight_is_never_stale(self):
        layer = attikos.FP8Linear(16, 8)
        x = normal(4, 16)

        def expected():
            return attikos.fp8_gemm(x, np.array(layer.weight).T)

        def in_place():
            layer.weight[3, 5] += 1

        def replaced():
            layer.weight = normal(8, 16, seed=99)

        def through_an_alias():
            alias = layer.weight.reshape(-1)
            alias[0] = 7.0

        def whole():
            layer.weight *= 3

        def loaded():
            layer.load_state_dict({"weight": normal(8, 16, seed=5)})

        def sign_of_zero():
            layer.weight[...] = -0.0

        before = layer(x)
        np.testing.assert_array_equal(before, expected())
        for change in (in_place, replaced, through_an_alias, whole, loaded, sign_of_zero):
            change()
            after = layer(x)
            np.testing.assert_array_equal(after, expected(), change.__name__)
            self.assertFalse(np.array_equal(before, after), change.__name__)
            before = after

    def test_the_sign_of_a_zero_counts(self):
        layer = attikos.FP8Linear(4, 2)
        layer.weight[0, 0] = 0.0
        self.assertEqual(layer.weight_fp8.view(np.uint8)[0, 0], 0x00)
        layer.weight[0, 0] = -0.0
        self.assertEqual(layer.weight_fp8.view(np.uint8)[0, 0], 0x80)

    def test_an_alias_from_before(self):
        """Somebody who held the weight when it was quantized may change it at any time later."""
        layer, x = attikos.FP8Linear(16, 8), normal(4, 16)
        given = normal(8, 16, seed=3)
        for alias in (layer.weight, layer.weight[2:4], memoryview(layer.weight)):
            layer(x)
            np.asarray(alias)[0] = 5.0
            np.testing.assert_array_equal(layer(x), attikos.fp8_gemm(x, np.array(layer.weight).T))
        del alias
        layer.weight = given.reshape(-1)[:].reshape(8, 16)  # memory of somebody else's array
        layer(x)
        given[...] = 2.0
        np.testing.assert_array_equal(layer(x), attikos.fp8_gemm(x, given.T))

    def test_looking_at_the_weight_takes_no_longer_for_larger_ones(self):
        small, large = attikos.FP8Linear(4, 4), attikos.FP8Linear(4096, 4096)
        times = []
        for layer in (small, large):
            layer.quantized_weight(), layer.quantized_weight()
            kept = layer._kept
            best = min(self.seconds(layer.quantized_weight) for _ in range(50))
            self.assertIs(layer._kept, kept)
            times.append(best)
        self.assertLess(times[1], 1e-3, times)  # a pass over the 64 MB takes ten times as long

    @staticmethod
    def seconds(call):
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    def test_one_copy_of_the_weight_is_saved(self):
        layer = attikos.FP8Linear(256, 128)
        before = len(pickle.dumps(layer))
        layer(normal(2, 256))
        self.assertEqual(len(pickle.dumps(layer)), before)
        self.assertLess(before, 1.1 * 4 * 256 * 128)

    def test_the_weight_is_kept(self):
        layer = attikos.FP8Linear(16, 8)
        first = layer.weight_fp8
        layer(normal(2, 16))
        self.assertIs(layer.weight_fp8, first)
        layer.refresh()
        self.assertIsNot(layer.weight_fp8, first)
        self.assertEqual(layer.weight_fp8_t.shape, (16, 8))
        self.assertEqual(layer.weight_scale.shape, ())


if __name__ == "__main__":
    unittest.main()
