// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// decode/sm80_mma_* called directly over memory of cudaMalloc. Compiled as CUDA. The suite
// DecodeSm80Refuses needs no GPU; DecodeSm80Runs fails without a card of compute capability 8.0.

#include "attention_cases.hpp"
#include "direct_decode.hpp"

namespace {

/// A call that is taken, changed by `change`: why it is refused.
template <class Change>
std::string refusal(Change change, int major = 9, int shared = 232448) {
  [[maybe_unused]] alignas(16) static float somewhere[4];
  DecodeArgs g;
  g.q = g.k = g.v = g.out = somewhere;
  g.type = g.type_out = DType::bfloat16;
  g.batch = 2, g.heads_q = 8, g.heads_kv = 2, g.seqlen_q = 1, g.seqlen_kv = 512;
  g.head_dim = g.head_dim_v = 64;
  for (auto* s : {&g.q_stride, &g.k_stride, &g.v_stride, &g.out_stride})
    (*s)[0] = 65536, (*s)[1] = 32768, (*s)[2] = 64, (*s)[3] = 1;
  change(g);
  Device const d{0, major, 0, abi::architecture_of(major, 0), 132, shared};
  abi::Verdict const verdict = abi::DecodeSm80MmaBf16::accepts(g, d);
  EXPECT_EQ(verdict.ok, verdict.reason[0] == '\0');
  return verdict.reason;
}

TEST(DecodeSm80Refuses, WhatItCannotDo) {
  auto const same = [](DecodeArgs&) {};
  EXPECT_EQ(refusal(same), "");
  EXPECT_EQ(refusal(same, 8, 166912), "");
  EXPECT_EQ(refusal(same, 7), "it needs compute capability 8.0");
  EXPECT_EQ(refusal(same, 0), "no CUDA device");
  EXPECT_EQ(refusal(same, 8, 65536), "a block needs more shared memory than the device has");
  for (int heads : {8, 40})  // tiles of 16 rows and of 64
    for (auto [shared, reason] :
         {std::pair{101376, ""}, {65536, "a block needs more shared memory than the device has"}})
      EXPECT_EQ(refusal([&](DecodeArgs& g) { g.head_dim = 256, g.heads_q = heads; }, 8, shared),
                reason);
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.type = DType::float16; }),
            "it takes other element types");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.type_out = DType::float32; }),
            "it takes other element types");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.descale_q = static_cast<float const*>(g.q); }),
            "it has no factors of float8 tensors");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.bias = g.q, g.type_bias = DType::float64; }),
            "it does not read the bias's element type");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.head_dim = 264; }), "head_dim is above 256");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.head_dim_v = 0; }), "head_dim is 0");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.head_dim = 60; }), "head_dim is not a multiple of 8");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.batch = -1; }), "an extent is negative");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.seqlen_kv = std::int64_t{1} << 29; }),
            "an extent is too large");
  EXPECT_EQ(refusal([](DecodeArgs& g) {
              g.lengths_q = static_cast<int const*>(g.q), g.lengths_q_stride[1] = 1;
            }),
            "lengths of q differ between heads");
}

TEST(DecodeSm80Refuses, MemoryItCannotRead) {
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.q_stride[1] = 65; }),
            "a stride of q is not a multiple of 16 bytes");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.q_stride[2] = 65; }), "");  // there is one query
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.k_stride[3] = 2; }),
            "k has no unit stride along head_dim");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.v = static_cast<char const*>(g.v) + 2; }),
            "v's address is not a multiple of 16 bytes");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.k = nullptr; }), "q, k, v or out is a null pointer");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.out_stride[2] = 65, g.k_stride[0] = 0; }), "");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.seqlen_q = 0, g.head_dim = 0; }), "");
}

TEST(DecodeSm80Refuses, WorkspaceFollowsFromExtentsAndSplits) {
  Device const d{0, 9, 0, abi::Architecture::hopper, 132, 232448};
  DecodeArgs g;
  g.type = g.type_out = DType::bfloat16;
  g.batch = 1, g.heads_q = 32, g.heads_kv = 8, g.seqlen_q = 1, g.seqlen_kv = 32768;
  g.head_dim = g.head_dim_v = 128;
  auto const bytes = [&] { return abi::DecodeSm80MmaBf16::workspace_bytes(g, d); };
  EXPECT_GT(bytes(), 0u);
  g.splits = 1;
  EXPECT_EQ(bytes(), 0u);
  g.splits = 3;
  EXPECT_EQ(bytes(), 3u * 32 * 129 * 4 + 32);
  g.window_left = 100, g.lengths_kv = reinterpret_cast<int const*>(&g);
  EXPECT_EQ(bytes(), 3u * 32 * 129 * 4 + 32);
  g.batch = 0;
  EXPECT_EQ(bytes(), 0u);
  EXPECT_NE(abi::DecodeSm80MmaF16::launch(g, d, nullptr), cudaSuccess);  // another type
}

