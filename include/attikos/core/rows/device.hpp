// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rows on a device: each is held in the registers of a few lanes or of a team of several warps, so
/// that it is read once; rows that do not fit are read again for every pass.
///
/// Lanes take neighbors of 16 bytes where alignment and strides allow, else single elements. The
/// order of sums depends on extents, strides, alignment and device alone.
#pragma once

#include <attikos/core/rows/device_elements.hpp>
#include <attikos/core/rows/rows.hpp>
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

/// The same of a vector along a row.
template <int Count, class T>
bool vector_moves_at_once(TensorRef<T, 1> const& x) {
  return moves_at_once<Count>(x.data, x.stride[0]);
}
template <int Count>
bool vector_moves_at_once(Absent) {
  return true;
}

/// How a launch deals out rows.
struct RowShape {
  std::int64_t rows, size;
  int lanes;  ///< of a team's thread
  int warps;  ///< threads of a team that share a row; with 1, each has a row of its own
};

/// One lane's part of a row: element e of it, e = c·Width + i, is neighbor i of chunk c. A Width of
/// 1 takes any strides. Sums and maxima are the whole row's, and every lane of the row gets them;
/// all lanes must ask. `Fits`: the rows are known to fit into the registers of their lanes.
template <class Acc, class Team, int Items, int Width, bool Fits>
class HeldRow {
 public:
  static constexpr int chunks = Items / Width;
  static_assert(Items % Width == 0);

