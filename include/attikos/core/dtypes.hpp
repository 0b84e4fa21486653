// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Element types narrower than float, and what each element type means for arithmetic.
///
/// Formats: IEEE 754-2019 binary16; bfloat16 as the upper half of binary32; OCP OFP8 (Open Compute
/// Project, "8-bit Floating Point Specification", revision 1.0) for the two 8-bit types.
#pragma once

#include <attikos/abi/dtype.hpp>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// What one small floating-point format is made of.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  std::uint32_t infinity;    ///< code of +infinity, or the NaN code where the format has none
  std::uint32_t nan;         ///< code of the NaN that conversions produce
  std::uint32_t max_finite;  ///< code of the largest finite value
};

inline constexpr FloatFormat binary16_format{5, 10, 15, 0x7c00u, 0x7e00u, 0x7bffu};
inline constexpr FloatFormat bfloat16_format{8, 7, 127, 0x7f80u, 0x7fc0u, 0x7f7fu};
inline constexpr FloatFormat e4m3_format{4, 3, 7, 0x7fu, 0x7fu, 0x7eu};
inline constexpr FloatFormat e5m2_format{5, 2, 15, 0x7cu, 0x7eu, 0x7bu};

/// Rounds a double to the nearest value of a format, ties to even, in one rounding. Overflow gives
/// `infinity`.
ATTIKOS_HD constexpr std::uint32_t encode(FloatFormat f, double value) {
  auto const bits = __builtin_bit_cast(std::uint64_t, value);
  auto const sign = static_cast<std::uint32_t>(bits >> 63) << (f.exponent_bits + f.mantissa_bits);
  std::uint64_t const magnitude = bits & 0x7fffffffffffffffull;
  if (magnitude > 0x7ff0000000000000ull) return sign | f.nan;
  int const exponent = static_cast<int>(magnitude >> 52) - 1023;
  // One integer holds exponent and mantissa, so that a mantissa carry raises the exponent by
  // itself.
  std::uint64_t fixed = 0;
  int drop = 52 - f.mantissa_bits;
  if (exponent >= 1 - f.bias) {
    fixed = magnitude - (static_cast<std::uint64_t>(1023 - f.bias) << 52);
  } else {
    fixed = (magnitude & 0xfffffffffffffull) | (1ull << 52);
    drop += 1 - f.bias - exponent;
  }
  if (drop > 63) return sign;
  std::uint64_t const half = 1ull << (drop - 1);
  std::uint64_t const code = (fixed + (half - 1) + ((fixed >> drop) & 1u)) >> drop;
  return sign | (code > f.max_finite ? f.infinity : static_cast<std::uint32_t>(code));
}

/// The value of a code. Every value of these formats is exact in float.
ATTIKOS_HD constexpr float decode(FloatFormat f, std::uint32_t code) {
  int const width = f.exponent_bits + f.mantissa_bits;
  std::uint32_t const magnitude = code & ((1u << width) - 1u);
  std::uint32_t const sign = ((code >> width) & 1u) << 31;
  if (magnitude > f.max_finite) {
    bool const infinite = magnitude == f.infinity && f.infinity != f.nan;
    return __builtin_bit_cast(float, sign | (infinite ? 0x7f800000u : 0x7fc00000u));
  }
  auto const exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  std::uint32_t const mantissa = magnitude & ((1u << f.mantissa_bits) - 1u);
  if (exponent == 0) {
    // mantissa · 2^(1 - bias - mantissa_bits); the power of two is a normal float for both users of
    // this path.
    auto const scale = static_cast<std::uint32_t>(127 + 1 - f.bias - f.mantissa_bits) << 23;
    float const value = static_cast<float>(mantissa) * __builtin_bit_cast(float, scale);
    return sign != 0u ? -value : value;
  }
  return __builtin_bit_cast(float, sign |
                                       (static_cast<std::uint32_t>(exponent - f.bias + 127) << 23) |
                                       (mantissa << (23 - f.mantissa_bits)));
}

