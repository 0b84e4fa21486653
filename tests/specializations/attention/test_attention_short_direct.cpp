// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention/sm80_short_* called directly over memory of cudaMalloc. The suite
// AttentionShortRefuses needs no GPU; AttentionShortRuns fails without a card of compute capability
// 8.0.

#include "attention_cases.hpp"

namespace {

template <class T>
using Sm80For = std::conditional_t<std::is_same_v<T, __half>, abi::AttentionSm80ShortF16,
                                   abi::AttentionSm80ShortBf16>;
template <class T>
using Sm90For = std::conditional_t<std::is_same_v<T, __half>, abi::AttentionSm90ShortF16,
                                   abi::AttentionSm90ShortBf16>;
bool on_hopper() { return abi::query_device(abi::current_device()).compute_major == 9; }

/// Both kernels; the one for Hopper leaves the shortest sequences to the other and takes longer
/// ones.
template <class T>
void run_short(Case const& t) {
  bool const packed_q = !t.cu_q.empty(), packed_kv = !t.cu_kv.empty();
  if (packed_q || packed_kv || (t.len_q <= 128 && t.len_kv <= 128)) run<T, Sm80For<T>>(t);
  auto const count = static_cast<std::int64_t>(t.cu_q.size()) - 1;
  std::int64_t const queries = packed_q ? (t.len_q + count - 1) / count : t.len_q;
  std::int64_t const keys = packed_kv ? (t.len_kv + count - 1) / count : t.len_kv;
  if (on_hopper() && (queries > 32 || keys > 64)) {
    SCOPED_TRACE("sm90");
    run<T, Sm90For<T>>(t);
  }
}

template <class Kernel>
void refuses(int least) {
  SKIP_IF_LEFT_OUT(Kernel);
  [[maybe_unused]] alignas(16) static float somewhere[4];
  auto const with = [&](auto change, int major = 0) -> std::string {
    AttentionArgs g;
    g.q = g.k = g.v = g.out = somewhere;
    g.type = g.type_out = DType::bfloat16;
    g.batch = 2, g.heads_q = g.heads_kv = 4, g.seqlen_q = g.seqlen_kv = 48;
    g.head_dim = g.head_dim_v = 64;
    for (auto* s : {&g.q_stride, &g.k_stride, &g.v_stride, &g.out_stride})
      (*s)[0] = 4096, (*s)[1] = 1024, (*s)[2] = 64, (*s)[3] = 1;
    change(g);
    Device const d{0, major == 0 ? least : major, 0, abi::Architecture::unknown, 108, 101376};
    abi::Verdict const verdict = Kernel::accepts(g, d);
    EXPECT_EQ(verdict.ok, verdict.reason[0] == '\0');
    return verdict.reason;
  };
  EXPECT_EQ(with([](AttentionArgs&) {}), "");
  EXPECT_EQ(with([](AttentionArgs&) {}, 9), "");
  EXPECT_EQ(with([](AttentionArgs&) {}, 7),
            least == 8 ? "it needs compute capability 8.0" : "its machine code runs on sm_90 only");
  EXPECT_EQ(with([](AttentionArgs& g) { g.type = DType::float16; }),
            "it takes other element types");
  EXPECT_EQ(with([](AttentionArgs& g) { g.page_table = static_cast<int const*>(g.q); }),
            "it reads no pages");
  EXPECT_EQ(with([](AttentionArgs& g) { g.descale_q = static_cast<float const*>(g.q); }),
            "it has no factors of float8 tensors");
  EXPECT_EQ(with([](AttentionArgs& g) { g.bias = g.q; }), "it has no bias");
  EXPECT_EQ(with([](AttentionArgs& g) { g.softcap = 1; }), "it has no softcap");
  EXPECT_EQ(with([](AttentionArgs& g) { g.softmax_scale = -1; }), "softmax_scale is not positive");
  EXPECT_EQ(with([](AttentionArgs& g) { g.head_dim = 136; }), "head_dim is above 128");
  EXPECT_EQ(with([](AttentionArgs& g) { g.head_dim_v = 12; }), "head_dim is not a multiple of 8");
  EXPECT_EQ(with([](AttentionArgs& g) { g.head_dim = 0; }), "head_dim is 0");
  EXPECT_EQ(with([](AttentionArgs& g) { g.heads_kv = 0; }), "k and v have no heads");
  EXPECT_EQ(with([](AttentionArgs& g) { g.seqlen_kv = 257, g.causal = true; }),
            least == 8 ? "sequences are longer than 128" : "sequences are longer than 256");
  EXPECT_EQ(with([](AttentionArgs& g) { g.seqlen_q = 32; }),
            least == 8 ? "" : "sequences of up to 32 are faster by attention/sm80_short_*");
  EXPECT_EQ(
      with([](AttentionArgs& g) { g.seqlen_q = g.seqlen_kv = 512; }),
      least == 8 ? "sequences are longer than 128" : "there are too few tiles of 256 queries");
  EXPECT_EQ(with([](AttentionArgs& g) { g.seqlen_q = g.seqlen_kv = 512, g.batch = 100; }),
            least == 8 ? "sequences are longer than 128" : "");
  EXPECT_EQ(with([](AttentionArgs& g) { g.seqlen_kv = 129, g.head_dim = 72; }),
            "sequences are longer than 128");
  EXPECT_EQ(with([](AttentionArgs& g) {
              g.seqlen_q = g.seqlen_kv = 256, g.batch = 2;  // packed: 128 on average
              g.cu_seqlens_q.data = g.cu_seqlens_kv.data = g.q;
            }),
            "");
  EXPECT_EQ(with([](AttentionArgs& g) { g.q_stride[2] = 65; }),
            "a stride of q is not a multiple of 16 bytes");
  EXPECT_EQ(with([](AttentionArgs& g) { g.k_stride[3] = 2; }),
            "k has no unit stride along head_dim");
  EXPECT_EQ(with([](AttentionArgs& g) { g.v = static_cast<char const*>(g.v) + 2; }),
            "v's address is not a multiple of 16 bytes");
  EXPECT_EQ(with([](AttentionArgs& g) { g.v = nullptr; }), "q, k, v or out is a null pointer");
  EXPECT_EQ(with([](AttentionArgs& g) { g.out_stride[2] = 65, g.k_stride[0] = 0; }), "");
  EXPECT_EQ(with([](AttentionArgs& g) { g.seqlen_q = 0, g.head_dim = 0; }), "");
  EXPECT_EQ(with([](AttentionArgs& g) { g.seqlen_q = -1; }), "an extent is negative");
}
TEST(AttentionShortRefuses, OnAmpere) { refuses<abi::AttentionSm80ShortBf16>(8); }
TEST(AttentionShortRefuses, OnHopper) { refuses<abi::AttentionSm90ShortBf16>(9); }

template <class T>
void shapes(std::int64_t d, std::int64_t dv) {
  std::int64_t const lengths[][2] = {{1, 1},   {1, 128},  {7, 0},    {16, 16},   {15, 17},
                                     {17, 15}, {33, 31},  {48, 64},  {64, 64},   {63, 65},
                                     {65, 63}, {80, 100}, {113, 97}, {127, 127}, {128, 128}};
  for (auto const& l : lengths)
    for (int mask = 0; mask < 3; ++mask) {
      run_short<T>({.batch = 3,
                    .heads = 6,
                    .heads_kv = 2,
                    .len_q = l[0],
                    .len_kv = l[1],
                    .d = d,
                    .dv = dv,
                    .causal = mask != 0,
                    .top_left = mask == 2,
                    .order = mask == 0 ? Order::positions_first : Order::heads_first,
                    .order_out = mask == 2 ? Order::positions_first : Order::heads_first});
      STOP_AT_FAILURE;
    }
}
TEST(AttentionShortRuns, Shapes) {
  for (std::int64_t d : {32, 64, 128}) {
    shapes<__nv_bfloat16>(d, d);
    STOP_AT_FAILURE;
    shapes<__half>(d, d);
    STOP_AT_FAILURE;
  }
}

TEST(AttentionShortRuns, LongerOnHopper) {
  std::int64_t const lengths[][2] = {{129, 200}, {256, 256}, {192, 191}, {60, 256}, {255, 3}};
  for (std::int64_t d : {32, 64})
    for (auto const& l : lengths)
      for (int mask = 0; mask < 3; ++mask) {
        Case t{.batch = 2,
               .heads = 4,
               .heads_kv = 2,
               .len_q = l[0],
               .len_kv = l[1],
               .d = d,
               .dv = d,
               .causal = mask == 1};
        if (mask == 2) t.left = 50, t.lengths_q = {100, 3}, t.lengths_kv = {1, 177};
        if (mask == 2) t.lengths_q[0] = static_cast<int>(std::min<std::int64_t>(100, l[0]));
        if (mask == 2) t.lengths_kv[1] = static_cast<int>(std::min<std::int64_t>(177, l[1]));
        run_short<__nv_bfloat16>(t);
        STOP_AT_FAILURE;
        run_short<__half>(t);
        STOP_AT_FAILURE;
      }
}

// Full attention of 66 heads: 132 tiles of up to 256 queries, whose keys come in two parts.
TEST(AttentionShortRuns, InPartsOnHopper) {
  Case t{.batch = 2, .heads = 33, .heads_kv = 11, .len_q = 280, .len_kv = 301, .d = 40, .dv = 64};
  t.lengths_q = {280, 200}, t.lengths_kv = {301, 257};
  run_short<__nv_bfloat16>(t);
  STOP_AT_FAILURE;
  t.lengths_q = {280, 257}, t.lengths_kv = {256, 300}, t.sinks = true;
  run_short<__half>(t);
}

TEST(AttentionShortRuns, OtherHeadDims) {
  std::int64_t const dims[][2] = {{8, 8},   {16, 32}, {40, 24},  {72, 72},  {96, 96},
                                  {128, 8}, {8, 128}, {104, 56}, {64, 120}, {48, 48}};
  for (auto const& e : dims)
    for (bool causal : {false, true}) {
      run_short<__nv_bfloat16>({.heads = 3,
                                .heads_kv = 3,
                                .len_q = 53,
                                .len_kv = 100,
                                .d = e[0],
                                .dv = e[1],
                                .causal = causal,
                                .order = Order::padded,
                                .order_out = causal ? Order::odd : Order::padded});
      STOP_AT_FAILURE;
    }
}

TEST(AttentionShortRuns, Options) {
  for (std::int64_t d : {32, 64, 128})
    for (int which = 0; which < 8; ++which) {
      Case t{.batch = 2, .heads = 4, .heads_kv = 2, .len_q = 75, .len_kv = 119, .d = d, .dv = d};
      if (which == 0) t.left = 10;
      if (which == 1) t.left = 30, t.right = 9;
      if (which == 2) t.right = 0, t.left = 0;
      if (which == 3) t.causal = true, t.left = 50;
      if (which == 4) t.sinks = true, t.causal = true;
      if (which == 5) t.scale = 1.5, t.amplitude = 8;
      if (which == 6) t.order_out = Order::odd, t.sinks = true, t.left = 40;
      if (which == 7) t.lse = false, t.right = 3, t.top_left = true;
      run_short<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
      run_short<__half>(t);
      STOP_AT_FAILURE;
    }
}

TEST(AttentionShortRuns, LengthsCutPoisonedPadding) {
  for (std::int64_t d : {32, 64, 128})
    for (int mask = 0; mask < 4; ++mask) {
      Case t{.batch = 8,
             .heads = 2,
             .heads_kv = 1,
             .len_q = 100,
             .len_kv = 128,
             .d = d,
             .dv = d,
             .causal = mask != 0,
             .top_left = mask == 2,
             .lengths_q = {0, 1, 100, 65, 100, 33, 64, 0},
             .lengths_kv = {128, 1, 127, 65, 0, 64, 81, 0}};
      if (mask == 3) t.left = 20;
      run_short<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
      t.infinite = true;
      run_short<__half>(t);
      STOP_AT_FAILURE;
      t.len_q = 24, t.lengths_q = {0, 1, 24, 16, 17, 3, 9, 0};
      run_short<__half>(t);
      STOP_AT_FAILURE;
    }
}

// Some sequences are longer than the kernel is meant for: it goes through their keys in turns.
TEST(AttentionShortRuns, PackedSequences) {
  for (std::int64_t d : {32, 64, 128})
    for (int mask = 0; mask < 4; ++mask) {
      Case t = packed_case<Case>(4, 2, d, mask);
      t.bias = 0;  // refused
      run_short<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
      t.cu_kv = {0, 128, 208, 400, 401, 529, 700, 800, 1000};
      run_short<__half>(t);
      STOP_AT_FAILURE;
      // Some as long as, and longer than, what is in memory at a time.
      Case some = t;
      some.len_q = some.len_kv = 368;
      some.cu_q = some.cu_kv = {0, 128, 138, 288, 308, 368};
      run_short<__nv_bfloat16>(some);
      STOP_AT_FAILURE;
      // Packed queries against padded keys.
      t.cu_q = {0, 400, 410, 430, 470, 490, 550, 851, 900}, t.cu_kv = {}, t.len_kv = 120;
      t.lengths_kv = {119, 50, 0, 1, 120, 64, 65, 16};
      run_short<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
      // Many that are shorter than a warp's queries.
      t.cu_q = t.cu_kv = {0};
      for (int i = 0; t.cu_q.back() < 800; ++i) {
        t.cu_q.push_back(t.cu_q.back() + i * 7 % 19);
        t.cu_kv.push_back(std::min(1000, t.cu_kv.back() + i * 5 % 23));
      }
      t.len_kv = 1000, t.lengths_kv = {};
      run_short<__half>(t);
      STOP_AT_FAILURE;
    }
}

// An excluded key's value must not reach a row as 0 times NaN.
TEST(AttentionShortRuns, NanBehindTheMask) {
  for (std::int64_t d : {32, 64, 128})
    for (int bad : {0, 1, 15, 16, 31, 32, 63, 64, 120}) {
      run_short<__nv_bfloat16>(
          {.len_q = 128, .len_kv = 128, .d = d, .dv = d, .causal = true, .bad_keys = {bad}});
      STOP_AT_FAILURE;
      run_short<__half>({.len_q = 100,
                         .len_kv = 121,
                         .d = d,
                         .dv = d,
                         .left = 30,
                         .right = 11,
                         .sinks = true,
                         .bad_keys = {bad, 70}});
      STOP_AT_FAILURE;
      run_short<__nv_bfloat16>({.batch = 2,
                                .heads = 4,
                                .heads_kv = 2,
                                .len_q = 120,
                                .len_kv = 128,
                                .d = d - 8,
                                .dv = d == 32 ? 16 : d - 16,
                                .causal = true,
                                .lengths_q = {119, 120},
                                .lengths_kv = {121, 90},
                                .bad_keys = {bad},
                                .bad_feature = bad % 16,
                                .infinite = bad % 2 == 0});
      STOP_AT_FAILURE;
    }
}

TEST(AttentionShortRuns, RandomCases) {
  Draws below(20240612);
  for (int round = 0; round < 300; ++round) {
    Case t;
    t.batch = 1 + below(5), t.heads_kv = 1 + below(3), t.heads = t.heads_kv * (1 + below(3));
    t.len_q = 1 + below(128), t.len_kv = below(129);
    t.d = 8 * (1 + below(16)), t.dv = below(2) == 0 ? t.d : 8 * (1 + below(16));
    t.causal = below(2) == 0, t.top_left = below(2) == 0;
    draw_window(t, below, 100);
    t.sinks = below(4) == 0, t.lse = below(4) != 0, t.amplitude = 1 + below(4);
    t.order = static_cast<Order>(below(3)), t.order_out = static_cast<Order>(below(4));
    draw_lengths(t, below);
    if (round % 2 == 0)
      run_short<__nv_bfloat16>(t);
    else
      run_short<__half>(t);
    STOP_AT_FAILURE;
  }
}

/// The same bits time and again, from a graph, beside other work that disturbs what runs
/// when.
template <class T, class Kernel>
void repeat(std::int64_t d, bool causal) {
  SKIP_IF_LEFT_OUT(Kernel);
  Device const device = abi::query_device(abi::current_device());
  std::int64_t const batch = 60, heads = 8, length = 120;
  Tensor4<T> q(batch, heads, length, d, Order::heads_first, 1, 2),
      k(batch, heads, length, d, Order::heads_first, 2, 1),
      v(batch, heads, length, d, Order::heads_first, 3, 1),
      out(batch, heads, length, d, Order::heads_first, 4, 1),
      noise(batch, heads, length, d, Order::heads_first, 5, 1);
  AttentionArgs g;
  q.upload(), k.upload(), v.upload(), noise.upload(), out.upload();
  g.q = q.begin(), g.k = k.begin(), g.v = v.begin(), g.out = out.begin();
  g.type = g.type_out = dtype_of<T>();
  g.batch = batch, g.heads_q = g.heads_kv = heads, g.seqlen_q = g.seqlen_kv = length;
  g.head_dim = g.head_dim_v = d, g.causal = causal;
  g.softmax_scale = 1 / std::sqrt(static_cast<double>(d));
  for (int r = 0; r < 4; ++r)
    g.q_stride[r] = g.k_stride[r] = g.v_stride[r] = g.out_stride[r] = q.stride[r];
  cudaStream_t stream, other;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ASSERT_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  auto const bytes = static_cast<std::size_t>(batch * heads * length * d) * sizeof(T);
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  ASSERT_CUDA(cudaMemsetAsync(out.begin(), 0xFF, bytes, stream));
  ASSERT_EQ(Kernel::launch(g, device, stream), cudaSuccess);
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  std::vector<unsigned char> first;
  for (int round = 0; round < 60; ++round) {
    if (round % 3 == 1) {
      ASSERT_CUDA(
          cudaMemcpyAsync(noise.begin(), k.begin(), bytes, cudaMemcpyDeviceToDevice, other));
    }
    ASSERT_CUDA(cudaGraphLaunch(executable, stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    std::vector<unsigned char> result(bytes);
    ASSERT_CUDA(cudaMemcpy(result.data(), out.begin(), result.size(), cudaMemcpyDeviceToHost));
    if (first.empty()) first = result;
    ASSERT_EQ(result == first, true) << "round " << round;
  }
  ASSERT_CUDA(cudaGraphExecDestroy(executable));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  cudaStreamDestroy(stream), cudaStreamDestroy(other);
}
TEST(AttentionShortRuns, SameBitsEveryTime) {
  for (std::int64_t d : {32, 64, 128})
    for (bool causal : {false, true}) {
      SCOPED_TRACE(d);
      repeat<__nv_bfloat16, abi::AttentionSm80ShortBf16>(d, causal);
      STOP_AT_FAILURE;
      if (on_hopper()) repeat<__half, abi::AttentionSm90ShortF16>(d, causal);
      STOP_AT_FAILURE;
    }
}

TEST(AttentionShortRuns, NothingWhereThereIsNothing) {
  for (auto [heads, len_q, len_kv] : {std::array<std::int64_t, 3>{2, 0, 5}, {2, 5, 0}}) {
    run_short<__nv_bfloat16>({.heads = heads, .heads_kv = 1, .len_q = len_q, .len_kv = len_kv});
    STOP_AT_FAILURE;
  }
}

}  // namespace
