// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention/sm80_mma_* called directly over memory of cudaMalloc. The suite
// AttentionSm80Refuses needs no GPU; AttentionSm80Runs fails without a card of compute capability
// 8.0.

#include "attention_cases.hpp"
#include "decode/direct_decode.hpp"

namespace {

template <class T>
void run_attention(DecodeCase t) {
  t.splits = {0};
  using Kernel =
      std::conditional_t<std::is_same_v<T, double>, abi::AttentionSm80MmaF64,
                         std::conditional_t<std::is_same_v<T, __half>, abi::AttentionSm80MmaF16,
                                            abi::AttentionSm80MmaBf16>>;
  run_decode<T, WithoutWorkspace<Kernel>>(t);
}

/// A call that is taken, changed by `change`: why it is refused.
template <class Change>
std::string refusal(Change change, int major = 9) {
  [[maybe_unused]] alignas(16) static float somewhere[4];
  AttentionArgs g;
  g.q = g.k = g.v = g.out = somewhere;
  g.type = g.type_out = DType::bfloat16;
  g.batch = 2, g.heads_q = 8, g.heads_kv = 2, g.seqlen_q = 512, g.seqlen_kv = 512;
  g.head_dim = g.head_dim_v = 64;
  for (auto* s : {&g.q_stride, &g.k_stride, &g.v_stride, &g.out_stride})
    (*s)[0] = 262144, (*s)[1] = 32768, (*s)[2] = 64, (*s)[3] = 1;
  change(g);
  Device const d{0, major, 6, abi::architecture_of(major, 6), 84, 101376};
  abi::Verdict const verdict = abi::AttentionSm80MmaBf16::accepts(g, d);
  EXPECT_EQ(verdict.ok, verdict.reason[0] == '\0');
  return verdict.reason;
}

TEST(AttentionSm80Refuses, WhatItCannotDo) {
  SKIP_IF_LEFT_OUT(abi::AttentionSm80MmaBf16);
  auto const same = [](AttentionArgs&) {};
  EXPECT_EQ(refusal(same), "");
  EXPECT_EQ(refusal(same, 8), "");
  EXPECT_EQ(refusal(same, 7), "it needs compute capability 8.0");
  EXPECT_EQ(refusal(same, 0), "no CUDA device");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.type = DType::float16; }),
            "it takes other element types");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.type_out = DType::float32; }),
            "it takes other element types");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.descale_q = static_cast<float const*>(g.q); }),
            "it has no factors of float8 tensors");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.bias = g.q, g.type_bias = DType::float64; }),
            "it does not read the bias's element type");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.head_dim = 257; }), "head_dim is above 256");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.head_dim_v = 513; }), "head_dim of v is above 512");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.head_dim_v = 0; }), "head_dim is 0");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.batch = -1; }), "an extent is negative");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.seqlen_kv = std::int64_t{1} << 29; }),
            "an extent is too large");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.page_table = static_cast<int const*>(g.q); }),
            "page_size is 0");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.k = nullptr; }), "k or v is a null pointer");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.heads_kv = 0; }), "k and v have no heads");
}

TEST(AttentionSm80Refuses, WhatFloat64CannotDo) {
  SKIP_IF_LEFT_OUT(abi::AttentionSm80MmaF64);
  auto const with = [](auto change, int shared = 232448) -> std::string {
    [[maybe_unused]] alignas(16) static double somewhere[4];
    AttentionArgs g;
    g.q = g.k = g.v = g.out = somewhere;
    g.type = g.type_out = DType::float64;
    g.batch = 2, g.heads_q = g.heads_kv = 4, g.seqlen_q = g.seqlen_kv = 16;
    g.head_dim = g.head_dim_v = 128;
    change(g);
    abi::Verdict const verdict =
        abi::AttentionSm80MmaF64::accepts(g, {0, 8, 6, abi::architecture_of(8, 6), 84, shared});
    EXPECT_EQ(verdict.ok, verdict.reason[0] == '\0');
    return verdict.reason;
  };
  auto const same = [](AttentionArgs&) {};
  EXPECT_EQ(with(same), "");
  EXPECT_EQ(with(same, 101376), "a block needs more shared memory than the device has");
  EXPECT_EQ(with([](AttentionArgs& g) { g.head_dim = g.head_dim_v = 64; }, 101376), "");
  EXPECT_EQ(with([](AttentionArgs& g) { g.type = DType::float32; }),
            "it takes other element types");
  EXPECT_EQ(with([](AttentionArgs& g) { g.head_dim = 129; }), "head_dim is above 128");
  EXPECT_EQ(with([](AttentionArgs& g) { g.head_dim_v = 513; }), "head_dim of v is above 512");
  EXPECT_EQ(with([](AttentionArgs& g) { g.bias = g.q, g.type_bias = DType::float64; }), "");
}

