# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The structs that Python passes by ctypes and by its compiled functions are those that the library has."""

import ctypes
import unittest

import attikos
import ml_dtypes
import numpy as np
from attikos import _border, _library

STRUCTS = {
    "gemm": _library.GemmOptions,
    "gemm_gradients": _library.GemmGradients,
    "attention": _library.AttentionOptions,
    "attention_gradients": _library.AttentionGradients,
    "decode": _library.DecodeOptions,
    "append_kv": _library.AppendKvOptions,
    "rope": _library.RopeOptions,
}


# Those that are no options, which nothing describes but C's headers.
OTHERS = {"tensor": _library.Tensor, "device_info": _library.DeviceInfo}


def compiled_layout(name):
    """(bytes, [(name, offset, size, default)]) of a struct as the compiled functions have it."""
    import tvm_ffi

    layout = tvm_ffi.load_module(str(_border.LIBRARY)).get_function("layout")
    size, *lines = str(layout(name)).splitlines()
    members = (line.split("\t") for line in lines)
    return int(size), [(name, int(offset), int(bytes_), float(value)) for name, offset, bytes_, value in members]


class Options(unittest.TestCase):
    def test_every_member_lies_where_the_library_has_it(self):
        for operation, struct in STRUCTS.items():
            size, described = _library.describe_options(operation)
            self.assertEqual(ctypes.sizeof(struct), size, operation)
            self.assertEqual([name for name, _ in struct._fields_], [option.name for option in described])
            for option in described:
                with self.subTest(operation=operation, option=option.name):
                    field = getattr(struct, option.name)
                    self.assertEqual((field.offset, field.size), (option.offset, option.size))
                    self.assertTrue(option.meaning)

    def test_defaults_are_those_of_the_library(self):
        for operation, struct in STRUCTS.items():
            made = struct()
            self.assertEqual(made.struct_size, ctypes.sizeof(struct))
            for option in _library.describe_options(operation)[1]:
                with self.subTest(operation=operation, option=option.name):
                    value = getattr(made, option.name)
                    if option.kind in ("tensor", "text"):
                        self.assertFalse(value)
                    else:
                        self.assertEqual(value, option.default)

    def test_compiled_functions_have_every_member_where_the_library_has_it(self):
        for operation in STRUCTS:
            size, described = _library.describe_options(operation)
            expected = size, [(x.name, x.offset, x.size, x.default) for x in described]
            with self.subTest(operation):
                self.assertEqual(compiled_layout(operation), expected)

    def test_structs_that_are_no_options_have_every_member_in_its_place(self):
        for name, struct in OTHERS.items():
            fields = [(field, getattr(struct, field)) for field, _ in struct._fields_]
            with self.subTest(name):
                size, members = compiled_layout(name)
                self.assertEqual(size, ctypes.sizeof(struct))
                self.assertEqual([m[:3] for m in members], [(field, at.offset, at.size) for field, at in fields])
                # Every byte belongs to a member, so that neither side forgot one.
                self.assertEqual(sum(m[2] for m in members), size)

    # Options that say how a result is found, or what is checked before: by rounding it may be the same.
    MEANS = {"struct_size", "algorithm", "compute", "kernel", "check", "splits", "determinism", "sm_margin"}

    def test_results_follow_every_option(self):
        """Of attention and decode: with an option the portable kernels give something else than without."""
        rng = np.random.default_rng(5)
        q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 4, 6, 8), (2, 2, 16, 8), (2, 2, 16, 8)))
        plain = dict(q=q, k=k, v=v)
        masked = dict(plain, causal=True)
        packed = dict(q=q[0], k=k[0], v=v[0], cu_seqlens_q=[0, 6], cu_seqlens_kv=[0, 16])
        paged = dict(q=q, k=k.reshape(4, 2, 8, 8), v=v.reshape(4, 2, 8, 8), page_table=[[0, 1], [2, 3]])
        eight = {name: x.astype(ml_dtypes.float8_e4m3fn) for name, x in plain.items()}
        cases = {
            "softmax_scale": (plain, dict(scale=0.1)),
            "softcap": (plain, dict(softcap=0.5)),
            "window_left": (plain, dict(window=(2, -1))),
            "window_right": (plain, dict(window=(-1, 2))),
            "causal": (plain, dict(causal=True)),
            "causal_top_left": (masked, dict(top_left=True)),
            "attention_chunk": (plain, dict(attention_chunk=4)),
            "lengths_q": (dict(plain, lengths_kv=[9, 16]), dict(lengths_q=[6, 3])),
            "lengths_kv": (plain, dict(lengths_kv=[9, 16])),
            "cu_seqlens_q": (packed, dict(cu_seqlens_q=[0, 2, 6], cu_seqlens_kv=[0, 7, 16])),
            "cu_seqlens_kv": (packed, dict(cu_seqlens_kv=[0, 9])),
            "page_table": (paged, dict(page_table=[[2, 1], [0, 3]])),
            "bias": (plain, dict(bias=rng.standard_normal((6, 16)).astype(np.float32))),
            "mask": (plain, dict(mask=rng.random((6, 16)) < 0.5)),
            "alibi_slopes": (plain, dict(alibi_slopes=np.full(4, 0.3, np.float32))),
            "sinks": (plain, dict(sinks=np.ones(4, np.float32))),
            "descale_q": (eight, dict(descale_q=0.25)),
            "descale_k": (eight, dict(descale_k=0.25)),
            "descale_v": (eight, dict(descale_v=0.25)),
        }
        for operation in ("attention", "decode"):
            described = {option.name for option in _library.describe_options(operation)[1]} - self.MEANS
            self.assertEqual(described, cases.keys())
            function = getattr(attikos, operation)
            for name, (base, given) in cases.items():
                algorithms = ("flash", "tiled", "naive") if operation == "attention" else (None,)
                for algorithm in algorithms:
                    with self.subTest(operation, option=name, algorithm=algorithm):
                        how = {} if algorithm is None else {"algorithm": algorithm}
                        without = np.asarray(function(**base, **how)).astype(np.float64)
                        with_it = np.asarray(function(**{**base, **given}, **how)).astype(np.float64)
                        self.assertGreater(np.abs(without - with_it).max(), 1e-3)

    def test_unknown_operations_and_members_are_refused(self):
        with self.assertRaisesRegex(attikos.Error, "no_such"):
            _library.describe_options("no_such")
        with self.assertRaises(TypeError):
            _library.AttentionOptions(no_such=1)


if __name__ == "__main__":
    unittest.main()
