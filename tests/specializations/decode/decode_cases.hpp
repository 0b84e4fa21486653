// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Calls that every decode kernel is tested with, by what they are about. `run` takes a case, which
/// it may change first, and where a series has steps the number of the step.
#pragma once

#include <initializer_list>
#include <string>

#include "attention/attention_cases.hpp"
#include "direct_decode.hpp"

namespace {

/// A call that is taken, changed by `change`: why it is refused.
template <class Kernel, class Change>
std::string decode_refusal(DType type, DType type_out, Change change, int major, int shared) {
  [[maybe_unused]] alignas(16) static float somewhere[4];
  DecodeArgs g;
  g.q = g.k = g.v = g.out = somewhere;
  g.type = type, g.type_out = type_out;
  g.batch = 2, g.heads_q = 8, g.heads_kv = 2, g.seqlen_q = 1, g.seqlen_kv = 512;
  g.head_dim = g.head_dim_v = 64;
  for (auto* s : {&g.q_stride, &g.k_stride, &g.v_stride, &g.out_stride})
    (*s)[0] = 65536, (*s)[1] = 32768, (*s)[2] = 64, (*s)[3] = 1;
  change(g);
  Device const d{0, major, 0, abi::architecture_of(major, 0), 132, shared};
  abi::Verdict const verdict = Kernel::accepts(g, d);
  EXPECT_EQ(verdict.ok, verdict.reason[0] == '\0');
  return verdict.reason;
}

/// Blocks of queries without a mask (step 0), causal from the end (1) and from the beginning (2).
template <class Run>
void each_block_of_queries(std::int64_t d, std::initializer_list<std::int64_t> lengths, Run run) {
  for (std::int64_t queries : lengths)
    for (int mask = 0; mask < 3; ++mask) {
      run(DecodeCase{.heads = 8,
                     .heads_kv = 2,
                     .len_q = queries,
                     .len_kv = 333,
                     .d = d,
                     .dv = d,
                     .causal = mask != 0,
                     .top_left = mask == 2},
          mask);
      STOP_AT_FAILURE;
    }
}

template <class Run>
void each_page(std::int64_t d, std::initializer_list<std::int64_t> sizes, Run run) {
  for (std::int64_t page : sizes)
    for (std::int64_t queries : {1, 7}) {
      run(DecodeCase{.batch = 4,
                     .heads = 8,
                     .heads_kv = 2,
                     .len_q = queries,
                     .len_kv = 700,
                     .d = d,
                     .dv = d,
                     .page_size = page,
                     .causal = true,
                     .order = page % 2 == 0 ? Order::positions_first : Order::heads_first,
                     .lengths_kv = {0, 1, 699, 384}});
      STOP_AT_FAILURE;
    }
}

template <class Run>
void each_decode_option(std::int64_t d, std::initializer_list<std::int64_t> lengths, Run run) {
  for (std::int64_t queries : lengths)
    for (int which = 0; which < 16; ++which) {
      DecodeCase t{.heads = 8, .heads_kv = 2, .len_q = queries, .len_kv = 413, .d = d, .dv = d};
      set_option(t, which);
      if (which == 1) t.top_left = true;
      if (which == 14) t.mask = true, t.sinks = true, t.page_size = 13, t.len_kv = 416;
      if (which == 15) t.mask = true, t.causal = true, t.left = 30, t.bad_keys = {412};
      run(t);
      STOP_AT_FAILURE;
    }
}

template <class Run>
void each_length_on_the_device(std::int64_t d, std::initializer_list<std::int64_t> all_heads,
                               Run run) {
  for (std::int64_t heads : all_heads)
    for (int mask = 0; mask < 3; ++mask) {
      DecodeCase t{.batch = 8,
                   .heads = heads,
                   .heads_kv = 2,
                   .len_q = 4,
                   .len_kv = 900,
                   .d = d,
                   .dv = d,
                   .splits = {0, 2, 64},
                   .causal = mask != 0,
                   .lengths_q = {0, 1, 4, 3, 4, 4, 2, 0},
                   .lengths_kv = {300, 1, 900, 129, 0, 2, 881, 0}};
      if (mask == 2) t.left = 50, t.alibi = true, t.sinks = true;
      run(t);
      STOP_AT_FAILURE;
    }
}

/// Packed queries against packed (step 0), padded (1) and paged keys (2); the last of three turns
/// has a window.
template <class Run>
void each_packed_sequence(std::int64_t d, Run run) {
  for (int mask = 0; mask < 3; ++mask) {
    DecodeCase t{.heads = 8,
                 .heads_kv = 2,
                 .len_q = 90,
                 .len_kv = 1000,
                 .d = d,
                 .dv = d,
                 .causal = mask != 0,
                 .order = Order::positions_first,
                 .order_out = Order::positions_first,
                 .cu_q = {3, 5, 5, 6, 22, 23, 60, 61, 88},
                 .cu_kv = {2, 9, 230, 430, 430, 580, 708, 700, 990}};
    if (mask == 2) t.left = 70, t.sinks = true;
    run(t, 0);
    STOP_AT_FAILURE;
    t.cu_q = {0, 2, 2, 9}, t.len_q = 9, t.cu_kv = {}, t.len_kv = 640;
    t.lengths_kv = {640, 77, 301};
    run(t, 1);
    STOP_AT_FAILURE;
    t.page_size = 32;
    run(t, 2);
    STOP_AT_FAILURE;
  }
}

/// A value that is NaN behind the mask, wherever steps and parts end: all of it (step 0) or one
/// feature, on a page (1).
template <class Run>
void each_hidden_value(std::int64_t d, Run run) {
  for (std::int64_t heads : {4, 16})
    for (int bad : {0, 1, 127, 128, 250, 315, 316, 317, 318}) {
      DecodeCase t{.heads = heads,
                   .heads_kv = 2,
                   .len_q = 4,
                   .len_kv = 320,
                   .d = d,
                   .dv = d,
                   .causal = true,
                   .left = 200,
                   .bad_keys = {bad}};
      run(t, 0);
      STOP_AT_FAILURE;
      t.page_size = 20, t.softcap = 3, t.bad_feature = bad % d, t.dv = d - 8;
      if (t.bad_feature >= t.dv) t.bad_feature = 5;
      run(t, 1);
      STOP_AT_FAILURE;
    }
}

/// Caches whose parts are long or many, plain (step 0) and paged (1).
template <class Run>
void each_long_cache(std::int64_t heads, Run run) {
  run(DecodeCase{.batch = 1,
                 .heads = heads,
                 .heads_kv = 1,
                 .len_kv = 40013,
                 .splits = {0, 1, 33, 512},
                 .causal = true},
      0);
  STOP_AT_FAILURE;
  run(DecodeCase{.batch = 1, .heads = 4, .heads_kv = 2, .len_kv = 20011, .page_size = 16}, 1);
}

/// Any case of head dimensions that are multiples of 8, up to 256.
inline DecodeCase draw_decode_case(Draws& below) {
  DecodeCase t;
  t.batch = 1 + below(4), t.heads_kv = 1 + below(3), t.heads = t.heads_kv * (1 + below(20));
  t.len_q = 1 + below(below(3) == 0 ? 30 : 4), t.len_kv = below(900);
  t.d = 8 * (1 + below(32)), t.dv = below(2) == 0 ? t.d : 8 * (1 + below(32));
  t.causal = below(2) == 0, t.top_left = below(3) == 0;
  draw_window(t, below, 300);
  draw_terms(t, below);
  t.order = static_cast<Order>(below(3)), t.order_out = static_cast<Order>(below(4));
  t.splits = {0, 1 + below(20)};
  if (below(2) == 0 && t.bias == 0) t.page_size = 1 + below(200);
  draw_lengths(t, below);
  return t;
}

/// With splits given, a sequence's bits do not depend on what is beside it or on the cache's size.
template <class T, class Kernel, class In = T>
void expect_batch_invariance(int descale = 0) {
  SKIP_IF_LEFT_OUT(Kernel);
  Device const device = abi::query_device(abi::current_device());
  Device smaller = device;
  smaller.sm_count = 11;
  for (std::int64_t heads : {8, 64}) {
    DecodeCase t{.batch = 5, .heads = heads, .heads_kv = 2, .len_q = 2, .len_kv = 1500};
    t.causal = true, t.lengths_kv = {1500, 300, 1, 0, 1111}, t.descale = descale;
    DecodeProblem<T, In> together(t);
    std::vector<unsigned char> all, sums;
    launch_decode<T, Kernel, In>(together, 6, device, all, sums);
    STOP_AT_FAILURE;
    for (std::int64_t b = 0; b < t.batch; ++b) {
      DecodeArgs g = together.arguments();
      std::vector<unsigned char> one(all.size(), 0xFF);
      auto const n = together.out.stride[0];
      together.out.upload();
      g.batch = 1, g.splits = 6, g.seqlen_kv = t.lengths_kv[static_cast<std::size_t>(b)] + 700;
      g.q = together.q.begin() + b * g.q_stride[0];
      g.k = together.k.begin() + b * g.k_stride[0], g.v = together.v.begin() + b * g.v_stride[0];
      if (descale == 2) g.descale_q += b * 2, g.descale_k += b * 2, g.descale_v += b * 2;
      g.out = together.out.begin() + b * n, g.lse = nullptr, g.lengths_kv += b;
      DecodeWorkspace const workspace(Kernel::workspace_bytes(g, smaller));
      g.workspace = workspace.begin();
      ASSERT_EQ(Kernel::launch(g, smaller, nullptr), cudaSuccess);
      ASSERT_CUDA(cudaDeviceSynchronize());
      auto const bytes = static_cast<std::size_t>(n) * sizeof(T);
      auto const at = (8 + static_cast<std::size_t>(b * n)) * sizeof(T);
      ASSERT_CUDA(cudaMemcpy(one.data(), together.out.device + at, bytes, cudaMemcpyDeviceToHost));
      EXPECT_EQ(std::memcmp(one.data(), all.data() + at, bytes), 0) << "sequence " << b;
    }
  }
}

/// A graph of two calls is captured once and replayed for other lengths; the bits are those of a
/// call without a graph.
template <class T, class Kernel>
void expect_replays(int rounds) {
  SKIP_IF_LEFT_OUT(Kernel);
  Device const device = abi::query_device(abi::current_device());
  DecodeCase t{.batch = 4, .heads = 8, .heads_kv = 2, .len_kv = 2048, .page_size = 16};
  t.lengths_kv = {2048, 2048, 2048, 2048};
  DecodeProblem<T> x(t);
  DecodeArgs g = x.arguments();
  DecodeWorkspace const workspace(Kernel::workspace_bytes(g, device));
  g.workspace = workspace.begin();
  x.out.upload(), x.lse.upload();
  g.out = x.out.begin(), g.lse = x.lse.begin();
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  ASSERT_EQ(Kernel::launch(g, device, stream), cudaSuccess);
  ASSERT_EQ(Kernel::launch(g, device, stream), cudaSuccess);
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_CUDA(cudaGraphInstantiate(&replay, graph, 0));
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t b = 0; b < 4; ++b)
      t.lengths_kv[b] = static_cast<int>(
          mix(static_cast<std::uint32_t>(round * 4) + static_cast<std::uint32_t>(b)) % 2049);
    ASSERT_CUDA(cudaMemcpyAsync(x.lengths_kv->data, t.lengths_kv.data(), 16, cudaMemcpyHostToDevice,
                                stream));
    ASSERT_CUDA(cudaMemsetAsync(x.out.device, 0xFF, x.out.host.size(), stream));
    ASSERT_CUDA(cudaGraphLaunch(replay, stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    std::vector<unsigned char> replayed(x.out.host.size()), direct(replayed);
    ASSERT_CUDA(cudaMemcpy(replayed.data(), x.out.device, replayed.size(), cudaMemcpyDeviceToHost));
    ASSERT_CUDA(cudaMemset(x.out.device, 0xFF, x.out.host.size()));
    ASSERT_EQ(Kernel::launch(g, device, nullptr), cudaSuccess);
    ASSERT_CUDA(cudaMemcpy(direct.data(), x.out.device, direct.size(), cudaMemcpyDeviceToHost));
    ASSERT_EQ(replayed == direct, true) << "round " << round;
  }
  cudaGraphExecDestroy(replay), cudaGraphDestroy(graph), cudaStreamDestroy(stream);
}

}  // namespace
