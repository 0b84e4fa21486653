// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The lane-wise conversion of float8 gives the bits of the scalar one, for every code.
#include <gtest/gtest.h>

#include <attikos/core/simd.hpp>
#include <bit>

namespace attikos::test {
namespace {

template <class Element>
void compare_all_codes() {
  constexpr int W = detail::host::lanes<float>;
  Element elements[W];
  for (int first = 0; first < 256; first += W) {
    for (int l = 0; l < W; ++l)
      elements[l] = Element::from_bits(static_cast<std::uint8_t>(first + l));
    auto const wide = detail::host::load<float, W>(elements);
    for (int l = 0; l < W; ++l) {
      float const value = wide[l], scalar = elements[l];
      EXPECT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(scalar))
          << "code " << first + l;
    }
  }
}

TEST(Float8Vectors, E4m3) { compare_all_codes<float8_e4m3>(); }
TEST(Float8Vectors, E5m2) { compare_all_codes<float8_e5m2>(); }

}  // namespace
}  // namespace attikos::test
