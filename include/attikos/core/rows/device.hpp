// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rows on a device: each is held in the registers of a few lanes or of a team of several warps, so
/// that it is read once; rows that do not fit are read again for every pass.
///
/// Lanes take neighbors of 16 bytes, shifted to where the row begins if that is between them, and
/// single elements where strides allow no more. The order of sums depends on extents, strides,
/// alignment and device alone.
#pragma once

#include <attikos/core/rows/lanes.hpp>
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

/// Elements that a lane takes of a row at least.
inline constexpr int few_items = 8;
/// Bytes of a vector along the rows that a lane keeps from one row to the next, at most.
inline constexpr int most_vector_bytes = 64;

/// One lane's part of a row in registers. Sums and maxima are the whole row's, and every lane of
/// the row gets them; all lanes must ask. `Walks`: through several rows, and what comes next, a row
/// that fits or a tile of one that does not, is under way while this one is worked on.
template <class X, class Acc, class Team, int Items, int Width, bool Fits, bool Shifts, bool Walks>
class HeldRow : public RowLanes<Acc, Team, Items, Width, Fits, Shifts> {
  using Lanes = RowLanes<Acc, Team, Items, Width, Fits, Shifts>;
  using Lanes::position, Lanes::slots_;
  static constexpr bool walks_tiles = Walks && !Fits;

 public:
  using Lanes::chunks, Lanes::whole;

  /// A vector along the row. One that is shifted or takes many registers is loaded where it is
  /// used: more rows in flight are worth more.
  template <class W>
  KOKKOS_INLINE_FUNCTION auto along(TensorRef<W const, 1> const& vector) const {
    constexpr bool few = Items * static_cast<int>(sizeof(W)) <= most_vector_bytes;
    return Lanes::along(vector, !Shifts && (!Walks || few));
  }
  KOKKOS_INLINE_FUNCTION Absent along(Absent) const { return {}; }

  /// Numbers in a team's scratch: reductions take turns with them, so that what one of them left
  /// may still be read while the next is written.
  static constexpr int slots = 2 * 32;

  KOKKOS_INLINE_FUNCTION HeldRow(Team const& team, RowShape const& shape, RowStart const& start)
      : Lanes(team, shape, slots, start) {
    if constexpr (walks_tiles) this->whole_ = false;
  }

  /// Sets the row. Elements past its end count as 0.
  KOKKOS_INLINE_FUNCTION void load(Row<X const> const& from) {
    if (whole()) Lanes::unpack(Lanes::fetch(from, this->start_, 0), from, 0, values_);
  }

  /// Names the row that follows, which may be under way from now on, and makes it the one that is
  /// held. The row before it is done with by then.
  KOKKOS_INLINE_FUNCTION void announce(Row<X const> const& from, RowStart const& start) {
    following_ = from;
    start_of_following_ = start;
    if constexpr (Fits) ask_for_following();
  }
  KOKKOS_INLINE_FUNCTION void take_following() {
    this->start_ = start_of_following_;
    if constexpr (Fits)
      Lanes::unpack(next_, following_, 0, values_);
    else if (!asked_)
      ask_for_following();
    asked_ = false;
  }
  KOKKOS_INLINE_FUNCTION void announce_none() { is_last_ = true; }

  /// Σ f(x_j). `PadsWithZero`: f(0) is 0, so that elements past the end need no question. `last`,
  /// here and below: the row is not gone through again, so that the next may be asked for; store()
  /// always is.
  template <bool PadsWithZero, class F>
  KOKKOS_INLINE_FUNCTION Acc sum(Row<X const> const& from, F const& f, bool last = false) {
    Acc parts[chains] = {};
    for_each_tile(from, last, [&](std::int32_t) {
      if constexpr (PadsWithZero) {
        for (int e = 0; e < Items; ++e) parts[e % chains] += f(value(e));
      } else {
        each_place([&](int e, bool counts) {
          if (counts) parts[e % chains] += f(value(e));
        });
      }
    });
    return sum_of(parts);
  }

