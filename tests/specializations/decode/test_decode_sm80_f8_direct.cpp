// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// decode/sm80_mma_e4m3 called directly over memory of cudaMalloc. The suite
// DecodeSm80Float8Refuses needs no GPU; DecodeSm80Float8Runs fails without a card of compute
// capability 8.0.
#include "companion/direct_replay.hpp"
#include "decode_cases.hpp"

namespace {

using Float8 = abi::DecodeSm80MmaE4m3;

/// Types of out and kinds of factors in turn.
void run_in_turn(DecodeCase t, int = 0) {
  static int round = 0;
  t.descale = ++round % 4 % 3;
  if (round % 3 == 0)
    run_decode<__half, Float8, E4>(t);
  else if (round % 3 == 1)
    run_decode<__nv_bfloat16, Float8, E4>(t);
  else
    run_decode<float, Float8, E4>(t);
}

template <class Change>
std::string refusal(Change change, int major = 9, int shared = 232448) {
  return decode_refusal<Float8>(DType::float8_e4m3, DType::bfloat16, change, major, shared);
}

TEST(DecodeSm80Float8Refuses, WhatItCannotDo) {
  SKIP_IF_LEFT_OUT(Float8);
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
  SKIP_IF_LEFT_OUT(Float8);
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
  SKIP_IF_LEFT_OUT(Float8);
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
    each_block_of_queries(d, {2, 3, 4, 5, 8, 16, 17, 40}, run_in_turn);
}

TEST(DecodeSm80Float8Runs, Pages) {
  for (std::int64_t d : {64, 128, 256})
    each_page(d, {1, 2, 3, 16, 17, 64, 100, 128, 256}, [](DecodeCase const& t) { run_in_turn(t); });
}

TEST(DecodeSm80Float8Runs, Options) {
  for (std::int64_t d : {64, 128, 256})
    each_decode_option(d, {1, 3, 9}, [](DecodeCase const& t) { run_in_turn(t); });
}

TEST(DecodeSm80Float8Runs, LengthsOnTheDevice) {
  for (std::int64_t d : {64, 128, 256})
    each_length_on_the_device(d, {4, 16, 64}, [](DecodeCase const& t) { run_in_turn(t); });
}

TEST(DecodeSm80Float8Runs, PackedSequences) {
  for (std::int64_t d : {64, 128, 256}) each_packed_sequence(d, run_in_turn);
}

// An excluded key's value must not reach a row as 0 times NaN.
TEST(DecodeSm80Float8Runs, NanBehindTheMask) {
  for (std::int64_t d : {64, 128, 256}) each_hidden_value(d, run_in_turn);
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

TEST(DecodeSm80Float8Runs, LongCache) { each_long_cache(8, run_in_turn); }

TEST(DecodeSm80Float8Runs, RandomCases) {
  Draws below(20240617);
  for (int round = 0; round < 150; ++round) {
    run_in_turn(draw_decode_case(below));
    STOP_AT_FAILURE;
  }
}

TEST(DecodeSm80Float8Runs, BatchInvariantWithSplitsGiven) {
  expect_batch_invariance<__nv_bfloat16, Float8, E4>(2);
}

// A graph is captured once and replayed for other lengths and factors.
TEST(DecodeSm80Float8Runs, GraphReplaysWithOtherLengthsAndFactors) {
  SKIP_IF_LEFT_OUT(Float8);
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

TEST(DecodeSm80Float8Runs, NothingWhereThereIsNothing) {
  each_empty_case<DecodeCase>([](DecodeCase const& t) { run_in_turn(t); });
}

}  // namespace
