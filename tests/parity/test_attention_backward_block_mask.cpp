// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention_backward with block masks, against the oracle and against the same mask given densely.
#include "block_mask_backward_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class AttentionBackwardBlockMask : public testing::Test {};
TYPED_TEST_SUITE(AttentionBackwardBlockMask, FloatingCases, CaseName);

constexpr AttentionShape square_gradients{2, 4, 2, 70, 70, 16, 24};
constexpr AttentionShape wide_gradients{1, 2, 1, 21, 300, 20, 20};
constexpr AttentionShape tall_gradients{1, 2, 2, 150, 40, 8, 8};
/// Longer than any kernel's own tiles.
constexpr AttentionShape long_sequences_gradients{1, 2, 1, 330, 590, 32, 40};

constexpr std::array<TileSize, 4> gradient_tiles{{{1, 1}, {7, 5}, {64, 48}, {1000, 11}}};

TYPED_TEST(AttentionBackwardBlockMask, AnyTilesOfAnyPattern) {
  for (auto const& shape : {square_gradients, wide_gradients, tall_gradients})
    for (auto pattern : all_patterns)
      for (auto [block_q, block_kv] : gradient_tiles) {
        if (block_q != 7 && pattern != Pattern::mosaic) continue;
        check_block_gradients<TypeParam>({.shape = shape, .options = {.causal = block_q == 64}},
                                         pattern, block_q, block_kv);
      }
}

TYPED_TEST(AttentionBackwardBlockMask, LongSequences) {
  for (auto pattern : {Pattern::documents, Pattern::mosaic})
    for (auto [block_q, block_kv] : {TileSize{128, 128}, {31, 57}})
      check_block_gradients<TypeParam>(
          {.shape = long_sequences_gradients, .options = {.causal = block_q == 31}}, pattern,
          block_q, block_kv);
}

TYPED_TEST(AttentionBackwardBlockMask, OneMaskForSeveralSequencesAndHeads) {
  for (unsigned broadcast = 0; broadcast < 4; ++broadcast)
    check_block_gradients<TypeParam>({.shape = square_gradients, .layout = Layout::strided},
                                     broadcast == 0 ? Pattern::mosaic : Pattern::documents, 20, 9,
                                     broadcast);
}

TYPED_TEST(AttentionBackwardBlockMask, BesideLengthsAndWindows) {
  check_block_gradients<TypeParam>({.shape = square_gradients,
                                    .options = {.causal = true},
                                    .lengths_q = {70, 33},
                                    .lengths_kv = {12, 51}},
                                   Pattern::mosaic, 16, 24);
  for (auto const& shape : {square_gradients, wide_gradients, tall_gradients})
    check_block_gradients<TypeParam>(
        {.shape = shape,
         .options = {.window_left = 30, .window_right = 12, .softcap = 5, .attention_chunk = 29}},
        Pattern::mosaic, 24, 10);
}

TYPED_TEST(AttentionBackwardBlockMask, BesideTermsAndTheirGradients) {
  for (auto const& shape : {square_gradients, wide_gradients, tall_gradients})
    for (unsigned broadcast : {0u, 3u, 12u, 15u})
      check_block_gradients<TypeParam, Beside::terms>(
          {.shape = shape, .bias = true, .alibi = true, .sinks = true, .bias_broadcast = broadcast},
          Pattern::mosaic, 24, 10);
}

TYPED_TEST(AttentionBackwardBlockMask, EmptyExtents) {
  for (auto const& shape : empty_attention_shapes)
    check_block_gradients<TypeParam>({.shape = shape}, Pattern::band, 4, 4);
}

