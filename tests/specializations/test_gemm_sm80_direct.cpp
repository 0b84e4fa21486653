// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm/sm80_mma_*, gemm/sm80_simt_f32, gemm/sm89_mma_f8 and gemm/sm90_mma_f64 called directly over
// memory of cudaMalloc. Sm80Runs fails without a card of sm_89 or newer,
// Sm90F64Runs without Hopper; Sm90F64Accepts needs none, nor does
// test_gemm_sm80_refuses_direct.cpp.
#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>
#include <string>

#include "direct_matrix.hpp"

namespace {

using abi::GemmSm80MmaBf16;
using abi::GemmSm80MmaF16;
using abi::GemmSm80MmaF64;
using abi::GemmSm80MmaS8;
using abi::GemmSm80MmaTf32;
using abi::GemmSm80MmaTf32x3;
using abi::GemmSm80SimtF32;
using abi::GemmSm89MmaF8;
using abi::GemmSm90MmaF64;

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
/// as in test_gemm_kernels_direct.cpp, C's type its own.
template <class Kernel, class A, class B, class C>
void run(Case const& t) {
  Device const real = abi::query_device(abi::current_device());
  ASSERT_TRUE(real.at_least(8, 9)) << "this suite needs a card of sm_89 or newer";
  std::ostringstream text;
  text << Kernel::name << " m" << t.m << " n" << t.n << " k" << t.k << " batch" << t.batch
       << " trans " << t.trans_a << t.trans_b << t.trans_c << " pad" << t.pad << " shift" << t.shift
       << " C " << dtype_name(dtype_of<C>());
  SCOPED_TRACE(text.str());
  constexpr bool integer = std::is_same_v<A, std::int8_t>, float8 = !integer && sizeof(A) == 1;
  constexpr bool tf32 = std::is_same_v<Kernel, GemmSm80MmaTf32>;
  constexpr bool tf32x3 = std::is_same_v<Kernel, GemmSm80MmaTf32x3>;
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

  bool const sm90 = std::is_same_v<Kernel, GemmSm90MmaF64>;  // has one shape of tile, for many
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
    compare_result(c, t.batch, t.m, t.n, expected, bounds, worst);
    worst_ratio = std::max(worst_ratio, worst);
    if (testing::Test::HasFatalFailure() || worst > 1) return;
  }
}

/// Every transposition of extents around those of tiles, then strides that are no multiples of 16,
/// 8 and 4 bytes.
template <class Kernel, class A, class B, class C>
void shapes(bool fast = false) {
  std::int64_t const extents[][3] = {{1, 1, 1},      {1, 131, 7},    {131, 1, 129}, {5, 3, 64},
                                     {16, 200, 65},  {64, 64, 256},  {63, 65, 448}, {128, 128, 96},
                                     {129, 257, 40}, {257, 131, 173}};
  for (auto const& e : extents)
    for (int layout = 0; layout < 8; ++layout)
      for (std::int64_t pad : {0, 1, 2}) {
        if (pad > 0 && (layout & 1) != 0) continue;
        Case t{e[0], e[1], e[2]};
        t.trans_c = (layout & 1) != 0, t.trans_a = (layout & 2) != 0, t.trans_b = (layout & 4) != 0;
        t.pad = pad == 2 ? static_cast<std::int64_t>(8 / sizeof(A)) : pad;
        t.shift = pad == 1 ? 1 : 0;
        t.fast = fast;
        run<Kernel, A, B, C>(t);
        if (testing::Test::HasFailure()) return;
      }
}

