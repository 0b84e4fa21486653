// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From the shape of a scale tensor to the granularity it stands for.
#pragma once

#include <attikos/abi/scale_grid.hpp>
#include <attikos/core/dispatch/to_abi.hpp>
#include <string>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Entries that share a factor in a blocked dimension: 2^7 = 128.
inline constexpr std::int32_t scale_block_shift = 7;

constexpr std::int64_t scale_blocks(std::int64_t extent) {
  return (extent + (std::int64_t{1} << scale_block_shift) - 1) >> scale_block_shift;
}

/// A scale tensor without its static type.
template <ExecutionSpace Exec, TensorLike S>
AnyTensor scale_tensor(S const& scale) {
  check_tensor<Exec, S>();
  static_assert(std::is_same_v<element_t<S>, float>, "attikos: scales are float");
  static_assert(rank_of<S> >= 1 && rank_of<S> <= 3, "attikos: scales have rank 1, 2 or 3");
  return any_tensor(scale);
}

/// What a scale belongs to: a matrix [rows, cols], or [batch, rows, cols] with rank 3.
struct ScaledMatrix {
  int rank;
  std::int64_t batch, rows, cols;
  /// The dimension that a scale of one rank less runs along: 0 for rows, 1 for columns.
  int vector_dimension = 0;
  /// Whether each row (column) may have its own factor.
  bool each_row = true, each_col = true;
};

inline std::string scale_shape_text(ScaledMatrix const& x) {
  std::string const lead = x.rank == 3 ? std::to_string(x.batch) + ", " : "";
  auto const shape = [&](std::int64_t rows, std::int64_t cols) {
    return "[" + lead + std::to_string(rows) + ", " + std::to_string(cols) + "]";
  };
  std::int64_t const row_blocks = scale_blocks(x.rows), col_blocks = scale_blocks(x.cols);
  std::string text = "[1] for the tensor, [" + lead +
                     std::to_string(x.vector_dimension == 0 ? x.rows : x.cols) + "]";
  if (x.each_row) text += " or " + shape(x.rows, 1) + " per row";
  if (x.each_col) text += (x.each_row ? ", " : " or ") + shape(1, x.cols) + " per column";
  if (x.each_row) text += ", " + shape(x.rows, col_blocks) + " per 1x128 block";
  if (x.each_col) text += ", " + shape(row_blocks, x.cols) + " per 128x1 block";
  return text + ", " + shape(row_blocks, col_blocks) + " per 128x128 block";
}

/// Granularity of one dimension; false if the extent stands for none.
inline bool scale_dimension(std::int64_t have, std::int64_t stride, std::int64_t extent, bool each,
                            std::int64_t& step, std::int32_t& shift) {
  step = have == 1 ? 0 : stride;
  shift = 0;
  if (have == 1 || (each && have == extent)) return true;
  shift = scale_block_shift;
  return have == scale_blocks(extent);
}

/// Strides and blocks of a scale; throws ShapeError, naming every accepted shape, if it has none of
/// them. The shapes never mean two things: where two coincide, so do their blocks. `x_text()` is
/// what a message says x is.
template <class Text>
abi::ScaleGrid scale_grid(char const* operation, char const* name, AnyTensor const& s,
                          ScaledMatrix const& x, Text const& x_text) {
  abi::ScaleGrid grid;
  grid.data = s.as<float>();
  auto const refuse = [&] {
    raise<ShapeError>(operation, ": ", name, " is ", describe(s), "; expected ",
                      scale_shape_text(x), ", of ", x_text());
  };
  if (s.rank == 1 && s.extent[0] == 1) return grid;
  // [batch, rows, cols], the leading dimension present where x has it.
  std::int64_t have[3] = {1, 1, 1}, stride[3] = {0, 0, 0};
  int const matrix = x.rank == 3 ? 1 : 0;
  if (s.rank == x.rank) {
    for (int r = 0; r < s.rank; ++r) {
      have[r + 1 - matrix] = s.extent[r];
      stride[r + 1 - matrix] = s.stride[r];
    }
  } else if (s.rank == x.rank - 1) {
    if (matrix == 1) have[0] = s.extent[0], stride[0] = s.stride[0];
    have[1 + x.vector_dimension] = s.extent[s.rank - 1];
    stride[1 + x.vector_dimension] = s.stride[s.rank - 1];
    if (have[1 + x.vector_dimension] != (x.vector_dimension == 0 ? x.rows : x.cols)) refuse();
  } else {
    refuse();
  }
  if (have[0] != 1 && have[0] != x.batch) refuse();
  grid.batch = have[0] == 1 ? 0 : stride[0];
  if (!scale_dimension(have[1], stride[1], x.rows, x.each_row, grid.row, grid.row_shift) ||
      !scale_dimension(have[2], stride[2], x.cols, x.each_col, grid.col, grid.col_shift))
    refuse();
  return grid;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
