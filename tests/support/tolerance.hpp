// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bounds that users have too, under the names that the suites call them by.
#pragma once

#include <attikos/attikos.hpp>
#include <attikos/testing/bounds.hpp>

#include "comparison.hpp"

// GoogleTest's, whether it is in sight or not.
namespace testing {}

namespace attikos::test {

// In the suites `testing` is GoogleTest, not attikos::testing.
namespace testing = ::testing;

using attikos::testing::Accumulator;
using attikos::testing::AttentionBound;
using attikos::testing::float8_tensor_core_error;
using attikos::testing::gemm_bound;
using attikos::testing::growth;
using attikos::testing::layer_norm_bound;
using attikos::testing::math_ulps;
using attikos::testing::mean_bound;
using attikos::testing::oracle_factor;
using attikos::testing::Precision;
using attikos::testing::precision;
using attikos::testing::rounding;
using attikos::testing::scaled_row_bound;
using attikos::testing::softmax_bound;

/// How results of type T are stored, for types of at most 16 bits.
template <class T>
Stored stored_as() {
  if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>)
    return {precision<T>().roundoff, precision<T>().smallest};
  return {};
}

}  // namespace attikos::test
