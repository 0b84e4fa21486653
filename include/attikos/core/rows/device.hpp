// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rows on a device: each is held in the registers of a few lanes or of a team of several warps, so
/// that it is read once; rows that do not fit are read again for every pass.
///
/// Lanes take neighbors of 16 bytes, shifted to where the row begins if that is between them, and
/// single elements where strides allow no more. The order of sums depends on extents, strides,
/// alignment and device alone.
#pragma once

#include <attikos/core/rows/held_row.hpp>
#include <limits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Elements that move together in a row operation that reads X and writes Out.
template <class X, class Out>
inline constexpr int neighbors = [] {
  constexpr int largest = static_cast<int>(sizeof(X) > sizeof(Out) ? sizeof(X) : sizeof(Out));
  return widest_access / largest < 8 ? widest_access / largest : 8;
}();

/// Row `index`, which 32 bits hold, without the long divisions of Rows.
template <class T>
KOKKOS_INLINE_FUNCTION Row<T> device_row_of(Rows<T> const& rows, std::int64_t index) {
  std::int64_t outer = 0;
  if (rows.outer != 1) {
    outer = static_cast<std::uint32_t>(index) / static_cast<std::uint32_t>(rows.inner);
    index -= outer * rows.inner;
  }
  return {rows.data + outer * rows.outer_stride + index * rows.inner_stride, rows.stride,
          rows.size};
}

/// Whether every row of a tensor starts where `Count` neighbors may be moved at once and holds a
/// multiple of them.
template <int Count, class T>
bool rows_move_at_once(Rows<T> const& rows) {
  constexpr std::int64_t step = pack_size<T, Count>;
  return moves_at_once<Count>(rows.data, rows.stride) && rows.size % Count == 0 &&
         (rows.inner <= 1 || rows.inner_stride % step == 0) &&
         (rows.outer <= 1 || rows.outer_stride % step == 0);
}

/// How the lanes of a device reach the elements of rows and of vectors along them.
enum class Access {
  aligned,  ///< as neighbors that move at once
  shifted,  ///< as neighbors in packs that do not begin and end where the lanes' parts do
  single    ///< one by one
};

/// Shorter rows go one by one: lanes of a warp then ask for most of one, and to shift packs would
/// take longer than they save.
template <class T>
inline constexpr std::int64_t shortest_shifted = 64 * static_cast<std::int64_t>(sizeof(T));

template <int Count, class T>
Access access_to(Rows<T> const& rows) {
  if (rows_move_at_once<Count>(rows)) return Access::aligned;
  return rows.stride == 1 && rows.size >= shortest_shifted<T> ? Access::shifted : Access::single;
}
template <int Count, class T>
Access access_to(TensorRef<T, 1> const& vector) {
  if (moves_at_once<Count>(vector.data, vector.stride[0])) return Access::aligned;
  return vector.stride[0] == 1 ? Access::shifted : Access::single;
}
template <int Count>
Access access_to(Absent) {
  return Access::aligned;
}
/// What all of several allow.
template <int Count, class... T>
Access common_access(T const&... tensors) {
  return std::max({access_to<Count>(tensors)...});
}

/// How row `index` of `rows` that `op` stores lies behind a boundary of packs.
template <int Width, bool Shifts, class Op>
KOKKOS_INLINE_FUNCTION RowStart row_start(Op const& op, std::int64_t index, std::int64_t rows) {
  RowStart start{0, index + 1 == rows};
  if constexpr (Shifts)
    start.ahead = elements_past_boundary<typename Op::Out, Width>(op.target(index).data);
  return start;
}

