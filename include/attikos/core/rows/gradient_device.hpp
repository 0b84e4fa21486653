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

/// One lane's part of two rows, x and g, and of `Partials` vectors of sums over rows. `Walks`: rows
/// fit, and the next two are under way while these are worked on.
template <class X, class G, class Acc, class Team, int Items, int Width, bool Fits, bool Shifts,
          bool Walks, int Partials>
class HeldPair : public RowLanes<Acc, Team, Items, Width, Fits, Shifts> {
  using Lanes = RowLanes<Acc, Team, Items, Width, Fits, Shifts>;
  using Lanes::position, Lanes::size_;
  /// Numbers that are summed over a row at once, at most.
  static constexpr int most_sums = 2;

 public:
  using Lanes::chunks, Lanes::whole;

  /// A vector along the row. It is held where rows, those under way too, and sums leave registers.
  template <class W>
  KOKKOS_INLINE_FUNCTION auto along(TensorRef<W const, 1> const& vector) const {
    constexpr int bytes = 2 * static_cast<int>(sizeof(X) + sizeof(G)) + static_cast<int>(sizeof(W));
    constexpr int words = Items * bytes / 4 + Items * Partials;
    constexpr bool few = Items <= 2 * few_items;
    return Lanes::along(vector, Walks ? words <= (few ? 72 : 112) : few);
  }

  /// Numbers in a team's scratch: two reductions take turns with them.
  static constexpr int slots = 2 * 32 * most_sums;

  /// `partial`: where this lane's team leaves its sums, `Partials` vectors one behind the other.
  KOKKOS_INLINE_FUNCTION HeldPair(Team const& team, RowShape const& shape, RowStart const& start,
                                  Acc* partial)
      : Lanes(team, shape, slots, start), partial_(partial) {}

  /// Sets the rows. Elements past their ends count as 0. `ends`: memory may end with them.
  KOKKOS_INLINE_FUNCTION void load(Row<X const> const& x, Row<G const> const& g, bool ends) {
    this->start_.ends = ends;
    if (whole()) load_tiles(x, g, 0);
  }

  /// Asks for the rows that follow, and makes them those that are held.
  KOKKOS_INLINE_FUNCTION void ask(Row<X const> const& x, Row<G const> const& g, bool ends) {
    RowStart const start{this->start_.ahead, ends};
    next_x_ = Lanes::fetch(x, start, 0);
    next_g_ = Lanes::fetch(g, start, 0);
  }
  KOKKOS_INLINE_FUNCTION void take(Row<X const> const& x, Row<G const> const& g, bool ends) {
    this->start_.ends = ends;
    auto of_x = next_x_;
    auto of_g = next_g_;
    unpack(of_x, of_g, x, g, 0);
  }

