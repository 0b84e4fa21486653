// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm/sm80_mma_*, gemm/sm80_simt_f32 and gemm/sm89_mma_f8 called directly over memory of
// cudaMalloc. Sm80Runs fails without a card of sm_89 or newer; test_gemm_sm80_refuses_direct.cpp
// needs none.
#include <array>
#include <cstring>
#include <string>

#include "direct_gemm_sm80.hpp"

namespace {

using abi::GemmSm80MmaBf16;
using abi::GemmSm80MmaF16;
using abi::GemmSm80MmaF64;
using abi::GemmSm80MmaS8;
using abi::GemmSm80MmaTf32;
using abi::GemmSm80MmaTf32x3;
using abi::GemmSm80SimtF32;
using abi::GemmSm89MmaF8;

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

/// Sums of which several blocks have a part each, with last parts of every kind.
template <class Kernel, class A, class B, class C>
void long_sums() {
  for (auto const& e : {std::array<std::int64_t, 3>{19, 19, 6010}, {1, 70, 2049}, {65, 33, 1500}})
    for (int layout = 0; layout < 8; ++layout) {
      Case t{e[0], e[1], e[2]};
      t.trans_c = (layout & 1) != 0, t.trans_a = (layout & 2) != 0, t.trans_b = (layout & 4) != 0;
      t.pad = layout % 3, t.shift = layout % 2;
      run<Kernel, A, B, C>(t);
      if (testing::Test::HasFailure()) return;
    }
  if constexpr (std::is_same_v<C, int>) return;
  Case t{70, 40, 2100};
  t.alpha = 0.7, t.beta = 0.3, t.batch = 3, t.activation = Activation::gelu;
  t.bias = t.residual = true, t.factors = sizeof(A) == 1;
  run<Kernel, A, B, C>(t);
}

TEST(Sm80Runs, LongSums) {
  long_sums<GemmSm80MmaF16, __half, __half, __half>();
  long_sums<GemmSm80MmaBf16, __nv_bfloat16, __nv_bfloat16, float>();
  long_sums<GemmSm80MmaF64, double, double, double>();
  long_sums<GemmSm80MmaTf32, float, float, float>();
  long_sums<GemmSm80MmaTf32x3, float, float, float>();
  long_sums<GemmSm80SimtF32, float, float, float>();
  long_sums<GemmSm80MmaS8, std::int8_t, std::int8_t, int>();
  long_sums<GemmSm80MmaS8, std::int8_t, std::int8_t, __nv_bfloat16>();
}

TEST(Sm80Runs, LongSumsFloat8) { long_sums<GemmSm89MmaF8, E4, E5, float>(); }

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
  SKIP_IF_LEFT_OUT(Kernel);
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
  SKIP_IF_LEFT_OUT(Kernel);
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
  SKIP_IF_LEFT_OUT(GemmSm80MmaTf32, GemmSm80MmaTf32x3, GemmSm80SimtF32);
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
