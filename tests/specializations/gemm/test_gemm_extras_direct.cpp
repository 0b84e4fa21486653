// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The argument of act as a second output of the kernels of matrix products, and zero points of int8
// factors, called directly over memory of cudaMalloc. The suites whose names end
// in Runs fail without a Hopper card.
#include <array>
#include <sstream>
#include <string>

#include "direct_matrix.hpp"

namespace {

using I8 = std::int8_t;
using Bf = __nv_bfloat16;

/// Whether an operand has zero points: one for all, or one for each line, every other of an array.
enum class Zeros { none, one, each };

struct Case {
  std::int64_t m, n, k, batch = 1;
  bool trans_a = false, trans_b = true, trans_c = false;
  bool wanted = true, trans_pre = false;  ///< the pre-activation, and whether its columns lie dense
  std::int64_t pad = 0, pad_pre = 0;      ///< elements between lines; of A and B 16 more
  std::int64_t pad_ab = 16;
  double alpha = 1, beta = 0, scale = 1;
  Activation activation = Activation::none;
  bool bias = false, residual = false, factors = false, device_scale = false, scale_out = false;
  BiasAlong bias_along = BiasAlong::n;
  Zeros zero_a = Zeros::none, zero_b = Zeros::none;
  bool wraps = false;  ///< zero points so large that sums wrap around
  int groups = 0;      ///< of rows, with the same B
};

/// The largest number of multiprocessors of which a kernel still takes few tiles.
template <class Kernel>
std::vector<int> devices() {
  if constexpr (std::is_same_v<Kernel, abi::GemmSm90MmaF64>) return {1};
  if constexpr (std::is_same_v<Kernel, abi::GemmSm90WgmmaTf32x3>) return {1, 4};
  return {1, 8, 132, 1000000};
}

double worst_ratio = 0;

/// Runs a case on as many multiprocessors as bring every configuration its turn, and compares C and
/// the pre-activation with float64; see test_gemm_sm90_direct.cpp for the bounds. Integer sums are
/// those of the definition, modulo 2^32.
template <class Kernel, class A, class C, class P>
void run(Case const& t) {
  SKIP_IF_LEFT_OUT(Kernel);
  Device const real = abi::query_device(abi::current_device());
  ASSERT_EQ(real.compute_major, 9) << "this suite needs a Hopper card";
  std::ostringstream text;
  text << Kernel::name << " m" << t.m << " n" << t.n << " k" << t.k << " batch" << t.batch
       << " trans " << t.trans_a << t.trans_b << t.trans_c << t.trans_pre << " pad " << t.pad << ' '
       << t.pad_pre << " C " << dtype_name(dtype_of<C>()) << " pre " << dtype_name(dtype_of<P>());
  SCOPED_TRACE(text.str());
  constexpr bool integer = std::is_same_v<A, I8>, float8 = !integer && sizeof(A) == 1;
  constexpr bool tf32 = std::is_same_v<Kernel, abi::GemmSm80MmaTf32>;
  Matrix<A> a(t.batch, t.m, t.k, t.trans_a, t.pad_ab, false, 1);
  Matrix<A> b(t.batch, t.k, t.n, t.trans_b, t.pad_ab, t.groups != 0, 2);
  Matrix<C> c(t.batch, t.m, t.n, t.trans_c, t.pad, false, 3);
  Matrix<P> pre(t.batch, t.m, t.n, t.trans_pre, t.pad_pre, false, 4);
  Matrix<float> bias(1, 1, std::max(t.m, t.n), false, 0, false, 5);
  Matrix<Bf> residual(t.batch, t.m, t.n, t.trans_c, 4, false, 6);
  Matrix<float> rows(1, 1, t.m, false, 0, false, 7), columns(1, 1, t.n, false, 0, false, 8);
  Matrix<float> numbers(1, 1, 2, false, 0, false, 9);
  Matrix<int> zeros_a(1, 1, 2 * t.m, false, 0, false, 10),
      zeros_b(1, 1, 2 * t.n, false, 0, false, 11);
  Matrix<int> offsets(1, 1, t.groups + 1, false, 0, false, 12);
  numbers.at(0, 0, 0) = 0.25f;
  if (t.wraps) {
    for (std::int64_t i = 0; i < 2 * t.m; ++i) zeros_a.at(0, 0, i) *= 0x1010101;
    for (std::int64_t j = 0; j < 2 * t.n; ++j) zeros_b.at(0, 0, j) *= 0xABCDEF;
  }
  for (int i = 0; i <= t.groups && t.groups > 0; ++i)
    offsets.at(0, 0, i) = static_cast<int>(t.m * i / t.groups);
  if (t.beta == 0) c.forget();
  pre.forget();
  a.upload(), b.upload(), bias.upload(), residual.upload(), rows.upload(), columns.upload();
  numbers.upload(), zeros_a.upload(), zeros_b.upload(), offsets.upload();

  GemmArgs g;
  g.a = a.begin(), g.b = b.begin();
  g.type_a = g.type_b = dtype_of<A>(), g.type_c = dtype_of<C>();
  g.m = t.m, g.n = t.n, g.k = t.k, g.batch = t.batch;
  g.a_batch = a.stride_batch, g.a_m = a.stride_row, g.a_k = a.stride_column;
  g.b_batch = b.stride_batch, g.b_k = b.stride_row, g.b_n = b.stride_column;
  g.c_batch = c.stride_batch, g.c_m = c.stride_row, g.c_n = c.stride_column;
  g.alpha = t.alpha, g.beta = t.beta, g.scale = t.scale, g.activation = t.activation;
  g.compute = tf32 ? Compute::tf32
              : std::is_same_v<Kernel, abi::GemmSm90WgmmaTf32x3> ||
                      std::is_same_v<Kernel, abi::GemmSm80MmaTf32x3>
                  ? Compute::tf32x3
                  : Compute::ieee;
  if (t.bias) g.bias = bias.begin(), g.bias_along = t.bias_along, g.bias_stride = 1;
  if (t.residual) {
    g.residual = residual.begin(), g.type_residual = DType::bfloat16;
    g.residual_batch = residual.stride_batch;
    g.residual_m = residual.stride_row, g.residual_n = residual.stride_column;
  }
  if (t.factors) {
    g.scale_a.data = rows.begin(), g.scale_a.row = 1;
    g.scale_b.data = columns.begin(), g.scale_b.col = 1;
  }
  if (t.scale_out) g.scale_out = numbers.begin();
  if (t.device_scale) g.device_scale = numbers.begin() + 1;
  if (t.zero_a != Zeros::none)
    g.zero_point_a = zeros_a.begin(), g.zero_point_a_stride = t.zero_a == Zeros::each ? 2 : 0;
  if (t.zero_b != Zeros::none)
    g.zero_point_b = zeros_b.begin(), g.zero_point_b_stride = t.zero_b == Zeros::each ? 2 : 0;
  if (t.groups > 0) {
    g.offsets = offsets.begin(), g.offsets_stride = 1, g.groups = t.groups;
    g.b_batch = 0;
  }

  auto const zero = [](Zeros have, Matrix<int> const& z, std::int64_t line) {
    return have == Zeros::none
               ? std::int64_t{0}
               : static_cast<std::int64_t>(z.value(0, 0, have == Zeros::each ? 2 * line : 0));
  };
  std::vector<double> expected, bounds, arguments, argument_bounds;
  constexpr bool doubles = std::is_same_v<A, double>;
  double const u = doubles ? 0x1p-52 : 0x1p-23;
  double const narrow = std::is_same_v<P, double> || sizeof(P) == 4 ? 0 : 0x1p-25;
  for (std::int64_t l = 0; l < t.batch; ++l)
    for (std::int64_t i = 0; i < t.m; ++i)
      for (std::int64_t j = 0; j < t.n; ++j) {
        double sum = 0, size = 0;
        Float8Loss loss(t.k);
        std::uint64_t whole = 0;
        std::int64_t const za = zero(t.zero_a, zeros_a, i), zb = zero(t.zero_b, zeros_b, j);
        for (std::int64_t p = 0; p < t.k; ++p) {
          double const x = a.value(l, i, p), y = b.value(l, p, j), product = x * y;
          if constexpr (integer) {
            whole += static_cast<std::uint64_t>(static_cast<std::int64_t>(x) - za) *
                     static_cast<std::uint64_t>(static_cast<std::int64_t>(y) - zb);
          } else {
            sum += product, size += std::abs(product);
          }
          if constexpr (float8) loss.add(product);
        }
        if (integer) {
          sum = static_cast<double>(static_cast<std::int32_t>(static_cast<std::uint32_t>(whole)));
          size = std::abs(sum);
        }
        double error = integer ? 0 : u * static_cast<double>(2 * t.k + 8) * size + loss.value();
        if (tf32) error += 0x1p-10 * 1.001 * size;
        double const factor = t.factors ? rows.value(0, 0, i) * columns.value(0, 0, j) : 1;
        double const scale = t.scale * (t.device_scale ? numbers.value(0, 0, 1) : 1);
        double const old = t.beta == 0 ? 0 : t.beta * c.value(l, i, j);
        double const add = t.bias ? bias.value(0, 0, t.bias_along == BiasAlong::n ? j : i) : 0;
        double const x = scale * (t.alpha * factor * sum + old) + add;
        double const r = t.residual ? residual.value(l, i, j) : 0;
        double const y = activate(t.activation, x) + r;
        double const gain = std::abs(scale * t.alpha * factor);
        error = gain * error + 7 * u * (gain * size + std::abs(scale * old)) +
                u * (std::abs(x) + std::abs(add)) + 1e-37;
        arguments.push_back(x);
        argument_bounds.push_back(error + rounding<P>() * (std::abs(x) + error) + narrow);
        error = 1.13 * error + 8 * u * std::abs(x) + u * (std::abs(y) + std::abs(r));
        if constexpr (sizeof(C) == 1) {
          auto const [value, bound] = quantized<C>(y, error, t.scale_out ? 0.25 : 1);
          expected.push_back(value), bounds.push_back(bound);
        } else {
          error += rounding<C>() * (std::abs(y) + error) + (sizeof(C) == 2 ? 0x1p-25 : 0);
          expected.push_back(y), bounds.push_back(std::is_same_v<C, int> ? 0 : error);
        }
      }

  for (int sm_count : devices<Kernel>()) {
    SCOPED_TRACE("multiprocessors " + std::to_string(sm_count));
    Device d = real;
    d.sm_count = sm_count;
    c.upload(), pre.upload();
    g.c = c.begin();
    if (t.wanted) {
      g.pre_activation = pre.begin(), g.type_pre_activation = dtype_of<P>();
      g.pre_activation_batch = pre.stride_batch;
      g.pre_activation_m = pre.stride_row, g.pre_activation_n = pre.stride_column;
    }
    ASSERT_STREQ(Kernel::accepts(g, d).reason, "");
    ASSERT_EQ(Kernel::launch(g, d, nullptr), cudaSuccess);
    ASSERT_CUDA(cudaDeviceSynchronize());
    double worst = 0;
    compare_result(c, t.batch, t.m, t.n, expected, bounds, worst, t.k > 1 && t.alpha != 0);
    worst_ratio = std::max(worst_ratio, worst);
    if (testing::Test::HasFatalFailure() || worst > 1) return;
    if (!t.wanted) continue;
    SCOPED_TRACE("pre-activation");
    compare_result(pre, t.batch, t.m, t.n, arguments, argument_bounds, worst,
                   t.k > 1 && t.alpha != 0);
    worst_ratio = std::max(worst_ratio, worst);
    if (testing::Test::HasFatalFailure() || worst > 1) return;
  }
}

/// Extents around those of tiles and of groups of four, each with another activation, bias, layout
/// of the operands, C and the pre-activation; lines of both that begin anywhere.
template <class Kernel, class A, class C, class P>
void pre_activations(bool any_layout = true) {
  int turn = static_cast<int>(sizeof(C) + 3 * sizeof(P));
  for (auto [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 16},
                         {5, 131, 64},
                         {24, 72, 264},
                         {131, 3, 129},
                         {128, 128, 128},
                         {129, 260, 40},
                         {300, 132, 72}})
    for (int layout = 0; layout < 4; ++layout, ++turn) {
      Case t{m, n, k, 1 + turn % 2};
      if (m * n * k == 16) t.batch = 1;  // small batches are for other kernels
      t.trans_a = turn % 3 == 1, t.trans_b = layout != 3 || (!any_layout && t.trans_a);
      t.trans_c = layout == 1, t.trans_pre = layout == 1 || layout == 2;
      t.pad = turn % 5 == 2 ? 1 : 4, t.pad_pre = turn % 3 == 2 ? 3 : 0;
      t.activation = static_cast<Activation>(turn % 5);
      t.alpha = 0.7, t.scale = turn % 2 == 0 ? 1 : 1.3, t.device_scale = turn % 4 == 3;
      t.bias = turn % 7 != 0, t.bias_along = turn % 3 == 1 ? BiasAlong::m : BiasAlong::n;
      t.factors = sizeof(A) == 1 && turn % 4 != 0;
      t.residual = turn % 6 < 2, t.scale_out = sizeof(C) == 1;
      if (sizeof(C) > 1 && turn % 6 > 3) t.beta = 0.3;
      run<Kernel, A, C, P>(t);
      if (testing::Test::HasFailure()) return;
    }
  // Nothing but the second output.
  run<Kernel, A, C, P>({140, 136, 200});
}

