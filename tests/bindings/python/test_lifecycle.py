# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ends and beginnings of interpreters: each life is a process of its own, which has to end as usual and without a word."""

import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import unittest

import numpy

import attikos

try:
    import torch
except ImportError:
    torch = None

# Threads that call until the process ends; refusals are what they get then.
LOAD = """
import threading, time
import numpy, attikos
x = numpy.ones((160, 160), numpy.float32)
began = threading.Barrier(4)
def work():
    attikos.gemm(x, x)
    began.wait()
    while True:
        try:
            attikos.gemm(x, x)
        except attikos.DeviceError:
            return
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
began.wait()
"""


def product_is_right(size: int = 32) -> bool:
    x = numpy.ones((size, size), numpy.float32)
    return bool((attikos.gemm(x, x) == size).all())


class Lives(unittest.TestCase):
    def live(self, program: str, times: int = 1, code: int = 0) -> None:
        for _ in range(times):
            done = subprocess.run([sys.executable, "-W", "error", "-c", textwrap.dedent(program)], capture_output=True,
                                  text=True, timeout=120)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (code, "", ""))

    def test_exit_with_calls_in_flight(self):
        self.live(LOAD, times=2)

    def test_sys_exit_and_os_exit_with_calls_in_flight(self):
        self.live(LOAD + "import sys; sys.exit(3)", code=3)
        self.live(LOAD + "import os; os._exit(4)", code=4)

    @unittest.skipUnless(attikos.has_cuda() and torch and torch.cuda.is_available(), "needs a CUDA device and PyTorch")
    def test_exit_with_calls_of_a_device_in_flight(self):
        """Work that is queued and not waited for, and threads that queue more, each in a stream of its own."""
        queue = """
            import torch
            x = torch.ones(2048, 2048, device="cuda")
            def many():
                for _ in range(50):
                    attikos.gemm(x, x)
            """
        queue = textwrap.dedent(queue)
        self.live("import attikos" + queue + "many()")
        load = LOAD.replace("x = numpy.ones((160, 160), numpy.float32)", queue + textwrap.dedent("""
            def in_stream(work):
                with torch.cuda.stream(torch.cuda.Stream()):
                    work()
            """)).replace("target=work", "target=in_stream, args=(work,)")
        self.live(load, times=2)
        self.live(load + "import sys; sys.exit(3)", code=3)

    def test_calls_of_atexit(self):
        self.live("""
            import atexit
            def call():
                import numpy, attikos
                x = numpy.ones((32, 32), numpy.float32)
                assert (attikos.gemm(x, x) == 32).all()
            atexit.register(call)
            import attikos
            atexit.register(call)
            """)

    def test_objects_that_outlive_the_module(self):
        self.live("""
            import numpy, attikos
            class Last:
                gemm, x = attikos.gemm, numpy.ones((32, 32), numpy.float32)
                def __del__(self):
                    try:
                        Last.gemm(self.x, self.x)
                    except Exception:  # whatever is left of the interpreter
                        pass
            keep = Last()
            keep.itself = keep
            assert (attikos.gemm(keep.x, keep.x) == 32).all()
            """)

    def test_import_again(self):
        self.live("""
            import importlib, sys
            import numpy, attikos
            x = numpy.ones((32, 32), numpy.float32)
            for _ in range(3):
                assert (attikos.gemm(x, x) == 32).all()
                for name in [n for n in sys.modules if n.split(".")[0] == "attikos"]:
                    del sys.modules[name]
                attikos = importlib.import_module("attikos")
            """)

    def test_second_kokkos(self):
        """Another copy of the library, with a Kokkos and maybe an OpenMP run time of its own: both compute, by turns."""
        self.live("""
            import ctypes, os, shutil, tempfile
            import numpy, attikos
            from attikos import _dtypes, _library
            x = numpy.random.default_rng(1).standard_normal((160, 160), numpy.float32)
            mine = attikos.gemm(x, x)
            assert numpy.allclose(mine, x @ x, atol=1e-3)
            with tempfile.TemporaryDirectory() as folder:
                other = ctypes.CDLL(shutil.copy(_library.library._name, os.path.join(folder, "libother.so")))
            class Tensor(ctypes.Structure):
                _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int32), ("ndim", ctypes.c_int32),
                            ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64))]
            def tensor(array):
                return Tensor(array.ctypes.data, _dtypes.DType.float32, 2, (ctypes.c_int64 * 2)(*array.shape), None)
            other.attikos_context_create.argtypes = [ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
            other.attikos_gemm.argtypes = [ctypes.c_void_p] + [ctypes.POINTER(Tensor)] * 3 + [ctypes.c_void_p]
            other.attikos_synchronize.argtypes = [ctypes.c_void_p]
            context = ctypes.c_void_p()
            assert other.attikos_context_create(0, 0, None, ctypes.byref(context)) == 0
            for _ in range(10):
                its = numpy.full_like(x, -1)
                assert other.attikos_gemm(context, tensor(x), tensor(x), tensor(its), None) == 0
                assert other.attikos_synchronize(context) == 0
                assert (its == mine).all()
                assert (attikos.gemm(x, x) == mine).all()
            """)


class Threads(unittest.TestCase):
    def test_threads_that_end(self):
        right = []
        for _ in range(50):
            thread = threading.Thread(target=lambda: right.append(product_is_right()))
            thread.start()
            thread.join()
        self.assertEqual(right, [True] * 50)

    def test_many_at_once(self):
        right = []
        threads = [threading.Thread(target=lambda: right.append(all(product_is_right() for _ in range(20))))
                   for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(right, [True] * 8)


@unittest.skipUnless(hasattr(os, "fork"), "no fork here")
class Processes(unittest.TestCase):
    def pool(self, method: str) -> None:
        self.assertTrue(product_is_right())
        with multiprocessing.get_context(method).Pool(2) as pool:
            self.assertEqual(pool.map(product_is_right, [16, 32, 48, 64]), [True] * 4)
        self.assertTrue(product_is_right())

    def test_fork(self):
        import warnings
        with warnings.catch_warnings():  # of newer interpreters, whose threads may hold locks; these do not
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pool("fork")

    def test_spawn(self):
        self.pool("spawn")

    def test_forkserver(self):
        self.pool("forkserver")


if __name__ == "__main__":
    unittest.main()
