# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kinds of arrays that come in and go out, without any library but NumPy."""

import ctypes
import gc
import subprocess
import sys
import threading
import unittest

import attikos
import attikos.flash_attn
import ml_dtypes
import numpy as np
from attikos import _dlpack


class DlpackOnly:
    """An array of a library that knows DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)


class OldDlpack(DlpackOnly):
    """The protocol before its version 1: no keyword but `stream`."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__(stream=stream)


class InterfaceOnly:
    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__
        self.owner = array


class Arrays(unittest.TestCase):
    def setUp(self):
        self.a = np.arange(12, dtype=np.float32).reshape(3, 4)
        self.expected = self.a @ self.a.T

    def test_numpy_in_numpy_out(self):
        out = attikos.gemm(self.a, self.a, trans_b=True)
        self.assertIs(type(out), np.ndarray)
        np.testing.assert_array_equal(out, self.expected)

    def test_protocols(self):
        for wrap in (DlpackOnly, OldDlpack):
            out = attikos.gemm(wrap(self.a), wrap(self.a.T))
            self.assertIsInstance(out, attikos.Array)
            np.testing.assert_array_equal(np.from_dlpack(out), self.expected)
        out = attikos.gemm(InterfaceOnly(self.a), InterfaceOnly(self.a.T))
        np.testing.assert_array_equal(out, self.expected)

    def test_own_arrays(self):
        out = attikos.gemm(DlpackOnly(self.a), self.a, trans_b=True)
        self.assertEqual((out.shape, out.ndim, out.device), ((3, 3), 2, "cpu"))
        np.testing.assert_array_equal(np.asarray(out), self.expected)
        again = attikos.gemm(out, out)
        self.assertIsInstance(again, attikos.Array)
        np.testing.assert_array_equal(np.asarray(again), self.expected @ self.expected)
        with self.assertRaises(BufferError):
            out.__dlpack__(copy=True)
        with self.assertRaises(BufferError):
            out.__dlpack__(dl_device=(2, 0))
        self.assertFalse(hasattr(out, "__cuda_array_interface__"))
        self.assertIn("float32", repr(out))

    def test_exports_outlive_the_array(self):
        out = attikos.gemm(DlpackOnly(self.a), self.a, trans_b=True)
        views = [np.from_dlpack(out) for _ in range(3)]
        before = len(_dlpack._exported)
        del out
        gc.collect()
        for view in views:
            np.testing.assert_array_equal(view, self.expected)
        del views, view
        gc.collect()
        self.assertEqual(len(_dlpack._exported), before - 3)

    def test_capsules_that_nobody_takes(self):
        out = attikos.gemm(DlpackOnly(self.a), self.a, trans_b=True)
        before = len(_dlpack._exported)
        for version in (None, (0, 8), (1, 1)):
            out.__dlpack__(max_version=version)
        gc.collect()
        self.assertEqual(len(_dlpack._exported), before)

    def test_dlpack_codes_of_narrow_types(self):
        """Types that NumPy's own DLPack lacks go through our capsules both ways."""
        codes = {"bfloat16": (4, 16), "float8_e4m3": (10, 8), "float8_e5m2": (12, 8), "bool": (6, 8)}
        for name, code in codes.items():
            array = attikos.Array((2, 3), attikos.DType[name], ("cpu", 0))
            capsule = array.__dlpack__(max_version=(1, 1))
            tensor = _dlpack.tensor_of(capsule)
            self.assertEqual((tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes), (*code, 1))
        x = attikos.Array((4, 4), attikos.DType.bfloat16, ("cpu", 0))
        ctypes.memset(x.data, 0, 32)
        self.assertEqual(attikos.gemm(DlpackOnly(x), DlpackOnly(x)).dtype, attikos.DType.bfloat16)

    def test_unknown_versions_and_types(self):
        class Later(DlpackOnly):
            def __dlpack__(self, **arguments):
                capsule = self.array.__dlpack__(max_version=(1, 1))
                address = _dlpack._get_pointer(capsule, b"dltensor_versioned")
                _dlpack.ManagedVersioned.from_address(address).major = 2
                return capsule

        out = attikos.gemm(DlpackOnly(self.a), self.a, trans_b=True)
        with self.assertRaisesRegex(TypeError, "version"):
            attikos.softmax(Later(out))
        with self.assertRaisesRegex(TypeError, "DLPack type code"):
            attikos.softmax(DlpackOnly(np.ones((2, 2), np.complex64)))

    def test_ml_dtypes(self):
        x = self.a.astype(ml_dtypes.bfloat16)
        self.assertEqual(attikos.gemm(x, x, trans_b=True).dtype, np.dtype(ml_dtypes.bfloat16))

    def test_what_is_no_array(self):
        for thing in ("text", 3.0, [1.0, 2.0], None, object()):
            with self.assertRaises(TypeError):
                attikos.gemm(self.a, thing) if thing is not None else attikos.gemm(self.a, object())

    def test_bytes_that_do_not_fit(self):
        swapped = self.a.astype(">f4")
        with self.assertRaisesRegex(TypeError, "byte order|expected"):
            attikos.softmax(swapped)
        record = np.zeros(4, [("x", np.float32), ("flag", np.int8)])
        with self.assertRaisesRegex(ValueError, "multiples"):
            attikos.softmax(record["x"])
        raw = np.zeros(17, np.uint8)
        with self.assertRaisesRegex(ValueError, "divisible"):
            attikos.softmax(raw[1:].view(np.float32))

    def test_threads(self):
        problems = []

        def work(number):
            try:
                for _ in range(20):
                    a = np.full((16, 16), number, np.float32)
                    if not (attikos.gemm(a, a) == 16 * number * number).all():
                        problems.append(number)
            except Exception as problem:  # noqa: BLE001: whatever it is, the test names it
                problems.append(problem)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(problems, [])

    def test_streams(self):
        with attikos.stream(0):
            np.testing.assert_array_equal(attikos.gemm(self.a, self.a, trans_b=True), self.expected)
        for wrong in ("no stream", 2**64, -1, True, 0.5):
            with self.assertRaises(attikos.DeviceError):
                with attikos.stream(wrong):
                    pass

    def test_sizes(self):
        for shape in ((2**62, 8), (2**32, 2**32), (-1,), (2.5,), (True,)):
            with self.assertRaises(attikos.ArgumentError):
                attikos.Array(shape, attikos.DType.float32, ("cpu", 0))

    def test_nothing_is_printed_when_python_ends(self):
        """Not even where something outlives the package's own names, as references of C libraries do."""
        code = (
            "import ctypes, sys, attikos, numpy; x = numpy.ones((2, 2)); attikos.gemm(x, x)\n"
            "for name in [n for n in sys.modules if n.startswith('attikos')]:\n"
            "    ctypes.pythonapi.Py_IncRef(ctypes.py_object(sys.modules[name]))\n"
        )
        done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