template <class T>
void lengths_of_cache(std::int64_t d, std::int64_t dv) {
  for (std::int64_t heads : {2, 8, 32, 40})
    for (std::int64_t length : {1, 7, 16, 63, 64, 65, 127, 128, 129, 300, 1021}) {
      run_decode<T>({.heads = heads, .heads_kv = 2, .len_kv = length, .d = d, .dv = dv});
      STOP_AT_FAILURE;
    }
}
TEST(DecodeSm80Runs, LengthsHeadDim128) { lengths_of_cache<__nv_bfloat16>(128, 128); }
TEST(DecodeSm80Runs, LengthsHeadDim64) { lengths_of_cache<__nv_bfloat16>(64, 64); }
TEST(DecodeSm80Runs, LengthsHeadDim256) { lengths_of_cache<__nv_bfloat16>(256, 256); }
TEST(DecodeSm80Runs, LengthsFloat16) {
  for (std::int64_t d : {64, 128, 256}) {
    lengths_of_cache<__half>(d, d);
    STOP_AT_FAILURE;
  }
}

template <class Kernel>
using With99KiB = WithLessShared<Kernel, 101376>;

// The shape of head_dim 256 for sm_86 and sm_89: every length of its shorter rings, and the bits of
// the other shape.
TEST(DecodeSm80Runs, WithLessSharedMemory) {
  using T = __nv_bfloat16;
  for (std::int64_t heads : {4, 8, 40})
    for (std::int64_t length : {0, 1, 16, 33, 64, 65, 127, 129, 300, 1021}) {
      DecodeCase t{.heads = heads, .heads_kv = 2, .len_kv = length, .d = 256, .dv = 256};
      run_decode<T, With99KiB<DecodeFor<T>>>(t);
      STOP_AT_FAILURE;
      t.len_q = 3, t.causal = true, t.page_size = 17, t.dv = 136;
      t.lengths_kv = {static_cast<int>(length), static_cast<int>(length / 3)};
      run_decode<__half, With99KiB<DecodeFor<__half>>>(t);
      STOP_AT_FAILURE;
    }
  Device const device = abi::query_device(abi::current_device());
  for (std::int64_t heads : {8, 40}) {
    DecodeProblem<T> x({.heads = heads, .heads_kv = 2, .len_kv = 777, .d = 256, .dv = 256});
    std::vector<unsigned char> more, less, sums, sums_of_less;
    launch_decode(x, 3, device, more, sums);
    launch_decode<T, With99KiB<DecodeFor<T>>, T>(x, 3, device, less, sums_of_less);
    STOP_AT_FAILURE;
    EXPECT_EQ(more == less && sums == sums_of_less, true) << "bits differ between the shapes";
  }
}

TEST(DecodeSm80Runs, OtherHeadDims) {
  std::int64_t const dims[][2] = {{8, 8},     {32, 32},   {40, 24},  {72, 72},
                                  {96, 96},   {128, 64},  {64, 128}, {192, 128},
                                  {192, 192}, {136, 256}, {8, 256},  {256, 8}};
  for (auto const& e : dims)
    for (std::int64_t queries : {1, 5})
      for (Order order : {Order::padded, Order::positions_first}) {
        run_decode<__nv_bfloat16>({.heads = 12,
                                   .heads_kv = 2,
                                   .len_q = queries,
                                   .len_kv = 203,
                                   .d = e[0],
                                   .dv = e[1],
                                   .causal = true,
                                   .order = order,
                                   .order_out = Order::padded});
        STOP_AT_FAILURE;
      }
}

