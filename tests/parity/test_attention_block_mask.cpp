// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention with block masks: tiles as make_block_mask() writes them, results against the oracle
// and against the same mask given densely.
#include "block_mask_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class AttentionBlockMask : public testing::Test {};
TYPED_TEST_SUITE(AttentionBlockMask, FloatingCases, CaseName);

constexpr AttentionShape square{2, 4, 2, 70, 70, 16, 24};
constexpr AttentionShape wide{1, 2, 1, 21, 300, 20, 20};
constexpr AttentionShape tall{1, 2, 2, 150, 40, 8, 8};
/// Longer than any kernel's own tiles.
constexpr AttentionShape long_sequences{1, 4, 2, 330, 590, 64, 40};

constexpr std::array<TileSize, 6> sizes{
    {{1, 1}, {7, 5}, {16, 48}, {64, 3}, {128, 128}, {1000, 11}}};

TYPED_TEST(AttentionBlockMask, AnyTilesOfAnyPattern) {
  for (auto const& shape : {square, wide, tall})
    for (auto pattern : all_patterns)
      for (auto [block_q, block_kv] : sizes)
        for (auto algorithm : all_algorithms) {
          bool const usual = block_q == 7;
          if (!usual && (algorithm != AttentionAlgorithm::flash || pattern != Pattern::mosaic))
            continue;
          check_blocks<TypeParam>({.shape = shape,
                                   .pattern = pattern,
                                   .block_q = block_q,
                                   .block_kv = block_kv,
                                   .options = {.causal = block_q == 64, .algorithm = algorithm}});
        }
}

TYPED_TEST(AttentionBlockMask, LongSequences) {
  for (auto pattern : {Pattern::documents, Pattern::band, Pattern::mosaic})
    for (auto [block_q, block_kv] : {TileSize{128, 128}, {31, 57}})
      check_blocks<TypeParam>({.shape = long_sequences,
                               .pattern = pattern,
                               .block_q = block_q,
                               .block_kv = block_kv,
                               .options = {.causal = block_q == 31}});
}

TYPED_TEST(AttentionBlockMask, OneMaskForSeveralSequencesAndHeads) {
  for (unsigned broadcast = 0; broadcast < 4; ++broadcast)
    for (auto algorithm : all_algorithms)
      check_blocks<TypeParam>({.shape = square,
                               .pattern = broadcast == 0 ? Pattern::mosaic : Pattern::documents,
                               .block_q = 20,
                               .block_kv = 9,
                               .options = {.algorithm = algorithm},
                               .broadcast = broadcast,
                               .layout = Layout::strided});
}

TYPED_TEST(AttentionBlockMask, BesideOtherMasks) {
  for (auto const& shape : {square, wide, tall})
    for (auto algorithm : all_algorithms)
      for (auto pattern : {Pattern::mosaic, Pattern::band}) {
        check_blocks<TypeParam>({.shape = shape,
                                 .pattern = pattern,
                                 .block_q = 24,
                                 .block_kv = 10,
                                 .options = {.causal = pattern == Pattern::band,
                                             .algorithm = algorithm,
                                             .window_left = 30,
                                             .window_right = 12,
                                             .softcap = 5},
                                 .terms = true});
        check_blocks<TypeParam>({.shape = shape,
                                 .pattern = pattern,
                                 .block_q = 10,
                                 .block_kv = 24,
                                 .options = {.algorithm = algorithm, .attention_chunk = 19}});
      }
  for (auto algorithm : all_algorithms)
    check_blocks<TypeParam>({.shape = square,
                             .options = {.causal = true, .algorithm = algorithm},
                             .lengths_q = {70, 33},
                             .lengths_kv = {12, 51}});
}

TYPED_TEST(AttentionBlockMask, EmptyExtents) {
  for (auto const& shape : empty_attention_shapes)
    for (auto algorithm : all_algorithms)
      check_blocks<TypeParam>({.shape = shape, .options = {.algorithm = algorithm}});
}

