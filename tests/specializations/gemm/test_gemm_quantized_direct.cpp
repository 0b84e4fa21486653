// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// 8-bit C of the kernels for products, called directly over memory of cudaMalloc: scales of A, B
// and C, epilogues, saturation and NaN against float64. QuantizedRuns fails
// without a Hopper card.
#include <array>
#include <cstring>
#include <sstream>
#include <string>

#include "direct_matrix.hpp"

namespace {

using I8 = std::int8_t;

struct Case {
  std::int64_t m, n, k, batch = 1;
  bool trans_a = false, trans_b = true, trans_c = false;
  std::int64_t pad_c = 0;
  double alpha = 1, scale = 1;
  Activation activation = Activation::none;
  bool bias = false, residual = false, factors = false, one_factor = false, device_scale = false;
  BiasAlong bias_along = BiasAlong::n;
  double reach = 2;       ///< root mean squares of the result that are the largest number of C
  bool scale_out = true;  ///< else scale takes its place
  bool extremes = false;  ///< the first bias is NaN, the next two are infinities
};

double worst_ratio = 0;

/// Whether results differ enough to be rounded independently of each other (error_norms.hpp): what
/// an activation brings close to 0, which 8 bits hold as few values, does not, nor do small
/// integers.
template <class C>
bool has_norms(Case const& t) {
  return t.k > 1 && t.alpha != 0 && t.activation == Activation::none &&
         (t.scale_out || !std::is_same_v<C, I8>);
}

/// Runs a case on devices of few and of many multiprocessors, so that every configuration has its
/// turn. Errors of sums are those of test_gemm_sm90_direct.cpp.
template <class Kernel, class A, class B, class C>
void run(Case const& t) {
  SKIP_IF_LEFT_OUT(Kernel);
  Device const real = abi::query_device(abi::current_device());
  ASSERT_EQ(real.compute_major, 9) << "this suite needs a Hopper card";
  std::ostringstream text;
  text << Kernel::name << " m" << t.m << " n" << t.n << " k" << t.k << " trans " << t.trans_a
       << t.trans_b << t.trans_c << " to " << dtype_name(dtype_of<C>());
  SCOPED_TRACE(text.str());
  constexpr bool integer = std::is_same_v<A, I8>, float8 = !integer && sizeof(A) == 1;
  Matrix<A> a(t.batch, t.m, t.k, t.trans_a, 16, false, 1);
  Matrix<B> b(t.batch, t.k, t.n, t.trans_b, 16, false, 2);
  Matrix<C> c(t.batch, t.m, t.n, t.trans_c, t.pad_c, false, 3);
  Matrix<float> bias(1, 1, std::max(t.m, t.n), false, 0, false, 4);
  Matrix<__nv_bfloat16> residual(t.batch, t.m, t.n, t.trans_c, 4, false, 5);
  Matrix<float> rows(1, 1, t.m, false, 0, false, 6), columns(1, 1, t.n, false, 0, false, 7);
  Matrix<float> numbers(1, 1, 2, false, 0, false, 8);
  c.forget();
  if (t.extremes) bias.at(0, 0, 0) = NAN, bias.at(0, 0, 1) = INFINITY, bias.at(0, 0, 2) = -INFINITY;

  GemmArgs g;
  g.type_a = dtype_of<A>(), g.type_b = dtype_of<B>(), g.type_c = dtype_of<C>();
  g.m = t.m, g.n = t.n, g.k = t.k, g.batch = t.batch;
  g.a_batch = a.stride_batch, g.a_m = a.stride_row, g.a_k = a.stride_column;
  g.b_batch = b.stride_batch, g.b_k = b.stride_row, g.b_n = b.stride_column;
  g.c_batch = c.stride_batch, g.c_m = c.stride_row, g.c_n = c.stride_column;
  g.alpha = t.alpha, g.scale = t.scale, g.activation = t.activation;

  std::vector<double> exact, errors;
  double const u = 0x1p-23;
  double squares = 0;
  for (std::int64_t l = 0; l < t.batch; ++l)
    for (std::int64_t i = 0; i < t.m; ++i)
      for (std::int64_t j = 0; j < t.n; ++j) {
        double sum = 0, size = 0;
        Float8Loss loss(t.k);
        for (std::int64_t p = 0; p < t.k; ++p) {
          double const product = a.value(l, i, p) * b.value(l, p, j);
          sum += product, size += std::abs(product);
          if constexpr (float8) loss.add(product);
        }
        double error = integer ? 0 : u * static_cast<double>(t.k + 8) * size + loss.value();
        double const factor = t.one_factor
                                  ? rows.value(0, 0, 0) * columns.value(0, 0, 0)
                                  : (t.factors ? rows.value(0, 0, i) * columns.value(0, 0, j) : 1);
        double const scale = t.scale * (t.device_scale ? numbers.value(0, 0, 1) : 1);
        double const add = t.bias ? bias.value(0, 0, t.bias_along == BiasAlong::n ? j : i) : 0;
        double const x = scale * t.alpha * factor * sum + add;
        double const r = t.residual ? residual.value(l, i, j) : 0;
        double const y = activate(t.activation, x) + r;
        double const gain = std::abs(scale * t.alpha * factor);
        error = gain * error + 6 * u * gain * size + u * (std::abs(x) + std::abs(add));
        error = 1.13 * error + 8 * u * std::abs(x) + u * (std::abs(y) + std::abs(r)) + 1e-37;
        exact.push_back(y), errors.push_back(error);
        if (std::isfinite(y)) squares += y * y;
      }
  double const mean = std::sqrt(squares / static_cast<double>(exact.size()));
  auto divisor = static_cast<double>(static_cast<float>(t.reach * mean / largest<C>() + 1e-30));
  if (!t.scale_out) divisor = 1;
  numbers.at(0, 0, 0) = static_cast<float>(divisor);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    auto const [value, bound] = quantized<C>(exact[i], errors[i], divisor);
    exact[i] = value, errors[i] = bound;
  }