TEST(PreActivationRuns, Sm90Float16) {
  pre_activations<abi::GemmSm90WgmmaF16, __half, __half, __half>();
  pre_activations<abi::GemmSm90WgmmaF16, __half, float, Bf>();
}
TEST(PreActivationRuns, Sm90Bfloat16) {
  pre_activations<abi::GemmSm90WgmmaBf16, Bf, Bf, Bf>();
  pre_activations<abi::GemmSm90WgmmaBf16, Bf, Bf, float>();
}
TEST(PreActivationRuns, Sm90Float8) {
  pre_activations<abi::GemmSm90WgmmaF8, E4, Bf, Bf>(false);
  pre_activations<abi::GemmSm90WgmmaF8, E4, E4, __half>(false);
}
TEST(PreActivationRuns, Sm90Int8) {
  pre_activations<abi::GemmSm90WgmmaS8, I8, Bf, Bf>(false);
  pre_activations<abi::GemmSm90WgmmaS8, I8, I8, float>(false);
}
TEST(PreActivationRuns, Sm90Float32) {
  pre_activations<abi::GemmSm90SimtF32, float, float, float>();
  Case t{130, 132, 72};
  t.activation = Activation::gelu, t.bias = true;
  run<abi::GemmSm90WgmmaTf32x3, float, float, __half>(t);
  t.m = 250, t.pad = t.pad_pre = 1, t.trans_b = false;
  run<abi::GemmSm90WgmmaTf32x3, float, float, __half>(t);
}
TEST(PreActivationRuns, Sm90Float64) {
  for (bool trans_c : {false, true}) {
    Case t{140, 131, 50, 3};
    t.pad_ab = 2, t.alpha = -0.7, t.beta = 0.3, t.bias = true, t.activation = Activation::silu;
    t.trans_c = trans_c, t.pad = t.pad_pre = 3;
    run<abi::GemmSm90MmaF64, double, double, double>(t);
  }
}
TEST(PreActivationRuns, Sm80) {
  pre_activations<abi::GemmSm80MmaF16, __half, __half, __half>();
  pre_activations<abi::GemmSm80MmaBf16, Bf, float, Bf>();
  pre_activations<abi::GemmSm80MmaF64, double, double, double>();
  pre_activations<abi::GemmSm80MmaTf32, float, float, float>();
  pre_activations<abi::GemmSm80MmaTf32x3, float, float, __half>();
  pre_activations<abi::GemmSm80SimtF32, float, float, Bf>();
  pre_activations<abi::GemmSm80MmaS8, I8, Bf, float>();
  pre_activations<abi::GemmSm89MmaF8, E4, Bf, Bf>();
}

