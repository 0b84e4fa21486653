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
///
/// Elements past a row's end are 0, and so are those of vectors there, so that what all lanes do
/// with them needs no question, whose branches would keep loads behind the arithmetic before them.
template <class X, class G, class Acc, class Team, int Items, int Width, Lanes Share, bool Walks,
          int Partials, int MostWarps>
class HeldPair : public RowLanes<Acc, Team, Items, Width, Share, MostWarps> {
  using Base = RowLanes<Acc, Team, Items, Width, Share, MostWarps>;
  using Base::position, Base::size_;
  /// Numbers that are summed over a row at once, at most.
  static constexpr int most_sums = 4;

 public:
  using Base::chunks, Base::whole, Base::width;

  /// A vector along the row. It is held where rows, those under way too, and sums leave registers.
  template <class W>
  KOKKOS_INLINE_FUNCTION auto along(TensorRef<W const, 1> const& vector) const {
    constexpr int bytes = 2 * (bytes_held<X, width> + bytes_held<G, width>)+bytes_held<W, width>;
    constexpr int words = Items * bytes / 4 + Items * Partials;
    constexpr bool few = Items <= 2 * few_items;
    return Base::along(vector,
                       Walks ? words <= (few ? 64 : 144) && (MostWarps != 4 || words <= 112) : few);
  }

  /// Numbers in a team's scratch: two reductions take turns with them.
  static constexpr int slots = 2 * 32 * most_sums;

  /// `partial`: where this lane's team leaves its sums, `Partials` vectors one behind the other.
  KOKKOS_INLINE_FUNCTION HeldPair(Team const& team, RowShape const& shape, Acc* partial)
      : Base(team, shape, slots), partial_(partial) {}

  /// Sets the rows. Elements past their ends count as 0.
  KOKKOS_INLINE_FUNCTION void load(Row<X const> const& x, Row<G const> const& g) {
    first_x_ = *x.data;
    first_g_ = *g.data;
    if (whole()) load_tiles(x, g, 0);
  }

  /// Asks for the rows that follow, and makes them those that are held.
  KOKKOS_INLINE_FUNCTION void ask(Row<X const> const& x, Row<G const> const& g) {
    next_x_ = Base::fetch(x, 0);
    next_g_ = Base::fetch(g, 0);
    next_first_x_ = *x.data;
    next_first_g_ = *g.data;
  }
  KOKKOS_INLINE_FUNCTION void take() {
    x_ = next_x_;
    g_ = next_g_;
    first_x_ = next_first_x_;
    first_g_ = next_first_g_;
  }

  /// The rows' first elements.
  KOKKOS_INLINE_FUNCTION Acc first_x() const { return element_value<Acc>(first_x_); }
  KOKKOS_INLINE_FUNCTION Acc first_g() const { return element_value<Acc>(first_g_); }

  /// This lane's part of a row that is added to what is stored, asked for before the sums are
  /// waited for, where the row is held.
  template <class R>
  struct Added {
    Row<R const> row;
    Loaded<R, width> parts[chunks];
  };
  template <class R>
  KOKKOS_INLINE_FUNCTION Added<R> added(Row<R const> const& row) const {
    Added<R> result{row, {}};
    ATTIKOS_UNROLL_DEVICE
    for (int c = 0; c < chunks; ++c)
      if (whole() && this->holds(0, c)) result.parts[c].load(Base::at(row, position(0, c)));
    return result;
  }
  KOKKOS_INLINE_FUNCTION Absent added(Absent) const { return {}; }

