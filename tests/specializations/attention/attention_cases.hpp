// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the direct tests of attention and decode have in common: options, sequences of all lengths,
/// random draws. `C` is Case or DecodeCase.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>

#include "compare_attention.hpp"

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

/// Lengths around those of tiles, each in full and with either causal mask. `run` runs a case.
template <class C, class Run>
void each_shape(std::int64_t d, std::int64_t dv, Run run) {
  std::int64_t const lengths[][2] = {{1, 1},     {1, 300},   {7, 0},     {31, 33},   {63, 65},
                                     {65, 161},  {127, 127}, {128, 128}, {129, 255}, {113, 203},
                                     {191, 256}, {193, 257}, {385, 144}, {320, 513}};
  for (auto const& l : lengths)
    for (int mask = 0; mask < 3; ++mask) {
      run(C{.batch = 1 + l[0] % 2,
            .heads = 2,
            .heads_kv = 1,
            .len_q = l[0],
            .len_kv = l[1],
            .d = d,
            .dv = dv,
            .causal = mask != 0,
            .top_left = mask == 2});
      STOP_AT_FAILURE;
    }
}

/// No queries, keys or sequences.
template <class C, class Run>
void each_empty_case(Run run) {
  for (auto [batch, len_q, len_kv] :
       {std::array<std::int64_t, 3>{2, 0, 5}, {2, 5, 0}, {0, 1, 5}, {2, 1, 0}}) {
    run(C{.batch = batch, .len_q = len_q, .len_kv = len_kv});
    STOP_AT_FAILURE;
  }
}

/// Head dimensions of q and k and of v, the same and apart, of which few fill a kernel's, with
/// strides that are multiples of 16 bytes and others.
template <class C, class Run>
void each_head_dim(Run run) {
  std::int64_t const dims[][2] = {{8, 8},     {32, 32},   {40, 24},   {72, 72},   {96, 96},
                                  {128, 64},  {64, 128},  {100, 99},  {192, 128}, {192, 192},
                                  {136, 256}, {1, 3},     {20, 12},   {64, 256},  {64, 512},
                                  {128, 257}, {256, 300}, {249, 511}, {255, 1}};
  for (auto const& e : dims)
    for (bool causal : {false, true})
      for (Order order : {Order::padded, Order::odd}) {
        run(C{.batch = 1,
              .heads = 2,
              .heads_kv = 2,
              .len_q = 203,
              .len_kv = 150,
              .d = e[0],
              .dv = e[1],
              .causal = causal,
              .order = order,
              .order_out = causal ? Order::odd : Order::padded});
        STOP_AT_FAILURE;
      }
}

/// Every option, boolean masks included.
template <class C, class Run>
void each_option(std::int64_t d, Run run) {
  for (Order order : {Order::heads_first, Order::positions_first, Order::odd})
    for (int which = 0; which < 16; ++which) {
      C t{.batch = 1,
          .heads = 2,
          .heads_kv = 1,
          .len_q = 150,
          .len_kv = 203,
          .d = d,
          .dv = d,
          .order = order,
          .order_out = order};
      set_option(t, which);
      if (which == 14) t.mask = true;
      if (which == 15) t.mask = t.causal = true, t.bias = 1, t.lse = false;
      run(t);
      STOP_AT_FAILURE;
    }
}

/// Pages of all sizes, with and without masks in turn.
template <class C, class Run>
void each_page_size(std::int64_t d, Run run) {
  auto round = d / 64;
  for (std::int64_t size : {1, 2, 7, 16, 64, 100, 256}) {
    auto const mask = round++ % 3;
    C t{.batch = 2,
        .heads = 2,
        .heads_kv = 1,
        .len_q = 100,
        .len_kv = 200,
        .d = d,
        .dv = d,
        .page_size = size,
        .causal = mask != 0,
        .order = mask == 2 ? Order::odd : Order::heads_first,
        .lengths_q = {100, 30},
        .lengths_kv = {133, 200}};
    if (mask == 1) t.left = 100;
    run(t);
    STOP_AT_FAILURE;
  }
}

/// A value that is NaN, wherever tiles end, behind the causal mask (0), windows (1) and a boolean
/// mask (2), which `run` is told beside the case.
template <class C, class Run>
void each_bad_key(std::int64_t d, Run run) {
  for (int bad : {0, 1, 31, 32, 63, 64, 127, 128, 169}) {
    C t{.batch = 1,
        .heads = 2,
        .heads_kv = 2,
        .len_q = 170,
        .len_kv = 170,
        .d = d,
        .dv = d,
        .causal = true,
        .bad_keys = {bad}};
    run(t, 0);
    STOP_AT_FAILURE;
    t.causal = false, t.left = 30, t.right = 11, t.sinks = true;
    run(t, 1);
    STOP_AT_FAILURE;
    t.left = t.right = -1, t.mask = true, t.order = Order::odd;
    run(t, 2);
    STOP_AT_FAILURE;
  }
}

