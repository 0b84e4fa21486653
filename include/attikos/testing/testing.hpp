// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// For tests of code that uses or replaces this library's operations: float64 oracles, error bounds
/// and validate functions. Not part of attikos.hpp.
#pragma once

#include <attikos/testing/bounds.hpp>
#include <attikos/testing/validate_attention.hpp>
#include <attikos/testing/validate_gemm.hpp>
