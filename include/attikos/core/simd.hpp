// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Vectors for host kernels: the compiler's vector extension, which GCC, Clang and their
/// descendants share.
///
/// The extension is used in place of Kokkos's simd type because one expression then serves every
/// width, and because the compiler turns `a * b + c` on it into fused multiply-adds of the widest
/// registers the flags allow. Nothing here may be reached from device code: callers stand behind
/// KOKKOS_IF_ON_HOST.
#pragma once

#include <attikos/core/dtypes.hpp>
#include <cstdint>
#include <cstring>
#include <utility>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail::host {

#if defined(__AVX512F__)
inline constexpr int register_bytes = 64;
inline constexpr int register_count = 32;
#elif defined(__AVX__)
inline constexpr int register_bytes = 32;
inline constexpr int register_count = 16;
#else
inline constexpr int register_bytes = 16;
inline constexpr int register_count = 16;
#endif

/// Lanes of one register for element type `T`.
template <class T>
inline constexpr int lanes = register_bytes / static_cast<int>(sizeof(T));

template <class T, int W>
struct VecOf {
  typedef T type __attribute__((vector_size(W * sizeof(T))));
};
/// `W` lanes of `T` with elementwise arithmetic and comparison.
template <class T, int W = lanes<T>>
using Vec = typename VecOf<T, W>::type;

/// The signed integer as wide as one lane.
template <class T>
struct BitsOf;
template <>
struct BitsOf<float> {
  using type = std::int32_t;
};
template <>
struct BitsOf<std::uint32_t> {
  using type = std::int32_t;
};
template <>
struct BitsOf<double> {
  using type = std::int64_t;
};

template <class T, int W>
inline Vec<T, W> broadcast(T value) {
  return Vec<T, W>{} + value;
}

