// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// decode/sm80_simt_* called directly over memory of cudaMalloc. Compiled as CUDA. The suite
// DecodeSimtRefuses needs no GPU; DecodeSimt/*Runs fail without a card of compute capability 8.0.
#include <random>

#include "attention_cases.hpp"
#include "direct_decode.hpp"

namespace {

template <class T>
struct SimtDecodeOf;
template <>
struct SimtDecodeOf<float> : abi::DecodeSm80SimtF32 {};
template <>
struct SimtDecodeOf<double> : abi::DecodeSm80SimtF64 {};
template <>
struct SimtDecodeOf<__half> : abi::DecodeSm80SimtF16 {};
template <>
struct SimtDecodeOf<__nv_bfloat16> : abi::DecodeSm80SimtBf16 {};

template <class T>
void run_simt(DecodeCase t) {
  t.unrounded = true;
  run_decode<T, SimtDecodeOf<T>>(t);
}

/// A call that is taken, changed by `change`: why it is refused.
template <class Kernel = abi::DecodeSm80SimtF32, class Change>
std::string refusal(Change change, int major = 9) {
  [[maybe_unused]] alignas(16) static float somewhere[4];
  DecodeArgs g;
  g.q = g.k = g.v = g.out = somewhere;
  g.type = g.type_out = DType::float32;
  g.batch = 2, g.heads_q = 8, g.heads_kv = 2, g.seqlen_q = 1, g.seqlen_kv = 512;
  g.head_dim = g.head_dim_v = 64;
  for (auto* s : {&g.q_stride, &g.k_stride, &g.v_stride, &g.out_stride})
    (*s)[0] = 65536, (*s)[1] = 32768, (*s)[2] = 64, (*s)[3] = 1;
  change(g);
  Device const d{0, major, 0, abi::architecture_of(major, 0), 132, 101376};
  abi::Verdict const verdict = Kernel::accepts(g, d);
  EXPECT_EQ(verdict.ok, verdict.reason[0] == '\0');
  return verdict.reason;
}

TEST(DecodeSimtRefuses, WhatItCannotDo) {
  auto const same = [](DecodeArgs&) {};
  EXPECT_EQ(refusal(same), "");
  EXPECT_EQ(refusal(same, 8), "");
  EXPECT_EQ(refusal(same, 7), "it needs compute capability 8.0");
  EXPECT_EQ(refusal(same, 0), "no CUDA device");
  EXPECT_EQ(refusal<abi::DecodeSm80SimtF64>(same), "it takes other element types");
  EXPECT_EQ(refusal<abi::DecodeSm80SimtF16>(same), "it takes other element types");
  EXPECT_EQ(refusal<abi::DecodeSm80SimtBf16>(same), "it takes other element types");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.type_out = DType::float64; }),
            "it takes other element types");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.descale_v = static_cast<float const*>(g.q); }),
            "it has no factors of float8 tensors");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.bias = g.q, g.type_bias = DType::int8; }),
            "it does not read the bias's element type");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.bias = g.q, g.type_bias = DType::float64; }), "");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.head_dim = 513; }), "head_dim is above 512");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.head_dim_v = 0; }), "head_dim is 0");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.batch = -1; }), "an extent is negative");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.page_table = static_cast<int const*>(g.q); }),
            "page_size is 0");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.seqlen_kv = std::int64_t{1} << 29; }),
            "an extent is too large");
  EXPECT_EQ(
      refusal([](DecodeArgs& g) { g.batch = g.heads_q = g.heads_kv = std::int64_t{1} << 15; }),
      "there are too many tiles for one launch");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.heads_kv = 0; }), "k and v have no heads");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.v = nullptr; }), "q, k, v or out is a null pointer");
  EXPECT_EQ(refusal([](DecodeArgs& g) {
              g.lengths_q = static_cast<int const*>(g.q), g.lengths_q_stride[1] = 1;
            }),
            "lengths of q differ between heads");
}

