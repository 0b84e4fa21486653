// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file Activations of many float32 numbers: by the special function units where the portable ones
/// (attikos/epilogue/activation.hpp) call the math library.
///
/// They differ from the portable ones by a few units in the last place of x. NaN stays NaN.
#pragma once

#include <attikos/epilogue/activation.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// x·Φ(x) from the tail Φ(-|x|), which stays accurate where 1 + erf would cancel. It is 0 in float
/// beyond 15.
__device__ __forceinline__ float fast_gelu(float x) {
  float const m = fminf(fabsf(x), 15.0f);
  float const t = __fdividef(1.0f, fmaf(0.3f * 0.70710678118654752440f, m, 1.0f));
  float const density = __expf(-0.5f * m * m);
  float const tail = 0.5f * m * (density * scaled_erfc(t));
  return x < 0 ? -tail : x - tail;
}

/// x·σ(x).
__device__ __forceinline__ float fast_silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

/// x·σ(2u) with u = √(2/π)·(x + 0.044715·x³).
__device__ __forceinline__ float fast_gelu_tanh(float x) {
  float const u = 0.79788456080286535588f * (x + 0.044715f * x * x * x);
  return __fdividef(x, 1.0f + __expf(-2.0f * u));
}

__device__ __forceinline__ float fast_activation(Activation activation, float x) {
  switch (activation) {
    case Activation::relu:
      return relu(x);
    case Activation::gelu:
      return fast_gelu(x);
    case Activation::gelu_tanh:
      return fast_gelu_tanh(x);
    case Activation::silu:
      return fast_silu(x);
    case Activation::none:
      break;
  }
  return x;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
