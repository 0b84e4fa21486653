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
template <class X, class G, class Acc, class Team, int Items, int Width, bool Fits, bool Shifts,
          int Partials>
class HeldPair : public RowLanes<Acc, Team, Items, Width, Fits, Shifts> {
  using Lanes = RowLanes<Acc, Team, Items, Width, Fits, Shifts>;
  using Lanes::position, Lanes::size_, Lanes::slots_;
  /// Numbers that are summed over a row at once, at most.
  static constexpr int most_sums = 2;

 public:
  using Lanes::chunks, Lanes::whole;

  /// A vector along the row. With many elements to a lane its registers go to the sums over rows.
  template <class W>
  KOKKOS_INLINE_FUNCTION auto along(TensorRef<W const, 1> const& vector) const {
    return Lanes::along(vector, Items <= 2 * few_items);
  }

  /// Numbers in a team's scratch: two reductions take turns with them.
  static constexpr int slots = 2 * 32 * most_sums;

  /// `partial`: where this lane's team leaves its sums, `Partials` vectors one behind the other.
  KOKKOS_INLINE_FUNCTION HeldPair(Team const& team, RowShape const& shape, int ahead, Acc* partial)
      : Lanes(team, shape, slots, ahead), partial_(partial) {}

  /// Sets the rows. Elements past their ends count as 0. `last`: of their tensors.
  KOKKOS_INLINE_FUNCTION void load(Row<X const> const& x, Row<G const> const& g, bool last) {
    this->ends_ = last;
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
      ATTIKOS_UNROLL_DEVICE
      for (int c = 0; c < chunks; ++c) {
        if (!this->holds(first, c)) continue;
        add_chunk(parts, first, c, f, vectors.chunk(c, position(first, c))...);
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
      ATTIKOS_UNROLL_DEVICE
      for (int c = 0; c < chunks; ++c) {
        if (!this->holds(first, c)) continue;
        std::int32_t const j = position(first, c);
        store_chunk(to, first, c, f, vectors.chunk(c, j)...);
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
            if (this->counts(0, c * Width + i))
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
    auto of_x = Lanes::fetch(x, first);
    auto of_g = Lanes::fetch(g, first);
    ATTIKOS_UNROLL_DEVICE
    for (int c = 0; c < chunks; ++c) x_[c] = Lanes::raw(of_x, x, first, c);
    ATTIKOS_UNROLL_DEVICE
    for (int c = 0; c < chunks; ++c) g_[c] = Lanes::raw(of_g, g, first, c);
  }
  KOKKOS_INLINE_FUNCTION Acc x(int c, int i) const { return x_[c].template value<Acc>(i); }
  KOKKOS_INLINE_FUNCTION Acc g(int c, int i) const { return g_[c].template value<Acc>(i); }

  template <int N, class F, class... Neighbors>
  KOKKOS_INLINE_FUNCTION void add_chunk(Acc (&parts)[2][N], std::int32_t first, int c, F const& f,
                                        Neighbors const&... w) {
    for (int i = 0; i < Width; ++i)
      if (!Shifts || this->counts(first, c * Width + i))
        f(x(c, i), g(c, i), w.values[i]..., parts[(c * Width + i) % 2]);
  }

  template <class Out, class F, class... Neighbors>
  KOKKOS_INLINE_FUNCTION void store_chunk(Row<Out> const& to, std::int32_t first, int c, F const& f,
                                          Neighbors const&... w) {
    Acc results[Width], add[one_or_more][Width];
    for (int i = 0; i < Width; ++i) {
      Acc terms[one_or_more];
      results[i] = f(x(c, i), g(c, i), w.values[i]..., terms);
      for (int p = 0; p < Partials; ++p) add[p][i] = terms[p];
    }
    std::int32_t const j = position(first, c);
    for (int p = 0; p < Partials; ++p) {
      if (whole()) {
        for (int i = 0; i < Width; ++i) sums_[p][c][i] += add[p][i];
      } else {
        // A lane meets the same columns in every row: the sums in memory are its own.
        Acc* const sums = partial_ + (p * std::int64_t{size_} + j);
        if constexpr (Shifts) {
          for (int i = 0; i < Width; ++i)
            if (this->is_inside(j + i)) sums[i] = is_first_ ? add[p][i] : sums[i] + add[p][i];
        } else {
          // A workspace is aligned to 8 bytes.
          constexpr int pair = Width > 1 ? 8 / static_cast<int>(sizeof(Acc)) : 1;
          for (int i = 0; i < Width; i += pair) {
            Acc sum[pair] = {};
            if (!is_first_) load_neighbors(sums + i, sum);
            for (int l = 0; l < pair; ++l) sum[l] += add[p][i + l];
            store_neighbors(sums + i, sum);
          }
        }
      }
    }
    this->put(to, j, results);
  }

  Acc* partial_;
  bool turn_ = false, is_first_ = true;
  // As they came from memory: small elements take half the registers of numbers.
  Loaded<X, Width> x_[chunks];
  Loaded<G, Width> g_[chunks];
  Acc sums_[one_or_more][chunks][Width] = {};
};

/// Kernel body: a team, or each of its threads, takes a chunk of rows, every `chunks`-th. `Op` has
/// the types X, Dout, Out and Acc, `partials`, the number of vectors of sums, `partial(chunk)`,
/// where they go, `source(row)` and `gradient(row)`, which are held, `target(row)`, which is
/// stored, and `device_row(held, row, vectors)`, where `vectors` is what `vectors(held)` gives, if
/// it has that.
template <class Exec, class Op, int Items, int Width, bool Fits, bool Shifts, int MostWarps>
struct DeviceGradientKernel {
  static constexpr int most_warps = MostWarps;
  // These leave 64 registers to a lane, 80 or 128 where sums, packs or many elements are held.
  static constexpr bool holds_more = Op::partials > 0 || Shifts || Items > 2 * few_items;
  static constexpr int teams_at_once = !holds_more ? 32 / most_warps : most_warps == 8 ? 3 : 1;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::LaunchBounds<most_warps * 32, teams_at_once>>;
  using Team = typename Policy::member_type;
  using Held = HeldPair<typename Op::X, typename Op::Dout, typename Op::Acc, Team, Items, Width,
                        Fits, Shifts, Op::partials>;

  Op op;
  RowShape shape;
  std::int64_t chunks;

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    std::int64_t chunk = team.league_rank();
    if (shape.warps == 1) {
      chunk = chunk * team.team_size() + team.team_rank();
      if (chunk >= chunks) return;
    }
    Held held(team, shape, Shifts ? ahead_of_row<Width>(op, chunk) : 0, op.partial(chunk));
    auto vectors = vectors_of(held);
    for (std::int64_t row = chunk; row < shape.rows; row += chunks) {
      held.load(op.source(row), op.gradient(row), row + 1 == shape.rows);
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

template <int Items, int Width, bool Fits, bool Shifts = false, int MostWarps = 16, class Exec,
          class Op>
void launch_device_gradient_of(Exec const& exec, char const* operation, Op const& op,
                               std::int64_t rows, std::int64_t chunks, std::int64_t size) {
  using Kernel = DeviceGradientKernel<Exec, Op, Items, Width, Fits, Shifts, MostWarps>;
  RowShape const shape = row_shape(rows, size, Items, Kernel::most_warps, Shifts ? Width - 1 : 0);
  int const chunks_per_team = shape.warps > 1 ? 1 : 256 / shape.lanes;
  typename Kernel::Policy policy(
      exec, checked_league(operation, (chunks + chunks_per_team - 1) / chunks_per_team),
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

/// How the rows of x, dout and dx and a vector along them are reached.
template <class Op, class X, class G, class Out, class Vector = Absent>
Access gradient_access(Rows<X> const& x, Rows<G> const& dout, Rows<Out> const& dx,
                       Vector const& vector = {}) {
  Access const access = common_access<gradient_neighbors<Op>>(x, dout, dx, vector);
  // A lane holds sums of the same columns only if all its rows start alike.
  bool const alike = Op::partials == 0 || dx.outer == 1;
  return access == Access::shifted && !alike ? Access::single : access;
}

/// The number n of chunks, at most that of `chunks`, of which each takes every n-th row. Rows at
/// one distance then start alike behind a boundary of packs: n is a multiple of the elements of a
/// pack, unless each chunk has one row.
inline std::int64_t alternating_chunks(RowChunks const& chunks) {
  constexpr std::int64_t most = 8;
  std::int64_t const n = chunks.count();
  return n < chunks.rows && n >= most ? n / most * most : n;
}

/// Launches `op` over chunks of rows of `size` elements; returns their number.
template <class Exec, class Op>
std::int64_t launch_device_gradient(Exec const& exec, char const* operation, Op const& op,
                                    RowChunks const& row_chunks, std::int64_t size, Access access) {
  std::int64_t const rows = row_chunks.rows, chunks = alternating_chunks(row_chunks);
  if (rows == 0 || size == 0) return chunks;
  check_row_counts(operation, rows, size);
  constexpr int width = gradient_neighbors<Op>;
  constexpr bool is_double = std::is_same_v<typename Op::Acc, double>;
  constexpr int items = is_double ? few_items : 2 * few_items;
  // Registers of twice as many elements: a lane of 512 has 128.
  constexpr int words =
      2 * items *
      (static_cast<int>(sizeof(typename Op::X) + sizeof(typename Op::Dout)) / 4 + Op::partials);
  if (access == Access::aligned && size <= items * 256) {
    launch_device_gradient_of<items, width, true, false, 8>(exec, operation, op, rows, chunks,
                                                            size);
    return chunks;
  }
  auto const launch_by = [&](auto shifts) {
    constexpr bool shift = decltype(shifts)::value;
    std::int64_t const places = size + (shift ? width : 0);
    if (places <= items * 512)
      return launch_device_gradient_of<items, width, true, shift>(exec, operation, op, rows, chunks,
                                                                  size);
    if constexpr (!is_double && words <= 96)
      if (places <= 2 * items * 512)
        return launch_device_gradient_of<2 * items, width, true, shift>(exec, operation, op, rows,
                                                                        chunks, size);
    launch_device_gradient_of<items, width, false, shift>(exec, operation, op, rows, chunks, size);
  };
  if (access == Access::aligned) {
    launch_by(std::false_type{});
    return chunks;
  }
  // Single elements of 64 bits fill a warp's accesses.
  if constexpr (!is_double) {
    if (access == Access::shifted) {
      launch_by(std::true_type{});
      return chunks;
    }
  }
  launch_device_gradient_of<few_items, 1, false>(exec, operation, op, rows, chunks, size);
  return chunks;
}

/// Each row by itself.
inline RowChunks single_rows(std::int64_t rows) { return {rows, 1}; }

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
