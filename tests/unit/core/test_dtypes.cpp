// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Conversions of the small element types: every pattern, every boundary, against an implementation
// that was written differently.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <attikos/attikos.hpp>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "support/format_reference.hpp"
#include "support/random.hpp"

namespace attikos::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

template <class T>
FormatReference format() {
  if constexpr (std::is_same_v<T, float16>) return {5, 10, true};
  if constexpr (std::is_same_v<T, bfloat16>) return {8, 7, true};
  if constexpr (std::is_same_v<T, float8_e4m3>) return {4, 3, false};
  if constexpr (std::is_same_v<T, float8_e5m2>) return {5, 2, true};
}

template <class T>
double value_of(T x) {
  return static_cast<double>(static_cast<float>(x));
}

/// The same number: NaN with NaN, and zeros by sign.
bool same(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

template <class T>
class SmallFloat : public testing::Test {
 protected:
  using Bits = decltype(T::from_bits(0).bits);
  static constexpr std::uint32_t codes = 1u << (8 * sizeof(T));

  void expect_rounded(double x) {
    double const want = reference.round(x, values);
    EXPECT_PRED2(same, value_of(T(x)), want) << "from double " << std::hexfloat << x;
    // Float keeps the boundary in double out of reach, so only what is a float already is tested.
    if (static_cast<double>(static_cast<float>(x)) == x) {
      EXPECT_PRED2(same, value_of(T(static_cast<float>(x))), want)
          << "from float " << std::hexfloat << x;
    }
  }

  FormatReference reference = format<T>();
  std::vector<double> values = reference.finite();
};
using SmallFloats = testing::Types<float16, bfloat16, float8_e4m3, float8_e5m2>;
TYPED_TEST_SUITE(SmallFloat, SmallFloats);

TYPED_TEST(SmallFloat, IsPlainStorage) {
  EXPECT_TRUE(std::is_trivially_copyable_v<TypeParam>);
  EXPECT_TRUE(std::is_trivially_default_constructible_v<TypeParam>);
  EXPECT_TRUE(std::is_standard_layout_v<TypeParam>);
  EXPECT_EQ(sizeof(TypeParam), sizeof(typename TestFixture::Bits));
  EXPECT_FALSE((std::is_convertible_v<float, TypeParam>)) << "narrowing must be spelled out";
  EXPECT_FALSE((std::is_convertible_v<double, TypeParam>)) << "narrowing must be spelled out";
}

TYPED_TEST(SmallFloat, EveryPatternHasItsValueAndComesBack) {
  using Bits = typename TestFixture::Bits;
  for (std::uint32_t code = 0; code < this->codes; ++code) {
    auto const x = TypeParam::from_bits(static_cast<Bits>(code));
    ASSERT_EQ(x.bits, code);
    double const want = this->reference.value(code);
    ASSERT_PRED2(same, value_of(x), want) << code;
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(value_of(TypeParam(static_cast<float>(x))))) << code;
      ASSERT_TRUE(std::isnan(value_of(TypeParam(value_of(x))))) << code;
    } else {
      ASSERT_EQ(TypeParam(static_cast<float>(x)).bits, code);
      ASSERT_EQ(TypeParam(want).bits, code);
    }
  }
}

TYPED_TEST(SmallFloat, EveryBoundaryRoundsToNearestEven) {
  auto const& values = this->values;
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    double const middle = values[i] + (values[i + 1] - values[i]) / 2;  // exact in double
    for (double x :
         {middle, std::nextafter(middle, 0.0), std::nextafter(middle, infinity), values[i],
          std::nextafter(values[i], 0.0), std::nextafter(values[i], infinity)}) {
      this->expect_rounded(x);
      this->expect_rounded(-x);
    }
    float const in_float = static_cast<float>(middle);
    for (float x : {std::nextafterf(in_float, 0.0f), std::nextafterf(in_float, HUGE_VALF)}) {
      this->expect_rounded(static_cast<double>(x));
      this->expect_rounded(-static_cast<double>(x));
    }
    if (this->HasFailure()) FAIL() << "stopped after the boundary above " << values[i];
  }
}

TYPED_TEST(SmallFloat, Overflow) {
  double const last = this->values.back();
  double const spacing = last - this->values[this->values.size() - 2];
  double const threshold = last + spacing / 2;
  for (double x :
       {last, std::nextafter(last, infinity), std::nextafter(threshold, 0.0), threshold,
        std::nextafter(threshold, infinity), last + spacing, 2 * last, 1e30, 1e300, infinity}) {
    this->expect_rounded(x);
    this->expect_rounded(-x);
  }
}