/// float to binary16 without a branch, so that loops over it vectorize.
ATTIKOS_HD constexpr std::uint16_t float_to_binary16(float value) {
  auto const bits = __builtin_bit_cast(std::uint32_t, value);
  std::uint32_t const magnitude = bits & 0x7fffffffu;
  std::uint32_t const normal =
      ((magnitude + 0xfffu + ((magnitude >> 13) & 1u)) >> 13) - (112u << 10);
  // 1/2 has the spacing 2^-24 of binary16's subnormals: the float addition itself rounds to them.
  std::uint32_t const clipped = magnitude < 0x38800000u ? magnitude : 0u;
  std::uint32_t const subnormal =
      __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, clipped) + 0.5f) - 0x3f000000u;
  std::uint32_t code = magnitude < 0x38800000u ? subnormal : normal;
  code = magnitude >= 0x47800000u ? 0x7c00u : code;
  code = magnitude > 0x7f800000u ? 0x7e00u : code;
  return static_cast<std::uint16_t>(((bits >> 16) & 0x8000u) | code);
}

/// binary16 to float without a branch.
ATTIKOS_HD constexpr float binary16_to_float(std::uint16_t code) {
  std::uint32_t const magnitude = code & 0x7fffu;
  std::uint32_t const normal = (magnitude << 13) + (112u << 23);
  auto const subnormal = __builtin_bit_cast(
      std::uint32_t, static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f);
  std::uint32_t bits = magnitude < 0x400u ? subnormal : normal;
  bits = magnitude >= 0x7c00u ? ((magnitude << 13) | 0x7f800000u) : bits;
  return __builtin_bit_cast(float, bits | (static_cast<std::uint32_t>(code & 0x8000u) << 16));
}

/// float to bfloat16 without a branch.
ATTIKOS_HD constexpr std::uint16_t float_to_bfloat16(float value) {
  auto const bits = __builtin_bit_cast(std::uint32_t, value);
  std::uint32_t const rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  std::uint32_t const quiet = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

ATTIKOS_HD constexpr float bfloat16_to_float(std::uint16_t code) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(code) << 16);
}

}  // namespace detail

/// IEEE 754 binary16. Conversions round to nearest, ties to even; overflow gives infinity.
/// Arithmetic happens in float, to which a value converts implicitly and exactly.
struct alignas(2) [[gnu::may_alias]] float16 {
  std::uint16_t bits;

  float16() = default;
  ATTIKOS_HD constexpr explicit float16(float value) : bits(detail::float_to_binary16(value)) {}
  ATTIKOS_HD constexpr explicit float16(double value)
      : bits(static_cast<std::uint16_t>(detail::encode(detail::binary16_format, value))) {}
  ATTIKOS_HD constexpr operator float() const { return detail::binary16_to_float(bits); }
  ATTIKOS_HD static constexpr float16 from_bits(std::uint16_t code) {
    float16 result{0.0f};
    result.bits = code;
    return result;
  }
};

/// bfloat16: sign, 8 exponent and 7 mantissa bits. Same rules as float16.
struct alignas(2) [[gnu::may_alias]] bfloat16 {
  std::uint16_t bits;

  bfloat16() = default;
  ATTIKOS_HD constexpr explicit bfloat16(float value) : bits(detail::float_to_bfloat16(value)) {}
  ATTIKOS_HD constexpr explicit bfloat16(double value)
      : bits(static_cast<std::uint16_t>(detail::encode(detail::bfloat16_format, value))) {}
  ATTIKOS_HD constexpr operator float() const { return detail::bfloat16_to_float(bits); }
  ATTIKOS_HD static constexpr bfloat16 from_bits(std::uint16_t code) {
    bfloat16 result{0.0f};
    result.bits = code;
    return result;
  }
};

/// OCP E4M3: no infinity, one NaN per sign, largest finite value 448. Overflow on conversion gives
/// NaN; saturate_cast() clamps instead.
struct float8_e4m3 {
  std::uint8_t bits;

  float8_e4m3() = default;
  ATTIKOS_HD constexpr explicit float8_e4m3(double value)
      : bits(static_cast<std::uint8_t>(detail::encode(detail::e4m3_format, value))) {}
  ATTIKOS_HD constexpr explicit float8_e4m3(float value)
      : float8_e4m3(static_cast<double>(value)) {}
  ATTIKOS_HD constexpr operator float() const { return detail::decode(detail::e4m3_format, bits); }
  ATTIKOS_HD static constexpr float8_e4m3 from_bits(std::uint8_t code) {
    float8_e4m3 result{0.0};
    result.bits = code;
    return result;
  }
};

