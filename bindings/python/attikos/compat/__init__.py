# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules of other projects by their own names, with their functions' names, orders of arguments and defaults: a
program that imports `cuda_llm_ops`, `kernels`, `utils` or `triton_ops` imports them from here and stays as it is.

What those projects refused because they could not do it (arrays on the CPU, strides, other sizes and types) works, and
float32 stays float32. Errors are this package's, which the same handlers catch.
"""
