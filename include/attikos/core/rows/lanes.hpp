// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// How the lanes of a device share a row: who holds which elements, and sums over all of them.
#pragma once

#include <attikos/core/fragments/unroll.hpp>
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

/// Neighbors that lanes move at once where elements lie at any stride.
inline constexpr int any_stride = 0;
template <int Width>
inline constexpr int elements_at_once = Width == any_stride ? 1 : Width;

/// Lanes for rows of `size` elements, if each takes `items` of them. `whole_warps`: no fewer
/// than 32.
inline RowShape row_shape(std::int64_t rows, std::int64_t size, int items, int most_warps,
                          bool whole_warps) {
  std::int64_t const wanted = (size + items - 1) / items;
  RowShape shape{rows, size, 32, 1};
  while (!whole_warps && shape.lanes > 1 && shape.lanes / 2 >= wanted) shape.lanes /= 2;
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

/// N numbers of `lanes` lanes, those of one thread of a team, joined; all of them get the results.
/// Kokkos's own reduction takes some hundred instructions, more than the row itself.
template <class Join, class Acc, int N, class Team>
KOKKOS_INLINE_FUNCTION void join_lanes([[maybe_unused]] Team const& team, int lanes,
                                       Acc (&parts)[N]) {
#if defined(__CUDA_ARCH__)
  if (lanes == 32) {  // one mask that the compiler knows spares ten instructions a step
    static_assert(N == 1 || N == 2 || N == 4);
    // Lanes give away half of their numbers for the other half of those of a lane far away, until
    // each has one left: a step less for every number but the first.
    unsigned const lane = threadIdx.x;
    int apart = 16;
#pragma unroll
    for (int left = N; left > 1; left /= 2, apart /= 2) {
      bool const upper = (lane & static_cast<unsigned>(apart)) != 0;
#pragma unroll
      for (int i = 0; i < left / 2; ++i) {
        Acc const kept = upper ? parts[i + left / 2] : parts[i];
        Acc const given = upper ? parts[i] : parts[i + left / 2];
        parts[i] = Join::join(kept, __shfl_xor_sync(~0u, given, apart));
      }
    }
    Acc one = parts[0];
#pragma unroll
    for (; apart > 0; apart /= 2) one = Join::join(one, __shfl_xor_sync(~0u, one, apart));
      // Number i is where the bits that were given by have i's, the highest first.
#pragma unroll
    for (int i = 0; i < N; ++i) parts[i] = N == 1 ? one : __shfl_sync(~0u, one, i * (32 / N));
    return;
  }
  unsigned const mask = ((1u << lanes) - 1u) << (threadIdx.y * static_cast<unsigned>(lanes) & 31u);
  for (int apart = lanes / 2; apart > 0; apart /= 2)
#pragma unroll
    for (int i = 0; i < N; ++i)
      parts[i] = Join::join(parts[i], __shfl_xor_sync(mask, parts[i], apart));
#else
  for (Acc& part : parts) {
    Acc const mine = part;
    typename Join::template Reducer<Acc> const reducer(part);
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team, lanes), [&](int, Acc& r) { r = Join::join(r, mine); },
        reducer);
  }
#endif
}

/// Lanes that share a row.
enum class Lanes {
  few,           ///< up to a warp, into whose registers the row fits
  warp,          ///< a whole one, into whose registers the row fits
  warps,         ///< one or more whole ones, into whose registers the row fits
  warps_by_turn  ///< whole warps, which go through the row in tiles
};

/// One lane's place in a row that up to `MostWarps` warps share: its element e, e = c·width + i, is
/// neighbor i of chunk c. Each warp has a stretch of the row, of which an access takes one piece,
/// so that the chunks of a lane of a whole warp lie at distances that the compiler knows. Rows of a
/// Width of more than 1 hold a multiple of it and begin where that many elements move at once.
template <class Acc, class Team, int Items, int Width, Lanes Share, int MostWarps>
class RowLanes {
 public:
  static constexpr bool fits = Share != Lanes::warps_by_turn;
  static constexpr int width = elements_at_once<Width>;
  static constexpr int chunks = Items / width;
  static_assert(Items % width == 0);

