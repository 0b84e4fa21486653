// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention_backward/sm80_short_* called directly over memory of cudaMalloc. What runs fails
// without a card of compute capability 8.0 or more; what is refused needs none.
#include "attention_backward_cases.hpp"
#include "plain_backward_call.hpp"
#include "repeated_gradient_cases.hpp"

namespace {

using F16 = abi::AttentionBackwardSm80ShortF16;
using Bf16 = abi::AttentionBackwardSm80ShortBf16;

/// Lengths around those of tiles, warps and shapes, each in full and with either causal mask.
template <class Kernel>
void each_short_length(std::int64_t d, std::int64_t dv) {
  std::int64_t const lengths[][2] = {
      {1, 1},   {1, 128},  {128, 1},   {7, 13},    {30, 30},  {63, 65}, {64, 64},   {64, 33},
      {65, 64}, {64, 128}, {127, 127}, {128, 128}, {128, 64}, {97, 96}, {113, 103}, {33, 97}};
  for (auto const& l : lengths)
    for (int mask = 0; mask < 3; ++mask) {
      run_backward<Kernel>({.batch = 1 + l[0] % 2,
                            .heads = 2,
                            .heads_kv = 2 - l[1] % 2,
                            .len_q = l[0],
                            .len_kv = l[1],
                            .d = d,
                            .dv = dv,
                            .causal = mask != 0,
                            .top_left = mask == 2});
      STOP_AT_FAILURE;
    }
}
TEST(AttentionBackwardShortRuns, Lengths) { each_short_length<Bf16>(64, 64); }
TEST(AttentionBackwardShortRuns, LengthsFloat16) { each_short_length<F16>(64, 64); }
TEST(AttentionBackwardShortRuns, LengthsOfOddHeadDims) { each_short_length<F16>(33, 47); }
TEST(AttentionBackwardShortRuns, LengthsOfWideHeads) { each_short_length<Bf16>(128, 128); }
TEST(AttentionBackwardShortRuns, LengthsOfOddWideHeads) { each_short_length<F16>(77, 113); }

// Of up to 192 positions, as head dimensions up to 64 have.
TEST(AttentionBackwardShortRuns, LongerLengths) {
  std::int64_t const lengths[][2] = {{129, 129}, {1, 192},   {192, 1},  {130, 192}, {192, 192},
                                     {191, 145}, {160, 177}, {192, 64}, {70, 190}};
  for (auto const& l : lengths)
    for (int mask = 0; mask < 3; ++mask) {
      Case const t{.batch = 1 + l[0] % 2,
                   .heads = 2,
                   .heads_kv = 2 - l[1] % 2,
                   .len_q = l[0],
                   .len_kv = l[1],
                   .d = 64,
                   .dv = 64,
                   .causal = mask != 0,
                   .top_left = mask == 2};
      if (mask == 1)
        run_backward<F16>(t);
      else
        run_backward<Bf16>(t);
      STOP_AT_FAILURE;
    }
}

TEST(AttentionBackwardShortRuns, HeadDims) {
  head_dims<Bf16>({{1, 1}, {1, 3}, {8, 8}, {20, 12}, {32, 32}, {40, 24}, {63, 64}, {64, 8}}, {},
                  {90, 120});
  STOP_AT_FAILURE;
  head_dims<F16>({{1, 2}, {16, 16}, {24, 64}, {64, 63}, {56, 56}}, {}, {60, 50});
  STOP_AT_FAILURE;
  head_dims<Bf16>({{65, 64}, {80, 96}, {96, 8}, {104, 120}, {128, 127}}, {}, {90, 120});
  STOP_AT_FAILURE;
  head_dims<F16>({{72, 72}, {128, 1}, {112, 128}}, {}, {60, 50});
}

TEST(AttentionBackwardShortRuns, AnyStrides) {
  for (std::int64_t d : {1, 40, 64, 100}) {
    any_strides<Bf16>(d, {}, all_orders, false, {70, 110});
    STOP_AT_FAILURE;
    any_strides<F16>(d, {}, all_orders, false, {50, 60});
    STOP_AT_FAILURE;
  }
}

// Each option alone and any two of them, and the scales that are not positive with each.
TEST(AttentionBackwardShortRuns, Options) {
  constexpr int options[] = {0, 1, 2, 3, 6, 7, 9, 10};
  for (int one : options)
    for (int two : options) {
      if (two < one) continue;
      Case t{.batch = 2, .heads = 4, .heads_kv = 2, .len_q = 100, .len_kv = 128, .d = 64, .dv = 64};
      if (one != two) t.batch = 1, t.heads = 2, t.heads_kv = 1, t.len_q = 60, t.len_kv = 64;
      set_gradient_option(t, one), set_gradient_option(t, two);
      t.len_q = std::min<std::int64_t>(t.len_q, 128);
      run_backward<Bf16>(t);
      STOP_AT_FAILURE;
    }
  for (int one : options)
    for (int which = 3; which < 5; ++which) {
      Case t{.batch = 1, .heads = 2, .heads_kv = 1, .len_q = 120, .len_kv = 90, .d = 40, .dv = 40};
      Beside more;
      set_gradient_option(t, one), set_own_option(t, more, which);
      t.len_q = std::min<std::int64_t>(t.len_q, 128);
      run_backward<F16>(t, more);
      STOP_AT_FAILURE;
    }
}

// Alone, where few key heads have their query heads divided, and where they are many.
TEST(AttentionBackwardShortRuns, HeadsThatShareKeys) {
  for (std::int64_t group : {1, 2, 4, 8})
    for (std::int64_t length : {50, 70, 128, 190})
      for (std::int64_t d : {64, 128}) {
        if (d > 64 && length > 128) continue;
        run_backward<Bf16>({.batch = 2,
                            .heads = 8,
                            .heads_kv = 8 / group,
                            .len_q = length,
                            .len_kv = length,
                            .d = d,
                            .dv = d,
                            .causal = length == 70});
        STOP_AT_FAILURE;
      }
  run_backward<F16>(
      {.batch = 150, .heads = 8, .heads_kv = 2, .len_q = 20, .len_kv = 140, .d = 40, .dv = 40});
}
// Parts are as many as the call says, and have their sums in the workspace.
TEST(AttentionBackwardShortRuns, PartsFollowFromTheCall) {
  abi::AttentionBackwardArgs a = plain_call();
  abi::AttentionArgs& g = a.forward;
  g.batch = 6, g.heads_q = 24, g.heads_kv = 3, g.seqlen_q = g.seqlen_kv = 115;
  g.head_dim = g.head_dim_v = 64;
  EXPECT_EQ(Bf16::workspace_bytes(a, hopper), std::size_t{2 * 8 * 6 * 3 * 115 * 64 * 4 + 256});
  abi::Device small = hopper;
  small.sm_count = 10;
  EXPECT_EQ(Bf16::workspace_bytes(a, small), Bf16::workspace_bytes(a, hopper));
  g.heads_kv = 24;
  EXPECT_EQ(Bf16::workspace_bytes(a, hopper), 0u);
  g.batch = 600, g.heads_kv = 3;
  EXPECT_EQ(Bf16::workspace_bytes(a, hopper), 0u);
}

TEST(AttentionBackwardShortRuns, LengthsCutPoisonedPadding) {
  for (int mask = 0; mask < 4; ++mask)
    for (std::int64_t d : {40, 64}) {
      Case t = ragged_case<Case>(d, mask % 3);
      t.len_q = 128, t.lengths_q = {0, 1, 128, 65, 127, 100, 64, 0};
      t.len_kv = 120, t.lengths_kv = {120, 1, 120, 65, 0, 64, 81, 0};
      if (mask == 3) t.left = 50;
      t.infinite = mask % 2 != 0;
      run_backward<F16>(t);
      STOP_AT_FAILURE;
      t.len_q = 64, t.len_kv = 60;
      t.lengths_q = {0, 1, 64, 33, 20, 63, 64, 0}, t.lengths_kv = {60, 1, 60, 32, 0, 31, 33, 0};
      run_backward<Bf16>(t);
      STOP_AT_FAILURE;
    }
}

TEST(AttentionBackwardShortRuns, RandomCases) {
  Draws below(20251126);
  for (int round = 0; round < 200; ++round) {
    Case t = random_gradients(below, round % 4 < 2 ? 64 : 128);
    t.sinks = t.alibi = false, t.softcap = 0, t.lengths_q.clear(), t.lengths_kv.clear();
    int const wide[] = {64, 128}, narrow[] = {64, 128, 192};
    int const most = std::max(t.d, t.dv) > 64 ? wide[round % 2] : narrow[round % 3];
    t.len_q = 1 + below(most), t.len_kv = 1 + below(most);
    draw_lengths(t, below);
    if (below(3) == 0) t.order = Order::odd;
    if (below(5) == 0) t.scale = -0.2;
    if (round / 2 % 2 == 0)
      run_backward<Bf16>(t, {.ordered = round % 8 > 1});
    else
      run_backward<F16>(t, {.ordered = round % 8 > 3});
    STOP_AT_FAILURE;
  }
}

TEST(AttentionBackwardShortRuns, SameBitsEveryTime) {
  for (std::int64_t length : {64, 100, 128, 180}) {
    repeat<Bf16>({.batch = 10,
                  .heads = 6,
                  .heads_kv = 3,
                  .len_q = length,
                  .len_kv = length,
                  .d = length == 100 ? 96 : 64,
                  .dv = 64,
                  .causal = length == 128});
    STOP_AT_FAILURE;
  }
}

TEST(AttentionBackwardShortRuns, Replays) {
  for (std::int64_t length : {60, 120, 180}) {
    auto const all = static_cast<int>(length);
    replay_gradients<F16>({.batch = 3,
                           .heads = 4,
                           .heads_kv = 2,
                           .len_q = length,
                           .len_kv = length,
                           .d = 64,
                           .dv = 64,
                           .causal = true,
                           .lengths_q = {all, all / 2, 1},
                           .lengths_kv = {all, all - 7, all / 3}});
    STOP_AT_FAILURE;
  }
}

TEST(AttentionBackwardShortRefuses, WhatItCannotDo) {
  using Args = AttentionArgs;
  using Back = AttentionBackwardArgs;
  SKIP_IF_LEFT_OUT(Bf16);
  auto const with = [](auto change, int major = 8, int bytes = 232448) {
    Device d = hopper;
    d.compute_major = major, d.shared_memory_per_block_optin = bytes;
    return refusal<Bf16>(change, d);
  };
  for (int major : {8, 9, 10, 12}) EXPECT_EQ(with([](Args&, Back&) {}, major), "");
  EXPECT_EQ(with([](Args&, Back&) {}, 7), "it needs compute capability 8.0");
  EXPECT_EQ(with([](Args&, Back&) {}, 0), "no CUDA device");
  EXPECT_EQ(with([](Args& g, Back&) { g.type = DType::float16; }), "it takes other element types");
  EXPECT_EQ(with([](Args& g, Back&) { g.type_out = DType::float32; }),
            "it takes out in the element type of q only");
  EXPECT_EQ(with([](Args& g, Back&) { g.bias = g.q; }), "it has no bias");
  EXPECT_EQ(with([](Args& g, Back&) { g.mask = static_cast<std::uint8_t const*>(g.q); }),
            "it has no boolean mask");
  EXPECT_EQ(with([](Args& g, Back&) { g.softcap = 2; }), "it has no softcap");
  EXPECT_EQ(with([](Args& g, Back&) { g.sinks = g.q; }), "it has no sinks");
  EXPECT_EQ(with([](Args& g, Back&) { g.alibi = static_cast<float const*>(g.q); }),
            "it has no ALiBi");
  EXPECT_EQ(with([](Args& g, Back&) { g.cu_seqlens_q.data = g.q; }),
            "it takes no packed sequences");
  EXPECT_EQ(with([](Args& g, Back&) { g.attention_chunk = 8; }), "it has no attention_chunk");
  for (auto extent : {&Args::head_dim, &Args::head_dim_v}) {
    EXPECT_EQ(with([=](Args& g, Back&) { g.*extent = 129; }), "head_dim is above 128");
    EXPECT_EQ(with([=](Args& g, Back&) { g.*extent = 0; }), "head_dim is 0");
  }
  for (auto extent : {&Args::seqlen_q, &Args::seqlen_kv}) {
    EXPECT_EQ(with([=](Args& g, Back&) { g.*extent = 128; }), "");
    EXPECT_EQ(with([=](Args& g, Back&) { g.*extent = 192; }), "");
    EXPECT_EQ(with([=](Args& g, Back&) { g.*extent = 193; }), "sequences are longer than 192");
    EXPECT_EQ(with([=](Args& g, Back&) { g.head_dim = 65, g.*extent = 129; }),
              "sequences are longer than 128");
    EXPECT_EQ(with([=](Args& g, Back&) { g.head_dim = 65, g.batch = 33, g.*extent = 128; }), "");
    EXPECT_EQ(with([=](Args& g, Back&) { g.head_dim = 65, g.batch = 34, g.*extent = 128; }),
              "with a head_dim above 64, more than 132 heads have sequences longer than 64");
    EXPECT_EQ(with([=](Args& g, Back&) { g.head_dim = 65, g.batch = 34, g.*extent = 64; }), "");
    EXPECT_EQ(with([=](Args& g, Back&) { g.*extent = 128; }, 8, 99 * 1024), "");
    EXPECT_EQ(with([=](Args& g, Back&) { g.*extent = 128; }, 8, 64 * 1024),
              "a block needs more shared memory than the device has");
    EXPECT_EQ(with([=](Args& g, Back&) { g.*extent = 0; }),
              "there are no pairs of queries and keys");
  }
  EXPECT_EQ(with([](Args& g, Back&) { g.batch = 1 << 27, g.heads_q = g.heads_kv = 8; }),
            "there are too many sequences for one launch");
  EXPECT_EQ(with([](Args& g, Back&) { g.lse = nullptr; }), "lse is a null pointer");
  for (auto tensor : {&Back::dq, &Back::dk, &Back::dv})
    EXPECT_EQ(with([=](Args&, Back& a) { a.*tensor = nullptr; }), "a tensor is a null pointer");
  AttentionBackwardArgs const a = plain_call();
  EXPECT_EQ(Bf16::workspace_bytes(a, hopper), 0u);
}

}  // namespace
