# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The structs of options that Python passes are those that the library describes."""

import ctypes
import unittest

import attikos
from attikos import _library

STRUCTS = {
    "gemm": _library.GemmOptions,
    "gemm_gradients": _library.GemmGradients,
    "attention": _library.AttentionOptions,
    "attention_gradients": _library.AttentionGradients,
    "decode": _library.DecodeOptions,
    "append_kv": _library.AppendKvOptions,
    "rope": _library.RopeOptions,
}


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

    def test_unknown_operations_and_members_are_refused(self):
        with self.assertRaisesRegex(attikos.Error, "no_such"):
            _library.describe_options("no_such")
        with self.assertRaises(TypeError):
            _library.AttentionOptions(no_such=1)


if __name__ == "__main__":
    unittest.main()
