// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Vector loops over one row on a host: conversion, epilogue terms, activations, reductions.
///
/// Reductions keep one partial sum per lane and add the lanes in a fixed tree, so that a row gives
/// the same bits whatever thread runs it.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/simd.hpp>
#include <attikos/epilogue/activation.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// One element of a tensor whose type is known only at run time.
template <class Acc>
KOKKOS_INLINE_FUNCTION Acc load_any(DType type, void const* data, std::int64_t offset) {
  switch (type) {
    case DType::float64:
      return static_cast<Acc>(static_cast<double const*>(data)[offset]);
    case DType::float32:
      return static_cast<Acc>(static_cast<float const*>(data)[offset]);
    case DType::float16:
      return static_cast<Acc>(static_cast<float16 const*>(data)[offset]);
    case DType::bfloat16:
      return static_cast<Acc>(static_cast<bfloat16 const*>(data)[offset]);
    case DType::int32:
      return static_cast<Acc>(static_cast<std::int32_t const*>(data)[offset]);
    default:
      return Acc(0);
  }
}

/// Stores a number in a tensor whose floating type is known only at run time.
template <class Acc>
KOKKOS_INLINE_FUNCTION void store_any(DType type, void* data, std::int64_t offset, Acc value) {
  switch (type) {
    case DType::float64:
      static_cast<double*>(data)[offset] = static_cast<double>(value);
      break;
    case DType::float32:
      static_cast<float*>(data)[offset] = static_cast<float>(value);
      break;
    case DType::float16:
      static_cast<float16*>(data)[offset] = static_cast<float16>(value);
      break;
    case DType::bfloat16:
      static_cast<bfloat16*>(data)[offset] = static_cast<bfloat16>(value);
      break;
    default:
      break;
  }
}

namespace host {

/// Calls f(offset, vector, count) over `n` elements at a stride, W at a time; lanes past the end
/// hold `fill`.
template <class Acc, class T, class F>
inline void for_each_vector(T const* p, std::int64_t stride, std::int64_t n, Acc fill, F&& f) {
  constexpr int W = lanes<Acc>;
  std::int64_t j = 0;
  if (stride == 1)
    for (; j + W <= n; j += W) f(j, load<Acc, W>(p + j), W);
  for (; j < n; j += W) {
    int const count = n - j < W ? static_cast<int>(n - j) : W;
    f(j, load_partial<Acc, W>(p + j * stride, stride, count, fill), count);
  }
}

/// `count` ≤ W elements at a stride; missing lanes are 0.
template <class Acc, class T>
inline Vec<Acc> load_row(T const* p, std::int64_t stride, int count) {
  constexpr int W = lanes<Acc>;
  return stride == 1 && count == W ? load<Acc, W>(p)
                                   : load_partial<Acc, W>(p, stride, count, Acc(0));
}

/// Stores the first `count` lanes at a stride, whole vectors where possible.
template <class Acc, class T>
inline void put(T* p, std::int64_t stride, int count, Vec<Acc> v) {
  constexpr int W = lanes<Acc>;
  if (stride == 1 && count == W)
    store<Acc, W>(p, v);
  else
    store_partial<Acc, W>(p, stride, count, v);
}

/// W elements of a tensor whose type is known only at run time.
template <class Acc>
inline Vec<Acc> load_vector_any(DType type, void const* data, std::int64_t offset,
                                std::int64_t stride, int count) {
  auto const get = [&]<class T>(T const* p) { return load_row<Acc>(p + offset, stride, count); };
  switch (type) {
    case DType::float64:
      return get(static_cast<double const*>(data));
    case DType::float32:
      return get(static_cast<float const*>(data));
    case DType::float16:
      return get(static_cast<float16 const*>(data));
    case DType::bfloat16:
      return get(static_cast<bfloat16 const*>(data));
    case DType::int32:
      return get(static_cast<std::int32_t const*>(data));
    default:
      return Vec<Acc>{};
  }
}

/// Lane-wise twin of gelu().
template <class Acc>
inline Vec<Acc> gelu_vector(Vec<Acc> x) {
  constexpr int W = lanes<Acc>;
  if constexpr (std::is_same_v<Acc, float>) {
    // x·Φ(x) from the tail Φ(-|x|), which stays accurate where 1 + erf would cancel. It is 0 in
    // float beyond 15.
    Vec<Acc> const magnitude = x < 0.0f ? -x : x;
    Vec<Acc> const m = magnitude > 15.0f ? broadcast<Acc, W>(15.0f) : magnitude;
    Vec<Acc> const z = m * 0.70710678118654752440f;
    Vec<Acc> const tail = 0.5f * m * (exp<Acc, W>(-z * z) * scaled_erfc(1.0f / (1.0f + 0.3f * z)));
    return x < 0.0f ? -tail : x - tail;
  } else {
    Acc lane[W];
    store<Acc, W>(lane, x);
    for (int l = 0; l < W; ++l) lane[l] = gelu(lane[l]);
    return load<Acc, W>(lane);
  }
}

/// Lane-wise twin of apply_activation().
template <class Acc>
inline Vec<Acc> activate(Activation activation, Vec<Acc> x) {
  constexpr int W = lanes<Acc>;
  switch (activation) {
    case Activation::relu:
      return x < Acc(0) ? Vec<Acc>{} : x;
    case Activation::silu:
      return x / (Acc(1) + exp<Acc, W>(-x));
    case Activation::gelu_tanh: {
      // x/2·(1 + tanh u) = x·σ(2u)
      Vec<Acc> const u = Acc(0.79788456080286535588) * (x + Acc(0.044715) * x * x * x);
      return x / (Acc(1) + exp<Acc, W>(Acc(-2) * u));
    }
    case Activation::gelu:
      return gelu_vector<Acc>(x);
    case Activation::none:
      break;
  }
  return x;
}

}  // namespace host
}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
