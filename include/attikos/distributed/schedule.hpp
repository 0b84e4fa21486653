// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Who sends what to whom in which step, and which products a rank computes of what it then has:
/// plain data, without MPI and without Kokkos, so that a schedule can be looked at or simulated.
#pragma once

#include <algorithm>
#include <attikos/distributed/shards.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {

/// One step of a ring: a rank works on the keys and values of rank `block`, and meanwhile sends
/// them to `to` and gets the next ones from `from`. The last step sends nothing.
struct RingStep {
  int block = 0, to = 0, from = 0;
  bool transfers = false;
};

/// Step `step` of `ranks` on `rank`. Blocks go to the next higher rank.
inline RingStep ring_step(int rank, int ranks, int step) {
  return {(rank - step + ranks) % ranks, (rank + 1) % ranks, (rank - 1 + ranks) % ranks,
          step + 1 < ranks};
}

/// What query i sees of keys j: i + offset − left ≤ j ≤ i + offset + right, −1: open.
struct Visible {
  std::int64_t left = -1, right = -1;
};

/// Attention of some rows of a rank over some rows of a block of keys, as attention() takes it:
/// with a mask that begins in the top left corner.
struct Product {
  std::int64_t q_row = 0, q_rows = 0;    ///< of the rank's queries
  std::int64_t kv_row = 0, kv_rows = 0;  ///< of the block
  Visible window;                        ///< with offset 0
};

/// The product of two pieces, cut down to the rows that see something and the keys that are seen,
/// or none. `offset`: i + offset is the position of the key that query i of the sequence stands at.
/// Positions from `q_length` and `kv_length` on are padding.
inline std::optional<Product> product_of(Piece const& q, Piece const& kv, Visible const& visible,
                                         std::int64_t offset, std::int64_t q_length,
                                         std::int64_t kv_length) {
  std::int64_t const nq = std::min(q.end, q_length) - q.begin;
  std::int64_t const nk = std::min(kv.end, kv_length) - kv.begin;
  if (q.sequence != kv.sequence || nq <= 0 || nk <= 0) return std::nullopt;
  // Row i of the piece sees keys [i + low, i + high] of the piece.
  std::int64_t const shift = q.begin + offset - kv.begin;
  std::int64_t const low = visible.left < 0 ? -nq : shift - visible.left;
  std::int64_t const high = visible.right < 0 ? nk : shift + visible.right;
  std::int64_t const first_q = std::max<std::int64_t>(0, -high);
  std::int64_t const first_k = std::max<std::int64_t>(0, first_q + low);
  std::int64_t const last_q = std::min(nq, nk - low);       // one past
  std::int64_t const last_k = std::min(nk, last_q + high);  // one past
  if (first_q >= last_q || first_k >= last_k) return std::nullopt;
  Product product{q.local + first_q, last_q - first_q, kv.local + first_k, last_k - first_k, {}};
  std::int64_t const moved = first_q - first_k;
  if (low + moved > 1 - product.q_rows) product.window.left = -(low + moved);
  if (high + moved < product.kv_rows - 1) product.window.right = high + moved;
  return product;
}

/// Pieces cut at the multiples of `block` positions of their sequences.
inline std::vector<Piece> cut_at_multiples(std::vector<Piece> const& pieces, std::int64_t block) {
  std::vector<Piece> cut;
  for (Piece const& piece : pieces) {
    for (std::int64_t begin = piece.begin; begin < piece.end;) {
      std::int64_t const end = std::min((begin / block + 1) * block, piece.end);
      cut.push_back({piece.sequence, begin, end, piece.local + begin - piece.begin});
      begin = end;
    }
  }
  return cut;
}

/// Joins the results of the leaves of a binary tree in an order that depends on the number of
/// leaves alone, whenever they come: of two neighbors the lower one is on the left, and a node
/// without a neighbor goes up by itself.
class FixedTree {
 public:
  explicit FixedTree(std::int64_t leaves) {
    for (std::int64_t n = leaves; n > 0; n = n == 1 ? 0 : (n + 1) / 2)
      levels_.emplace_back(static_cast<std::size_t>(n));
  }

  /// Nothing to join: a leaf that saw nothing.
  static constexpr int empty = -1;

  /// `slot`: where the leaf's result lies, or `empty`. `join(left, right)` leaves the result of
  /// both in `left` and frees `right`; it is not called where one of them is empty.
  void add(std::int64_t leaf, int slot, std::function<void(int, int)> const& join) {
    std::int64_t at = leaf;
    for (std::size_t level = 0;; ++level, at /= 2) {
      auto& nodes = levels_[level];
      nodes[static_cast<std::size_t>(at)] = {true, slot};
      if (nodes.size() == 1) return;
      std::int64_t const other = at ^ 1;
      if (other < static_cast<std::int64_t>(nodes.size())) {
        Node const& neighbor = nodes[static_cast<std::size_t>(other)];
        if (!neighbor.done) return;
        int const left = other < at ? neighbor.slot : slot;
        int const right = other < at ? slot : neighbor.slot;
        if (left != empty && right != empty) join(left, right);
        slot = left != empty ? left : right;
      }
    }
  }

  bool done() const { return levels_.empty() || levels_.back()[0].done; }
  /// The slot of all, once done().
  int root() const { return levels_.empty() ? empty : levels_.back()[0].slot; }

 private:
  struct Node {
    bool done = false;
    int slot = empty;
  };
  std::vector<std::vector<Node>> levels_;
};

}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