TEST(Sm80Runs, ShapesFloat16) { shapes<GemmSm80MmaF16, __half, __half, __half>(); }
TEST(Sm80Runs, ShapesFloat16ToFloat32) { shapes<GemmSm80MmaF16, __half, __half, float>(); }
TEST(Sm80Runs, ShapesBfloat16) {
  shapes<GemmSm80MmaBf16, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16>();
}
TEST(Sm80Runs, ShapesOfOneTypeToTheOther) {
  shapes<GemmSm80MmaF16, __half, __half, __nv_bfloat16>();
  shapes<GemmSm80MmaBf16, __nv_bfloat16, __nv_bfloat16, __half>();
}
TEST(Sm80Runs, ShapesFloat64) { shapes<GemmSm80MmaF64, double, double, double>(); }
TEST(Sm80Runs, ShapesTf32) { shapes<GemmSm80MmaTf32, float, float, float>(); }
TEST(Sm80Runs, ShapesTf32x3) { shapes<GemmSm80MmaTf32x3, float, float, float>(); }
TEST(Sm80Runs, ShapesFloat32) { shapes<GemmSm80SimtF32, float, float, float>(); }
TEST(Sm80Runs, ShapesInt8) { shapes<GemmSm80MmaS8, std::int8_t, std::int8_t, int>(); }
TEST(Sm80Runs, ShapesInt8ToBfloat16) {
  shapes<GemmSm80MmaS8, std::int8_t, std::int8_t, __nv_bfloat16>();
}
TEST(Sm80Runs, ShapesFloat8) {
  shapes<GemmSm89MmaF8, E4, E4, float>();
  shapes<GemmSm89MmaF8, E5, E4, __half>();
}
TEST(Sm80Runs, ShapesFloat8Fast) {
  shapes<GemmSm89MmaF8, E4, E5, __nv_bfloat16>(true);
  shapes<GemmSm89MmaF8, E5, E5, float>(true);
}

template <class Kernel, class A, class B, class C>
void epilogues() {
  for (auto activation : {Activation::none, Activation::relu, Activation::gelu,
                          Activation::gelu_tanh, Activation::silu})
    for (auto along : {BiasAlong::n, BiasAlong::m}) {
      Case t{140, 131, 200};
      t.alpha = 0.7, t.beta = 0.3, t.scale = 1.3, t.batch = 2, t.pad = 3;
      t.activation = activation, t.bias = t.residual = t.device_scale = true, t.bias_along = along;
      t.factors = sizeof(A) == 1;
      t.trans_c = along == BiasAlong::m;
      run<Kernel, A, B, C>(t);
      if (testing::Test::HasFailure()) return;
    }
}

TEST(Sm80Runs, EpiloguesFloat16) { epilogues<GemmSm80MmaF16, __half, __half, __half>(); }
TEST(Sm80Runs, EpiloguesBfloat16ToFloat32) {
  epilogues<GemmSm80MmaBf16, __nv_bfloat16, __nv_bfloat16, float>();
}
TEST(Sm80Runs, EpiloguesFloat64) { epilogues<GemmSm80MmaF64, double, double, double>(); }
TEST(Sm80Runs, EpiloguesTf32) { epilogues<GemmSm80MmaTf32, float, float, float>(); }
TEST(Sm80Runs, EpiloguesTf32x3) { epilogues<GemmSm80MmaTf32x3, float, float, float>(); }
TEST(Sm80Runs, EpiloguesFloat32) { epilogues<GemmSm80SimtF32, float, float, float>(); }
TEST(Sm80Runs, EpiloguesInt8) {
  epilogues<GemmSm80MmaS8, std::int8_t, std::int8_t, __nv_bfloat16>();
}
TEST(Sm80Runs, EpiloguesFloat8) { epilogues<GemmSm89MmaF8, E4, E5, float>(); }

/// Every transposition of extents around those of pairs of tiles; many tiles for each block.
TEST(Sm90F64Runs, Shapes) {
  std::int64_t const extents[][3] = {{129, 65, 1},   {256, 128, 96}, {255, 127, 33},
                                     {200, 100, 7},  {257, 200, 64}, {520, 390, 111},
                                     {300, 520, 16}, {193, 129, 100}};
  for (auto const& e : extents)
    for (int layout = 0; layout < 8; ++layout) {
      Case t{e[0], e[1], e[2]};
      t.trans_c = (layout & 1) != 0, t.trans_a = (layout & 2) != 0, t.trans_b = (layout & 4) != 0;
      t.pad = layout % 3 == 0 ? 2 : 0, t.shift = layout % 3 == 1 ? 2 : 0;
      run<GemmSm90MmaF64, double, double, double>(t);
      if (testing::Test::HasFailure()) return;
    }
}

TEST(Sm90F64Runs, BatchesAndEpilogues) {
  for (auto activation : {Activation::none, Activation::relu, Activation::silu})
    for (bool shared : {false, true}) {
      Case t{140, 131, 50, 3};
      t.shared_b = shared, t.trans_a = !shared, t.alpha = -0.7;
      run<GemmSm90MmaF64, double, double, double>(t);
      t.beta = 0.3, t.scale = 1.3, t.activation = activation;
      t.bias = t.residual = t.device_scale = true;
      t.bias_along = shared ? BiasAlong::n : BiasAlong::m, t.trans_c = shared;
      run<GemmSm90MmaF64, double, double, double>(t);
      if (testing::Test::HasFailure()) return;
    }
}

