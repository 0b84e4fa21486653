// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention/sm90_wgmma_* over paged keys and values, called directly over memory of cudaMalloc.
// The suite AttentionSm90PagesRefuses needs no GPU; AttentionSm90PagesRuns fails
// without a Hopper card.

#include "attention_cases.hpp"
#include "decode/direct_decode.hpp"

namespace {

template <class T>
void run_attention(DecodeCase t) {
  t.splits = {0};
  using Kernel = std::conditional_t<std::is_same_v<T, __half>, abi::AttentionSm90WgmmaF16,
                                    abi::AttentionSm90WgmmaBf16>;
  run_decode<T, WithoutWorkspace<Kernel>>(t);
}

/// Of float8, with types of out and kinds of factors in turn.
void run_float8(DecodeCase t) {
  static int round = 0;
  using Kernel = WithoutWorkspace<abi::AttentionSm90WgmmaE4m3>;
  t.splits = {0}, t.coarse = true, t.descale = ++round % 3;
  if (round % 2 == 0)
    run_decode<__half, Kernel, E4>(t);
  else
    run_decode<__nv_bfloat16, Kernel, E4>(t);
}

/// Why a call with pages of `size` positions is refused.
std::string refusal(std::int64_t size, std::int64_t num_pages = 9, std::int64_t head_dim = 64,
                    bool bias = false) {
  alignas(16) static float somewhere[4];

  AttentionArgs g;
  g.q = g.k = g.v = g.out = somewhere;
  g.type = g.type_out = DType::bfloat16;
  g.batch = 2, g.heads_q = 8, g.heads_kv = 2, g.seqlen_q = 100, g.seqlen_kv = 2 * size;
  g.head_dim = g.head_dim_v = head_dim;
  g.page_table = reinterpret_cast<int const*>(somewhere), g.page_table_stride[0] = 2,
  g.page_table_stride[1] = 1;
  g.page_size = size, g.num_pages = num_pages;
  g.softmax_scale = 0.1;
  if (bias) {
    g.bias = somewhere, g.type_bias = DType::bfloat16;
    g.bias_stride[2] = 1024, g.bias_stride[3] = 1;
  }
  for (auto* s : {&g.q_stride, &g.k_stride, &g.v_stride, &g.out_stride})
    (*s)[0] = 262144, (*s)[1] = 32768, (*s)[2] = 64, (*s)[3] = 1;
  Device const d{0, 9, 0, abi::Architecture::hopper, 132, 232448};
  return abi::AttentionSm90WgmmaBf16::accepts(g, d).reason;
}

TEST(AttentionSm90PagesRefuses, OtherSizes) {
  SKIP_IF_LEFT_OUT(abi::AttentionSm90WgmmaBf16);
  for (std::int64_t size : {1, 2, 4, 7, 8, 12, 16, 24, 40, 64, 96, 100, 128, 200, 256, 512})
    EXPECT_EQ(refusal(size), "");
  EXPECT_EQ(refusal(0), "page_size is 0");
  EXPECT_EQ(refusal(-8), "an extent is negative");
  EXPECT_EQ(refusal(16, 9, 36), "");
  EXPECT_EQ(refusal(12, 9, 36),
            "pages that are no multiple of 8 positions want head_dims that are multiples of 8");
  EXPECT_EQ(refusal(24, 9, 64, true), "");
  EXPECT_EQ(refusal(12, 9, 64, true),
            "pages of a call with ALiBi or a bias are multiples of 8 positions");
  EXPECT_EQ(refusal(16, std::int64_t{1} << 28), "there are too many pages");
  EXPECT_EQ(refusal(16, -1), "an extent is negative");
}

template <class Run>
void each_size(std::int64_t d, std::int64_t dv, Run run) {
  int round = 0;
  for (std::int64_t size : {8, 16, 24, 32, 64, 96, 128, 200, 256, 512, 1, 2, 3, 4, 12, 50, 300})
    for (int mask = 0; mask < 3; ++mask) {
      if (size % 8 != 0 && (mask + size + d / 32) % 3 != 0) continue;
      DecodeCase t{.heads = 4,
                   .heads_kv = 2,
                   .len_q = 170,
                   .len_kv = 333,
                   .d = d,
                   .dv = dv,
                   .page_size = size,
                   .causal = mask == 1,
                   .left = mask == 2 ? 90 : -1,
                   .order = round % 2 == 0 ? Order::heads_first : Order::positions_first,
                   .lengths_kv = {333, 8 + 15 * round % 325}};
      if (round++ % 3 == 0) t.lengths_q = {100, 170};
      run(t);
      STOP_AT_FAILURE;
    }
}
TEST(AttentionSm90PagesRuns, Sizes) {
  std::int64_t const dims[][2] = {{32, 32}, {64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};
  for (auto const& e : dims) {
    each_size(e[0], e[1], run_attention<__nv_bfloat16>);
    STOP_AT_FAILURE;
  }
  each_size(64, 64, run_attention<__half>);  // and blocks of 96 keys
  STOP_AT_FAILURE;
  each_size(192, 192, run_attention<__half>);
  STOP_AT_FAILURE;
  each_size(72, 40, run_attention<__half>);  // rows that fill part of a box
}

TEST(AttentionSm90PagesRuns, Options) {
  for (std::int64_t d : {64, 128, 256})
    each_option<DecodeCase>(d, [](DecodeCase t) {
      if (t.mask || t.order != Order::heads_first) return;
      t.page_size = t.softcap > 0 ? 16 : t.sinks ? 40 : 64;
      t.order_out = Order::positions_first;
      run_attention<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
      t.page_size = t.softcap > 0 ? 1 : t.sinks ? 20 : 2;
      bool const copied = t.bias == 2 && t.softcap == 0;
      if (!copied && !t.alibi) run_attention<__nv_bfloat16>(t);
    });
}

TEST(AttentionSm90PagesRuns, PackedQueries) {
  for (std::int64_t d : {64, 128, 256})
    for (int mask = 0; mask < 3; ++mask) {
      DecodeCase t = packed_case<DecodeCase>(2, 1, d, mask);
      t.cu_q = {0, 400, 900}, t.cu_kv = {}, t.len_kv = 400, t.lengths_kv = {399, 150};
      for (std::int64_t size : {32, 5}) {
        t.page_size = size;
        run_attention<__half>(t);
        STOP_AT_FAILURE;
      }
    }
}

/// Long enough for several rounds of tiles and of the rings; no keys at all; one key of a page.
TEST(AttentionSm90PagesRuns, Lengths) {
  for (std::int64_t d : {64, 128})
    for (bool causal : {false, true}) {
      DecodeCase t{.batch = 3,
                   .heads = 6,
                   .heads_kv = 2,
                   .len_q = 300,
                   .len_kv = 1100,
                   .d = d,
                   .dv = d,
                   .causal = causal,
                   .lengths_kv = {1100, 0, 1025}};
      for (std::int64_t size : {16, 4}) {
        t.page_size = size;
        run_attention<__nv_bfloat16>(t);
        STOP_AT_FAILURE;
      }
    }
}

// An excluded key's value must not reach a row as 0 times NaN, and a row is summed again by pages.
TEST(AttentionSm90PagesRuns, NanBehindTheMask) {
  for (std::int64_t d : {64, 128, 256})
    each_bad_key<DecodeCase>(d, [](DecodeCase t, int form) {
      if (form == 2) return;
      for (std::int64_t size : {form == 0 ? 16 : 24, form == 0 ? 1 : 6}) {
        t.page_size = size;
        run_attention<__nv_bfloat16>(t);
        STOP_AT_FAILURE;
      }
    });
}

TEST(AttentionSm90PagesRuns, Float8Sizes) {
  std::int64_t const dims[][2] = {{64, 64},   {40, 24},   {96, 96},  {128, 128},
                                  {192, 128}, {192, 192}, {64, 256}, {256, 256}};
  for (auto const& e : dims) {
    int round = 0;
    each_size(e[0], e[1], [&](DecodeCase const& t) {
      if (round++ % 3 == t.page_size / 16 % 3 && t.page_size % 8 == 0)
        run_float8(t);  // every size with one mask
    });
    STOP_AT_FAILURE;
  }
}

TEST(AttentionSm90PagesRuns, Float8Options) {
  for (std::int64_t d : {64, 128, 256}) {
    each_option<DecodeCase>(d, [](DecodeCase t) {
      if (t.mask || t.order != Order::heads_first) return;
      t.page_size = t.softcap > 0 ? 16 : 64;
      t.order_out = Order::positions_first;
      run_float8(t);
    });
    STOP_AT_FAILURE;
    each_bad_key<DecodeCase>(d, [](DecodeCase t, int form) {
      if (form == 2) return;
      t.page_size = 16 << form;
      run_float8(t);
    });
    STOP_AT_FAILURE;
  }
}

/// Packed queries; several rounds of tiles and of the rings, no keys at all, one key of a page.
TEST(AttentionSm90PagesRuns, Float8Lengths) {
  for (std::int64_t d : {64, 128, 256})
    for (bool causal : {false, true}) {
      DecodeCase t = packed_case<DecodeCase>(2, 1, d, causal);
      t.cu_q = {0, 400, 900}, t.cu_kv = {}, t.len_kv = 400, t.lengths_kv = {399, 150};
      t.page_size = 32;
      run_float8(t);
      STOP_AT_FAILURE;
      t = {.batch = 3, .heads = 2, .heads_kv = 1, .len_q = 200, .len_kv = 1100, .d = d, .dv = d};
      t.causal = causal, t.page_size = causal ? 8 : 16, t.lengths_kv = {1100, 0, 1025};
      if (d != 256) run_float8(t);
      STOP_AT_FAILURE;
    }
}

}  // namespace
