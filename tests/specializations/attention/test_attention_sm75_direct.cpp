// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention/sm75_wmma_f16 called directly over memory of cudaMalloc. The suite
// AttentionSm75Refuses needs no GPU; AttentionSm75Runs fails without a card of compute capability
// 7.5.

#include "attention_cases.hpp"
#include "decode/direct_decode.hpp"

namespace {

using Wmma = WithoutWorkspace<abi::AttentionSm75WmmaF16>;

void run_attention(DecodeCase t) {
  t.splits = {0};
  run_decode<__half, Wmma>(t);
}

/// A call that is taken, changed by `change`: why it is refused.
template <class Change>
std::string refusal(Change change, int major = 7, int minor = 5) {
  [[maybe_unused]] alignas(16) static float somewhere[4];
  AttentionArgs g;
  g.q = g.k = g.v = g.out = somewhere;
  g.type = g.type_out = DType::float16;
  g.batch = 2, g.heads_q = 8, g.heads_kv = 2, g.seqlen_q = 512, g.seqlen_kv = 512;
  g.head_dim = g.head_dim_v = 64;
  for (auto* s : {&g.q_stride, &g.k_stride, &g.v_stride, &g.out_stride})
    (*s)[0] = 262144, (*s)[1] = 32768, (*s)[2] = 64, (*s)[3] = 1;
  change(g);
  Device const d{0, major, minor, abi::architecture_of(major, minor), 40, 65536};
  abi::Verdict const verdict = abi::AttentionSm75WmmaF16::accepts(g, d);
  EXPECT_EQ(verdict.ok, verdict.reason[0] == '\0');
  return verdict.reason;
}

TEST(AttentionSm75Refuses, OlderDevices) {
  SKIP_IF_LEFT_OUT(Wmma);
  auto const same = [](AttentionArgs&) {};
  EXPECT_EQ(refusal(same), "");
  EXPECT_EQ(refusal(same, 8, 6), "");
  EXPECT_EQ(refusal(same, 12, 0), "");
  EXPECT_EQ(refusal(same, 7, 2), "it needs compute capability 7.5");
  EXPECT_EQ(refusal(same, 6, 1), "it needs compute capability 7.5");
  EXPECT_EQ(refusal(same, 0, 0), "no CUDA device");
}

TEST(AttentionSm75Refuses, WhatItCannotDo) {
  SKIP_IF_LEFT_OUT(Wmma);
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.type = DType::bfloat16; }),
            "it takes other element types");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.type_out = DType::float32; }),
            "it takes other element types");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.descale_q = static_cast<float const*>(g.q); }),
            "it has no factors of float8 tensors");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.bias = g.q, g.type_bias = DType::float64; }),
            "it does not read the bias's element type");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.head_dim = 257; }), "head_dim is above 256");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.head_dim_v = 513; }), "head_dim of v is above 512");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.head_dim_v = 0; }), "head_dim is 0");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.seqlen_q = -1; }), "an extent is negative");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.v = nullptr; }), "k or v is a null pointer");
}

TEST(AttentionSm75Refuses, NoStrides) {
  SKIP_IF_LEFT_OUT(Wmma);
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.q_stride[1] = 65, g.k_stride[3] = 2; }), "");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.v = static_cast<char const*>(g.v) + 2; }), "");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.out_stride[2] = 65, g.k_stride[0] = 0; }), "");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.seqlen_q = 0, g.head_dim = 0; }), "");
}

TEST(AttentionSm75Runs, HeadDim64) { each_shape<DecodeCase>(64, 64, run_attention); }
TEST(AttentionSm75Runs, HeadDim128) { each_shape<DecodeCase>(128, 128, run_attention); }
TEST(AttentionSm75Runs, HeadDim256) { each_shape<DecodeCase>(256, 256, run_attention); }
TEST(AttentionSm75Runs, OtherHeadDimsAndStrides) { each_head_dim<DecodeCase>(run_attention); }

TEST(AttentionSm75Runs, Options64) { each_option<DecodeCase>(64, run_attention); }
TEST(AttentionSm75Runs, Options128) { each_option<DecodeCase>(128, run_attention); }
TEST(AttentionSm75Runs, Options256) { each_option<DecodeCase>(256, run_attention); }

TEST(AttentionSm75Runs, Pages) {
  for (std::int64_t d : {64, 128, 256}) each_page_size<DecodeCase>(d, run_attention);
}

TEST(AttentionSm75Runs, LengthsCutPoisonedPadding) {
  for (std::int64_t d : {64, 128, 256})
    for (int mask = 0; mask < 4; ++mask) {
      DecodeCase t = ragged_case<DecodeCase>(d, mask);
      if (mask == 3) t.order = Order::odd;
      run_attention(t);
      STOP_AT_FAILURE;
    }
}

TEST(AttentionSm75Runs, PackedSequences) {
  for (std::int64_t d : {64, 128, 256})
    for (int mask = d == 128 ? 0 : 3; mask < 4; ++mask) {
      DecodeCase t = packed_case<DecodeCase>(2, 1, d, mask);
      run_attention(t);
      STOP_AT_FAILURE;
      // Packed queries against padded and paged keys.
      t.cu_q = {0, 400, 900}, t.cu_kv = {}, t.len_kv = 400, t.lengths_kv = {399, 150};
      run_attention(t);
      STOP_AT_FAILURE;
      t.page_size = 40;
      run_attention(t);
      STOP_AT_FAILURE;
    }
}

// An excluded key's value must not reach a row as 0 times NaN, wherever tiles end.
TEST(AttentionSm75Runs, NanBehindTheMask) {
  for (std::int64_t d : {64, 128, 256})
    each_bad_key<DecodeCase>(d, [](DecodeCase const& t, int) { run_attention(t); });
}

TEST(AttentionSm75Runs, RandomCases) {
  Draws below(20240611);
  for (int round = 0; round < 40; ++round) {
    run_attention(draw_case<DecodeCase>(below, 256));
    STOP_AT_FAILURE;
  }
}

TEST(AttentionSm75Runs, SameBitsOnAnyDevice) {
  for (std::int64_t d : {64, 128, 256})
    expect_same_bits_on_any_device<__half, Wmma>(
        {.heads = 16, .len_q = 700, .len_kv = 900, .d = d, .dv = d, .causal = true});
}

TEST(AttentionSm75Runs, NothingWhereThereIsNothing) { each_empty_case<DecodeCase>(run_attention); }

}  // namespace