/// Kernel body. `Op` has the types X, Out and Acc, `source(index)`, the row that is held,
/// `device_row(row, index, others)` and, if its rows may be shifted, `target(index)`, the one that
/// is stored. `others` is what `vectors(row)` gives, if `Op` has that, for all rows, or
/// `beside(index)`, the numbers that a row has besides its elements. `Walks`: a team takes every
/// row at the distance of the league.
template <class Exec, class Op, int Items, int Width, bool Fits, bool Shifts, bool Walks>
struct DeviceRowKernel {
  // Few elements to a lane leave room for 1024 lanes; many need more than 64 registers.
  static constexpr int most_warps = Items == few_items ? 32 : 16;
  // Shifted rows of 16 bits are short of rows in flight rather than of registers.
  static constexpr bool fills_lanes =
      Items == few_items || (Fits && !(Shifts && sizeof(typename Op::X) <= 2));
  static constexpr int teams_at_once = fills_lanes ? 1 : 2;
  /// Lanes of a multiprocessor that registers are left for.
  static constexpr int lanes_at_once = most_warps * 32 * teams_at_once;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::LaunchBounds<most_warps * 32, teams_at_once>>;
  using Team = typename Policy::member_type;
  using Held = HeldRow<typename Op::X, typename Op::Acc, Team, Items, Width, Fits, Shifts, Walks>;

  Op op;
  RowShape shape;

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    std::int64_t index = team.league_rank();
    [[maybe_unused]] std::int64_t distance = team.league_size();
    if (shape.warps == 1) {
      index = index * team.team_size() + team.team_rank();
      distance *= team.team_size();
      if (index >= shape.rows) return;
    }
    Held row(team, shape, start_of(index));
    auto others = others_of(row, index);
    if constexpr (Walks) {
      row.announce(op.source(index), start_of(index));
      for (;;) {
        row.take_following();
        std::int64_t const next = index + distance;
        [[maybe_unused]] auto following = beside_of(next < shape.rows ? next : index);
        if (next < shape.rows)
          row.announce(op.source(next), start_of(next));
        else
          row.announce_none();
        op.device_row(row, index, others);
        if (next >= shape.rows) break;
        index = next;
        if constexpr (is_present<decltype(following)>) others = following;
      }
    } else {
      row.load(op.source(index));
      op.device_row(row, index, others);
    }
  }

 private:
  KOKKOS_INLINE_FUNCTION RowStart start_of(std::int64_t index) const {
    return row_start<Width, Shifts>(op, index, shape.rows);
  }
  KOKKOS_INLINE_FUNCTION auto others_of(Held const& row, std::int64_t index) const {
    if constexpr (requires { op.vectors(row); })
      return op.vectors(row);
    else
      return beside_of(index);
  }
  KOKKOS_INLINE_FUNCTION auto beside_of(std::int64_t index) const {
    if constexpr (requires { op.beside(index); })
      return op.beside(index);
    else
      return Absent{};
  }
};

/// Teams of `lanes` lanes that a device runs at once where `lanes_at_once` fit on a multiprocessor.
template <class Exec>
std::int64_t resident_teams(Exec const& exec, int lanes_at_once, int lanes) {
  return std::int64_t{multiprocessors_of(exec)} * std::max(lanes_at_once / lanes, 1);
}

template <int Items, int Width, bool Fits, bool Shifts, bool Walks, class Exec, class Op>
void launch_device_rows_of(Exec const& exec, char const* operation, Op const& op, std::int64_t rows,
                           std::int64_t size) {
  using Kernel = DeviceRowKernel<Exec, Op, Items, Width, Fits, Shifts, Walks>;
  RowShape const shape = row_shape(rows, size, Items, Kernel::most_warps, Shifts ? Width - 1 : 0);
  int const rows_per_team = shape.warps > 1 ? 1 : 256 / shape.lanes;
  int const threads = shape.warps > 1 ? shape.warps : rows_per_team;
  std::int64_t teams = (rows + rows_per_team - 1) / rows_per_team;
  if constexpr (Walks)
    teams = std::min(teams, resident_teams(exec, Kernel::lanes_at_once, threads * shape.lanes));
  typename Kernel::Policy policy(exec, checked_league(operation, teams), threads, shape.lanes);
  if (shape.warps > 1)
    policy.set_scratch_size(
        0, Kokkos::PerTeam(static_cast<int>(Kernel::Held::slots * sizeof(typename Op::Acc))));
  launch(operation, "portable", policy, Kernel{op, shape});
}

