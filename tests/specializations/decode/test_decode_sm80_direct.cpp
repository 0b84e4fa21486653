// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// decode/sm80_mma_* called directly over memory of cudaMalloc. The suite
// DecodeSm80Refuses needs no GPU; DecodeSm80Runs fails without a card of compute capability 8.0.

#include "decode_cases.hpp"

namespace {

template <class Change>
std::string refusal(Change change, int major = 9, int shared = 232448) {
  return decode_refusal<abi::DecodeSm80MmaBf16>(DType::bfloat16, DType::bfloat16, change, major,
                                                shared);
}

TEST(DecodeSm80Refuses, WhatItCannotDo) {
  SKIP_IF_LEFT_OUT(abi::DecodeSm80MmaBf16);
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
  SKIP_IF_LEFT_OUT(abi::DecodeSm80MmaBf16);
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
  SKIP_IF_LEFT_OUT(abi::DecodeSm80MmaBf16, abi::DecodeSm80MmaF16);
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
  EXPECT_FALSE(abi::DecodeSm80MmaF16::accepts(g, d).ok);  // another type
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

constexpr auto run_bfloat16 = [](DecodeCase const& t, int = 0) { run_decode<__nv_bfloat16>(t); };
constexpr auto run_float16 = [](DecodeCase const& t) { run_decode<__half>(t); };

TEST(DecodeSm80Runs, BlocksOfQueries) {
  for (std::int64_t d : {64, 128, 256})
    each_block_of_queries(d, {2, 3, 4, 5, 8, 16, 17, 40}, run_bfloat16);
}

TEST(DecodeSm80Runs, Pages) {
  for (std::int64_t d : {64, 128, 256})
    each_page(d, {1, 2, 3, 16, 17, 64, 100, 128, 256}, [](DecodeCase const& t) {
      run_bfloat16(t);
      STOP_AT_FAILURE;
      if (t.d == 128) run_float16(t);
    });
}

TEST(DecodeSm80Runs, Options) {
  for (std::int64_t d : {64, 128, 256}) each_decode_option(d, {1, 3, 9}, run_bfloat16);
}
TEST(DecodeSm80Runs, OptionsFloat16) {
  for (std::int64_t d : {64, 128, 256}) each_decode_option(d, {1, 3, 9}, run_float16);
}

TEST(DecodeSm80Runs, LengthsOnTheDevice) {
  for (std::int64_t d : {64, 128, 256}) each_length_on_the_device(d, {4, 16, 64}, run_bfloat16);
}

TEST(DecodeSm80Runs, PackedSequences) {
  for (std::int64_t d : {64, 128, 256})
    each_packed_sequence(
        d, [](DecodeCase const& t, int step) { step == 1 ? run_float16(t) : run_bfloat16(t); });
}

// An excluded key's value must not reach a row as 0 times NaN.
TEST(DecodeSm80Runs, NanBehindTheMask) {
  for (std::int64_t d : {64, 128, 256})
    each_hidden_value(
        d, [](DecodeCase const& t, int step) { step == 1 ? run_float16(t) : run_bfloat16(t); });
}

TEST(DecodeSm80Runs, LongCache) {
  each_long_cache(
      8, [](DecodeCase const& t, int step) { step == 1 ? run_float16(t) : run_bfloat16(t); });
}

TEST(DecodeSm80Runs, RandomCases) {
  Draws below(20240611);
  for (int round = 0; round < 150; ++round) {
    DecodeCase const t = draw_decode_case(below);
    round % 2 == 0 ? run_bfloat16(t) : run_float16(t);
    STOP_AT_FAILURE;
  }
}

TEST(DecodeSm80Runs, BatchInvariantWithSplitsGiven) {
  expect_batch_invariance<__nv_bfloat16, abi::DecodeSm80MmaBf16>();
}

TEST(DecodeSm80Runs, GraphReplaysWithOtherLengths) {
  expect_replays<__nv_bfloat16, abi::DecodeSm80MmaBf16>(200);
}

// A call begins to fetch keys and values while the one ahead of it still writes some of them.
TEST(DecodeSm80Runs, SeesValuesThatTheLaunchAheadWrote) {
  SKIP_IF_LEFT_OUT(abi::DecodeSm80MmaBf16);
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

TEST(DecodeSm80Runs, NothingWhereThereIsNothing) { each_empty_case<DecodeCase>(run_bfloat16); }

class WorstDecodeRatio : public testing::Environment {
  void TearDown() override {
    if (worst_decode_ratio > 0)
      std::printf("decode: largest error / bound %.3f\n", worst_decode_ratio);
  }
};
[[maybe_unused]] auto* const worst_decode_reporter =
    testing::AddGlobalTestEnvironment(new WorstDecodeRatio);

}  // namespace
