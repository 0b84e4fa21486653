// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A card newer than any kernel was written for takes the best older one: what was built for a
// generation alone refuses it, everything else accepts. Needs no GPU.
#include <attikos/abi/attention_backward_cuda.hpp>
#include <attikos/abi/attention_cuda.hpp>
#include <attikos/abi/decode_cuda.hpp>
#include <attikos/abi/gated_mlp.hpp>
#include <string>

#include "gemm/direct_matrix.hpp"

namespace {

constexpr int fewest_shared_bytes = 99 * 1024, most_shared_bytes = 227 * 1024;

/// Called with each of the newer cards.
template <class Visit>
void on_newer_cards(Visit visit) {
  for (auto [major, minor] : {std::pair{10, 0}, {10, 3}, {12, 0}, {13, 1}})
    for (int bytes : {fewest_shared_bytes, most_shared_bytes})
      visit(Device{0, major, minor, abi::architecture_of(major, minor), 148, bytes});
}

template <class Kernel, class Args>
std::string reason(Args const& args, Device const& card) {
  auto const verdict = Kernel::accepts(args, card);
  EXPECT_EQ(verdict.ok, verdict.reason[0] == '\0');
  return verdict.reason;
}

template <class Kernel, class Args>
void accepted_by_one(Args const& args) {
  SKIP_IF_LEFT_OUT(Kernel);
  on_newer_cards([&](Device const& card) {
    EXPECT_EQ(reason<Kernel>(args, card), "")
        << Kernel::name << " on sm_" << card.compute_major << card.compute_minor;
  });
}
template <class... Kernels, class Args>
void accepted(Args const& args) {
  (accepted_by_one<Kernels>(args), ...);
}
template <class Kernel, class Args>
void refused(Args const& args) {
  SKIP_IF_LEFT_OUT(Kernel);
  on_newer_cards([&](Device const& card) {
    EXPECT_NE(reason<Kernel>(args, card), "")
        << Kernel::name << " on sm_" << card.compute_major << card.compute_minor;
  });
  // Only for the card: Hopper takes the same call.
  Device const hopper{0, 9, 0, abi::architecture_of(9, 0), 132, most_shared_bytes};
  EXPECT_EQ(reason<Kernel>(args, hopper), "") << Kernel::name;
}

alignas(128) float somewhere[64];

GemmArgs product(DType type, DType type_c, Compute compute = Compute::ieee) {
  GemmArgs g;
  g.a = g.b = g.c = somewhere;
  g.type_a = g.type_b = type, g.type_c = type_c, g.compute = compute;
  g.m = g.n = g.k = 4096, g.batch = 1;
  g.a_m = g.b_n = g.c_m = 4096, g.a_k = g.b_k = g.c_n = 1;
  return g;
}

TEST(NewerCards, Products) {
  auto const f16 = product(DType::float16, DType::float32);
  accepted<abi::GemmSm80MmaF16, abi::GemmSm75WmmaF16>(f16);
  refused<abi::GemmSm90WgmmaF16>(f16);
  auto const bf16 = product(DType::bfloat16, DType::bfloat16);
  accepted<abi::GemmSm80MmaBf16>(bf16);
  refused<abi::GemmSm90WgmmaBf16>(bf16);
  auto const s8 = product(DType::int8, DType::int32);
  accepted<abi::GemmSm80MmaS8>(s8);
  refused<abi::GemmSm90WgmmaS8>(s8);
  auto const f8 = product(DType::float8_e4m3, DType::bfloat16);
  accepted<abi::GemmSm89MmaF8>(f8);
  refused<abi::GemmSm90WgmmaF8>(f8);
  auto const f64 = product(DType::float64, DType::float64);
  accepted<abi::GemmSm80MmaF64>(f64);
  refused<abi::GemmSm90MmaF64>(f64);
  auto const f32 = product(DType::float32, DType::float32);
  accepted<abi::GemmSm80SimtF32>(f32);
  refused<abi::GemmSm90SimtF32>(f32);
  accepted<abi::GemmSm80MmaTf32>(product(DType::float32, DType::float32, Compute::tf32));
  auto const tf32x3 = product(DType::float32, DType::float32, Compute::tf32x3);
  accepted<abi::GemmSm80MmaTf32x3>(tf32x3);
  refused<abi::GemmSm90WgmmaTf32x3>(tf32x3);
}

TEST(NewerCards, GroupsAndBatches) {
  auto const grouped = [](DType type, DType type_c) {
    GemmArgs g = product(type, type_c);
    g.offsets = somewhere, g.offsets_stride = 1, g.groups = 4, g.b_batch = 4096 * 4096;
    return g;
  };
  auto const f16 = grouped(DType::float16, DType::float16);
  accepted<abi::GemmSm80MmaF16>(f16);
  refused<abi::GemmSm90GroupedF16>(f16);
  refused<abi::GemmSm90GroupedF8>(grouped(DType::float8_e4m3, DType::bfloat16));
  refused<abi::GemmSm90GroupedS8>(grouped(DType::int8, DType::int32));
  auto const small = [](DType type) {
    GemmArgs g = product(type, type);
    g.m = g.n = g.k = 16, g.batch = 20000;
    g.a_batch = g.b_batch = g.c_batch = 256, g.a_m = g.b_n = g.c_m = 16;
    return g;
  };
  accepted<abi::GemmSm80SmallF32>(small(DType::float32));
  accepted<abi::GemmSm80SmallF64>(small(DType::float64));
}

template <class Args = abi::AttentionArgs>
Args attention(DType type, DType type_out, std::int64_t length = 2048) {
  Args g;
  g.q = g.k = g.v = g.out = somewhere;
  g.type = type, g.type_out = type_out;
  g.batch = 2, g.heads_q = 8, g.heads_kv = 2, g.seqlen_q = g.seqlen_kv = length;
  g.head_dim = g.head_dim_v = 64, g.softmax_scale = 0.125;
  for (auto* s : {&g.q_stride, &g.k_stride, &g.v_stride, &g.out_stride})
    (*s)[0] = 512 * length, (*s)[1] = 64 * length, (*s)[2] = 64, (*s)[3] = 1;
  return g;
}

TEST(NewerCards, Attention) {
  auto const f16 = attention(DType::float16, DType::float16);
  accepted<abi::AttentionSm80MmaF16, abi::AttentionSm75WmmaF16>(f16);
  refused<abi::AttentionSm90WgmmaF16>(f16);
  auto const bf16 = attention(DType::bfloat16, DType::bfloat16);
  accepted<abi::AttentionSm80MmaBf16>(bf16);
  refused<abi::AttentionSm90WgmmaBf16>(bf16);
  auto const f8 = attention(DType::float8_e4m3, DType::bfloat16);
  accepted<abi::AttentionSm80MmaE4m3>(f8);
  refused<abi::AttentionSm90WgmmaE4m3>(f8);
  accepted<abi::AttentionSm80MmaF64>(attention(DType::float64, DType::float64));
  auto f32 = attention(DType::float32, DType::float32);
  accepted<abi::AttentionSm80SimtF32>(f32);
  f32.compute = Compute::tf32x3;
  accepted<abi::AttentionSm80MmaTf32x3>(f32);
  auto const few = attention(DType::bfloat16, DType::bfloat16, 64);
  accepted<abi::AttentionSm80ShortBf16>(few);
  refused<abi::AttentionSm90ShortBf16>(few);
}

TEST(NewerCards, AttentionBackward) {
  abi::AttentionBackwardArgs a;
  a.forward = attention(DType::float16, DType::float16);
  a.forward.lse = a.dq = a.dk = a.dv = somewhere, a.dout = somewhere;
  for (auto* s : {&a.dout_stride, &a.dq_stride, &a.dk_stride, &a.dv_stride})
    for (int r = 0; r < 4; ++r) (*s)[r] = a.forward.q_stride[r];
  refused<abi::AttentionBackwardSm90WgmmaF16>(a);
  accepted<abi::AttentionBackwardSm80MmaF16>(a);
  auto few = a;
  few.forward.seqlen_q = few.forward.seqlen_kv = 64;
  accepted<abi::AttentionBackwardSm80ShortF16>(few);
  a.forward.type = a.forward.type_out = DType::bfloat16;
  refused<abi::AttentionBackwardSm90WgmmaBf16>(a);
  accepted<abi::AttentionBackwardSm80MmaBf16>(a);
  few.forward.type = few.forward.type_out = DType::bfloat16;
  accepted<abi::AttentionBackwardSm80ShortBf16>(few);
  a.forward.type = a.forward.type_out = DType::float32;
  accepted<abi::AttentionBackwardSm80SimtF32>(a);
  a.forward.compute = abi::Compute::tf32x3;
  accepted<abi::AttentionBackwardSm80MmaTf32x3>(a);
  a.forward.type = a.forward.type_out = DType::float64;
  accepted<abi::AttentionBackwardSm80MmaF64>(a);
}

TEST(NewerCards, DecodeAndGatedMlp) {
  auto decode = attention<abi::DecodeArgs>(DType::float16, DType::float16);
  decode.seqlen_q = 1;
  accepted<abi::DecodeSm80MmaF16, abi::DecodeSm80SimtF16>(decode);
  decode.type = decode.type_out = DType::bfloat16;
  accepted<abi::DecodeSm80MmaBf16, abi::DecodeSm80SimtBf16>(decode);
  decode.type = DType::float8_e4m3;
  accepted<abi::DecodeSm80MmaE4m3>(decode);
  decode.type = decode.type_out = DType::float32;
  accepted<abi::DecodeSm80SimtF32>(decode);
  decode.type = decode.type_out = DType::float64;
  accepted<abi::DecodeSm80SimtF64>(decode);
  abi::GatedMlpArgs mlp;
  mlp.x = mlp.gate_weight = mlp.up_weight = mlp.out = somewhere;
  mlp.type_x = mlp.type_weight = mlp.type_out = DType::bfloat16;
  mlp.batch = 1, mlp.tokens = 64, mlp.hidden = mlp.intermediate = 256;
  mlp.x_token = mlp.gate_intermediate = mlp.up_intermediate = mlp.out_token = 256;
  mlp.x_hidden = mlp.gate_hidden = mlp.up_hidden = mlp.out_intermediate = 1;
  mlp.activation = Activation::silu;
  refused<abi::GatedMlpSm90WgmmaBf16>(mlp);
}

}  // namespace
