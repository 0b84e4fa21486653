// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Exponentials of host vectors.
#pragma once

#include <attikos/core/simd.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail::host {

/// Below the first, e^x is 0; above the second, infinity.
template <class T>
inline constexpr T exp_low = sizeof(T) == 4 ? T(-87.33654) : T(-708.396418532264);
template <class T>
inline constexpr T exp_high = sizeof(T) == 4 ? T(88.72283) : T(709.782712893383);

/// e^x = mantissa · 2^exponent.
template <class T, int W>
struct ReducedExponent {
  Vec<T, W> mantissa;
  Vec<typename BitsOf<T>::type, W> exponent;
};

/// Cody-Waite reduction to |r| ≤ ln(2)/2 and a polynomial, for x in [exp_low, exp_high] or NaN.
template <class T, int W>
inline ReducedExponent<T, W> reduce_exponent(Vec<T, W> x) {
  using Bits = typename BitsOf<T>::type;
  constexpr bool single = sizeof(T) == 4;
  constexpr T magic =
      single ? T(12582912.0) : T(6755399441055744.0);  // 1.5·2^mantissa: adding it rounds
  constexpr T log2e = T(1.44269504088896340736);
  constexpr T ln2_high = single ? T(0.693145751953125) : T(0.693147180369123816490);
  constexpr T ln2_low = single ? T(1.42860682030941723212e-6) : T(1.90821492927058770002e-10);

  Vec<T, W> const shifted = x * log2e + magic;
  Vec<T, W> const n = shifted - magic;
  Vec<T, W> const r = (x - n * ln2_high) - n * ln2_low;

  // Taylor coefficients 1/k!; the truncation error over |r| ≤ 0.3466 is below half a unit in the
  // last place.
  Vec<T, W> p;
  if constexpr (single) {
    p = broadcast<T, W>(T(1.0 / 5040));
    p = p * r + T(1.0 / 720);
  } else {
    p = broadcast<T, W>(T(1.0 / 6227020800.0));
    p = p * r + T(1.0 / 479001600.0);
    p = p * r + T(1.0 / 39916800.0);
    p = p * r + T(1.0 / 3628800.0);
    p = p * r + T(1.0 / 362880.0);
    p = p * r + T(1.0 / 40320.0);
    p = p * r + T(1.0 / 5040.0);
    p = p * r + T(1.0 / 720.0);
  }
  p = p * r + T(1.0 / 120);
  p = p * r + T(1.0 / 24);
  p = p * r + T(1.0 / 6);
  p = p * r + T(0.5);
  p = p * r + T(1);
  p = p * r + T(1);

  Vec<Bits, W> bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  Bits magic_bits;
  std::memcpy(&magic_bits, &magic, sizeof magic_bits);
  return {p, bits - magic_bits};
}

/// e^x; at most 2 units in the last place where the result is normal. Results below the smallest
/// normal number are 0, above the largest finite +infinity; NaN stays NaN.
template <class T, int W>
inline Vec<T, W> exp(Vec<T, W> x) {
  using Bits = typename BitsOf<T>::type;
  constexpr bool single = sizeof(T) == 4;
  constexpr int mantissa = single ? 23 : 52;
  constexpr T low = exp_low<T>, high = exp_high<T>;

  // NaN fails both comparisons and runs through the polynomial as it is.
  Vec<T, W> clamped = x < low ? broadcast<T, W>(low) : x;
  clamped = clamped > high ? broadcast<T, W>(high) : clamped;
  ReducedExponent<T, W> const e = reduce_exponent<T, W>(clamped);

  // 2^n in two factors, since n reaches 128 (1024), one more than one exponent field holds.
  Vec<Bits, W> const half = e.exponent >> 1;
  constexpr Bits bias = single ? 127 : 1023;
  Vec<Bits, W> const first = (half + bias) << mantissa;
  Vec<Bits, W> const second = (e.exponent - half + bias) << mantissa;
  Vec<T, W> scale_first, scale_second;
  std::memcpy(&scale_first, &first, sizeof first);
  std::memcpy(&scale_second, &second, sizeof second);
  Vec<T, W> result = e.mantissa * scale_first * scale_second;
  result = x < low ? Vec<T, W>{} : result;
  return x > high ? broadcast<T, W>(static_cast<T>(__builtin_inf())) : result;
}

/// e^x of x ≤ 0 to within 2 units in the last place, without the steps that large results ask for:
/// what rounding left above 0 counts as 0. Results below the smallest normal number are 0; NaN
/// stays NaN.
template <class T, int W>
inline Vec<T, W> exp_of_negative(Vec<T, W> x) {
  using Bits = typename BitsOf<T>::type;
  constexpr bool single = sizeof(T) == 4;
  constexpr int mantissa = single ? 23 : 52;
  constexpr Bits bias = single ? 127 : 1023;
  Vec<T, W> const below = x > T(0) ? Vec<T, W>{} : x;
  Vec<T, W> const clamped = below < exp_low<T> ? broadcast<T, W>(exp_low<T>) : below;
  ReducedExponent<T, W> const e = reduce_exponent<T, W>(clamped);
  // exp_low is the smallest normal number's logarithm: one factor holds 2^n.
  Vec<Bits, W> const power = (e.exponent + bias) << mantissa;
  Vec<T, W> const result = e.mantissa * bit_cast<Vec<T, W>>(power);
  return below < exp_low<T> ? Vec<T, W>{} : result;
}

}  // namespace detail::host
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
