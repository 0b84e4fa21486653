// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention/sm80_simt_f32 and attention/sm80_mma_tf32x3 called directly over memory of cudaMalloc.
// The suite AttentionF32Refuses needs no GPU; AttentionF32Runs fails without a
// card of compute capability 8.0.

#include "attention_cases.hpp"
#include "decode/direct_decode.hpp"

namespace {

using Simt = abi::AttentionSm80SimtF32;
using Split = abi::AttentionSm80MmaTf32x3;

/// An attention kernel as the cases of decode call one: without parts and workspace. `Allowed`:
/// what the caller allows.
template <class Kernel, abi::Compute Allowed>
struct AsDecode {
  static constexpr char const* name = Kernel::name;
  static std::size_t workspace_bytes(DecodeArgs const&, Device const&) { return 0; }
  static AttentionArgs allowed(DecodeArgs const& args) {
    AttentionArgs g = args;
    g.compute = Allowed;
    return g;
  }
  static abi::Verdict accepts(DecodeArgs const& args, Device const& device) {
    return Kernel::accepts(allowed(args), device);
  }
  static int launch(DecodeArgs const& args, Device const& device, CUstream_st* stream) {
    return Kernel::launch(allowed(args), device, stream);
  }
};
using Ieee = AsDecode<Simt, abi::Compute::ieee>;
using Tf32x3 = AsDecode<Split, abi::Compute::tf32x3>;

/// The errors of tf32x3 may be twice those of IEEE float32.
void run_attention(DecodeCase t) {
  t.splits = {0};
  run_decode<float, Ieee>(t);
  if (testing::Test::HasFailure()) return;
  SCOPED_TRACE("tf32x3");
  t.units = 2;
  run_decode<float, Tf32x3>(t);
}

/// A call that is taken, changed by `change`: why it is refused.
template <class Kernel, class Change>
std::string refusal(Change change, int major = 9) {
  [[maybe_unused]] alignas(16) static float somewhere[4];
  AttentionArgs g;
  g.q = g.k = g.v = g.out = somewhere;
  g.batch = 2, g.heads_q = 8, g.heads_kv = 2, g.seqlen_q = 512, g.seqlen_kv = 512;
  g.head_dim = g.head_dim_v = 64;
  for (auto* s : {&g.q_stride, &g.k_stride, &g.v_stride, &g.out_stride})
    (*s)[0] = 262144, (*s)[1] = 32768, (*s)[2] = 64, (*s)[3] = 1;
  change(g);
  Device const d{0, major, 6, abi::architecture_of(major, 6), 84, 101376};
  abi::Verdict const verdict = Kernel::accepts(g, d);
  EXPECT_EQ(verdict.ok, verdict.reason[0] == '\0');
  return verdict.reason;
}

TEST(AttentionF32Refuses, WhatItCannotDo) {
  SKIP_IF_LEFT_OUT(Simt, Split);
  auto const same = [](AttentionArgs&) {};
  EXPECT_EQ(refusal<Simt>(same), "");
  EXPECT_EQ(refusal<Simt>(same, 8), "");
  EXPECT_EQ(refusal<Simt>(same, 7), "it needs compute capability 8.0");
  EXPECT_EQ(refusal<Simt>(same, 0), "no CUDA device");
  EXPECT_EQ(refusal<Simt>([](AttentionArgs& g) { g.type = DType::float16; }),
            "it takes other element types");
  EXPECT_EQ(refusal<Simt>([](AttentionArgs& g) { g.type_out = DType::float64; }),
            "it takes other element types");
  EXPECT_EQ(refusal<Simt>([](AttentionArgs& g) { g.descale_q = static_cast<float const*>(g.q); }),
            "it has no factors of float8 tensors");
  EXPECT_EQ(refusal<Simt>([](AttentionArgs& g) { g.bias = g.q, g.type_bias = DType::float64; }),
            "it does not read the bias's element type");
  EXPECT_EQ(refusal<Simt>([](AttentionArgs& g) { g.head_dim = 257; }), "head_dim is above 256");
  EXPECT_EQ(refusal<Simt>([](AttentionArgs& g) { g.head_dim_v = 257; }), "head_dim is above 256");
  EXPECT_EQ(refusal<Simt>([](AttentionArgs& g) { g.head_dim_v = 0; }), "head_dim is 0");
  EXPECT_EQ(refusal<Simt>([](AttentionArgs& g) { g.k = nullptr; }), "k or v is a null pointer");
}

TEST(AttentionF32Refuses, NoStridesAndNoPrecision) {
  SKIP_IF_LEFT_OUT(Simt, Split);
  EXPECT_EQ(refusal<Simt>([](AttentionArgs& g) { g.q_stride[1] = 65, g.k_stride[3] = 2; }), "");
  EXPECT_EQ(refusal<Simt>([](AttentionArgs& g) { g.v = static_cast<char const*>(g.v) + 4; }), "");
  EXPECT_EQ(refusal<Simt>([](AttentionArgs& g) { g.seqlen_q = 0, g.head_dim = 0; }), "");
  // IEEE float32 is at least as precise as any choice asks for.
  EXPECT_EQ(refusal<Simt>([](AttentionArgs& g) { g.compute = abi::Compute::tf32; }), "");
  EXPECT_EQ(refusal<Simt>([](AttentionArgs& g) { g.compute = abi::Compute::tf32x3; }), "");
  EXPECT_EQ(refusal<Split>([](AttentionArgs& g) { g.compute = abi::Compute::tf32; }), "");
  EXPECT_EQ(refusal<Split>([](AttentionArgs& g) { g.compute = abi::Compute::tf32x3; }), "");
  EXPECT_EQ(refusal<Split>([](AttentionArgs&) {}),
            "it drops the lowest bits of products, which compute = tf32x3 allows");
  EXPECT_EQ(refusal<Split>(
                [](AttentionArgs& g) { g.compute = abi::Compute::tf32x3, g.head_dim_v = 300; }),
            "head_dim is above 256");
}

void shapes(std::int64_t d) {
  each_shape<DecodeCase>(d, d, [](DecodeCase t) {
    t.batch = 1;
    run_attention(t);
  });
}
TEST(AttentionF32Runs, HeadDim64) { shapes(64); }
TEST(AttentionF32Runs, HeadDim128) { shapes(128); }
TEST(AttentionF32Runs, HeadDim256) { shapes(256); }

TEST(AttentionF32Runs, OtherHeadDimsAndStrides) {
  std::int64_t const dims[][2] = {{8, 8},     {32, 32},  {40, 24},  {72, 72},   {96, 96},
                                  {128, 64},  {64, 128}, {100, 99}, {192, 128}, {192, 192},
                                  {136, 256}, {1, 3},    {20, 12},  {64, 256},  {249, 31},
                                  {255, 1},   {33, 63},  {127, 65}};
  for (auto const& e : dims)
    for (bool causal : {false, true})
      for (Order order : {Order::padded, Order::odd}) {
        run_attention({.batch = 1,
                       .heads = 2,
                       .heads_kv = 2,
                       .len_q = 150,
                       .len_kv = 130,
                       .d = e[0],
                       .dv = e[1],
                       .causal = causal,
                       .order = order,
                       .order_out = causal ? Order::odd : Order::padded});
        STOP_AT_FAILURE;
      }
}

void options(std::int64_t d) {
  for (Order order : {Order::heads_first, Order::positions_first, Order::odd})
    for (int which = 0; which < 16; ++which) {
      DecodeCase t{.batch = 1,
                   .heads = 2,
                   .heads_kv = 1,
                   .len_q = 150,
                   .len_kv = 190,
                   .d = d,
                   .dv = d,
                   .order = order,
                   .order_out = order};
      set_option(t, which);
      if (which == 3) t.left = 70;
      if (which == 14) t.mask = true;
      if (which == 15) t.mask = t.causal = true, t.bias = 1, t.lse = false;
      run_attention(t);
      STOP_AT_FAILURE;
    }
}
TEST(AttentionF32Runs, Options64) { options(64); }
TEST(AttentionF32Runs, Options128) { options(128); }
TEST(AttentionF32Runs, Options256) { options(256); }

TEST(AttentionF32Runs, Pages) {
  for (std::int64_t d : {64, 128, 256})
    for (std::int64_t size : {1, 7, 16, 64, 100, 1000})
      for (int mask = 0; mask < 3; ++mask) {
        DecodeCase t{.batch = 3,
                     .heads = 2,
                     .heads_kv = 1,
                     .len_q = 70,
                     .len_kv = 400,
                     .d = d,
                     .dv = d,
                     .page_size = size,
                     .causal = mask != 0,
                     .order = mask == 2 ? Order::odd : Order::heads_first,
                     .lengths_q = {70, 30, 65},
                     .lengths_kv = {333, 400, 64}};
        if (mask == 1) t.left = 100;
        run_attention(t);
        STOP_AT_FAILURE;
      }
}

TEST(AttentionF32Runs, LengthsCutPoisonedPadding) {
  for (std::int64_t d : {64, 128, 256})
    for (int mask = 0; mask < 4; ++mask) {
      DecodeCase t = ragged_case<DecodeCase>(d, mask);
      if (mask == 3) t.order = Order::odd;
      run_attention(t);
      STOP_AT_FAILURE;
    }
}

TEST(AttentionF32Runs, PackedSequences) {
  for (std::int64_t d : {64, 128, 256})
    for (int mask = 0; mask < 4; ++mask) {
      DecodeCase t = packed_case<DecodeCase>(2, 1, d, mask);
      run_attention(t);
      STOP_AT_FAILURE;
      if (mask > 1) continue;
      // Packed queries against padded and paged keys.
      t.cu_q = {0, 400, 900}, t.cu_kv = {}, t.len_kv = 400, t.lengths_kv = {399, 150};
      if (mask == 1) t.page_size = 40;
      run_attention(t);
      STOP_AT_FAILURE;
    }
}

// An excluded key's value must not reach a row as 0 times NaN, wherever tiles end.
TEST(AttentionF32Runs, NanBehindTheMask) {
  for (std::int64_t d : {64, 128, 256})
    for (int bad : {0, 31, 32, 64, 127, 159}) {
      DecodeCase t{.batch = 1,
                   .heads = 2,
                   .heads_kv = 1,
                   .len_q = 160,
                   .len_kv = 160,
                   .d = d,
                   .dv = d,
                   .causal = true,
                   .bad_keys = {bad}};
      run_attention(t);
      STOP_AT_FAILURE;
      t.causal = false, t.left = 30, t.right = 11, t.sinks = true;
      run_attention(t);
      STOP_AT_FAILURE;
      t.left = t.right = -1, t.mask = true, t.order = Order::odd;
      run_attention(t);
      STOP_AT_FAILURE;
    }
}

TEST(AttentionF32Runs, PaddingAndValuesThatSomeRowsSee) {
  for (std::int64_t d : {64, 128, 256}) {
    each_poison<DecodeCase>(d, run_attention);
    STOP_AT_FAILURE;
    int round = 0;
    each_bad_value<DecodeCase>(d, [&](DecodeCase t) {
      t.mask = t.cu_q.empty() && ++round % 3 == 0, t.alibi = round % 3 == 1;
      t.softcap = round % 4 == 0 ? 5 : 0, t.page_size = !t.mask && t.cu_q.empty() ? 24 : 0;
      run_attention(t);
    });
    STOP_AT_FAILURE;
  }
}

TEST(AttentionF32Runs, RandomCases) {
  Draws below(20240611);
  for (int round = 0; round < 80; ++round) {
    DecodeCase t;
    t.batch = 1 + below(3), t.heads_kv = 1 + below(2), t.heads = t.heads_kv * (1 + below(3));
    t.len_q = 1 + below(300), t.len_kv = below(350);
    t.d = 1 + below(256), t.dv = below(2) == 0 ? t.d : 1 + below(256);
    t.causal = below(2) == 0, t.top_left = below(2) == 0;
    draw_window(t, below, 300);
    draw_terms(t, below);
    t.order = static_cast<Order>(below(4)), t.order_out = static_cast<Order>(below(4));
    if (below(3) == 0 && t.bias == 0)
      t.page_size = 1 + below(200);
    else
      t.mask = below(4) == 0;
    draw_lengths(t, below);
    run_attention(t);
    STOP_AT_FAILURE;
  }
}

TEST(AttentionF32Runs, NothingWhereThereIsNothing) { each_empty_case<DecodeCase>(run_attention); }

}  // namespace