  /// Sums over the row: f(x_j, g_j, w_j…, shift, sums) adds what an element gives to `N` numbers.
  /// Past the row's end all that f gets is 0, the shift too, and it must add nothing. All lanes
  /// must ask, and get the sums.
  template <int N, class F, class... Vectors>
  KOKKOS_INLINE_FUNCTION auto sums(Row<X const> const& x, Row<G const> const& g, Acc shift,
                                   F const& f, Vectors&... vectors) {
    static_assert(N <= most_sums);
    Acc parts[2][N] = {};
    for_each_tile(x, g, [&](std::int32_t first) {
      ATTIKOS_UNROLL_DEVICE
      for (int c = 0; c < chunks; ++c)
        add_chunk(parts, first, c, shift, f, vectors.chunk(c, position(first, c))...);
    });
    return Base::template sums_of<slots>(parts);
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
      for (int c = 0; c < chunks; ++c)
        store_chunk(to, first, c, more, f, vectors.chunk(c, position(first, c))...);
    });
    is_first_ = false;
  }

  /// first_j = f(x_j, g_j, w_j…, second_j), where there are no sums over rows.
  template <class First, class Second, class F, class... Vectors>
  KOKKOS_INLINE_FUNCTION void store_two(Row<X const> const& x, Row<G const> const& g,
                                        Row<First> const& to_first, Row<Second> const& to_second,
                                        F const& f, Vectors&... vectors) {
    static_assert(Partials == 0);
    for_each_tile(x, g, [&](std::int32_t first) {
      ATTIKOS_UNROLL_DEVICE
      for (int c = 0; c < chunks; ++c)
        store_two_chunks(to_first, to_second, first, c, f, vectors.chunk(c, position(first, c))...);
    });
  }

  /// Whether a team's threads, each of which has rows of its own, join their sums.
  static constexpr bool joins = Partials > 0 && (Share == Lanes::few || Share == Lanes::warp);
  /// Bytes of scratch that they need for it.
  static int join_bytes(int lanes) {
    return joins ? Partials * Items * lanes * static_cast<int>(sizeof(Acc)) : 0;
  }

  /// Leaves the sums over rows.
  KOKKOS_INLINE_FUNCTION void finish() {
    if constexpr (Partials > 0) {
      if (!whole()) return;
      if constexpr (joins)
        if (!join_threads()) return;
      for (int c = 0; c < chunks; ++c) {
        if (!this->holds(0, c)) continue;
        std::int32_t const j = position(0, c);
        for (int p = 0; p < Partials; ++p) {
          Acc* const to = partial_ + (p * std::int64_t{size_} + j);
          for (int i = 0; i < width; i += pair) {
            Acc sum[pair];
            for (int l = 0; l < pair; ++l) sum[l] = sums_[p][c][i + l];
            store_neighbors(to + i, sum);
          }
        }
      }
    }
  }

 private:
  static constexpr int one_or_more = Partials > 0 ? Partials : 1;
  /// Sums that move at once: a workspace is aligned to 8 bytes.
  static constexpr int pair = width > 1 ? 8 / static_cast<int>(sizeof(Acc)) : 1;

  using FetchedX = typename Base::template Fetched<X>;
  using FetchedG = typename Base::template Fetched<G>;

  /// Joins the sums of a team's threads, in one order; whether this thread has them then.
  KOKKOS_INLINE_FUNCTION bool join_threads() {
    int rank = this->team_.team_rank(), count = this->team_.team_size();
#if defined(__CUDA_ARCH__)
    // First those of the threads that share a warp: a team has whole warps.
    int const lanes = this->lanes();
    for (int apart = lanes; apart < 32; apart *= 2)
      for_each_sum([&](Acc& sum, int) { sum += __shfl_xor_sync(~0u, sum, apart); });
    int const threads_of_warp = 32 / lanes;
    bool const is_first = rank % threads_of_warp == 0;
    rank /= threads_of_warp;
    count /= threads_of_warp;
#else
    bool const is_first = true;
#endif
    Acc* const slots = static_cast<Acc*>(this->team_.team_scratch(0).get_shmem(
        static_cast<std::size_t>(Partials * Items * this->lanes()) * sizeof(Acc)));
    for (int turn = count - 1; turn > 0; --turn) {
      if (rank == turn && is_first)
        for_each_sum([&](Acc& sum, int e) { slots[e * this->lanes() + this->lane()] = sum; });
      this->team_.team_barrier();
      if (rank == 0 && is_first)
        for_each_sum([&](Acc& sum, int e) { sum += slots[e * this->lanes() + this->lane()]; });
      this->team_.team_barrier();
    }
    return rank == 0 && is_first;
  }
  /// Calls f(sum, number) for every sum of this lane.
  template <class F>
  KOKKOS_INLINE_FUNCTION void for_each_sum(F const& f) {
    ATTIKOS_UNROLL_DEVICE
    for (int e = 0; e < Partials * Items; ++e) f(sums_[e / Items][e % Items / width][e % width], e);
  }

  template <class F>
  KOKKOS_INLINE_FUNCTION void for_each_tile(Row<X const> const& x, Row<G const> const& g,
                                            F const& f) {
    Base::for_each_tile([&](std::int32_t first) { load_tiles(x, g, first); }, f);
  }
  KOKKOS_INLINE_FUNCTION void load_tiles(Row<X const> const& x, Row<G const> const& g,
                                         std::int32_t first) {
    x_ = Base::fetch(x, first);
    g_ = Base::fetch(g, first);
  }
  KOKKOS_INLINE_FUNCTION Acc x(int c, int i) const { return x_.parts[c].template value<Acc>(i); }
  KOKKOS_INLINE_FUNCTION Acc g(int c, int i) const { return g_.parts[c].template value<Acc>(i); }

  template <int N, class F, class... Neighbors>
  KOKKOS_INLINE_FUNCTION void add_chunk(Acc (&parts)[2][N], std::int32_t first, int c, Acc shift,
                                        F const& f, Neighbors const&... w) {
    for (int i = 0; i < width; ++i) {
      Acc const of_element = this->holds(first, c) ? shift : Acc(0);
      f(x(c, i), g(c, i), w.values[i]..., of_element, parts[(c * width + i) % 2]);
    }
  }

  template <class First, class Second, class F, class... Neighbors>
  KOKKOS_INLINE_FUNCTION void store_two_chunks(Row<First> const& to_first,
                                               Row<Second> const& to_second, std::int32_t first,
                                               int c, F const& f, Neighbors const&... w) {
    Acc results[width], others[width];
    for (int i = 0; i < width; ++i) results[i] = f(x(c, i), g(c, i), w.values[i]..., others[i]);
    if (!this->holds(first, c)) return;
    std::int32_t const j = position(first, c);
    this->put(to_first, j, results);
    this->put(to_second, j, others);
  }

  KOKKOS_INLINE_FUNCTION void add_to(Acc (&)[width], Absent, int, std::int32_t) const {}
  template <class R>
  KOKKOS_INLINE_FUNCTION void add_to(Acc (&results)[width], Added<R> const& more, int c,
                                     std::int32_t j) const {
    Loaded<R, width> part = more.parts[c];
    if (!whole()) part.load(Base::at(more.row, j));
    for (int i = 0; i < width; ++i) results[i] += part.template value<Acc>(i);
  }

  template <class Out, class More, class F, class... Neighbors>
  KOKKOS_INLINE_FUNCTION void store_chunk(Row<Out> const& to, std::int32_t first, int c,
                                          More const& more, F const& f, Neighbors const&... w) {
    Acc results[width], add[one_or_more][width];
    for (int i = 0; i < width; ++i) {
      Acc terms[one_or_more];
      results[i] = f(x(c, i), g(c, i), w.values[i]..., terms);
      for (int p = 0; p < Partials; ++p) add[p][i] = terms[p];
    }
    std::int32_t const j = position(first, c);
    bool const holds = this->holds(first, c);
    for (int p = 0; p < Partials; ++p) {
      if (whole()) {
        for (int i = 0; i < width; ++i) sums_[p][c][i] += add[p][i];
      } else if (holds) {
        add_to_partial(partial_ + (p * std::int64_t{size_} + j), add[p]);
      }
    }
    if (!holds) return;
    add_to(results, more, c, j);
    this->put(to, j, results);
  }

  /// A lane meets the same columns in every row: the sums in memory are its own.
  KOKKOS_INLINE_FUNCTION void add_to_partial(Acc* sums, Acc const (&add)[width]) const {
    for (int i = 0; i < width; i += pair) {
      Acc sum[pair] = {};
      if (!is_first_) load_neighbors(sums + i, sum);
      for (int l = 0; l < pair; ++l) sum[l] += add[i + l];
      store_neighbors(sums + i, sum);
    }
  }

  Acc* partial_;
  bool is_first_ = true;
  X first_x_{}, next_first_x_{};
  G first_g_{}, next_first_g_{};
  // As they came from memory: small elements take half the registers of numbers.
  FetchedX x_;
  FetchedG g_;
  std::conditional_t<Walks, FetchedX, Absent> next_x_;
  std::conditional_t<Walks, FetchedG, Absent> next_g_;
  Acc sums_[one_or_more][chunks][width] = {};
};