  /// The same, and f(x_j) becomes the element where the row is whole.
  template <class F>
  KOKKOS_INLINE_FUNCTION Acc sum_and_keep(Row<X const> const& from, F const& f) {
    Acc parts[chains] = {};
    for_each_tile(from, false, [&](std::int32_t) {
      for (int e = 0; e < Items; ++e) {
        value(e) = f(value(e));
        if (counts(e)) parts[e % chains] += value(e);
      }
    });
    return sum_of(parts);
  }

  /// The largest f(x_j), or `least` if none is larger; NaN is not.
  template <class F>
  KOKKOS_INLINE_FUNCTION Acc max(Row<X const> const& from, Acc least, F const& f,
                                 bool last = false) {
    Acc parts[chains];
    for (Acc& part : parts) part = least;
    for_each_tile(from, last, [&](std::int32_t) {
      for (int e = 0; e < Items; ++e)
        if (counts(e)) parts[e % chains] = Kokkos::fmax(parts[e % chains], f(value(e)));
    });
    for (int i = 1; i < chains; ++i) parts[0] = Kokkos::fmax(parts[0], parts[i]);
    return reduce<LargerNumber>(parts[0]);
  }

  /// What weights e^(f(x_j) − shift) are relative to, and their sum.
  struct Exponentials {
    Acc shift, sum;
  };

  /// shift: the largest f(x_j), or the lowest finite number if none is larger, so that a row of −∞
  /// only sums to 0. A row that is not whole is read once: each lane has a largest of its own so
  /// far, and a sum relative to that (Milakov and Gimelshein, arXiv:1805.02867).
  template <class F>
  KOKKOS_INLINE_FUNCTION Exponentials exponentials(Row<X const> const& from, F const& f,
                                                   bool last = false) {
    constexpr Acc least = Kokkos::Experimental::finite_min_v<Acc>;
    if constexpr (!Fits) {
      if (!whole()) {
        Acc top = least, parts[chains] = {};
        for_each_tile(from, last, [&](std::int32_t) {
          Acc largest = top;
          for (int e = 0; e < Items; ++e)
            if (counts(e)) largest = Kokkos::fmax(largest, f(value(e)));
          Acc const factor = quick_exp(top - largest);
          for (Acc& part : parts) part *= factor;
          for (int e = 0; e < Items; ++e)
            if (counts(e)) parts[e % chains] += quick_exp(f(value(e)) - largest);
          top = largest;
        });
        Acc const shift = reduce<LargerNumber>(top);
        Acc const factor = quick_exp(top - shift);
        for (Acc& part : parts) part *= factor;
        return {shift, sum_of(parts)};
      }
    }
    Acc const shift = max(from, least, f);
    return {shift, sum<false>(
                       from, [=](Acc v) { return quick_exp(f(v) - shift); }, last)};
  }

  /// out_j = f(x_j, a_j, …) with vectors a, … along the row, from along(). Several at once by
  /// f.convert(), if there is one.
  template <class Out, class F, class... Vectors>
  KOKKOS_INLINE_FUNCTION void store(Row<X const> const& from, Row<Out> const& to, F const& f,
                                    Vectors&... vectors) {
    for_each_tile(from, true, [&](std::int32_t first) { store_tile(to, first, f, vectors...); });
  }

  /// out_j = f(j, x_j).
  template <class Out, class F>
  KOKKOS_INLINE_FUNCTION void store_indexed(Row<X const> const& from, Row<Out> const& to,
                                            F const& f) {
    for_each_tile(from, true, [&](std::int32_t first) {
      ATTIKOS_UNROLL_DEVICE
      for (int c = 0; c < chunks; ++c) {
        if (!this->holds(first, c)) break;
        std::int32_t const j = position(first, c);
        Acc results[Width];
        for (int i = 0; i < Width; ++i) results[i] = f(j + i, values_[c][i]);
        this->put(to, j, results);
      }
    });
  }

 private:
  /// Sums that a lane adds up side by side, so that additions do not wait for each other.
  static constexpr int chains = 4;

  KOKKOS_INLINE_FUNCTION Acc sum_of(Acc const (&parts)[chains]) {
    return reduce<AddNumbers>((parts[0] + parts[1]) + (parts[2] + parts[3]));
  }
  template <class Join>
  KOKKOS_INLINE_FUNCTION Acc reduce(Acc part) {
    Acc one[1] = {part};
    turn_ = !turn_;
    Lanes::template reduce<Join>(one, slots_ + (turn_ ? 32 : 0));
    return one[0];
  }

