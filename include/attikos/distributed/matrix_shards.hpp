// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// MatrixShards: which rank holds which elements of a matrix, by rows, by columns or in blocks over
/// a grid of ranks, as ScaLAPACK has them.
#pragma once

#include <algorithm>
#include <attikos/distributed/shards.hpp>
#include <cstdint>
#include <utility>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {

/// The order in which ranks fill a grid; BLACS calls them 'R' and 'C'.
enum class GridOrder : std::uint8_t {
  row_major,    ///< rank r·grid_columns + c stands in row r and column c
  column_major  ///< rank c·grid_rows + r stands there
};

/// A matrix in blocks that are dealt out cyclically over a grid of ranks: ScaLAPACK's array
/// descriptor (L. S. Blackford et al., "ScaLAPACK Users' Guide", section 4.3), with global extents.
struct BlockCyclic {
  std::int64_t rows = 0, columns = 0;              ///< M_, N_
  std::int64_t block_rows = 1, block_columns = 1;  ///< MB_, NB_
  int grid_rows = 1, grid_columns = 1;             ///< of the BLACS context
  int first_row = 0, first_column = 0;             ///< RSRC_, CSRC_: who has the first block
  GridOrder order = GridOrder::row_major;          ///< of the BLACS context
};

/// Which rank holds which elements of a matrix: some of its rows, and of these some of its columns.
/// A value, the same on all ranks, which every call checks.
///
/// A rank's own matrix, [rows(rank), columns(rank)], has them in the order in which the constructor
/// says that they lie. Every element is held by exactly one rank; a rank may hold none.
class MatrixShards {
 public:
  /// Rows or columns [begin, end) of the whole, which on the rank begin at `local`.
  struct Run {
    std::int64_t begin = 0, end = 0, local = 0;
    bool operator==(Run const&) const = default;
  };

  MatrixShards() = default;

  /// Rows as `shards` deals out positions, packed sequences one behind the other; all columns.
  static MatrixShards by_rows(Shards const& shards, std::int64_t columns) {
    MatrixShards result(shards.total(), columns, shards.ranks());
    result.row_runs_ = runs_of(shards);
    result.column_runs_.assign(result.row_runs_.size(), whole(columns));
    return result;
  }
  /// All rows; columns as `shards` deals out positions.
  static MatrixShards by_columns(std::int64_t rows, Shards const& shards) {
    MatrixShards result(rows, shards.total(), shards.ranks());
    result.column_runs_ = runs_of(shards);
    result.row_runs_.assign(result.column_runs_.size(), whole(rows));
    return result;
  }
  /// ScaLAPACK's. Throws ShapeError for extents below 0, blocks and grids below 1, and a first
  /// block outside of the grid.
  static MatrixShards block_cyclic(BlockCyclic const& b) {
    check(b);
    MatrixShards result(b.rows, b.columns, b.grid_rows * b.grid_columns);
    result.column_major_ = true;
    for (int rank = 0; rank < b.grid_rows * b.grid_columns; ++rank) {
      bool const by_row = b.order == GridOrder::row_major;
      int const r = by_row ? rank / b.grid_columns : rank % b.grid_rows;
      int const c = by_row ? rank % b.grid_columns : rank / b.grid_rows;
      result.row_runs_.push_back(cyclic(b.rows, b.block_rows, b.grid_rows, r - b.first_row));
      result.column_runs_.push_back(
          cyclic(b.columns, b.block_columns, b.grid_columns, c - b.first_column));
    }
    return result;
  }

  int ranks() const { return static_cast<int>(row_runs_.size()); }
  /// Of the whole.
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  /// Of a rank's own matrix.
  std::int64_t rows(int rank) const { return extent(row_runs(rank)); }
  std::int64_t columns(int rank) const { return extent(column_runs(rank)); }