// Keys and values that lie in empty tiles alone may hold anything.
TYPED_TEST(AttentionBlockMask, NanOfHiddenPairsReachesNoRow) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  AttentionShape const s{1, 2, 1, 80, 90, 16, 24};
  for (auto algorithm : all_algorithms) {
    AttentionCase const a{.shape = s, .options = {.algorithm = algorithm}};
    AttentionOperands<Exec, T> o(a);
    Random random(3);
    o.fill(a, random);
    for (std::int64_t j = 30; j < 47; ++j) {
      for (std::int64_t c = 0; c < s.d; ++c) o.k(0, 0, j, c) = poison<T>();
      for (std::int64_t c = 0; c < s.dv; ++c) o.v(0, 0, j, c) = poison<T>();
    }
    o.k.upload();
    o.v.upload();
    BlockMaskShape const shape{80, 90, 32, 8};
    auto const tiles = block_tiles<Exec>(1, 2, shape, 3);
    attention(Exec(), o.q.view(), o.k.view(), o.v.view(), o.out.view(), o.lse.view(), a.options,
              make_block_mask(Exec(), SomeKeys{30, 47}, tiles.view(), shape));
    o.download();
    o.out.for_each(
        [&](auto const& i) { ASSERT_TRUE(std::isfinite(to_double(o.out.at(i)))) << i[2]; });
    o.lse.for_each(
        [&](auto const& i) { ASSERT_TRUE(std::isfinite(to_double(o.lse.at(i)))) << i[2]; });
  }
}

template <class C>
class AttentionBlockMaskSpaces : public testing::Test {};
using SpacesAndWays = Cases<TypesOfWays<List<float>>>;
TYPED_TEST_SUITE(AttentionBlockMaskSpaces, SpacesAndWays, CaseName);

TYPED_TEST(AttentionBlockMaskSpaces, BesideFunctors) {
  for (auto const& shape : {square, wide, tall})
    for (auto algorithm : all_algorithms)
      check_blocks<TypeParam, true>({.shape = shape,
                                     .block_q = 12,
                                     .block_kv = 17,
                                     .options = {.causal = true, .algorithm = algorithm},
                                     .functors = true});
}

TYPED_TEST(AttentionBlockMaskSpaces, KindsOfTiles) {
  using Exec = typename TypeParam::Exec;
  for (auto pattern : all_patterns)
    for (auto [block_q, block_kv] : sizes)
      for (auto [seqlen_q, seqlen_kv] : {TileSize{0, 5}, {5, 0}, {1, 1}, {70, 111}})
        for (auto layout : all_layouts) {
          TestPredicate const predicate{pattern};
          BlockMaskShape const shape{seqlen_q, seqlen_kv, block_q, block_kv};
          auto tiles = block_tiles<Exec>(2, 3, shape, 0, layout);
          auto const made = make_block_mask(Exec(), predicate, tiles.view(), shape);
          EXPECT_EQ(made.view.data(), tiles.view().data());
          EXPECT_EQ(made.shape.tiles_kv(), tiles.extent(3));
          tiles.download();
          EXPECT_EQ(tiles.writes_outside(), 0u);
          tiles.for_each([&](auto const& i) {
            EXPECT_EQ(static_cast<BlockKind>(tiles.at(i)),
                      block_kind(predicate, shape, i[0], i[1], i[2], i[3]))
                << i[2] << ", " << i[3] << " of pattern " << static_cast<int>(pattern);
          });
        }
  // Without batch and heads, and without an instance.
  BlockMaskShape const shape{70, 111, 32, 16};
  Tensor<std::int8_t, 2, Exec> tiles({shape.tiles_q(), shape.tiles_kv()}, Layout::strided);
  make_block_mask(Exec(), TestPredicate{Pattern::documents}, tiles.view(), shape);
  tiles.download();
  tiles.for_each([&](auto const& i) {
    EXPECT_EQ(static_cast<BlockKind>(tiles.at(i)),
              block_kind(TestPredicate{Pattern::documents}, shape, 0, 0, i[0], i[1]));
  });
  Tensor<std::int8_t, 2, Kokkos::DefaultExecutionSpace> again({1, 1});
  make_block_mask(TestPredicate{Pattern::band}, again.view(), {5, 5});
  again.download();
  EXPECT_EQ(static_cast<BlockKind>(again(0, 0)), BlockKind::partial);
}

/// Counts how often it is asked, and answers against what the tiles say.
template <class Exec>
struct CountingPredicate {
  Kokkos::View<std::int64_t, typename Exec::memory_space> asked;
  KOKKOS_FUNCTION bool operator()(std::int64_t, std::int64_t, std::int64_t i,
                                  std::int64_t j) const {
    Kokkos::atomic_inc(&asked());
    return (i + j) % 3 == 0;
  }
};

