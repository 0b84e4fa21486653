// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// A row in the registers of the lanes of a device that share it: sums and maxima over it, and what
/// is stored of it.
#pragma once

#include <attikos/core/extras.hpp>
#include <attikos/core/rows/lanes.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

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
  using Lanes::position;
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

  /// Numbers in a team's scratch.
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
    Lanes::template reduce<Join, slots>(one);
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

  std::int32_t first_ = 0;                ///< where the tile that is held starts
  bool asked_ = false, is_last_ = false;  ///< for the following row; of the rows
  Row<X const> following_{};
  RowStart start_of_following_{};
  typename Lanes::template Fetched<X> next_;
  Acc values_[chunks][Width];
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
