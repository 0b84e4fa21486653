// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention/sm90_wgmma_* called directly over memory of cudaMalloc. The suite AttentionSm90Refuses
// needs no GPU; AttentionSm90Runs fails without a Hopper card.

#include "attention_cases.hpp"

namespace {

template <class T>
void shapes(std::int64_t d, std::int64_t dv) {
  std::int64_t const lengths[][2] = {{1, 1},     {1, 300},   {7, 0},     {63, 65},   {64, 80},
                                     {65, 161},  {127, 127}, {128, 128}, {129, 255}, {113, 203},
                                     {191, 256}, {193, 257}, {385, 144}, {320, 513}};
  for (auto const& l : lengths)
    for (int mask = 0; mask < 3; ++mask) {
      run<T>({.batch = 2,
              .heads = 4,
              .heads_kv = 2,
              .len_q = l[0],
              .len_kv = l[1],
              .d = d,
              .dv = dv,
              .causal = mask != 0,
              .top_left = mask == 2});
      STOP_AT_FAILURE;
    }
}

TEST(AttentionSm90Refuses, WhatItCannotDo) {
  SKIP_IF_LEFT_OUT(abi::AttentionSm90WgmmaBf16);
  [[maybe_unused]] alignas(16) static float somewhere[4];
  auto const with = [](auto change, int major = 9) -> std::string {
    AttentionArgs g;
    g.q = g.k = g.v = g.out = somewhere;
    g.type = g.type_out = DType::bfloat16;
    g.batch = 2, g.heads_q = g.heads_kv = 4, g.seqlen_q = g.seqlen_kv = 16;
    g.head_dim = g.head_dim_v = 64;
    for (auto* s : {&g.q_stride, &g.k_stride, &g.v_stride, &g.out_stride})
      (*s)[0] = 4096, (*s)[1] = 1024, (*s)[2] = 64, (*s)[3] = 1;
    change(g);
    Device const d{0, major, 0, abi::Architecture::hopper, 132, 232448};
    abi::Verdict const verdict = abi::AttentionSm90WgmmaBf16::accepts(g, d);
    EXPECT_EQ(verdict.ok, verdict.reason[0] == '\0');
    return verdict.reason;
  };
  EXPECT_EQ(with([](AttentionArgs&) {}), "");
  EXPECT_EQ(with([](AttentionArgs&) {}, 8), "its machine code runs on sm_90 only");
  EXPECT_EQ(with([](AttentionArgs&) {}, 0), "no CUDA device");
  EXPECT_EQ(with([](AttentionArgs& g) { g.type = DType::float16; }),
            "it takes other element types");
  EXPECT_EQ(with([](AttentionArgs& g) { g.mask = reinterpret_cast<std::uint8_t const*>(g.q); }),
            "it has no boolean mask");
  EXPECT_EQ(with([](AttentionArgs& g) { g.page_table = static_cast<int const*>(g.q); }),
            "page_size is 0");
  EXPECT_EQ(with([](AttentionArgs& g) { g.bias = g.q, g.type_bias = DType::float64; }),
            "it does not read the bias's element type");
  EXPECT_EQ(with([](AttentionArgs& g) { g.head_dim = 264; }), "head_dim is above 256");
  EXPECT_EQ(with([](AttentionArgs& g) { g.head_dim_v = 520; }), "head_dim of v is above 512");
  EXPECT_EQ(with([](AttentionArgs& g) { g.head_dim = 0; }), "head_dim is 0");
  EXPECT_EQ(with([](AttentionArgs& g) { g.q_stride[2] = 65; }),
            "a stride of q is not a multiple of 16 bytes");
  EXPECT_EQ(with([](AttentionArgs& g) { g.k_stride[3] = 2; }),
            "k has no unit stride along head_dim");
  EXPECT_EQ(with([](AttentionArgs& g) { g.v = static_cast<char const*>(g.v) + 2; }),
            "v's address is not a multiple of 16 bytes");
  EXPECT_EQ(with([](AttentionArgs& g) { g.out_stride[2] = 65, g.k_stride[0] = 0; }), "");
  EXPECT_EQ(with([](AttentionArgs& g) { g.seqlen_q = 0, g.head_dim = 0; }), "");
  EXPECT_EQ(with([](AttentionArgs& g) { g.seqlen_kv = std::int64_t{1} << 29; }),
            "an extent is too large");
}

TEST(AttentionSm90Runs, HeadDim128) { shapes<__nv_bfloat16>(128, 128); }
TEST(AttentionSm90Runs, HeadDim64) { shapes<__nv_bfloat16>(64, 64); }
TEST(AttentionSm90Runs, HeadDim256) { shapes<__nv_bfloat16>(256, 256); }
TEST(AttentionSm90Runs, HeadDims32And96And192) {
  for (std::int64_t d : {32, 96, 192}) {
    shapes<__nv_bfloat16>(d, d);
    STOP_AT_FAILURE;
  }
}
TEST(AttentionSm90Runs, Float16) {
  for (std::int64_t d : {32, 64, 96, 128, 192, 256}) {
    shapes<__half>(d, d);
    STOP_AT_FAILURE;
  }
}

TEST(AttentionSm90Runs, HeadDimsApart) {
  shapes<__nv_bfloat16>(192, 128);
  STOP_AT_FAILURE;
  shapes<__nv_bfloat16>(64, 256);
  STOP_AT_FAILURE;
  shapes<__half>(64, 512);
}

TEST(AttentionSm90Runs, OtherHeadDims) {
  std::int64_t const dims[][2] = {{8, 8},     {32, 32},  {40, 24},  {72, 72},   {96, 96},
                                  {128, 64},  {64, 128}, {100, 99}, {192, 128}, {192, 192},
                                  {136, 256}, {1, 3},    {20, 12},  {160, 100}, {40, 136},
                                  {200, 264}, {128, 384}};
  for (auto const& e : dims)
    for (bool causal : {false, true}) {
      run<__nv_bfloat16>({.heads = 3,
                          .heads_kv = 3,
                          .len_q = 203,
                          .len_kv = 300,
                          .d = e[0],
                          .dv = e[1],
                          .causal = causal,
                          .order = Order::padded});
      STOP_AT_FAILURE;
    }
}

template <class T>
void options() {
  std::int64_t const dims[][2] = {{64, 64}, {128, 128}, {256, 256}, {192, 128}, {64, 256}};
  for (auto const& e : dims)
    for (Order order : {Order::heads_first, Order::positions_first})
      for (int which = 0; which < 14; ++which) {
        Case t{.batch = 2,
               .heads = 4,
               .heads_kv = 2,
               .len_q = 270,
               .len_kv = 333,
               .d = e[0],
               .dv = e[1],
               .order = order,
               .order_out = order};
        set_option(t, which);
        run<T>(t);
        STOP_AT_FAILURE;
      }
}
TEST(AttentionSm90Runs, Options) { options<__nv_bfloat16>(); }
TEST(AttentionSm90Runs, OptionsFloat16) { options<__half>(); }

/// Softcap, ALiBi and scales over enough blocks of keys that some take each way to their weights.
template <class T>
void forms() {
  for (std::int64_t d : {64, 128, 256}) {
    Case const one{.len_q = 200, .len_kv = 900, .d = d, .dv = d};
    std::vector<Case> cases(14, one);
    cases[0].softcap = 30;                           // the series
    cases[1].softcap = 3, cases[1].causal = true;    // beyond the series, within the polynomial
    cases[2].softcap = 0.4;                          // tanh near 1
    cases[3].softcap = 9, cases[3].amplitude = 3.5;  // one block this way, one that
    cases[4].softcap = 20, cases[4].scale = -0.2;
    cases[5].softcap = 1e30, cases[5].sinks = true;  // no series
    cases[6].softcap = 30, cases[6].left = 300, cases[6].right = 200;
    cases[7].alibi = true;  // keys on both sides, bottom right
    cases[8].alibi = cases[8].top_left = true;
    cases[9].alibi = true, cases[9].len_kv = 400,
    cases[9].right = 300;  // turned, and cut on the right
    cases[10].alibi = true, cases[10].batch = 3, cases[10].lengths_kv = {900, 655, 5};
    cases[10].lengths_q = {140, 100, 129};
    cases[11].alibi = true, cases[11].left = 400, cases[11].right = 260, cases[11].sinks = true;
    cases[12].alibi = true, cases[12].scale = -0.3, cases[12].amplitude = 4;
    cases[13].alibi = true, cases[13].softcap = 2, cases[13].top_left = true;
    for (Case& t : cases) {
      // Slopes of further heads are so small that blocks far from the diagonal count.
      if (t.alibi) t.heads = 6, t.len_q = std::min<std::int64_t>(t.len_q, t.top_left ? 200 : 140);
      run<T>(t);
      STOP_AT_FAILURE;
    }
  }
}
TEST(AttentionSm90Runs, FormsOfScores) { forms<__nv_bfloat16>(); }
TEST(AttentionSm90Runs, FormsOfScoresFloat16) { forms<__half>(); }

// Biases that the copy engine brings and others; with what leaves them to it and what does not.
template <class T>
void biases() {
  int const lengths[][2] = {{200, 333}, {1, 7}, {64, 128}, {129, 1}, {193, 260}, {70, 520}, {7, 0}};
  std::size_t n = 0;
  for (std::int64_t d : {40, 64, 128, 256})
    for (int bias = 1; bias <= last_bias; ++bias)
      for (int which = 0; which < 7; ++which) {
        auto const [q, kv] = lengths[n++ % std::size(lengths)];
        Case t{.batch = 2, .len_q = q, .len_kv = kv, .d = d, .dv = d, .bias = bias};
        if (which == 1) t.causal = t.sinks = true;
        if (which == 2) t.left = 70, t.right = 30, t.scale = 0.4;
        if (which == 3) t.causal = t.alibi = true, t.left = 150, t.softcap = 3;
        if (which == 4)
          t.batch = 3, t.lengths_q = {q / 2, q, 0}, t.lengths_kv = {kv, kv / 3, kv / 7};
        if (which == 4) t.causal = t.top_left = true;
        if (which >= 5) t.alibi = true, t.causal = which == 5, t.sinks = which == 6;
        run<T>(t);
        STOP_AT_FAILURE;
      }
}
TEST(AttentionSm90Runs, Biases) { biases<__nv_bfloat16>(); }
TEST(AttentionSm90Runs, BiasesFloat16) { biases<__half>(); }
TEST(AttentionSm90Runs, BiasesOfPackedSequences) {
  for (std::int64_t d : {64, 128, 256})
    for (int bias = 1; bias <= last_bias; ++bias) {
      if (bias == 2 || bias == 8) continue;  // of everything: large
      Case t = packed_case<Case>(4, 2, d, bias % 4);
      t.bias = bias;
      run<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
    }
}

TEST(AttentionSm90Runs, LengthsCutPoisonedPadding) {
  for (std::int64_t d : {32, 64, 96, 128, 192, 256})
    for (int mask = 0; mask < 4; ++mask) {
      Case t = ragged_case<Case>(d, mask);
      run<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
      run<__half>(t);
      STOP_AT_FAILURE;
    }
}

TEST(AttentionSm90Runs, PackedSequences) {
  for (std::int64_t d : {32, 64, 96, 128, 192, 256})
    for (int mask = 0; mask < 4; ++mask) {
      Case t = packed_case<Case>(4, 2, d, mask);
      run<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
      t.cu_kv = {0, 128, 208, 400, 401, 529, 700, 800, 1000};
      run<__half>(t);
      STOP_AT_FAILURE;
      // Packed queries against padded keys.
      t.cu_q = {0, 400, 900}, t.cu_kv = {}, t.len_kv = 400, t.lengths_kv = {399, 150};
      run<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
    }
}

// Sequences are put in order of length if they are not too many: at head_dim 256 231, else 1024.
template <class T>
void sequences_in_order(std::int64_t d) {
  std::vector<std::vector<int>> cases{{},
                                      {300},
                                      {130, 130, 130, 130, 130, 130, 130, 130, 130},
                                      {0, 0, 400, 0, 64, 129, 0},
                                      {1, 400, 1, 1, 330, 2, 200},
                                      {64, 10, 200, 128, 70, 192, 129, 1, 260, 50}};
  for (int count : d == 256 ? std::vector{231, 232} : std::vector{1024, 1025, 1500}) {
    cases.emplace_back();
    for (int n = 0; n < count; ++n) cases.back().push_back(n % 251 == 7 ? 140 : n * 7 % 3);
  }
  for (auto const& lengths : cases)
    for (int mask = 0; mask < (lengths.size() < 100 ? 4 : 2); ++mask) {
      Case t{.heads = 2,
             .d = d,
             .dv = d,
             .causal = mask == 1,
             .left = mask == 2 ? 90 : -1,
             .right = mask == 3 ? 5 : -1,
             .order = Order::positions_first,
             .order_out = Order::positions_first,
             .cu_q = {3},
             .wide = mask % 2 == 1};
      for (int length : lengths) t.cu_q.push_back(t.cu_q.back() + length);
      t.cu_kv = t.cu_q;
      t.len_q = t.len_kv = t.cu_q.back() + 70;
      if (mask == 3)  // as many keys as the sequences have queries, but otherwise dealt out
        for (std::size_t n = 0; n < t.cu_kv.size(); ++n)
          t.cu_kv[n] = t.cu_q.back() + 3 - t.cu_q[t.cu_q.size() - 1 - n];
      run<T>(t);
      STOP_AT_FAILURE;
    }
}
TEST(AttentionSm90Runs, PackedSequencesInOrder) {
  for (std::int64_t d : {64, 128, 256}) {
    sequences_in_order<__nv_bfloat16>(d);
    STOP_AT_FAILURE;
  }
}
TEST(AttentionSm90Runs, PackedSequencesInOrderFloat16) {
  for (std::int64_t d : {96, 192}) {
    sequences_in_order<__half>(d);
    STOP_AT_FAILURE;
  }
}

// What comes of boundaries that make no sense is not said, but it ends, and within out.
TEST(AttentionSm90Runs, BoundariesThatGoBack) {
  SKIP_IF_LEFT_OUT(abi::AttentionSm90WgmmaBf16);
  Device const device = abi::query_device(abi::current_device());
  DeviceArray<int> const boundaries({0, 800, 100, 900, -50, 5000, 300, 899});
  for (bool causal : {false, true}) {
    Tensor4<__nv_bfloat16> x(1, 2, 900, 64, Order::padded, 1, 1),
        out(1, 2, 900, 64, Order::padded, 2, 1);
    out.forget();
    x.upload(), out.upload();
    AttentionArgs g;
    g.q = g.k = g.v = x.begin(), g.out = out.begin();
    g.type = g.type_out = DType::bfloat16;
    g.batch = 7, g.heads_q = g.heads_kv = 2, g.seqlen_q = g.seqlen_kv = 900;
    g.head_dim = g.head_dim_v = 64, g.softmax_scale = 0.1, g.causal = causal;
    for (int r = 1; r < 4; ++r)
      g.q_stride[r] = g.k_stride[r] = g.v_stride[r] = g.out_stride[r] = x.stride[r];
    g.cu_seqlens_q.data = g.cu_seqlens_kv.data = boundaries.data;
    ASSERT_EQ(AttentionFor<__nv_bfloat16>::launch(g, device, nullptr), cudaSuccess);
    ASSERT_CUDA(cudaDeviceSynchronize());
    auto const before = out.host;
    ASSERT_CUDA(cudaMemcpy(out.host.data(), out.device, before.size(), cudaMemcpyDeviceToHost));
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < 900; ++i) out.poison(0, h, i);
    EXPECT_EQ(out.host == before, true) << "memory around out was written";
  }
}

