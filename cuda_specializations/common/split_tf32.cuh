// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// float32 as two numbers that tf32 holds.
#pragma once

#include <attikos/config.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// x as big + small: big is x rounded to 11 significant bits, small what is left. A NaN whose bits
/// overflow in big is still a NaN in small.
__device__ __forceinline__ void split_tf32(float x, std::uint32_t& big, std::uint32_t& small) {
  big = (__float_as_uint(x) + 0x1000u) & 0xFFFFE000u;
  small = __float_as_uint(x - __uint_as_float(big));
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
