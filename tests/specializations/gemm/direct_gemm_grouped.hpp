// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Runs gemm/sm90_grouped_* on ragged groups and counted rows, and compares with float64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

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

/// A number and how far a kernel's may be off.
struct Expected {
  double value, error;
};

/// The operands of a case, on the host and the device.
template <class T, class C, class Weight>
struct GroupedProblem {
  GroupedCase const& t;
  std::int64_t const lists = static_cast<std::int64_t>(t.offsets.size()),
                     groups = t.masked ? lists : lists - 1, batch = t.masked ? groups : 1,
                     pad = 16 / sizeof(T);
  Matrix<T> a{batch, t.m, t.k, false, pad, false, 1};
  Matrix<Weight> b{groups, t.k, t.n, t.trans_b, pad, t.shared_b, 2};
  Matrix<C> c{batch, t.m, t.n, t.trans_c, t.pad_c, false, 3};
  Matrix<float> bias{1, 1, t.n, false, 0, false, 4};
  Matrix<__nv_bfloat16> residual{batch, t.m, t.n, !t.trans_c, 3, false, 5};
  Matrix<float> rows{batch, 1, t.m, false, 3, false, 6},
      columns{groups, 1, t.n, false, 1, false, 7};
  Matrix<float> number{1, 1, 1, false, 0, false, 8};
  Matrix<float> blocks_a{batch, blocks(t.m, t.block_rows), blocks(t.k, 128), true, 0, false, 9};
  Matrix<float> blocks_b{groups, blocks(t.n, t.block_columns), blocks(t.k, 128), false, 1, false,
                         10};
  std::vector<std::vector<std::int64_t>> group_of;  ///< of a row of a matrix of A; none: -1
  void* list = nullptr;

  explicit GroupedProblem(GroupedCase const& problem) : t(problem) {
    number.at(0, 0, 0) = static_cast<float>(t.scale_out);
    if (t.beta == 0) c.forget();
    find_groups();
    for (std::int64_t l = 0; l < batch; ++l)
      for (std::int64_t i = 0; i < t.m; ++i)
        if (group(l, i) < 0)
          std::memset(&a.host[static_cast<std::size_t>(a.offset(l, i, 0)) * sizeof(T)], 0xFF,
                      static_cast<std::size_t>(t.k) * sizeof(T));
    a.upload(), b.upload(), c.upload(), bias.upload(), residual.upload();
    rows.upload(), columns.upload(), number.upload(), blocks_a.upload(), blocks_b.upload();
    upload_list();
  }
  GroupedProblem(GroupedProblem const&) = delete;
  GroupedProblem& operator=(GroupedProblem const&) = delete;
  ~GroupedProblem() { cudaFree(list); }

  static std::int64_t blocks(std::int64_t extent, std::int64_t size) {
    return size == 0 ? 1 : (extent + size - 1) / size;
  }
  std::int64_t group(std::int64_t l, std::int64_t i) const {
    return group_of[static_cast<std::size_t>(l)][static_cast<std::size_t>(i)];
  }

  void find_groups() {
    auto const clamp = [&](std::int64_t x) { return std::min(std::max<std::int64_t>(x, 0), t.m); };
    group_of.assign(static_cast<std::size_t>(batch),
                    std::vector<std::int64_t>(static_cast<std::size_t>(t.m), -1));
    for (std::int64_t g = 0; g < groups; ++g) {
      auto const at = static_cast<std::size_t>(g);
      std::int64_t const from = t.masked ? 0 : clamp(t.offsets[at]);
      std::int64_t const to = clamp(t.offsets[t.masked ? at : at + 1]);
      for (std::int64_t i = from; i < to; ++i)
        group_of[t.masked ? at : 0][static_cast<std::size_t>(i)] = g;
    }
  }