TEST(DecodeSm80Runs, BlocksOfQueries) {
  for (std::int64_t d : {64, 128, 256})
    for (std::int64_t queries : {2, 3, 4, 5, 8, 16, 17, 40})
      for (int mask = 0; mask < 3; ++mask) {
        run_decode<__nv_bfloat16>({.heads = 8,
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

TEST(DecodeSm80Runs, Pages) {
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
        run_decode<__nv_bfloat16>(t);
        STOP_AT_FAILURE;
        if (d == 128) run_decode<__half>(t);
        STOP_AT_FAILURE;
      }
}

template <class T>
void options() {
  for (std::int64_t d : {64, 128, 256})
    for (std::int64_t queries : {1, 3, 9})
      for (int which = 0; which < 16; ++which) {
        DecodeCase t{.heads = 8, .heads_kv = 2, .len_q = queries, .len_kv = 413, .d = d, .dv = d};
        set_option(t, which);
        if (which == 1) t.top_left = true;
        if (which == 14) t.mask = true, t.sinks = true, t.page_size = 13;
        if (which == 15) t.mask = true, t.causal = true, t.left = 30, t.bad_keys = {412};
        if (which == 14) t.len_kv = 416;
        run_decode<T>(t);
        STOP_AT_FAILURE;
      }
}
TEST(DecodeSm80Runs, Options) { options<__nv_bfloat16>(); }
TEST(DecodeSm80Runs, OptionsFloat16) { options<__half>(); }

TEST(DecodeSm80Runs, LengthsOnTheDevice) {
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
        run_decode<__nv_bfloat16>(t);
        STOP_AT_FAILURE;
      }
}

TEST(DecodeSm80Runs, PackedSequences) {
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
      run_decode<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
      // Packed queries against padded and paged keys.
      t.cu_q = {0, 2, 2, 9}, t.len_q = 9, t.cu_kv = {}, t.len_kv = 640;
      t.lengths_kv = {640, 77, 301};
      run_decode<__half>(t);
      STOP_AT_FAILURE;
      t.page_size = 32;
      run_decode<__nv_bfloat16>(t);
      STOP_AT_FAILURE;
    }
}

// An excluded key's value must not reach a row as 0 times NaN, wherever steps and parts end.
TEST(DecodeSm80Runs, NanBehindTheMask) {
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
        run_decode<__nv_bfloat16>(t);
        STOP_AT_FAILURE;
        t.page_size = 20, t.softcap = 3, t.bad_feature = bad % d, t.dv = d - 8;
        if (t.bad_feature >= t.dv) t.bad_feature = 5;
        run_decode<__half>(t);
        STOP_AT_FAILURE;
      }
}

TEST(DecodeSm80Runs, LongCache) {
  run_decode<__nv_bfloat16>({.batch = 1,
                             .heads = 8,
                             .heads_kv = 1,
                             .len_kv = 40013,
                             .splits = {0, 1, 33, 512},
                             .causal = true});
  STOP_AT_FAILURE;
  run_decode<__half>({.batch = 1, .heads = 4, .heads_kv = 2, .len_kv = 20011, .page_size = 16});
}

TEST(DecodeSm80Runs, RandomCases) {
  Draws below(20240611);
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
    if (round % 2 == 0)
      run_decode<__nv_bfloat16>(t);
    else
      run_decode<__half>(t);
    STOP_AT_FAILURE;
  }
}

// With splits given, a sequence's bits do not depend on what is beside it or on the cache's size.
TEST(DecodeSm80Runs, BatchInvariantWithSplitsGiven) {
  Device const device = abi::query_device(abi::current_device());
  for (std::int64_t heads : {8, 64}) {
    DecodeCase t{.batch = 5, .heads = heads, .heads_kv = 2, .len_q = 2, .len_kv = 1500};
    t.causal = true, t.lengths_kv = {1500, 300, 1, 0, 1111};
    DecodeProblem<__nv_bfloat16> together(t);
    std::vector<unsigned char> all, sums;
    launch_decode(together, 6, device, all, sums);
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
      DecodeWorkspace const workspace(abi::DecodeSm80MmaBf16::workspace_bytes(g, smaller));
      g.workspace = workspace.begin();
      ASSERT_EQ(abi::DecodeSm80MmaBf16::launch(g, smaller, nullptr), cudaSuccess);
      ASSERT_CUDA(cudaDeviceSynchronize());
      auto const bytes = static_cast<std::size_t>(n) * 2;
      auto const at = (8 + static_cast<std::size_t>(b * n)) * 2;
      ASSERT_CUDA(cudaMemcpy(one.data(), together.out.device + at, bytes, cudaMemcpyDeviceToHost));
      EXPECT_EQ(std::memcmp(one.data(), all.data() + at, bytes), 0) << "sequence " << b;
    }
  }
}