TEST(DecodeSimtRefuses, NothingForItsLayout) {
  EXPECT_EQ(refusal([](DecodeArgs& g) {
              g.head_dim = 61, g.head_dim_v = 511, g.k_stride[3] = 7, g.v_stride[1] = 3;
              g.q = static_cast<char const*>(g.q) + 4;
            }),
            "");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.seqlen_kv = 0, g.k = g.v = nullptr; }), "");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.seqlen_q = 0, g.head_dim = 0; }), "");
}

TEST(DecodeSimtRefuses, WorkspaceFollowsFromExtentsAndSplits) {
  Device const d{0, 9, 0, abi::Architecture::hopper, 132, 232448};
  DecodeArgs g;
  g.batch = 1, g.heads_q = 32, g.heads_kv = 8, g.seqlen_q = 1, g.seqlen_kv = 32768;
  g.head_dim = 128, g.head_dim_v = 126;
  auto const bytes = [&] { return abi::DecodeSm80SimtF32::workspace_bytes(g, d); };
  EXPECT_GT(bytes(), 0u);
  g.splits = 1;
  EXPECT_EQ(bytes(), 0u);
  g.splits = 3;
  EXPECT_EQ(bytes(), 3u * 32 * 129 * 4 + 32);
  EXPECT_EQ(abi::DecodeSm80SimtF64::workspace_bytes(g, d), 3u * 32 * 129 * 8 + 32);
  EXPECT_EQ(abi::DecodeSm80SimtBf16::workspace_bytes(g, d), bytes());
  g.batch = 0;
  EXPECT_EQ(bytes(), 0u);
  EXPECT_NE(abi::DecodeSm80SimtF16::launch(g, d, nullptr), cudaSuccess);  // another type
}

template <class T>
class DecodeSimt : public testing::Test {};
struct SimtTypeName {
  template <class T>
  static std::string GetName(int) {
    return std::is_same_v<T, float>    ? "float32Runs"
           : std::is_same_v<T, double> ? "float64Runs"
           : std::is_same_v<T, __half> ? "float16Runs"
                                       : "bfloat16Runs";
  }
};
using SimtTypes = testing::Types<float, double, __half, __nv_bfloat16>;
TYPED_TEST_SUITE(DecodeSimt, SimtTypes, SimtTypeName);

// Groups of 1 to 20 rows: one tile that is not full, full ones of either size, some.
TYPED_TEST(DecodeSimt, Lengths) {
  for (std::int64_t d : {64, 128, 256, 512})
    for (std::int64_t heads : {2, 6, 8, 16, 40})
      for (std::int64_t length : {1, 7, 16, 63, 128, 129, 300, 1021}) {
        if (length > 300 && heads > 8) continue;
        run_simt<TypeParam>({.heads = heads, .heads_kv = 2, .len_kv = length, .d = d, .dv = d});
        STOP_AT_FAILURE;
      }
}