TEST(AttentionSm80Refuses, NoStrides) {
  SKIP_IF_LEFT_OUT(abi::AttentionSm80MmaBf16);
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.q_stride[1] = 65, g.k_stride[3] = 2; }), "");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.v = static_cast<char const*>(g.v) + 2; }), "");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.out_stride[2] = 65, g.k_stride[0] = 0; }), "");
  EXPECT_EQ(refusal([](AttentionArgs& g) { g.seqlen_q = 0, g.head_dim = 0; }), "");
}

template <class T>
void shapes(std::int64_t d, std::int64_t dv) {
  each_shape<DecodeCase>(d, dv, run_attention<T>);
}
TEST(AttentionSm80Runs, HeadDim128) { shapes<__nv_bfloat16>(128, 128); }
TEST(AttentionSm80Runs, HeadDim64) { shapes<__nv_bfloat16>(64, 64); }
TEST(AttentionSm80Runs, HeadDim256) { shapes<__nv_bfloat16>(256, 256); }
TEST(AttentionSm80Runs, HeadDim64Float16) { shapes<__half>(64, 64); }
TEST(AttentionSm80Runs, HeadDim128Float16) { shapes<__half>(128, 128); }

TEST(AttentionSm80Runs, Float64) {
  for (std::int64_t d : {64, 128}) {
    shapes<double>(d, d);
    STOP_AT_FAILURE;
  }
  for (auto const& e : {std::array<std::int64_t, 2>{1, 3},
                        {8, 8},
                        {20, 99},
                        {65, 64},
                        {100, 128},
                        {127, 129},
                        {128, 300},
                        {64, 512}})
    for (Order order : {Order::padded, Order::odd}) {
      run_attention<double>({.batch = 1,
                             .heads = 3,
                             .heads_kv = 3,
                             .len_q = 103,
                             .len_kv = 150,
                             .d = e[0],
                             .dv = e[1],
                             .causal = order == Order::odd,
                             .order = order,
                             .order_out = order});
      STOP_AT_FAILURE;
    }
}

// The shapes of kernels that cards with less shared memory take: of sm_80, and of sm_86 and sm_89.
TEST(AttentionSm80Runs, WithLessSharedMemory) {
  auto const run = [](DecodeCase t) {
    t.splits = {0};
    if (t.d == 256) {
      run_decode<__nv_bfloat16,
                 WithLessShared<WithoutWorkspace<abi::AttentionSm80MmaBf16>, 166912>>(t);
      STOP_AT_FAILURE;
      run_decode<__half, WithLessShared<WithoutWorkspace<abi::AttentionSm80MmaF16>, 101376>>(t);
    } else {
      run_decode<double, WithLessShared<WithoutWorkspace<abi::AttentionSm80MmaF64>, 166912>>(t);
    }
  };
  for (std::int64_t d : {128, 256}) {
    each_shape<DecodeCase>(d, d, run);
    each_option<DecodeCase>(d, run);
    STOP_AT_FAILURE;
  }
}

TEST(AttentionSm80Runs, ReferencesRise) {
  for (std::int64_t d : {64, 128, 256})
    each_rise<DecodeCase>(d, [](DecodeCase const& t) {
      run_attention<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
      run_attention<__half>(t);
      STOP_AT_FAILURE;
      if (t.d != 256) run_attention<double>(t);
    });
}

