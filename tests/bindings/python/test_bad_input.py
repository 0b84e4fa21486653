# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Input that a call cannot take, item by item, by the short way and the long one: one line, of a type, that names function
and argument, before anything is written."""

import contextlib
import importlib.util
import unittest

import attikos
import numpy as np
from attikos import _border
from attikos import flash_attn as fa

torch = None
if importlib.util.find_spec("torch"):
    import torch


def by_long_way():
    @contextlib.contextmanager
    def barred():
        token = _border.barred.set(True)
        try:
            yield
        finally:
            _border.barred.reset(token)

    return barred()


WAYS = {"short": contextlib.nullcontext, "long": by_long_way}
A = np.arange(16, dtype=np.float32).reshape(4, 4) / 8


def cached(k_cache, v_cache, of=np.asarray):
    """A call that writes one position into each cache [1, 8, 2, 4]."""
    q = of(np.ones((1, 1, 2, 4), np.float32))
    return fa.flash_attn_with_kvcache(q, k_cache, v_cache, q, q, cache_seqlens=of(np.array([2], np.int32)))


def cache():
    return np.zeros((1, 8, 2, 4), np.float32)


class OnDevice:
    """Four by four numbers that lie on a device of a kind of DLPack's, or so they say."""

    def __init__(self, kind):
        self.kind = kind

    def __dlpack_device__(self):
        return (self.kind, 0)

    def __dlpack__(self, **_):
        raise AssertionError("was asked for its memory")


class OnCuda:
    __cuda_array_interface__ = {"shape": (4, 4), "typestr": "<f4", "data": (4096, False), "strides": None, "version": 3}


class Calls(unittest.TestCase):
    def setUp(self):
        attikos.gemm(A, A)  # the short way is open
        if torch is not None:
            attikos.gemm(torch.ones(2, 2), torch.ones(2, 2))

    def refused(self, error, words, call, *caches):
        """By both ways in the same words; caches keep what they hold."""
        found = []
        for way, enter in WAYS.items():
            with self.subTest(way=way), enter(), self.assertRaises(error) as caught:
                call()
            found.append(str(caught.exception))
            self.assertIs(type(caught.exception), error)
        for text in found:
            self.assertEqual(text, found[0])
            self.assertNotIn("\n", text)
            self.assertTrue(text.startswith("attikos."), text)
            for word in words:
                self.assertIn(word, text)
        for x in caches:
            self.assertFalse(np.asarray(x).any())


class Refused(Calls):
    def test_devices_of_other_kinds(self):
        for kind in (8, 10, 15):
            words = ("gemm: b lies on a device", str(kind), "CPU or CUDA")
            self.refused(attikos.DeviceError, words, lambda kind=kind: attikos.gemm(A, OnDevice(kind)))

    def test_several_devices(self):
        for first, second in ((A, OnCuda()), (OnCuda(), A)):
            self.refused(
                attikos.DeviceError, ("gemm: b lies on", "a on", "one device"), lambda x=first, y=second: attikos.gemm(x, y)
            )
        self.refused(attikos.DeviceError, ("bias lies on cuda:0", "one device"), lambda: attikos.gemm(A, A, bias=OnCuda()))

    @unittest.skipIf(attikos.has_cuda(), "the build has CUDA")
    def test_a_build_without_cuda(self):
        words = ("x lies on cuda:0", "built without CUDA; install it with: pip install . -C", "ATTIKOS_ENABLE_CUDA=ON")
        self.refused(attikos.DeviceError, words, lambda: attikos.softmax(OnCuda()))
        self.refused(attikos.DeviceError, ("a lies on cuda:0", words[1]), lambda: attikos.gemm(OnCuda(), OnCuda()))

    def test_byte_order(self):
        swapped = A.astype(">f4")
        for name, call in {"a": lambda: attikos.gemm(swapped, A), "b": lambda: attikos.gemm(A, swapped)}.items():
            self.refused(attikos.UnsupportedDtypeError, (f"gemm: {name} is >f4", "native byte order"), call)
        k, v = cache().astype(">f4"), cache()
        self.refused(attikos.UnsupportedDtypeError, ("k_cache is >f4", "native byte order"), lambda: cached(k, v), k, v)

    def test_complex_numbers(self):
        kinds = [(A.astype(np.complex64), A, np.asarray), (A.astype(np.complex128), A, np.asarray)]
        if torch is not None:
            x = torch.from_numpy(A)
            kinds += [(x.to(torch.complex64), x, torch.from_numpy), (x.to(torch.complex64).conj(), x, torch.from_numpy)]
        for bad, good, of in kinds:
            self.refused(attikos.UnsupportedDtypeError, ("softmax: x is", "complex"), lambda x=bad: attikos.softmax(x))
            self.refused(attikos.UnsupportedDtypeError, ("b is", "complex"), lambda x=bad, y=good: attikos.gemm(y, x))
        k, v = cache().astype(np.complex64), cache()
        self.refused(attikos.UnsupportedDtypeError, ("k_cache is complex64",), lambda: cached(k, v), k, v)

    def test_elements_that_are_no_numbers(self):
        for bad in (A.astype(object), A.astype("U4"), np.zeros(4, [("x", "f4")]), A.astype("M8[s]")):
            self.refused(attikos.UnsupportedDtypeError, ("softmax: x is", "expected"), lambda x=bad: attikos.softmax(x))

    def test_strides_that_are_no_multiples(self):
        between = np.zeros(8, [("x", "f4"), ("y", "i1")])["x"]
        self.refused(attikos.StrideError, ("x has strides (5,) in bytes",), lambda: attikos.softmax(between))

    def test_outputs_that_overlap_themselves(self):
        k, v = np.lib.stride_tricks.as_strided(cache(), strides=(256, 16, 4, 4)), cache()
        self.refused(attikos.StrideError, ("k_cache", "share memory", "distinct elements"), lambda: cached(k, v), k, v)
        v = np.lib.stride_tricks.as_strided(cache(), strides=(0, 0, 16, 4))
        k = cache()
        self.refused(attikos.StrideError, ("v_cache", "share memory"), lambda: cached(k, v), k, v)

    def test_outputs_that_share_memory(self):
        k = cache()
        self.refused(attikos.ArgumentError, ("k_cache shares memory with output v_cache",), lambda: cached(k, k), k)

    def test_outputs_that_are_read_only(self):
        for name in ("k_cache", "v_cache"):
            caches = {"k_cache": cache(), "v_cache": cache()}
            caches[name].flags.writeable = False
            self.refused(attikos.ArgumentError, (f"{name} is read-only",), lambda c=caches: cached(**c), *caches.values())
        k, v = (np.zeros((1, 2, 8, 4), np.float32) for _ in range(2))
        v.flags.writeable = False
        new = np.ones((1, 2, 1, 4), np.float32)
        lengths = np.array([2], np.int32)
        self.refused(
            attikos.ArgumentError, ("append_kv: v_cache is read-only",),
            lambda: attikos.append_kv(new, new, k, v, cache_lengths=lengths), k, v,
        )  # fmt: skip


