// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// rms_norm_rope() on a device under the conditions of rope_device.hpp.
#pragma once

#include <attikos/norm/norm_rows.hpp>
#include <attikos/norm/rms_norm.hpp>
#include <attikos/norm/rope_device.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// rms_norm_rope() of one row: a token, or a head of it.
template <class Number, class In, class W, class Table, class Result>
struct RmsNormRopeDeviceRow {
  using Acc = Number;
  using X = In;
  using Out = Result;
  /// Neighbors that a lane rotates; more would take more registers than a large team has.
  static constexpr int width = neighbors<X, Out> < 4 ? neighbors<X, Out> : 4;

  GroupedRows<X const> x;
  TensorRef<W const, 1> weight;
  GroupedRows<Out> out;
  RotatedHeads<Table> way;
  RmsFactor<Acc> factor;

  KOKKOS_INLINE_FUNCTION Row<X const> source(std::int64_t index) const { return x(index); }

  template <class Held>
  KOKKOS_INLINE_FUNCTION void device_row(Held& row, std::int64_t index, Absent) const {
    auto const from = x(index);
    auto const to = out(index);
    Acc const squares = row.template sum<true>(from, [](Acc v) { return v * v; });
    Acc const f = factor(squares, from.size);
    std::int64_t const table_row = way.table_row(index);
    auto const half = static_cast<std::int32_t>(way.head_dim / 2);
    std::int32_t const parts = half / width;
    auto const units = static_cast<std::int32_t>(from.size / (2 * width));
    // Read again, from the nearest cache, so that one lane has both halves of a pair.
    for (std::int32_t unit = row.lane(); unit < units; unit += row.row_lanes()) {
      std::int32_t const i = unit % parts * width;
      std::int32_t const j = unit / parts * 2 * half + i;
      Acc first[width], second[width], weights[width];
      load_neighbors(from.data + j, first);
      load_neighbors(from.data + j + half, second);
      load_neighbors(weight.data + j, weights);
      for (int l = 0; l < width; ++l) first[l] *= f * weights[l];
      load_neighbors(weight.data + j + half, weights);
      for (int l = 0; l < width; ++l) second[l] *= f * weights[l];
      rotate_neighbors(way.rotation, table_row, i, first, second);
      store_rounded(to.data + j, first);
      store_rounded(to.data + j + half, second);
    }
  }
};

/// Launches rms_norm_rope() this way if the arguments allow it; says whether.
template <class Exec, class Acc, class X, class W, class Table, class Out>
bool rms_norm_rope_neighbors(Exec const& exec, char const* operation,
                             RmsNormRopeDeviceRow<Acc, X, W, Table, Out> const& op) {
  constexpr int width = neighbors<X, Out>;
  if (!rotates_neighbors<RmsNormRopeDeviceRow<Acc, X, W, Table, Out>::width>(op.way.rotation,
                                                                             op.way.head_dim) ||
      !rows_move_at_once<width>(op.x.rows) || !rows_move_at_once<width>(op.out.rows) ||
      !rows_move_at_once<width>(op.weight))
    return false;
  launch_rows_of_width<width>(exec, operation, op, op.x.count(), op.x.size);
  return true;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
