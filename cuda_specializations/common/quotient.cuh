// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Integer division by what only the host knows.
#pragma once

#include <algorithm>
#include <attikos/config.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Divides by a number that the host knows, in a few instructions.
struct Quotient {
  std::uint32_t factor = 1, shift = 0;

  Quotient() = default;
  /// By 1 in place of 0.
  explicit Quotient(int divisor) {
    auto const d = static_cast<std::uint64_t>(std::max(divisor, 1));
    while ((std::uint64_t{1} << shift) < d) ++shift;
    factor = static_cast<std::uint32_t>((((std::uint64_t{1} << shift) - d) << 32) / d + 1);
  }
  /// `number` is not negative.
  __device__ __forceinline__ int of(int number) const {
    auto const n = static_cast<std::uint32_t>(number);
    return static_cast<int>((__umulhi(n, factor) + n) >> shift);
  }
};

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