/// Scores so far apart that what weights refer to rises in many blocks, in either half of them.
template <class C, class Run>
void each_rise(std::int64_t d, Run run) {
  for (bool causal : {false, true}) {
    C const t{.batch = 1,
              .heads = 2,
              .heads_kv = 2,
              .len_q = 200,
              .len_kv = 700,
              .d = d,
              .dv = d,
              .causal = causal,
              .scale = 1.5,
              .amplitude = 8};
    run(t);
    STOP_AT_FAILURE;
  }
}

/// Padding that is NaN or infinite behind lengths around those of tiles and others.
template <class C, class Run>
void each_poison(std::int64_t d, Run run) {
  for (int round = 0; round < 4; ++round) {
    C t{.batch = 8,
        .heads = 2,
        .heads_kv = 1,
        .len_q = 260,
        .len_kv = 280,
        .d = d,
        .dv = d,
        .causal = round % 3 != 0,
        .top_left = round % 3 == 2,
        .lengths_q = {1, 63, 64, 127, 128, 129, 201, 30},
        .lengths_kv = {1, 129, 64, 128, 127, 193, 80, 279}};
    t.infinite = round % 2 != 0;
    run(t);
    STOP_AT_FAILURE;
  }
}

/// Values of which one feature or all are NaN, and which some rows of a tile see and others do not.
template <class C, class Run>
void each_bad_value(std::int64_t d, Run run) {
  for (int bad : {2, 97, 190}) {
    C t{.batch = 2,
        .heads = 2,
        .heads_kv = 1,
        .len_q = 130,
        .len_kv = 251,
        .d = d,
        .dv = d,
        .causal = true,
        .bad_keys = {bad}};
    t.bad_feature = bad % d;
    run(t);
    STOP_AT_FAILURE;
    t.bad_feature = d - 1, t.top_left = t.sinks = true, t.len_q = 230, t.lengths_q = {229, 60};
    t.lengths_kv = {bad + 1, 100};
    run(t);
    STOP_AT_FAILURE;
    t.causal = false, t.left = 70, t.right = 3, t.bad_keys = {bad / 2, bad}, t.bad_feature = 0;
    t.d = bad % 2 == 0 ? d - 8 : d - 3, t.dv = bad % 2 == 0 ? d - 16 : d - 5;
    t.order = Order::padded;
    run(t);
    STOP_AT_FAILURE;
    C packed = packed_case<C>(2, 1, d, 1);
    packed.bad_keys = {bad + 9, bad + 300}, packed.bad_feature = bad == 97 ? -1 : d / 2;
    run(packed);
    STOP_AT_FAILURE;
  }
}

/// Draws numbers without a pattern, the same ones for the same seed.
class Draws {
 public:
  explicit Draws(unsigned seed) : random_(seed) {}
  Draws(Draws const&) = delete;
  Draws& operator=(Draws const&) = delete;
  /// From 0 to n - 1.
  int operator()(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

 private:
  std::mt19937 random_;
};

/// `below(n)` draws from 0 to n - 1.
template <class C, class Below>
void draw_window(C& t, Below& below, int longest) {
  if (below(3) == 0) t.left = below(longest);
  if (below(3) == 0) t.right = below(longest);
}
template <class C, class Below>
void draw_terms(C& t, Below& below) {
  if (below(4) == 0) t.softcap = 0.5 + below(20);
  t.alibi = below(4) == 0, t.sinks = below(4) == 0, t.bias = below(4) == 0 ? 1 + below(2) : 0;
  t.lse = below(4) != 0, t.amplitude = 1 + below(4);
}
/// Lengths for half of the cases.
template <class C, class Below>
void draw_lengths(C& t, Below& below) {
  if (below(2) != 0) return;
  for (std::int64_t b = 0; b < t.batch; ++b) {
    t.lengths_q.push_back(below(static_cast<int>(t.len_q) + 1));
    t.lengths_kv.push_back(below(static_cast<int>(t.len_kv) + 1));
  }
}

/// Any case, with head dimensions of q and k up to `longest` and of v up to 400.
template <class C, class Below>
C draw_case(Below& below, int longest) {
  C t;
  t.batch = 1 + below(3), t.heads_kv = 1 + below(2), t.heads = t.heads_kv * (1 + below(2));
  t.len_q = 1 + below(300), t.len_kv = below(400);
  t.d = 1 + below(longest), t.dv = below(2) == 0 ? t.d : 1 + below(400);
  t.causal = below(2) == 0, t.top_left = below(2) == 0;
  draw_window(t, below, 300);
  draw_terms(t, below);
  t.order = static_cast<Order>(below(4)), t.order_out = static_cast<Order>(below(4));
  if (below(3) == 0 && t.bias == 0)
    t.page_size = 1 + below(200);
  else
    t.mask = below(4) == 0;
  draw_lengths(t, below);
  return t;
}

}  // namespace
