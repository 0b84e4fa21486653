// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random block masks against the oracle and against dense masks.
#include "../parity/block_mask_backward_checks.hpp"
#include "../parity/block_mask_checks.hpp"
#include "generators.hpp"

namespace attikos::test {
namespace {

using Float = Case<Exec, float>;

Pattern any_pattern() { return *rc::gen::elementOf(all_patterns); }

/// Any size of tile, sometimes larger than the problem.
std::int64_t any_block() { return any_extent(1, *rc::gen::element<std::int64_t>(20, 130, 700)); }

/// Any problem, queries or keys of which may be missing.
AttentionShape any_shape() {
  AttentionShape shape = any_attention_shape();
  if (*rc::gen::inRange(0, 12) == 0) shape.seqlen_q = 0;
  if (*rc::gen::inRange(0, 12) == 0) shape.seqlen_kv = 0;
  return shape;
}

AttentionOptions any_options() {
  AttentionOptions options = any_attention_options();
  if (*rc::gen::arbitrary<bool>()) options.window_left = any_extent(0, 90);
  if (*rc::gen::arbitrary<bool>()) options.window_right = any_extent(0, 90);
  if (*rc::gen::inRange(0, 4) == 0) options.attention_chunk = any_extent(1, 90);
  return options;
}

std::vector<int> any_lengths(std::int64_t batch, std::int64_t longest) {
  std::vector<int> lengths;
  for (std::int64_t b = 0; b < batch; ++b)
    lengths.push_back(static_cast<int>(any_extent(0, longest)));
  return lengths;
}

/// Offsets of up to four sequences.
std::vector<int> any_offsets(std::size_t sequences) {
  std::vector<int> cu{*rc::gen::inRange(0, 4)};
  for (std::size_t b = 0; b < sequences; ++b)
    cu.push_back(cu.back() + static_cast<int>(any_extent(0, 110)));
  return cu;
}

/// Which leading extents of the tiles are 1: some only where the pattern does not depend on them.
unsigned any_broadcast(Pattern pattern) {
  return pattern == Pattern::mosaic ? 0u : *rc::gen::inRange(0u, 4u);
}

RC_GTEST_PROP(BlockMaskProperties, AnyTilesAreTheDenseMask, ()) {
  BlockCase p{.shape = any_shape(),
              .pattern = any_pattern(),
              .block_q = any_block(),
              .block_kv = any_block(),
              .options = any_options(),
              .terms = *rc::gen::arbitrary<bool>(),
              .layout = any_layout()};
  p.broadcast = any_broadcast(p.pattern);
  if (*rc::gen::arbitrary<bool>() && !p.terms) {
    p.lengths_q = any_lengths(p.shape.batch, p.shape.seqlen_q);
    p.lengths_kv = any_lengths(p.shape.batch, p.shape.seqlen_kv);
  }
  RC_LOG() << describe(p) << '\n';
  check_blocks<Float>(p);
  RC_ASSERT(!testing::Test::HasFailure());
}

RC_GTEST_PROP(BlockMaskProperties, AnyTilesAreTheDenseMaskInGradients, ()) {
  BackwardCase p{.shape = any_shape(), .options = any_options(), .layout = any_layout()};
  p.options.algorithm = AttentionAlgorithm::flash;
  if (*rc::gen::arbitrary<bool>()) {
    p.lengths_q = any_lengths(p.shape.batch, p.shape.seqlen_q);
    p.lengths_kv = any_lengths(p.shape.batch, p.shape.seqlen_kv);
  }
  Pattern const pattern = any_pattern();
  std::int64_t const block_q = any_block(), block_kv = any_block();
  RC_LOG() << describe(p) << " pattern " << static_cast<int>(pattern) << " tiles of " << block_q
           << " x " << block_kv << '\n';
  check_block_gradients<Float>(p, pattern, block_q, block_kv, any_broadcast(pattern));
  RC_ASSERT(!testing::Test::HasFailure());
}

RC_GTEST_PROP(BlockMaskProperties, AnyPackedSequences, ()) {
  PackedBlockCase const p{.cu = any_offsets(sz(any_extent(1, 4))),
                          .covered = any_extent(0, 130),
                          .block_q = any_block(),
                          .block_kv = any_block(),
                          .pattern = any_pattern(),
                          .options = any_options()};
  check_packed_blocks<Exec>(p);
  RC_ASSERT(!testing::Test::HasFailure());
}

RC_GTEST_PROP(BlockMaskProperties, AnyPackedSequencesInGradients, ()) {
  std::int64_t const sequences = any_extent(1, 3), heads_kv = any_extent(1, 2);
  BackwardCase p{.options = any_options(),
                 .cu_q = any_offsets(sz(sequences)),
                 .cu_kv = any_offsets(sz(sequences))};
  p.options.algorithm = AttentionAlgorithm::flash;
  p.shape = {sequences, heads_kv * 2, heads_kv, p.cu_q.back() + 3, p.cu_kv.back() + 2, 8, 6};
  BlockMaskShape const shape{any_extent(0, 130), any_extent(0, 130), any_block(), any_block()};
  check_packed_gradients<Exec>(p, any_pattern(), shape);
  RC_ASSERT(!testing::Test::HasFailure());
}

RC_GTEST_PROP(BlockMaskProperties, KindsOfTilesAreThoseOfTheDefinition, ()) {
  BlockMaskShape const shape{any_extent(0, 140), any_extent(0, 140), any_block(), any_block()};
  TestPredicate const predicate{any_pattern()};
  auto tiles = block_tiles<Exec>(any_extent(0, 2), any_extent(0, 3), shape, 0, any_layout());
  make_block_mask(Exec(), predicate, tiles.view(), shape);
  tiles.download();
  RC_ASSERT(tiles.writes_outside() == 0u);
  tiles.for_each([&](auto const& i) {
    RC_ASSERT(static_cast<BlockKind>(tiles.at(i)) ==
              block_kind(predicate, shape, i[0], i[1], i[2], i[3]));
  });
}

}  // namespace
}  // namespace attikos::test