  /// `slots`: numbers of a team's scratch, which reduce() has.
  KOKKOS_INLINE_FUNCTION RowLanes(Team const& team, RowShape const& shape, int slots)
      : team_(team),
        warps_(shape.warps),
        lanes_(shape.lanes),
        size_(static_cast<std::int32_t>(shape.size)) {
    int const warp = warps_ > 1 ? team.team_rank() : 0;
    int const lane = lane_of(team, lanes_);
    lane_ = warp * lanes_ + lane;
    start_ = warp * lanes() * Items + lane * width;
    span_ = warps_ * lanes_;
    if constexpr (!fits) whole_ = span_ * Items >= size_;
    slots_ = warps_ > 1 ? static_cast<Acc*>(team.team_scratch(0).get_shmem(
                              static_cast<std::size_t>(slots) * sizeof(Acc)))
                        : nullptr;
  }

  /// All of the row is in registers.
  KOKKOS_INLINE_FUNCTION bool whole() const { return fits || whole_; }
  /// Which of the row's lanes this is, and how many there are.
  KOKKOS_INLINE_FUNCTION int lane() const { return lane_; }
  KOKKOS_INLINE_FUNCTION int row_lanes() const { return span_; }
  KOKKOS_INLINE_FUNCTION bool first_lane() const { return lane_ == 0; }

  /// Neighbors of one chunk as numbers.
  struct Neighbors {
    Acc values[width];
  };

  /// This lane's elements of a vector along the row. `held`: they are loaded here, so that they
  /// need not be waited for behind the sums; else where they are used.
  template <class W>
  struct Vector {
    TensorRef<W const, 1> all;
    std::int32_t size;
    bool held;
    Loaded<W, width> elements[chunks];

    /// Chunk c, which starts at element j: 0 past the row's end.
    KOKKOS_INLINE_FUNCTION Neighbors chunk(int c, std::int32_t j) {
      if (!held) load(c, j);
      Neighbors n;
      for (int i = 0; i < width; ++i) n.values[i] = elements[c].template value<Acc>(i);
      return n;
    }
    KOKKOS_INLINE_FUNCTION void load(int c, std::int32_t j) {
      elements[c] = {};
      if (j < size)
        elements[c].load(Width == any_stride ? all.data + j * all.stride[0] : all.data + j);
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
    for (int c = 0; c < chunks; ++c) result.load(c, position(0, c));
    return result;
  }

 protected:
  /// Lanes of a warp that shares the row.
  KOKKOS_INLINE_FUNCTION int lanes() const {
#if defined(__CUDA_ARCH__)
    if constexpr (Share != Lanes::few) return 32;
#endif
    return lanes_;
  }
  /// Where chunk c of the tile that starts at `first` starts, and whether the row goes that far.
  KOKKOS_INLINE_FUNCTION std::int32_t position(std::int32_t first, int c) const {
    return first + start_ + c * lanes() * width;
  }
  KOKKOS_INLINE_FUNCTION bool holds(std::int32_t first, int c) const {
    return position(first, c) < size_;
  }
  template <class T>
  static KOKKOS_INLINE_FUNCTION T* at(Row<T> const& row, std::int32_t j) {
    return Width == any_stride ? row.data + j * row.stride : row.data + j;
  }