// An excluded key's value must not reach a row as 0 times NaN, wherever tiles
// end.
TEST(AttentionSm90Runs, NanBehindTheMask) {
  for (std::int64_t d : {32, 64, 96, 128, 192, 256})
    for (int bad : {0, 1, 79, 80, 127, 128, 200, 319}) {
      run<__nv_bfloat16>(
          {.len_q = 320, .len_kv = 320, .d = d, .dv = d, .causal = true, .bad_keys = {bad}});
      STOP_AT_FAILURE;
      run<__half>({.len_q = 300,
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

TEST(AttentionSm90Runs, PaddingOfAllKinds) {
  for (std::int64_t d : {32, 64, 96, 128, 192, 256}) {
    if (d % 64 == 0)
      each_poison<Case>(d, run<__nv_bfloat16>);
    else
      each_poison<Case>(d, run<__half>);
    STOP_AT_FAILURE;
  }
}

// By all ways to scores in turn.
TEST(AttentionSm90Runs, ValuesThatSomeRowsSee) {
  int round = 0;
  for (std::int64_t d : {32, 64, 96, 128, 192, 256}) {
    each_bad_value<Case>(d, [&](Case t) {
      if (++round % 7 == 3) t.softcap = 5;
      if (round % 7 == 4) t.alibi = true;
      if (round % 7 == 5 && t.cu_q.empty()) t.bias = 3;
      if (round % 2 == 0)
        run<__half>(t);
      else
        run<__nv_bfloat16>(t);
    });
    STOP_AT_FAILURE;
  }
}

// Sequences that are long enough for tiles of 192 queries.
template <class T>
void long_sequences() {
  Case const one{.heads = 1, .heads_kv = 1, .len_q = 1100, .len_kv = 1100};
  std::vector<Case> cases(8, one);
  cases[1].len_q = 1345, cases[1].len_kv = 300, cases[1].sinks = true;
  cases[2].len_kv = 1500, cases[2].left = 100, cases[2].right = 30;
  cases[3].len_q = 4100, cases[3].causal = true;
  cases[4].len_q = 4100, cases[4].len_kv = 700, cases[4].causal = cases[4].top_left = true;
  cases[5].batch = 4, cases[5].lengths_q = {1100, 700, 0, 1};
  cases[5].lengths_kv = {1000, 1100, 50, 0};
  cases[6].len_q = 2300, cases[6].len_kv = 2200, cases[6].cu_q = {0, 1300, 2300};
  cases[6].cu_kv = {0, 901, 2100};
  cases[6].order = cases[6].order_out = Order::positions_first;
  cases[7].bad_keys = {0, 127, 128, 1000}, cases[7].right = 300, cases[7].order_out = Order::odd;
  for (Case const& t : cases) {
    run<T>(t);
    STOP_AT_FAILURE;
  }
}
// More tiles than a card has multiprocessors, of which a window leaves the first of each head
// shorter: none, some or all of them.
TEST(AttentionSm90Runs, WindowsOfManyTiles) {
  for (std::int64_t d : {64, 128})
    for (std::int64_t left : {0, 130, 250, 1000})
      for (std::int64_t len_kv : {300, 333}) {
        Case t{.batch = 2,
               .heads = 30,
               .heads_kv = 15,
               .len_q = 300,
               .len_kv = len_kv,
               .d = d,
               .dv = d,
               .causal = left != 130,
               .top_left = left == 1000 && len_kv == 333,
               .left = left,
               .right = left == 130 ? 70 : -1};
        if (left == 250) t.lengths_kv = {static_cast<int>(len_kv), 150};
        run<__nv_bfloat16>(t);
        STOP_AT_FAILURE;
      }
}

TEST(AttentionSm90Runs, LongSequences) { long_sequences<__nv_bfloat16>(); }
TEST(AttentionSm90Runs, LongSequencesFloat16) { long_sequences<__half>(); }

TEST(AttentionSm90Runs, RandomCases) {
  Draws below(20240611);
  for (int round = 0; round < 120; ++round) {
    Case t;
    t.batch = 1 + below(3), t.heads_kv = 1 + below(2), t.heads = t.heads_kv * (1 + below(3));
    t.len_q = 1 + below(500), t.len_kv = below(600);
    t.d = 8 * (1 + below(32)), t.dv = below(2) == 0 ? t.d : 8 * (1 + below(50));
    t.causal = below(2) == 0, t.top_left = below(2) == 0;
    draw_window(t, below, 300);
    draw_terms(t, below);
    if (t.bias != 0) t.bias = 1 + below(last_bias), t.softcap = below(2) == 0 ? t.softcap : 0;
    t.order = static_cast<Order>(below(3)), t.order_out = static_cast<Order>(below(4));
    draw_lengths(t, below);
    if (round % 2 == 0)
      run<__nv_bfloat16>(t);
    else
      run<__half>(t);
    STOP_AT_FAILURE;
  }
}

/// The same bits a hundred times over, beside other work that disturbs what
/// runs when.
template <class T>
void repeat(std::int64_t d, bool causal) {
  SKIP_IF_LEFT_OUT(AttentionFor<T>);
  Device const device = abi::query_device(abi::current_device());
  std::int64_t const heads = 16, length = 2000;
  Tensor4<T> q(1, heads, length, d, Order::heads_first, 1, 2),
      k(1, heads, length, d, Order::heads_first, 2, 1),
      v(1, heads, length, d, Order::heads_first, 3, 1),
      out(1, heads, length, d, Order::heads_first, 4, 1);
  q.upload(), k.upload(), v.upload();
  AttentionArgs g;
  g.q = q.begin(), g.k = k.begin(), g.v = v.begin();
  g.type = g.type_out = dtype_of<T>();
  g.batch = 1, g.heads_q = g.heads_kv = heads, g.seqlen_q = g.seqlen_kv = length;
  g.head_dim = g.head_dim_v = d, g.causal = causal;
  g.softmax_scale = 1 / std::sqrt(static_cast<double>(d));
  for (int r = 0; r < 4; ++r)
    g.q_stride[r] = g.k_stride[r] = g.v_stride[r] = g.out_stride[r] = q.stride[r];
  cudaStream_t stream, other;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ASSERT_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  std::vector<unsigned char> first;
  out.forget();
  Tensor4<T> noise(1, heads, length, d, Order::heads_first, 5, 1);
  noise.upload(), out.upload();
  for (int round = 0; round < 100; ++round) {
    ASSERT_CUDA(cudaMemsetAsync(out.begin(), 0xFF,
                                static_cast<std::size_t>(heads * length * d) * sizeof(T), stream));
    if (round % 3 == 1) {
      ASSERT_CUDA(cudaMemcpyAsync(noise.begin(), k.begin(),
                                  static_cast<std::size_t>(heads * length * d) * sizeof(T),
                                  cudaMemcpyDeviceToDevice, other));
    }
    Device d_ = device;
    d_.sm_count = round % 4 == 3 ? 97 : device.sm_count;

    g.out = out.begin();
    ASSERT_EQ(AttentionFor<T>::launch(g, d_, stream), cudaSuccess);
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    std::vector<unsigned char> result(static_cast<std::size_t>(heads * length * d) * sizeof(T));
    ASSERT_CUDA(cudaMemcpy(result.data(), out.begin(), result.size(), cudaMemcpyDeviceToHost));
    if (first.empty()) first = result;
    ASSERT_EQ(result == first, true) << "round " << round;
  }
  cudaStreamDestroy(stream), cudaStreamDestroy(other);
}
TEST(AttentionSm90Runs, SameBitsEveryTime) {
  for (std::int64_t d : {32, 64, 96, 128, 192, 256})
    for (bool causal : {false, true}) {
      SCOPED_TRACE(d);
      repeat<__nv_bfloat16>(d, causal);
      STOP_AT_FAILURE;
      repeat<__half>(d, causal);
      STOP_AT_FAILURE;
    }
}

TEST(AttentionSm90Runs, NothingWhereThereIsNothing) {
  for (auto [heads, len_q, len_kv] : {std::array<std::int64_t, 3>{2, 0, 5}, {2, 5, 0}}) {
    run<__nv_bfloat16>({.heads = heads, .heads_kv = 1, .len_q = len_q, .len_kv = len_kv});
    STOP_AT_FAILURE;
  }
}

class WorstRatio : public testing::Environment {
  void TearDown() override {
    if (worst_attention_ratio > 0)
      std::printf("attention: largest error / bound %.3f\n", worst_attention_ratio);
  }
};
[[maybe_unused]] auto* const worst_reporter = testing::AddGlobalTestEnvironment(new WorstRatio);

}  // namespace