/// Kernel body: a team, or each of its threads, takes a chunk of rows, every `chunks`-th. `Op` has
/// the types X, Dout, Out and Acc, `partials`, the number of vectors of sums, `partial(team)`,
/// where those of a team go, `source(row)` and `gradient(row)`, which are held, `target(row)`,
/// which is stored, and `device_row(held, row, vectors)`, where `vectors` is what `vectors(held)`
/// gives, if it has that.
template <class Exec, class Op, int Items, int Width, Lanes Share, bool Walks, int MostWarps>
struct DeviceGradientKernel {
  static constexpr int most_warps = MostWarps;
  // These leave 64 registers to a lane; 80, 128, 168 or 255 where sums or many elements are held.
  static constexpr int teams_at_once = [] {
    if (Op::partials == 0 && Items <= 2 * few_items) return 32 / most_warps;
    if (most_warps == 4) return 3;
    if (most_warps != 8) return 1;
    if (Walks) return Items > 2 * few_items ? 1 : 2;
    return Op::partials > 1 ? 2 : 3;
  }();
  static constexpr int lanes_at_once = most_warps * 32 * teams_at_once;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::LaunchBounds<most_warps * 32, teams_at_once>>;
  using Team = typename Policy::member_type;
  using Held = HeldPair<typename Op::X, typename Op::Dout, typename Op::Acc, Team, Items, Width,
                        Share, Walks, Op::partials, MostWarps>;

