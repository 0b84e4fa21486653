// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Shards: which rank holds which positions of one or several sequences.
#pragma once

#include <algorithm>
#include <attikos/core/error.hpp>
#include <attikos/distributed/fingerprint.hpp>
#include <cstdint>
#include <functional>
#include <numeric>
#include <queue>
#include <string>
#include <utility>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {

/// Positions [begin, end) of one sequence. On the rank that holds them they are rows [local, local
/// + end − begin) of its tensors.
struct Piece {
  std::int64_t sequence = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t local = 0;

  std::int64_t rows() const { return end - begin; }
  bool operator==(Piece const&) const = default;
};

/// How a sequence is dealt out to ranks.
enum class Placement : std::uint8_t {
  contiguous,  ///< rank r holds the r-th of as many runs as there are ranks
  zigzag  ///< rank r holds runs r and 2·ranks − 1 − r of twice as many: what a causal mask
          ///< leaves to compute is then the same for all ranks
};

/// Which rank holds which positions of one sequence, or of several that are packed: a value, the
/// same on all ranks, which every call checks.
///
/// The rows of a rank's tensors are its pieces one after the other, in the order of pieces(rank).
/// Every position is held by exactly one rank; a rank may hold none.
class Shards {
 public:
  Shards() = default;

  /// One sequence of `length` positions. Boundaries between ranks are multiples of `granularity`.
  static Shards contiguous(std::int64_t length, int ranks, std::int64_t granularity = 1) {
    return packed({0, length}, ranks, Placement::contiguous, granularity);
  }
  static Shards zigzag(std::int64_t length, int ranks, std::int64_t granularity = 1) {
    return packed({0, length}, ranks, Placement::zigzag, granularity);
  }

  /// One sequence, of which rank r holds the next rows[r] positions.
  static Shards uneven(std::vector<std::int64_t> const& rows) {
    Shards result;
    std::int64_t begin = 0;
    for (std::int64_t count : rows) {
      if (count < 0)
        detail::raise<ShapeError>("distributed::Shards: a rank has ", count,
                                  " rows; expected 0 or more");
      result.pieces_.emplace_back();
      if (count > 0) result.pieces_.back().push_back({0, begin, begin + count, 0});
      begin += count;
    }
    result.lengths_ = {begin};
    result.finish();
    return result;
  }

  /// Packed sequences, each dealt out to all ranks: sequence s has positions [cu_seqlens[s],
  /// cu_seqlens[s + 1]) of the whole. A sequence that is shorter than there are ranks leaves some
  /// of them without any of it.
  static Shards packed(std::vector<std::int64_t> const& cu_seqlens, int ranks,
                       Placement placement = Placement::zigzag, std::int64_t granularity = 1) {
    if (ranks < 1 || granularity < 1 || cu_seqlens.empty())
      detail::raise<ShapeError>("distributed::Shards: ", ranks, " ranks, granularity ", granularity,
                                ", ", cu_seqlens.size(), " offsets; expected at least one of each");
    Shards result;
    result.take_lengths(cu_seqlens);
    result.pieces_.resize(static_cast<std::size_t>(ranks));
    for (std::int64_t s = 0; s < result.sequences(); ++s)
      result.deal_out(s, placement, granularity);
    result.finish();
    return result;
  }

  /// Packed sequences, as many as possible of which a rank holds whole: with full masks, or causal
  /// ones, no rank has more than 1 + tolerance of its share of the pairs of queries and keys. Those
  /// that are too long for that, the longest first, are dealt out to all ranks, contiguous or
  /// zigzag. Ranks may hold different numbers of positions. Attention among positions of a sequence
  /// is all that this goes by. Throws ShapeError as packed() does.
  static Shards balanced(std::vector<std::int64_t> const& cu_seqlens, int ranks,
                         bool causal = false, std::int64_t granularity = 1,
                         double tolerance = 0.02) {
    if (ranks < 1 || granularity < 1 || cu_seqlens.empty() || !(tolerance >= 0))
      detail::raise<ShapeError>("distributed::Shards: ", ranks, " ranks, granularity ", granularity,
                                ", ", cu_seqlens.size(), " offsets, tolerance ", tolerance,
                                "; expected at least one of each, and a tolerance of 0 or more");
    Shards result;
    result.take_lengths(cu_seqlens);
    result.pieces_.resize(static_cast<std::size_t>(ranks));
    std::size_t const count = result.lengths_.size();
    std::vector<double> pairs(count);
    std::vector<std::size_t> longest_first(count);
    for (std::size_t s = 0; s < count; ++s) {
      double const length = static_cast<double>(result.lengths_[s]);
      pairs[s] = causal ? length * (length + 1) / 2 : length * length;
      longest_first[s] = s;
    }
    std::stable_sort(longest_first.begin(), longest_first.end(),
                     [&](std::size_t a, std::size_t b) { return pairs[a] > pairs[b]; });
    double const all = std::accumulate(pairs.begin(), pairs.end(), 0.0);
    std::vector<int> holders;
    double dealt_out = 0;  // pairs of the sequences that are
    for (std::size_t split = 0; split <= count; ++split) {
      double const most = give_whole(longest_first, split, pairs, ranks, holders);
      if (most * ranks + dealt_out <= (1 + tolerance) * all) break;
      if (split < count) dealt_out += pairs[longest_first[split]];
    }
    for (std::size_t s = 0; s < count; ++s) {
      if (holders[s] < 0)
        result.deal_out(static_cast<std::int64_t>(s),
                        causal ? Placement::zigzag : Placement::contiguous, granularity);
      else
        add(result.pieces_[static_cast<std::size_t>(holders[s])],
            {static_cast<std::int64_t>(s), 0, result.lengths_[s], 0});
    }
    result.finish();
    return result;
  }