  /// Calls f(first) for one tile after another, load(first) before it where the row is not whole.
  template <class Load, class F>
  KOKKOS_INLINE_FUNCTION void for_each_tile(Load const& load, F const& f) {
    if constexpr (fits) {
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

  /// A tile of a row as it comes from memory, 0 past the row's end. All is under way before the
  /// first of it is waited for.
  template <class T>
  struct Fetched {
    Loaded<T, width> parts[chunks] = {};
  };
  template <class T>
  KOKKOS_INLINE_FUNCTION Fetched<T> fetch(Row<T const> const& from, std::int32_t first) const {
    Fetched<T> tile;
    ATTIKOS_UNROLL_DEVICE
    for (int c = 0; c < chunks; ++c)
      if (holds(first, c)) tile.parts[c].load(at(from, position(first, c)));
    return tile;
  }
  /// The same as numbers.
  template <class T>
  KOKKOS_INLINE_FUNCTION void unpack(Fetched<T> const& tile, Acc (&values)[chunks][width]) const {
    ATTIKOS_UNROLL_DEVICE
    for (int c = 0; c < chunks; ++c)
      for (int i = 0; i < width; ++i) values[c][i] = tile.parts[c].template value<Acc>(i);
  }

  /// Stores the elements nearest to `results`, or `elements`, as those of the row from j on.
  template <class Out>
  KOKKOS_INLINE_FUNCTION void put(Row<Out> const& to, std::int32_t j,
                                  Acc const (&results)[width]) const {
    store_nearest(at(to, j), results);
  }
  template <class Out>
  KOKKOS_INLINE_FUNCTION void put_elements(Row<Out> const& to, std::int32_t j,
                                           Out const (&elements)[width]) const {
    store_neighbors(at(to, j), elements);
  }

  /// N numbers of every lane joined: those of a warp, then the warps' results, in one order by
  /// every lane. Reductions take turns with two halves of the team's `Slots` numbers of scratch, so
  /// that what one of them left may still be read while the next is written.
  template <class Join, int Slots, int N>
  KOKKOS_INLINE_FUNCTION void reduce(Acc (&parts)[N]) {
    join_lanes<Join>(team_, lanes(), parts);
    if (warps_ == 1) return;
    Acc const* const slots = exchange<Slots>(parts);
    join_warps<Join>(parts, [=](int i, int warp) { return slots[32 * i + warp]; });
  }

  /// Several sums over a row, of which every lane has two halves.
  template <int N>
  struct Sums {
    Acc of[N];
  };
  template <int Slots, int N>
  KOKKOS_INLINE_FUNCTION Sums<N> sums_of(Acc const (&halves)[2][N]) {
    Sums<N> result;
    for (int i = 0; i < N; ++i) result.of[i] = halves[0][i] + halves[1][i];
    reduce<AddNumbers, Slots>(result.of);
    return result;
  }

  /// What sums of e^(x − shift) are relative to, a shift of each lane's own, and the sums: the
  /// largest shift, and the sum relative to it.
  template <int Slots>
  KOKKOS_INLINE_FUNCTION void reduce_exponentials(Acc& shift, Acc& sum) {
    Acc top[1] = {shift};
    join_lanes<LargerNumber>(team_, lanes(), top);
    Acc part[1] = {sum * quick_exp(shift - top[0])};
    join_lanes<AddNumbers>(team_, lanes(), part);
    shift = top[0];
    sum = part[0];
    if (warps_ == 1) return;
    Acc const of_warp[2] = {shift, sum};
    Acc const* const slots = exchange<Slots>(of_warp);
    join_warps<LargerNumber>(top, [=](int, int warp) { return slots[warp]; });
    shift = top[0];
    join_warps<AddNumbers>(part, [=, to = shift](int, int warp) {
      return slots[32 + warp] * quick_exp(slots[warp] - to);
    });
    sum = part[0];
  }

  Team const& team_;
  int lane_, span_, warps_, lanes_;
  std::int32_t start_, size_;
  bool whole_ = true;

 private:
  /// This lane among those of its team's thread, whose number is a power of two.
  KOKKOS_INLINE_FUNCTION int lane_in_thread() const { return lane_ & (lanes() - 1); }

  /// Leaves the numbers of every warp in scratch, number i of warp w at 32·i + w, and waits for
  /// all.
  template <int Slots, int N>
  KOKKOS_INLINE_FUNCTION Acc const* exchange(Acc const (&parts)[N]) {
    static_assert(2 * 32 * N <= Slots);
    turn_ = !turn_;
    Acc* const slots = slots_ + (turn_ ? Slots / 2 : 0);
    if (lane_in_thread() == 0)
      for (int i = 0; i < N; ++i) slots[32 * i + team_.team_rank()] = parts[i];
    team_.team_barrier();
    return slots;
  }

  /// N numbers of all warps joined, of which read(i, w) is number i of warp w.
  template <class Join, int N, class Read>
  KOKKOS_INLINE_FUNCTION void join_warps(Acc (&parts)[N], Read const& read) const {
    int const lane = lane_in_thread();
#if defined(__CUDA_ARCH__)
    // Each number is joined by lanes of its own.
    constexpr int group = MostWarps < 32 / N ? MostWarps : 32 / N;
    static_assert(MostWarps <= 32 && (MostWarps & (MostWarps - 1)) == 0);
    Acc joined{};
#pragma unroll
    for (int w = 0; w < MostWarps; w += group) {
      int const warp = lane % group + w;
      Acc const found = read(lane / group % N, warp < warps_ ? warp : 0);
      Acc const counted = warp < warps_ ? found : Join::neutral(found);
      joined = w == 0 ? counted : Join::join(joined, counted);
    }
#pragma unroll
    for (int apart = group / 2; apart > 0; apart /= 2)
      joined = Join::join(joined, __shfl_xor_sync(~0u, joined, apart));
#pragma unroll
    for (int i = 0; i < N; ++i) parts[i] = N == 1 ? joined : __shfl_sync(~0u, joined, i * group);
#else
    for (int i = 0; i < N; ++i)
      parts[i] = lane < warps_ ? read(i, lane) : Join::neutral(read(i, 0));
    join_lanes<Join>(team_, lanes_, parts);
#endif
  }

  bool turn_ = false;
  Acc* slots_;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
