// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// decode/sm80_simt_* called directly over memory of cudaMalloc. The suite
// DecodeSimtRefuses needs no GPU; DecodeSimt/*Runs fail without a card of compute capability 8.0.
#include "decode_cases.hpp"

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

template <class Kernel = abi::DecodeSm80SimtF32, class Change>
std::string refusal(Change change, int major = 9) {
  return decode_refusal<Kernel>(DType::float32, DType::float32, change, major, 101376);
}

TEST(DecodeSimtRefuses, WhatItCannotDo) {
  SKIP_IF_LEFT_OUT(abi::DecodeSm80SimtF32, abi::DecodeSm80SimtF64, abi::DecodeSm80SimtF16,
                   abi::DecodeSm80SimtBf16);
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
  SKIP_IF_LEFT_OUT(abi::DecodeSm80SimtF32);
  EXPECT_EQ(refusal([](DecodeArgs& g) {
              g.head_dim = 61, g.head_dim_v = 511, g.k_stride[3] = 7, g.v_stride[1] = 3;
              g.q = static_cast<char const*>(g.q) + 4;
            }),
            "");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.seqlen_kv = 0, g.k = g.v = nullptr; }), "");
  EXPECT_EQ(refusal([](DecodeArgs& g) { g.seqlen_q = 0, g.head_dim = 0; }), "");
}

TEST(DecodeSimtRefuses, WorkspaceFollowsFromExtentsAndSplits) {
  SKIP_IF_LEFT_OUT(abi::DecodeSm80SimtF32, abi::DecodeSm80SimtF64, abi::DecodeSm80SimtF16,
                   abi::DecodeSm80SimtBf16);
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
  EXPECT_FALSE(abi::DecodeSm80SimtF16::accepts(g, d).ok);  // another type
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
    each_block_of_queries(d, {2, 3, 4, 5, 8, 17}, [](DecodeCase t, int mask) {
      t.heads = 6, t.order = mask == 1 ? Order::odd : Order::padded;
      run_simt<TypeParam>(t);
    });
}

TYPED_TEST(DecodeSimt, Pages) {
  for (std::int64_t d : {64, 100, 256, 512})
    each_page(d, {1, 3, 16, 17, 100, 256}, [](DecodeCase t) {
      t.heads = 4;
      if (t.page_size % 2 != 0) t.order = t.page_size == 17 ? Order::odd : Order::padded;
      run_simt<TypeParam>(t);
    });
}

TYPED_TEST(DecodeSimt, Options) {
  for (std::int64_t d : {64, 128, 256, 512})
    each_decode_option(d, {1, 3}, [](DecodeCase t) {
      t.heads = 6;
      if (t.len_q == 3 && t.d == 128) t.order = Order::odd;
      run_simt<TypeParam>(t);
    });
}

TYPED_TEST(DecodeSimt, LengthsOnTheDevice) {
  for (std::int64_t d : {64, 128, 256, 512})
    each_length_on_the_device(d, {2, 8}, run_simt<TypeParam>);
}

TYPED_TEST(DecodeSimt, PackedSequences) {
  for (std::int64_t d : {64, 99, 256, 512})
    each_packed_sequence(d, [](DecodeCase t, int) {
      t.heads = 4;
      if (t.left >= 0) t.order = Order::odd;
      run_simt<TypeParam>(t);
    });
}

// What an excluded key's value holds must not reach a row.
TYPED_TEST(DecodeSimt, NanBehindTheMask) {
  for (std::int64_t d : {64, 128, 256, 512})
    each_hidden_value(d, [](DecodeCase t, int step) {
      if (t.bad_keys[0] % 2 == 1) t.order = Order::odd;
      t.infinite = step == 1;
      run_simt<TypeParam>(t);
    });
}

TYPED_TEST(DecodeSimt, LongCache) {
  each_long_cache(4, [](DecodeCase const& t, int) { run_simt<TypeParam>(t); });
}

TYPED_TEST(DecodeSimt, RandomCases) {
  Draws below(20240612);
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

TYPED_TEST(DecodeSimt, BatchInvariantWithSplitsGiven) {
  expect_batch_invariance<TypeParam, SimtDecodeOf<TypeParam>>();
}

TYPED_TEST(DecodeSimt, GraphReplaysWithOtherLengths) {
  expect_replays<TypeParam, SimtDecodeOf<TypeParam>>(100);
}

// The number of parts follows the device, and the grid its order.
TYPED_TEST(DecodeSimt, SmallerDevices) {
  SKIP_IF_LEFT_OUT(SimtDecodeOf<TypeParam>);
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