  /// This lane's part of a row that is added to what is stored, asked for before the sums are
  /// waited for, where the row is held.
  template <class R>
  struct Added {
    Row<R const> row;
    Loaded<R, Width> parts[chunks];
  };
  template <class R>
  KOKKOS_INLINE_FUNCTION Added<R> added(Row<R const> const& row) const {
    Added<R> result{row, {}};
    if constexpr (!Shifts) {
      ATTIKOS_UNROLL_DEVICE
      for (int c = 0; c < chunks; ++c)
        if (whole() && this->holds(0, c)) result.parts[c].load(Lanes::at(row, position(0, c)));
    }
    return result;
  }
  KOKKOS_INLINE_FUNCTION Absent added(Absent) const { return {}; }

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
    this->template reduce<AddNumbers, slots>(result.of);
    return result;
  }

  /// out_j = f(x_j, g_j, w_j…, add); f sets the `Partials` numbers `add`, which go into the sums
  /// over rows.
  template <class Out, class F, class... Vectors>
  KOKKOS_INLINE_FUNCTION void store(Row<X const> const& x, Row<G const> const& g,
                                    Row<Out> const& to, F const& f, Vectors&... vectors) {
    store_sum(Absent{}, x, g, to, f, vectors...);
  }
  /// The same and what added() gave, in sum.
  template <class More, class Out, class F, class... Vectors>
  KOKKOS_INLINE_FUNCTION void store_sum(More const& more, Row<X const> const& x,
                                        Row<G const> const& g, Row<Out> const& to, F const& f,
                                        Vectors&... vectors) {
    for_each_tile(x, g, [&](std::int32_t first) {
      ATTIKOS_UNROLL_DEVICE
      for (int c = 0; c < chunks; ++c) {
        if (!this->holds(first, c)) continue;
        std::int32_t const j = position(first, c);
        store_chunk(to, first, c, more, f, vectors.chunk(c, j)...);
      }
    });
    is_first_ = false;
  }

  /// first_j = f(x_j, g_j, w_j…, second_j), where there are no sums over rows.
  template <class First, class Second, class F, class... Vectors>
  KOKKOS_INLINE_FUNCTION void store_two(Row<X const> const& x, Row<G const> const& g,
                                        Row<First> const& to_first, Row<Second> const& to_second,
                                        F const& f, Vectors&... vectors) {
    static_assert(Partials == 0 && !Shifts);
    for_each_tile(x, g, [&](std::int32_t first) {
      ATTIKOS_UNROLL_DEVICE
      for (int c = 0; c < chunks; ++c) {
        if (!this->holds(first, c)) continue;
        std::int32_t const j = position(first, c);
        store_two_chunks(to_first, to_second, j, c, f, vectors.chunk(c, j)...);
      }
    });
  }

  /// Leaves the sums over rows.
  KOKKOS_INLINE_FUNCTION void finish() {
    if constexpr (Partials > 0) {
      if (!whole()) return;
      for (int c = 0; c < chunks; ++c) {
        if (!this->holds(0, c)) continue;
        std::int32_t const j = position(0, c);
        for (int p = 0; p < Partials; ++p) {
          Acc* const to = partial_ + (p * std::int64_t{size_} + j);
          for (int i = 0; i < Width; i += pair) {
            if constexpr (Shifts) {
              if (this->counts(0, c * Width + i)) to[i] = sums_[p][c][i];
            } else {
              Acc sum[pair];
              for (int l = 0; l < pair; ++l) sum[l] = sums_[p][c][i + l];
              store_neighbors(to + i, sum);
            }
          }
        }
      }
    }
  }

 private:
  static constexpr int one_or_more = Partials > 0 ? Partials : 1;
  /// Sums that move at once: a workspace is aligned to 8 bytes.
  static constexpr int pair = Width > 1 && !Shifts ? 8 / static_cast<int>(sizeof(Acc)) : 1;

  using FetchedX = typename Lanes::template Fetched<X>;
  using FetchedG = typename Lanes::template Fetched<G>;

  template <class F>
  KOKKOS_INLINE_FUNCTION void for_each_tile(Row<X const> const& x, Row<G const> const& g,
                                            F const& f) {
    Lanes::for_each_tile([&](std::int32_t first) { load_tiles(x, g, first); }, f);
  }
  KOKKOS_INLINE_FUNCTION void load_tiles(Row<X const> const& x, Row<G const> const& g,
                                         std::int32_t first) {
    auto of_x = Lanes::fetch(x, this->start_, first);
    auto of_g = Lanes::fetch(g, this->start_, first);
    unpack(of_x, of_g, x, g, first);
  }
  KOKKOS_INLINE_FUNCTION void unpack(FetchedX& of_x, FetchedG& of_g, Row<X const> const& x,
                                     Row<G const> const& g, std::int32_t first) {
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

  template <class First, class Second, class F, class... Neighbors>
  KOKKOS_INLINE_FUNCTION void store_two_chunks(Row<First> const& to_first,
                                               Row<Second> const& to_second, std::int32_t j, int c,
                                               F const& f, Neighbors const&... w) {
    Acc results[Width], others[Width];
    for (int i = 0; i < Width; ++i) results[i] = f(x(c, i), g(c, i), w.values[i]..., others[i]);
    this->put(to_first, j, results);
    this->put(to_second, j, others);
  }

  KOKKOS_INLINE_FUNCTION void add_to(Acc (&)[Width], Absent, int, std::int32_t) const {}
  template <class R>
  KOKKOS_INLINE_FUNCTION void add_to(Acc (&results)[Width], Added<R> const& more, int c,
                                     std::int32_t j) const {
    if constexpr (Shifts) {
      for (int i = 0; i < Width; ++i)
        if (this->is_inside(j + i)) results[i] += element_value<Acc>(more.row.data[j + i]);
    } else {
      Loaded<R, Width> part = more.parts[c];
      if (!whole()) part.load(Lanes::at(more.row, j));
      for (int i = 0; i < Width; ++i) results[i] += part.template value<Acc>(i);
    }
  }

  template <class Out, class More, class F, class... Neighbors>
  KOKKOS_INLINE_FUNCTION void store_chunk(Row<Out> const& to, std::int32_t first, int c,
                                          More const& more, F const& f, Neighbors const&... w) {
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
          for (int i = 0; i < Width; i += pair) {
            Acc sum[pair] = {};
            if (!is_first_) load_neighbors(sums + i, sum);
            for (int l = 0; l < pair; ++l) sum[l] += add[p][i + l];
            store_neighbors(sums + i, sum);
          }
        }
      }
    }
    add_to(results, more, c, j);
    this->put(to, j, results);
  }

  Acc* partial_;
  bool is_first_ = true;
  // As they came from memory: small elements take half the registers of numbers.
  Loaded<X, Width> x_[chunks];
  Loaded<G, Width> g_[chunks];
  std::conditional_t<Walks, FetchedX, Absent> next_x_;
  std::conditional_t<Walks, FetchedG, Absent> next_g_;
  Acc sums_[one_or_more][chunks][Width] = {};
};