  KOKKOS_INLINE_FUNCTION HeldRow(Team const& team, RowShape const& shape)
      : team_(team),
        warps_(shape.warps),
        lanes_(shape.lanes),
        size_(static_cast<std::int32_t>(shape.size)) {
    // Which lane this is: on a device a lane has variables of its own.
    int lane = 0;
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, lanes_), [&](int l) { lane = l; });
    if (warps_ > 1) lane += team.team_rank() * lanes_;
    lane_ = lane;
    span_ = warps_ * lanes_;
    if constexpr (!Fits) whole_ = span_ * Items >= size_;
    slots_ = warps_ > 1 ? static_cast<Acc*>(team.team_scratch(0).get_shmem(std::size_t{slot_bytes}))
                        : nullptr;
  }

  static constexpr std::size_t slot_bytes = 4 * 32 * sizeof(Acc);

  /// All of the row is in registers.
  KOKKOS_INLINE_FUNCTION bool whole() const { return Fits || whole_; }
  /// Which of the row's lanes this is, and how many there are.
  KOKKOS_INLINE_FUNCTION int lane() const { return lane_; }
  KOKKOS_INLINE_FUNCTION int lanes() const { return span_; }
  KOKKOS_INLINE_FUNCTION bool first_lane() const { return lane_ == 0; }

  /// Sets the row. Elements past its end count as 0.
  template <class T>
  KOKKOS_INLINE_FUNCTION void load(Row<T const> const& from) {
    if (whole()) load_tile(from, 0);
  }

  /// Σ f(x_j). `PadsWithZero`: f(0) is 0, so that elements past the end need no question.
  template <bool PadsWithZero, class T, class F>
  KOKKOS_INLINE_FUNCTION Acc sum(Row<T const> const& from, F const& f) {
    Acc parts[chains] = {};
    for_each_tile(from, [&](std::int32_t) {
      for (int e = 0; e < Items; ++e)
        if (PadsWithZero || counts(e)) parts[e % chains] += f(value(e));
    });
    return sum_of(parts);
  }

  /// The same, and f(x_j) becomes the element where the row is whole.
  template <class T, class F>
  KOKKOS_INLINE_FUNCTION Acc sum_and_keep(Row<T const> const& from, F const& f) {
    Acc parts[chains] = {};
    for_each_tile(from, [&](std::int32_t) {
      for (int e = 0; e < Items; ++e) {
        value(e) = f(value(e));
        if (counts(e)) parts[e % chains] += value(e);
      }
    });
    return sum_of(parts);
  }

  /// The largest f(x_j), or `least` if none is larger; NaN is not.
  template <class T, class F>
  KOKKOS_INLINE_FUNCTION Acc max(Row<T const> const& from, Acc least, F const& f) {
    Acc parts[chains];
    for (Acc& part : parts) part = least;
    for_each_tile(from, [&](std::int32_t) {
      for (int e = 0; e < Items; ++e)
        if (counts(e)) parts[e % chains] = Kokkos::fmax(parts[e % chains], f(value(e)));
    });
    for (int i = 1; i < chains; ++i) parts[0] = Kokkos::fmax(parts[0], parts[i]);
    return reduce(parts[0], Kokkos::Max<Acc>(parts[0]));
  }

  /// What weights e^(f(x_j) − shift) are relative to, and their sum.
  struct Exponentials {
    Acc shift, sum;
  };

  /// shift: the largest f(x_j), or the lowest finite number if none is larger, so that a row of −∞
  /// only sums to 0. A row that is not whole is read once: each lane has a largest of its own so
  /// far, and a sum relative to that (Milakov and Gimelshein, arXiv:1805.02867).
  template <class T, class F>
  KOKKOS_INLINE_FUNCTION Exponentials exponentials(Row<T const> const& from, F const& f) {
    constexpr Acc least = Kokkos::Experimental::finite_min_v<Acc>;
    if constexpr (!Fits) {
      if (!whole_) {
        Acc top = least, parts[chains] = {};
        for_each_tile(from, [&](std::int32_t) {
          Acc largest = top;
          for (int e = 0; e < Items; ++e)
            if (counts(e)) largest = Kokkos::fmax(largest, f(value(e)));
          Acc const factor = Kokkos::exp(top - largest);
          for (Acc& part : parts) part *= factor;
          for (int e = 0; e < Items; ++e)
            if (counts(e)) parts[e % chains] += Kokkos::exp(f(value(e)) - largest);
          top = largest;
        });
        Acc const shift = reduce(top, Kokkos::Max<Acc>(parts[0]));
        Acc const factor = Kokkos::exp(top - shift);
        for (Acc& part : parts) part *= factor;
        return {shift, sum_of(parts)};
      }
    }
    Acc const shift = max(from, least, f);
    return {shift, sum<false>(from, [=](Acc v) { return Kokkos::exp(f(v) - shift); })};
  }

  /// Neighbors of one chunk as numbers.
  struct Neighbors {
    Acc values[Width];
  };

  /// This lane's elements of a vector along the row. Where the row is whole they are loaded here,
  /// so that they need not be waited for behind the sums; else where they are used.
  template <class W>
  struct Vector {
    static constexpr int size = pack_size<W, Width>;
    TensorRef<W const, 1> all;
    bool whole;
    Pack<W, size> held[chunks][Width / size];

    KOKKOS_INLINE_FUNCTION void load(int c, std::int32_t j) {
      W const* const from = Width > 1 ? all.data + j : all.data + j * all.stride[0];
      for (int p = 0; p < Width / size; ++p)
        held[c][p] = reinterpret_cast<Pack<W, size> const*>(from)[p];
    }
    /// Chunk c, which starts at element j.
    KOKKOS_INLINE_FUNCTION Neighbors chunk(int c, std::int32_t j) {
      if (!whole) load(c, j);
      Neighbors n;
      for (int i = 0; i < Width; ++i)
        n.values[i] = element_value<Acc>(held[c][i / size].element[i % size]);
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
        if (c * Width < held_) result.load(c, position(0, c));
    return result;
  }

  /// out_j = f(x_j, a_j, …) with vectors a, … along the row, from along(). Several at once by
  /// f.convert(), if there is one.
  template <class T, class Out, class F, class... Vectors>
  KOKKOS_INLINE_FUNCTION void store(Row<T const> const& from, Row<Out> const& to, F const& f,
                                    Vectors&... vectors) {
    for_each_tile(from, [&](std::int32_t first) { store_tile(to, first, f, vectors...); });
  }

  /// out_j = f(j, x_j).
  template <class T, class Out, class F>
  KOKKOS_INLINE_FUNCTION void store_indexed(Row<T const> const& from, Row<Out> const& to,
                                            F const& f) {
    for_each_tile(from, [&](std::int32_t first) {
      for (int c = 0; c < chunks; ++c) {
        if (c * Width >= held_) break;
        std::int32_t const j = position(first, c);
        Out elements[Width];
        for (int i = 0; i < Width; ++i) elements[i] = nearest_element<Out>(f(j + i, values_[c][i]));
        store_neighbors(at(to, j), elements);
      }
    });
  }

 private:
  /// Sums that a lane adds up side by side, so that additions do not wait for each other.
  static constexpr int chains = 4;

  KOKKOS_INLINE_FUNCTION Acc sum_of(Acc const (&parts)[chains]) {
    Acc const part = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    Acc unused = 0;
    return reduce(part, Kokkos::Sum<Acc>(unused));
  }

  KOKKOS_INLINE_FUNCTION Acc& value(int e) { return values_[e / Width][e % Width]; }
  KOKKOS_INLINE_FUNCTION bool counts(int e) const { return e / Width * Width < held_; }

  /// How many of its elements this lane has in the tile that starts at `first`. They come first.
  KOKKOS_INLINE_FUNCTION int held(std::int32_t first) const {
    std::int32_t const left = (size_ - first) / Width - lane_;
    std::int32_t const count = left <= 0 ? 0 : (left + span_ - 1) / span_ * Width;
    return count < Items ? count : Items;
  }
  /// Where chunk c of that tile starts.
  KOKKOS_INLINE_FUNCTION std::int32_t position(std::int32_t first, int c) const {
    return first + (c * span_ + lane_) * Width;
  }

  /// Calls f(first) with one tile after another in the registers.
  template <class T, class F>
  KOKKOS_INLINE_FUNCTION void for_each_tile(Row<T const> const& from, F const& f) {
    if constexpr (Fits) {
      f(0);
    } else {
      std::int32_t first = 0;
      do {
        if (!whole_) load_tile(from, first);
        f(first);
        first += span_ * Items;
      } while (first < size_);
    }
  }

  template <class T>
  KOKKOS_INLINE_FUNCTION void load_tile(Row<T const> const& from, std::int32_t first) {
    constexpr int size = pack_size<T, Width>;
    constexpr int packs = Width / size;
    held_ = held(first);
    Pack<T, size> raw[chunks][packs];
    for (int c = 0; c < chunks; ++c)
      if (c * Width < held_)
        for (int p = 0; p < packs; ++p)
          raw[c][p] = reinterpret_cast<Pack<T, size> const*>(at(from, position(first, c)))[p];
    for (int e = 0; e < Items; ++e)
      value(e) = e / Width * Width < held_
                     ? element_value<Acc>(raw[e / Width][e % Width / size].element[e % size])
                     : Acc(0);
  }

  template <class Out, class F, class... Vectors>
  KOKKOS_INLINE_FUNCTION void store_tile(Row<Out> const& to, std::int32_t first, F const& f,
                                         Vectors&... vectors) {
    for (int c = 0; c < chunks; ++c) {
      if (c * Width >= held_) break;
      std::int32_t const j = position(first, c);
      store_chunk(at(to, j), values_[c], f, vectors.chunk(c, j)...);
    }
  }
  template <class Out, class F, class... N>
  static KOKKOS_INLINE_FUNCTION void store_chunk(Out* to, Acc const (&values)[Width], F const& f,
                                                 N const&... others) {
    Out elements[Width];
    if constexpr (requires { f.convert(values, elements); }) {
      f.convert(values, elements);
    } else {
      for (int i = 0; i < Width; ++i)
        elements[i] = nearest_element<Out>(f(values[i], others.values[i]...));
    }
    store_neighbors(to, elements);
  }

  template <class T>
  static KOKKOS_INLINE_FUNCTION T* at(Row<T> const& row, std::int32_t j) {
    return Width > 1 ? row.data + j : row.data + j * row.stride;
  }

  /// Lanes of a warp by shuffles, then the warps' results, in order, by every lane.
  template <class Reducer>
  KOKKOS_INLINE_FUNCTION Acc reduce(Acc part, Reducer const& joins) {
    Acc total = 0;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team_, lanes_), [&](int, Acc& r) { joins.join(r, part); },
        Reducer(total));
    if (warps_ == 1) return total;
    Acc* const slots = slots_;
    slots_ += 32;  // those of this reduction may still be read while the next is written
    Kokkos::single(Kokkos::PerThread(team_), [&]() { slots[team_.team_rank()] = total; });
    team_.team_barrier();
    Acc const mine = lane_ % lanes_ < warps_ ? slots[lane_ % lanes_] : Acc(0);
    bool const counts = lane_ % lanes_ < warps_;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team_, lanes_),
        [&](int, Acc& r) {
          if (counts) joins.join(r, mine);
        },
        Reducer(total));
    return total;
  }

  Team const& team_;
  int lane_, span_, warps_, lanes_;
  std::int32_t size_;
  int held_ = 0;
  bool whole_ = true;
  Acc* slots_;
  Acc values_[chunks][Width];
};