  KOKKOS_INLINE_FUNCTION Acc& value(int e) { return values_[e / Width][e % Width]; }
  /// Calls f(e, counts) for the elements of the tile: counts says whether the row has that one.
  template <class F>
  KOKKOS_INLINE_FUNCTION void each_place(F const& f) const {
    ATTIKOS_UNROLL_DEVICE
    for (int c = 0; c < chunks; ++c) {
      if (Shifts && this->is_inner(position(first_, c))) {
        ATTIKOS_UNROLL_DEVICE
        for (int e = c * Width; e < (c + 1) * Width; ++e) f(e, true);
      } else {
        ATTIKOS_UNROLL_DEVICE
        for (int e = c * Width; e < (c + 1) * Width; ++e) f(e, counts(e));
      }
    }
  }
  KOKKOS_INLINE_FUNCTION bool counts(int e) const { return Lanes::counts(first_, e); }

  /// What is asked for is the next tile, behind the last one the first of the next pass or row.
  template <class F>
  KOKKOS_INLINE_FUNCTION void for_each_tile(Row<X const> const& from, [[maybe_unused]] bool last,
                                            F const& f) {
    Lanes::for_each_tile(
        [&](std::int32_t first) {
          first_ = first;
          if constexpr (walks_tiles) {
            Lanes::unpack(next_, from, first, values_);
            std::int32_t const next = first + this->lanes() * Items;
            if (next < this->size_ || !last) {
              next_ = Lanes::fetch(from, this->start_, next < this->size_ ? next : 0);
            } else if (!is_last_) {
              ask_for_following();
            }
          } else {
            Lanes::unpack(Lanes::fetch(from, this->start_, first), from, first, values_);
          }
        },
        f);
  }
  KOKKOS_INLINE_FUNCTION void ask_for_following() {
    next_ = Lanes::fetch(following_, start_of_following_, 0);
    asked_ = true;
  }

  template <class Out, class F, class... Vectors>
  KOKKOS_INLINE_FUNCTION void store_tile(Row<Out> const& to, std::int32_t first, F const& f,
                                         Vectors&... vectors) {
    ATTIKOS_UNROLL_DEVICE
    for (int c = 0; c < chunks; ++c) {
      if (!this->holds(first, c)) break;
      std::int32_t const j = position(first, c);
      store_chunk(to, j, values_[c], f, vectors.chunk(c, j)...);
    }
  }
  template <class Out, class F, class... N>
  KOKKOS_INLINE_FUNCTION void store_chunk(Row<Out> const& to, std::int32_t j,
                                          Acc const (&values)[Width], F const& f,
                                          N const&... others) const {
    if constexpr (requires(Out(&elements)[Width]) { f.convert(values, elements); }) {
      Out elements[Width];
      f.convert(values, elements);
      this->put_elements(to, j, elements);
    } else {
      Acc results[Width];
      for (int i = 0; i < Width; ++i) results[i] = f(values[i], others.values[i]...);
      this->put(to, j, results);
    }
  }

  std::int32_t first_ = 0;  ///< where the tile that is held starts
  bool turn_ = false;
  bool asked_ = false, is_last_ = false;  ///< for the following row; of the rows
  Row<X const> following_{};
  RowStart start_of_following_{};
  typename Lanes::template Fetched<X> next_;
  Acc values_[chunks][Width];
};

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
  // Kokkos counts 2048 lanes for each multiprocessor.
  return std::max<std::int64_t>(concurrency_of(exec) / 2048, 1) *
         std::max(lanes_at_once / lanes, 1);
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
      if constexpr (!waits_often<Op>)
        if (size <= many * 256)
          return launch_device_rows_of<many, width, true, false, false>(exec, operation, op, rows,
                                                                        size);
      if (size <= many * 512)
        return launch_device_rows_of<many, width, true, false, true>(exec, operation, op, rows,
                                                                     size);
      return launch_device_rows_of<more, width, false, false, true>(exec, operation, op, rows,
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
