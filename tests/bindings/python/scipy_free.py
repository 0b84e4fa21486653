# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What NumPy lacks."""

import math

import numpy as np

erf = np.vectorize(math.erf, otypes=[np.float64])