  /// Anything else: the lengths of the sequences and, for each rank, its pieces in the order of its
  /// rows (`local` is worked out here). Throws ShapeError unless every position has one rank.
  static Shards of_pieces(std::vector<std::int64_t> lengths,
                          std::vector<std::vector<Piece>> pieces) {
    Shards result;
    result.lengths_ = std::move(lengths);
    result.pieces_ = std::move(pieces);
    std::vector<Piece> all;
    for (auto const& of_rank : result.pieces_) {
      for (Piece const& piece : of_rank) {
        if (piece.sequence < 0 || piece.sequence >= result.sequences() || piece.begin < 0 ||
            piece.begin >= piece.end ||
            piece.end > result.lengths_[static_cast<std::size_t>(piece.sequence)])
          detail::raise<ShapeError>("distributed::Shards: positions [", piece.begin, ", ",
                                    piece.end, ") of sequence ", piece.sequence,
                                    "; expected some within one of the ", result.sequences(),
                                    " sequences");
        all.push_back(piece);
      }
    }
    std::sort(all.begin(), all.end(), [](Piece const& a, Piece const& b) {
      return std::pair(a.sequence, a.begin) < std::pair(b.sequence, b.begin);
    });
    std::int64_t held = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      held += all[i].rows();
      if (i > 0 && all[i].sequence == all[i - 1].sequence && all[i].begin < all[i - 1].end)
        detail::raise<ShapeError>("distributed::Shards: position ", all[i].begin, " of sequence ",
                                  all[i].sequence, " is held twice; expected once");
    }
    if (held != result.total())
      detail::raise<ShapeError>("distributed::Shards: ", held, " of ", result.total(),
                                " positions are held; expected all");
    result.finish();
    return result;
  }

  int ranks() const { return static_cast<int>(pieces_.size()); }
  std::int64_t sequences() const { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t length(std::int64_t sequence) const {
    return lengths_[static_cast<std::size_t>(sequence)];
  }
  /// Positions of all sequences.
  std::int64_t total() const {
    std::int64_t sum = 0;
    for (std::int64_t length : lengths_) sum += length;
    return sum;
  }
  /// Where a sequence begins when all of them lie one after the other.
  std::int64_t offset(std::int64_t sequence) const {
    std::int64_t sum = 0;
    for (std::int64_t s = 0; s < sequence; ++s) sum += length(s);
    return sum;
  }
  /// What a rank holds, in the order of its rows.
  std::vector<Piece> const& pieces(int rank) const {
    return pieces_[static_cast<std::size_t>(rank)];
  }
  std::int64_t rows(int rank) const {
    auto const& held = pieces(rank);
    return held.empty() ? 0 : held.back().local + held.back().rows();
  }
  std::int64_t max_rows() const {
    std::int64_t most = 0;
    for (int r = 0; r < ranks(); ++r) most = std::max(most, rows(r));
    return most;
  }
  /// The same sequences on one rank.
  Shards whole() const {
    std::vector<std::int64_t> offsets{0};
    for (std::int64_t length : lengths_) offsets.push_back(offsets.back() + length);
    return packed(offsets, 1, Placement::contiguous);
  }
  /// What runs of `count` neighboring ranks hold together, each run as one rank, whose rows are in
  /// the order of positions. Throws ShapeError unless the ranks make up whole runs.
  Shards joined(int count) const {
    if (count < 1 || ranks() % count != 0)
      detail::raise<ShapeError>("distributed::Shards: ", ranks(), " ranks in runs of ", count,
                                "; expected a divisor of their number");
    Shards result;
    result.lengths_ = lengths_;
    for (int first = 0; first < ranks(); first += count) {
      std::vector<Piece> all;
      for (int r = first; r < first + count; ++r)
        all.insert(all.end(), pieces(r).begin(), pieces(r).end());
      std::sort(all.begin(), all.end(), [](Piece const& a, Piece const& b) {
        return std::pair(a.sequence, a.begin) < std::pair(b.sequence, b.begin);
      });
      result.pieces_.emplace_back();
      for (Piece const& piece : all) add(result.pieces_.back(), piece);
    }
    result.finish();
    return result;
  }
  /// Of these keys those whose sequences have queries on other ranks, too, where `queries` says who
  /// has which: what a rank does not send has no place in it.
  Shards shared_with(Shards const& queries) const {
    std::vector<int> first(lengths_.size(), -1), last(lengths_.size(), -1);  // ranks of queries
    for (int r = 0; r < queries.ranks(); ++r)
      for (Piece const& piece : queries.pieces(r)) {
        auto const s = static_cast<std::size_t>(piece.sequence);
        if (first[s] < 0) first[s] = r;
        last[s] = r;
      }
    Shards result;
    result.lengths_ = lengths_;
    for (int r = 0; r < ranks(); ++r) {
      result.pieces_.emplace_back();
      for (Piece const& piece : pieces(r)) {
        auto const s = static_cast<std::size_t>(piece.sequence);
        if (first[s] >= 0 && (first[s] != r || last[s] != r))
          result.pieces_.back().push_back(piece);
      }
    }
    result.finish();
    return result;
  }
  /// Whether no piece begins in the middle of a block of `block` positions of its sequence.
  bool aligned_to(std::int64_t block) const {
    for (auto const& of_rank : pieces_)
      for (Piece const& piece : of_rank)
        if (piece.begin % block != 0 ||
            (piece.end % block != 0 && piece.end != length(piece.sequence)))
          return false;
    return true;
  }
  /// A number that two descriptions have in common if they are the same, and else hardly ever.
  std::int64_t fingerprint() const {
    detail::Fingerprint all;
    for (std::int64_t length : lengths_) all.mix(length);
    for (auto const& of_rank : pieces_) {
      all.mix(-1);
      for (Piece const& piece : of_rank)
        all.mix(piece.sequence), all.mix(piece.begin), all.mix(piece.end);
    }
    return all.number();
  }
  bool operator==(Shards const&) const = default;

 private:
  /// Joined with the piece before it where they meet.
  static void add(std::vector<Piece>& pieces, Piece const& piece) {
    if (piece.begin == piece.end) return;
    if (!pieces.empty() && pieces.back().sequence == piece.sequence &&
        pieces.back().end == piece.begin)
      pieces.back().end = piece.end;
    else
      pieces.push_back(piece);
  }
  void take_lengths(std::vector<std::int64_t> const& cu_seqlens) {
    for (std::size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
      if (cu_seqlens[s + 1] < cu_seqlens[s])
        detail::raise<ShapeError>("distributed::Shards: cu_seqlens goes from ", cu_seqlens[s],
                                  " to ", cu_seqlens[s + 1], "; expected ascending offsets");
      lengths_.push_back(cu_seqlens[s + 1] - cu_seqlens[s]);
    }
  }
  /// Adds a part of a sequence to the pieces of every rank.
  void deal_out(std::int64_t sequence, Placement placement, std::int64_t granularity) {
    std::int64_t const length = lengths_[static_cast<std::size_t>(sequence)];
    std::int64_t const ranks = static_cast<std::int64_t>(pieces_.size());
    std::int64_t const runs = placement == Placement::zigzag ? 2 * ranks : ranks;
    std::int64_t const granules = (length + granularity - 1) / granularity;
    auto const boundary = [&](std::int64_t run) {
      return std::min(granules * run / runs * granularity, length);
    };
    for (std::int64_t r = 0; r < ranks; ++r) {
      auto& pieces = pieces_[static_cast<std::size_t>(r)];
      add(pieces, {sequence, boundary(r), boundary(r + 1), 0});
      if (placement == Placement::zigzag)
        add(pieces, {sequence, boundary(runs - 1 - r), boundary(runs - r), 0});
    }
  }
  /// Gives each sequence behind the first `split` of them, in this order, to the rank that has
  /// least so far; holders: the rank of each, -1 of the others.
  /// \return what the fullest rank has
  static double give_whole(std::vector<std::size_t> const& sequences, std::size_t split,
                           std::vector<double> const& costs, int ranks, std::vector<int>& holders) {
    using Load = std::pair<double, int>;
    std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
    for (int r = 0; r < ranks; ++r) loads.emplace(0, r);
    holders.assign(costs.size(), -1);
    double most = 0;
    for (std::size_t i = split; i < sequences.size(); ++i) {
      auto const [load, rank] = loads.top();
      loads.pop();
      holders[sequences[i]] = rank;
      double const more = load + costs[sequences[i]];
      most = std::max(most, more);
      loads.emplace(more, rank);
    }
    return most;
  }
  void finish() {
    if (pieces_.empty())
      detail::raise<ShapeError>("distributed::Shards: 0 ranks; expected at least one");
    for (auto& of_rank : pieces_) {
      std::int64_t local = 0;
      for (Piece& piece : of_rank) {
        piece.local = local;
        local += piece.rows();
      }
    }
  }

  std::vector<std::int64_t> lengths_;
  std::vector<std::vector<Piece>> pieces_;
};

}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