// A graph is captured once and replayed for other lengths, each time beside other work.
TEST(DecodeSm80Runs, GraphReplaysWithOtherLengths) {
  using T = __nv_bfloat16;
  Device const device = abi::query_device(abi::current_device());
  DecodeCase t{.batch = 4, .heads = 8, .heads_kv = 2, .len_kv = 2048, .page_size = 16};
  t.lengths_kv = {2048, 2048, 2048, 2048};
  DecodeProblem<T> x(t);
  DecodeArgs g = x.arguments();
  DecodeWorkspace const workspace(abi::DecodeSm80MmaBf16::workspace_bytes(g, device));
  g.workspace = workspace.begin();
  x.out.upload(), x.lse.upload();
  g.out = x.out.begin(), g.lse = x.lse.begin();
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  ASSERT_EQ(abi::DecodeSm80MmaBf16::launch(g, device, stream), cudaSuccess);
  ASSERT_EQ(abi::DecodeSm80MmaBf16::launch(g, device, stream), cudaSuccess);
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_CUDA(cudaGraphInstantiate(&replay, graph, 0));
  for (int round = 0; round < 200; ++round) {
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
    ASSERT_EQ(abi::DecodeSm80MmaBf16::launch(g, device, nullptr), cudaSuccess);
    ASSERT_CUDA(cudaMemcpy(direct.data(), x.out.device, direct.size(), cudaMemcpyDeviceToHost));
    ASSERT_EQ(replayed == direct, true) << "round " << round;
  }
  cudaGraphExecDestroy(replay), cudaGraphDestroy(graph), cudaStreamDestroy(stream);
}

// A call begins to fetch keys and values while the one ahead of it still writes some of them.
TEST(DecodeSm80Runs, SeesValuesThatTheLaunchAheadWrote) {
  using T = __nv_bfloat16;
  using Kernel = abi::DecodeSm80MmaBf16;
  Device const device = abi::query_device(abi::current_device());
  DecodeCase t{.heads = 8, .heads_kv = 2, .len_kv = 1024};
  DecodeProblem<T> one(t);
  t.amplitude = 0.25;
  DecodeProblem<T> other(t), x({.heads = 16, .heads_kv = 8, .len_kv = 1024});
  x.out.upload();
  for (std::int64_t splits : {1, 4}) {
    // Two calls whose rows of out become the first values of the third.
    DecodeArgs calls[3] = {one.arguments(), other.arguments(), x.arguments()};
    std::vector<std::unique_ptr<DecodeWorkspace>> workspaces;
    for (DecodeArgs& g : calls) {
      g.splits = splits, g.lse = nullptr, g.out = x.v.begin();
      for (int r = 0; r < 4; ++r) g.out_stride[r] = x.v.stride[r];
      workspaces.push_back(std::make_unique<DecodeWorkspace>(Kernel::workspace_bytes(g, device)));
      g.workspace = workspaces.back()->begin();
    }
    calls[2].out = x.out.begin();
    for (int r = 0; r < 4; ++r) calls[2].out_stride[r] = x.out.stride[r];
    std::vector<unsigned char> expected[2];
    for (int round = 0; round < 200; ++round) {
      x.out.upload();
      ASSERT_CUDA(cudaDeviceSynchronize());
      ASSERT_EQ(Kernel::launch(calls[round % 2], device, nullptr), cudaSuccess);
      if (round < 2) {
        ASSERT_CUDA(cudaDeviceSynchronize());
      }
      ASSERT_EQ(Kernel::launch(calls[2], device, nullptr), cudaSuccess);
      ASSERT_CUDA(cudaDeviceSynchronize());
      std::vector<unsigned char> result(x.out.host.size());
      ASSERT_CUDA(cudaMemcpy(result.data(), x.out.device, result.size(), cudaMemcpyDeviceToHost));
      if (round < 2) expected[round] = result;
      ASSERT_EQ(result == expected[round % 2], true) << "round " << round;
    }
    EXPECT_EQ(expected[0] == expected[1], false) << "the third call does not follow the others";
  }
}

TEST(DecodeSm80Runs, NothingWhereThereIsNothing) {
  for (auto [batch, len_q, len_kv] :
       {std::array<std::int64_t, 3>{2, 0, 5}, {2, 5, 0}, {0, 1, 5}, {2, 1, 0}}) {
    run_decode<__nv_bfloat16>({.batch = batch, .len_q = len_q, .len_kv = len_kv});
    STOP_AT_FAILURE;
  }
}

class WorstDecodeRatio : public testing::Environment {
  void TearDown() override {
    if (worst_decode_ratio > 0)
      std::printf("decode: largest error / bound %.3f\n", worst_decode_ratio);
  }
};
[[maybe_unused]] auto* const worst_decode_reporter =
    testing::AddGlobalTestEnvironment(new WorstDecodeRatio);

}  // namespace
