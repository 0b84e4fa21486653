// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which of several kernels for the same types takes a product. Needs no GPU.
#include "direct_matrix.hpp"

namespace {

TEST(Sm90F32Accepts, NoBatchesOfTinyProducts) {
  SKIP_IF_LEFT_OUT(abi::GemmSm90SimtF32, abi::GemmSm80SimtF32);
  alignas(16) static float somewhere[4];
  Device device;
  device.compute_major = 9, device.sm_count = 132;
  GemmArgs g;
  g.a = g.b = g.c = somewhere;
  g.type_a = g.type_b = g.type_c = DType::float32;
  g.m = g.n = g.k = g.a_m = g.b_k = g.c_m = 32;
  g.a_k = g.b_n = g.c_n = 1, g.batch = 2, g.a_batch = g.b_batch = g.c_batch = 1024;
  EXPECT_STREQ(abi::GemmSm90SimtF32::accepts(g, device).reason,
               "a batch of products of 32 and less is shared out several at a time elsewhere");
  g.bias = somewhere;
  EXPECT_STRNE(abi::GemmSm90SimtF32::accepts(g, device).reason, "");
  device.shared_memory_per_block_optin = 232448;
  EXPECT_STREQ(abi::GemmSm80SimtF32::accepts(g, device).reason, "") << "which small_f32 has not";
  g.bias = nullptr, g.batch = 1;
  EXPECT_STREQ(abi::GemmSm90SimtF32::accepts(g, device).reason, "");
  g.batch = 2, g.k = g.a_m = 36;
  EXPECT_STREQ(abi::GemmSm90SimtF32::accepts(g, device).reason, "");
  g.tile.n = 128;
  EXPECT_STREQ(abi::GemmSm90SimtF32::accepts(g, device).reason, "its tile cannot be set");
}

}  // namespace
