// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention/sm80_mma_e4m3 called directly over memory of cudaMalloc. The suite
// AttentionSm80Float8Refuses needs no GPU; AttentionSm80Float8Runs fails without a card of compute
// capability 8.0.

#include "attention_cases.hpp"
#include "decode/direct_decode.hpp"

namespace {

using Float8 = WithoutWorkspace<abi::AttentionSm80MmaE4m3>;

template <class Out>
void run_float8(DecodeCase t) {
  t.splits = {0};
  run_decode<Out, Float8, E4>(t);
}

/// Types of out and kinds of factors in turn.
void run_in_turn(DecodeCase t) {
  static int round = 0;
  t.descale = ++round % 3;
  if (round % 2 == 0)
    run_float8<__half>(t);
  else
    run_float8<__nv_bfloat16>(t);
}

TEST(AttentionSm80Float8Refuses, WhatItCannotDo) {
  SKIP_IF_LEFT_OUT(Float8);
  [[maybe_unused]] alignas(16) static float somewhere[4];
  auto const with = [](auto change, int major = 9) -> std::string {
    AttentionArgs g;
    g.q = g.k = g.v = g.out = somewhere;
    g.type = DType::float8_e4m3, g.type_out = DType::bfloat16;
    g.batch = 2, g.heads_q = 8, g.heads_kv = 2, g.seqlen_q = g.seqlen_kv = 512;
    g.head_dim = g.head_dim_v = 64;
    for (auto* s : {&g.q_stride, &g.k_stride, &g.v_stride, &g.out_stride})
      (*s)[0] = 262144, (*s)[1] = 32768, (*s)[2] = 64, (*s)[3] = 1;
    change(g);
    Device const d{0, major, 6, abi::architecture_of(major, 6), 84, 101376};
    abi::Verdict const verdict = Float8::accepts(g, d);
    EXPECT_EQ(verdict.ok, verdict.reason[0] == '\0');
    return verdict.reason;
  };
  auto const same = [](AttentionArgs&) {};
  EXPECT_EQ(with(same), "");
  EXPECT_EQ(with(same, 8), "");
  EXPECT_EQ(with(same, 7), "it needs compute capability 8.0");
  EXPECT_EQ(with([](AttentionArgs& g) {
              g.descale_q = g.descale_k = g.descale_v = somewhere, g.type_out = DType::float16;
            }),
            "");
  EXPECT_EQ(with([](AttentionArgs& g) {
              g.q_stride[2] = 65, g.k_stride[3] = 2, g.v = static_cast<char const*>(g.v) + 1;
              g.mask = static_cast<std::uint8_t const*>(g.q);
              g.page_table = static_cast<int const*>(g.q), g.page_size = 3, g.num_pages = 3;
            }),
            "");
  EXPECT_EQ(with([](AttentionArgs& g) { g.type = DType::float8_e5m2; }),
            "it takes other element types");
  EXPECT_EQ(with([](AttentionArgs& g) { g.type = DType::float16; }),
            "it takes other element types");
  for (DType type : {DType::float32, DType::float8_e4m3})
    EXPECT_EQ(with([&](AttentionArgs& g) { g.type_out = type; }), "its out is float16 or bfloat16");
  for (DType type : {DType::float64, DType::float8_e4m3})
    EXPECT_EQ(with([&](AttentionArgs& g) { g.bias = g.q, g.type_bias = type; }),
              "it does not read the bias's element type");
  EXPECT_EQ(with([](AttentionArgs& g) { g.head_dim = 257; }), "head_dim is above 256");
  EXPECT_EQ(with([](AttentionArgs& g) { g.head_dim_v = 513; }), "head_dim of v is above 512");
  EXPECT_EQ(with([](AttentionArgs& g) { g.k = nullptr; }), "k or v is a null pointer");
}

TEST(AttentionSm80Float8Runs, Shapes) {
  for (std::int64_t d : {64, 128, 256}) each_shape<DecodeCase>(d, d, run_in_turn);
}

TEST(AttentionSm80Float8Runs, OtherHeadDimsAndStrides) { each_head_dim<DecodeCase>(run_in_turn); }

TEST(AttentionSm80Float8Runs, Options) {
  for (std::int64_t d : {64, 128, 256}) each_option<DecodeCase>(d, run_in_turn);
}

TEST(AttentionSm80Float8Runs, Pages) {
  for (std::int64_t d : {64, 128, 256})
    each_page_size<DecodeCase>(d, [](DecodeCase t) {
      run_in_turn(t);
      STOP_AT_FAILURE;
      t.softcap = 3, t.order = Order::positions_first, t.lengths_q = {};
      run_in_turn(t);
    });
}

// The shape of kernel that cards with less shared memory take.
TEST(AttentionSm80Float8Runs, WithLessSharedMemory) {
  auto const run = [](DecodeCase t) {
    t.splits = {0}, t.descale = 2;
    run_decode<__half, WithLessShared<WithoutWorkspace<abi::AttentionSm80MmaE4m3>, 101376>, E4>(t);
  };
  each_shape<DecodeCase>(256, 256, run);
  each_page_size<DecodeCase>(256, run);
  each_bad_key<DecodeCase>(256, [&](DecodeCase const& t, int) { run(t); });
}

// Every number of float8_e4m3, subnormal ones included, reaches the products as it is: each query
// sees one key.
TEST(AttentionSm80Float8Runs, EveryNumber) {
  for (std::int64_t dv : {64, 128, 256})
    for (std::int64_t d : {std::int64_t{1}, dv}) {
      DecodeProblem<__half, E4> x({.heads = 2,
                                   .len_q = 256,
                                   .len_kv = 256,
                                   .d = d,
                                   .dv = dv,
                                   .splits = {0},
                                   .left = 0,
                                   .right = 0,
                                   .scale = 0x1p-6});
      fill_with_every_number(x);
      run_decode<__half, Float8>(x);
      STOP_AT_FAILURE;
    }
}

TEST(AttentionSm80Float8Runs, ReferencesRise) {
  for (std::int64_t d : {64, 128, 256}) each_rise<DecodeCase>(d, run_in_turn);
}

TEST(AttentionSm80Float8Runs, LengthsCutPoisonedPadding) {
  for (std::int64_t d : {64, 128, 256})
    for (int mask = 0; mask < 4; ++mask) {
      DecodeCase t = ragged_case<DecodeCase>(d, mask);
      if (mask % 2 != 0) t.order = Order::odd;
      run_in_turn(t);
      STOP_AT_FAILURE;
    }
}

TEST(AttentionSm80Float8Runs, PackedSequences) {
  for (std::int64_t d : {64, 128, 256})
    for (int mask = d == 128 ? 0 : 3; mask < 4; ++mask) {
      DecodeCase t = packed_case<DecodeCase>(2, 1, d, mask);
      run_in_turn(t);
      STOP_AT_FAILURE;
      // Packed queries against paged keys.
      t.cu_q = {0, 400, 900}, t.cu_kv = {}, t.len_kv = 400, t.lengths_kv = {399, 150};
      t.page_size = 40;
      run_in_turn(t);
      STOP_AT_FAILURE;
    }
}

// An excluded key's value must not reach a row as 0 times NaN, wherever tiles end.
TEST(AttentionSm80Float8Runs, NanBehindTheMask) {
  for (std::int64_t d : {64, 128, 256})
    each_bad_key<DecodeCase>(d, [](DecodeCase t, int form) {
      if (form == 1) t.page_size = 16;
      run_in_turn(t);
    });
}

TEST(AttentionSm80Float8Runs, PaddingAndValuesThatSomeRowsSee) {
  for (std::int64_t d : {64, 128, 256}) {
    each_poison<DecodeCase>(d, run_in_turn);
    STOP_AT_FAILURE;
    each_bad_value<DecodeCase>(d, run_in_turn);
    STOP_AT_FAILURE;
  }
}

// A factor of the scores that is not positive, which only the device sees.
TEST(AttentionSm80Float8Runs, FactorsOfAnySign) {
  for (float factor : {-0.5f, 0.0f, std::numeric_limits<float>::quiet_NaN()})
    for (std::int64_t d : {64, 128, 256})
      for (Order order : {Order::heads_first, Order::odd}) {
        run_float8<__half>({.batch = 1,
                            .len_q = 200,
                            .d = d,
                            .dv = d,
                            .causal = true,
                            .order = order,
                            .descale = 1,
                            .factor_q = factor});
        STOP_AT_FAILURE;
      }
}

TEST(AttentionSm80Float8Runs, RandomCases) {
  Draws below(20240614);
  for (int round = 0; round < 60; ++round) {
    run_in_turn(draw_case<DecodeCase>(below, 256));
    STOP_AT_FAILURE;
  }
}

TEST(AttentionSm80Float8Runs, SameBitsOnAnyDevice) {
  for (std::int64_t d : {64, 128, 256})
    expect_same_bits_on_any_device<__nv_bfloat16, Float8, E4>(
        {.heads = 16, .len_q = 700, .len_kv = 900, .d = d, .dv = d, .causal = true, .descale = 2});
}

TEST(AttentionSm80Float8Runs, NothingWhereThereIsNothing) {
  each_empty_case<DecodeCase>(run_in_turn);
}

}  // namespace
