// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What gemm/sm80_mma_*, gemm/sm80_simt_f32 and gemm/sm89_mma_f8 take and what not. Needs no GPU.
#include <string>

#include "direct_matrix.hpp"

namespace {

using abi::GemmSm80MmaF16;
using abi::GemmSm80MmaF64;
using abi::GemmSm80MmaS8;
using abi::GemmSm80MmaTf32;
using abi::GemmSm80MmaTf32x3;
using abi::GemmSm80SimtF32;
using abi::GemmSm89MmaF8;

Device card(int major, int minor, int shared_bytes = 99 * 1024) {
  return {0, major, minor, abi::architecture_of(major, minor), 84, shared_bytes};
}

GemmArgs acceptable() {
  static float somewhere[4];
  GemmArgs g;
  g.a = g.b = g.c = somewhere;
  g.type_a = g.type_b = g.type_c = DType::float16;
  g.m = 48, g.n = 32, g.k = 16, g.batch = 1;
  g.a_m = 16, g.a_k = 1, g.b_k = 32, g.b_n = 1, g.c_m = 32, g.c_n = 1;
  return g;
}

template <class Kernel = GemmSm80MmaF16>
std::string reason(GemmArgs const& g, Device const& d = card(8, 6)) {
  auto const verdict = Kernel::accepts(g, d);
  EXPECT_EQ(verdict.ok, verdict.reason[0] == '\0');
  return verdict.reason;
}

TEST(Sm80Refuses, OtherDevices) {
  SKIP_IF_LEFT_OUT(GemmSm80MmaF16, GemmSm89MmaF8, GemmSm80SimtF32);
  for (auto d : {card(8, 0), card(8, 6), card(8, 9), card(9, 0), card(10, 0), card(12, 0)})
    EXPECT_EQ(reason(acceptable(), d), "") << d.compute_major << d.compute_minor;
  EXPECT_EQ(reason(acceptable(), Device{}), "no CUDA device");
  EXPECT_EQ(reason(acceptable(), card(7, 5)), "device is older than sm_80");
  EXPECT_EQ(reason(acceptable(), card(8, 6, 64 * 1024)),
            "the device gives a block less than 99 KiB of shared memory");
  GemmArgs g = acceptable();
  g.type_a = DType::float8_e4m3, g.type_b = DType::float8_e5m2;
  EXPECT_EQ(reason<GemmSm89MmaF8>(g, card(8, 9)), "");
  EXPECT_EQ(reason<GemmSm89MmaF8>(g, card(8, 6)), "device is older than sm_89");
  g.type_a = g.type_b = g.type_c = DType::float32;
  for (auto d : {card(8, 0), card(8, 6), card(8, 9), card(9, 0), card(10, 0), card(12, 0)})
    EXPECT_EQ(reason<GemmSm80SimtF32>(g, d), "") << d.compute_major << d.compute_minor;
  EXPECT_EQ(reason<GemmSm80SimtF32>(g, card(7, 5)), "device is older than sm_80");
  EXPECT_EQ(reason<GemmSm80SimtF32>(g, card(8, 6, 64 * 1024)),
            "the device gives a block less than 99 KiB of shared memory");
}

/// Whatever strides, epilogues, lists and precision a float32 call has, one kernel takes it.
TEST(Sm80Refuses, NothingOfFloat32) {
  SKIP_IF_LEFT_OUT(GemmSm80SimtF32);
  static void* list[1];
  auto const with = [](auto change) {
    GemmArgs g = acceptable();
    g.type_a = g.type_b = g.type_c = DType::float32;
    change(g);
    return reason<GemmSm80SimtF32>(g);
  };
  EXPECT_EQ(with([](GemmArgs& g) { g.a_m = 17, g.b_k = -33, g.c_m = 1, g.c_n = 49; }), "");
  EXPECT_EQ(with([](GemmArgs& g) { g.a_m = 1, g.a_k = 49; }), "");
  EXPECT_EQ(with([](GemmArgs& g) { g.compute = Compute::tf32; }), "") << "more precise";
  EXPECT_EQ(with([](GemmArgs& g) { g.batch = 7, g.c_batch = 5000, g.bias = g.a; }), "");
  EXPECT_EQ(with([](GemmArgs& g) { g.offsets = g.a, g.groups = 3; }), "");
  EXPECT_EQ(with([](GemmArgs& g) { g.counts = reinterpret_cast<int const*>(g.a); }), "");
  EXPECT_EQ(with([](GemmArgs& g) { g.a_pointers = g.b_pointers = list, g.c_pointers = list; }), "");
  EXPECT_EQ(with([](GemmArgs& g) { g.k = 0, g.a = g.b = nullptr; }), "");
  EXPECT_EQ(with([](GemmArgs& g) {
              g.pre_activation = g.c, g.pre_activation_m = 32, g.pre_activation_n = 1;
            }),
            "");
  EXPECT_EQ(with([](GemmArgs& g) { g.tile = {128, 128, 16}; }), "");
  EXPECT_EQ(with([](GemmArgs& g) { g.tile.m = 256; }), "it has no such tile for this call");
  EXPECT_EQ(with([](GemmArgs& g) { g.type_c = DType::float16; }),
            "it does not write C's element type");
  EXPECT_EQ(with([](GemmArgs& g) { g.type_a = DType::float16; }),
            "it multiplies other element types");
}

TEST(Sm80Refuses, WhatItCannotDo) {
  SKIP_IF_LEFT_OUT(GemmSm80MmaF16);
  auto const with = [](auto change) {
    GemmArgs g = acceptable();
    change(g);
    return reason(g);
  };
  EXPECT_EQ(with([](GemmArgs& g) { g.type_b = DType::bfloat16; }),
            "it multiplies other element types");
  EXPECT_EQ(with([](GemmArgs& g) { g.type_c = DType::float64; }),
            "it does not write C's element type");
  EXPECT_EQ(with([](GemmArgs& g) { g.a_k = 2, g.a_m = 32; }), "A has no unit stride");
  EXPECT_EQ(with([](GemmArgs& g) { g.b_n = -1; }), "B has no unit stride");
  EXPECT_EQ(with([](GemmArgs& g) { g.a_m = 17, g.b_k = -33; }), "") << "any other stride";
  EXPECT_EQ(with([](GemmArgs& g) { g.a = static_cast<char const*>(g.a) + 2; }), "");
  EXPECT_EQ(with([](GemmArgs& g) { g.k = 0, g.a = g.b = nullptr; }), "");
  EXPECT_EQ(with([](GemmArgs& g) { g.m = -1; }), "an extent is negative");
  EXPECT_EQ(with([](GemmArgs& g) { g.m = 0, g.c = nullptr; }), "");
  EXPECT_EQ(with([](GemmArgs& g) { g.c_m = 0; }), "C has a zero stride, so its elements overlap");
  EXPECT_EQ(with([](GemmArgs& g) { g.c = nullptr; }), "C is a null pointer");
  EXPECT_EQ(with([](GemmArgs& g) { g.b = nullptr; }), "B is a null pointer");
  EXPECT_EQ(with([](GemmArgs& g) { g.m = g.n = std::int64_t{1} << 24; }),
            "C is too large for one launch");
  EXPECT_EQ(with([](GemmArgs& g) { g.m = INT64_MAX; }), "C is too large for one launch");
  static float factors[4];
  EXPECT_EQ(with([](GemmArgs& g) { g.scale_a.data = factors; }), "it does not scale A");
  EXPECT_EQ(with([](GemmArgs& g) { g.device_scale = factors; }), "");
  EXPECT_EQ(with([](GemmArgs& g) { g.bias = g.a, g.type_bias = DType::float64; }),
            "it does not read the bias's element type");
  EXPECT_EQ(with([](GemmArgs& g) { g.residual = g.a, g.type_residual = DType::int32; }),
            "it does not read the residual's element type");
}

TEST(Sm80Refuses, ListsThatItCannotFollow) {
  SKIP_IF_LEFT_OUT(GemmSm80MmaF16);
  static void* list[1];
  auto const with = [](auto change) {
    GemmArgs g = acceptable();
    change(g);
    return reason(g);
  };
  EXPECT_EQ(with([](GemmArgs& g) { g.counts = reinterpret_cast<int const*>(g.a); }), "");
  EXPECT_EQ(with([](GemmArgs& g) { g.offsets = g.a, g.groups = 3; }), "");
  EXPECT_EQ(with([](GemmArgs& g) { g.offsets = g.a, g.groups = -1; }), "an extent is negative");
  EXPECT_EQ(with([](GemmArgs& g) { g.offsets = g.a, g.groups = 0, g.b = nullptr; }), "");
  EXPECT_EQ(with([](GemmArgs& g) { g.offsets = g.a, g.groups = std::int64_t{1} << 31; }),
            "C is too large for one launch");
  EXPECT_EQ(with([](GemmArgs& g) { g.offsets = g.a, g.groups = 3, g.a_k = 2; }),
            "A has no unit stride");
  EXPECT_EQ(with([](GemmArgs& g) { g.a = nullptr, g.a_pointers = list; }), "");
  EXPECT_EQ(with([](GemmArgs& g) { g.b = nullptr, g.b_pointers = list; }), "");
  EXPECT_EQ(with([](GemmArgs& g) { g.c = nullptr, g.c_pointers = list; }), "");
  EXPECT_EQ(with([](GemmArgs& g) { g.a = nullptr, g.b_pointers = list; }), "A is a null pointer");
  EXPECT_EQ(with([](GemmArgs& g) { g.c_pointers = list, g.batch = 2; }),
            "C has a zero stride, so its elements overlap");
}

TEST(Sm80Refuses, WhatATypeCannotDo) {
  SKIP_IF_LEFT_OUT(GemmSm80MmaS8, GemmSm80MmaF64);
  static float factors[4];
  GemmArgs g = acceptable();
  g.type_a = g.type_b = DType::int8, g.type_c = DType::int32;
  EXPECT_EQ(reason<GemmSm80MmaS8>(g), "");
  g.alpha = 2;
  EXPECT_EQ(reason<GemmSm80MmaS8>(g), "int32 C takes alpha 1, beta 0 or 1, and no epilogue");
  g.type_c = DType::float32, g.scale_a.data = factors, g.scale_a.row = 1;
  EXPECT_EQ(reason<GemmSm80MmaS8>(g), "");
  g.scale_b.data = factors, g.scale_b.row = 1, g.scale_b.row_shift = 7;
  EXPECT_EQ(reason<GemmSm80MmaS8>(g),
            "its scales are one for a matrix, or one for a row of A or a column of B");
  g = acceptable();
  g.type_a = g.type_b = g.type_c = DType::float64;
  g.bias = g.a, g.type_bias = DType::float64;
  EXPECT_EQ(reason<GemmSm80MmaF64>(g), "");
  g.type_c = DType::float32;
  EXPECT_EQ(reason<GemmSm80MmaF64>(g), "it does not write C's element type");
}

TEST(Sm80Refuses, LessPrecisionThanIsAskedFor) {
  SKIP_IF_LEFT_OUT(GemmSm80MmaTf32, GemmSm80MmaTf32x3);
  GemmArgs g = acceptable();
  g.type_a = g.type_b = g.type_c = DType::float32;
  EXPECT_EQ(reason<GemmSm80MmaTf32>(g),
            "it rounds factors to 11 significant bits, which compute = tf32 allows");
  EXPECT_EQ(reason<GemmSm80MmaTf32x3>(g),
            "it drops the lowest bits of products, which compute = tf32x3 allows");
  g.compute = Compute::tf32x3;
  EXPECT_NE(reason<GemmSm80MmaTf32>(g), "");
  EXPECT_EQ(reason<GemmSm80MmaTf32x3>(g), "");
  g.compute = Compute::tf32;
  EXPECT_EQ(reason<GemmSm80MmaTf32>(g), "");
  EXPECT_EQ(reason<GemmSm80MmaTf32x3>(g), "") << "more precise than tf32 is allowed";
  g.m = g.n = g.k = 32, g.batch = 2, g.c_batch = 1024;
  EXPECT_EQ(reason<GemmSm80MmaTf32>(g),
            "several products without an extent above 32 fit in a warp");
  EXPECT_EQ(reason<GemmSm80MmaTf32x3>(g), reason<GemmSm80MmaTf32>(g));
  g.bias = g.a;
  EXPECT_EQ(reason<GemmSm80MmaTf32>(g), "") << "small_f32 has no bias";
}

}  // namespace
