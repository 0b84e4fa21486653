// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// How the lanes of a device share a row: who holds which elements, and sums over all of them.
#pragma once

#include <attikos/core/lane.hpp>
#include <attikos/core/rows/device_elements.hpp>
#include <attikos/core/rows/rows.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// How a launch deals out rows.
struct RowShape {
  std::int64_t rows, size;
  int lanes;  ///< of a team's thread
  int warps;  ///< threads of a team that share a row; with 1, each has a row of its own
};

/// Lanes for all chunks of a row of `size` elements, if each takes up to `items`.
inline RowShape row_shape(std::int64_t rows, std::int64_t size, int items, int most_warps) {
  std::int64_t const wanted = (size + items - 1) / items;
  RowShape shape{rows, size, 1, 1};
  while (shape.lanes < 32 && shape.lanes < wanted) shape.lanes *= 2;
  std::int64_t const warps = (wanted + 31) / 32;
  shape.warps = static_cast<int>(warps > most_warps ? most_warps : warps);
  return shape;
}

/// How numbers of lanes are joined. neutral(x) changes nothing beside a number x of the lane's own.
struct AddNumbers {
  template <class Acc>
  using Reducer = Kokkos::Sum<Acc>;
  template <class Acc>
  static KOKKOS_INLINE_FUNCTION Acc join(Acc a, Acc b) {
    return a + b;
  }
  template <class Acc>
  static KOKKOS_INLINE_FUNCTION Acc neutral(Acc) {
    return Acc(0);
  }
};
struct LargerNumber {  // NaN is not the larger
  template <class Acc>
  using Reducer = Kokkos::Max<Acc>;
  template <class Acc>
  static KOKKOS_INLINE_FUNCTION Acc join(Acc a, Acc b) {
    return Kokkos::fmax(a, b);
  }
  template <class Acc>
  static KOKKOS_INLINE_FUNCTION Acc neutral(Acc x) {
    return x;
  }
};

/// The numbers of `lanes` lanes, those of one thread of a team, joined; all of them get the result.
/// Kokkos's own reduction takes some hundred instructions, more than the row itself.
template <class Join, class Acc, class Team>
KOKKOS_INLINE_FUNCTION Acc join_lanes([[maybe_unused]] Team const& team, int lanes, Acc x) {
#if defined(__CUDA_ARCH__)
  if (lanes == 32) {  // one mask that the compiler knows spares ten instructions a step
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) x = Join::join(x, __shfl_xor_sync(~0u, x, apart));
    return x;
  }
  unsigned const mask = ((1u << lanes) - 1u) << (threadIdx.y * static_cast<unsigned>(lanes) & 31u);
  for (int apart = lanes / 2; apart > 0; apart /= 2)
    x = Join::join(x, __shfl_xor_sync(mask, x, apart));
  return x;
#else
  Acc total = 0;
  typename Join::template Reducer<Acc> const reducer(total);
  Kokkos::parallel_reduce(
      Kokkos::ThreadVectorRange(team, lanes), [&](int, Acc& r) { r = Join::join(r, x); }, reducer);
  return total;
#endif
}

/// One lane's place in a row: its element e, e = c·Width + i, is neighbor i of chunk c. A Width of
/// 1 takes any strides. `Fits`: the rows are known to fit into the registers of their lanes; others
/// go through them in tiles.
template <class Acc, class Team, int Items, int Width, bool Fits>
class RowLanes {
 public:
  static constexpr int chunks = Items / Width;
  static_assert(Items % Width == 0);

  /// `slots`: numbers of a team's scratch, of which reduce() uses 32 at a time.
  KOKKOS_INLINE_FUNCTION RowLanes(Team const& team, RowShape const& shape, int slots)
      : team_(team),
        warps_(shape.warps),
        lanes_(shape.lanes),
        size_(static_cast<std::int32_t>(shape.size)) {
    lane_ = lane_of(team, lanes_) + (warps_ > 1 ? team.team_rank() * lanes_ : 0);
    span_ = warps_ * lanes_;
    if constexpr (!Fits) whole_ = span_ * Items >= size_;
    slots_ = warps_ > 1 ? static_cast<Acc*>(team.team_scratch(0).get_shmem(
                              static_cast<std::size_t>(slots) * sizeof(Acc)))
                        : nullptr;
  }

