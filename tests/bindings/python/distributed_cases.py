# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the programs of several ranks have in common: functions of `ranks` that each of them runs, in this order. `ranks`
has rank, size, group and, of PyTorch, device, and functions that make its arrays of NumPy's and the reverse."""

import numpy as np

CASES = []


def case(function):
    CASES.append(function)
    return function


def random(shape, dtype, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def numpy_itself(x):
    return x