/// Kernel body. `Op` has the types X, Out and Acc and `device_row(row, index)`.
template <class Exec, class Op, int Items, int Width, bool Fits>
struct DeviceRowKernel {
  // Few elements to a lane leave room for 1024 lanes; many need more than 64 registers.
  static constexpr int most_warps = Fits ? 16 : 32;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::LaunchBounds<most_warps * 32, 1>>;
  using Team = typename Policy::member_type;
  using Held = HeldRow<typename Op::Acc, Team, Items, Width, Fits>;

  Op op;
  RowShape shape;

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    std::int64_t index = team.league_rank();
    if (shape.warps == 1) {
      index = index * team.team_size() + team.team_rank();
      if (index >= shape.rows) return;
    }
    Held row(team, shape);
    op.device_row(row, index);
  }
};

template <int Items, int Width, bool Fits, class Exec, class Op>
void launch_device_rows_of(Exec const& exec, char const* operation, Op const& op, std::int64_t rows,
                           std::int64_t size) {
  using Kernel = DeviceRowKernel<Exec, Op, Items, Width, Fits>;
  // Lanes for all chunks of a row, if each takes as many as it can hold.
  std::int64_t const wanted = (size + Items - 1) / Items;
  RowShape shape{rows, size, 1, 1};
  while (shape.lanes < 32 && shape.lanes < wanted) shape.lanes *= 2;
  std::int64_t const warps = (wanted + 31) / 32;
  shape.warps = static_cast<int>(warps > Kernel::most_warps ? Kernel::most_warps : warps);
  int const rows_per_team = shape.warps > 1 ? 1 : 256 / shape.lanes;
  typename Kernel::Policy policy(
      exec, checked_league(operation, (rows + rows_per_team - 1) / rows_per_team),
      shape.warps > 1 ? shape.warps : rows_per_team, shape.lanes);
  if (shape.warps > 1)
    policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(Kernel::Held::slot_bytes)));
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