def immutable(library):
    """An array type as that library's own look from outside: no read-only mark, not even in its DLPack capsule."""

    class Values(DlpackOnly):
        @property
        def shape(self):
            return self.array.shape

    Values.__module__ = library
    return Values


class OldReadOnly(OldDlpack):
    """DLPack of before version 1 cannot say it; what else the array speaks can."""

    def __init__(self, array, **marks):
        super().__init__(array)
        self.shape = array.shape
        for name, value in marks.items():
            setattr(self, name, value)


class CannotSay(OldDlpack):
    """An array whose other protocols fail."""

    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("not on this device")

    shape = property(lambda self: self.array.shape)


class ReadOnly(unittest.TestCase):
    """Arrays of the caller's are written by append_kv(), flash_attn_with_kvcache() and where results are to go alone."""

    def setUp(self):
        rng = np.random.default_rng(0)
        self.new = [rng.standard_normal((1, 1, 2, 4)).astype(np.float32) for _ in range(2)]
        self.caches = [np.zeros((1, 1, 5, 4), np.float32) for _ in range(2)]

    def refused(self, wrap, words):
        """Neither cache, nor a place for a result, may be one that is not to be written, and nothing is."""
        for x in self.caches:
            with self.assertRaisesRegex(attikos.ArgumentError, f"softmax: out .*{words}.*expected an array to write to"):
                attikos.softmax(x + 1, out=wrap(x))
        for which in range(2):
            caches = [wrap(x) if i == which else x for i, x in enumerate(self.caches)]
            name = ("k_cache", "v_cache")[which]
            for call in (
                lambda caches=caches: attikos.append_kv(*self.new, *caches),
                lambda caches=caches: attikos.flash_attn.flash_attn_with_kvcache(
                    self.new[0][:, :, :1], *caches, *(x.swapaxes(1, 2)[:, :1] for x in self.new), cache_seqlens=[0]
                ),
            ):
                with self.assertRaisesRegex(attikos.ArgumentError, f"{name} .*{words}.*expected an array to write to"):
                    call()
        for x in self.caches:
            np.testing.assert_array_equal(x, np.zeros_like(x))

    def test_libraries_that_change_no_array(self):
        for module in ("jaxlib._jax", "jaxlib.xla_extension", "jax._src.array", "mlx.core", "pyarrow.lib",
                       "tensorflow.python.framework.ops"):  # fmt: skip
            self.refused(immutable(module), "does not change arrays")
            derived = type("Mine", (immutable(module),), {"__module__": "mine"})
            self.refused(derived, "does not change arrays")
        for read in (immutable("jaxlib._jax"), DlpackOnly):  # to be read, they are as good as any
            out = attikos.softmax(read(self.new[0]))
            np.testing.assert_array_equal(np.from_dlpack(out), attikos.softmax(self.new[0]))

    def test_marks(self):
        frozen = [x.copy() for x in self.caches]
        for x in frozen:
            x.flags.writeable = False

        def freeze(x):
            return frozen[0] if x is self.caches[0] else frozen[1]

        self.refused(freeze, "is read-only")
        self.refused(lambda x: DlpackOnly(freeze(x)), "is read-only")
        self.refused(lambda x: InterfaceOnly(freeze(x)), "is read-only")
        self.refused(lambda x: OldReadOnly(x, flags=freeze(x).flags), "is read-only")
        self.refused(lambda x: OldReadOnly(x, __array_interface__=freeze(x).__array_interface__), "is read-only")
        mark = {"data": (1, True)}
        self.refused(lambda x: OldReadOnly(x, __cuda_array_interface__=mark), "is read-only")
        copied = type("Copied", (), {"__init__": lambda self, x: setattr(self, "x", x), "shape": (1, 1, 5, 4),
                                     "__array__": lambda self, dtype=None, copy=None: self.x.copy()})  # fmt: skip
        self.refused(copied, "copied only")
        for wrap in (OldReadOnly, CannotSay, lambda x: OldReadOnly(x, flags=x.flags), DlpackOnly, InterfaceOnly):
            caches = [x.copy() for x in self.caches]
            attikos.append_kv(*self.new, *(wrap(x) for x in caches))
            for new, cache in zip(self.new, caches):
                np.testing.assert_array_equal(cache[:, :, :2], new)


if __name__ == "__main__":
    unittest.main()