TEST(AttentionSm80Runs, OtherHeadDimsAndStrides) {
  each_head_dim<DecodeCase>(run_attention<__nv_bfloat16>);
}

template <class T>
void options(std::vector<std::int64_t> const& dims) {
  for (std::int64_t d : dims) each_option<DecodeCase>(d, run_attention<T>);
}
TEST(AttentionSm80Runs, Options) { options<__nv_bfloat16>({64, 128, 256}); }
TEST(AttentionSm80Runs, OptionsFloat16) { options<__half>({64, 128, 256}); }
TEST(AttentionSm80Runs, OptionsFloat64) { options<double>({64, 128}); }

TEST(AttentionSm80Runs, Pages) {
  for (std::int64_t d : {64, 128, 256})
    each_page_size<DecodeCase>(d, [](DecodeCase t) {
      run_attention<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
      t.softcap = 3, t.order = Order::positions_first, t.lengths_q = {};
      run_attention<__half>(t);
      STOP_AT_FAILURE;
      if (t.d != 256) run_attention<double>(t);
    });
}

TEST(AttentionSm80Runs, LengthsCutPoisonedPadding) {
  for (std::int64_t d : {64, 128, 256})
    for (int mask = 0; mask < 4; ++mask) {
      DecodeCase t = ragged_case<DecodeCase>(d, mask);
      run_attention<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
      t.order = Order::odd;
      run_attention<__half>(t);
      STOP_AT_FAILURE;
    }
}

TEST(AttentionSm80Runs, PackedSequences) {
  for (std::int64_t d : {64, 128, 256})
    for (int mask = d == 128 ? 0 : 3; mask < 4; ++mask) {
      DecodeCase t = packed_case<DecodeCase>(2, 1, d, mask);
      run_attention<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
      // Packed queries against padded and paged keys.
      t.cu_q = {0, 400, 900}, t.cu_kv = {}, t.len_kv = 400, t.lengths_kv = {399, 150};
      run_attention<__half>(t);
      STOP_AT_FAILURE;
      t.page_size = 40;
      run_attention<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
    }
}

// An excluded key's value must not reach a row as 0 times NaN, wherever tiles end.
TEST(AttentionSm80Runs, NanBehindTheMask) {
  for (std::int64_t d : {64, 128, 256})
    each_bad_key<DecodeCase>(d, [](DecodeCase const& t, int form) {
      if (form == 1)
        run_attention<__half>(t);
      else
        run_attention<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
      if (form == 2 && t.d != 256) run_attention<double>(t);
    });
}

TEST(AttentionSm80Runs, PaddingAndValuesThatSomeRowsSee) {
  for (std::int64_t d : {64, 128, 256}) {
    each_poison<DecodeCase>(d, run_attention<__nv_bfloat16>);
    STOP_AT_FAILURE;
    each_bad_value<DecodeCase>(d, run_attention<__half>);
    STOP_AT_FAILURE;
  }
}

void random_cases(unsigned seed) {
  Draws below(seed);
  for (int round = 0; round < 45; ++round) {
    auto const t = draw_case<DecodeCase>(below, round % 3 == 2 ? 128 : 256);
    if (round % 3 == 0)
      run_attention<__nv_bfloat16>(t);
    else if (round % 3 == 1)
      run_attention<__half>(t);
    else
      run_attention<double>(t);
    STOP_AT_FAILURE;
  }
}

TEST(AttentionSm80Runs, RandomCases) { random_cases(20240611); }
TEST(AttentionSm80Runs, MoreRandomCases) { random_cases(7); }

TEST(AttentionSm80Runs, SameBitsOnAnyDevice) {
  for (std::int64_t d : {64, 128, 256})
    expect_same_bits_on_any_device<__nv_bfloat16, WithoutWorkspace<abi::AttentionSm80MmaBf16>>(
        {.heads = 16, .len_q = 700, .len_kv = 900, .d = d, .dv = d, .causal = true});
}

TEST(AttentionSm80Runs, NothingWhereThereIsNothing) {
  each_empty_case<DecodeCase>(run_attention<__nv_bfloat16>);
}

}  // namespace