TYPED_TEST(SmallFloat, ZerosNanAndWhatVanishes) {
  EXPECT_EQ(TypeParam(0.0).bits, 0u);
  EXPECT_EQ(TypeParam(-0.0).bits, this->reference.sign_bit());
  EXPECT_EQ(TypeParam(-0.0f).bits, this->reference.sign_bit());
  EXPECT_TRUE(std::isnan(value_of(TypeParam(not_a_number))));
  EXPECT_TRUE(std::isnan(value_of(TypeParam(-std::numeric_limits<float>::quiet_NaN()))));
  // A NaN whose payload lies in the bits that are cut off stays NaN.
  EXPECT_TRUE(std::isnan(value_of(TypeParam(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(value_of(TypeParam(std::bit_cast<double>(0x7ff0000000000001u)))));
  for (double x : {5e-324, 1e-310, 1e-300, 1e-50, 1e-40, 1e-20, 0x1p-149, 0x1p-134, 0x1p-135}) {
    this->expect_rounded(x);
    this->expect_rounded(-x);
  }
}

TYPED_TEST(SmallFloat, RandomDoublesAndFloats) {
  Random random(11);
  for (int i = 0; i < 200000; ++i) {
    this->expect_rounded(std::bit_cast<double>(random.bits()));
    this->expect_rounded(
        static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(random.bits()))));
    double const scale = std::ldexp(1.0, static_cast<int>(random.integer(-30, 18)));
    this->expect_rounded(random.uniform(-1, 1) * scale);
    if (this->HasFailure()) return;
  }
}

TYPED_TEST(SmallFloat, SaturateCast) {
  double const last = this->values.back();
  for (double x : {last, last * 1.01, 1e300, infinity}) {
    EXPECT_EQ(value_of(saturate_cast<TypeParam>(x)), last) << x;
    EXPECT_EQ(value_of(saturate_cast<TypeParam>(-x)), -last) << x;
  }
  EXPECT_EQ(value_of(saturate_cast<TypeParam>(std::numeric_limits<float>::max())),
            last < 1e38 ? last : 0x1.fep127);
  EXPECT_TRUE(std::isnan(value_of(saturate_cast<TypeParam>(not_a_number))));
  EXPECT_EQ(saturate_cast<TypeParam>(-0.0).bits, this->reference.sign_bit());
  for (double x : this->values) EXPECT_EQ(value_of(saturate_cast<TypeParam>(x)), x);
}

TYPED_TEST(SmallFloat, ConvertsAtCompileTime) {
  constexpr TypeParam one(1.0);
  static_assert(static_cast<float>(one) == 1.0f);
  static_assert(static_cast<float>(TypeParam(-2.0f)) == -2.0f);
  static_assert(TypeParam::from_bits(0).bits == 0);
}

// Rounding to float first would turn just above a tie into a tie, and that into the even neighbor.
TEST(DoubleToSmall, IsNotRoundedTwice) {
  EXPECT_EQ(value_of(float16(1 + 0x1p-11 + 0x1p-40)), 1 + 0x1p-10);
  EXPECT_EQ(value_of(float16(1 + 0x1p-10 + 0x1p-11 - 0x1p-40)), 1 + 0x1p-10);
  EXPECT_EQ(value_of(bfloat16(1 + 0x1p-8 + 0x1p-50)), 1 + 0x1p-7);
  EXPECT_EQ(value_of(float8_e4m3(1 + 0x1p-4 + 0x1p-50)), 1.125);
  EXPECT_EQ(value_of(float8_e5m2(1 + 0x1p-3 + 0x1p-50)), 1.25);
}

TEST(Float8, KnownCodes) {
  EXPECT_EQ(float8_e4m3(448.0).bits, 0x7e);
  EXPECT_EQ(float8_e4m3(464.0).bits, 0x7e);
  EXPECT_EQ(float8_e4m3(464.5).bits & 0x7f, 0x7f);
  EXPECT_EQ(float8_e4m3(0x1p-9).bits, 0x01);
  EXPECT_EQ(float8_e4m3(0x1p-10).bits, 0x00);
  EXPECT_EQ(float8_e5m2(57344.0).bits, 0x7b);
  EXPECT_EQ(float8_e5m2(61440.0).bits, 0x7c);
  EXPECT_EQ(float8_e5m2(-infinity).bits, 0xfc);
  EXPECT_EQ(float8_e5m2(0x1p-16).bits, 0x01);
}

TEST(DTypeNames, AreTheTypesNames) {
  EXPECT_STREQ(dtype_name(DType::float64), "float64");
  EXPECT_STREQ(dtype_name(DType::float32), "float32");
  EXPECT_STREQ(dtype_name(DType::float16), "float16");
  EXPECT_STREQ(dtype_name(DType::bfloat16), "bfloat16");
  EXPECT_STREQ(dtype_name(DType::float8_e4m3), "float8_e4m3");
  EXPECT_STREQ(dtype_name(DType::float8_e5m2), "float8_e5m2");
  EXPECT_STREQ(dtype_name(DType::int8), "int8");
  EXPECT_STREQ(dtype_name(DType::uint8), "uint8");
  EXPECT_STREQ(dtype_name(DType::int32), "int32");
  EXPECT_STREQ(dtype_name(DType::int64), "int64");
}

// Kokkos's own half types fall back to float on most host builds; where they are 2 bytes wide their
// bits are ours, and rounding agrees.
template <class Half, class T>
void expect_same_bits_as_kokkos() {
  if constexpr (sizeof(Half) == 2) {
    for (std::uint32_t code = 0; code < 0x10000u; ++code) {
      auto const ours = T::from_bits(static_cast<std::uint16_t>(code));
      double const value = value_of(ours);
      if (std::isnan(value)) continue;
      auto const theirs = std::bit_cast<Half>(ours.bits);
      ASSERT_EQ(static_cast<double>(static_cast<float>(theirs)), value) << code;
      float const between = static_cast<float>(value) * 1.0003f;
      ASSERT_EQ(std::bit_cast<std::uint16_t>(static_cast<Half>(between)), T(between).bits) << code;
    }
  } else {
    // Then the type is float itself, and a View of it a View of float; it never passes for a half.
    static_assert(std::is_same_v<Half, float>);
    EXPECT_TRUE((std::is_same_v<element_t<Kokkos::View<Half*>>, float>));
  }
}
TEST(KokkosHalf, SameBits) { expect_same_bits_as_kokkos<Kokkos::Experimental::half_t, float16>(); }
TEST(KokkosBhalf, SameBits) {
  expect_same_bits_as_kokkos<Kokkos::Experimental::bhalf_t, bfloat16>();
}

}  // namespace
}  // namespace attikos::test
