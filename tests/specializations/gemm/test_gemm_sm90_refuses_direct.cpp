// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What gemm/sm90_wgmma_* take and what not. Needs no GPU.
#include <string>

#include "direct_matrix.hpp"

namespace {

Device hopper() { return {0, 9, 0, abi::Architecture::hopper, 132, 232448}; }

GemmArgs acceptable() {
  alignas(16) static float somewhere[4];
  GemmArgs g;
  g.a = g.b = g.c = somewhere;
  g.type_a = g.type_b = g.type_c = DType::float16;
  g.m = 48, g.n = 32, g.k = 16, g.batch = 1;
  g.a_m = 16, g.a_k = 1, g.b_k = 32, g.b_n = 1, g.c_m = 32, g.c_n = 1;
  return g;
}

std::string reason(GemmArgs const& g, Device const& d = hopper()) {
  auto const verdict = abi::GemmSm90WgmmaF16::accepts(g, d);
  EXPECT_EQ(verdict.ok, verdict.reason[0] == '\0');
  return verdict.reason;
}

TEST(Sm90Refuses, WhatItCannotDo) {
  SKIP_IF_LEFT_OUT(abi::GemmSm90WgmmaF16, abi::GemmSm90WgmmaF8, abi::GemmSm90WgmmaS8);
  EXPECT_EQ(reason(acceptable()), "");
  EXPECT_EQ(reason(acceptable(), Device{}), "no CUDA device");
  auto other = hopper();
  other.compute_major = 10;
  EXPECT_EQ(reason(acceptable(), other), "its machine code runs on sm_90 only");
  auto const with = [](auto change) {
    GemmArgs g = acceptable();
    change(g);
    return reason(g);
  };
  EXPECT_EQ(with([](GemmArgs& g) { g.type_a = DType::bfloat16; }),
            "it multiplies other element types");
  EXPECT_EQ(with([](GemmArgs& g) { g.type_c = DType::float64; }),
            "it does not write C's element type");
  EXPECT_EQ(with([](GemmArgs& g) { g.a_k = 2, g.a_m = 32; }), "A has no unit stride");
  EXPECT_EQ(with([](GemmArgs& g) { g.b_n = -1; }), "B has no unit stride");
  EXPECT_EQ(with([](GemmArgs& g) { g.a_m = 17; }), "a stride of A is not a multiple of 16 bytes");
  EXPECT_EQ(with([](GemmArgs& g) { g.b_k = 36; }), "a stride of B is not a multiple of 16 bytes");
  EXPECT_EQ(with([](GemmArgs& g) { g.a = static_cast<char const*>(g.a) + 2; }),
            "A's address is not a multiple of 16 bytes");
  EXPECT_EQ(with([](GemmArgs& g) { g.batch = 2, g.c_batch = 1, g.b_batch = 9; }),
            "a stride of B is not a multiple of 16 bytes");
  EXPECT_EQ(with([](GemmArgs& g) { g.k = 0; }), "K is 0");
  EXPECT_EQ(with([](GemmArgs& g) { g.m = -1; }), "an extent is negative");
  EXPECT_EQ(with([](GemmArgs& g) { g.m = 0, g.k = 0; }), "");
  EXPECT_EQ(with([](GemmArgs& g) { g.c_m = 0; }), "C has a zero stride, so its elements overlap");
  EXPECT_EQ(with([](GemmArgs& g) { g.c = nullptr; }), "C is a null pointer");
  EXPECT_EQ(with([](GemmArgs& g) { g.counts = reinterpret_cast<int const*>(g.a); }),
            "it does not count the rows of each matrix");
  EXPECT_EQ(with([](GemmArgs& g) { g.m = g.n = std::int64_t{1} << 24; }),
            "C is too large for one launch");
  GemmArgs g = acceptable();
  g.type_a = g.type_b = DType::float8_e4m3;
  EXPECT_STREQ(abi::GemmSm90WgmmaF8::accepts(g, hopper()).reason, "");
  g.a_m = 1, g.a_k = 48;
  EXPECT_STREQ(abi::GemmSm90WgmmaF8::accepts(g, hopper()).reason,
               "one of two 8-bit operands needs its unit stride along K");
  g.b_k = 1, g.b_n = 16;
  EXPECT_STREQ(abi::GemmSm90WgmmaF8::accepts(g, hopper()).reason, "");
  g.type_a = g.type_b = DType::int8, g.type_c = DType::int32, g.alpha = 2;
  EXPECT_STREQ(abi::GemmSm90WgmmaS8::accepts(g, hopper()).reason,
               "int32 C takes alpha 1, beta 0 or 1, and no epilogue");
  g.type_a = g.type_b = DType::float8_e4m3, g.type_c = DType::float16, g.alpha = 1;
  static float factors[4];
  g.scale_a.data = factors, g.scale_a.col = 1, g.scale_a.col_shift = 7;
  EXPECT_STREQ(abi::GemmSm90WgmmaF8::accepts(g, hopper()).reason, "");
  g.scale_a.col_shift = 6;
  EXPECT_STREQ(abi::GemmSm90WgmmaF8::accepts(g, hopper()).reason,
               "its scales are constant along K, or over 128 of it");
  g.type_a = g.type_b = DType::int8, g.scale_a.col_shift = 7;
  EXPECT_STREQ(abi::GemmSm90WgmmaS8::accepts(g, hopper()).reason,
               "its scales are one for a matrix, or one for a row of A or a column of B");
}

}  // namespace
