// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Matrices that ranks hold in other ways. Where an element is to be, the test works out by
// ScaLAPACK's formulas, and for rows and columns from the pieces of the shards.
#include <attikos/distributed/redistribute.hpp>

#include "distributed/context_checks.hpp"
#include "distributed/thrown.hpp"

namespace attikos::test {
namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using distributed::BlockCyclic;
using distributed::GridOrder;
using distributed::MatrixShards;

template <class T>
using Matrix = Tensor<T, 2, Exec>;

/// Another number for nearly every element, exact in 8 bits.
double number_at(std::int64_t i, std::int64_t j) { return double((i * 37 + j * 11) % 127); }

/// A way to hold a matrix, and who has element (i, j) at which place.
struct Way {
  struct Place {
    int rank;
    std::int64_t row, column;
  };
  MatrixShards shards;
  std::function<Place(std::int64_t, std::int64_t)> place;
  std::string name;
};

Way cyclic(BlockCyclic const& b) {
  auto const owner = [](std::int64_t i, std::int64_t block, int ranks, int first) {
    return static_cast<int>((i / block + first) % ranks);
  };
  auto const local = [](std::int64_t i, std::int64_t block, int ranks) {
    return i / (block * ranks) * block + i % block;
  };
  return {MatrixShards::block_cyclic(b),
          [=](std::int64_t i, std::int64_t j) {
            int const r = owner(i, b.block_rows, b.grid_rows, b.first_row);
            int const c = owner(j, b.block_columns, b.grid_columns, b.first_column);
            int const rank =
                b.order == GridOrder::row_major ? r * b.grid_columns + c : c * b.grid_rows + r;
            return Way::Place{rank, local(i, b.block_rows, b.grid_rows),
                              local(j, b.block_columns, b.grid_columns)};
          },
          "blocks of " + std::to_string(b.block_rows) + " × " + std::to_string(b.block_columns) +
              " on " + std::to_string(b.grid_rows) + " × " + std::to_string(b.grid_columns)};
}

/// Rank and row of each position.
std::vector<std::pair<int, std::int64_t>> holders(Shards const& shards) {
  std::vector<std::pair<int, std::int64_t>> all(sz(shards.total()));
  for (int rank = 0; rank < shards.ranks(); ++rank)
    for (auto const& piece : shards.pieces(rank))
      for (std::int64_t i = 0; i < piece.rows(); ++i)
        all[sz(shards.offset(piece.sequence) + piece.begin + i)] = {rank, piece.local + i};
  return all;
}
Way by_rows(Shards const& shards, std::int64_t columns) {
  return {MatrixShards::by_rows(shards, columns),
          [all = holders(shards)](std::int64_t i, std::int64_t j) {
            return Way::Place{all[sz(i)].first, all[sz(i)].second, j};
          },
          "by rows"};
}
Way by_columns(std::int64_t rows, Shards const& shards) {
  return {MatrixShards::by_columns(rows, shards),
          [all = holders(shards)](std::int64_t i, std::int64_t j) {
            return Way::Place{all[sz(j)].first, i, all[sz(j)].second};
          },
          "by columns"};
}

std::vector<Way> ways(std::int64_t rows, std::int64_t columns) {
  int const n = ranks().size();
  std::vector<Way> all{by_rows(Shards::zigzag(rows, n), columns), by_rows(uneven(rows), columns),
                       by_columns(rows, Shards::contiguous(columns, n))};
  for (int p = 1; p <= n; ++p) {
    if (n % p != 0) continue;
    int const q = n / p;
    all.push_back(cyclic({rows, columns, 2, 3, p, q}));
    all.push_back(cyclic({rows, columns, 70, 5, p, q, p - 1, q / 2, GridOrder::column_major}));
  }
  return all;
}

template <class T>
Matrix<T> held(Way const& way, Layout layout) {
  int const rank = ranks().rank();
  Matrix<T> own({way.shards.rows(rank), way.shards.columns(rank)}, layout);
  for (std::int64_t i = 0; i < way.shards.rows(); ++i)
    for (std::int64_t j = 0; j < way.shards.columns(); ++j)
      if (auto const at = way.place(i, j); at.rank == rank)
        own.set(number_at(i, j), at.row, at.column);
  own.upload();
  return own;
}

template <class T>
void check_ways(std::int64_t rows, std::int64_t columns) {
  Layout const layouts[] = {Layout::left, Layout::padded, Layout::strided, Layout::right};
  auto const all = ways(rows, columns);
  int turn = 0;
  for (Way const& from : all) {
    auto const a = held<T>(from, layouts[turn++ % 4]);
    for (Way const& to : all) {
      // With many ranks there are many grids: each to and from rows.
      if (ranks().size() > 3 && &from != &all[0] && &to != &all[0]) continue;
      int const rank = ranks().rank();
      Matrix<T> b({to.shards.rows(rank), to.shards.columns(rank)}, layouts[turn++ % 4]);
      distributed::redistribute(Exec(), ranks(), from.shards, a.const_view(), to.shards, b.view());
      b.download();
      ASSERT_EQ(b.writes_outside(), 0u) << from.name << " to " << to.name;
      auto const wanted = held<T>(to, Layout::right);
      std::int64_t wrong = 0;
      b.for_each(
          [&](auto const& i) { wrong += b.value(i[0], i[1]) == wanted.value(i[0], i[1]) ? 0 : 1; });
      ASSERT_EQ(wrong, 0) << from.name << " to " << to.name << ", " << rows << " × " << columns;
    }
  }
}

TEST(Redistribute, EveryWayToEveryOther) {
  check_ways<double>(37, 29);
  check_ways<bfloat16>(130, 71);
  check_ways<std::int8_t>(7, 5);
  check_ways<float>(1, 1);
}
TEST(Redistribute, EmptyMatrices) {
  check_ways<float>(0, 5);
  check_ways<float>(5, 0);
}

TEST(Redistribute, DescriptionsThatAreNone) {
  EXPECT_THROW(MatrixShards::block_cyclic({-1, 4, 2, 2, 1, 1}), ShapeError);
  EXPECT_THROW(MatrixShards::block_cyclic({4, 4, 0, 2, 1, 1}), ShapeError);
  EXPECT_THROW(MatrixShards::block_cyclic({4, 4, 2, 2, 0, 1}), ShapeError);
  EXPECT_THROW(MatrixShards::block_cyclic({4, 4, 2, 2, 2, 1, 2, 0}), ShapeError);
  auto const one = MatrixShards::block_cyclic({4, 6, 2, 2, 2, 1});
  EXPECT_EQ(one, MatrixShards::block_cyclic({4, 6, 2, 2, 2, 1}));
  EXPECT_NE(one.fingerprint(), MatrixShards::block_cyclic({4, 6, 2, 2, 1, 2}).fingerprint());
}

TEST(Redistribute, RanksThatDisagreeAllThrow) {
  int const n = ranks().size(), rank = ranks().rank(), last = n - 1;
  auto const from = MatrixShards::block_cyclic({12, 8, 2, 2, n, 1});
  auto const to = MatrixShards::by_rows(Shards::contiguous(12, n), 8);
  Matrix<float> a({from.rows(rank), from.columns(rank)}), b({to.rows(rank), 8}, Layout::padded);
  // A block size of one rank that leaves it as many rows.
  auto const other = MatrixShards::block_cyclic({12, 8, 2, 4, n, 1});
  bool const odd = n > 1 && rank == last;
  // With one column of ranks both are the same way to hold the matrix.
  distributed::redistribute(Exec(), ranks(), odd ? other : from, a.const_view(), to, b.view());
  if (n > 1) {
    auto const turned = MatrixShards::block_cyclic({12, 8, 2, 2, n, 1, 1});
    Matrix<float> mine({turned.rows(rank), 8});
    std::string const text = thrown<ShapeError>([&] {
      distributed::redistribute(Exec(), ranks(), odd ? turned : from,
                                odd ? mine.const_view() : a.const_view(), to, b.view());
    });
    EXPECT_NE(text.find("rank " + std::to_string(last) + " has other from than rank 0"),
              std::string::npos)
        << text;
  }
  Matrix<float> wrong({to.rows(rank) + 1, 8});
  std::string const extent = thrown<ShapeError>(
      [&] { distributed::redistribute(Exec(), ranks(), from, a.const_view(), to, wrong.view()); });
  EXPECT_NE(extent.find("b is"), std::string::npos) << extent;
  EXPECT_NE(extent.find("this rank's rows of to"), std::string::npos) << extent;
  std::string const whole = thrown<ShapeError>([&] {
    distributed::redistribute(Exec(), ranks(), from, a.const_view(),
                              MatrixShards::by_rows(Shards::contiguous(13, n), 8), b.view());
  });
  EXPECT_NE(whole.find("expected the same matrix"), std::string::npos) << whole;
  std::string const group = thrown<ShapeError>([&] {
    distributed::redistribute(Exec(), ranks(), MatrixShards::block_cyclic({12, 8, 2, 2, n + 1, 1}),
                              a.const_view(), to, b.view());
  });
  EXPECT_NE(group.find("expected the communicator's"), std::string::npos) << group;
  EXPECT_THROW(distributed::redistribute(Exec(), ranks(), to, b.const_view(), to, b.view()), Error);
}

}  // namespace
}  // namespace attikos::test