/// Throws UnsupportedError for more rows, or longer ones, than 32 bits count.
inline void check_row_counts(char const* operation, std::int64_t rows, std::int64_t size) {
  constexpr std::int64_t longest = std::numeric_limits<std::int32_t>::max() / 2;
  if (size > longest || rows > std::numeric_limits<std::uint32_t>::max())
    raise<UnsupportedError>(operation, ": ", rows, " rows of ", size,
                            " elements; expected at most 4294967295 rows of ", longest,
                            " on a device");
}

/// Whether rows in the shortest pieces are more than a device runs at once. Where they are not,
/// such pieces wait less for memory.
template <class Exec>
bool fills_device(Exec const& exec, std::int64_t rows, std::int64_t size) {
  std::int64_t const lanes = size < few_items * 1024 ? (size + few_items - 1) / few_items : 1024;
  return rows * lanes > exec.concurrency();
}

/// Whether teams walk over rows that fit where several teams share a multiprocessor: for
/// operations that say so, because each row is waited for often. Others are as fast by a team for
/// each row.
template <class Op>
inline constexpr bool waits_often = requires {
  Op::waits_often;
};

/// Launches `op` over rows of `size` elements, all of which move by neighbors.
template <class Exec, class Op>
void launch_neighbor_rows(Exec const& exec, char const* operation, Op const& op, std::int64_t rows,
                          std::int64_t size) {
  if (rows == 0 || size == 0) return;
  check_row_counts(operation, rows, size);
  constexpr int width = neighbors<typename Op::X, typename Op::Out>;
  constexpr int few = few_items, more = 2 * few, many = 4 * few;
  if constexpr (!std::is_same_v<typename Op::Acc, double>) {
    if (fills_device(exec, rows, size)) {
      constexpr bool waits = waits_often<Op>;
      if (size <= many * 256)
        return launch_device_rows_of<many, width, true, false, waits>(exec, operation, op, rows,
                                                                      size);
      if (size <= many * 512)
        return launch_device_rows_of<many, width, true, false, true>(exec, operation, op, rows,
                                                                     size);
      // A tile of 32 bits that is under way takes as many registers as the one that is held.
      constexpr bool walks = waits || sizeof(typename Op::X) <= 2;
      return launch_device_rows_of<more, width, false, false, walks>(exec, operation, op, rows,
                                                                     size);
    }
  }
  launch_device_rows_of<few, width, false, false, false>(exec, operation, op, rows, size);
}

/// Launches `op` over rows of `size` elements. `access`: to all that `op` loads and stores.
template <class Exec, class Op>
void launch_device_rows(Exec const& exec, char const* operation, Op const& op, std::int64_t rows,
                        std::int64_t size, Access access) {
  if (access == Access::aligned) return launch_neighbor_rows(exec, operation, op, rows, size);
  if (rows == 0 || size == 0) return;
  check_row_counts(operation, rows, size);
  constexpr int width = neighbors<typename Op::X, typename Op::Out>;
  // Single elements of 64 bits fill a warp's accesses.
  if constexpr (!std::is_same_v<typename Op::Acc, double> && requires { op.target(rows); }) {
    if (access == Access::shifted) {
      constexpr int many = 4 * few_items;
      if (fills_device(exec, rows, size) && size + width <= many * 512)
        return launch_device_rows_of<many, width, true, true, false>(exec, operation, op, rows,
                                                                     size);
      return launch_device_rows_of<few_items, width, false, true, false>(exec, operation, op, rows,
                                                                         size);
    }
  }
  launch_device_rows_of<few_items, 1, false, false, false>(exec, operation, op, rows, size);
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
