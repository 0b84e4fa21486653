// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm/sm90_simt_f32 and gemm/sm90_wgmma_tf32x3 called directly: every tile, every number of shares
// of K, against float64; and the first against the order of additions that it promises, bit by bit.
#include <cstring>
#include <sstream>

#include "direct_matrix.hpp"

namespace {

using Simt = abi::GemmSm90SimtF32;
using Tf32x3 = abi::GemmSm90WgmmaTf32x3;

struct FloatCase {
  std::int64_t m, n, k, batch = 1;
  bool trans_a = false, trans_b = false, trans_c = false, shared_b = false;
  std::int64_t pad_c = 0;
  double alpha = 1, beta = 0;
  Activation activation = Activation::none;
  bool bias = false, residual = false;
};

struct FloatOperands {
  Matrix<float> a, b, c, bias;
  Matrix<__nv_bfloat16> residual;
  GemmArgs g;

  explicit FloatOperands(FloatCase const& t)
      : a(t.batch, t.m, t.k, t.trans_a, 4, false, 1),
        b(t.batch, t.k, t.n, t.trans_b, 4, t.shared_b, 2),
        c(t.batch, t.m, t.n, t.trans_c, t.pad_c, false, 3),
        bias(1, 1, t.n, false, 0, false, 4),
        residual(t.batch, t.m, t.n, !t.trans_c, 3, false, 5) {
    for (auto* matrix : {&a, &b})  // numbers of 24 bits
      for (std::int64_t l = 0; l < (matrix->stride_batch == 0 ? 1 : t.batch); ++l)
        for (std::int64_t i = 0; i < matrix->rows; ++i)
          for (std::int64_t j = 0; j < matrix->columns; ++j) {
            auto const at =
                static_cast<std::uint32_t>((l * matrix->rows + i) * matrix->columns + j);
            matrix->at(l, i, j) = static_cast<float>(mix(mix(at) + (matrix == &a)) * 0x1p-31 - 1);
          }
    if (t.beta == 0) c.forget();
    a.upload(), b.upload(), c.upload(), bias.upload(), residual.upload();
    g.a = a.begin(), g.b = b.begin(), g.c = c.begin();
    g.type_a = g.type_b = g.type_c = DType::float32;
    g.m = t.m, g.n = t.n, g.k = t.k, g.batch = t.batch;
    g.a_batch = a.stride_batch, g.a_m = a.stride_row, g.a_k = a.stride_column;
    g.b_batch = b.stride_batch, g.b_k = b.stride_row, g.b_n = b.stride_column;
    g.c_batch = c.stride_batch, g.c_m = c.stride_row, g.c_n = c.stride_column;
    g.alpha = t.alpha, g.beta = t.beta, g.activation = t.activation;
    g.compute = Compute::tf32x3;
    if (t.bias) g.bias = bias.begin(), g.bias_along = BiasAlong::n, g.bias_stride = 1;
    if (t.residual) {
      g.residual = residual.begin(), g.type_residual = DType::bfloat16;
      g.residual_batch = residual.stride_batch;
      g.residual_m = residual.stride_row, g.residual_n = residual.stride_column;
    }
    mislead(g);
  }
};

/// C's memory after one call on a device said to have so many multiprocessors.
template <class Kernel = Simt>
std::vector<unsigned char> result_of(FloatOperands& x, int sm_count) {
  Device device = abi::query_device(abi::current_device());
  device.sm_count = sm_count;
  std::vector<unsigned char> result(x.c.host.size());
  x.c.upload();
  poison_shared_memory();
  EXPECT_STREQ(Kernel::accepts(x.g, device).reason, "");
  EXPECT_EQ(Kernel::launch(x.g, device, nullptr), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(result.data(), x.c.device, result.size(), cudaMemcpyDeviceToHost),
            cudaSuccess);
  return result;
}

TEST(Sm90F32Accepts, Tf32x3WhereItIsAllowedAndPays) {
  SKIP_IF_LEFT_OUT(Tf32x3);
  alignas(16) static float somewhere[4];
  Device device;
  device.compute_major = 9, device.sm_count = 132;
  GemmArgs g;
  g.a = g.b = g.c = somewhere;
  g.type_a = g.type_b = g.type_c = DType::float32;
  g.batch = 1, g.m = 512, g.n = 1025, g.k = g.a_m = g.b_n = 64, g.a_k = g.b_k = g.c_n = 1,
  g.c_m = 1028;
  auto const reason = [&] { return std::string(Tf32x3::accepts(g, device).reason); };
  EXPECT_EQ(reason(), "it drops the lowest bits of products, which compute = tf32x3 allows");
  g.compute = Compute::tf32x3;
  EXPECT_EQ(reason(), "");
  g.compute = Compute::tf32;
  EXPECT_EQ(reason(), "") << "more precise than tf32 is allowed";
  g.n = 1024;
  EXPECT_EQ(reason(), "its tiles of 128 x 128 are too few for the device");
  g.batch = 2, g.a_batch = 65536, g.c_batch = 1024 * 1028;
  EXPECT_EQ(reason(), "");
  g.m = 0;
  EXPECT_EQ(reason(), "");
  g.m = 512, g.a_m = 65;
  EXPECT_EQ(reason(), "a stride of A is not a multiple of 16 bytes");
  g.a_m = 64, g.type_c = DType::bfloat16;
  EXPECT_EQ(reason(), "it does not write C's element type");
  device.compute_major = 8, g.type_c = DType::float32;
  EXPECT_EQ(reason(), "its machine code runs on sm_90 only");
}

double float_worst = 0;

/// With u = 2^-24 and S = Σ|a||b|: k multiply-adds and at most 32 additions of shares are off by
/// u(k + 32)S, the epilogue adds a rounding for each of its operations. tf32x3: three truncating
/// additions for each k, and less than 16uS dropped, 2u(2k + 8)S in all.
template <class Kernel = Simt>
void run_float(FloatCase const& t) {
  SKIP_IF_LEFT_OUT(Kernel);
  ASSERT_EQ(abi::query_device(abi::current_device()).compute_major, 9)
      << "this suite needs a Hopper card";
  constexpr bool tf32x3 = std::is_same_v<Kernel, Tf32x3>;
  std::ostringstream text;
  text << Kernel::name << " m" << t.m << " n" << t.n << " k" << t.k << " batch" << t.batch
       << " trans " << t.trans_a << t.trans_b << t.trans_c;
  SCOPED_TRACE(text.str());
  FloatOperands x(t);
  std::vector<double> expected, bounds;
  double const u = 0x1p-24;
  for (std::int64_t l = 0; l < t.batch; ++l)
    for (std::int64_t i = 0; i < t.m; ++i)
      for (std::int64_t j = 0; j < t.n; ++j) {
        double sum = 0, size = 0;
        for (std::int64_t p = 0; p < t.k; ++p) {
          double const product = x.a.value(l, i, p) * x.b.value(l, p, j);
          sum += product, size += std::abs(product);
        }
        double const old = t.beta == 0 ? 0 : t.beta * x.c.value(l, i, j);
        double const add = t.bias ? x.bias.value(0, 0, j) : 0;
        double const v = t.alpha * sum + old + add;
        double const r = t.residual ? x.residual.value(l, i, j) : 0;
        double const y = activate(t.activation, v) + r;
        auto const steps = static_cast<double>(tf32x3 ? 4 * t.k + 16 : t.k + 32);
        double error = u * steps * size * std::abs(t.alpha);
        error += 6 * u * (std::abs(t.alpha) * size + std::abs(old) + std::abs(add));
        error = 1.13 * error + 8 * u * std::abs(v) + 2 * u * (std::abs(y) + std::abs(r)) + 0x1p-30;
        expected.push_back(y), bounds.push_back(error);
      }
  std::int64_t const tiles = (t.m + 127) / 128 * ((t.n + 127) / 128) * t.batch;
  std::vector<int> const devices = tf32x3 ? std::vector<int>{1, 2, static_cast<int>(2 * tiles)}
                                          : std::vector<int>{1, 4, 16, 40, 132, 1000000};
  for (int sm_count : devices) {
    SCOPED_TRACE("multiprocessors " + std::to_string(sm_count));
    auto const result = result_of<Kernel>(x, sm_count);
    EXPECT_EQ(result, result_of<Kernel>(x, sm_count)) << "a second call gave other bits";
    auto untouched = x.c.host;
    std::size_t at = 0;
    double worst = 0;
    for (std::int64_t l = 0; l < t.batch; ++l)
      for (std::int64_t i = 0; i < t.m; ++i)
        for (std::int64_t j = 0; j < t.n; ++j, ++at) {
          auto const index = static_cast<std::size_t>(x.c.offset(l, i, j)) * sizeof(float);
          float got;
          std::memcpy(&got, &result[index], sizeof got);
          std::memcpy(&untouched[index], &got, sizeof got);
          double const ratio = std::abs(static_cast<double>(got) - expected[at]) / bounds[at];
          if (!(ratio <= 1) && worst <= 1)
            ADD_FAILURE() << "[" << l << ", " << i << ", " << j << "] is " << got << ", expected "
                          << expected[at] << " ± " << bounds[at];
          worst = std::max(worst, std::isnan(ratio) ? INFINITY : ratio);
        }
    float_worst = std::max(float_worst, worst);
    EXPECT_EQ(untouched, result) << "memory around C was written";
    if (testing::Test::HasFailure()) return;
  }
}

template <class Kernel = Simt>
void all_layouts(FloatCase t) {
  for (int layout = 0; layout < 8; ++layout) {
    t.trans_a = (layout & 1) != 0, t.trans_b = (layout & 2) != 0, t.trans_c = (layout & 4) != 0;
    run_float<Kernel>(t);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Sm90F32Runs, Shapes) {
  std::int64_t const extents[][3] = {
      {1, 1, 1},      {1, 131, 7},     {131, 1, 129},  {5, 3, 64},      {16, 200, 65},
      {200, 16, 257}, {64, 64, 512},   {63, 65, 448},  {65, 127, 96},   {128, 128, 384},
      {129, 257, 40}, {257, 131, 449}, {300, 520, 72}, {72, 264, 1024}, {128, 256, 33}};
  for (auto const& e : extents) {
    all_layouts({e[0], e[1], e[2]});
    if (testing::Test::HasFailure()) return;
  }
  std::printf("worst ratio to the bound: %.3f\n", float_worst);
}

/// Fewer steps of K than blocks that share it, shares of unequal length, last steps cut short.
TEST(Sm90F32Runs, SharesOfK) {
  for (std::int64_t k : {1, 31, 32, 33, 63, 96, 97, 160, 255, 257, 511, 1000, 2049}) {
    FloatCase t{70, 136, k};
    t.trans_a = k % 2 != 0, t.trans_b = k % 3 == 0;
    run_float(t);
    t = {129, 129, k, 2};
    t.trans_a = k % 3 != 0, t.trans_b = k % 2 == 0;
    run_float(t);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Sm90F32Runs, Epilogues) {
  for (auto activation : {Activation::none, Activation::relu, Activation::gelu,
                          Activation::gelu_tanh, Activation::silu})
    for (std::int64_t m : {24, 140, 300}) {
      FloatCase t{m, 131, 200, 2};
      t.alpha = 0.7, t.beta = 0.3, t.pad_c = 3;
      t.activation = activation, t.bias = t.residual = true;
      t.trans_a = activation == Activation::gelu, t.trans_b = m == 140, t.trans_c = m == 24;
      run_float(t);
      t.beta = 0, t.residual = false;
      run_float(t);
      if (testing::Test::HasFailure()) return;
    }
  FloatCase t{260, 140, 70};  // alpha alone, by stores of four and one by one
  t.alpha = -1.25;
  run_float(t);
  t.n = 141;
  run_float(t);
}

TEST(Sm90F32Runs, Batches) {
  FloatCase t{130, 260, 40, 5};
  t.shared_b = true;
  run_float(t);
  t = {20, 24, 100, 33};
  t.trans_b = true;
  run_float(t);
}

/// Many tiles for each block, so that stages and their phases go around several times.
TEST(Sm90F32Runs, ManyTiles) {
  FloatCase t{520, 1030, 161};
  run_float(t);
  t.trans_b = true;
  run_float(t);
}

/// Element (i, j) as the kernel sums it: `splits` shares of the steps of 32 k, one after the other,
/// in each of them `groups` parts of every step.
float promised(FloatOperands& x, std::int64_t i, std::int64_t j, int splits, int groups) {
  std::int64_t const k = x.a.columns, blocks = (k + 31) / 32;
  float sum = 0;
  for (int r = 0; r < splits; ++r)
    for (int g = 0; g < groups; ++g) {
      float share = 0;
      for (std::int64_t block = blocks * r / splits; block < blocks * (r + 1) / splits; ++block)
        for (std::int64_t p = block * 32 + g * 32 / groups;
             p < std::min(k, block * 32 + (g + 1) * 32 / groups); ++p)
          share = std::fmaf(x.a.at(0, i, p), x.b.at(0, p, j), share);
      sum = splits * groups == 1 ? share : sum + share;
    }
  return sum;
}

TEST(Sm90F32Runs, OrderOfAdditions) {
  SKIP_IF_LEFT_OUT(Simt);
  for (bool trans : {false, true}) {
    FloatCase t{256, 512, 437};
    t.trans_a = trans, t.trans_b = !trans;
    FloatOperands x(t);
    for (int sm_count : {1, 4, 8, 16, 40, 132, 1000000}) {
      SCOPED_TRACE("multiprocessors " + std::to_string(sm_count));
      auto const result = result_of(x, sm_count);
      int fitting = 0;
      for (int splits : {1, 2, 4, 8})
        for (int groups : {1, 2, 4}) {
          bool same = true;
          for (std::int64_t e = 0; same && e < 4000; ++e) {
            std::int64_t const i = e * 37 % t.m, j = e * 101 % t.n;
            float got;
            std::memcpy(&got, &result[static_cast<std::size_t>(x.c.offset(0, i, j)) * sizeof got],
                        sizeof got);
            same = got == promised(x, i, j, splits, groups);
          }
          fitting += same;
        }
      EXPECT_EQ(fitting, 1);
      if (sm_count == 1) {
        float got;
        std::memcpy(&got, &result[static_cast<std::size_t>(x.c.offset(0, 7, 9)) * sizeof got],
                    sizeof got);
        EXPECT_EQ(got, promised(x, 7, 9, 1, 1)) << "large tiles sum in one chain";
      }
    }
  }
}

TEST(Sm90Tf32x3Runs, Shapes) {
  std::int64_t const extents[][3] = {{1, 1, 1},       {1, 131, 7},    {131, 1, 129},
                                     {5, 3, 64},      {63, 65, 448},  {65, 127, 96},
                                     {128, 128, 384}, {129, 257, 40}, {257, 131, 449},
                                     {300, 520, 72},  {128, 256, 33}};
  for (auto const& e : extents) {
    all_layouts<Tf32x3>({e[0], e[1], e[2]});
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Sm90Tf32x3Runs, Epilogues) {
  for (auto activation : {Activation::none, Activation::relu, Activation::silu})
    for (std::int64_t m : {24, 140, 300}) {
      FloatCase t{m, 132, 200, 2};
      t.alpha = 0.7, t.beta = 0.3, t.pad_c = m == 24 ? 3 : 0;
      t.activation = activation, t.bias = t.residual = true;
      t.trans_a = activation == Activation::silu, t.trans_b = m == 140, t.trans_c = m == 24;
      run_float<Tf32x3>(t);
      t.beta = 0, t.residual = m == 300;
      run_float<Tf32x3>(t);
      if (testing::Test::HasFailure()) return;
    }
  FloatCase t{260, 140, 70};  // alpha alone, by the copy engine and one by one
  t.alpha = -1.25;
  run_float<Tf32x3>(t);
  t.n = 141;
  run_float<Tf32x3>(t);
}

/// Stages and their phases go around many times, and tiles follow one another in a block.
TEST(Sm90Tf32x3Runs, ManyTilesAndBatches) {
  for (bool trans : {false, true}) {
    FloatCase t{520, 1030, 161};
    t.trans_a = trans, t.trans_b = !trans;
    run_float<Tf32x3>(t);
    t = {130, 260, 1000, 3};
    t.shared_b = true, t.trans_a = t.trans_b = trans;
    run_float<Tf32x3>(t);
  }
}

/// Sums of one sign, of which truncation would leave too little were they left to the tensor cores.
TEST(Sm90Tf32x3Runs, LongSumsOfOneSign) {
  SKIP_IF_LEFT_OUT(Tf32x3);
  FloatCase const t{128, 132, 16384};
  FloatOperands x(t);
  for (auto* matrix : {&x.a, &x.b}) {
    for (std::int64_t i = 0; i < matrix->rows; ++i)
      for (std::int64_t j = 0; j < matrix->columns; ++j)
        matrix->at(0, i, j) = std::abs(matrix->at(0, i, j)) + 0.1f;
    matrix->upload();
  }
  auto const result = result_of<Tf32x3>(x, 1);
  for (std::int64_t i = 0; i < t.m; i += 7)
    for (std::int64_t j = 0; j < t.n; j += 5) {
      double sum = 0;
      for (std::int64_t p = 0; p < t.k; ++p) sum += x.a.value(0, i, p) * x.b.value(0, p, j);
      float got;
      std::memcpy(&got, &result[static_cast<std::size_t>(x.c.offset(0, i, j)) * sizeof got],
                  sizeof got);
      // With u = 2^-23 half of it for each of 512 additions, 12u for those of the tensor cores in
      // 32 k, 8u for what each product leaves out.
      ASSERT_NEAR(got, sum, (512 / 2 + 12 + 8) * 0x1p-23 * sum) << i << ", " << j;
    }
}

TEST(Sm90Tf32x3Runs, NanAndInfinity) {
  SKIP_IF_LEFT_OUT(Tf32x3);
  std::uint32_t const nans[] = {0x7FFFFFFF, 0x7F800001};
  for (bool of_a : {true, false})
    for (std::uint32_t nan : nans) {
      FloatOperands x({5, 8, 40});
      Matrix<float>& matrix = of_a ? x.a : x.b;
      std::memcpy(of_a ? &matrix.at(0, 1, 7) : &matrix.at(0, 7, 1), &nan, 4);
      of_a ? matrix.at(0, 2, 9) = INFINITY : matrix.at(0, 9, 2) = INFINITY;
      matrix.upload();
      auto const result = result_of<Tf32x3>(x, 1);
      for (std::int64_t i = 0; i < 5; ++i)
        for (std::int64_t j = 0; j < 8; ++j) {
          float got;
          std::memcpy(&got, &result[static_cast<std::size_t>(x.c.offset(0, i, j)) * sizeof got],
                      sizeof got);
          std::int64_t const line = of_a ? i : j;
          EXPECT_EQ(std::isnan(got), line == 1 || line == 2) << of_a << ' ' << i << ' ' << j;
        }
    }
}

}  // namespace