class Taken(unittest.TestCase):
    """What looks like one of the items above and is none."""

    def test_strides(self):
        overlapping = np.lib.stride_tricks.as_strided(A, (3, 4), (4, 4))
        for name, x in {"negative": A[::-1, ::-1], "overlapping": overlapping, "of zero": np.broadcast_to(A[0], (3, 4))}.items():
            for way, enter in WAYS.items():
                with self.subTest(name=name, way=way), enter():
                    np.testing.assert_allclose(attikos.gemm(x, A[:, ::-1]), x @ A[:, ::-1], rtol=1e-5)

    def test_outputs_backwards(self):
        for enter in WAYS.values():
            k, v = cache(), cache()
            with enter():
                cached(k[:, ::-1], v[..., ::-1])
            self.assertEqual((k.sum(), k[0, 5].sum(), v.sum(), v[0, 2].sum()), (8, 8, 8, 8))

    def test_inputs_that_are_read_only(self):
        x = A.copy()
        x.flags.writeable = False
        for enter in WAYS.values():
            with enter():
                np.testing.assert_allclose(attikos.gemm(x, x), A @ A, rtol=1e-5)


@unittest.skipIf(torch is None, "PyTorch is not installed")
class OfTorch(Calls):
    """The items that PyTorch's tensors have."""

    def tensors(self):
        return torch.from_numpy(cache()), torch.from_numpy(cache())

    def test_devices_of_other_kinds(self):
        x = torch.ones(4, 4)
        self.refused(attikos.DeviceError, ("gemm: a lies on meta",), lambda: attikos.gemm(x.to("meta"), x))
        self.refused(attikos.DeviceError, ("gemm: b lies on meta",), lambda: attikos.gemm(x, x.to("meta")))
        k, v = self.tensors()
        self.refused(attikos.DeviceError, ("v_cache lies on meta",), lambda: cached(k, v.to("meta"), torch.from_numpy), k)

    def test_layouts(self):
        x = torch.ones(4, 4)
        self.refused(attikos.StrideError, ("b has layout torch.sparse_coo",), lambda: attikos.gemm(x, x.to_sparse()))

    def test_outputs_that_ask_for_gradients(self):
        for name in (0, 1):
            caches = [x.requires_grad_(i == name) for i, x in enumerate(self.tensors())]
            words = (f"{'kv'[name]}_cache requires a gradient", "detach()")
            call = lambda c=caches: cached(*c, torch.from_numpy)  # noqa: E731
            self.refused(attikos.UnsupportedError, words, call, *(x.detach() for x in caches))
            for enter in WAYS.values():
                with torch.no_grad(), enter():
                    call()
                    for x in caches:
                        self.assertEqual(x.sum(), 8)
                        x.zero_()

    def test_outputs_that_overlap_themselves(self):
        k, v = self.tensors()
        expanded = torch.zeros(1, 1, 2, 4).expand(1, 8, 2, 4)
        call = lambda: cached(expanded, v, torch.from_numpy)  # noqa: E731
        self.refused(attikos.StrideError, ("k_cache", "share memory"), call, expanded, v)
        call = lambda: cached(k, k, torch.from_numpy)  # noqa: E731
        self.refused(attikos.ArgumentError, ("k_cache shares memory with output v_cache",), call, k)

    def test_outputs_that_are_negated_when_read(self):
        k, v = self.tensors()
        call = lambda: cached(torch._neg_view(k), v, torch.from_numpy)  # noqa: E731
        self.refused(attikos.ArgumentError, ("k_cache is a view whose numbers PyTorch negates",), call, k, v)


if __name__ == "__main__":
    unittest.main()
