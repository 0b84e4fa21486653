// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention/sm90_wgmma_e4m3 called directly over memory of cudaMalloc. The suite
// AttentionSm90Float8Refuses needs no GPU; AttentionSm90Float8Runs fails without a Hopper card.

#include "attention_cases.hpp"

namespace {

using Float8 = abi::AttentionSm90WgmmaE4m3;

template <class Out>
void run_float8(Case const& t) {
  run<Out, Float8, E4>(t);
}

template <class Out>
void shapes(std::int64_t d, std::int64_t dv) {
  std::int64_t const lengths[][2] = {{1, 1},     {1, 300},   {7, 0},     {63, 65},   {64, 96},
                                     {65, 161},  {127, 127}, {128, 128}, {129, 255}, {113, 203},
                                     {191, 256}, {193, 257}, {385, 144}, {320, 513}};
  for (auto const& l : lengths)
    for (int mask = 0; mask < 3; ++mask) {
      bool const large = d > 128 || dv > 128;
      run_float8<Out>({.batch = large ? 1 : 2,
                       .heads = large ? 2 : 4,
                       .heads_kv = large ? 1 : 2,
                       .len_q = l[0],
                       .len_kv = l[1],
                       .d = d,
                       .dv = dv,
                       .causal = mask != 0,
                       .top_left = mask == 2,
                       .descale = mask});
      STOP_AT_FAILURE;
    }
}

TEST(AttentionSm90Float8Refuses, WhatItCannotDo) {
  SKIP_IF_LEFT_OUT(Float8);
  [[maybe_unused]] alignas(16) static float somewhere[4];
  auto const with = [](auto change) -> std::string {
    AttentionArgs g;
    g.q = g.k = g.v = g.out = somewhere;
    g.type = DType::float8_e4m3, g.type_out = DType::bfloat16;
    g.batch = 2, g.heads_q = g.heads_kv = 4, g.seqlen_q = g.seqlen_kv = 16;
    g.head_dim = g.head_dim_v = 64;
    for (auto* s : {&g.q_stride, &g.k_stride, &g.v_stride, &g.out_stride})
      (*s)[0] = 4096, (*s)[1] = 1024, (*s)[2] = 64, (*s)[3] = 1;
    change(g);
    Device const d{0, 9, 0, abi::Architecture::hopper, 132, 232448};
    return Float8::accepts(g, d).reason;
  };
  EXPECT_EQ(with([](AttentionArgs&) {}), "");
  auto const with_pages = [&](std::int64_t size) {
    return with([=](AttentionArgs& g) {
      g.page_table = static_cast<int const*>(g.q), g.page_size = size, g.num_pages = 3;
    });
  };
  EXPECT_EQ(with_pages(16), "");
  EXPECT_EQ(with_pages(24), "");
  EXPECT_EQ(with_pages(20), "pages of float8 tensors are multiples of 8 positions");
  EXPECT_EQ(with([](AttentionArgs& g) {
              g.descale_q = g.descale_k = g.descale_v = somewhere, g.type_out = DType::float16;
            }),
            "");
  EXPECT_EQ(with([](AttentionArgs& g) { g.type = DType::float8_e5m2; }),
            "it takes other element types");
  EXPECT_EQ(with([](AttentionArgs& g) { g.type = DType::bfloat16; }),
            "it takes other element types");
  EXPECT_EQ(with([](AttentionArgs& g) { g.type_out = DType::float32; }),
            "its out is float16 or bfloat16");
  EXPECT_EQ(with([](AttentionArgs& g) { g.k_stride[2] = 72; }),
            "a stride of k is not a multiple of 16 bytes");
  EXPECT_EQ(with([](AttentionArgs& g) { g.v_stride[3] = 2; }),
            "v has no unit stride along head_dim");
}

TEST(AttentionSm90Float8Runs, HeadDim32) { shapes<__nv_bfloat16>(32, 32); }
TEST(AttentionSm90Float8Runs, HeadDim64) { shapes<__half>(64, 64); }
TEST(AttentionSm90Float8Runs, HeadDim96) { shapes<__half>(96, 96); }
TEST(AttentionSm90Float8Runs, HeadDim128) { shapes<__nv_bfloat16>(128, 128); }
TEST(AttentionSm90Float8Runs, HeadDim192) { shapes<__nv_bfloat16>(192, 192); }
TEST(AttentionSm90Float8Runs, HeadDim256) { shapes<__half>(256, 256); }
TEST(AttentionSm90Float8Runs, HeadDimsApart) {
  shapes<__nv_bfloat16>(192, 128);
  STOP_AT_FAILURE;
  shapes<__half>(64, 256);
}

TEST(AttentionSm90Float8Runs, OtherHeadDims) {
  std::int64_t const dims[][2] = {{8, 8},     {32, 32},  {40, 24},  {72, 72},   {96, 96},
                                  {128, 64},  {64, 128}, {100, 99}, {192, 128}, {192, 192},
                                  {136, 256}, {1, 3},    {20, 12},  {160, 17}};
  for (auto const& e : dims)
    for (bool causal : {false, true}) {
      run_float8<__nv_bfloat16>({.heads = 3,
                                 .heads_kv = 3,
                                 .len_q = 203,
                                 .len_kv = 300,
                                 .d = e[0],
                                 .dv = e[1],
                                 .causal = causal,
                                 .order = Order::padded,
                                 .descale = 2});
      STOP_AT_FAILURE;
    }
}

void options(std::int64_t d) {
  for (int which = 0; which < 16; ++which) {
    Case t{.batch = d == 256 ? 1 : 2,
           .heads = 2,
           .heads_kv = 1,
           .len_q = 270,
           .len_kv = 333,
           .d = d,
           .dv = d,
           .order = which % 2 == 0 ? Order::heads_first : Order::positions_first,
           .order_out = which % 2 == 0 ? Order::heads_first : Order::positions_first,
           .descale = which % 3};
    set_option(t, which);
    if (which == 14) t.order_out = Order::odd, t.left = 99;
    if (which == 15) t.amplitude = 0;  // all weights are the same
    if (which % 2 == 0)
      run_float8<__nv_bfloat16>(t);
    else
      run_float8<__half>(t);
    STOP_AT_FAILURE;
  }
}
TEST(AttentionSm90Float8Runs, Options64) { options(64); }
TEST(AttentionSm90Float8Runs, Options128) { options(128); }
TEST(AttentionSm90Float8Runs, Options256) { options(256); }

// Heads that share a key head share tiles where queries are few.
TEST(AttentionSm90Float8Runs, GroupsOfHeads) {
  int round = 0;
  for (std::int64_t d : {32, 64, 96, 128, 192, 256})
    for (std::int64_t group : {2, 4, 6})
      for (std::int64_t length : {1, 33, 150}) {
        Case t{.heads = 2 * group, .heads_kv = 2, .len_q = length, .len_kv = 270, .d = d, .dv = d};
        t.causal = round % 2 == 0, t.descale = round % 3, t.sinks = round % 5 == 0;
        if (round % 4 == 1) t.softcap = 7;
        if (round % 4 == 2) t.left = 90;
        if (round++ % 2 == 0)
          run_float8<__half>(t);
        else
          run_float8<__nv_bfloat16>(t);
        STOP_AT_FAILURE;
      }
}

TEST(AttentionSm90Float8Runs, LengthsCutPoisonedPadding) {
  for (std::int64_t d : {32, 64, 96, 128, 192, 256})
    for (int mask = 0; mask < 4; ++mask) {
      Case t = ragged_case<Case>(d, mask);
      t.descale = 2;
      run_float8<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
    }
}

TEST(AttentionSm90Float8Runs, PackedSequences) {
  for (std::int64_t d : {32, 64, 96, 128, 192, 256})
    for (int mask = 0; mask < 4; ++mask) {
      Case t = packed_case<Case>(4, 2, d, mask);
      t.descale = 2;
      run_float8<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
      t.cu_q = {0, 400, 900}, t.cu_kv = {}, t.len_kv = 400, t.lengths_kv = {399, 150};
      run_float8<__half>(t);
      STOP_AT_FAILURE;
    }
}

// An excluded key's value must not reach a row as 0 times NaN, wherever tiles end.
TEST(AttentionSm90Float8Runs, NanBehindTheMask) {
  for (std::int64_t d : {32, 64, 96, 128, 192, 256})
    for (int bad : {0, 79, 128, 319}) {
      run_float8<__nv_bfloat16>({.len_q = 320,
                                 .len_kv = 320,
                                 .d = d,
                                 .dv = d,
                                 .causal = true,
                                 .bad_keys = {bad},
                                 .descale = 1});
      STOP_AT_FAILURE;
      run_float8<__half>({.len_q = 300,
                          .len_kv = 320,
                          .d = d,
                          .dv = d,
                          .left = 30,
                          .right = 11,
                          .sinks = true,
                          .bad_keys = {bad, 150}});
      STOP_AT_FAILURE;
    }
}

TEST(AttentionSm90Float8Runs, ValuesThatSomeRowsSee) {
  for (std::int64_t d : {32, 64, 96, 128, 192, 256}) {
    int round = 0;
    each_bad_value<Case>(d, [&](Case t) {
      t.descale = round % 3, t.alibi = ++round % 4 == 0;
      run_float8<__nv_bfloat16>(t);
    });
    STOP_AT_FAILURE;
  }
}

TEST(AttentionSm90Float8Runs, LongSequences) {
  Case const one{.heads = 1, .heads_kv = 1, .len_q = 1100, .len_kv = 1100};
  std::vector<Case> cases(11, one);
  cases[1].len_q = 345, cases[1].len_kv = 2300, cases[1].sinks = true;
  cases[2].len_kv = 1500, cases[2].left = 100, cases[2].right = 30, cases[2].d = cases[2].dv = 128;
  cases[3].len_q = 2100, cases[3].len_kv = 2100, cases[3].causal = true;
  cases[4].len_q = 300, cases[4].len_kv = 5000, cases[4].d = cases[4].dv = 128;
  cases[5].batch = 4, cases[5].lengths_q = {1100, 700, 0, 1};
  cases[5].lengths_kv = {1000, 1100, 50, 0};
  cases[6].d = cases[6].dv = 256, cases[6].amplitude = 16;
  cases[7].d = cases[7].dv = 32, cases[7].causal = true;
  cases[8].d = cases[8].dv = 96, cases[8].causal = cases[8].sinks = true;
  cases[9].d = cases[9].dv = 192, cases[9].left = 200;
  cases[10].d = 192, cases[10].dv = 128, cases[10].len_kv = 1500;
  for (Case const& t : cases) {
    run_float8<__nv_bfloat16>(t);
    STOP_AT_FAILURE;
  }
}

// A factor of the scores that is not positive, which only the device sees.
TEST(AttentionSm90Float8Runs, FactorsOfAnySign) {
  for (float factor : {-0.5f, 0.0f, std::numeric_limits<float>::quiet_NaN()})
    for (std::int64_t d : {32, 64, 96, 128, 192, 256}) {
      run_float8<__half>({.len_q = 200,
                          .len_kv = 300,
                          .d = d,
                          .dv = d,
                          .causal = true,
                          .descale = 1,
                          .factor_q = factor});
      STOP_AT_FAILURE;
    }
}

TEST(AttentionSm90Float8Runs, RandomCases) {
  Draws below(20240612);
  for (int round = 0; round < 80; ++round) {
    Case t;
    t.batch = 1 + below(3), t.heads_kv = 1 + below(2), t.heads = t.heads_kv * (1 + below(3));
    t.len_q = 1 + below(500), t.len_kv = below(600);
    t.d = 8 * (1 + below(32)), t.dv = below(2) == 0 ? t.d : 8 * (1 + below(32));
    t.causal = below(2) == 0, t.top_left = below(2) == 0;
    draw_window(t, below, 300);
    draw_terms(t, below);
    t.descale = below(3);
    t.order = static_cast<Order>(below(3)), t.order_out = static_cast<Order>(below(4));
    draw_lengths(t, below);
    if (round % 2 == 0)
      run_float8<__nv_bfloat16>(t);
    else
      run_float8<__half>(t);
    STOP_AT_FAILURE;
  }
}

/// The same bits a hundred times over, for more or fewer multiprocessors.
void repeat(std::int64_t d, bool causal) {
  SKIP_IF_LEFT_OUT(Float8);
  Device device = abi::query_device(abi::current_device());
  int const sm_count = device.sm_count;
  std::int64_t const heads = 16, length = 2000;
  Tensor4<E4> q(1, heads, length, d, Order::heads_first, 1, 2),
      k(1, heads, length, d, Order::heads_first, 2, 1),
      v(1, heads, length, d, Order::heads_first, 3, 1);
  Tensor4<__half> out(1, heads, length, d, Order::heads_first, 4, 1);
  q.upload(), k.upload(), v.upload(), out.upload();
  AttentionArgs g;
  g.q = q.begin(), g.k = k.begin(), g.v = v.begin(), g.out = out.begin();
  g.type = DType::float8_e4m3, g.type_out = DType::float16;
  g.batch = 1, g.heads_q = g.heads_kv = heads, g.seqlen_q = g.seqlen_kv = length;
  g.head_dim = g.head_dim_v = d, g.causal = causal;
  g.softmax_scale = 1 / std::sqrt(static_cast<double>(d));
  for (int r = 0; r < 4; ++r) {
    g.q_stride[r] = g.k_stride[r] = g.v_stride[r] = q.stride[r];
    g.out_stride[r] = out.stride[r];
  }
  std::vector<unsigned char> first;
  auto const bytes = static_cast<std::size_t>(heads * length * d) * sizeof(__half);
  for (int round = 0; round < 100; ++round) {
    ASSERT_CUDA(cudaMemset(out.begin(), 0xFF, bytes));
    device.sm_count = round % 4 == 3 ? 97 : sm_count;
    ASSERT_EQ(Float8::launch(g, device, nullptr), cudaSuccess);
    std::vector<unsigned char> result(bytes);
    ASSERT_CUDA(cudaMemcpy(result.data(), out.begin(), bytes, cudaMemcpyDeviceToHost));
    if (first.empty()) first = result;
    ASSERT_EQ(result == first, true) << "round " << round;
  }
}
TEST(AttentionSm90Float8Runs, SameBitsEveryTime) {
  for (std::int64_t d : {32, 64, 96, 128, 192, 256})
    for (bool causal : {false, true}) {
      SCOPED_TRACE(d);
      repeat(d, causal);
      STOP_AT_FAILURE;
    }
}

class WorstFloat8Ratio : public testing::Environment {
  void TearDown() override {
    if (worst_attention_ratio > 0)
      std::printf("attention of float8: largest error / bound %.3f\n", worst_attention_ratio);
  }
};
[[maybe_unused]] auto* const worst_reporter =
    testing::AddGlobalTestEnvironment(new WorstFloat8Ratio);

}  // namespace
