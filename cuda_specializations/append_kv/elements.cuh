// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Elements of append_kv/sm80_simt: groups that are loaded at once, conversions, rotation.
#pragma once

#include <attikos/abi/dtype.hpp>
#include <cstdint>
#include <type_traits>

#include "common/elements.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// What is only copied, so many bytes at a time.
template <int Size>
struct alignas(Size) AppendKvBytes {
  using Word = std::conditional_t<Size == 1, std::uint8_t,
                                  std::conditional_t<Size == 2, std::uint16_t, std::uint32_t>>;
  Word words[Size / sizeof(Word)];
};
template <class T>
constexpr bool is_append_kv_bytes = false;
template <int Size>
constexpr bool is_append_kv_bytes<AppendKvBytes<Size>> = true;

/// Neighbors in memory, as one access of at most 16 bytes or several of 16.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) AppendKvGroup {
  T value[N];
};

template <class Acc, class T>
__device__ __forceinline__ Acc widen(T x) {
  if constexpr (sizeof(T) <= 2)
    return widen(x);
  else
    return static_cast<Acc>(x);
}

/// Rounds to nearest. What is too large for float8 becomes NaN (e4m3) or infinity (e5m2), where the
/// instruction saturates; halfway to the number after the largest rounds to even, which is down for
/// e4m3.
template <class T, class Acc>
__device__ __forceinline__ T narrow(Acc x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, __nv_fp8_e4m3>) {
    auto const sign = static_cast<unsigned char>(__float_as_uint(x) >> 24 & 0x80);
    T y;
    y.__x = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
    if (!(fabsf(x) <= 464.0f)) y.__x = sign | 0x7f;
    return y;
  } else if constexpr (std::is_same_v<T, __nv_fp8_e5m2>) {
    auto const sign = static_cast<unsigned char>(__float_as_uint(x) >> 24 & 0x80);
    T y;
    y.__x = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2);
    if (!(fabsf(x) < 61440.0f)) y.__x = sign | (x != x ? 0x7e : 0x7c);
    return y;
  } else {
    return static_cast<T>(x);
  }
}

/// A group of another type, or the same bits.
template <class C, class X, int N>
__device__ __forceinline__ AppendKvGroup<C, N> converted(AppendKvGroup<X, N> const& x) {
  if constexpr (std::is_same_v<X, C>) {
    return x;
  } else {
    AppendKvGroup<C, N> y;
#pragma unroll
    for (int e = 0; e < N; ++e) y.value[e] = narrow<C>(widen<float>(x.value[e]));
    return y;
  }
}

/// Cosines and sines of the two groups of a slot. Roundings are spelled out, so that bits do not
/// depend on how many elements a group has.
template <class Acc, int N>
struct AppendKvRotation {
  Acc cos[2][N], sin[2][N];

  /// Features i and i + rotary_dim/2: those of `a` with those of `b`.
  template <class C, class X>
  __device__ __forceinline__ void across(AppendKvGroup<X, N> const& a, AppendKvGroup<X, N> const& b,
                                         AppendKvGroup<C, N>& to_a,
                                         AppendKvGroup<C, N>& to_b) const {
#pragma unroll
    for (int e = 0; e < N; ++e) {
      Acc const x = widen<Acc>(a.value[e]), y = widen<Acc>(b.value[e]);
      to_a.value[e] = narrow<C>(fma(x, cos[0][e], -(y * sin[0][e])));
      to_b.value[e] = narrow<C>(fma(y, cos[1][e], x * sin[1][e]));
    }
  }

  /// Neighbors within group `which` of the slot.
  template <class C, class X>
  __device__ __forceinline__ AppendKvGroup<C, N> within(int which,
                                                        AppendKvGroup<X, N> const& a) const {
    AppendKvGroup<C, N> to;
#pragma unroll
    for (int e = 0; e + 1 < N; e += 2) {
      Acc const x = widen<Acc>(a.value[e]), y = widen<Acc>(a.value[e + 1]);
      to.value[e] = narrow<C>(fma(x, cos[which][e], -(y * sin[which][e])));
      to.value[e + 1] = narrow<C>(fma(y, cos[which][e + 1], x * sin[which][e + 1]));
    }
    return to;
  }
};

template <class T, class Acc, int N>
__device__ __forceinline__ void load_entries(Acc (&to)[N], void const* row, std::int64_t first,
                                             std::int64_t stride, bool twice, bool vectors) {
  T const* const from = static_cast<T const*>(row);
  if (vectors) {
    auto const group = *reinterpret_cast<AppendKvGroup<T, N> const*>(from + first);
#pragma unroll
    for (int e = 0; e < N; ++e) to[e] = widen<Acc>(group.value[e]);
  } else {
#pragma unroll
    for (int e = 0; e < N; ++e) to[e] = widen<Acc>(from[(first + (twice ? e / 2 : e)) * stride]);
  }
}

/// Entries first ... first + N − 1 of a row of a table, or, `twice`, half as many, each of them
/// twice.
template <class Acc, int N>
__device__ __forceinline__ void load_entries(Acc (&to)[N], DType type, void const* table,
                                             std::int64_t row, std::int64_t first,
                                             std::int64_t const (&stride)[2], bool twice,
                                             bool vectors) {
  auto const load = [&](auto zero) {
    using T = decltype(zero);
    load_entries<T>(to, static_cast<T const*>(table) + row * stride[0], first, stride[1], twice,
                    vectors);
  };
  switch (type) {
    case DType::float64:
      return load(double{});
    case DType::float16:
      return load(__half{});
    case DType::bfloat16:
      return load(__nv_bfloat16{});
    default:
      return load(float{});
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
