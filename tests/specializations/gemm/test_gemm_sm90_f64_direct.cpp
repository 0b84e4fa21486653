// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm/sm90_mma_f64 called directly over memory of cudaMalloc. Sm90F64Runs fails without Hopper;
// Sm90F64Accepts needs no GPU.
#include <string>

#include "direct_gemm_sm80.hpp"

namespace {

using abi::GemmSm90MmaF64;

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
  SKIP_IF_LEFT_OUT(GemmSm90MmaF64);
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

}  // namespace
