// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rounding one number to an 8-bit element: to nearest, ties to even; finite numbers saturate,
/// infinities stay what they are.
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

/// False for infinities and NaN.
template <class Value>
ATTIKOS_HD constexpr bool is_finite(Value x) {
  return x - x == Value(0);
}

/// Nearest element to a number that a division may have given, ties to even; `finite`: the dividend
/// was. Finite numbers past the range become the end of it, also where the division overflowed. An
/// infinity is no large number but the sign of an overflow, and stays one: infinity in float8_e5m2,
/// NaN in float8_e4m3, which has no infinity, ±127 in int8, the ends of what scales aim at. NaN
/// stays NaN; int8, which has none, gets 0.
template <class T>
ATTIKOS_HD constexpr T quantize_value(double value, bool finite) {
  if constexpr (std::is_same_v<T, std::int8_t>) {
    double const lowest = finite ? -128.0 : -127.0;
    double const clamped = value > 127.0 ? 127.0 : (value < lowest ? lowest : value);
    // 1.5·2^52 has the spacing 1: adding it rounds.
    double const rounded = (clamped + 0x1.8p52) - 0x1.8p52;
    return clamped == clamped ? static_cast<std::int8_t>(static_cast<std::int32_t>(rounded))
                              : static_cast<std::int8_t>(0);
  } else {
    constexpr double limit = ElementTraits<T>::max_finite;
    double const clamped = value > limit ? limit : (value < -limit ? -limit : value);
    // Unclamped, an infinity becomes what the format has for an overflow.
    return T(finite ? clamped : value);
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