/// Kernel body: a team, or each of its threads, takes a chunk of rows, every `chunks`-th. `Op` has
/// the types X, Dout, Out and Acc, `partials`, the number of vectors of sums, `partial(chunk)`,
/// where they go, `source(row)` and `gradient(row)`, which are held, `target(row)`, which is
/// stored, and `device_row(held, row, vectors)`, where `vectors` is what `vectors(held)` gives, if
/// it has that.
template <class Exec, class Op, int Items, int Width, bool Fits, bool Shifts, bool Walks,
          int MostWarps>
struct DeviceGradientKernel {
  static constexpr int most_warps = MostWarps;
  // These leave 64 registers to a lane, 80, 128 or 168 where sums, packs or many elements are held.
  static constexpr bool holds_more = Op::partials > 0 || Shifts || Items > 2 * few_items;
  static constexpr int teams_at_once = !holds_more       ? 32 / most_warps
                                       : most_warps == 4 ? 3
                                       : most_warps == 8 ? (Walks ? 2 : 3)
                                                         : 1;
  static constexpr int lanes_at_once = most_warps * 32 * teams_at_once;
  // Shifted rows of 4096 elements take nine warps, of which 18 fit on a multiprocessor with 96
  // registers to a lane.
  static constexpr bool by_nine_warps = Shifts && !Walks && Op::partials == 1 && Items <= 16;
  using Policy = Kokkos::TeamPolicy<
      Exec, Kokkos::LaunchBounds<by_nine_warps ? 640 : most_warps * 32, teams_at_once>>;
  using Team = typename Policy::member_type;
  using Held = HeldPair<typename Op::X, typename Op::Dout, typename Op::Acc, Team, Items, Width,
                        Fits, Shifts, Walks, Op::partials>;

