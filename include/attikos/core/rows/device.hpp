// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rows on a device: each is held in the registers of a few lanes or of a team of several warps, so
/// that it is read once; rows that do not fit are read again for every pass.
///
/// Lanes take neighbors of 16 bytes, two elements, or one, whichever all rows begin and end with: a
/// warp's accesses are one stretch of memory however narrow a lane's are. The order of sums depends
/// on extents, strides, alignment and device alone.
#pragma once

#include <attikos/core/rows/held_row.hpp>
#include <attikos/ptx/opaque.hpp>
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
  T* data = rows.data + outer * rows.outer_stride + index * rows.inner_stride;
#if defined(__CUDA_ARCH__)
  data = cuda::opaque_global(data);
#endif
  return {data, rows.stride, rows.size};
}

/// Whether every row of a tensor starts where `Count` neighbors may be moved at once and holds a
/// multiple of them; whether a vector along them does.
template <int Count, class T>
bool rows_move_at_once(Rows<T> const& rows) {
  constexpr std::int64_t step = pack_size<T, Count>;
  return moves_at_once<Count>(rows.data, rows.stride) && rows.size % Count == 0 &&
         (rows.inner <= 1 || rows.inner_stride % step == 0) &&
         (rows.outer <= 1 || rows.outer_stride % step == 0);
}
template <int Count, class T>
bool rows_move_at_once(TensorRef<T, 1> const& vector) {
  return moves_at_once<Count>(vector.data, vector.stride[0]);
}
template <int Count>
bool rows_move_at_once(Absent) {
  return true;
}

/// Neighbors that lanes may move at once in all of several: `Most`, two, one, or any_stride.
template <int Most, class... T>
int common_width(T const&... tensors) {
  if ((rows_move_at_once<Most>(tensors) && ...)) return Most;
  if constexpr (Most > 2)
    if ((rows_move_at_once<2>(tensors) && ...)) return 2;
  return (rows_move_at_once<1>(tensors) && ...) ? 1 : any_stride;
}

/// Calls launch() with `width`, which common_width<Most>() gave, as a constant.
template <int Most, class Launch>
void with_width(int width, Launch const& launch) {
  if (width == Most) return launch(std::integral_constant<int, Most>{});
  if constexpr (Most > 2)
    if (width == 2) return launch(std::integral_constant<int, 2>{});
  if constexpr (Most > 1)
    if (width == 1) return launch(std::integral_constant<int, 1>{});
  launch(std::integral_constant<int, any_stride>{});
}

/// Whether teams walk over rows that fit where several teams share a multiprocessor: for
/// operations that say so, because each row is waited for often. Others are as fast by a team for
/// each row.
template <class Op>
inline constexpr bool waits_often = requires {
  Op::waits_often;
};

/// Kernel body. `Op` has the types X, Out and Acc, `source(index)`, the row that is held, and
/// `device_row(row, index, others)`. `others` is what `vectors(row)` gives, if `Op` has that, for
/// all rows, or `beside(index)`, the numbers that a row has besides its elements. `Walks`: a team
/// takes every row at the distance of the league.
template <class Exec, class Op, int Items, int Width, Lanes Share, bool Walks>
struct DeviceRowKernel {
  // Few elements to a lane leave room for 1024 lanes. Rows that are under way, vectors that are
  // held and single elements need more than 64 registers.
  static constexpr int most_warps = Items <= few_items ? 32 : 16;
  static constexpr bool holds_more =
      Share != Lanes::warps_by_turn && (Walks || waits_often<Op> || elements_at_once<Width> == 1);
  static constexpr int teams_at_once = Items <= few_items || holds_more ? 1 : 2;
  /// Lanes of a multiprocessor that registers are left for.
  static constexpr int lanes_at_once = most_warps * 32 * teams_at_once;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::LaunchBounds<most_warps * 32, teams_at_once>>;
  using Team = typename Policy::member_type;
  using Held =
      HeldRow<typename Op::X, typename Op::Acc, Team, Items, Width, Share, Walks, most_warps>;

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
    Held row(team, shape);
    auto others = others_of(row, index);
    if constexpr (Walks) {
      row.announce(op.source(index));
      for (;;) {
        row.take_following();
        std::int64_t const next = index + distance;
        [[maybe_unused]] auto following = beside_of(next < shape.rows ? next : index);
        if (next < shape.rows)
          row.announce(op.source(next));
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

template <int Items, int Width, Lanes Share, bool Walks, class Exec, class Op>
void launch_device_rows_of(Exec const& exec, char const* operation, Op const& op, std::int64_t rows,
                           std::int64_t size) {
  using Kernel = DeviceRowKernel<Exec, Op, Items, Width, Share, Walks>;
  RowShape const shape = row_shape(rows, size, Items, Kernel::most_warps, Share != Lanes::few);
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

/// Launches `op` over rows of `size` elements, of which `Width` move at once in all that `op` loads
/// and stores.
template <int Width, class Exec, class Op>
void launch_rows_of_width(Exec const& exec, char const* operation, Op const& op, std::int64_t rows,
                          std::int64_t size) {
  if (rows == 0 || size == 0) return;
  check_row_counts(operation, rows, size);
  constexpr bool widest = Width == neighbors<typename Op::X, typename Op::Out>;
  constexpr int at_once = elements_at_once<Width>;
  constexpr int few = few_items, more = 2 * few, many = 4 * few;
  auto const launch_of = [&]<int Items, Lanes Share, bool Walks>() {
    launch_device_rows_of<Items, Width, Share, Walks>(exec, operation, op, rows, size);
  };
  constexpr bool is_double = std::is_same_v<typename Op::Acc, double>;
  constexpr bool waits = waits_often<Op> && widest;
  if constexpr (!is_double && Width != any_stride) {
    // Warps of which each has a short row would be more than run at once.
    bool const many_short = size <= 16 * many && 32 * rows > exec.concurrency();
    if (many_short || fills_device(exec, rows, size)) {
      if (size <= 16 * many) return launch_of.template operator()<many, Lanes::few, waits>();
      if (size <= many * 256) return launch_of.template operator()<many, Lanes::warps, waits>();
      if (size <= many * 512) return launch_of.template operator()<many, Lanes::warps, widest>();
      // A tile of 32 bits that is under way takes as many registers as the one that is held.
      constexpr bool walks = widest && (waits || sizeof(typename Op::X) <= 2);
      if constexpr (Width > 1)
        return launch_of.template operator()<more, Lanes::warps_by_turn, walks>();
    }
  }
  if (size <= 32 * at_once) return launch_of.template operator()<at_once, Lanes::few, false>();
  launch_of.template operator()<few, Lanes::warps_by_turn, false>();
}

/// The same by the `width` that common_width() gave.
template <class Exec, class Op>
void launch_device_rows(Exec const& exec, char const* operation, Op const& op, std::int64_t rows,
                        std::int64_t size, int width) {
  with_width<neighbors<typename Op::X, typename Op::Out>>(width, [&](auto w) {
    launch_rows_of_width<decltype(w)::value>(exec, operation, op, rows, size);
  });
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