/// Elements that a lane takes of a row at least.
inline constexpr int few_items = 8;

/// Launches `op` over rows of `size` elements, all of which move by neighbors.
template <class Exec, class Op>
void launch_neighbor_rows(Exec const& exec, char const* operation, Op const& op, std::int64_t rows,
                          std::int64_t size) {
  if (rows == 0 || size == 0) return;
  check_row_counts(operation, rows, size);
  constexpr int width = neighbors<typename Op::X, typename Op::Out>;
  constexpr int few = few_items, many = std::is_same_v<typename Op::Acc, double> ? few : 32;
  if constexpr (many != few) {
    // Where all lanes fit on the device at once, shorter pieces wait less for memory.
    bool const small = size <= few * 1024 && rows * ((size + few - 1) / few) <= exec.concurrency();
    if (!small && size <= many * 512) {
      launch_device_rows_of<many, width, true>(exec, operation, op, rows, size);
      return;
    }
  }
  launch_device_rows_of<few, width, false>(exec, operation, op, rows, size);
}

/// The same. `wide`: whatever `op` loads and stores moves by neighbors; else by single elements.
template <class Exec, class Op>
void launch_device_rows(Exec const& exec, char const* operation, Op const& op, std::int64_t rows,
                        std::int64_t size, bool wide) {
  if (rows == 0 || size == 0) return;
  check_row_counts(operation, rows, size);
  if (wide)
    launch_neighbor_rows(exec, operation, op, rows, size);
  else
    launch_device_rows_of<few_items, 1, false>(exec, operation, op, rows, size);
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