// Keys and values that lie in empty tiles alone may hold anything.
TYPED_TEST(AttentionBackwardBlockMask, NanOfHiddenPairsReachesNoGradient) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  BackwardCase const p{.shape = {1, 2, 1, 80, 90, 16, 24}, .mask = true};
  BackwardOperands<Exec, T> o(p);
  Random random(3);
  o.fill(random);
  o.mask.fill(1);
  SomeKeys const visible{30, 47};
  keep_seen(o.mask, visible);
  for (std::int64_t j = 30; j < 47; ++j) {
    for (std::int64_t c = 0; c < p.shape.d; ++c) o.k(0, 0, j, c) = poison<T>();
    for (std::int64_t c = 0; c < p.shape.dv; ++c) o.v(0, 0, j, c) = poison<T>();
  }
  o.upload();
  o.forward();
  BlockMaskShape const shape{80, 90, 32, 8};
  auto const tiles = block_tiles<TensorSpace<Exec>>(1, 2, shape, 3);
  run_attention_backward(o, Exec(), o.q.view(), o.k.view(), o.v.view(), o.out.view(), o.lse.view(),
                         o.dout.view(), o.dq.view(), o.dk.view(), o.dv.view(), p.options,
                         make_block_mask(Exec(), visible, tiles.view(), shape));
  o.download();
  compare_attention_backward(o, std::string("block_mask/") + Exec::name());
}

template <class C>
class AttentionBackwardBlockMaskSpaces : public testing::Test {};
using OneType = Cases<List<float>>;
TYPED_TEST_SUITE(AttentionBackwardBlockMaskSpaces, OneType, CaseName);

TYPED_TEST(AttentionBackwardBlockMaskSpaces, BesideFunctors) {
  for (auto const& shape : {square_gradients, wide_gradients, tall_gradients})
    check_block_gradients<TypeParam, Beside::functors>(
        {.shape = shape, .bias = true, .score = true, .weight = true}, Pattern::mosaic, 17, 12);
}

// Positions count within their sequences; the predicate decides of pairs past what the mask covers.
TYPED_TEST(AttentionBackwardBlockMaskSpaces, PackedSequences) {
  for (std::int64_t covered : {0, 50, 200})
    check_packed_gradients<typename TypeParam::Exec>({.shape = {4, 4, 2, 150, 150, 8, 6},
                                                      .options = {.causal = covered == 50},
                                                      .cu_q = {1, 92, 92, 113, 148},
                                                      .cu_kv = {0, 90, 93, 114, 150}},
                                                     Pattern::mosaic, {covered, covered, 12, 19});
}

TYPED_TEST(AttentionBackwardBlockMaskSpaces, OtherKernelsRefuseIt) {
  using Exec = typename TypeParam::Exec;
  BackwardCase const p{.shape = {1, 2, 1, 9, 20, 8, 8}};
  BackwardOperands<Exec, float> o(p);
  Random random(4);
  o.fill(random);
  BlockMaskShape const shape{9, 20, 4, 4};
  auto const tiles = block_tiles<TensorSpace<Exec>>(1, 1, shape);
  auto const blocks = make_block_mask(Exec(), TestPredicate{Pattern::band}, tiles.view(), shape);
  auto const explain_with = [&](auto const&... extras) {
    return explain(op::attention_backward, Exec(), o.q.view(), o.k.view(), o.v.view(), o.out.view(),
                   o.lse.view(), o.dout.view(), o.dq.view(), o.dk.view(), o.dv.view(), {},
                   extras...);
  };
  auto const with = explain_with(blocks);
  EXPECT_EQ(with.kernel, "portable");
#if defined(KOKKOS_ENABLE_CUDA) && defined(ATTIKOS_HAVE_CUDA_COMPANION)
  // The one that would run without, behind those that refuse the call as it is.
  auto const without = explain_with();
  std::size_t const before = without.rejected.size();
  ASSERT_GT(with.rejected.size(), before) << with.to_string();
  EXPECT_EQ(with.rejected[before].kernel, without.kernel);
  EXPECT_EQ(with.rejected[before].reason, "it has no block mask");
#endif
}

}  // namespace
}  // namespace attikos::test
