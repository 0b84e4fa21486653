// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shards and schedules as data.
#include <gtest/gtest.h>

#include <attikos/distributed/schedule.hpp>
#include <cmath>
#include <set>
#include <vector>

#include "support/random.hpp"

namespace attikos::test {
namespace {

using distributed::Piece;
using distributed::Placement;
using distributed::Shards;

/// Every position on one rank, rows one after the other.
void expect_partition(Shards const& shards) {
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  std::int64_t total = 0;
  for (int r = 0; r < shards.ranks(); ++r) {
    std::int64_t row = 0;
    for (Piece const& piece : shards.pieces(r)) {
      EXPECT_EQ(piece.local, row);
      row += piece.rows();
      for (std::int64_t i = piece.begin; i < piece.end; ++i)
        EXPECT_TRUE(seen.insert({piece.sequence, i}).second);
    }
    EXPECT_EQ(shards.rows(r), row);
    total += row;
  }
  EXPECT_EQ(total, shards.total());
}

TEST(Shards, HoldEachPositionOnce) {
  for (int ranks : {1, 2, 3, 8})
    for (std::int64_t length : {0, 1, 7, 64, 100})
      for (std::int64_t granularity : {1, 8}) {
        expect_partition(Shards::contiguous(length, ranks, granularity));
        expect_partition(Shards::zigzag(length, ranks, granularity));
        EXPECT_TRUE(Shards::zigzag(length, ranks, granularity).aligned_to(granularity));
        expect_partition(
            Shards::packed({0, 3, 3, 3 + length}, ranks, Placement::zigzag, granularity));
      }
  expect_partition(Shards::uneven({5, 0, 7}));
  expect_partition(Shards::of_pieces({6, 4}, {{{1, 2, 4}, {0, 0, 3}}, {{0, 3, 6}, {1, 0, 2}}}));
}

TEST(Shards, ZigzagGivesRanksTheSameWork) {
  Shards const shards = Shards::zigzag(64, 4);
  ASSERT_EQ(shards.pieces(1).size(), 2u);
  EXPECT_EQ(shards.pieces(1)[0], (Piece{0, 8, 16, 0}));
  EXPECT_EQ(shards.pieces(1)[1], (Piece{0, 48, 56, 8}));
  for (int r = 0; r < 4; ++r) {
    std::int64_t pairs = 0;
    for (Piece const& piece : shards.pieces(r))
      for (std::int64_t i = piece.begin; i < piece.end; ++i) pairs += i + 1;
    EXPECT_EQ(pairs, 64 * 65 / 2 / 4);
  }
}

TEST(Shards, BalancedKeepsSequencesWholeWhereItCan) {
  std::int64_t drawn = 7;
  auto const draw = [&](std::int64_t most) {
    drawn = drawn * 48271 % 2147483647;
    return drawn % (most + 1);
  };
  for (int ranks : {1, 2, 3, 8})
    for (bool causal : {false, true})
      for (std::int64_t longest : {1, 50, 4000}) {
        std::vector<std::int64_t> offsets{0};
        for (int s = 0; s < 40; ++s) offsets.push_back(offsets.back() + draw(longest));
        Shards const shards = Shards::balanced(offsets, ranks, causal, 2);
        expect_partition(shards);
        double most = 0, all = 0;
        std::int64_t longest_whole = 0, shortest_dealt_out = longest;
        for (int r = 0; r < ranks; ++r) {
          double pairs = 0;
          for (Piece const& x : shards.pieces(r)) {
            std::int64_t const length = shards.length(x.sequence);
            if (x.rows() == length)
              longest_whole = std::max(longest_whole, length);
            else
              shortest_dealt_out = std::min(shortest_dealt_out, length);
            for (std::int64_t i = x.begin; i < x.end; ++i)
              pairs += static_cast<double>(causal ? i + 1 : length);
          }
          most = std::max(most, pairs);
          all += pairs;
        }
        EXPECT_LE(longest_whole, shortest_dealt_out);
        if (longest == 4000) {
          EXPECT_LE(most * ranks, 1.03 * all);
        }
      }
  // As few as it takes: two of three alike stay whole.
  Shards const three = Shards::balanced({0, 10, 20, 30}, 2);
  EXPECT_EQ(three.pieces(0), (std::vector<Piece>{{0, 0, 5, 0}, {1, 0, 10, 5}}));
  EXPECT_EQ(three.pieces(1), (std::vector<Piece>{{0, 5, 10, 0}, {2, 0, 10, 5}}));
  EXPECT_THROW(Shards::balanced({0, 5, 3}, 2), ShapeError);
  EXPECT_THROW(Shards::balanced({0, 5}, 0), ShapeError);
  EXPECT_THROW(Shards::balanced({}, 2), ShapeError);
  EXPECT_THROW(Shards::balanced({0, 5}, 2, false, 0), ShapeError);
  EXPECT_THROW(Shards::balanced({0, 5}, 2, false, 1, std::nan("")), ShapeError);
}

TEST(Shards, SharedKeysAreThoseThatQueriesOfOtherRanksMaySee) {
  Shards const zigzag = Shards::zigzag(64, 4);
  EXPECT_EQ(zigzag.shared_with(zigzag), zigzag);
  EXPECT_EQ(Shards::zigzag(64, 1).shared_with(Shards::zigzag(64, 1)).max_rows(), 0);
  // Sequence 0 is rank 0's alone, 1 has queries of both, 2 has none.
  Shards const queries = Shards::of_pieces({4, 6, 0}, {{{0, 0, 4}, {1, 0, 3}}, {{1, 3, 6}}});
  Shards const keys =
      Shards::of_pieces({5, 8, 3}, {{{0, 2, 5}, {2, 0, 3}, {1, 0, 2}}, {{0, 0, 2}, {1, 2, 8}}});
  Shards const shared = keys.shared_with(queries);
  EXPECT_EQ(shared.pieces(0), (std::vector<Piece>{{1, 0, 2, 0}}));
  EXPECT_EQ(shared.pieces(1), (std::vector<Piece>{{0, 0, 2, 0}, {1, 2, 8, 2}}));
  EXPECT_EQ(shared.length(0), 5);
}

TEST(Shards, RefuseWhatIsNoPartition) {
  EXPECT_THROW(Shards::of_pieces({4}, {{{0, 0, 3}}}), ShapeError);
  EXPECT_THROW(Shards::of_pieces({4}, {{{0, 0, 3}}, {{0, 2, 4}}}), ShapeError);
  EXPECT_THROW(Shards::of_pieces({4}, {{{0, 0, 5}}}), ShapeError);
  EXPECT_THROW(Shards::of_pieces({4}, {{{1, 0, 4}}}), ShapeError);
  EXPECT_THROW(Shards::uneven({3, -1}), ShapeError);
  EXPECT_THROW(Shards::packed({0, 5, 3}, 2), ShapeError);
  EXPECT_THROW(Shards::contiguous(5, 0), ShapeError);
}

TEST(Shards, FingerprintsTellThemApart) {
  std::set<std::int64_t> prints;
  for (auto const& shards :
       {Shards::zigzag(64, 4), Shards::contiguous(64, 4), Shards::zigzag(65, 4),
        Shards::zigzag(64, 3), Shards::uneven({16, 16, 16, 15, 1}), Shards::packed({0, 32, 64}, 4)})
    EXPECT_TRUE(prints.insert(shards.fingerprint()).second);
  EXPECT_EQ(Shards::uneven({16, 16}).fingerprint(), Shards::contiguous(32, 2).fingerprint());
}

// A product sees exactly the pairs that the mask of the whole lets through.
TEST(Schedule, ProductsCoverWhatIsVisible) {
  Random random(3);
  for (int round = 0; round < 3000; ++round) {
    std::int64_t const nq = random.integer(1, 12), nk = random.integer(1, 12);
    std::int64_t const q0 = random.integer(0, nq - 1), k0 = random.integer(0, nk - 1);
    Piece const q{0, q0, random.integer(q0 + 1, nq), 5}, kv{0, k0, random.integer(k0 + 1, nk), 2};
    distributed::Visible const visible{random.integer(-1, 6), random.integer(-1, 6)};
    std::int64_t const lq = random.integer(0, nq), lk = random.integer(0, nk);
    std::int64_t const offset = random.integer(0, 1) == 0 ? 0 : lk - lq;
    auto const product = distributed::product_of(q, kv, visible, offset, lq, lk);
    for (std::int64_t i = q.begin; i < q.end; ++i)
      for (std::int64_t j = kv.begin; j < kv.end; ++j) {
        std::int64_t const ahead = j - i - offset;
        bool const want = i < lq && j < lk && (visible.left < 0 || ahead >= -visible.left) &&
                          (visible.right < 0 || ahead <= visible.right);
        bool got = false;
        if (product) {
          std::int64_t const row = q.local + i - q.begin - product->q_row;
          std::int64_t const key = kv.local + j - kv.begin - product->kv_row;
          auto const& w = product->window;
          got = row >= 0 && row < product->q_rows && key >= 0 && key < product->kv_rows &&
                (w.left < 0 || key >= row - w.left) && (w.right < 0 || key <= row + w.right);
        }
        ASSERT_EQ(got, want) << "round " << round << " i " << i << " j " << j;
      }
  }
}

TEST(Schedule, RingsPassEachBlockToEachRank) {
  for (int ranks : {1, 2, 3, 8}) {
    for (int step = 0; step < ranks; ++step)
      for (int r = 0; r < ranks; ++r) {
        auto const s = distributed::ring_step(r, ranks, step);
        EXPECT_EQ(s.transfers, step + 1 < ranks);
        if (!s.transfers) continue;
        // What the next rank works on in the next step is what this one sends.
        EXPECT_EQ(distributed::ring_step(s.to, ranks, step + 1).block, s.block);
        EXPECT_EQ(distributed::ring_step(s.to, ranks, step).from, r);
      }
    for (int r = 0; r < ranks; ++r) {
      std::set<int> blocks;
      for (int step = 0; step < ranks; ++step)
        blocks.insert(distributed::ring_step(r, ranks, step).block);
      EXPECT_EQ(blocks.size(), static_cast<std::size_t>(ranks));
    }
  }
}

TEST(Schedule, TreesJoinInOneOrder) {
  Random random(7);
  for (std::int64_t leaves : {1, 2, 3, 5, 8, 13}) {
    for (int missing = 0; missing < 2; ++missing) {
      std::string first;
      for (int round = 0; round < 20; ++round) {
        std::vector<std::int64_t> order;
        for (std::int64_t i = 0; i < leaves; ++i)
          order.insert(order.begin() + random.integer(0, i), i);
        std::vector<std::string> slots;
        distributed::FixedTree tree(leaves);
        for (std::int64_t leaf : order) {
          bool const none = missing == 1 && leaf % 3 == 1;
          if (!none) slots.push_back(std::to_string(leaf));
          tree.add(leaf, none ? distributed::FixedTree::empty : static_cast<int>(slots.size()) - 1,
                   [&](int left, int right) {
                     auto const l = static_cast<std::size_t>(left),
                                r = static_cast<std::size_t>(right);
                     slots[l] = "(" + slots[l] + "+" + slots[r] + ")";
                   });
        }
        ASSERT_TRUE(tree.done());
        std::string const root = tree.root() == distributed::FixedTree::empty
                                     ? ""
                                     : slots[static_cast<std::size_t>(tree.root())];
        if (round == 0) first = root;
        EXPECT_EQ(root, first);
      }
    }
  }
}

}  // namespace
}  // namespace attikos::test