  /// All of the row is in registers.
  KOKKOS_INLINE_FUNCTION bool whole() const { return Fits || whole_; }
  /// Which of the row's lanes this is, and how many there are.
  KOKKOS_INLINE_FUNCTION int lane() const { return lane_; }
  KOKKOS_INLINE_FUNCTION int lanes() const { return span_; }
  KOKKOS_INLINE_FUNCTION bool first_lane() const { return lane_ == 0; }

  /// Neighbors of one chunk as numbers.
  struct Neighbors {
    Acc values[Width];
  };

  /// This lane's elements of a vector along the row. Where the row is whole they are loaded here,
  /// so that they need not be waited for behind the sums; else where they are used.
  template <class W>
  struct Vector {
    TensorRef<W const, 1> all;
    bool whole;
    Loaded<W, Width> held[chunks];

    KOKKOS_INLINE_FUNCTION void load(int c, std::int32_t j) {
      held[c].load(Width > 1 ? all.data + j : all.data + j * all.stride[0]);
    }
    /// Chunk c, which starts at element j.
    KOKKOS_INLINE_FUNCTION Neighbors chunk(int c, std::int32_t j) {
      if (!whole) load(c, j);
      Neighbors n;
      for (int i = 0; i < Width; ++i) n.values[i] = held[c].template value<Acc>(i);
      return n;
    }
  };
  template <class W>
  KOKKOS_INLINE_FUNCTION Vector<W> along(TensorRef<W const, 1> const& vector) const {
    Vector<W> result;
    result.all = vector;
    result.whole = whole();
    if (whole())
      for (int c = 0; c < chunks; ++c)
        if (holds(0, c)) result.load(c, position(0, c));
    return result;
  }

 protected:
  /// Where chunk c of the tile that starts at `first` starts, and whether the row goes that far.
  KOKKOS_INLINE_FUNCTION std::int32_t position(std::int32_t first, int c) const {
    return first + (c * span_ + lane_) * Width;
  }
  KOKKOS_INLINE_FUNCTION bool holds(std::int32_t first, int c) const {
    return position(first, c) < size_;
  }
  template <class T>
  static KOKKOS_INLINE_FUNCTION T* at(Row<T> const& row, std::int32_t j) {
    return Width > 1 ? row.data + j : row.data + j * row.stride;
  }

  /// Calls f(first) for one tile after another, load(first) before it where the row is not whole.
  template <class Load, class F>
  KOKKOS_INLINE_FUNCTION void for_each_tile(Load const& load, F const& f) {
    if constexpr (Fits) {
      f(0);
    } else {
      std::int32_t first = 0;
      do {
        if (!whole_) load(first);
        f(first);
        first += span_ * Items;
      } while (first < size_);
    }
  }

  /// The elements of a tile as numbers, 0 past the end. All are under way before the first is
  /// waited for.
  template <class T>
  KOKKOS_INLINE_FUNCTION void load_tile(Row<T const> const& from, std::int32_t first,
                                        Acc (&values)[chunks][Width]) const {
    Loaded<T, Width> raw[chunks] = {};
    for (int c = 0; c < chunks; ++c)
      if (holds(first, c)) raw[c].load(at(from, position(first, c)));
    for (int c = 0; c < chunks; ++c)
      for (int i = 0; i < Width; ++i) values[c][i] = raw[c].template value<Acc>(i);
  }

  /// N numbers of every lane joined: those of a warp, then the warps' results, in one order by
  /// every lane. `slots`: 32·N numbers that are not read any more.
  template <class Join, int N>
  KOKKOS_INLINE_FUNCTION void reduce(Acc (&parts)[N], Acc* slots) {
    for (Acc& part : parts) part = join_lanes<Join>(team_, lanes_, part);
    if (warps_ == 1) return;
    int const lane = lane_ % lanes_;
    if (lane == 0)
      for (int i = 0; i < N; ++i) slots[32 * i + team_.team_rank()] = parts[i];
    team_.team_barrier();
    for (int i = 0; i < N; ++i) {
      Acc const mine = lane < warps_ ? slots[32 * i + lane] : Join::neutral(parts[i]);
      parts[i] = join_lanes<Join>(team_, lanes_, mine);
    }
  }

  Team const& team_;
  int lane_, span_, warps_, lanes_;
  std::int32_t size_;
  bool whole_ = true;
  Acc* slots_;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