/// OCP E5M2: IEEE-like with infinities, largest finite value 57344. Overflow on conversion gives
/// infinity; saturate_cast() clamps instead.
struct float8_e5m2 {
  std::uint8_t bits;

  float8_e5m2() = default;
  ATTIKOS_HD constexpr explicit float8_e5m2(double value)
      : bits(static_cast<std::uint8_t>(detail::encode(detail::e5m2_format, value))) {}
  ATTIKOS_HD constexpr explicit float8_e5m2(float value)
      : float8_e5m2(static_cast<double>(value)) {}
  ATTIKOS_HD constexpr operator float() const { return detail::decode(detail::e5m2_format, bits); }
  ATTIKOS_HD static constexpr float8_e5m2 from_bits(std::uint8_t code) {
    float8_e5m2 result{0.0};
    result.bits = code;
    return result;
  }
};

static_assert(sizeof(float16) == 2 && sizeof(bfloat16) == 2);
static_assert(sizeof(float8_e4m3) == 1 && sizeof(float8_e5m2) == 1);
static_assert(std::is_trivially_copyable_v<float16> && std::is_trivially_copyable_v<float8_e4m3>);

/// What an element type means: its run-time name, the type it accumulates in, its unit roundoff and
/// its range. `type` names the DType, `Accumulator` the type of sums, `epsilon` the spacing at 1,
/// `max_finite` the range.
template <class T>
struct ElementTraits {
  static constexpr bool is_element = false;
};

namespace detail {
template <DType Type, class Acc>
struct ElementTraitsOf {
  static constexpr bool is_element = true;
  static constexpr DType type = Type;
  using Accumulator = Acc;
};
}  // namespace detail

template <>
struct ElementTraits<double> : detail::ElementTraitsOf<DType::float64, double> {
  static constexpr double epsilon = std::numeric_limits<double>::epsilon();
  static constexpr double max_finite = std::numeric_limits<double>::max();
};
template <>
struct ElementTraits<float> : detail::ElementTraitsOf<DType::float32, float> {
  static constexpr double epsilon = std::numeric_limits<float>::epsilon();
  static constexpr double max_finite = std::numeric_limits<float>::max();
};
template <>
struct ElementTraits<float16> : detail::ElementTraitsOf<DType::float16, float> {
  static constexpr double epsilon = 0x1p-10;
  static constexpr double max_finite = 65504.0;
};
template <>
struct ElementTraits<bfloat16> : detail::ElementTraitsOf<DType::bfloat16, float> {
  static constexpr double epsilon = 0x1p-7;
  static constexpr double max_finite = 0x1.fep127;
};
template <>
struct ElementTraits<float8_e4m3> : detail::ElementTraitsOf<DType::float8_e4m3, float> {
  static constexpr double epsilon = 0x1p-3;
  static constexpr double max_finite = 448.0;
};
template <>
struct ElementTraits<float8_e5m2> : detail::ElementTraitsOf<DType::float8_e5m2, float> {
  static constexpr double epsilon = 0x1p-2;
  static constexpr double max_finite = 57344.0;
};
template <>
struct ElementTraits<std::int8_t> : detail::ElementTraitsOf<DType::int8, std::int32_t> {};
template <>
struct ElementTraits<std::uint8_t> : detail::ElementTraitsOf<DType::uint8, std::int32_t> {};
template <>
struct ElementTraits<std::int32_t> : detail::ElementTraitsOf<DType::int32, std::int32_t> {};
template <>
struct ElementTraits<std::int64_t> : detail::ElementTraitsOf<DType::int64, std::int64_t> {};

/// Run-time name of a static element type.
template <class T>
inline constexpr DType dtype_of = ElementTraits<std::remove_const_t<T>>::type;

/// True for the types that hold real numbers (not the integers).
template <class T>
inline constexpr bool is_floating_element =
    std::is_floating_point_v<T> || std::is_same_v<T, float16> || std::is_same_v<T, bfloat16> ||
    std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2>;

/// Converts with clamping to ±max_finite, infinities too, instead of overflow; this is the
/// saturating mode of the OFP8 specification. NaN stays NaN. quantize() clamps finite numbers
/// alone.
template <class T>
ATTIKOS_HD constexpr T saturate_cast(double value) {
  constexpr double limit = ElementTraits<T>::max_finite;
  return T(value > limit ? limit : (value < -limit ? -limit : value));
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
