// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// How the lanes of a device share a row: who holds which elements, and sums over all of them.
#pragma once

#include <attikos/core/lane.hpp>
#include <attikos/core/rows/device_elements.hpp>
#include <attikos/core/rows/rows.hpp>
#include <attikos/core/rows/shifted.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// How a launch deals out rows.
struct RowShape {
  std::int64_t rows, size;
  int lanes;  ///< of a team's thread
  int warps;  ///< threads of a team that share a row; with 1, each has a row of its own
};

/// How a row lies in memory.
struct RowStart {
  int ahead;  ///< elements between the first chunk's start and the row's
  bool ends;  ///< memory may end with the row
};

/// Lanes for all chunks of a row of `size` elements, if each takes up to `items`, and up to `ahead`
/// places in front of the row.
inline RowShape row_shape(std::int64_t rows, std::int64_t size, int items, int most_warps,
                          int ahead) {
  std::int64_t const wanted = (size + ahead + items - 1) / items;
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
/// go through them in tiles. `Shifts`: rows may start and end anywhere, as long as their elements
/// are neighbors. Then chunks lie where packs of the row that is stored are aligned, the first of
/// them up to Width - 1 elements in front of it, and what is read is shifted to them.
template <class Acc, class Team, int Items, int Width, bool Fits, bool Shifts>
class RowLanes {
 public:
  static constexpr int chunks = Items / Width;
  static_assert(Items % Width == 0);

  /// `slots`: numbers of a team's scratch, which reduce() has.
  KOKKOS_INLINE_FUNCTION RowLanes(Team const& team, RowShape const& shape, int slots,
                                  RowStart const& start)
      : team_(team),
        warps_(shape.warps),
        lanes_(shape.lanes),
        size_(static_cast<std::int32_t>(shape.size)),
        start_(start) {
    lane_ = lane_of(team, lanes_) + (warps_ > 1 ? team.team_rank() * lanes_ : 0);
    span_ = warps_ * lanes_;
    if constexpr (!Fits) whole_ = span_ * Items >= size_ + start_.ahead;
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

  /// This lane's elements of a vector along the row. `held`: they are loaded here, so that they
  /// need not be waited for behind the sums; else where they are used.
  template <class W>
  struct Vector {
    TensorRef<W const, 1> all;
    std::int32_t size;
    bool held;
    Loaded<W, Width> elements[chunks];

    /// Chunk c, which starts at element j.
    KOKKOS_INLINE_FUNCTION Neighbors chunk(int c, std::int32_t j) {
      if (!held) load(c, j);
      Neighbors n;
      for (int i = 0; i < Width; ++i) n.values[i] = elements[c].template value<Acc>(i);
      return n;
    }
    KOKKOS_INLINE_FUNCTION void load(int c, std::int32_t j) {
      if constexpr (Shifts) {
        // Of what is held, once for many rows, the questions take fewer registers.
        bool const inner = !held && is_inner(j, size);
        int const past = elements_past_boundary<W, Width>(all.data + j);
        Straddling<W, Width> packs = {};
        if (inner || j < size) {
          packs.load(all.data, j, size, past, inner, true);
          packs.load_last(all.data, j, size, past, inner, true);
        }
        elements[c] = packs.shifted(j, size, past, inner);
      } else {
        elements[c].load(Width > 1 ? all.data + j : all.data + j * all.stride[0]);
      }
    }
  };
  template <class W>
  KOKKOS_INLINE_FUNCTION Vector<W> along(TensorRef<W const, 1> const& vector,
                                         bool held = true) const {
    Vector<W> result;
    result.all = vector;
    result.size = size_;
    result.held = held && whole();
    if (result.held) ATTIKOS_UNROLL_DEVICE
    for (int c = 0; c < chunks; ++c)
      if (holds(0, c)) result.load(c, position(0, c));
    return result;
  }

 protected:
  /// Where chunk c of the tile that starts at `first` starts, counted from the row's first chunk
  /// and from its first element, and whether the row goes that far.
  KOKKOS_INLINE_FUNCTION std::int32_t place(std::int32_t first, int c) const {
    return first + (c * span_ + lane_) * Width;
  }
  KOKKOS_INLINE_FUNCTION std::int32_t position(std::int32_t first, int c) const {
    return place(first, c) - (Shifts ? start_.ahead : 0);
  }
  KOKKOS_INLINE_FUNCTION bool holds(std::int32_t first, int c) const {
    return position(first, c) < size_;
  }
  /// Whether element e of the tile, and whether element j, is in the row.
  KOKKOS_INLINE_FUNCTION bool counts(std::int32_t first, int e) const {
    if constexpr (Shifts) return is_inside(position(first, e / Width) + e % Width);
    return holds(first, e / Width);
  }
  KOKKOS_INLINE_FUNCTION bool is_inside(std::int32_t j) const {
    return static_cast<std::uint32_t>(j) < static_cast<std::uint32_t>(size_);
  }
  /// Whether the chunk at element j and the packs before and behind it are in the row. Most are:
  /// they are spared all other questions.
  KOKKOS_INLINE_FUNCTION bool is_inner(std::int32_t j) const { return is_inner(j, size_); }
  static KOKKOS_INLINE_FUNCTION bool is_inner(std::int32_t j, std::int32_t size) {
    return !Shifts || (j >= Width && j + 2 * Width <= size);
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
      } while (first < size_ + start_.ahead);
    }
  }

  /// How far behind a boundary of packs of `p` chunks start, the first of them `ahead` elements in
  /// front of it.
  template <class T>
  static KOKKOS_INLINE_FUNCTION int past_boundary(T const* p, int ahead) {
    if constexpr (Shifts)
      return (elements_past_boundary<T, Width>(p) - ahead) & (pack_size<T, Width> - 1);
    return 0;
  }
  /// A tile of a row as it comes from memory, 0 outside the row. All is under way before the first
  /// of it is waited for, by raw().
  template <class T>
  struct Fetched {
    using Part = std::conditional_t<Shifts, Straddling<T, Shifts ? Width : 4>, Loaded<T, Width>>;
    Part parts[chunks] = {};
  };
  template <class T>
  KOKKOS_INLINE_FUNCTION Fetched<T> fetch(Row<T const> const& from, RowStart const& start,
                                          std::int32_t first) const {
    Fetched<T> tile;
    [[maybe_unused]] int const past = past_boundary(from.data, start.ahead);
    ATTIKOS_UNROLL_DEVICE
    for (int c = 0; c < chunks; ++c) {
      std::int32_t const j = place(first, c) - (Shifts ? start.ahead : 0);
      if (j >= size_) continue;
      if constexpr (Shifts)
        tile.parts[c].load(from.data, j, size_, past, false, start.ends);
      else
        tile.parts[c].load(at(from, j));
    }
    return tile;
  }
  template <class T>
  KOKKOS_INLINE_FUNCTION Loaded<T, Width> raw(Fetched<T>& tile, Row<T const> const& from,
                                              std::int32_t first, int c) const {
    if constexpr (Shifts) {
      // The rest of a chunk is what its neighbor has loaded: near, and not worth registers before.
      int const past = past_boundary(from.data, start_.ahead);
      std::int32_t const j = position(first, c);
      tile.parts[c].load_last(from.data, j, size_, past, false, start_.ends);
      return tile.parts[c].shifted(j, size_, past, false);
    } else {
      return tile.parts[c];
    }
  }
  /// The same as numbers.
  template <class T>
  KOKKOS_INLINE_FUNCTION void unpack(Fetched<T> tile, Row<T const> const& from, std::int32_t first,
                                     Acc (&values)[chunks][Width]) const {
    ATTIKOS_UNROLL_DEVICE
    for (int c = 0; c < chunks; ++c) {
      auto const chunk = raw(tile, from, first, c);
      for (int i = 0; i < Width; ++i) values[c][i] = chunk.template value<Acc>(i);
    }
  }

  /// Stores the elements nearest to `results`, or `elements`, as those of the row from j on.
  template <class Out>
  KOKKOS_INLINE_FUNCTION void put(Row<Out> const& to, std::int32_t j,
                                  Acc const (&results)[Width]) const {
    if (!Shifts || (j >= 0 && j + Width <= size_)) return store_nearest(at(to, j), results);
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Width; ++i)
      if (is_inside(j + i)) to.data[j + i] = nearest_element<Out>(results[i]);
  }
  template <class Out>
  KOKKOS_INLINE_FUNCTION void put_elements(Row<Out> const& to, std::int32_t j,
                                           Out const (&elements)[Width]) const {
    if (!Shifts || (j >= 0 && j + Width <= size_)) return store_neighbors(at(to, j), elements);
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Width; ++i)
      if (is_inside(j + i)) to.data[j + i] = elements[i];
  }

  /// N numbers of every lane joined: those of a warp, then the warps' results, in one order by
  /// every lane. Reductions take turns with two halves of the team's `Slots` numbers of scratch, so
  /// that what one of them left may still be read while the next is written.
  template <class Join, int Slots, int N>
  KOKKOS_INLINE_FUNCTION void reduce(Acc (&parts)[N]) {
    turn_ = !turn_;
    for (Acc& part : parts) part = join_lanes<Join>(team_, lanes_, part);
    if (warps_ == 1) return;
    static_assert(2 * 32 * N <= Slots);
    Acc* const slots = slots_ + (turn_ ? Slots / 2 : 0);
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
  RowStart start_;
  bool whole_ = true;

 private:
  bool turn_ = false;
  Acc* slots_;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
