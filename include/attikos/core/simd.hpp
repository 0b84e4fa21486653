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
#include <attikos/core/simd_x86.hpp>
#include <cmath>
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

/// The unsigned integer as wide as an element in memory.
template <class T>
using UnsignedOf = std::conditional_t<
    sizeof(T) == 8, std::uint64_t,
    std::conditional_t<sizeof(T) == 4, std::uint32_t,
                       std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>;

template <class T, int W>
inline Vec<T, W> broadcast(T value) {
  return value - Vec<T, W>{};  // −0 stays what it is, and compilers see that there is nothing to do
}

/// a·b + c, for sums of products. The compiler makes a fused multiply-add of the plain expression,
/// too, but not everywhere, so that the same sum in two loops has two results: one instantiated for
/// rows whose elements lie side by side and one for strides, say.
template <class T, int W>
inline Vec<T, W> multiply_add(Vec<T, W> a, Vec<T, W> b, Vec<T, W> c) {
  if constexpr (has_multiply_add<T, W* static_cast<int>(sizeof(T))>())
    return multiply_add_instruction(a, b, c);
  else
    return a * b + c;
}
template <class T, int W>
inline Vec<T, W> multiply_add(Vec<T, W> a, T b, Vec<T, W> c) {
  return multiply_add<T, W>(a, broadcast<T, W>(b), c);
}
template <class T>
inline T multiply_add(T a, T b, T c) {
  if constexpr (has_multiply_add<T, 16>()) return std::fma(a, b, c);
  return a * b + c;
}

