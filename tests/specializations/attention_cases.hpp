// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the direct tests of attention and decode have in common: options, sequences of all lengths,
/// random draws. `C` is Case or DecodeCase.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "direct_attention.hpp"

#define STOP_AT_FAILURE \
  if (testing::Test::HasFailure()) return

namespace {

/// Option number `which`, 0 to 13, of what changes scores or which pairs there are.
template <class C>
void set_option(C& t, int which) {
  if (which == 0) t.left = 40;
  if (which == 1) t.left = 100, t.right = 30;
  if (which == 2) t.right = 0, t.left = 0;
  if (which == 3) t.causal = true, t.left = 200;
  if (which == 4) t.softcap = 0.7;
  if (which == 5) t.softcap = 30, t.causal = true;
  if (which == 6) t.alibi = true, t.causal = true;
  if (which == 7) t.alibi = true, t.top_left = true;
  if (which == 8) t.bias = 1;
  if (which == 9) t.bias = 2, t.causal = true, t.softcap = 2;
  if (which == 10) t.sinks = true, t.causal = true;
  if (which == 11) t.scale = -0.3;
  if (which == 12) t.scale = 1.5, t.amplitude = 8;
  if (which == 13) t.order_out = Order::odd, t.sinks = t.alibi = true, t.bias = 2, t.left = 99;
}

/// Padded sequences of which lengths leave nothing, one position, all, and what lies around tiles.
/// `mask`: 0 none, 1 causal, 2 causal from the top left, 3 causal with a window and ALiBi.
template <class C>
C ragged_case(std::int64_t d, int mask) {
  C t{.batch = 8,
      .heads = 2,
      .heads_kv = 1,
      .len_q = 200,
      .len_kv = 300,
      .d = d,
      .dv = d,
      .causal = mask != 0,
      .top_left = mask == 2,
      .lengths_q = {0, 1, 200, 65, 200, 129, 64, 0},
      .lengths_kv = {300, 1, 300, 129, 0, 128, 81, 0}};
  if (mask == 3) t.left = 50, t.alibi = true;
  return t;
}

/// Packed sequences with positions outside all of them, empty ones, and offsets that go back.
/// `mask` as above, but with a bias and sinks beside the window.
template <class C>
C packed_case(std::int64_t heads, std::int64_t heads_kv, std::int64_t d, int mask) {
  C t{.heads = heads,
      .heads_kv = heads_kv,
      .len_q = 900,
      .len_kv = 1000,
      .d = d,
      .dv = d,
      .causal = mask != 0,
      .top_left = mask == 2,
      .order = Order::positions_first,
      .order_out = Order::positions_first,
      .cu_q = {3, 20, 20, 350, 350, 351, 479, 671, 897},
      .cu_kv = {2, 9, 230, 430, 430, 580, 708, 700, 990}};
  if (mask == 3) t.left = 70, t.bias = 1, t.sinks = true;
  return t;
}

/// `below(n)` draws from 0 to n - 1.
template <class C, class Below>
void draw_window(C& t, Below below, int longest) {
  if (below(3) == 0) t.left = below(longest);
  if (below(3) == 0) t.right = below(longest);
}
template <class C, class Below>
void draw_terms(C& t, Below below) {
  if (below(4) == 0) t.softcap = 0.5 + below(20);
  t.alibi = below(4) == 0, t.sinks = below(4) == 0, t.bias = below(4) == 0 ? 1 + below(2) : 0;
  t.lse = below(4) != 0, t.amplitude = 1 + below(4);
}
/// Lengths for half of the cases.
template <class C, class Below>
void draw_lengths(C& t, Below below) {
  if (below(2) != 0) return;
  for (std::int64_t b = 0; b < t.batch; ++b) {
    t.lengths_q.push_back(below(static_cast<int>(t.len_q) + 1));
    t.lengths_kv.push_back(below(static_cast<int>(t.len_kv) + 1));
  }
}

}  // namespace
