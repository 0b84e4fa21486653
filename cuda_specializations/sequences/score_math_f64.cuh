// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Arithmetic of scores and weights in float64, and in whichever of both a type asks for.
#pragma once

#include <attikos/ptx/math.hpp>
#include <type_traits>

#include "score_math.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// What scores, weights and sums of elements T are.
template <class T>
using NumberOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

namespace {

using cuda::power_of_2;  // of float, beside that of double below

constexpr double log2_e_64 = 1.4426950408889634074;

__device__ __forceinline__ double minus_infinity_64() {
  return __longlong_as_double(0xfff0000000000000ll);
}

__device__ __forceinline__ double load_double(void const* from, DType type, std::int64_t at) {
  return type == DType::float64 ? static_cast<double const*>(from)[at] : load_float(from, type, at);
}

/// 2^x where x <= 64, or anything above. Below -1022 it is 0.
__device__ __forceinline__ double power_of_2(double x) {
  constexpr double nearest = 6755399441055744.0;  // 1.5·2^52
  // 2^f for |f| <= 1/2: interpolated where the Chebyshev polynomial is 0; off by 2^-55 at most.
  constexpr double factors[] = {
      4.4558179083360645e-10, 7.074194297288521e-09,  1.0178057087733941e-07,
      1.3215432535912375e-06, 1.5252733841556773e-05, 0.00015403530463724353,
      0.001333355814640647,   0.009618129107587256,   0.055504108664821625,
      0.24022650695910158,    0.6931471805599453,     1.0};
  double const whole = x + nearest;
  double const f = x - (whole - nearest);
  double y = factors[0];
#pragma unroll
  for (int k = 1; k < 12; ++k) y = fma(y, f, factors[k]);
  // Times what is a number, so that NaN stays that.
  y *= __hiloint2double((__double2loint(whole) + 1023) << 20, 0);
  return x < -1022.0 ? 0.0 : y;
}

template <class Number>
constexpr Number log2_e_of = static_cast<Number>(log2_e_64);

/// An element as a number.
template <class T>
__device__ __forceinline__ NumberOf<T> number_of(T x) {
  if constexpr (std::is_same_v<T, double>)
    return x;
  else
    return widen(x);
}

/// Stores `value` in an element of a floating-point type.
__device__ __forceinline__ void store_number(void* to, DType type, std::int64_t at, float value) {
  store_float(to, type, at, value);
}
__device__ __forceinline__ void store_number(void* to, DType type, std::int64_t at, double value) {
  if (type == DType::float64)
    static_cast<double*>(to)[at] = value;
  else
    store_float(to, type, at, static_cast<float>(value));
}

__device__ __forceinline__ double tanh_any(double x) { return tanh(x); }

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