  /// Every second entry, so that the stride matters.
  void upload_list() {
    std::vector<std::int64_t> entries(2 * static_cast<std::size_t>(lists), -1);
    std::vector<std::int32_t> narrow(entries.size(), -1);
    for (std::size_t i = 0; i < t.offsets.size(); ++i)
      entries[2 * i] = t.offsets[i], narrow[2 * i] = static_cast<std::int32_t>(t.offsets[i]);
    std::size_t const bytes = entries.size() * (t.wide ? 8 : 4);
    ASSERT_CUDA(cudaMalloc(&list, bytes));
    ASSERT_CUDA(cudaMemcpy(list, t.wide ? static_cast<void*>(entries.data()) : narrow.data(), bytes,
                           cudaMemcpyHostToDevice));
  }

  GemmArgs arguments() const {
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
      g.scale_b = {blocks_b.begin(),
                   blocks_b.stride_batch,
                   blocks_b.stride_column,
                   blocks_b.stride_row,
                   7,
                   7};
    if (sizeof(C) == 1) g.scale_out = number.begin();
    if (t.masked) {
      g.counts = static_cast<std::int32_t const*>(list), g.counts_stride = 2;
    } else {
      g.offsets = list, g.type_offsets = t.wide ? DType::int64 : DType::int32, g.offsets_stride = 2;
      g.groups = groups;
    }
    mislead(g);
    return g;
  }

  /// u = 2^-23: k additions in the tensor core, which may cut what it adds (float8: as in
  /// test_gemm_sm90_direct.cpp; int8: none, but one rounding); then the epilogue's roundings, and
  /// that of C.
  Expected expected(std::int64_t l, std::int64_t i, std::int64_t j) const {
    double const u = 0x1p-23;
    std::int64_t const z = group(l, i);
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
        (u * roundings * (std::is_integral_v<T> ? std::abs(sum) : size) + loss.value()) * factor +
        4 * u * (factor * size + std::abs(t.scale * old) + std::abs(add));
    error = 1.13 * error + 4 * u * (std::abs(v) + std::abs(y) + std::abs(r)) + 0x1p-24;
    if constexpr (sizeof(C) == 1) {
      auto const next = quantized<C>(y, error, number.value(0, 0, 0));
      return {next.value, next.bound};
    } else if constexpr (std::is_integral_v<C>) {
      return {y, 0.5};  // exact
    } else {
      return {y, error + rounding<C>() * std::abs(y) * 1.01};
    }
  }

  /// Compares what lies where C did, and expects the rest of it as it was.
  void compare(std::vector<unsigned char> const& result) const {
    auto untouched = c.host;
    int wrong = 0;
    ResultNorms<C> norms;
    for (std::int64_t l = 0; l < batch; ++l)
      for (std::int64_t i = 0; i < t.m; ++i, norms.end_row())
        for (std::int64_t j = 0; j < t.n && group(l, i) >= 0; ++j) {
          auto const [value, error] = expected(l, i, j);
          auto const index = static_cast<std::size_t>(c.offset(l, i, j)) * sizeof(C);
          C got;
          std::memcpy(&got, &result[index], sizeof got);
          std::memcpy(&untouched[index], &got, sizeof got);
          double const ratio = std::abs(wide(got) - value) / error;
          norms.add(wide(got), value, error);
          if (!(ratio <= 1) && wrong++ == 0)
            ADD_FAILURE() << "[" << l << ", " << i << ", " << j << "] is " << wide(got)
                          << ", expected " << value << " ± " << error;
          if (ratio > grouped_worst) grouped_worst = ratio;
        }
    EXPECT_EQ(untouched, result) << "memory of no group was written";
    test::keep_worst_ratio("direct gemm/grouped", grouped_worst);
    if (t.k > 1 && t.alpha != 0) norms.check("direct gemm/grouped", "C");
  }
};

/// Runs a case twice for devices of 1 and 132 multiprocessors, and compares.
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
  GroupedProblem<T, C, Weight> problem(t);
  GemmArgs const g = problem.arguments();
  auto& c = problem.c;
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
    problem.compare(results[0]);
    ++grouped_runs;
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace
