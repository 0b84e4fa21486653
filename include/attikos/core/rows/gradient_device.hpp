// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Gradients of row operations on a device: a row and the gradient of its result are held in
/// registers together, and so are the sums over rows that a weight's gradient is.
#pragma once

#include <attikos/core/rows/device.hpp>
#include <attikos/core/rows/sums.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// One lane's part of two rows, x and g, and of `Partials` vectors of sums over rows.
template <class X, class G, class Acc, class Team, int Items, int Width, bool Fits, int Partials>
class HeldPair : public RowLanes<Acc, Team, Items, Width, Fits> {
  using Lanes = RowLanes<Acc, Team, Items, Width, Fits>;
  using Lanes::at, Lanes::position, Lanes::size_, Lanes::slots_;
  /// Numbers that are summed over a row at once, at most.
  static constexpr int most_sums = 2;

 public:
  using Lanes::chunks, Lanes::whole;

  /// Numbers in a team's scratch: two reductions take turns with them.
  static constexpr int slots = 2 * 32 * most_sums;

  /// `partial`: where this lane's team leaves its sums, `Partials` vectors one behind the other.
  KOKKOS_INLINE_FUNCTION HeldPair(Team const& team, RowShape const& shape, Acc* partial)
      : Lanes(team, shape, slots), partial_(partial) {}

  /// Sets the rows. Elements past their ends count as 0.
  KOKKOS_INLINE_FUNCTION void load(Row<X const> const& x, Row<G const> const& g) {
    if (whole()) load_tiles(x, g, 0);
  }

  /// Sums over the row: f(x, g, w…, sums) adds what an element gives to `N` numbers. All lanes
  /// must ask, and get the sums.
  template <int N>
  struct Sums {
    Acc of[N];
  };
  template <int N, class F, class... Vectors>
  KOKKOS_INLINE_FUNCTION Sums<N> sums(Row<X const> const& x, Row<G const> const& g, F const& f,
                                      Vectors&... vectors) {
    static_assert(N <= most_sums);
    Acc parts[2][N] = {};
    for_each_tile(x, g, [&](std::int32_t first) {
      for (int c = 0; c < chunks; ++c) {
        if (!this->holds(first, c)) continue;
        add_chunk(parts, c, f, vectors.chunk(c, position(first, c))...);
      }
    });
    Sums<N> result;
    for (int i = 0; i < N; ++i) result.of[i] = parts[0][i] + parts[1][i];
    // Those of the reduction before may still be read while these are written.
    turn_ = !turn_;
    this->template reduce<AddNumbers>(result.of, slots_ + (turn_ ? 32 * most_sums : 0));
    return result;
  }

  /// out_j = f(x_j, g_j, w_j…, add); f sets the `Partials` numbers `add`, which go into the sums
  /// over rows.
  template <class Out, class F, class... Vectors>
  KOKKOS_INLINE_FUNCTION void store(Row<X const> const& x, Row<G const> const& g,
                                    Row<Out> const& to, F const& f, Vectors&... vectors) {
    for_each_tile(x, g, [&](std::int32_t first) {
      for (int c = 0; c < chunks; ++c) {
        if (!this->holds(first, c)) continue;
        std::int32_t const j = position(first, c);
        store_chunk(at(to, j), j, c, f, vectors.chunk(c, j)...);
      }
    });
    is_first_ = false;
  }

  /// Leaves the sums over rows.
  KOKKOS_INLINE_FUNCTION void finish() {
    if constexpr (Partials > 0) {
      if (!whole()) return;
      for (int c = 0; c < chunks; ++c) {
        if (!this->holds(0, c)) continue;
        std::int32_t const j = position(0, c);
        for (int p = 0; p < Partials; ++p)
          for (int i = 0; i < Width; ++i)
            partial_[p * std::int64_t{size_} + j + i] = sums_[p][c][i];
      }
    }
  }

 private:
  static constexpr int one_or_more = Partials > 0 ? Partials : 1;

  template <class F>
  KOKKOS_INLINE_FUNCTION void for_each_tile(Row<X const> const& x, Row<G const> const& g,
                                            F const& f) {
    Lanes::for_each_tile([&](std::int32_t first) { load_tiles(x, g, first); }, f);
  }
  KOKKOS_INLINE_FUNCTION void load_tiles(Row<X const> const& x, Row<G const> const& g,
                                         std::int32_t first) {
    Lanes::load_tile(x, first, x_);
    Lanes::load_tile(g, first, g_);
  }

  template <int N, class F, class... Neighbors>
  KOKKOS_INLINE_FUNCTION void add_chunk(Acc (&parts)[2][N], int c, F const& f,
                                        Neighbors const&... w) {
    for (int i = 0; i < Width; ++i)
      f(x_[c][i], g_[c][i], w.values[i]..., parts[(c * Width + i) % 2]);
  }

  template <class Out, class F, class... Neighbors>
  KOKKOS_INLINE_FUNCTION void store_chunk(Out* to, std::int32_t j, int c, F const& f,
                                          Neighbors const&... w) {
    Acc results[Width];
    for (int i = 0; i < Width; ++i) {
      Acc add[one_or_more];
      results[i] = f(x_[c][i], g_[c][i], w.values[i]..., add);
      for (int p = 0; p < Partials; ++p) {
        if (whole()) {
          sums_[p][c][i] += add[p];
        } else {
          // A lane meets the same columns in every row: the sums in memory are its own.
          Acc& sum = partial_[p * std::int64_t{size_} + j + i];
          sum = is_first_ ? add[p] : sum + add[p];
        }
      }
    }
    store_nearest(to, results);
  }

