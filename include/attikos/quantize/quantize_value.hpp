// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rounding one number to an 8-bit element: to nearest, ties to even, saturating.
#pragma once

#include <attikos/core/dtypes.hpp>
#include <cstdint>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Element types that quantize() writes.
template <class T>
inline constexpr bool is_quantized =
    std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2> ||
    std::is_same_v<T, std::int8_t>;

/// The number that the largest magnitude is scaled to: 448, 57344, 127.
template <class T>
ATTIKOS_HD constexpr float quantized_limit() {
  if constexpr (std::is_same_v<T, std::int8_t>) {
    return 127.0f;
  } else {
    return static_cast<float>(ElementTraits<T>::max_finite);
  }
}

/// Nearest element, ties to even. Numbers past the range become the end of it, infinities too. NaN
/// stays NaN; int8, which has none, gets 0.
template <class T>
ATTIKOS_HD constexpr T quantize_value(double value) {
  if constexpr (std::is_same_v<T, std::int8_t>) {
    double const clamped = value > 127.0 ? 127.0 : (value < -128.0 ? -128.0 : value);
    // 1.5·2^52 has the spacing 1: adding it rounds.
    double const rounded = (clamped + 0x1.8p52) - 0x1.8p52;
    return clamped == clamped ? static_cast<std::int8_t>(static_cast<std::int32_t>(rounded))
                              : static_cast<std::int8_t>(0);
  } else {
    return saturate_cast<T>(value);
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