// Tiles decide: the predicate, which says something else, is asked in partial ones alone, each pair
// once. Any number but 0 and 1 is a partial tile.
TYPED_TEST(AttentionBlockMaskSpaces, ThePredicateIsAskedInPartialTilesAlone) {
  using Exec = typename TypeParam::Exec;
  AttentionShape const s{1, 2, 1, 64, 96, 8, 8};
  AttentionCase const a{.shape = s, .options = {.kernel = "portable/flash"}};
  AttentionOperands<Exec, float> o(a), dense(a);
  Random random(9);
  o.fill(a, random);
  BlockMaskShape const shape{64, 96, 16, 32};
  auto tiles = block_tiles<Exec>(1, 2, shape);
  Tensor<std::uint8_t, 4, Exec> seen({1, 2, 64, 96});
  std::int64_t partial = 0;
  tiles.for_each([&](auto const& i) {
    constexpr std::array<std::int8_t, 5> kinds{0, 1, 2, 7, -1};
    tiles.at(i) = kinds[sz((i[1] + i[2] * 2 + i[3] * 3) % 5)];
    partial += tiles.at(i) == 0 || tiles.at(i) == 1 ? 0 : 1;
  });
  tiles.upload();
  seen.for_each([&](auto const& i) {
    auto const kind = tiles.value(i[0], i[1], i[2] / 16, i[3] / 32);
    seen.at(i) = kind == 1 || (kind != 0 && (i[2] + i[3]) % 3 == 0) ? 1 : 0;
  });
  seen.upload();
  CountingPredicate<Exec> const predicate{
      Kokkos::View<std::int64_t, typename Exec::memory_space>("asked")};
  attention(Exec(), o.q.view(), o.k.view(), o.v.view(), o.out.view(), o.lse.view(), a.options,
            block_mask(tiles.const_view(), predicate, shape));
  attention(Exec(), o.q.view(), o.k.view(), o.v.view(), dense.out.view(), dense.lse.view(),
            a.options, mask(seen.const_view()));
  std::int64_t asked = 0;
  Kokkos::deep_copy(asked, predicate.asked);
  EXPECT_EQ(asked, partial * 16 * 32);
  o.download();
  dense.download();
  EXPECT_TRUE(same_bits(o.out.elements(), dense.out.elements()));
  EXPECT_TRUE(same_bits(o.lse.elements(), dense.lse.elements()));
}

// Positions count within their sequences; the predicate decides of pairs past what the mask covers.
TYPED_TEST(AttentionBlockMaskSpaces, PackedSequences) {
  for (std::int64_t covered : {0, 50, 200})
    for (auto algorithm : all_algorithms)
      check_packed_blocks<typename TypeParam::Exec>(
          {.cu = {2, 92, 92, 133, 150},
           .covered = covered,
           .block_q = 12,
           .block_kv = 19,
           .options = {.causal = covered == 50, .algorithm = algorithm}});
}

// Every other kernel says why it did not take the call, and one by name is an error.
TYPED_TEST(AttentionBlockMaskSpaces, OtherKernelsRefuseIt) {
  using Exec = typename TypeParam::Exec;
  AttentionCase const a{.shape = {1, 2, 1, 8, 8, 8, 8}};
  AttentionOperands<Exec, float> o(a);
  Random random(9);
  o.fill(a, random);
  BlockMaskShape const shape{8, 8, 4, 4};
  auto const tiles = block_tiles<Exec>(1, 1, shape);
  auto const blocks = make_block_mask(Exec(), TestPredicate{Pattern::band}, tiles.view(), shape);
  auto const told = explain(op::attention, Exec(), o.q.view(), o.k.view(), o.v.view(), o.out.view(),
                            o.lse.view(), {}, blocks);
  EXPECT_EQ(told.kernel, "portable/flash");
#if !defined(KOKKOS_ENABLE_CUDA) || defined(ATTIKOS_HAVE_CUDA_COMPANION)  // there are others
  ASSERT_FALSE(told.rejected.empty());
  EXPECT_NE(told.to_string().find("it has no block mask"), std::string::npos) << told.to_string();
#endif
  EXPECT_THROW(
      attention(Exec(), o.q.view(), o.k.view(), o.v.view(), o.out.view(), o.lse.view(),
                {.kernel = is_host_space<Exec> ? "portable/small" : "attention/x"}, blocks),
      UnsupportedError);
  EXPECT_TRUE(o.out.unchanged());
}

}  // namespace
}  // namespace attikos::test