TYPED_TEST(DecodeSimt, HeadDims) {
  std::int64_t const dims[][2] = {
      {1, 1},   {1, 3},     {3, 2},     {20, 12},   {33, 31},  {40, 24},   {64, 63},   {65, 64},
      {72, 72}, {100, 99},  {100, 100}, {128, 64},  {64, 128}, {130, 126}, {192, 128}, {255, 1},
      {8, 256}, {257, 300}, {300, 64},  {511, 512}, {512, 4},  {128, 510}};
  for (auto const& e : dims)
    for (std::int64_t queries : {1, 5})
      for (Order order : {Order::heads_first, Order::positions_first, Order::padded, Order::odd}) {
        run_simt<TypeParam>({.heads = 6,
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

TYPED_TEST(DecodeSimt, BlocksOfQueries) {
  for (std::int64_t d : {64, 128, 256, 512})
    for (std::int64_t queries : {2, 3, 4, 5, 8, 17})
      for (int mask = 0; mask < 3; ++mask) {
        run_simt<TypeParam>({.heads = 6,
                             .heads_kv = 2,
                             .len_q = queries,
                             .len_kv = 333,
                             .d = d,
                             .dv = d,
                             .causal = mask != 0,
                             .top_left = mask == 2,
                             .order = mask == 1 ? Order::odd : Order::padded});
        STOP_AT_FAILURE;
      }
}

TYPED_TEST(DecodeSimt, Pages) {
  for (std::int64_t d : {64, 100, 256, 512})
    for (std::int64_t page : {1, 3, 16, 17, 100, 256})
      for (std::int64_t queries : {1, 7}) {
        DecodeCase t{.batch = 4,
                     .heads = 4,
                     .heads_kv = 2,
                     .len_q = queries,
                     .len_kv = 700,
                     .d = d,
                     .dv = d,
                     .page_size = page,
                     .causal = true,
                     .lengths_kv = {0, 1, 699, 384}};
        t.order = page % 2 == 0 ? Order::positions_first : page == 17 ? Order::odd : Order::padded;
        run_simt<TypeParam>(t);
        STOP_AT_FAILURE;
      }
}

TYPED_TEST(DecodeSimt, Options) {
  for (std::int64_t d : {64, 128, 256, 512})
    for (std::int64_t queries : {1, 3})
      for (int which = 0; which < 16; ++which) {
        DecodeCase t{.heads = 6, .heads_kv = 2, .len_q = queries, .len_kv = 413, .d = d, .dv = d};
        set_option(t, which);
        if (which == 1) t.top_left = true;
        if (which == 14) t.mask = true, t.sinks = true, t.page_size = 13, t.len_kv = 416;
        if (which == 15) t.mask = true, t.causal = true, t.left = 30, t.bad_keys = {412};
        if (queries == 3 && d == 128) t.order = Order::odd;
        run_simt<TypeParam>(t);
        STOP_AT_FAILURE;
      }
}

TYPED_TEST(DecodeSimt, LengthsOnTheDevice) {
  for (std::int64_t d : {64, 128, 256, 512})
    for (std::int64_t heads : {2, 8})
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
        run_simt<TypeParam>(t);
        STOP_AT_FAILURE;
      }
}

TYPED_TEST(DecodeSimt, PackedSequences) {
  for (std::int64_t d : {64, 99, 256, 512})
    for (int mask = 0; mask < 3; ++mask) {
      DecodeCase t{.heads = 4,
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
      if (mask == 2) t.left = 70, t.sinks = true, t.order = Order::odd;
      run_simt<TypeParam>(t);
      STOP_AT_FAILURE;
      // Packed queries against padded and paged keys.
      t.cu_q = {0, 2, 2, 9}, t.len_q = 9, t.cu_kv = {}, t.len_kv = 640;
      t.lengths_kv = {640, 77, 301};
      run_simt<TypeParam>(t);
      STOP_AT_FAILURE;
      t.page_size = 32;
      run_simt<TypeParam>(t);
      STOP_AT_FAILURE;
    }
}

// What an excluded key's value holds must not reach a row, wherever steps and parts end.
TYPED_TEST(DecodeSimt, NanBehindTheMask) {
  for (std::int64_t d : {64, 128, 256, 512})
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
        if (bad % 2 == 1) t.order = Order::odd;
        run_simt<TypeParam>(t);
        STOP_AT_FAILURE;
        t.page_size = 20, t.softcap = 3, t.bad_feature = bad % d, t.dv = d - 8, t.infinite = true;
        if (t.bad_feature >= t.dv) t.bad_feature = 5;
        run_simt<TypeParam>(t);
        STOP_AT_FAILURE;
      }
}

TYPED_TEST(DecodeSimt, LongCache) {
  run_simt<TypeParam>({.batch = 1,
                       .heads = 4,
                       .heads_kv = 1,
                       .len_kv = 40013,
                       .splits = {0, 1, 33, 512},
                       .causal = true});
  STOP_AT_FAILURE;
  run_simt<TypeParam>({.batch = 1, .heads = 4, .heads_kv = 2, .len_kv = 20011, .page_size = 16});
}

TYPED_TEST(DecodeSimt, RandomCases) {
  std::mt19937 random(20240612);
  auto const below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 80; ++round) {
    DecodeCase t;
    t.batch = 1 + below(4), t.heads_kv = 1 + below(3), t.heads = t.heads_kv * (1 + below(12));
    t.len_q = 1 + below(below(3) == 0 ? 20 : 4), t.len_kv = below(900);
    t.d = 1 + below(below(3) == 0 ? 512 : 160), t.dv = below(2) == 0 ? t.d : 1 + below(512);
    t.causal = below(2) == 0, t.top_left = below(3) == 0;
    draw_window(t, below, 300);
    draw_terms(t, below);
    t.order = static_cast<Order>(below(4)), t.order_out = static_cast<Order>(below(4));
    t.splits = {0, 1 + below(20)};
    if (below(2) == 0 && t.bias == 0)
      t.page_size = 1 + below(200);
    else
      t.mask = below(4) == 0;
    draw_lengths(t, below);
    run_simt<TypeParam>(t);
    STOP_AT_FAILURE;
  }
}

// With splits given, a sequence's bits do not depend on what is beside it or on the cache's size.
TYPED_TEST(DecodeSimt, BatchInvariantWithSplitsGiven) {
  using T = TypeParam;
  using Kernel = SimtDecodeOf<T>;
  Device const device = abi::query_device(abi::current_device());
  for (std::int64_t heads : {8, 64}) {
    DecodeCase t{.batch = 5, .heads = heads, .heads_kv = 2, .len_q = 2, .len_kv = 1500};
    t.causal = true, t.lengths_kv = {1500, 300, 1, 0, 1111};
    DecodeProblem<T> together(t);
    std::vector<unsigned char> all, sums;
    launch_decode<T, Kernel>(together, 6, device, all, sums);
    STOP_AT_FAILURE;
    Device smaller = device;
    smaller.sm_count = 11;
    for (std::int64_t b = 0; b < t.batch; ++b) {
      DecodeArgs g = together.arguments();
      std::vector<unsigned char> one(all.size(), 0xFF);
      auto const n = together.out.stride[0];
      together.out.upload();
      g.batch = 1, g.splits = 6, g.seqlen_kv = t.lengths_kv[static_cast<std::size_t>(b)] + 700;
      g.q = together.q.begin() + b * g.q_stride[0];
      g.k = together.k.begin() + b * g.k_stride[0], g.v = together.v.begin() + b * g.v_stride[0];
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

// A graph is captured once and replayed for other lengths, each time behind another launch.
TYPED_TEST(DecodeSimt, GraphReplaysWithOtherLengths) {
  using T = TypeParam;
  using Kernel = SimtDecodeOf<T>;
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
  for (int round = 0; round < 100; ++round) {
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

// The number of parts follows the device, and the grid its order.
TYPED_TEST(DecodeSimt, SmallerDevices) {
  DecodeProblem<TypeParam> x({.batch = 3, .heads = 16, .heads_kv = 2, .len_kv = 3000});
  Device device = abi::query_device(abi::current_device());
  auto const expected = expect_decode(x);
  for (int count : {1, 20, 77, 300}) {
    device.sm_count = count;
    std::vector<unsigned char> result, sums;
    launch_decode<TypeParam, SimtDecodeOf<TypeParam>>(x, 0, device, result, sums);
    STOP_AT_FAILURE;
    for (auto const& e : expected) {
      if (e.what[0] == 'l') continue;
      TypeParam y;
      std::memcpy(&y, &result[e.at], sizeof y);
      ASSERT_LE(std::abs(wide(y) - e.value), e.bound) << "multiprocessors " << count;
    }
  }
}

TYPED_TEST(DecodeSimt, NothingWhereThereIsNothing) {
  each_empty_case<DecodeCase>([](DecodeCase const& t) { run_simt<TypeParam>(t); });
}

}  // namespace
