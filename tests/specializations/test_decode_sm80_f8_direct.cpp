// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// decode/sm80_mma_e4m3 called directly over memory of cudaMalloc. Compiled as CUDA. The suite
// DecodeSm80Float8Refuses needs no GPU; DecodeSm80Float8Runs fails without a card of compute
// capability 8.0.
#include <random>

#include "attention_cases.hpp"
#include "direct_decode.hpp"
#include "direct_replay.hpp"

namespace {

using Float8 = abi::DecodeSm80MmaE4m3;

/// Types of out and kinds of factors in turn.
void run_in_turn(DecodeCase t) {
  static int round = 0;
  t.descale = ++round % 4 % 3;
  if (round % 3 == 0)
    run_decode<__half, Float8, E4>(t);
  else if (round % 3 == 1)
    run_decode<__nv_bfloat16, Float8, E4>(t);
  else
    run_decode<float, Float8, E4>(t);
}

/// A call that is taken, changed by `change`: why it is refused.
template <class Change>
std::string refusal(Change change, int major = 9, int shared = 232448) {
  [[maybe_unused]] alignas(16) static float somewhere[4];
  DecodeArgs g;
  g.q = g.k = g.v = g.out = somewhere;
  g.type = DType::float8_e4m3, g.type_out = DType::bfloat16;
  g.batch = 2, g.heads_q = 8, g.heads_kv = 2, g.seqlen_q = 1, g.seqlen_kv = 512;
  g.head_dim = g.head_dim_v = 64;
  for (auto* s : {&g.q_stride, &g.k_stride, &g.v_stride, &g.out_stride})
    (*s)[0] = 65536, (*s)[1] = 32768, (*s)[2] = 64, (*s)[3] = 1;
  change(g);
  Device const d{0, major, 0, abi::architecture_of(major, 0), 132, shared};
  abi::Verdict const verdict = Float8::accepts(g, d);
  EXPECT_EQ(verdict.ok, verdict.reason[0] == '\0');
  return verdict.reason;
}

TEST(DecodeSm80Float8Refuses, WhatItCannotDo) {
  auto const same = [](DecodeArgs&) {};
  EXPECT_EQ(refusal(same), "");
  EXPECT_EQ(refusal(same, 8), "");
  EXPECT_EQ(refusal(same, 7), "it needs compute capability 8.0");
  EXPECT_EQ(refusal(same, 8, 65536), "a block needs more shared memory than the device has");
  for (DType type : {DType::float16, DType::bfloat16, DType::float32})
    EXPECT_EQ(refusal([&](DecodeArgs& g) {
                g.type_out = type;
                g.descale_q = g.descale_k = g.descale_v = static_cast<float const*>(g.q);
              }),
              "");
  for (DType type : {DType::float64, DType::float8_e4m3})
    EXPECT_EQ(refusal([&](DecodeArgs& g) { g.type_out = type; }),
              "its out is float16, bfloat16 or float32");
  for (DType type : {DType::float8_e5m2, DType::float16})
    EXPECT_EQ(refusal([&](DecodeArgs& g) { g.type = type; }), "it takes other element types");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.bias = g.q, g.type_bias = DType::float64; }),
            "it does not read the bias's element type");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.head_dim = 264; }), "head_dim is above 256");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.head_dim_v = 60; }), "head_dim is not a multiple of 8");
}

// All of its shapes fit a block of every card from compute capability 8.0 on.
TEST(DecodeSm80Float8Refuses, NoCardForItsSharedMemory) {
  for (std::int64_t d : {64, 128, 256})
    for (std::int64_t queries : {1, 30})
      EXPECT_EQ(refusal(
                    [&](DecodeArgs& g) {
                      g.head_dim = g.head_dim_v = d, g.seqlen_q = queries;
                      for (auto* s : {&g.q_stride, &g.k_stride, &g.v_stride}) (*s)[2] = d;
                    },
                    8, 101376),
                "");
}

