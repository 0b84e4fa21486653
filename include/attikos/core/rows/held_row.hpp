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
template <class X, class Acc, class Team, int Items, int Width, Lanes Share, bool Walks,
          int MostWarps>
class HeldRow : public RowLanes<Acc, Team, Items, Width, Share, MostWarps> {
  using Base = RowLanes<Acc, Team, Items, Width, Share, MostWarps>;
  using Base::position;
  static constexpr bool walks_tiles = Walks && !Base::fits;

 public:
  using Base::chunks, Base::whole, Base::width;

  /// A vector along the row. One that takes many registers is loaded where it is used: more rows in
  /// flight are worth more.
  template <class W>
  KOKKOS_INLINE_FUNCTION auto along(TensorRef<W const, 1> const& vector) const {
    constexpr bool few = Items * bytes_held<W, width> <= most_vector_bytes;
    return Base::along(vector, !Walks || few);
  }
  KOKKOS_INLINE_FUNCTION Absent along(Absent) const { return {}; }

  /// Numbers in a team's scratch.
  static constexpr int slots = 2 * 32 * 2;

  KOKKOS_INLINE_FUNCTION HeldRow(Team const& team, RowShape const& shape)
      : Base(team, shape, slots) {
    if constexpr (walks_tiles) this->whole_ = false;
  }

  /// Sets the row. Elements past its end count as 0.
  KOKKOS_INLINE_FUNCTION void load(Row<X const> const& from) {
    first_element_ = *from.data;
    if (whole()) Base::unpack(Base::fetch(from, 0), values_);
  }

  /// Names the row that follows, which may be under way from now on, and makes it the one that is
  /// held. The row before it is done with by then.
  KOKKOS_INLINE_FUNCTION void announce(Row<X const> const& from) {
    following_ = from;
    first_of_following_ = *from.data;
    if constexpr (Base::fits) ask_for_following();
  }
  KOKKOS_INLINE_FUNCTION void take_following() {
    first_element_ = first_of_following_;
    if constexpr (Base::fits)
      Base::unpack(next_, values_);
    else if (!asked_)
      ask_for_following();
    asked_ = false;
  }
  KOKKOS_INLINE_FUNCTION void announce_none() { is_last_ = true; }

  /// The row's first element.
  KOKKOS_INLINE_FUNCTION Acc first() const { return element_value<Acc>(first_element_); }

  /// Σ f(x_j). `PadsWithZero`: f(0) is 0, so that elements past the end need no question. `last`,
  /// here and below: the row is not gone through again, so that the next may be asked for; store()
  /// always is.
  template <bool PadsWithZero, class F>
  KOKKOS_INLINE_FUNCTION Acc sum(Row<X const> const& from, F const& f, bool last = false) {
    Acc parts[chains] = {};
    for_each_tile(from, last, [&](std::int32_t) {
      for (int e = 0; e < Items; ++e)
        if (PadsWithZero || counts(e)) parts[e % chains] += f(value(e));
    });
    return sum_of(parts);
  }

  /// Several sums: f(x_j, shift, sums) adds what an element gives to `N` numbers. Past the row's
  /// end all that f gets is 0, the shift too, and it must add nothing.
  template <int N, class F>
  KOKKOS_INLINE_FUNCTION auto sums(Row<X const> const& from, Acc shift, F const& f) {
    Acc parts[2][N] = {};
    for_each_tile(from, false, [&](std::int32_t) {
      for (int e = 0; e < Items; ++e) f(value(e), counts(e) ? shift : Acc(0), parts[e % 2]);
    });
    return Base::template sums_of<slots>(parts);
  }

  /// Σ f(x_j), and f(x_j) becomes the element where the row is whole.
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