  a.upload(), b.upload(), bias.upload(), residual.upload(), rows.upload(), columns.upload();
  numbers.upload();
  g.a = a.begin(), g.b = b.begin();
  if (t.bias) g.bias = bias.begin(), g.bias_along = t.bias_along, g.bias_stride = 1;
  if (t.residual) {
    g.residual = residual.begin(), g.type_residual = DType::bfloat16;
    g.residual_batch = residual.stride_batch;
    g.residual_m = residual.stride_row, g.residual_n = residual.stride_column;
  }
  if (t.factors || t.one_factor) {
    g.scale_a.data = rows.begin(), g.scale_a.row = t.one_factor ? 0 : 1;
    g.scale_b.data = columns.begin(), g.scale_b.col = t.one_factor ? 0 : 1;
  }
  if (t.scale_out) g.scale_out = numbers.begin();
  if (t.device_scale) g.device_scale = numbers.begin() + 1;
  mislead(g);
  for (int sm_count : {1, 8, 132, 1000000}) {
    SCOPED_TRACE("multiprocessors " + std::to_string(sm_count));
    Device d = real;
    d.sm_count = sm_count;
    c.upload();
    poison_shared_memory();
    g.c = c.begin();
    ASSERT_STREQ(Kernel::accepts(g, d).reason, "");
    ASSERT_EQ(Kernel::launch(g, d, nullptr), cudaSuccess);
    ASSERT_CUDA(cudaDeviceSynchronize());
    std::vector<unsigned char> result(c.host.size());
    ASSERT_CUDA(cudaMemcpy(result.data(), c.device, result.size(), cudaMemcpyDeviceToHost));
    auto untouched = c.host;
    std::size_t at = 0;
    int wrong = 0;
    double worst = 0;
    ResultNorms<C> norms;
    for (std::int64_t l = 0; l < t.batch; ++l)
      for (std::int64_t i = 0; i < t.m; ++i, norms.end_row())
        for (std::int64_t j = 0; j < t.n; ++j, ++at) {
          auto const index = static_cast<std::size_t>(c.offset(l, i, j));
          C got;
          std::memcpy(&got, &result[index], 1);
          untouched[index] = result[index];
          norms.add(wide(got), exact[at], errors[at]);
          if (std::isnan(exact[at]) ? std::isnan(wide(got)) : wide(got) == exact[at]) continue;
          double const difference = std::abs(wide(got) - exact[at]);
          double const ratio = difference == 0 ? 0 : difference / errors[at];
          if (!(ratio <= 1) && wrong++ == 0)
            ADD_FAILURE() << "[" << l << ", " << i << ", " << j << "] is " << wide(got)
                          << ", expected " << exact[at] << " ± " << errors[at];
          worst = std::max(worst, std::isnan(ratio) ? INFINITY : ratio);
        }
    worst_ratio = std::max(worst_ratio, worst);
    EXPECT_EQ(untouched, result) << "memory around C was written";
    test::keep_worst_ratio(std::string("direct ") + Kernel::name, worst);
    if (has_norms<C>(t)) norms.check(std::string("direct ") + Kernel::name, "C");
    if (testing::Test::HasFailure()) return;
  }
}