TEST(DecodeSm80Float8Refuses, MemoryItCannotRead) {
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.q_stride[1] = 72; }),
            "a stride of q is not a multiple of 16 bytes");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.q_stride[2] = 65; }), "");  // there is one query
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.k_stride[2] = 72; }),
            "a stride of k is not a multiple of 16 bytes");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.k_stride[3] = 2; }),
            "k has no unit stride along head_dim");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.v = static_cast<char const*>(g.v) + 8; }),
            "v's address is not a multiple of 16 bytes");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.out_stride[2] = 65, g.k_stride[0] = 0; }), "");
}

TEST(DecodeSm80Float8Runs, LengthsOfCache) {
  for (std::int64_t d : {64, 128, 256})
    for (std::int64_t heads : {2, 8, 32, 40})
      for (std::int64_t length : {1, 7, 15, 16, 31, 33, 63, 64, 65, 127, 128, 129, 300, 1021}) {
        run_in_turn({.heads = heads, .heads_kv = 2, .len_kv = length, .d = d, .dv = d});
        STOP_AT_FAILURE;
      }
}

TEST(DecodeSm80Float8Runs, OtherHeadDims) {
  std::int64_t const dims[][2] = {{8, 8},    {32, 32},  {40, 24},   {72, 72},   {96, 96},
                                  {128, 64}, {64, 128}, {192, 128}, {192, 192}, {136, 256},
                                  {8, 256},  {256, 8},  {120, 104}};
  for (auto const& e : dims)
    for (std::int64_t queries : {1, 5})
      for (Order order : {Order::padded, Order::positions_first}) {
        run_in_turn({.heads = 12,
                     .heads_kv = 2,
                     .len_q = queries,
                     .len_kv = 203,
                     .d = e[0],
                     .dv = e[1],
                     .causal = true,
                     .order = order,
                     .order_out = queries == 1 ? Order::padded : Order::odd});
        STOP_AT_FAILURE;
      }
}

TEST(DecodeSm80Float8Runs, BlocksOfQueries) {
  for (std::int64_t d : {64, 128, 256})
    for (std::int64_t queries : {2, 3, 4, 5, 8, 16, 17, 40})
      for (int mask = 0; mask < 3; ++mask) {
        run_in_turn({.heads = 8,
                     .heads_kv = 2,
                     .len_q = queries,
                     .len_kv = 333,
                     .d = d,
                     .dv = d,
                     .causal = mask != 0,
                     .top_left = mask == 2});
        STOP_AT_FAILURE;
      }
}

TEST(DecodeSm80Float8Runs, Pages) {
  for (std::int64_t d : {64, 128, 256})
    for (std::int64_t page : {1, 2, 3, 16, 17, 64, 100, 128, 256})
      for (std::int64_t queries : {1, 7}) {
        DecodeCase t{.batch = 4,
                     .heads = 8,
                     .heads_kv = 2,
                     .len_q = queries,
                     .len_kv = 700,
                     .d = d,
                     .dv = d,
                     .page_size = page,
                     .causal = true,
                     .lengths_kv = {0, 1, 699, 384}};
        if (page % 2 == 0) t.order = Order::positions_first;
        run_in_turn(t);
        STOP_AT_FAILURE;
      }
}

TEST(DecodeSm80Float8Runs, Options) {
  for (std::int64_t d : {64, 128, 256})
    for (std::int64_t queries : {1, 3, 9})
      for (int which = 0; which < 16; ++which) {
        DecodeCase t{.heads = 8, .heads_kv = 2, .len_q = queries, .len_kv = 413, .d = d, .dv = d};
        set_option(t, which);
        if (which == 1) t.top_left = true;
        if (which == 14) t.mask = true, t.sinks = true, t.page_size = 13, t.len_kv = 416;
        if (which == 15) t.mask = true, t.causal = true, t.left = 30, t.bad_keys = {412};
        run_in_turn(t);
        STOP_AT_FAILURE;
      }
}

