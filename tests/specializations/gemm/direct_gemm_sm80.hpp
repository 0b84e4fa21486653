// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Products of all types called directly: cases, and the comparison of a kernel's result with the
/// exact sum.
#pragma once

#include <algorithm>
#include <sstream>

#include "direct_matrix.hpp"

namespace {

struct Case {
  std::int64_t m, n, k, batch = 1;
  bool trans_a = false, trans_b = true, trans_c = false, shared_b = false;
  std::int64_t pad = 0;    ///< elements between rows beside what makes them multiples of 16 bytes
  std::int64_t shift = 0;  ///< elements that addresses are past a multiple of 16 bytes
  double alpha = 1, beta = 0, scale = 1;
  Activation activation = Activation::none;
  bool bias = false, residual = false, factors = false, device_scale = false, fast = false;
  BiasAlong bias_along = BiasAlong::n;
};

double worst_ratio = 0;

/// Runs a case with each shape of tile (on one multiprocessor large ones are cheaper, on a million
/// small ones are) within 99 KiB of shared memory, and compares C with the exact sum.
///
/// With S = Σ|a||b| and u = 2^-23, which covers the truncating additions of matrix units, 2^-52 for
/// float64, a sum is off by u(k + 8)S at most; tf32 rounds both factors, 2^-10·1.001·S; tf32x3 adds
/// three products to each sum and drops less than 4uS, u(2k + 8)S in all; float8 as in
/// test_gemm_sm90_direct.cpp, where a matrix unit has few bits (sm_89). The epilogue adds rounding
/// as in test_gemm_sm75_direct.cpp, C's type its own.
template <class Kernel, class A, class B, class C>
void run(Case const& t) {
  SKIP_IF_LEFT_OUT(Kernel);
  Device const real = abi::query_device(abi::current_device());
  ASSERT_TRUE(real.at_least(8, 9)) << "this suite needs a card of sm_89 or newer";
  std::ostringstream text;
  text << Kernel::name << " m" << t.m << " n" << t.n << " k" << t.k << " batch" << t.batch
       << " trans " << t.trans_a << t.trans_b << t.trans_c << " pad" << t.pad << " shift" << t.shift
       << " C " << dtype_name(dtype_of<C>());
  SCOPED_TRACE(text.str());
  constexpr bool integer = std::is_same_v<A, std::int8_t>, float8 = !integer && sizeof(A) == 1;
  constexpr bool tf32 = std::is_same_v<Kernel, abi::GemmSm80MmaTf32>;
  constexpr bool tf32x3 = std::is_same_v<Kernel, abi::GemmSm80MmaTf32x3>;
  using Addend = std::conditional_t<std::is_same_v<A, double>, double, __nv_bfloat16>;
  Matrix<A> a(t.batch, t.m, t.k, t.trans_a, t.pad, false, 1);
  Matrix<B> b(t.batch, t.k, t.n, t.trans_b, t.pad, t.shared_b, 2);
  Matrix<C> c(t.batch, t.m, t.n, t.trans_c, t.pad, false, 3);
  Matrix<float> bias(1, 1, std::max(t.m, t.n), false, 0, false, 4);
  Matrix<Addend> residual(t.batch, t.m, t.n, !t.trans_c, 3, false, 5);
  Matrix<float> rows(1, 1, t.m, false, 0, false, 6), columns(1, 1, t.n, false, 0, false, 7);
  Matrix<float> number(1, 1, 1, false, 0, false, 8);
  fill(a, t.shift, 1), fill(b, t.shift, 2), fill(c, t.shift, 3);
  if (t.beta == 0) c.forget();
  a.upload(), b.upload(), bias.upload(), residual.upload();
  rows.upload(), columns.upload(), number.upload();

  GemmArgs g;
  g.a = a.begin(), g.b = b.begin();
  g.type_a = dtype_of<A>(), g.type_b = dtype_of<B>(), g.type_c = dtype_of<C>();
  g.m = t.m, g.n = t.n, g.k = t.k, g.batch = t.batch;
  g.a_batch = a.stride_batch, g.a_m = a.stride_row, g.a_k = a.stride_column;
  g.b_batch = b.stride_batch, g.b_k = b.stride_row, g.b_n = b.stride_column;
  g.c_batch = c.stride_batch, g.c_m = c.stride_row, g.c_n = c.stride_column;
  g.alpha = t.alpha, g.beta = t.beta, g.scale = t.scale, g.activation = t.activation;
  g.compute = tf32 ? Compute::tf32 : tf32x3 ? Compute::tf32x3 : Compute::ieee;
  if (t.bias) g.bias = bias.begin(), g.bias_along = t.bias_along, g.bias_stride = 1;
  if (t.residual) {
    g.residual = residual.begin(), g.type_residual = dtype_of<Addend>();
    g.residual_batch = residual.stride_batch;
    g.residual_m = residual.stride_row, g.residual_n = residual.stride_column;
  }
  if (t.factors) {
    g.scale_a.data = rows.begin(), g.scale_a.row = 1;
    g.scale_b.data = columns.begin(), g.scale_b.col = 1;
  }
  if (t.device_scale) g.device_scale = number.begin();
  g.accumulate = t.fast ? Accumulate::fast : Accumulate::promoted;
  mislead(g);

  std::vector<double> expected, bounds;
  double const u = std::is_same_v<A, double> ? 0x1p-52 : 0x1p-23;
  for (std::int64_t l = 0; l < t.batch; ++l)
    for (std::int64_t i = 0; i < t.m; ++i)
      for (std::int64_t j = 0; j < t.n; ++j) {
        long double exact = 0;
        double size = 0;
        Float8Loss loss(t.k, t.fast);
        for (std::int64_t p = 0; p < t.k; ++p) {
          long double const product = static_cast<long double>(a.value(l, i, p)) * b.value(l, p, j);
          exact += product, size += std::abs(static_cast<double>(product));
          if constexpr (float8) loss.add(static_cast<double>(product));
        }
        double const sum = static_cast<double>(exact);
        double error =
            integer ? 0 : u * static_cast<double>((tf32x3 ? 2 : 1) * t.k + 8) * size + loss.value();
        if (tf32) error += 0x1p-10 * 1.001 * size;
        double const factor = t.factors ? rows.value(0, 0, i) * columns.value(0, 0, j) : 1;
        double const scale = t.device_scale ? t.scale * number.value(0, 0, 0) : t.scale;
        double const old = t.beta == 0 ? 0 : t.beta * c.value(l, i, j);
        double const add = t.bias ? bias.value(0, 0, t.bias_along == BiasAlong::n ? j : i) : 0;
        double const x = scale * (t.alpha * factor * sum + old) + add;
        double const r = t.residual ? residual.value(l, i, j) : 0;
        double const y = activate(t.activation, x) + r;
        if (!std::is_same_v<C, int>) {
          double const gain = std::abs(scale * t.alpha * factor);
          error = gain * error + 7 * u * (gain * size + std::abs(scale * old)) +
                  u * (std::abs(x) + std::abs(add));
          error = 1.13 * error + 8 * u * std::abs(x) + u * (std::abs(y) + std::abs(r)) + 1e-37;
          error += rounding<C>() * (std::abs(y) + error);
          if (sizeof(C) == 2) error += 0x1p-25;
        }
        expected.push_back(y), bounds.push_back(error);
      }

  // Has one shape of tile, for many.
  bool const sm90 = std::is_same_v<Kernel, abi::GemmSm90MmaF64>;
  for (int sm_count : sm90 ? std::vector<int>{1} : std::vector<int>{1, 1000000}) {
    SCOPED_TRACE("multiprocessors " + std::to_string(sm_count));
    Device d = real;
    d.sm_count = sm_count;
    d.shared_memory_per_block_optin = 99 * 1024;
    c.upload();
    poison_shared_memory();
    g.c = c.begin();
    ASSERT_STREQ(Kernel::accepts(g, d).reason, "");
    ASSERT_EQ(Kernel::launch(g, d, nullptr), cudaSuccess);
    ASSERT_CUDA(cudaDeviceSynchronize());
    double worst = 0;
    compare_result(c, t.batch, t.m, t.n, expected, bounds, worst, t.k > 1 && t.alpha != 0);
    worst_ratio = std::max(worst_ratio, worst);
    if (testing::Test::HasFatalFailure() || worst > 1) return;
  }
}

}  // namespace