  Op op;
  RowShape shape;
  std::int64_t chunks;

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    std::int64_t chunk = team.league_rank();
    if (shape.warps == 1) {
      chunk = chunk * team.team_size() + team.team_rank();
      if (!Held::joins && chunk >= chunks) return;
    }
    Held held(team, shape, op.partial(Held::joins ? team.league_rank() : chunk));
    auto vectors = vectors_of(held);
    // A thread without rows is there for the others.
    std::int64_t const first = chunk < chunks ? chunk : shape.rows;
    if constexpr (Walks)
      if (first < shape.rows) held.ask(op.source(first), op.gradient(first));
    for (std::int64_t row = first; row < shape.rows; row += chunks) {
      if constexpr (Walks) {
        held.take();
        std::int64_t const next = row + chunks;
        if (next < shape.rows) held.ask(op.source(next), op.gradient(next));
      } else {
        held.load(op.source(row), op.gradient(row));
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

/// Returns how many vectors of sums are left, at most `chunks`. Teams that walk are no more than
/// the device runs at once.
template <int Items, int Width, Lanes Share, bool Walks, int MostWarps, class Exec, class Op>
std::int64_t launch_device_gradient_of(Exec const& exec, char const* operation, Op const& op,
                                       std::int64_t rows, std::int64_t chunks, std::int64_t size) {
  using Kernel = DeviceGradientKernel<Exec, Op, Items, Width, Share, Walks, MostWarps>;
  RowShape const shape = row_shape(rows, size, Items, Kernel::most_warps, Share != Lanes::few);
  int const chunks_per_team =
      shape.warps > 1 ? 1 : std::min(256, 32 * Kernel::most_warps) / shape.lanes;
  int const threads = shape.warps > 1 ? shape.warps : chunks_per_team;
  if constexpr (Walks)
    chunks = std::min(chunks, chunks_per_team * resident_teams(exec, Kernel::lanes_at_once,
                                                               threads * shape.lanes));
  std::int64_t const teams = (chunks + chunks_per_team - 1) / chunks_per_team;
  typename Kernel::Policy policy(exec, checked_league(operation, teams), threads, shape.lanes);
  int const scratch = shape.warps > 1
                          ? Kernel::Held::slots * static_cast<int>(sizeof(typename Op::Acc))
                          : Kernel::Held::join_bytes(shape.lanes);
  if (scratch > 0) policy.set_scratch_size(0, Kokkos::PerTeam(scratch));
  launch(operation, "portable", policy, Kernel{op, shape, chunks});
  return Kernel::Held::joins ? teams : chunks;
}

/// Elements that move together in a gradient that reads X and Dout and writes Out.
template <class Op>
inline constexpr int gradient_neighbors = [] {
  constexpr int width = neighbors<typename Op::X, typename Op::Out>;
  constexpr int other = neighbors<typename Op::Dout, typename Op::Out>;
  return width < other ? width : other;
}();

/// Launches `op` over chunks of rows of `size` elements, of which `Width` move at once in all that
/// `op` loads and stores; returns how many vectors of sums are left.
template <int Width, class Exec, class Op>
std::int64_t launch_gradient_of_width(Exec const& exec, char const* operation, Op const& op,
                                      std::int64_t rows, std::int64_t chunks, std::int64_t size) {
  constexpr bool is_double = std::is_same_v<typename Op::Acc, double>;
  constexpr bool sums_rows = !is_double && Op::partials > 0;
  constexpr bool widest = Width == gradient_neighbors<Op>;
  constexpr int at_once = elements_at_once<Width>;
  constexpr int items = is_double ? few_items : 2 * few_items;
  // Registers of two rows and of the sums over rows in words, with `items` to a lane: one of 512
  // has 128, one of three teams of 128 has 168.
  constexpr int bytes =
      bytes_held<typename Op::X, at_once> + bytes_held<typename Op::Dout, at_once>;
  constexpr int of_rows = items * bytes / 4, of_sums = items * Op::partials;
  constexpr bool walks = sums_rows && 2 * of_rows + of_sums <= 80;
  auto const launch_of = [&]<int Items, Lanes Share, bool Walks, int MostWarps>() {
    return launch_device_gradient_of<Items, Width, Share, Walks, MostWarps>(exec, operation, op,
                                                                            rows, chunks, size);
  };
  if constexpr (widest) {
    constexpr bool by_128 = walks && 2 * (2 * of_rows + of_sums) <= 128;
    constexpr int short_items = by_128 ? 2 * items : items, short_warps = by_128 ? 4 : 8;
    // A few rows, each a chunk, wait for a lane's program, which is the shorter the less it holds.
    if constexpr (sums_rows)
      if (rows <= concurrency_of(exec) / 1024 && chunks == rows && size <= few_items * 512)
        return launch_of.template operator()<few_items, Lanes::warps, false, 16>();
    if (size <= 16 * short_items)
      return launch_of.template operator()<short_items, Lanes::few, walks, short_warps>();
    if (size <= 32 * short_items)
      return launch_of.template operator()<short_items, Lanes::warp, walks, short_warps>();
    if (size <= items * 256)
      return launch_of.template operator()<short_items, Lanes::warps, walks, short_warps>();
    if constexpr (by_128)
      if (size <= items * 512)
        return launch_of.template operator()<short_items, Lanes::warps, walks, 8>();
  } else if (size <= 32 * items && (chunks < rows || !sums_rows)) {
    return launch_of.template operator()<items, Lanes::few, walks, 8>();
  }
  if constexpr (Width != any_stride)
    if (size <= items * 512) return launch_of.template operator()<items, Lanes::warps, walks, 16>();
  // What does not fit into 128 registers is still kept nearer than sums in memory would be.
  if constexpr (Width != any_stride && !is_double && 2 * (of_rows + of_sums) <= (widest ? 96 : 128))
    if (size <= 2 * items * 512)
      return launch_of.template operator()<2 * items, Lanes::warps, false, 16>();
  return launch_of.template operator()<items, Lanes::warps_by_turn, false, 16>();
}

/// The same by the `width` that common_width() gave, over the chunks of a partition.
template <class Exec, class Op>
std::int64_t launch_device_gradient(Exec const& exec, char const* operation, Op const& op,
                                    RowChunks const& row_chunks, std::int64_t size, int width) {
  std::int64_t const rows = row_chunks.rows;
  std::int64_t chunks = row_chunks.count();
  if (rows == 0 || size == 0) return chunks;
  check_row_counts(operation, rows, size);
  with_width<gradient_neighbors<Op>>(width, [&](auto w) {
    chunks = launch_gradient_of_width<decltype(w)::value>(exec, operation, op, rows, chunks, size);
  });
  return chunks;
}

/// Each row by itself.
inline RowChunks single_rows(std::int64_t rows) { return {rows, 1}; }

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