/// Same bits, other lane type.
template <class To, class From>
inline To bit_cast(From const& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

/// The lane-wise twins of the scalar conversions in dtypes.hpp, which explains the arithmetic.
template <int W>
inline Vec<float, W> widen_binary16(Vec<std::uint32_t, W> code) {
  using Float = Vec<float, W>;
  using Int = Vec<std::int32_t, W>;
  Int const magnitude = bit_cast<Int>(code) & 0x7fff;
  Int const subnormal = bit_cast<Int>(Float(__builtin_convertvector(magnitude, Float) * 0x1p-24f));
  Int bits = (magnitude << 13) + (112 << 23);
  bits = magnitude < 0x400 ? subnormal : bits;
  bits = magnitude >= 0x7c00 ? ((magnitude << 13) | 0x7f800000) : bits;
  return bit_cast<Float>(Int(bits | ((bit_cast<Int>(code) & 0x8000) << 16)));
}

template <int W>
inline Vec<std::uint32_t, W> narrow_binary16(Vec<float, W> value) {
  using Float = Vec<float, W>;
  using Int = Vec<std::int32_t, W>;
  using Code = Vec<std::uint32_t, W>;
  Int const bits = bit_cast<Int>(value);
  Int const magnitude = bits & 0x7fffffff;
  Code const wide = bit_cast<Code>(magnitude);  // unsigned: the sum may pass 2^31 for a NaN
  Int const normal =
      bit_cast<Int>(Code(((wide + 0xfffu + ((wide >> 13) & 1u)) >> 13) - (112u << 10)));
  Int const clipped = magnitude < 0x38800000 ? magnitude : Int{};
  Int const subnormal = bit_cast<Int>(Float(bit_cast<Float>(clipped) + 0.5f)) - 0x3f000000;
  Int code = magnitude < 0x38800000 ? subnormal : normal;
  code = magnitude >= 0x47800000 ? Int{} + 0x7c00 : code;
  code = magnitude > 0x7f800000 ? Int{} + 0x7e00 : code;
  return bit_cast<Code>(Int(((bits >> 16) & 0x8000) | code));
}

template <int W>
inline Vec<std::uint32_t, W> narrow_bfloat16(Vec<float, W> value) {
  using Code = Vec<std::uint32_t, W>;
  Code const bits = bit_cast<Code>(value);
  Code const rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  Code const quiet = (bits >> 16) | 0x40u;
  return (bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded;
}

/// E4M3 like binary16: what lies below the smallest normal number is a multiple of 2^-9. E5M2 is
/// the upper byte of a binary16.
template <class Element, int W>
inline Vec<float, W> widen_float8(Vec<std::uint32_t, W> code) {
  using Float = Vec<float, W>;
  using Int = Vec<std::int32_t, W>;
  constexpr bool e4m3 = std::is_same_v<Element, float8_e4m3>;
  Int const magnitude = bit_cast<Int>(code) & 0x7f;
  Int bits;
  if constexpr (e4m3) {
    Int const subnormal = bit_cast<Int>(Float(__builtin_convertvector(magnitude, Float) * 0x1p-9f));
    bits = magnitude < 0x08 ? subnormal : (magnitude << 20) + (120 << 23);
  } else {
    bits = bit_cast<Int>(widen_binary16<W>(bit_cast<Vec<std::uint32_t, W>>(Int(magnitude << 8))));
  }
  bits = magnitude > (e4m3 ? 0x7e : 0x7c) ? Int{} + 0x7fc00000 : bits;
  return bit_cast<Float>(Int(bits | ((bit_cast<Int>(code) & 0x80) << 24)));
}

template <class Element>
inline constexpr bool is_half =
    std::is_same_v<Element, float16> || std::is_same_v<Element, bfloat16>;
template <class Element>
inline constexpr bool is_quarter =
    std::is_same_v<Element, float8_e4m3> || std::is_same_v<Element, float8_e5m2>;

/// Loads `W` contiguous elements of any element type as lanes of `T`.
template <class T, int W, class Element>
inline Vec<T, W> load(Element const* p) {
  Vec<T, W> v;
  if constexpr (std::is_same_v<T, Element>) {
    std::memcpy(&v, p, sizeof v);
  } else if constexpr (std::is_same_v<T, float> && is_half<Element>) {
    Vec<std::uint16_t, W> code;
    std::memcpy(&code, p, sizeof code);
    auto const wide = __builtin_convertvector(code, Vec<std::uint32_t, W>);
    if constexpr (std::is_same_v<Element, float16>) {
      v = widen_binary16<W>(wide);
    } else {
      v = bit_cast<Vec<T, W>>(Vec<std::uint32_t, W>(wide << 16));
    }
  } else if constexpr (std::is_same_v<T, float> && is_quarter<Element>) {
    Vec<std::uint8_t, W> code;
    std::memcpy(&code, p, sizeof code);
    v = widen_float8<Element, W>(__builtin_convertvector(code, Vec<std::uint32_t, W>));
  } else {
    T lane[W];
    for (int l = 0; l < W; ++l) lane[l] = static_cast<T>(p[l]);
    std::memcpy(&v, lane, sizeof v);
  }
  return v;
}

/// Loads `count` ≤ `W` elements at a stride; the other lanes get `fill`.
template <class T, int W, class Element>
inline Vec<T, W> load_partial(Element const* p, std::int64_t stride, int count, T fill) {
  T lane[W];
  for (int l = 0; l < W; ++l) lane[l] = fill;
  for (int l = 0; l < count; ++l) lane[l] = static_cast<T>(p[l * stride]);
  Vec<T, W> v;
  std::memcpy(&v, lane, sizeof v);
  return v;
}

/// Converts one accumulator value to an element. Kept apart so that integers and small floats share
/// every loop.
template <class Element, class T>
ATTIKOS_HD inline Element convert_to(T value) {
  return static_cast<Element>(value);
}

/// Stores all lanes as contiguous elements of any element type.
template <class T, int W, class Element>
inline void store(Element* p, Vec<T, W> v) {
  if constexpr (std::is_same_v<T, Element>) {
    std::memcpy(p, &v, sizeof v);
  } else if constexpr (std::is_same_v<T, float> && is_half<Element>) {
    Vec<std::uint32_t, W> wide;
    if constexpr (std::is_same_v<Element, float16>) {
      wide = narrow_binary16<W>(v);
    } else {
      wide = narrow_bfloat16<W>(v);
    }
    auto const code = __builtin_convertvector(wide, Vec<std::uint16_t, W>);
    std::memcpy(p, &code, sizeof code);
  } else {
    T lane[W];
    std::memcpy(lane, &v, sizeof v);
    for (int l = 0; l < W; ++l) p[l] = convert_to<Element>(lane[l]);
  }
}

/// Stores the first `count` lanes at a stride.
template <class T, int W, class Element>
inline void store_partial(Element* p, std::int64_t stride, int count, Vec<T, W> v) {
  T lane[W];
  std::memcpy(lane, &v, sizeof v);
  for (int l = 0; l < count; ++l) p[l * stride] = convert_to<Element>(lane[l]);
}

template <class T, int W>
inline Vec<T, W> max(Vec<T, W> a, Vec<T, W> b) {
  return a > b ? a : b;
}

/// Sum of the lanes, always in the order of a balanced tree: the same bits for the same lanes.
template <class T, int W>
inline T reduce_sum(Vec<T, W> v) {
  T lane[W];
  std::memcpy(lane, &v, sizeof v);
  for (int step = W / 2; step > 0; step /= 2)
    for (int l = 0; l < step; ++l) lane[l] += lane[l + step];
  return lane[0];
}

template <class T, int W>
inline T reduce_max(Vec<T, W> v) {
  T lane[W];
  std::memcpy(lane, &v, sizeof v);
  for (int step = W / 2; step > 0; step /= 2)
    for (int l = 0; l < step; ++l) lane[l] = lane[l] > lane[l + step] ? lane[l] : lane[l + step];
  return lane[0];
}

/// Interleaves the lower (or upper) halves of two vectors: a0 b0 a1 b1 …
template <bool Upper, class T, int W>
inline Vec<T, W> interleave(Vec<T, W> a, Vec<T, W> b) {
  constexpr int base = Upper ? W / 2 : 0;
#if defined(__clang__)
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return __builtin_shufflevector(a, b,
                                   ((I % 2 == 0 ? 0 : W) + base + static_cast<int>(I / 2))...);
  }
  (std::make_index_sequence<static_cast<std::size_t>(W)>{});
#else
  using Index = typename BitsOf<T>::type;
  Vec<Index, W> pick{};
  for (int l = 0; l < W; ++l) pick[l] = static_cast<Index>((l % 2 == 0 ? 0 : W) + base + l / 2);
  return __builtin_shuffle(a, b, pick);
#endif
}

/// Transposes a W × W block held in `row`. log2(W) rounds of perfect shuffles.
template <class T, int W>
inline void transpose(Vec<T, W> (&row)[W]) {
  for (int round = 1; round < W; round *= 2) {
    Vec<T, W> next[W];
    for (int i = 0; i < W / 2; ++i) {
      next[2 * i] = interleave<false, T, W>(row[i], row[i + W / 2]);
      next[2 * i + 1] = interleave<true, T, W>(row[i], row[i + W / 2]);
    }
    for (int i = 0; i < W; ++i) row[i] = next[i];
  }
}

/// e^x. Cody-Waite reduction to |r| ≤ ln(2)/2 and a polynomial; at most 2 units in the last place
/// where the result is normal. Results below the smallest normal number are 0, above the largest
/// finite +infinity; NaN stays NaN.
template <class T, int W>
inline Vec<T, W> exp(Vec<T, W> x) {
  using Bits = typename BitsOf<T>::type;
  constexpr bool single = sizeof(T) == 4;
  constexpr int mantissa = single ? 23 : 52;
  constexpr T magic =
      single ? T(12582912.0) : T(6755399441055744.0);  // 1.5·2^mantissa: adding it rounds
  constexpr T low = single ? T(-87.33654) : T(-708.396418532264);
  constexpr T high = single ? T(88.72283) : T(709.782712893383);
  constexpr T log2e = T(1.44269504088896340736);
  constexpr T ln2_high = single ? T(0.693145751953125) : T(0.693147180369123816490);
  constexpr T ln2_low = single ? T(1.42860682030941723212e-6) : T(1.90821492927058770002e-10);

  // NaN fails both comparisons and runs through the polynomial as it is.
  Vec<T, W> clamped = x < low ? broadcast<T, W>(low) : x;
  clamped = clamped > high ? broadcast<T, W>(high) : clamped;
  Vec<T, W> const shifted = clamped * log2e + magic;
  Vec<T, W> const n = shifted - magic;
  Vec<T, W> const r = (clamped - n * ln2_high) - n * ln2_low;

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

  // 2^n in two factors, since n reaches 128 (1024), one more than one exponent field holds.
  Vec<Bits, W> bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  Bits magic_bits;
  std::memcpy(&magic_bits, &magic, sizeof magic_bits);
  Vec<Bits, W> const exponent = bits - magic_bits;
  Vec<Bits, W> const half = exponent >> 1;
  constexpr Bits bias = single ? 127 : 1023;
  Vec<Bits, W> const first = (half + bias) << mantissa;
  Vec<Bits, W> const second = (exponent - half + bias) << mantissa;
  Vec<T, W> scale_first, scale_second;
  std::memcpy(&scale_first, &first, sizeof first);
  std::memcpy(&scale_second, &second, sizeof second);
  Vec<T, W> result = p * scale_first * scale_second;
  result = x < low ? Vec<T, W>{} : result;
  return x > high ? broadcast<T, W>(static_cast<T>(__builtin_inf())) : result;
}

}  // namespace detail::host
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