/// Extents around those of tiles and of the copy engine's 16 bytes; all transpositions.
template <class Kernel, class A, class B, class C>
void shapes(bool any_layout = false) {
  int turn = 0;
  for (auto [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                         {5, 131, 64},
                         {131, 3, 129},
                         {24, 72, 264},
                         {128, 128, 128},
                         {129, 256, 96},
                         {200, 272, 200},
                         {300, 260, 72},
                         {257, 131, 449}})
    for (int layout = 0; layout < 8; ++layout, ++turn) {
      Case t{m, n, k};
      t.trans_c = (layout & 1) != 0, t.trans_a = (layout & 2) != 0, t.trans_b = (layout & 4) == 0;
      if (sizeof(A) == 1 && !any_layout && t.trans_a && !t.trans_b && t.k > 1) continue;
      t.pad_c = turn % 3 == 2 ? 3 : 0, t.reach = turn % 2 == 0 ? 2 : 500;
      run<Kernel, A, B, C>(t);
      if (testing::Test::HasFailure()) return;
    }
}

template <class Kernel, class A, class B, class C>
void epilogues() {
  int turn = 0;
  for (std::int64_t n : {144, 140, 131, 24})
    for (std::int64_t m : {24, 300})
      for (int layout = 0; layout < 4; ++layout, ++turn) {
        Case t{m, n, 200};
        t.alpha = 0.7, t.scale = turn % 2 == 0 ? 1 : 1.3, t.batch = 2, t.pad_c = layout == 3;
        t.device_scale = turn % 3 == 0, t.activation = static_cast<Activation>(turn % 5);
        t.bias = turn % 7 != 0, t.bias_along = turn % 3 == 1 ? BiasAlong::m : BiasAlong::n;
        t.factors = sizeof(A) == 1 && turn % 4 != 0, t.one_factor = sizeof(A) == 1 && turn % 4 == 3;
        t.residual = turn % 5 < 2, t.reach = turn % 2 == 0 ? 3 : 40;
        t.trans_b = layout != 1, t.trans_c = layout == 2;
        run<Kernel, A, B, C>(t);
        if (testing::Test::HasFailure()) return;
      }
}

/// NaN and infinities; and without a scale of the output.
template <class Kernel, class A, class B, class C>
void extremes() {
  for (std::int64_t m : {20, 140})
    for (bool trans_c : {false, true}) {
      Case t{m, 144, 80};
      t.bias = t.extremes = true, t.trans_c = trans_c;
      run<Kernel, A, B, C>(t);
      t.scale_out = t.extremes = false, t.scale = 0.01;
      run<Kernel, A, B, C>(t);
      if (testing::Test::HasFailure()) return;
    }
}

template <class Kernel, class A, class B, class C>
void all() {
  shapes<Kernel, A, B, C>(!std::is_same_v<Kernel, abi::GemmSm90WgmmaF8> &&
                          !std::is_same_v<Kernel, abi::GemmSm90WgmmaS8>);
  epilogues<Kernel, A, B, C>();
  extremes<Kernel, A, B, C>();
  std::printf("%s: worst error / bound so far %.3f\n", Kernel::name, worst_ratio);
}

