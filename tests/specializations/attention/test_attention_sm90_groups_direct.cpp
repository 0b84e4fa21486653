// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention/sm90_wgmma_* where heads share key heads, and tiles where their queries are few, called
// directly over memory of cudaMalloc. Fails without a Hopper card.

#include "attention_cases.hpp"

namespace {

/// Heads that share a key head, some of which share tiles, under everything that tells them apart
/// or does not; lengths that fill a tile of one, two or four heads, leave some of it, or take many.
template <class T>
void groups(std::int64_t d, std::int64_t dv) {
  std::int64_t const heads[][2] = {{8, 2}, {6, 3}, {6, 2}, {8, 1}, {12, 2}};
  std::int64_t const lengths[][2] = {{1, 300},  {16, 200}, {17, 33},   {31, 64},  {32, 129},
                                     {48, 500}, {65, 161}, {150, 150}, {260, 80}, {300, 401}};
  int round = 0, turn = static_cast<int>(d / 32);
  for (auto const& h : heads)
    for (auto const& l : lengths) {
      ++round;
      if (++turn % 2 == 0) continue;  // of each shape, half of the head dims
      Case t{.batch = 2, .heads = h[0], .heads_kv = h[1], .len_q = l[0], .len_kv = l[1]};
      t.d = d, t.dv = dv, t.causal = round / 2 % 2 == 1, t.top_left = round / 2 % 4 == 3;
      t.order = t.order_out = static_cast<Order>(round % 3);
      if (round % 7 == 6) t.order_out = Order::odd;
      if (round % 5 == 1) t.sinks = true;
      if (round % 5 == 2) t.left = 20, t.right = round % 2 == 0 ? 7 : -1;
      if (round % 5 == 3) t.softcap = 5;
      if (round % 5 == 4) {
        t.lengths_q = {static_cast<int>(l[0]) / 2, static_cast<int>(l[0])};
        t.lengths_kv = {static_cast<int>(l[1]), static_cast<int>(l[1]) / 3};
      }
      if (round % 11 == 8) t.alibi = true, t.softcap = 4;
      if (round % 11 == 9) t.alibi = true;
      if (round % 11 == 10) t.bias = 1 + round % last_bias;
      run<T>(t);
      STOP_AT_FAILURE;
    }
  for (auto const& h : heads)
    for (int mask = 0; mask < 3; ++mask) {
      Case t = packed_case<Case>(h[0], h[1], d, mask);
      t.dv = dv, t.len_q = 140, t.len_kv = 500;
      t.cu_q = {0, 7, 40, 41, 41, 90, 130};
      t.cu_kv = {0, 100, 110, 200, 310, 310, 490};
      run<T>(t);
      STOP_AT_FAILURE;
    }
}
TEST(AttentionSm90GroupsRuns, HeadDim32) { groups<__half>(32, 32); }
TEST(AttentionSm90GroupsRuns, HeadDim64) { groups<__nv_bfloat16>(64, 64); }
TEST(AttentionSm90GroupsRuns, HeadDim128) { groups<__nv_bfloat16>(128, 128); }
TEST(AttentionSm90GroupsRuns, HeadDim192) { groups<__half>(192, 128); }
TEST(AttentionSm90GroupsRuns, HeadDim256) { groups<__nv_bfloat16>(256, 256); }

// More sequences than are put in order of length: their tiles are looked for one by one.
TEST(AttentionSm90GroupsRuns, ManySequences) {
  for (std::int64_t d : {64, 256})
    for (bool causal : {false, true}) {
      Case t{.heads = 8, .heads_kv = 2, .d = d, .dv = d, .causal = causal, .cu_q = {3}};
      t.order = t.order_out = Order::positions_first;
      for (int n = 0; n < 1100; ++n)
        t.cu_q.push_back(t.cu_q.back() + (n % 251 == 7 ? 140 : n * 7 % 3));
      t.cu_kv = t.cu_q, t.len_q = t.len_kv = t.cu_q.back() + 70;
      run<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
    }
}

// A value that is NaN in the first key head, which some rows of its heads see.
TEST(AttentionSm90GroupsRuns, NanBehindTheMask) {
  for (std::int64_t d : {32, 64, 96, 128, 192, 256})
    for (int bad : {0, 33, 79, 128}) {
      Case t{.heads = 8, .heads_kv = 2, .len_q = 30, .len_kv = 140, .d = d, .dv = d};
      t.causal = true, t.bad_keys = {bad}, t.sinks = bad == 79, t.infinite = bad == 33;
      run<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
      t.causal = false, t.left = 60, t.right = 20, t.len_q = 150, t.heads = 4;
      run<__half>(t);
      STOP_AT_FAILURE;
    }
}

}  // namespace