TEST(DecodeSm80Float8Runs, LengthsOnTheDevice) {
  for (std::int64_t d : {64, 128, 256})
    for (std::int64_t heads : {4, 16, 64})
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
        run_in_turn(t);
        STOP_AT_FAILURE;
      }
}

TEST(DecodeSm80Float8Runs, PackedSequences) {
  for (std::int64_t d : {64, 128, 256})
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
      run_in_turn(t);
      STOP_AT_FAILURE;
      // Packed queries against padded and paged keys.
      t.cu_q = {0, 2, 2, 9}, t.len_q = 9, t.cu_kv = {}, t.len_kv = 640;
      t.lengths_kv = {640, 77, 301};
      run_in_turn(t);
      STOP_AT_FAILURE;
      t.page_size = 32;
      run_in_turn(t);
      STOP_AT_FAILURE;
    }
}

// An excluded key's value must not reach a row as 0 times NaN, wherever steps and parts end.
TEST(DecodeSm80Float8Runs, NanBehindTheMask) {
  for (std::int64_t d : {64, 128, 256})
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
        run_in_turn(t);
        STOP_AT_FAILURE;
        t.page_size = 20, t.softcap = 3, t.bad_feature = bad % d, t.dv = d - 8;
        if (t.bad_feature >= t.dv) t.bad_feature = 5;
        run_in_turn(t);
        STOP_AT_FAILURE;
      }
}

// Every number of float8_e4m3, subnormal ones included, reaches the products as it is: each query
// sees one key.
TEST(DecodeSm80Float8Runs, EveryNumber) {
  for (std::int64_t dv : {64, 128, 256})
    for (std::int64_t d : {std::int64_t{8}, dv}) {
      DecodeProblem<float, E4> x({.heads = 2,
                                  .heads_kv = 2,
                                  .len_q = 256,
                                  .len_kv = 256,
                                  .d = d,
                                  .dv = dv,
                                  .splits = {0, 1},
                                  .left = 0,
                                  .right = 0,
                                  .scale = 0x1p-6});
      fill_with_every_number(x);
      run_decode<float, Float8>(x);
      STOP_AT_FAILURE;
    }
}

// A factor of the scores that is not positive, which only the device sees.
TEST(DecodeSm80Float8Runs, FactorsOfAnySign) {
  for (float factor : {-0.5f, 0.0f, std::numeric_limits<float>::quiet_NaN()})
    for (std::int64_t d : {64, 128, 256})
      for (bool causal : {false, true}) {
        run_decode<__half, Float8, E4>({.batch = 1,
                                        .heads = 8,
                                        .len_q = 5,
                                        .d = d,
                                        .dv = d,
                                        .causal = causal,
                                        .descale = 1,
                                        .factor_q = factor});
        STOP_AT_FAILURE;
      }
}

TEST(DecodeSm80Float8Runs, LongCache) {
  run_in_turn({.batch = 1,
               .heads = 8,
               .heads_kv = 1,
               .len_kv = 40013,
               .splits = {0, 1, 33, 512},
               .causal = true});
  STOP_AT_FAILURE;
  run_in_turn({.batch = 1, .heads = 4, .heads_kv = 2, .len_kv = 20011, .page_size = 16});
}

TEST(DecodeSm80Float8Runs, RandomCases) {
  std::mt19937 random(20240617);
  auto const below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 150; ++round) {
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
    run_in_turn(t);
    STOP_AT_FAILURE;
  }
}

