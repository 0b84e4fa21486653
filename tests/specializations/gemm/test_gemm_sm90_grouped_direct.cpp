// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm/sm90_grouped_* called directly: ragged groups and counted rows against float64, with NaN in
// the rows of no group, and what they refuse.
#include <array>
#include <cstring>
#include <sstream>
#include <string>

#include "direct_matrix.hpp"

namespace {

struct GroupedCase {
  std::vector<std::int64_t> offsets;  // of groups + 1; counts of rows where `masked`
  std::int64_t m, n, k;
  bool masked = false, wide = false, trans_b = false, trans_c = false, shared_b = false;
  std::int64_t pad_c = 0;
  double alpha = 1, beta = 0, scale = 1;
  Activation activation = Activation::none;
  bool bias = false, residual = false;
  /// Factors: none; one for A and one for each group; one for each row and column. Of 8-bit C,
  /// numbers that it is divided by.
  int factors = 0;
  /// Rows of A and columns of B that share a factor which changes every 128 along K, in place of
  /// the above; 0: none.
  std::int64_t block_rows = 0, block_columns = 0;
  double scale_out = 1;
  bool fast = false;  ///< the tensor cores sum all of K
};

template <class T>
using GroupedKernel = std::conditional_t<
    std::is_same_v<T, std::int8_t>, abi::GemmSm90GroupedS8,
    std::conditional_t<sizeof(T) == 1, abi::GemmSm90GroupedF8,
                       std::conditional_t<std::is_same_v<T, __half>, abi::GemmSm90GroupedF16,
                                          abi::GemmSm90GroupedBf16>>>;

int grouped_runs = 0;
double grouped_worst = 0;

/// u = 2^-23: k additions in the tensor core, which may cut what it adds (float8: as in
/// test_gemm_sm90_direct.cpp; int8: none, but one rounding); then the epilogue's roundings, and
/// that of C.
template <class T, class C, class Weight = T>
void run_grouped(GroupedCase const& t) {
  SKIP_IF_LEFT_OUT(GroupedKernel<T>);
  ASSERT_EQ(abi::query_device(abi::current_device()).compute_major, 9)
      << "this suite needs a Hopper card";
  std::ostringstream text;
  text << "m" << t.m << " n" << t.n << " k" << t.k << (t.masked ? " counts" : " offsets");
  for (auto x : t.offsets) text << ' ' << x;
  text << " trans " << t.trans_b << t.trans_c;
  SCOPED_TRACE(text.str());
  auto const lists = static_cast<std::int64_t>(t.offsets.size());
  std::int64_t const groups = t.masked ? lists : lists - 1, batch = t.masked ? groups : 1;
  std::int64_t const pad = 16 / sizeof(T);
  Matrix<T> a(batch, t.m, t.k, false, pad, false, 1);
  Matrix<Weight> b(groups, t.k, t.n, t.trans_b, pad, t.shared_b, 2);
  Matrix<C> c(batch, t.m, t.n, t.trans_c, t.pad_c, false, 3);
  Matrix<float> bias(1, 1, t.n, false, 0, false, 4);
  Matrix<__nv_bfloat16> residual(batch, t.m, t.n, !t.trans_c, 3, false, 5);
  Matrix<float> rows(batch, 1, t.m, false, 3, false, 6),
      columns(groups, 1, t.n, false, 1, false, 7);
  Matrix<float> number(1, 1, 1, false, 0, false, 8);
  auto const blocks = [](std::int64_t extent, std::int64_t size) {
    return size == 0 ? 1 : (extent + size - 1) / size;
  };
  Matrix<float> blocks_a(batch, blocks(t.m, t.block_rows), blocks(t.k, 128), true, 0, false, 9);
  Matrix<float> blocks_b(groups, blocks(t.n, t.block_columns), blocks(t.k, 128), false, 1, false,
                         10);
  number.at(0, 0, 0) = static_cast<float>(t.scale_out);
  if (t.beta == 0) c.forget();
  auto const clamp = [&](std::int64_t x) { return std::min(std::max<std::int64_t>(x, 0), t.m); };
  std::vector<std::vector<std::int64_t>> group_of(
      static_cast<std::size_t>(batch),
      std::vector<std::int64_t>(static_cast<std::size_t>(t.m), -1));
  for (std::int64_t g = 0; g < groups; ++g) {
    auto const at = static_cast<std::size_t>(g);
    std::int64_t const from = t.masked ? 0 : clamp(t.offsets[at]);
    std::int64_t const to = clamp(t.offsets[t.masked ? at : at + 1]);
    for (std::int64_t i = from; i < to; ++i)
      group_of[t.masked ? at : 0][static_cast<std::size_t>(i)] = g;
  }
  for (std::int64_t l = 0; l < batch; ++l)
    for (std::int64_t i = 0; i < t.m; ++i)
      if (group_of[static_cast<std::size_t>(l)][static_cast<std::size_t>(i)] < 0)
        std::memset(&a.host[static_cast<std::size_t>(a.offset(l, i, 0)) * sizeof(T)], 0xFF,
                    static_cast<std::size_t>(t.k) * sizeof(T));
  a.upload(), b.upload(), c.upload(), bias.upload(), residual.upload();
  rows.upload(), columns.upload(), number.upload(), blocks_a.upload(), blocks_b.upload();

  // Every second entry, so that the stride matters.
  std::vector<std::int64_t> entries(2 * static_cast<std::size_t>(lists), -1);
  std::vector<std::int32_t> narrow(entries.size(), -1);
  for (std::size_t i = 0; i < t.offsets.size(); ++i)
    entries[2 * i] = t.offsets[i], narrow[2 * i] = static_cast<std::int32_t>(t.offsets[i]);
  void* list = nullptr;
  std::size_t const bytes = entries.size() * (t.wide ? 8 : 4);
  ASSERT_CUDA(cudaMalloc(&list, bytes));
  ASSERT_CUDA(cudaMemcpy(list, t.wide ? static_cast<void*>(entries.data()) : narrow.data(), bytes,
                         cudaMemcpyHostToDevice));
  GemmArgs g;
  g.a = a.begin(), g.b = b.begin(), g.c = c.begin();
  g.type_a = dtype_of<T>(), g.type_b = dtype_of<Weight>(), g.type_c = dtype_of<C>();
  g.m = t.m, g.n = t.n, g.k = t.k, g.batch = batch;
  g.a_batch = a.stride_batch, g.a_m = a.stride_row, g.a_k = a.stride_column;
  g.b_batch = b.stride_batch, g.b_k = b.stride_row, g.b_n = b.stride_column;
  g.c_batch = c.stride_batch, g.c_m = c.stride_row, g.c_n = c.stride_column;
  if (t.fast) g.accumulate = abi::Accumulate::fast;
  g.alpha = t.alpha, g.beta = t.beta, g.scale = t.scale, g.activation = t.activation;
  if (t.bias) g.bias = bias.begin(), g.bias_along = BiasAlong::n, g.bias_stride = 1;
  if (t.residual) {
    g.residual = residual.begin(), g.type_residual = DType::bfloat16;
    g.residual_batch = residual.stride_batch;
    g.residual_m = residual.stride_row, g.residual_n = residual.stride_column;
  }
  if (t.factors != 0) {
    bool const one = t.factors == 1;
    g.scale_a = {rows.begin(), one ? 0 : rows.stride_batch, one ? 0 : 1, 0, 0, 0};
    g.scale_b = {columns.begin(), columns.stride_batch, 0, one ? 0 : 1, 0, 0};
  }
  if (t.block_rows != 0)
    g.scale_a = {blocks_a.begin(),       blocks_a.stride_batch,       blocks_a.stride_row,
                 blocks_a.stride_column, t.block_rows == 128 ? 7 : 0, 7};
  if (t.block_columns != 0)
    g.scale_b = {
        blocks_b.begin(), blocks_b.stride_batch, blocks_b.stride_column, blocks_b.stride_row, 7, 7};
  if (sizeof(C) == 1) g.scale_out = number.begin();
  if (t.masked) {
    g.counts = static_cast<std::int32_t const*>(list), g.counts_stride = 2;
  } else {
    g.offsets = list, g.type_offsets = t.wide ? DType::int64 : DType::int32, g.offsets_stride = 2;
    g.groups = groups;
  }
  mislead(g);
  double const u = 0x1p-23;
  for (int sm_count : {1, 132}) {
    Device device = abi::query_device(abi::current_device());
    device.sm_count = sm_count;
    std::vector<unsigned char> results[2];
    for (auto& result : results) {
      result.resize(c.host.size());
      c.upload();
      poison_shared_memory();
      ASSERT_STREQ(GroupedKernel<T>::accepts(g, device).reason, "");
      ASSERT_EQ(GroupedKernel<T>::launch(g, device, nullptr), cudaSuccess);
      ASSERT_CUDA(cudaDeviceSynchronize());
      ASSERT_CUDA(cudaMemcpy(result.data(), c.device, result.size(), cudaMemcpyDeviceToHost));
    }
    EXPECT_EQ(results[0], results[1]) << "a second call gave other bits";
    auto untouched = c.host;
    int wrong = 0;
    ResultNorms<C> norms;
    for (std::int64_t l = 0; l < batch; ++l)
      for (std::int64_t i = 0; i < t.m; ++i, norms.end_row()) {
        std::int64_t const z = group_of[static_cast<std::size_t>(l)][static_cast<std::size_t>(i)];
        if (z < 0) continue;
        for (std::int64_t j = 0; j < t.n; ++j) {
          double sum = 0, size = 0;
          Float8Loss loss(t.k, t.fast);
          for (std::int64_t p = 0; p < t.k; ++p) {
            double const product = a.value(l, i, p) * b.value(t.shared_b ? 0 : z, p, j);
            double const block =
                (t.block_rows == 0 ? 1 : blocks_a.value(l, i / t.block_rows, p / 128)) *
                (t.block_columns == 0 ? 1 : blocks_b.value(z, j / t.block_columns, p / 128));
            sum += block * product, size += std::abs(block * product);
            if constexpr (sizeof(T) == 1 && !std::is_integral_v<T>) loss.add(product, block);
          }
          bool const one = t.factors == 1;
          double const of_row =
              t.factors == 0 || t.block_rows != 0 ? 1 : rows.value(one ? 0 : l, 0, one ? 0 : i);
          double const of_column =
              t.factors == 0 || t.block_columns != 0 ? 1 : columns.value(z, 0, one ? 0 : j);
          double const both = of_row * of_column;
          double const old = t.beta == 0 ? 0 : t.beta * c.value(l, i, j);
          double const add = t.bias ? bias.value(0, 0, j) : 0;
          double const v = t.scale * (t.alpha * both * sum + old) + add;
          double const r = t.residual ? residual.value(l, i, j) : 0;
          double const y = activate(t.activation, v) + r;
          double const factor = std::abs(t.scale * t.alpha * both);
          double const roundings = std::is_integral_v<T> ? 4 : static_cast<double>(t.k + 10);
          double error =
              (u * roundings * (std::is_integral_v<T> ? std::abs(sum) : size) + loss.value()) *
                  factor +
              4 * u * (factor * size + std::abs(t.scale * old) + std::abs(add));
          error = 1.13 * error + 4 * u * (std::abs(v) + std::abs(y) + std::abs(r)) + 0x1p-24;
          double expected = y;
          if constexpr (sizeof(C) == 1) {
            auto const next = quantized<C>(y, error, number.value(0, 0, 0));
            expected = next.value, error = next.bound;
          } else if constexpr (std::is_integral_v<C>) {
            error = 0.5;  // exact
          } else {
            error += rounding<C>() * std::abs(y) * 1.01;
          }
          auto const index = static_cast<std::size_t>(c.offset(l, i, j)) * sizeof(C);
          C got;
          std::memcpy(&got, &results[0][index], sizeof got);
          std::memcpy(&untouched[index], &got, sizeof got);
          double const ratio = std::abs(wide(got) - expected) / error;
          norms.add(wide(got), expected, error);
          if (!(ratio <= 1) && wrong++ == 0)
            ADD_FAILURE() << "[" << l << ", " << i << ", " << j << "] is " << wide(got)
                          << ", expected " << expected << " ± " << error;
          if (ratio > grouped_worst) grouped_worst = ratio;
        }
      }
    EXPECT_EQ(untouched, results[0]) << "memory of no group was written";
    if (t.k > 1 && t.alpha != 0) norms.check("direct gemm/grouped", "C");
    ++grouped_runs;
    if (testing::Test::HasFailure()) break;
  }
  cudaFree(list);
}

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