TEST(Sm90F64Accepts, AlignedOperandsOfManyTiles) {
  alignas(16) static double somewhere[2];
  Device device;
  device.compute_major = 9, device.sm_count = 132;
  device.shared_memory_per_block_optin = 232448;
  GemmArgs g;
  g.a = g.b = g.c = somewhere;
  g.type_a = g.type_b = g.type_c = DType::float64;
  g.m = g.n = g.k = g.a_m = g.b_n = g.c_m = 2048, g.a_k = g.b_k = g.c_n = 1, g.batch = 1;
  auto const reason = [&] { return std::string(GemmSm90MmaF64::accepts(g, device).reason); };
  EXPECT_EQ(reason(), "");
  g.m = g.n = 1024;
  EXPECT_EQ(reason(), "its tiles of 128 x 128 are too few for the device");
  g.m = g.n = 2048, g.k = 0;
  EXPECT_EQ(reason(), "K is 0");
  g.m = 0;
  EXPECT_EQ(reason(), "");
  g.m = g.k = 2048, g.b_n = 2049;
  EXPECT_EQ(reason(), "a stride of B is not a multiple of 16 bytes");
  g.b_n = 2048;
  // What gemm/sm80_mma_f64 takes beyond this kernel.
  void const* const pointers[1] = {somewhere};
  g.a_pointers = pointers;
  EXPECT_EQ(reason(), "it takes no arrays of pointers");
  std::int32_t const count = 0;
  g.a_pointers = nullptr, g.counts = &count;
  EXPECT_EQ(reason(), "it does not count the rows of each matrix");
  g.counts = nullptr, g.offsets = &count, g.groups = 1;
  EXPECT_EQ(reason(), "it does not multiply groups of rows");
  g.offsets = nullptr, g.groups = 0, g.tile.m = 64;
  EXPECT_EQ(reason(), "its tile cannot be set");
  g.tile.m = 0, device.compute_major = 8;
  EXPECT_EQ(reason(), "its machine code runs on sm_90 only");
}

TEST(Sm80Runs, Int8AddsToC) {
  Case t{150, 140, 96};
  t.beta = 1;
  run<GemmSm80MmaS8, std::int8_t, std::int8_t, int>(t);
}

TEST(Sm80Runs, SumsOfNothing) {
  Case t{70, 33, 0};
  t.bias = true;
  run<GemmSm80MmaF16, __half, __half, __half>(t);
  run<GemmSm80MmaF64, double, double, double>(t);
  run<GemmSm80MmaTf32x3, float, float, float>(t);
  run<GemmSm80SimtF32, float, float, float>(t);
  t.bias = false;
  run<GemmSm80MmaS8, std::int8_t, std::int8_t, int>(t);
  for (auto [m, n, batch] : {std::array<std::int64_t, 3>{0, 5, 1}, {5, 0, 1}, {5, 5, 0}}) {
    Case none{m, n, 7};
    none.batch = batch;
    run<GemmSm80MmaF16, __half, __half, __half>(none);
    run<GemmSm80SimtF32, float, float, float>(none);
  }
}

TEST(Sm80Runs, BatchesAndABroadcastB) {
  for (bool shared : {false, true}) {
    Case t{130, 72, 100};
    t.batch = 5, t.shared_b = shared, t.trans_b = !shared;
    run<GemmSm80MmaF16, __half, __half, __half>(t);
    run<GemmSm80MmaF64, double, double, double>(t);
    run<GemmSm80SimtF32, float, float, float>(t);
  }
}

/// A plain product over matrices as they lie; `change` may turn it.
template <class Kernel, class T, class Change>
std::vector<unsigned char> product(Matrix<T> const& a, Matrix<T> const& b, Matrix<T>& c,
                                   Change change) {
  Device const device = abi::query_device(abi::current_device());
  GemmArgs g;
  g.type_a = g.type_b = g.type_c = dtype_of<T>();
  g.a = a.begin(), g.b = b.begin();
  g.m = a.rows, g.n = b.columns, g.k = a.columns, g.batch = 1;
  g.a_m = a.stride_row, g.a_k = a.stride_column, g.b_k = b.stride_row, g.b_n = b.stride_column;
  c.upload();
  g.c = c.begin(), g.c_m = c.stride_row, g.c_n = c.stride_column;
  change(g);
  std::vector<unsigned char> result(c.host.size());
  EXPECT_EQ(Kernel::launch(g, device, nullptr), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(result.data(), c.device, result.size(), cudaMemcpyDeviceToHost),
            cudaSuccess);
  return result;
}