// With splits given, a sequence's bits do not depend on what is beside it or on the cache's size.
TEST(DecodeSm80Float8Runs, BatchInvariantWithSplitsGiven) {
  Device const device = abi::query_device(abi::current_device());
  Device smaller = device;
  smaller.sm_count = 11;
  for (std::int64_t heads : {8, 64}) {
    DecodeCase t{.batch = 5, .heads = heads, .heads_kv = 2, .len_q = 2, .len_kv = 1500};
    t.causal = true, t.lengths_kv = {1500, 300, 1, 0, 1111}, t.descale = 2;
    DecodeProblem<__nv_bfloat16, E4> together(t);
    std::vector<unsigned char> all, sums;
    launch_decode<__nv_bfloat16, Float8, E4>(together, 6, device, all, sums);
    STOP_AT_FAILURE;
    for (std::int64_t b = 0; b < t.batch; ++b) {
      DecodeArgs g = together.arguments();
      std::vector<unsigned char> one(all.size(), 0xFF);
      auto const n = together.out.stride[0];
      together.out.upload();
      g.batch = 1, g.splits = 6, g.seqlen_kv = t.lengths_kv[static_cast<std::size_t>(b)] + 700;
      g.q = together.q.begin() + b * g.q_stride[0];
      g.k = together.k.begin() + b * g.k_stride[0], g.v = together.v.begin() + b * g.v_stride[0];
      g.descale_q += b * 2, g.descale_k += b * 2, g.descale_v += b * 2;
      g.out = together.out.begin() + b * n, g.lse = nullptr, g.lengths_kv += b;
      DecodeWorkspace const workspace(Float8::workspace_bytes(g, smaller));
      g.workspace = workspace.begin();
      ASSERT_EQ(Float8::launch(g, smaller, nullptr), cudaSuccess);
      ASSERT_CUDA(cudaDeviceSynchronize());
      auto const bytes = static_cast<std::size_t>(n) * 2;
      auto const at = (8 + static_cast<std::size_t>(b * n)) * 2;
      ASSERT_CUDA(cudaMemcpy(one.data(), together.out.device + at, bytes, cudaMemcpyDeviceToHost));
      EXPECT_EQ(std::memcmp(one.data(), all.data() + at, bytes), 0) << "sequence " << b;
    }
  }
}

// A graph is captured once and replayed for other lengths and factors.
TEST(DecodeSm80Float8Runs, GraphReplaysWithOtherLengthsAndFactors) {
  Device const device = abi::query_device(abi::current_device());
  for (std::int64_t queries : {1, 6}) {
    DecodeCase t{.batch = 4, .heads = 16, .heads_kv = 2, .len_q = queries, .len_kv = 2048};
    t.page_size = 16, t.lengths_kv = {2048, 2048, 2048, 2048}, t.descale = 2;
    DecodeProblem<__nv_bfloat16, E4> x(t);
    DecodeArgs g = x.arguments();
    DecodeWorkspace const workspace(Float8::workspace_bytes(g, device));
    g.workspace = workspace.begin();
    x.out.upload(), x.lse.upload();
    g.out = x.out.begin(), g.lse = x.lse.begin();
    captured_equals(
        {{x.out.device, x.out.host.size()}, {x.lse.device, x.lse.host.size()}},
        [&](cudaStream_t stream) { return Float8::launch(g, device, stream); },
        [&](int round) {
          std::vector<int> lengths;
          std::vector<float> factors;
          for (int n = 0; n < 8; ++n) {
            auto const drawn = mix(static_cast<std::uint32_t>(round * 8 + n));
            if (n % 2 == 0) lengths.push_back(static_cast<int>(drawn % 2049));
            factors.push_back(0.5f + static_cast<float>(drawn % 5));
          }
          ASSERT_CUDA(cudaMemcpy(x.lengths_kv->data, lengths.data(), 16, cudaMemcpyHostToDevice));
          for (auto const& device_factors : x.factors.device)
            ASSERT_CUDA(
                cudaMemcpy(device_factors->data, factors.data(), 32, cudaMemcpyHostToDevice));
        });
    STOP_AT_FAILURE;
  }
}

TEST(DecodeSm80Float8Runs, NothingWhereThereIsNothing) { each_empty_case<DecodeCase>(run_in_turn); }

}  // namespace