/// The square root of each lane, rounded once.
template <class T, int W>
inline Vec<T, W> square_root(Vec<T, W> x) {
  if (square_root_instruction(x)) return x;
  for (int l = 0; l < W; ++l) x[l] = std::sqrt(x[l]);
  return x;
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

/// The other way, rounded to nearest, ties to even, in one rounding. Overflow as the scalar
/// conversions have it: NaN in E4M3, infinity in E5M2.
template <class Element, int W>
inline Vec<std::uint32_t, W> narrow_float8(Vec<float, W> value) {
  using Float = Vec<float, W>;
  using Code = Vec<std::uint32_t, W>;
  constexpr bool e4m3 = std::is_same_v<Element, float8_e4m3>;
  constexpr std::uint32_t drop = e4m3 ? 20 : 21;  // bits of the mantissa that are rounded off
  constexpr std::uint32_t bias = e4m3 ? 120u << 3 : 112u << 2;
  constexpr std::uint32_t normal_from = e4m3 ? 0x3c800000u : 0x38800000u;  // 2^-6, 2^-14
  constexpr std::uint32_t largest = e4m3 ? 0x7eu : 0x7bu, not_finite = largest + 1;
  // The float whose spacing is that of the subnormals, 2^-9 or 2^-16: adding it rounds to them.
  constexpr float spaced = e4m3 ? 16384.0f : 128.0f;
  constexpr std::uint32_t spaced_bits = e4m3 ? 0x46800000u : 0x43000000u;
  Code const bits = bit_cast<Code>(value);
  Code const magnitude = bits & 0x7fffffffu;
  Code const half = magnitude + ((1u << (drop - 1)) - 1u) + ((magnitude >> drop) & 1u);
  Code const normal = (half >> drop) - bias;
  Code const small = magnitude < normal_from ? magnitude : Code{};
  Code const subnormal = bit_cast<Code>(Float(bit_cast<Float>(small) + spaced)) - spaced_bits;
  Code code = magnitude < normal_from ? subnormal : normal;
  code = code > largest ? Code{} + not_finite : code;
  if constexpr (!e4m3) code = magnitude > 0x7f800000u ? Code{} + 0x7eu : code;
  return code | ((bits >> 24) & 0x80u);
}

template <class Element>
inline constexpr bool is_half =
    std::is_same_v<Element, float16> || std::is_same_v<Element, bfloat16>;
template <class Element>
inline constexpr bool is_quarter =
    std::is_same_v<Element, float8_e4m3> || std::is_same_v<Element, float8_e5m2>;

/// Integers of 8 or 16 bits as lanes of 32, and the lower bits of such lanes.
template <class Narrow, int W>
inline auto widen_lanes(Vec<Narrow, W> code) {
  constexpr bool is_signed = std::is_signed_v<Narrow>;
  using Wide = Vec<std::conditional_t<is_signed, std::int32_t, std::uint32_t>, W>;
  if constexpr (has_integer_conversions<W>())
    return widen_integers<static_cast<int>(sizeof(Narrow)), is_signed, Wide>(code);
  else
    return __builtin_convertvector(code, Wide);
}

/// Of lanes that are numbers of that type without a sign.
template <class Narrow, int W>
inline Vec<Narrow, W> narrow_lanes(Vec<std::uint32_t, W> wide) {
  if constexpr (has_integer_conversions<W>())
    return narrow_integers<static_cast<int>(sizeof(Narrow)), Vec<Narrow, W>>(wide);
  else
    return __builtin_convertvector(wide, Vec<Narrow, W>);
}

/// Elements of 16 bits as floats, and floats rounded to them.
template <class Element, int W>
inline Vec<float, W> widen_half(Vec<std::uint16_t, W> code) {
  if constexpr (std::is_same_v<Element, float16> && has_binary16_instructions<W>()) {
    return binary16_to_floats<Vec<float, W>>(code);
  } else {
    auto const wide = widen_lanes<std::uint16_t, W>(code);
    if constexpr (std::is_same_v<Element, float16>)
      return widen_binary16<W>(wide);
    else
      return bit_cast<Vec<float, W>>(Vec<std::uint32_t, W>(wide << 16));
  }
}

template <class Element, int W>
inline Vec<std::uint16_t, W> narrow_half(Vec<float, W> value) {
  using Code = Vec<std::uint16_t, W>;
  if constexpr (std::is_same_v<Element, float16>) {
    if constexpr (has_binary16_instructions<W>())
      return floats_to_binary16<Code>(value);
    else
      return narrow_lanes<std::uint16_t, W>(narrow_binary16<W>(value));
  } else {
    auto const round = [&](Vec<float, W> v) -> Code {
      return narrow_lanes<std::uint16_t, W>(narrow_bfloat16<W>(v));
    };
    if constexpr (has_bfloat16_instructions<W>())
      return floats_to_bfloat16<Code>(value, round);
    else
      return round(value);
  }
}

/// Lane numbers, to be compared with a count.
template <int W>
inline Vec<std::int32_t, W> lane_numbers() {
  Vec<std::int32_t, W> numbers{};
  for (int l = 0; l < W; ++l) numbers[l] = l;
  return numbers;
}

/// The first `count` lanes, `fill` in the others.
template <class T, int W>
inline Vec<T, W> keep_lanes(Vec<T, W> v, int count, T fill) {
  using Bits = Vec<typename BitsOf<T>::type, W>;
  Bits const number = __builtin_convertvector(lane_numbers<W>(), Bits);
  return number < count ? v : broadcast<T, W>(fill);
}

/// Whether `count` elements side by side become lanes of `T` by one masked load, and back.
template <class T, int W, class Element>
constexpr bool has_partial_vectors() {
  constexpr bool converts = std::is_same_v<T, float> && (is_half<Element> || is_quarter<Element> ||
                                                         std::is_same_v<Element, std::int8_t>);
  return (std::is_same_v<T, Element> || converts) &&
         has_first_lanes<W* static_cast<int>(sizeof(Element)), static_cast<int>(sizeof(Element))>();
}

/// Loads `W` contiguous elements of any element type as lanes of `T`.
template <class T, int W, class Element>
inline Vec<T, W> load(Element const* p) {
  Vec<T, W> v;
  if constexpr (std::is_same_v<T, Element>) {
    std::memcpy(&v, p, sizeof v);
  } else if constexpr (std::is_same_v<T, float> && is_half<Element>) {
    Vec<std::uint16_t, W> code;
    std::memcpy(&code, p, sizeof code);
    v = widen_half<Element, W>(code);
  } else if constexpr (std::is_same_v<T, float> && is_quarter<Element>) {
    Vec<std::uint8_t, W> code;
    std::memcpy(&code, p, sizeof code);
    v = widen_float8<Element, W>(widen_lanes<std::uint8_t, W>(code));
  } else if constexpr (std::is_same_v<T, float> && std::is_same_v<Element, std::int8_t>) {
    Vec<std::int8_t, W> code;
    std::memcpy(&code, p, sizeof code);
    v = __builtin_convertvector(widen_lanes<std::int8_t, W>(code), Vec<T, W>);
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
  if constexpr (has_partial_vectors<T, W, Element>()) {
    if (stride == 1) {
      using Code = Vec<UnsignedOf<Element>, W>;
      auto const code = load_first_lanes<static_cast<int>(sizeof(Element)), Code>(p, count);
      Vec<T, W> const v = load<T, W>(reinterpret_cast<Element const*>(&code));
      return fill == T(0) ? v : keep_lanes<T, W>(v, count, fill);
    }
  }
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
    Vec<std::uint16_t, W> const code = narrow_half<Element, W>(v);
    std::memcpy(p, &code, sizeof code);
  } else if constexpr (std::is_same_v<T, float> && std::is_same_v<Element, std::int8_t>) {
    auto const number = __builtin_convertvector(v, Vec<std::int32_t, W>);
    auto const code =
        narrow_lanes<std::uint8_t, W>(bit_cast<Vec<std::uint32_t, W>>(number) & 0xffu);
    std::memcpy(p, &code, sizeof code);
  } else if constexpr (std::is_same_v<T, float> && is_quarter<Element>) {
    auto const code = narrow_lanes<std::uint8_t, W>(narrow_float8<Element, W>(v));
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
  if constexpr (has_partial_vectors<T, W, Element>()) {
    if (stride == 1) {
      Vec<UnsignedOf<Element>, W> code;
      store<T, W>(reinterpret_cast<Element*>(&code), v);
      store_first_lanes<static_cast<int>(sizeof(Element))>(p, count, code);
      return;
    }
  }
  T lane[W];
  std::memcpy(lane, &v, sizeof v);
  for (int l = 0; l < count; ++l) p[l * stride] = convert_to<Element>(lane[l]);
}

/// Stores all lanes as contiguous elements past the caches. `p` is aligned to the W elements; other
/// threads see them after finish_stores_past_caches().
template <class T, int W, class Element>
inline void store_past(Element* p, Vec<T, W> v) {
  if constexpr (has_stores_past_caches<W* static_cast<int>(sizeof(Element))>()) {
    Vec<UnsignedOf<Element>, W> code;
    store<T, W>(reinterpret_cast<Element*>(&code), v);
    store_past_caches(p, code);
  } else {
    store<T, W>(p, v);
  }
}

template <class T, int W>
inline Vec<T, W> max(Vec<T, W> a, Vec<T, W> b) {
  return a > b ? a : b;
}

/// Lane l gets what lane l + Step has; the upper ones whatever.
template <int Step, class T, int W>
inline Vec<T, W> move_down(Vec<T, W> v) {
#if defined(__clang__)
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return __builtin_shufflevector(v, v, static_cast<int>((I + Step) % W)...);
  }
  (std::make_index_sequence<static_cast<std::size_t>(W)>{});
#else
  using Index = typename BitsOf<T>::type;
  Vec<Index, W> pick{};
  for (int l = 0; l < W; ++l) pick[l] = static_cast<Index>((l + Step) % W);
  return __builtin_shuffle(v, pick);
#endif
}

/// All lanes joined two by two, always in the order of a balanced tree.
template <class T, int W, int Step = W / 2, class F>
inline T join_lanes(Vec<T, W> v, F const& join) {
  if constexpr (Step == 0) {
    return v[0];
  } else {
    return join_lanes<T, W, Step / 2>(join(v, move_down<Step, T, W>(v)), join);
  }
}

/// Sum of the lanes: the same bits for the same lanes.
template <class T, int W>
inline T reduce_sum(Vec<T, W> v) {
  return join_lanes<T, W>(v, [](Vec<T, W> a, Vec<T, W> b) -> Vec<T, W> { return a + b; });
}

template <class T, int W>
inline T reduce_max(Vec<T, W> v) {
  return join_lanes<T, W>(v, [](Vec<T, W> a, Vec<T, W> b) -> Vec<T, W> { return a > b ? a : b; });
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

}  // namespace detail::host
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