  Acc* partial_;
  bool turn_ = false, is_first_ = true;
  Acc x_[chunks][Width], g_[chunks][Width];
  Acc sums_[one_or_more][chunks][Width] = {};
};

/// Kernel body: a team, or each of its threads, takes a chunk of rows. `Op` has the types X, Dout,
/// Out and Acc, `partials`, the number of vectors of sums, `partial(chunk)`, where they go,
/// `source(row)` and `gradient(row)`, which are held, and `device_row(held, row, vectors)`, where
/// `vectors` is what `vectors(held)` gives, if it has that.
template <class Exec, class Op, int Items, int Width, bool Fits, int MostWarps>
struct DeviceGradientKernel {
  static constexpr int most_warps = MostWarps;
  // These leave 64 registers to a lane, or where sums are held 80 or 128.
  static constexpr int teams_at_once = Op::partials == 0 ? 32 / most_warps
                                       : most_warps == 8 ? 3
                                                         : 1;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::LaunchBounds<most_warps * 32, teams_at_once>>;
  using Team = typename Policy::member_type;
  using Held = HeldPair<typename Op::X, typename Op::Dout, typename Op::Acc, Team, Items, Width,
                        Fits, Op::partials>;

  Op op;
  RowShape shape;
  RowChunks chunks;

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    std::int64_t chunk = team.league_rank();
    if (shape.warps == 1) {
      chunk = chunk * team.team_size() + team.team_rank();
      if (chunk >= chunks.count()) return;
    }
    Held held(team, shape, op.partial(chunk));
    auto vectors = vectors_of(held);
    std::int64_t const first = chunks.first(chunk), last = chunks.last(chunk);
    for (std::int64_t row = first; row < last; ++row) {
      held.load(op.source(row), op.gradient(row));
      op.device_row(held, row, vectors);
    }
    held.finish();
  }

 private:
  KOKKOS_INLINE_FUNCTION auto vectors_of(Held const& held) const {
    if constexpr (requires { op.vectors(held); })
      return op.vectors(held);
    else
      return Absent{};
  }
};

template <int Items, int Width, bool Fits, int MostWarps = 16, class Exec, class Op>
void launch_device_gradient_of(Exec const& exec, char const* operation, Op const& op,
                               RowChunks const& chunks, std::int64_t size) {
  using Kernel = DeviceGradientKernel<Exec, Op, Items, Width, Fits, MostWarps>;
  RowShape const shape = row_shape(chunks.rows, size, Items, Kernel::most_warps);
  int const chunks_per_team = shape.warps > 1 ? 1 : 256 / shape.lanes;
  typename Kernel::Policy policy(
      exec, checked_league(operation, (chunks.count() + chunks_per_team - 1) / chunks_per_team),
      shape.warps > 1 ? shape.warps : chunks_per_team, shape.lanes);
  if (shape.warps > 1)
    policy.set_scratch_size(
        0, Kokkos::PerTeam(static_cast<int>(Kernel::Held::slots * sizeof(typename Op::Acc))));
  launch(operation, "portable", policy, Kernel{op, shape, chunks});
}

/// Elements that move together in a gradient that reads X and Dout and writes Out.
template <class Op>
inline constexpr int gradient_neighbors = [] {
  constexpr int width = neighbors<typename Op::X, typename Op::Out>;
  constexpr int other = neighbors<typename Op::Dout, typename Op::Out>;
  return width < other ? width : other;
}();

/// Whether rows of x, dout and dx, and a vector along them, move by neighbors of `Op`.
template <class Op, class X, class G, class Out, class Vector = Absent>
bool gradient_moves_at_once(Rows<X> const& x, Rows<G> const& dout, Rows<Out> const& dx,
                            Vector const& vector = {}) {
  constexpr int width = gradient_neighbors<Op>;
  return rows_move_at_once<width>(x) && rows_move_at_once<width>(dout) &&
         rows_move_at_once<width>(dx) && vector_moves_at_once<width>(vector);
}

/// Launches `op` over chunks of rows of `size` elements. `wide`: gradient_moves_at_once(); else by
/// single elements.
template <class Exec, class Op>
void launch_device_gradient(Exec const& exec, char const* operation, Op const& op,
                            RowChunks const& chunks, std::int64_t size, bool wide) {
  if (chunks.rows == 0 || size == 0) return;
  check_row_counts(operation, chunks.rows, size);
  constexpr int width = gradient_neighbors<Op>;
  constexpr int items = std::is_same_v<typename Op::Acc, double> ? few_items : 2 * few_items;
  if (wide && size <= items * 256)
    launch_device_gradient_of<items, width, true, 8>(exec, operation, op, chunks, size);
  else if (wide && size <= items * 512)
    launch_device_gradient_of<items, width, true>(exec, operation, op, chunks, size);
  else if (wide)
    launch_device_gradient_of<items, width, false>(exec, operation, op, chunks, size);
  else
    launch_device_gradient_of<few_items, 1, false>(exec, operation, op, chunks, size);
}

/// Each row by itself.
inline RowChunks single_rows(std::int64_t rows) { return {rows, 1}; }

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