/// The other types that a float64 product's may have.
TEST(PreActivationRuns, Float64Rounded) {
  Case t{70, 33, 20};
  t.activation = Activation::relu;
  run<abi::GemmSm80MmaF64, double, double, float>(t);
  run<abi::GemmSm80MmaF64, double, double, __half>(t);
  run<abi::GemmSm80MmaF64, double, double, Bf>(t);
}

/// Tiles of all widths, pairs of blocks, few tiles whose K is shared out, A from registers.
TEST(PreActivationRuns, OtherConfigurations) {
  for (auto [m, n, k] : {std::array<std::int64_t, 3>{257, 528, 1040},
                         {16, 200, 8208},
                         {100, 116, 12304},
                         {1000, 1144, 72}})
    for (bool trans : {false, true}) {
      Case t{m, n, k};
      t.bias = true, t.activation = Activation::gelu_tanh, t.trans_a = trans;
      run<abi::GemmSm90WgmmaBf16, Bf, Bf, Bf>(t);
      if (k < 2000) run<abi::GemmSm90WgmmaS8, I8, Bf, Bf>(t);
      if (testing::Test::HasFailure()) return;
    }
}

TEST(PreActivationRuns, Grouped) {
  for (std::int64_t n : {264, 131}) {
    Case t{300, n, 72};
    t.groups = 3, t.bias = true, t.activation = Activation::gelu, t.pad_pre = n % 2;
    run<abi::GemmSm90GroupedBf16, Bf, Bf, Bf>(t);
    t.activation = Activation::none, t.bias = false;  // nothing but the second output
    run<abi::GemmSm90GroupedBf16, Bf, Bf, Bf>(t);
  }
}

TEST(PreActivationRuns, SumsOfNothing) {
  Case t{70, 33, 0};
  t.bias = true, t.activation = Activation::silu;
  run<abi::GemmSm80MmaF16, __half, __half, __half>(t);
  run<abi::GemmSm80MmaF64, double, double, double>(t);
  for (auto [m, n, batch] : {std::array<std::int64_t, 3>{0, 5, 1}, {5, 0, 1}, {5, 5, 0}}) {
    run<abi::GemmSm80MmaF16, __half, __half, __half>({m, n, 16, batch});
    run<abi::GemmSm90WgmmaF16, __half, __half, __half>({m, n, 16, batch});
  }
}

/// NaN and infinities of a bias reach it as they are.
TEST(PreActivationRuns, NanAndInfinity) {
  SKIP_IF_LEFT_OUT(abi::GemmSm90WgmmaBf16, abi::GemmSm80MmaBf16);
  Device const device = abi::query_device(abi::current_device());
  Matrix<Bf> a(1, 136, 64, false, 0, false, 1), b(1, 64, 136, true, 0, false, 2),
      c(1, 136, 136, false, 0, false, 3);
  for (std::int64_t pad : {0, 1}) {
    Matrix<Bf> pre(1, 136, 136, false, pad, false, 4);
    Matrix<float> bias(1, 1, 136, false, 0, false, 5);
    bias.at(0, 0, 3) = NAN, bias.at(0, 0, 5) = INFINITY, bias.at(0, 0, 6) = -INFINITY;
    a.upload(), b.upload(), c.upload(), pre.upload(), bias.upload();
    GemmArgs g;
    g.a = a.begin(), g.b = b.begin(), g.c = c.begin();
    g.type_a = g.type_b = g.type_c = g.type_pre_activation = DType::bfloat16;
    g.m = g.n = 136, g.k = 64, g.batch = 1;
    g.a_m = a.stride_row, g.a_k = 1, g.b_k = 1, g.b_n = b.stride_column;
    g.c_m = c.stride_row, g.c_n = 1, g.activation = Activation::relu;
    g.bias = bias.begin(), g.bias_stride = 1;
    g.pre_activation = pre.begin();
    g.pre_activation_m = pre.stride_row, g.pre_activation_n = 1;
    for (bool sm90 : {false, true}) {
      ASSERT_EQ(sm90 ? abi::GemmSm90WgmmaBf16::launch(g, device, nullptr)
                     : abi::GemmSm80MmaBf16::launch(g, device, nullptr),
                cudaSuccess);
      ASSERT_CUDA(cudaMemcpy(pre.host.data(), pre.device, pre.host.size(), cudaMemcpyDeviceToHost));
      for (std::int64_t i = 0; i < 136; ++i) {
        EXPECT_TRUE(std::isnan(pre.value(0, i, 3)));
        EXPECT_EQ(pre.value(0, i, 5), INFINITY);
        EXPECT_EQ(pre.value(0, i, 6), -INFINITY);
        EXPECT_TRUE(std::isfinite(pre.value(0, i, 4)));
      }
      pre.upload();
    }
  }
}

/// Zero points of either operand or both, one or one for each line, in all layouts and copies.
template <class C>
void zero_points(bool wraps) {
  int turn = 0;
  for (auto [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                         {5, 131, 64},
                         {131, 3, 129},
                         {64, 64, 256},
                         {129, 257, 40},
                         {140, 100, 173}})
    for (int layout = 0; layout < 8; ++layout, ++turn) {
      Case t{m, n, k, 1 + turn % 2};
      t.trans_c = (layout & 1) != 0, t.trans_a = (layout & 2) != 0, t.trans_b = (layout & 4) != 0;
      t.zero_a = static_cast<Zeros>(turn % 3);
      t.zero_b = static_cast<Zeros>((turn / 3 + (turn % 3 == 0)) % 3);
      t.pad_ab = std::array{16, 1, 8, 4}[turn % 4], t.pad = turn % 5 == 0 ? 3 : 0;
      t.wraps = wraps, t.wanted = !std::is_same_v<C, int> && turn % 3 == 1;
      if (std::is_same_v<C, int>) {
        t.beta = turn % 7 == 0 && !wraps;
      } else {
        t.factors = turn % 2 == 0, t.bias = turn % 3 == 0, t.scale_out = sizeof(C) == 1;
        t.activation = static_cast<Activation>(turn % 5);
      }
      run<abi::GemmSm80MmaS8, I8, C, float>(t);
      if (testing::Test::HasFailure()) return;
    }
}

TEST(ZeroPointRuns, Int32) {
  zero_points<int>(false);
  zero_points<int>(true);
}
TEST(ZeroPointRuns, Bfloat16) { zero_points<Bf>(false); }
TEST(ZeroPointRuns, Int8) { zero_points<I8>(false); }
TEST(ZeroPointRuns, ManyStages) {
  Case t{200, 150, 3000};
  t.zero_a = Zeros::each, t.zero_b = Zeros::one, t.wanted = false;
  run<abi::GemmSm80MmaS8, I8, int, float>(t);
  t.zero_a = Zeros::one, t.zero_b = Zeros::each, t.trans_a = true, t.trans_b = false;
  run<abi::GemmSm80MmaS8, I8, int, float>(t);
}
TEST(ZeroPointRuns, SumsOfNothing) {
  for (auto [m, n, k] : {std::array<std::int64_t, 3>{70, 33, 0}, {0, 5, 16}, {5, 0, 16}}) {
    Case t{m, n, k};
    t.zero_a = t.zero_b = Zeros::each, t.wanted = false;
    run<abi::GemmSm80MmaS8, I8, int, float>(t);
  }
}

TEST(PreActivationRuns, WorstErrorOverBound) {
  RecordProperty("worst_error_over_bound", std::to_string(worst_ratio));
  std::printf("worst error / bound: %.3f\n", worst_ratio);
  EXPECT_LE(worst_ratio, 1);
}

Device hopper() { return {0, 9, 0, abi::Architecture::hopper, 132, 232448}; }

template <class Kernel>
std::string reason(GemmArgs const& g) {
  return Kernel::accepts(g, hopper()).reason;
}

TEST(PreActivationAccepts, WhatAnEpilogueWrites) {
  SKIP_IF_LEFT_OUT(abi::GemmSm90WgmmaBf16, abi::GemmSm80MmaBf16, abi::GemmSm90GroupedBf16,
                   abi::GemmSm80MmaF64, abi::GemmSm90MmaF64, abi::GemmSm80MmaS8,
                   abi::GemmSm90WgmmaS8);
  alignas(16) static float somewhere[4];
  GemmArgs g;
  g.a = g.b = g.c = g.pre_activation = somewhere;
  g.type_a = g.type_b = g.type_c = g.type_pre_activation = DType::bfloat16;
  g.m = 48, g.n = 32, g.k = 16, g.batch = 1;
  g.a_m = 16, g.a_k = 1, g.b_k = 1, g.b_n = 16, g.c_m = 32, g.c_n = 1;
  g.pre_activation_m = 33, g.pre_activation_n = 1;
  auto const expect = [&](std::string const& why) {
    EXPECT_EQ(reason<abi::GemmSm90WgmmaBf16>(g), why);
    EXPECT_EQ(reason<abi::GemmSm80MmaBf16>(g), why);
    GemmArgs grouped = g;
    grouped.offsets = somewhere, grouped.groups = 1;
    EXPECT_EQ(reason<abi::GemmSm90GroupedBf16>(grouped), why);
  };
  expect("");
  g.type_pre_activation = DType::float64;
  expect("it does not write the pre-activation's element type");
  g.type_pre_activation = DType::int8;
  expect("it does not write the pre-activation's element type");
  g.type_pre_activation = DType::float16, g.pre_activation_m = 0;
  expect("the pre-activation has a zero stride, so its elements overlap");
  g.m = 1;
  expect("");
  g.m = 48, g.n = 0;  // nothing is written
  expect("");
  g.n = 32;
  g.type_a = g.type_b = g.type_c = g.type_pre_activation = DType::float64;
  g.m = 2048, g.n = 2048, g.pre_activation_m = 2048;
  g.c_m = 2048;
  EXPECT_EQ(reason<abi::GemmSm80MmaF64>(g), "");
  EXPECT_EQ(reason<abi::GemmSm90MmaF64>(g), "");
  g.type_a = g.type_b = DType::int8, g.type_c = DType::int32;
  EXPECT_EQ(reason<abi::GemmSm80MmaS8>(g), "int32 C takes alpha 1, beta 0 or 1, and no epilogue");
  EXPECT_EQ(reason<abi::GemmSm90WgmmaS8>(g), "int32 C takes alpha 1, beta 0 or 1, and no epilogue");
}

TEST(ZeroPointAccepts, ThoseOfInt8) {
  SKIP_IF_LEFT_OUT(abi::GemmSm80MmaS8, abi::GemmSm90WgmmaS8, abi::GemmSm80MmaF16);
  alignas(16) static float somewhere[4];
  GemmArgs g;
  g.a = g.b = g.c = somewhere;
  g.type_a = g.type_b = DType::int8, g.type_c = DType::int32;
  g.m = 48, g.n = 32, g.k = 16, g.batch = 1;
  g.a_m = 16, g.a_k = 1, g.b_k = 1, g.b_n = 16, g.c_m = 32, g.c_n = 1;
  g.zero_point_b = reinterpret_cast<int const*>(somewhere);
  EXPECT_EQ(reason<abi::GemmSm80MmaS8>(g), "");
  EXPECT_EQ(reason<abi::GemmSm90WgmmaS8>(g), "it has no zero points");
  g.type_a = g.type_b = g.type_c = DType::float16;
  EXPECT_EQ(reason<abi::GemmSm80MmaF16>(g), "it has no zero points");
}

}  // namespace