  Op op;
  RowShape shape;
  std::int64_t chunks;

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    std::int64_t chunk = team.league_rank();
    if (shape.warps == 1) {
      chunk = chunk * team.team_size() + team.team_rank();
      if (chunk >= chunks) return;
    }
    Held held(team, shape, row_start<Width, Shifts>(op, chunk, shape.rows), op.partial(chunk));
    auto vectors = vectors_of(held);
    if constexpr (Walks) held.ask(op.source(chunk), op.gradient(chunk), chunk + 1 == shape.rows);
    for (std::int64_t row = chunk; row < shape.rows; row += chunks) {
      if constexpr (Walks) {
        held.take(op.source(row), op.gradient(row), row + 1 == shape.rows);
        std::int64_t const next = row + chunks;
        if (next < shape.rows) held.ask(op.source(next), op.gradient(next), next + 1 == shape.rows);
      } else {
        held.load(op.source(row), op.gradient(row), row + 1 == shape.rows);
      }
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

/// The number n of chunks, at most `chunks`, of which each takes every n-th row. Rows at that
/// distance start alike behind a boundary of packs: n is a multiple of the elements of a pack.
inline std::int64_t alternating(std::int64_t chunks) {
  constexpr std::int64_t most = 8;
  return chunks >= most ? chunks / most * most : chunks;
}

/// Returns the number of chunks, at most `chunks` and a multiple of 8 where it is more. Teams that
/// walk are no more than the device runs at once.
template <int Items, int Width, bool Fits, bool Shifts, bool Walks, int MostWarps, class Exec,
          class Op>
std::int64_t launch_device_gradient_of(Exec const& exec, char const* operation, Op const& op,
                                       std::int64_t rows, std::int64_t chunks, std::int64_t size) {
  using Kernel = DeviceGradientKernel<Exec, Op, Items, Width, Fits, Shifts, Walks, MostWarps>;
  RowShape const shape = row_shape(rows, size, Items, Kernel::most_warps, Shifts ? Width - 1 : 0);
  int const chunks_per_team =
      shape.warps > 1 ? 1 : std::min(256, 32 * Kernel::most_warps) / shape.lanes;
  int const threads = shape.warps > 1 ? shape.warps : chunks_per_team;
  if constexpr (Walks)
    chunks = std::min(chunks, chunks_per_team * resident_teams(exec, Kernel::lanes_at_once,
                                                               threads * shape.lanes));
  if (chunks < rows) chunks = alternating(chunks);
  typename Kernel::Policy policy(
      exec, checked_league(operation, (chunks + chunks_per_team - 1) / chunks_per_team), threads,
      shape.lanes);
  if (shape.warps > 1)
    policy.set_scratch_size(
        0, Kokkos::PerTeam(static_cast<int>(Kernel::Held::slots * sizeof(typename Op::Acc))));
  launch(operation, "portable", policy, Kernel{op, shape, chunks});
  return chunks;
}

/// Elements that move together in a gradient that reads X and Dout and writes Out.
template <class Op>
inline constexpr int gradient_neighbors = [] {
  constexpr int width = neighbors<typename Op::X, typename Op::Out>;
  constexpr int other = neighbors<typename Op::Dout, typename Op::Out>;
  return width < other ? width : other;
}();

/// Whether `Op` stores two rows, of which the second need not lie behind boundaries of packs as the
/// first does: its rows are not shifted.
template <class Op>
inline constexpr bool stores_two = requires {
  typename Op::Sum;
};

/// How the rows of x, dout and dx, and a vector along them and what is added to dx, if they are
/// there, are reached.
template <class Op, class X, class G, class Out, class Vector = Absent, class More = Absent>
Access gradient_access(Rows<X> const& x, Rows<G> const& dout, Rows<Out> const& dx,
                       Vector const& vector = {}, More const& more = {}) {
  Access const access = common_access<gradient_neighbors<Op>>(x, dout, dx, vector, more);
  // A lane holds sums of the same columns only if all its rows start alike.
  bool const alike = Op::partials == 0 || dx.outer == 1;
  return access == Access::shifted && !alike ? Access::single : access;
}

/// Launches `op` over chunks of rows of `size` elements; returns their number.
template <class Exec, class Op>
std::int64_t launch_device_gradient(Exec const& exec, char const* operation, Op const& op,
                                    RowChunks const& row_chunks, std::int64_t size, Access access) {
  std::int64_t const rows = row_chunks.rows, chunks = row_chunks.count();
  if (rows == 0 || size == 0) return chunks;
  check_row_counts(operation, rows, size);
  constexpr int width = gradient_neighbors<Op>;
  constexpr bool is_double = std::is_same_v<typename Op::Acc, double>;
  constexpr int items = is_double ? few_items : 2 * few_items;
  // Registers of two rows and of the sums over rows in words, with `items` to a lane: one of 512
  // has 128, one of three teams of 128 has 168.
  constexpr int of_rows =
      items * static_cast<int>(sizeof(typename Op::X) + sizeof(typename Op::Dout)) / 4;
  constexpr int of_sums = items * Op::partials;
  constexpr bool walks = !is_double && Op::partials > 0 && 2 * of_rows + of_sums <= 80;
  constexpr bool by_128 = walks && 2 * (2 * of_rows + of_sums) <= 128;
  constexpr int short_items = by_128 ? 2 * items : items, short_warps = by_128 ? 4 : 8;
  auto const launch_of =
      [&]<int Items, int Width, bool Fits, bool Shifts, bool Walks, int MostWarps>() {
        return launch_device_gradient_of<Items, Width, Fits, Shifts, Walks, MostWarps>(
            exec, operation, op, rows, chunks, size);
      };
  if (access == Access::aligned) {
    // A few rows, each a chunk, wait for a lane's program, which is the shorter the less it holds.
    if constexpr (!is_double && Op::partials > 0)
      if (rows <= concurrency_of(exec) / 1024 && chunks == rows && size <= few_items * 512)
        return launch_of.template operator()<few_items, width, true, false, false, 16>();
    if (size <= items * 256)
      return launch_of.template operator()<short_items, width, true, false, walks, short_warps>();
  }
  auto const launch_by = [&](auto shifts) {
    constexpr bool shift = decltype(shifts)::value;
    constexpr bool walk = walks && (!shift || Op::partials > 1);
    std::int64_t const places = size + (shift ? width : 0);
    if (places <= items * 512)
      return launch_of.template operator()<items, width, true, shift, walk, 16>();
    if constexpr (!is_double && 2 * (of_rows + of_sums) <= 96)
      if (places <= 2 * items * 512)
        return launch_of.template operator()<2 * items, width, true, shift, false, 16>();
    return launch_of.template operator()<items, width, false, shift, false, 16>();
  };
  if (access == Access::aligned) return launch_by(std::false_type{});
  // Single elements of 64 bits fill a warp's accesses.
  if constexpr (!is_double && !stores_two<Op>)
    if (access == Access::shifted) return launch_by(std::true_type{});
  return launch_of.template operator()<few_items, 1, false, false, false, 16>();
}

/// Each row by itself.
inline RowChunks single_rows(std::int64_t rows) { return {rows, 1}; }

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