  /// What a rank holds, ascending.
  std::vector<Run> const& row_runs(int rank) const {
    return row_runs_[static_cast<std::size_t>(rank)];
  }
  std::vector<Run> const& column_runs(int rank) const {
    return column_runs_[static_cast<std::size_t>(rank)];
  }
  /// Whether the numbers of a column are expected to lie next to one another, as ScaLAPACK has
  /// them.
  bool column_major() const { return column_major_; }

  /// A number that two descriptions have in common if they are the same, and else hardly ever.
  std::int64_t fingerprint() const {
    detail::Fingerprint all;
    all.mix(rows_), all.mix(columns_), all.mix(column_major_ ? 1 : 0);
    for (auto const* of_ranks : {&row_runs_, &column_runs_})
      for (auto const& runs : *of_ranks) {
        all.mix(-1);
        for (Run const& run : runs) all.mix(run.begin), all.mix(run.end), all.mix(run.local);
      }
    return all.number();
  }
  bool operator==(MatrixShards const&) const = default;

 private:
  MatrixShards(std::int64_t rows, std::int64_t columns, int ranks)
      : rows_(rows), columns_(columns) {
    if (rows < 0 || columns < 0)
      detail::raise<ShapeError>("distributed::MatrixShards: a matrix of ", rows, " × ", columns,
                                "; expected extents of 0 or more");
    row_runs_.reserve(static_cast<std::size_t>(ranks));
    column_runs_.reserve(static_cast<std::size_t>(ranks));
  }

  static void check(BlockCyclic const& b) {
    if (b.block_rows < 1 || b.block_columns < 1)
      detail::raise<ShapeError>("distributed::MatrixShards: blocks of ", b.block_rows, " × ",
                                b.block_columns, "; expected extents of 1 or more");
    if (b.grid_rows < 1 || b.grid_columns < 1)
      detail::raise<ShapeError>("distributed::MatrixShards: a grid of ", b.grid_rows, " × ",
                                b.grid_columns, " ranks; expected extents of 1 or more");
    if (b.first_row < 0 || b.first_row >= b.grid_rows || b.first_column < 0 ||
        b.first_column >= b.grid_columns)
      detail::raise<ShapeError>("distributed::MatrixShards: the first block is at (", b.first_row,
                                ", ", b.first_column, "); expected a place in the grid of ",
                                b.grid_rows, " × ", b.grid_columns, " ranks");
  }
  /// The blocks of the rank that comes `distance` behind the one with the first block.
  static std::vector<Run> cyclic(std::int64_t extent, std::int64_t block, int ranks, int distance) {
    std::vector<Run> runs;
    std::int64_t local = 0;
    std::int64_t const first = (distance + ranks) % ranks * block, stride = ranks * block;
    for (std::int64_t begin = first; begin < extent; begin += stride) {
      std::int64_t const end = std::min(begin + block, extent);
      if (!runs.empty() && runs.back().end == begin)
        runs.back().end = end;
      else
        runs.push_back({begin, end, local});
      local += end - begin;
    }
    return runs;
  }
  static std::vector<Run> whole(std::int64_t extent) {
    return extent == 0 ? std::vector<Run>{} : std::vector<Run>{{0, extent, 0}};
  }
  static std::vector<std::vector<Run>> runs_of(Shards const& shards) {
    std::vector<std::vector<Run>> all;
    for (int rank = 0; rank < shards.ranks(); ++rank) {
      std::vector<Run> runs;
      for (Piece const& piece : shards.pieces(rank)) {
        std::int64_t const begin = shards.offset(piece.sequence) + piece.begin;
        runs.push_back({begin, begin + piece.rows(), piece.local});
      }
      std::sort(runs.begin(), runs.end(),
                [](Run const& a, Run const& b) { return a.begin < b.begin; });
      all.push_back(std::move(runs));
    }
    return all;
  }
  static std::int64_t extent(std::vector<Run> const& runs) {
    std::int64_t sum = 0;
    for (Run const& run : runs) sum += run.end - run.begin;
    return sum;
  }

  std::int64_t rows_ = 0, columns_ = 0;
  bool column_major_ = false;
  std::vector<std::vector<Run>> row_runs_, column_runs_;
};

}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
