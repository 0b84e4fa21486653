// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm/sm90_grouped_* called directly: ragged groups and counted rows against float64, with NaN in
// the rows of no group, and what they refuse.
#include <array>

#include "direct_gemm_grouped.hpp"

namespace {

TEST(GroupedRuns, Partitions) {
  std::vector<std::vector<std::int64_t>> const partitions{
      {0, 0},
      {0, 7},
      {0, 3, 3, 10},
      {2, 5, 9},
      {0, 64, 128, 129},
      {0, 33, 130, 258, 258, 403},
      {0, 15, 31, 48, 80, 113, 160, 272},
      {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
       21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40},
      {0, 0, 0, 0, 300},
      {400, 500, 500},
      {50, 40, 40},
      {-5, 10, 10, 20, 9000}};
  int turn = 0;
  for (auto const& offsets : partitions)
    for (bool trans_b : {false, true}) {
      GroupedCase t{offsets, 410, 136, 72};
      t.trans_b = trans_b, t.wide = turn % 2 == 0;
      run_grouped<__nv_bfloat16, __nv_bfloat16>(t);
      t.n = 300, t.k = 200, t.pad_c = turn % 3, t.trans_c = turn % 4 == 3;
      run_grouped<__half, __half>(t);
      run_grouped<__nv_bfloat16, float>(t);
      ++turn;
      if (testing::Test::HasFailure()) return;
    }
  std::printf("partitions: %d runs, worst ratio to the bound %.3f\n", grouped_runs, grouped_worst);
}

/// Every number of rows around the widths of tiles.
TEST(GroupedRuns, Rows) {
  for (std::int64_t rows :
       {1,   15,  16,  17,  31,  32,  33,  47,  48,  63,  64,  65,  80,  81,  95,
        96,  97,  111, 112, 113, 127, 128, 129, 144, 145, 160, 161, 176, 177, 191,
        192, 193, 208, 209, 224, 225, 240, 241, 255, 256, 257, 385, 513}) {
    GroupedCase t{{0, rows, rows + 3, 2 * rows + 3}, 2 * rows + 9, 264, 136};
    t.trans_b = rows % 2 == 0;
    run_grouped<__nv_bfloat16, __nv_bfloat16>(t);
    t.n = 65, t.k = 8, t.wide = true;
    run_grouped<__half, float>(t);
    if (testing::Test::HasFailure()) return;
  }
  std::printf("rows: %d runs, worst ratio to the bound %.3f\n", grouped_runs, grouped_worst);
}

TEST(GroupedRuns, CountedRows) {
  for (bool shared_b : {false, true}) {
    GroupedCase t{{0, 1, 130, 77, -4, 1000, 128}, 130, 200, 104};
    t.masked = true, t.shared_b = shared_b;
    run_grouped<__nv_bfloat16, __nv_bfloat16>(t);
    t.trans_b = true, t.pad_c = 1;
    run_grouped<__half, __half>(t);
    t.offsets = {5}, t.trans_c = true;
    run_grouped<__half, float>(t);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(GroupedRuns, Epilogues) {
  for (auto activation : {Activation::none, Activation::relu, Activation::gelu,
                          Activation::gelu_tanh, Activation::silu}) {
    GroupedCase t{{0, 40, 41, 170}, 180, 72, 64};
    t.alpha = 0.7, t.beta = 0.3, t.scale = 1.5, t.activation = activation;
    t.bias = t.residual = true;
    t.masked = activation == Activation::gelu, t.trans_c = activation == Activation::silu;
    run_grouped<__nv_bfloat16, __nv_bfloat16>(t);
    t.beta = 0, t.residual = false;
    run_grouped<__half, float>(t);
    if (testing::Test::HasFailure()) return;
  }
}

/// Products of float8: every width of tiles, offsets and counts, factors, and sums that go round
/// the ring of stages.
TEST(GroupedRuns, Float8) {
  int turn = 0;
  for (std::int64_t rows :
       {1, 31, 33, 64, 65, 97, 112, 113, 128, 129, 160, 161, 193, 224, 225, 256, 257, 385}) {
    GroupedCase t{{0, rows, rows, 2 * rows, 2 * rows + 5}, 2 * rows + 9, 264, 144};
    t.trans_b = true, t.factors = turn % 3, t.wide = turn % 2 == 0, t.masked = turn % 4 == 3;
    run_grouped<E4, __nv_bfloat16>(t);
    t.n = 65, t.k = turn % 2 == 0 ? 1104 : 16, t.trans_c = turn % 5 == 4, t.bias = turn % 2 == 0;
    run_grouped<E5, float, E4>(t);
    t.shared_b = t.masked, t.scale_out = 0.02;
    run_grouped<E4, std::int8_t, E5>(t);
    t.n = 72, t.factors = (turn + 1) % 3;
    run_grouped<E5, __half, E5>(t);
    t.fast = true, t.k = 336, t.factors = turn % 3;
    run_grouped<E4, __half>(t);
    if (testing::Test::HasFailure()) return;
    ++turn;
  }
  std::printf("float8: %d runs, worst ratio to the bound %.3f\n", grouped_runs, grouped_worst);
}

/// Products of int8: exact in int32, with factors and epilogues in other types.
TEST(GroupedRuns, Int8) {
  int turn = 0;
  for (std::int64_t rows : {1, 33, 64, 97, 129, 150, 170, 200, 220, 240, 256, 300}) {
    GroupedCase t{{0, rows, rows, 2 * rows, 2 * rows + 5}, 2 * rows + 9, 264, 144};
    t.trans_b = true, t.masked = turn % 3 == 2, t.wide = !t.masked, t.beta = turn % 2;
    run_grouped<std::int8_t, int>(t);
    t.beta = 0, t.factors = turn % 3, t.shared_b = t.masked;
    run_grouped<std::int8_t, __nv_bfloat16>(t);
    t.n = 72, t.k = turn % 2 == 0 ? 1104 : 16, t.trans_c = turn % 5 == 4, t.alpha = 0.01;
    t.bias = turn % 2 == 0, t.activation = turn % 2 == 0 ? Activation::relu : Activation::none;
    run_grouped<std::int8_t, float>(t);
    t.scale_out = 40;
    run_grouped<std::int8_t, std::int8_t>(t);
    if (testing::Test::HasFailure()) return;
    ++turn;
  }
  std::printf("int8: %d runs, worst ratio to the bound %.3f\n", grouped_runs, grouped_worst);
}

/// Factors of float8 that change along K, of both operands, or of one beside other factors of the
/// other.
TEST(GroupedRuns, BlockScales) {
  int turn = 0;
  for (std::int64_t rows : {1, 100, 129}) {
    for (auto [block_rows, block_columns] :
         {std::array<std::int64_t, 2>{1, 128}, {128, 128}, {1, 0}, {0, 128}}) {
      GroupedCase t{{0, rows, rows, 2 * rows, 2 * rows + 5}, 2 * rows + 9, 136, 272};
      t.trans_b = true, t.factors = turn % 3, t.masked = turn % 4 == 3, t.wide = turn % 2 == 0;
      t.block_rows = block_rows, t.block_columns = block_columns;
      run_grouped<E4, __nv_bfloat16>(t);
      t.n = 72, t.k = turn % 3 == 0 ? 784 : 128, t.trans_c = turn % 5 == 4;
      run_grouped<E5, float, E4>(t);
      if (testing::Test::HasFailure()) return;
      ++turn;
    }
  }
  std::printf("blocks: %d runs, worst ratio to the bound %.3f\n", grouped_runs, grouped_worst);
}

/// C of 8 bits beside 16-bit operands.
TEST(GroupedRuns, QuantizedOutput) {
  GroupedCase t{{0, 40, 41, 170}, 180, 72, 64};
  t.bias = t.residual = true, t.scale_out = 0.05, t.activation = Activation::relu;
  run_grouped<__nv_bfloat16, std::int8_t>(t);
  t.trans_c = t.masked = true, t.scale_out = 0.001;
  run_grouped<__half, E4>(t);
}

/// Many tiles for each block, and bands of more than 16 tiles along the rows of one group.
TEST(GroupedRuns, ManyTiles) {
  GroupedCase t{{0, 2500, 2600, 4000}, 4000, 392, 136};
  run_grouped<__nv_bfloat16, __nv_bfloat16>(t);
  t.trans_b = true, t.factors = 2, t.block_rows = 1;
  run_grouped<E4, __nv_bfloat16>(t);
  std::printf("all: %d runs, worst ratio to the bound %.3f\n", grouped_runs, grouped_worst);
}

TEST(GroupedRefuses, WhatFloat8CannotDo) {
  SKIP_IF_LEFT_OUT(abi::GemmSm90GroupedF8);
  alignas(16) static float somewhere[4];
  Device const hopper{0, 9, 0, abi::Architecture::hopper, 132, 232448};
  GemmArgs g;
  g.a = g.b = g.c = somewhere;
  g.type_a = DType::float8_e4m3, g.type_b = DType::float8_e5m2, g.type_c = DType::float16;
  g.m = 48, g.n = 32, g.k = 16, g.batch = 1, g.groups = 3, g.offsets = somewhere;
  g.a_m = 16, g.a_k = 1, g.b_batch = 512, g.b_k = 1, g.b_n = 16, g.c_m = 32, g.c_n = 1;
  g.scale_a.data = g.scale_b.data = somewhere, g.scale_a.row = g.scale_b.batch = 1;
  auto const reason = [&] {
    return std::string(abi::GemmSm90GroupedF8::accepts(g, hopper).reason);
  };
  EXPECT_EQ(reason(), "");
  g.scale_a.col = 1, g.scale_a.col_shift = 7;
  EXPECT_EQ(reason(), "");
  g.scale_b.row = g.scale_b.col = 1, g.scale_b.row_shift = g.scale_b.col_shift = 7;
  EXPECT_EQ(reason(), "");
  char const* const finer = "its scales are constant along K, or over 128 of it and of B's columns";
  g.scale_b.col_shift = 0;
  EXPECT_EQ(reason(), finer);
  g.scale_b.col_shift = 7, g.scale_a.col_shift = 6;
  EXPECT_EQ(reason(), finer);
  g.scale_a.data = g.scale_b.data = nullptr, g.b_k = 32, g.b_n = 1;
  EXPECT_EQ(reason(), "B's unit stride is not along K");
  g.b_k = 1, g.b_n = 16, g.type_c = DType::int8, g.beta = 1;
  EXPECT_EQ(reason(), "8-bit C takes beta 0");
  g.beta = 0, g.scale_out = somewhere;
  EXPECT_EQ(reason(), "");
  g.offsets = nullptr;
  EXPECT_EQ(reason(), "it is for groups and counts of rows");
}

TEST(GroupedRefuses, WhatInt8CannotDo) {
  SKIP_IF_LEFT_OUT(abi::GemmSm90GroupedS8);
  alignas(16) static float somewhere[4];
  Device const hopper{0, 9, 0, abi::Architecture::hopper, 132, 232448};
  GemmArgs g;
  g.a = g.b = g.c = somewhere;
  g.type_a = g.type_b = DType::int8, g.type_c = DType::int32;
  g.m = 48, g.n = 32, g.k = 16, g.batch = 1, g.groups = 3, g.offsets = somewhere;
  g.a_m = 16, g.a_k = 1, g.b_batch = 512, g.b_k = 1, g.b_n = 16, g.c_m = 32, g.c_n = 1;
  auto const reason = [&] {
    return std::string(abi::GemmSm90GroupedS8::accepts(g, hopper).reason);
  };
  EXPECT_EQ(reason(), "");
  g.alpha = 2;
  EXPECT_EQ(reason(), "int32 C takes alpha 1, beta 0 or 1, and no epilogue");
  g.type_c = DType::float16, g.scale_a.data = g.scale_b.data = somewhere;
  g.scale_a.row = g.scale_b.batch = 1;
  EXPECT_EQ(reason(), "");
  g.scale_a.col = 1, g.scale_a.col_shift = 7;
  EXPECT_EQ(reason(), "its scales are one for a matrix, or one for a row of A or a column of B");
  g.scale_a.col = 0, g.scale_a.col_shift = 0, g.b_k = 32, g.b_n = 1;
  EXPECT_EQ(reason(), "B's unit stride is not along K");
  g.type_b = DType::float8_e4m3;
  EXPECT_EQ(reason(), "it multiplies other element types");
}

TEST(GroupedRefuses, WhatItCannotDo) {
  SKIP_IF_LEFT_OUT(abi::GemmSm90GroupedF16);
  alignas(16) static float somewhere[4];
  Device const hopper{0, 9, 0, abi::Architecture::hopper, 132, 232448};
  auto const reason = [&](auto change) {
    GemmArgs g;
    g.a = g.b = g.c = somewhere;
    g.type_a = g.type_b = g.type_c = DType::float16;
    g.m = 48, g.n = 32, g.k = 16, g.batch = 1, g.groups = 3, g.offsets = somewhere;
    g.a_m = 16, g.a_k = 1, g.b_batch = 512, g.b_k = 32, g.b_n = 1, g.c_m = 32, g.c_n = 1;
    Device d = hopper;
    change(g, d);
    auto const verdict = abi::GemmSm90GroupedF16::accepts(g, d);
    EXPECT_EQ(verdict.ok, verdict.reason[0] == '\0');
    return std::string(verdict.reason);
  };
  EXPECT_EQ(reason([](GemmArgs&, Device&) {}), "");
  EXPECT_EQ(reason([](GemmArgs&, Device& d) { d = Device{}; }), "no CUDA device");
  EXPECT_EQ(reason([](GemmArgs&, Device& d) { d.compute_major = 8; }),
            "its machine code runs on sm_90 only");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.offsets = nullptr; }),
            "it is for groups and counts of rows");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.type_b = DType::bfloat16; }),
            "it multiplies other element types");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.type_c = DType::float64; }),
            "it does not write C's element type");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.a_m = 1, g.a_k = 48; }),
            "A's unit stride is not along K");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.a_m = 20; }),
            "a stride of A is not a multiple of 16 bytes");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.b_n = 2, g.b_k = 64; }), "B has no unit stride");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.b_batch = 9; }),
            "a stride of B is not a multiple of 16 bytes");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.k = 0; }), "K is 0");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.groups = 0; }), "");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.scale_a.data = somewhere; }),
            "it does not scale A");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.m = g.n = std::int64_t{1} << 24; }),
            "C is too large for one launch");
}

}  // namespace
