// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the tests of row-wise operations share: a tensor of rows in any layout, and its rows as
// vectors for the oracles.
#pragma once

#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/shapes.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance.hpp"

namespace attikos::test {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// What a comparison calls an operation of case C.
template <class C>
std::string name_of(char const* op) {
  return std::string(op) + "/" + type_name<typename C::T>() + "/" + C::Exec::name();
}

/// Row (b, i) of a rank 3 tensor.
template <class Tensor3>
std::vector<double> row_of(Tensor3 const& x, std::int64_t b, std::int64_t i) {
  std::vector<double> row;
  for (std::int64_t c = 0; c < x.extent(2); ++c) row.push_back(x.value(b, i, c));
  return row;
}

template <class Tensor1>
std::vector<double> values_of(Tensor1 const& x) {
  std::vector<double> result;
  for (std::int64_t c = 0; c < x.extent(0); ++c) result.push_back(x.value(c));
  return result;
}

/// One call: [batch, rows, hidden], or [rows, hidden] where `flat`.
struct RowCase {
  std::int64_t batch, rows, hidden;
  Layout x = Layout::right, out = Layout::right;
  bool flat = false;
  bool in_place = false;
  std::int64_t row_step = 1, column_step = 1;  ///< of long rows and many, some are compared
};

/// The layout of a vector along the rows: neighbors, behind an odd base too, where those of x are.
inline Layout vector_layout(RowCase const& p) {
  return p.x == Layout::right || p.x == Layout::padded ? p.x : Layout::strided;
}

inline std::string describe(RowCase const& p) {
  std::ostringstream text;
  text << "[" << p.batch << ", " << p.rows << ", " << p.hidden << "] layouts " << layout_name(p.x)
       << ", " << layout_name(p.out) << " flat " << p.flat << " in place " << p.in_place;
  return text.str();
}

/// Shapes x layouts x rank x in place, each with `check(RowCase)`.
template <class Check>
void for_row_cases(Check const& check) {
  for (auto hidden : row_lengths) {
    check(RowCase{1, 5, hidden, Layout::right, Layout::right, true, false});
    check(RowCase{2, 3, hidden, Layout::padded, Layout::right, false, true});
  }
  for (Layout x : all_layouts) {
    for (Layout out : all_layouts) {
      check(RowCase{2, 7, 37, x, out, false, false});
      check(RowCase{1, 9, 16, x, out, true, false});
    }
    check(RowCase{2, 7, 37, x, x, false, true});
    check(RowCase{1, 9, 33, x, x, true, true});
  }
  check(RowCase{3, 67, 48, Layout::right, Layout::right, false, false});
  for (auto [b, r, h] : {std::array<std::int64_t, 3>{0, 3, 4}, {2, 0, 4}, {2, 3, 0}, {0, 0, 0}}) {
    check(RowCase{b, r, h});
    if (b == 2) check(RowCase{1, r, h, Layout::right, Layout::right, true, false});
  }
}

/// Rows that a device deals out in other ways than short ones and few: many elements to a lane of
/// one warp and of several, and more than registers hold, next to one another or not. A host needs
/// few rows for that.
template <class Exec, class Check>
void for_long_row_cases(Check const& check) {
  constexpr bool host = is_host_space<Exec>;
  auto const many = [](std::int64_t rows) { return host ? 3 : rows; };
  check(RowCase{.batch = 1, .rows = many(2300), .hidden = 1024, .row_step = 97, .column_step = 7});
  check(RowCase{.batch = 1,
                .rows = many(300),
                .hidden = 8192,
                .in_place = true,
                .row_step = 59,
                .column_step = 101});
  check(RowCase{.batch = 1, .rows = 2, .hidden = 20000, .in_place = true, .column_step = 333});
  // More than a device works on at once, so that a team has several.
  check(RowCase{.batch = 1,
                .rows = many(700),
                .hidden = 16384,
                .in_place = true,
                .row_step = 131,
                .column_step = 509});
  check(
      RowCase{.batch = 1, .rows = many(700), .hidden = 20000, .row_step = 131, .column_step = 509});
  // The same where rows begin and end between the places that 16 bytes move from.
  check(RowCase{.batch = 1, .rows = many(2300), .hidden = 1031, .row_step = 97, .column_step = 3});
  check(RowCase{.batch = 1,
                .rows = many(300),
                .hidden = 8191,
                .x = Layout::padded,
                .in_place = true,
                .row_step = 59,
                .column_step = 13});
  check(RowCase{.batch = 1,
                .rows = many(300),
                .hidden = 16383,
                .out = Layout::padded,
                .row_step = 89,
                .column_step = 29});
  check(RowCase{.batch = 1, .rows = 2, .hidden = 20001, .x = Layout::padded, .column_step = 31});
  check(RowCase{.batch = 1, .rows = 2, .hidden = 9001, .column_step = 250});
  check(RowCase{.batch = 1,
                .rows = 3,
                .hidden = 9001,
                .x = Layout::strided,
                .out = Layout::left,
                .column_step = 300});
}

/// Rows of gradients that a device holds in registers, by more elements to a lane the longer they
/// are, and that it goes through in tiles; several rows to a sum, beginning anywhere. Whose bounds
/// take long may keep to the steps.
template <class Exec, class Check>
void for_long_gradient_cases(Check const& check) {
  constexpr bool host = is_host_space<Exec>;
  std::int64_t const rows = host ? 2 : 40;
  // Several rows to a chunk, too.
  for (std::int64_t hidden : {264, 263})
    check(RowCase{
        .batch = 1, .rows = host ? 2 : 1100, .hidden = hidden, .row_step = 13, .column_step = 113});
  for (std::int64_t hidden : {4097, 8192, 8193, 16384, 16383, 16400, 16385})
    check(RowCase{.batch = 1, .rows = rows, .hidden = hidden, .row_step = 13, .column_step = 113});
  for (std::int64_t hidden : {8190, 10760, 16390})
    check(RowCase{.batch = 1,
                  .rows = rows,
                  .hidden = hidden,
                  .x = Layout::padded,
                  .row_step = 13,
                  .column_step = 113});
}

/// Runs `op(x view, out view)` for one case; afterwards x holds the inputs and `out` the results.
template <class Exec, class T, class Op>
void run_rows(RowCase const& p, Tensor<T, 3, Exec>& x, Tensor<T, 3, Exec>& out, Op const& op) {
  if (p.in_place) {
    out = x;  // a deep copy on the host, a shared buffer on the device
    if (p.flat) {
      op(x.front(), x.front());
    } else {
      op(x.view(), x.view());
    }
  } else if (p.flat) {
    op(x.const_front(), out.front());
  } else {
    op(x.const_view(), out.view());
  }
  out.download();
  EXPECT_EQ(out.writes_outside(), 0u) << describe(p);
}

/// Exactly this error with exactly this text.
template <class E, class F>
void expect_message(F const& f, std::string const& expected) {
  try {
    f();
    ADD_FAILURE() << "nothing was thrown; expected " << expected;
  } catch (E const& error) {
    EXPECT_EQ(std::string(error.what()), expected);
  }
}

}  // namespace attikos::test