  /// The largest f(x_j), or `least` if none is larger; NaN is not. `PadsWithZero`: nor is f(0).
  template <bool PadsWithZero = false, class F>
  KOKKOS_INLINE_FUNCTION Acc max(Row<X const> const& from, Acc least, F const& f,
                                 bool last = false) {
    Acc parts[chains];
    for (Acc& part : parts) part = least;
    for_each_tile(from, last, [&](std::int32_t) {
      for (int e = 0; e < Items; ++e)
        if (PadsWithZero || counts(e))
          parts[e % chains] = Kokkos::fmax(parts[e % chains], f(value(e)));
    });
    for (int i = 1; i < chains; ++i) parts[0] = Kokkos::fmax(parts[0], parts[i]);
    return reduce<LargerNumber>(parts[0]);
  }

  /// What weights e^(f(x_j) − shift) are relative to, and their sum.
  struct Exponentials {
    Acc shift, sum;
  };

  /// shift: the largest f(x_j), or the lowest finite number if none is larger, so that a row of −∞
  /// only sums to 0. A row is gone through once: each lane has a largest of its own so far, and a
  /// sum relative to that (Milakov and Gimelshein, arXiv:1805.02867).
  template <class F>
  KOKKOS_INLINE_FUNCTION Exponentials exponentials(Row<X const> const& from, F const& f,
                                                   bool last = false) {
    Acc top = Kokkos::Experimental::finite_min_v<Acc>, parts[chains] = {};
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
    Acc sum = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    Base::template reduce_exponentials<slots>(top, sum);
    return {top, sum};
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
        std::int32_t const j = position(first, c);
        Acc results[width];
        for (int i = 0; i < width; ++i) results[i] = f(j + i, values_[c][i]);
        if (this->holds(first, c)) this->put(to, j, results);
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
    Base::template reduce<Join, slots>(one);
    return one[0];
  }

  KOKKOS_INLINE_FUNCTION Acc& value(int e) { return values_[e / width][e % width]; }
  /// Whether the row has element e of the tile.
  KOKKOS_INLINE_FUNCTION bool counts(int e) const { return this->holds(first_, e / width); }

  /// What is asked for is the next tile, behind the last one the first of the next pass or row.
  template <class F>
  KOKKOS_INLINE_FUNCTION void for_each_tile(Row<X const> const& from, [[maybe_unused]] bool last,
                                            F const& f) {
    Base::for_each_tile(
        [&](std::int32_t first) {
          first_ = first;
          if constexpr (walks_tiles) {
            Base::unpack(next_, values_);
            std::int32_t const next = first + this->row_lanes() * Items;
            if (next < this->size_ || !last) {
              next_ = Base::fetch(from, next < this->size_ ? next : 0);
            } else if (!is_last_) {
              ask_for_following();
            }
          } else {
            Base::unpack(Base::fetch(from, first), values_);
          }
        },
        f);
  }
  KOKKOS_INLINE_FUNCTION void ask_for_following() {
    next_ = Base::fetch(following_, 0);
    asked_ = true;
  }

  template <class Out, class F, class... Vectors>
  KOKKOS_INLINE_FUNCTION void store_tile(Row<Out> const& to, std::int32_t first, F const& f,
                                         Vectors&... vectors) {
    ATTIKOS_UNROLL_DEVICE
    for (int c = 0; c < chunks; ++c) {
      std::int32_t const j = position(first, c);
      store_chunk(to, j, this->holds(first, c), values_[c], f, vectors.chunk(c, j)...);
    }
  }
  template <int Count, class Out, class F, class... N>
  KOKKOS_INLINE_FUNCTION void store_chunk(Row<Out> const& to, std::int32_t j, bool holds,
                                          Acc const (&values)[Count], F const& f,
                                          N const&... others) const {
    if constexpr (requires(Out(&elements)[Count]) { f.convert(values, elements); }) {
      Out elements[Count];
      f.convert(values, elements);
      if (holds) this->put_elements(to, j, elements);
    } else {
      Acc results[Count];
      for (int i = 0; i < Count; ++i) results[i] = f(values[i], others.values[i]...);
      if (holds) this->put(to, j, results);
    }
  }

  X first_element_{}, first_of_following_{};
  std::int32_t first_ = 0;                ///< where the tile that is held starts
  bool asked_ = false, is_last_ = false;  ///< for the following row; of the rows
  Row<X const> following_{};
  typename Base::template Fetched<X> next_;
  Acc values_[chunks][width];
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
