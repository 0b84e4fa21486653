// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm/sm90_grouped_* called directly: ragged groups and counted rows against float64, with NaN in
// the rows of no group, and what they refuse.
#include <cstring>
#include <sstream>
#include <string>

#include "direct_matrix.hpp"

#pragma nv_diag_suppress 177  // GoogleTest's test_info_ members are unused by design

namespace {

struct GroupedCase {
  std::vector<std::int64_t> offsets;  // of groups + 1; counts of rows where `masked`
  std::int64_t m, n, k;
  bool masked = false, wide = false, trans_b = false, trans_c = false, shared_b = false;
  std::int64_t pad_c = 0;
  double alpha = 1, beta = 0, scale = 1;
  Activation activation = Activation::none;
  bool bias = false, residual = false;
};

template <class T>
using GroupedKernel = std::conditional_t<std::is_same_v<T, __half>, abi::GemmSm90GroupedF16,
                                         abi::GemmSm90GroupedBf16>;

int grouped_runs = 0;
double grouped_worst = 0;

/// u = 2^-23: k additions in the tensor core, which may cut what it adds; then the epilogue's
/// roundings, and that of C.
template <class T, class C>
void run_grouped(GroupedCase const& t) {
  ASSERT_EQ(abi::query_device(abi::current_device()).compute_major, 9)
      << "this suite needs a Hopper card";
  std::ostringstream text;
  text << "m" << t.m << " n" << t.n << " k" << t.k << (t.masked ? " counts" : " offsets");
  for (auto x : t.offsets) text << ' ' << x;
  text << " trans " << t.trans_b << t.trans_c;
  SCOPED_TRACE(text.str());
  auto const lists = static_cast<std::int64_t>(t.offsets.size());
  std::int64_t const groups = t.masked ? lists : lists - 1, batch = t.masked ? groups : 1;
  Matrix<T> a(batch, t.m, t.k, false, 8, false, 1);
  Matrix<T> b(groups, t.k, t.n, t.trans_b, 8, t.shared_b, 2);
  Matrix<C> c(batch, t.m, t.n, t.trans_c, t.pad_c, false, 3);
  Matrix<float> bias(1, 1, t.n, false, 0, false, 4);
  Matrix<__nv_bfloat16> residual(batch, t.m, t.n, !t.trans_c, 3, false, 5);
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
  g.type_a = g.type_b = dtype_of<T>(), g.type_c = dtype_of<C>();
  g.m = t.m, g.n = t.n, g.k = t.k, g.batch = batch;
  g.a_batch = batch == 1 ? 0 : a.stride_batch, g.a_m = a.stride_row, g.a_k = a.stride_column;
  g.b_batch = b.stride_batch, g.b_k = b.stride_row, g.b_n = b.stride_column;
  g.c_batch = c.stride_batch, g.c_m = c.stride_row, g.c_n = c.stride_column;
  g.alpha = t.alpha, g.beta = t.beta, g.scale = t.scale, g.activation = t.activation;
  if (t.bias) g.bias = bias.begin(), g.bias_along = BiasAlong::n, g.bias_stride = 1;
  if (t.residual) {
    g.residual = residual.begin(), g.type_residual = DType::bfloat16;
    g.residual_batch = residual.stride_batch;
    g.residual_m = residual.stride_row, g.residual_n = residual.stride_column;
  }
  if (t.masked) {
    g.counts = static_cast<std::int32_t const*>(list), g.counts_stride = 2;
  } else {
    g.offsets = list, g.type_offsets = t.wide ? DType::int64 : DType::int32, g.offsets_stride = 2;
    g.groups = groups;
  }
  double const u = 0x1p-23;
  for (int sm_count : {1, 132}) {
    Device device = abi::query_device(abi::current_device());
    device.sm_count = sm_count;
    std::vector<unsigned char> results[2];
    for (auto& result : results) {
      result.resize(c.host.size());
      c.upload();
      ASSERT_STREQ(GroupedKernel<T>::accepts(g, device).reason, "");
      ASSERT_EQ(GroupedKernel<T>::launch(g, device, nullptr), cudaSuccess);
      ASSERT_CUDA(cudaDeviceSynchronize());
      ASSERT_CUDA(cudaMemcpy(result.data(), c.device, result.size(), cudaMemcpyDeviceToHost));
    }
    EXPECT_EQ(results[0], results[1]) << "a second call gave other bits";
    auto untouched = c.host;
    int wrong = 0;
    for (std::int64_t l = 0; l < batch; ++l)
      for (std::int64_t i = 0; i < t.m; ++i) {
        std::int64_t const z = group_of[static_cast<std::size_t>(l)][static_cast<std::size_t>(i)];
        if (z < 0) continue;
        for (std::int64_t j = 0; j < t.n; ++j) {
          double sum = 0, size = 0;
          for (std::int64_t p = 0; p < t.k; ++p) {
            double const product = a.value(l, i, p) * b.value(t.shared_b ? 0 : z, p, j);
            sum += product, size += std::abs(product);
          }
          double const old = t.beta == 0 ? 0 : t.beta * c.value(l, i, j);
          double const add = t.bias ? bias.value(0, 0, j) : 0;
          double const v = t.scale * (t.alpha * sum + old) + add;
          double const r = t.residual ? residual.value(l, i, j) : 0;
          double const y = activate(t.activation, v) + r;
          double const factor = std::abs(t.scale * t.alpha);
          double error = u * static_cast<double>(t.k + 8) * size * factor +
                         4 * u * (factor * size + std::abs(t.scale * old) + std::abs(add));
          error = 1.13 * error + 4 * u * (std::abs(v) + std::abs(y) + std::abs(r)) + 0x1p-24;
          error += rounding<C>() * std::abs(y) * 1.01;
          auto const index = static_cast<std::size_t>(c.offset(l, i, j)) * sizeof(C);
          C got;
          std::memcpy(&got, &results[0][index], sizeof got);
          std::memcpy(&untouched[index], &got, sizeof got);
          double const ratio = std::abs(wide(got) - y) / error;
          if (!(ratio <= 1) && wrong++ == 0)
            ADD_FAILURE() << "[" << l << ", " << i << ", " << j << "] is " << wide(got)
                          << ", expected " << y << " ± " << error;
          if (ratio > grouped_worst) grouped_worst = ratio;
        }
      }
    EXPECT_EQ(untouched, results[0]) << "memory of no group was written";
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
  for (std::int64_t rows : {1,  15, 16,  17,  31,  32,  33,  47,  48,  63,  64,  65,  80,  81, 95,
                            96, 97, 111, 112, 113, 127, 128, 129, 191, 192, 193, 256, 257, 385}) {
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

/// Many tiles for each block, and bands of more than 16 tiles along the rows of one group.
TEST(GroupedRuns, ManyTiles) {
  GroupedCase t{{0, 2500, 2600, 4000}, 4000, 392, 136};
  run_grouped<__nv_bfloat16, __nv_bfloat16>(t);
  std::printf("all: %d runs, worst ratio to the bound %.3f\n", grouped_runs, grouped_worst);
}

TEST(GroupedRefuses, WhatItCannotDo) {
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