template <class Kernel, class T>
void rows_backwards() {
  Matrix<T> a(1, 130, 72, false, 1, false, 1), b(1, 72, 90, false, 0, false, 2),
      c(1, 130, 90, false, 0, false, 3);
  a.upload(), b.upload();
  c.forget();
  auto const plain = product<Kernel>(a, b, c, [](GemmArgs&) {});
  auto const turned = product<Kernel>(a, b, c, [&](GemmArgs& g) {
    g.a = a.begin() + 129 * a.stride_row, g.a_m = -a.stride_row;
    g.c = c.begin() + 129 * c.stride_row, g.c_m = -c.stride_row;
  });
  EXPECT_EQ(plain, turned);
  auto const one_row = product<Kernel>(a, b, c, [](GemmArgs& g) { g.a_m = 0; });
  auto const* const first = one_row.data() + c.offset(0, 0, 0) * static_cast<int>(sizeof(T));
  EXPECT_EQ(std::memcmp(first, plain.data() + (first - one_row.data()), 90 * sizeof(T)), 0);
  for (int i = 1; i < 130; ++i)
    ASSERT_EQ(
        std::memcmp(first + i * c.stride_row * static_cast<int>(sizeof(T)), first, 90 * sizeof(T)),
        0);
}

TEST(Sm80Runs, NegativeAndZeroStrides) {
  rows_backwards<GemmSm80MmaF16, __half>();
  rows_backwards<GemmSm80MmaF64, double>();
  rows_backwards<GemmSm80SimtF32, float>();
}

template <class Kernel, class T>
void same_bits() {
  Matrix<T> a(1, 500, 1111, false, 0, false, 1), b(1, 1111, 300, true, 1, false, 2),
      c(1, 500, 300, false, 0, false, 3);
  a.upload(), b.upload();
  std::vector<unsigned char> first;
  for (int repeat = 0; repeat < 50; ++repeat) {
    auto const again = product<Kernel>(a, b, c, [](GemmArgs& g) { g.compute = Compute::tf32; });
    if (repeat == 0) first = again;
    ASSERT_EQ(first, again) << "repeat " << repeat;
  }
}

TEST(Sm80Runs, TheSameBitsEveryTime) {
  same_bits<GemmSm80MmaF16, __half>();
  same_bits<GemmSm80MmaF64, double>();
  same_bits<GemmSm80MmaTf32, float>();
  same_bits<GemmSm80MmaTf32x3, float>();
  same_bits<GemmSm80SimtF32, float>();
}

TEST(Sm80Runs, NanAndInfinity) {
  Matrix<float> a(1, 3, 40, false, 0, false, 1), b(1, 40, 5, false, 0, false, 2),
      c(1, 3, 5, false, 0, false, 3);
  std::uint32_t const nan_bits = 0x7FFFFFFF;
  std::memcpy(&a.at(0, 1, 7), &nan_bits, 4);
  a.at(0, 2, 9) = INFINITY;
  a.upload(), b.upload();
  for (auto compute : {Compute::tf32, Compute::tf32x3, Compute::ieee}) {
    auto const choose = [&](GemmArgs& g) { g.compute = compute; };
    auto const result = compute == Compute::tf32     ? product<GemmSm80MmaTf32>(a, b, c, choose)
                        : compute == Compute::tf32x3 ? product<GemmSm80MmaTf32x3>(a, b, c, choose)
                                                     : product<GemmSm80SimtF32>(a, b, c, choose);
    for (std::int64_t j = 0; j < 5; ++j) {
      float row[3];
      for (std::int64_t i = 0; i < 3; ++i)
        std::memcpy(&row[i], result.data() + c.offset(0, i, j) * 4, 4);
      EXPECT_TRUE(std::isfinite(row[0]));
      EXPECT_TRUE(std::isnan(row[1]));
      EXPECT_FALSE(std::isfinite(row[2]));
      if (compute == Compute::ieee) {
        EXPECT_EQ(row[2], b.value(0, 9, j) > 0 ? INFINITY : -INFINITY);
      }
    }
  }
}

TEST(Sm80Runs, WorstErrorOverBound) {
  RecordProperty("worst_error_over_bound", std::to_string(worst_ratio));
  std::printf("worst error / bound: %.3f\n", worst_ratio);
  EXPECT_LE(worst_ratio, 1);
}

}  // namespace