TEST(QuantizedRuns, Sm90Int8) { all<abi::GemmSm90WgmmaS8, I8, I8, I8>(); }
TEST(QuantizedRuns, Sm90Float8) { all<abi::GemmSm90WgmmaF8, E4, E4, E4>(); }
TEST(QuantizedRuns, Sm90Float8Mixed) {
  all<abi::GemmSm90WgmmaF8, E4, E5, E5>();
  epilogues<abi::GemmSm90WgmmaF8, E5, E4, I8>();
}
TEST(QuantizedRuns, Sm90Float16) { all<abi::GemmSm90WgmmaF16, __half, __half, E4>(); }
TEST(QuantizedRuns, Sm90Bfloat16) {
  all<abi::GemmSm90WgmmaBf16, __nv_bfloat16, __nv_bfloat16, I8>();
}
TEST(QuantizedRuns, Sm80Int8) { all<abi::GemmSm80MmaS8, I8, I8, I8>(); }
TEST(QuantizedRuns, Sm80Float16) { all<abi::GemmSm80MmaF16, __half, __half, E5>(); }
TEST(QuantizedRuns, Sm89Float8) { all<abi::GemmSm89MmaF8, E4, E5, E4>(); }

/// Pairs of blocks, wide tiles of an A from registers, and K shared out.
TEST(QuantizedRuns, OtherConfigurations) {
  for (bool trans_a : {false, true}) {
    Case t{257, 528, 4112};
    t.trans_a = trans_a, t.bias = true;
    run<abi::GemmSm90WgmmaS8, I8, I8, I8>(t);
    run<abi::GemmSm90WgmmaF8, E4, E4, E4>(t);
    t.m = 16, t.n = 200;
    run<abi::GemmSm90WgmmaS8, I8, I8, I8>(t);
    run<abi::GemmSm90WgmmaF8, E4, E4, E5>(t);
  }
}

TEST(QuantizedRefuses, WhatAnEightBitCCannotDo) {
  SKIP_IF_LEFT_OUT(abi::GemmSm90WgmmaS8, abi::GemmSm80MmaS8, abi::GemmSm90WgmmaF8,
                   abi::GemmSm89MmaF8);
  alignas(16) static float somewhere[4];
  Device const hopper{0, 9, 0, abi::Architecture::hopper, 132, 232448};
  GemmArgs g;
  g.a = g.b = g.c = somewhere;
  g.type_a = g.type_b = g.type_c = DType::int8;
  g.m = 48, g.n = 32, g.k = 16, g.batch = 1;
  g.a_m = 16, g.a_k = 1, g.b_k = 1, g.b_n = 16, g.c_m = 32, g.c_n = 1;
  g.scale_out = somewhere;
  EXPECT_STREQ(abi::GemmSm90WgmmaS8::accepts(g, hopper).reason, "");
  EXPECT_STREQ(abi::GemmSm80MmaS8::accepts(g, hopper).reason, "");
  g.zero_point_a = reinterpret_cast<int const*>(somewhere);
  EXPECT_STREQ(abi::GemmSm90WgmmaS8::accepts(g, hopper).reason, "it has no zero points");
  g.zero_point_a = nullptr, g.beta = 1;
  EXPECT_STREQ(abi::GemmSm90WgmmaS8::accepts(g, hopper).reason, "8-bit C takes beta 0");
  EXPECT_STREQ(abi::GemmSm80MmaS8::accepts(g, hopper).reason, "8-bit C takes beta 0");
  g.beta = 0, g.type_c = DType::float32;
  EXPECT_STREQ(abi::GemmSm90WgmmaS8::accepts(g, hopper).reason, "it does not quantize its result");
  EXPECT_STREQ(abi::GemmSm80MmaS8::accepts(g, hopper).reason, "it does not quantize its result");
  g.type_a = g.type_b = DType::float8_e4m3, g.type_c = DType::float8_e5m2;
  EXPECT_STREQ(abi::GemmSm90WgmmaF8::accepts(g, hopper).reason, "");
  EXPECT_STREQ(abi::GemmSm89MmaF8::accepts(g, hopper).reason, "");
  g.beta = 1;
  EXPECT_STREQ(abi::GemmSm89MmaF8::accepts(g, hopper).reason, "8-bit C takes beta 0");
}

}  // namespace
