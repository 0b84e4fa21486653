// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Cases of the Hopper kernels of matrix products called directly, and the comparison of what they
/// give with float64.
#pragma once

#include <cstring>
#include <sstream>
#include <string>

#include "direct_matrix.hpp"

namespace {

template <class A>
struct KernelOf {
  using type = abi::GemmSm90WgmmaF8;
};
template <>
struct KernelOf<__half> {
  using type = abi::GemmSm90WgmmaF16;
};
template <>
struct KernelOf<__nv_bfloat16> {
  using type = abi::GemmSm90WgmmaBf16;
};
template <>
struct KernelOf<std::int8_t> {
  using type = abi::GemmSm90WgmmaS8;
};
template <>
struct KernelOf<float> {
  using type = abi::GemmSm90SimtF32;
};
template <class A>
using KernelFor = typename KernelOf<A>::type;

struct Case {
  std::int64_t m, n, k, batch = 1;
  bool trans_a = false, trans_b = true, trans_c = false, shared_b = false;
  std::int64_t pad_c = 0;
  double alpha = 1, beta = 0, scale = 1;
  Activation activation = Activation::none;
  bool bias = false, residual = false, factors = false, fast = false;
  /// One factor for all of A, one for all of B; a scale on the device; a residual that lies as C.
  bool one_factor = false, device_scale = false, residual_as_c = false;
  BiasAlong bias_along = BiasAlong::n;
  /// Factors for every 128 along K: of `block_rows` rows of A, `block_columns` columns of B; 0:
  /// none.
  std::int64_t block_rows = 0, block_columns = 0;
  /// How those lie: consecutive rows (columns) together; consecutive blocks along K; those in lines
  /// that do not begin at multiples of 16 bytes.
  enum class Blocks { by_rows, along_k, along_k_odd } lie = Blocks::by_rows;
};

std::int64_t blocks(std::int64_t extent, std::int64_t size) {
  return size == 0 ? 1 : (extent + size - 1) / size;
}

double worst_ratio = 0;

/// Runs a case for devices of 1, 2, 8, 132 and a million multiprocessors, so that every
/// configuration has its turn, and compares C with float64.
///
/// With u = 2^-23, which covers the truncating additions of tensor cores, and S = Σ|a||b|, a sum of
/// 16-bit products is off by u(k + 8)S at most. Tensor cores align the 32 float8 products of an
/// instruction and the sum so far to the largest of them, M, and drop what is below 2^-13 of it:
/// 33·2^-13·M for each instruction. The epilogue adds rounding as in test_gemm_sm75_direct.cpp,
/// C's type its own.
template <class A, class B, class C>
void run(Case const& t) {
  SKIP_IF_LEFT_OUT(KernelFor<A>);
  Device const real = abi::query_device(abi::current_device());
  ASSERT_EQ(real.compute_major, 9) << "this suite needs a Hopper card";
  std::ostringstream text;
  text << "m" << t.m << " n" << t.n << " k" << t.k << " batch" << t.batch << " trans " << t.trans_a
       << t.trans_b << t.trans_c << " types " << static_cast<int>(dtype_of<A>()) << ' '
       << static_cast<int>(dtype_of<B>()) << ' ' << static_cast<int>(dtype_of<C>());
  SCOPED_TRACE(text.str());
  constexpr bool integer = std::is_same_v<A, std::int8_t>, float8 = !integer && sizeof(A) == 1;
  Matrix<A> a(t.batch, t.m, t.k, t.trans_a, 16, false, 1);
  Matrix<B> b(t.batch, t.k, t.n, t.trans_b, 16, t.shared_b, 2);
  Matrix<C> c(t.batch, t.m, t.n, t.trans_c, t.pad_c, false, 3);
  Matrix<float> bias(1, 1, std::max(t.m, t.n), false, 0, false, 4);
  Matrix<__nv_bfloat16> residual(t.batch, t.m, t.n, t.trans_c == t.residual_as_c,
                                 t.residual_as_c ? 4 : 3, false, 5);
  Matrix<float> rows(t.batch, 1, t.m, false, 0, false, 6),
      columns(t.batch, 1, t.n, false, 0, false, 7);
  bool const along_k = t.lie != Case::Blocks::by_rows;
  int const odd = t.lie == Case::Blocks::along_k_odd ? 1 : 0;
  Matrix<float> blocks_a(t.batch, blocks(t.m, t.block_rows), blocks(t.k, 128), !along_k, odd, false,
                         8);
  Matrix<float> blocks_b(1, blocks(t.k, 128), blocks(t.n, t.block_columns), along_k, odd, true, 9);
  if (t.beta == 0) c.forget();
  blocks_a.upload(), blocks_b.upload();
  a.upload(), b.upload(), bias.upload(), residual.upload(), rows.upload(), columns.upload();

  GemmArgs g;
  g.a = a.begin(), g.b = b.begin();
  g.type_a = dtype_of<A>(), g.type_b = dtype_of<B>(), g.type_c = dtype_of<C>();
  g.m = t.m, g.n = t.n, g.k = t.k, g.batch = t.batch;
  g.a_batch = a.stride_batch, g.a_m = a.stride_row, g.a_k = a.stride_column;
  g.b_batch = b.stride_batch, g.b_k = b.stride_row, g.b_n = b.stride_column;
  g.c_batch = c.stride_batch, g.c_m = c.stride_row, g.c_n = c.stride_column;
  g.alpha = t.alpha, g.beta = t.beta, g.scale = t.scale, g.activation = t.activation;
  if (t.bias) g.bias = bias.begin(), g.bias_along = t.bias_along, g.bias_stride = 1;
  if (t.residual) {
    g.residual = residual.begin(), g.type_residual = DType::bfloat16;
    g.residual_batch = residual.stride_batch;
    g.residual_m = residual.stride_row, g.residual_n = residual.stride_column;
  }
  if (t.factors || t.one_factor) {
    g.scale_a.data = rows.begin(), g.scale_a.row = t.one_factor ? 0 : 1;
    g.scale_b.data = columns.begin(), g.scale_b.col = t.one_factor ? 0 : 1;
    g.scale_a.batch = rows.stride_batch, g.scale_b.batch = columns.stride_batch;
  }
  if (t.device_scale) g.device_scale = columns.begin() + 1;
  if (t.block_rows != 0)
    g.scale_a = {blocks_a.begin(),       blocks_a.stride_batch,       blocks_a.stride_row,
                 blocks_a.stride_column, t.block_rows == 128 ? 7 : 0, 7};
  if (t.block_columns != 0)
    g.scale_b = {blocks_b.begin(),       0, blocks_b.stride_row,
                 blocks_b.stride_column, 7, t.block_columns == 128 ? 7 : 0};
  g.accumulate = t.fast ? Accumulate::fast : Accumulate::promoted;
  mislead(g);

  std::vector<double> expected, bounds;
  double const u = 0x1p-23;
  for (std::int64_t l = 0; l < t.batch; ++l)
    for (std::int64_t i = 0; i < t.m; ++i)
      for (std::int64_t j = 0; j < t.n; ++j) {
        double sum = 0, size = 0;
        Float8Loss loss(t.k, t.fast);
        for (std::int64_t p = 0; p < t.k; ++p) {
          double const product = a.value(l, i, p) * b.value(l, p, j);
          double const block =
              (t.block_rows == 0 ? 1 : blocks_a.value(l, i / t.block_rows, p / 128)) *
              (t.block_columns == 0 ? 1 : blocks_b.value(0, p / 128, j / t.block_columns));
          sum += block * product, size += std::abs(block * product);
          if constexpr (float8) loss.add(product, block);
        }
        double error = integer ? 0 : u * static_cast<double>(t.k + 8) * size + loss.value();
        double const factor =
            t.one_factor
                ? static_cast<double>(rows.value(l, 0, 0)) * columns.value(l, 0, 0)
                : (t.factors ? static_cast<double>(rows.value(l, 0, i)) * columns.value(l, 0, j)
                             : 1);
        double const scale = t.scale * (t.device_scale ? columns.value(0, 0, 1) : 1);
        double const old = t.beta == 0 ? 0 : t.beta * c.value(l, i, j);
        double const add = t.bias ? bias.value(0, 0, t.bias_along == BiasAlong::n ? j : i) : 0;
        double const x = scale * (t.alpha * factor * sum + old) + add;
        double const r = t.residual ? residual.value(l, i, j) : 0;
        double const y = activate(t.activation, x) + r;
        if (!std::is_same_v<C, int>) {
          double const gain = std::abs(scale * t.alpha * factor);
          error = gain * error + 6 * u * (gain * size + std::abs(scale * old)) +
                  u * (std::abs(x) + std::abs(add));
          error = 1.13 * error + 8 * u * std::abs(x) + u * (std::abs(y) + std::abs(r)) + 1e-37;
          error += rounding<C>() * (std::abs(y) + error) + 0x1p-25;
        }
        expected.push_back(y), bounds.push_back(error);
      }

  for (int sm_count : {1, 2, 8, 132, 1000000}) {
    SCOPED_TRACE("multiprocessors " + std::to_string(sm_count));
    Device d = real;
    d.sm_count = sm_count;
    c.upload();
    poison_shared_memory();
    g.c = c.begin();
    ASSERT_STREQ(KernelFor<A>::accepts(g, d).reason, "");
    ASSERT_EQ(KernelFor<A>::launch(g, d, nullptr), cudaSuccess);
    ASSERT_CUDA(cudaDeviceSynchronize());
    double worst = 0;
    compare_result(c, t.batch, t.m, t.n, expected, bounds, worst, t.k > 1 && t.alpha != 0);
    worst_ratio = std::max(worst_ratio, worst);
    if (testing::Test::HasFatalFailure() || worst > 1) return;
  }
}

}  // namespace
