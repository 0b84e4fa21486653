// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Sums over the rows of a tensor, such as the gradient of a weight: the rows are cut into chunks,
/// each chunk adds into partial sums of its own, and the partial sums are added in a tree.
///
/// Chunks and tree depend on the problem alone, on a device also on how many teams it runs at once,
/// so that the result does not depend on how many threads there are or in which order they come.
#pragma once

#include <algorithm>
#include <attikos/core/lane.hpp>
#include <attikos/core/rows/rows.hpp>
#include <attikos/core/workspace.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Rows [first, last) of chunk `index`.
struct RowChunks {
  std::int64_t rows = 0;
  std::int64_t rows_per_chunk = 1;

  KOKKOS_INLINE_FUNCTION std::int64_t count() const {
    return (rows + rows_per_chunk - 1) / rows_per_chunk;
  }
  KOKKOS_INLINE_FUNCTION std::int64_t first(std::int64_t index) const {
    return index * rows_per_chunk;
  }
  KOKKOS_INLINE_FUNCTION std::int64_t last(std::int64_t index) const {
    std::int64_t const end = (index + 1) * rows_per_chunk;
    return end < rows ? end : rows;
  }
};

/// Partial rows that one step of the tree adds up.
inline constexpr std::int64_t row_sum_fan_in = 32;

/// The partition of `rows` rows that sum into `width` columns. A device needs more chunks than a
/// host to keep busy, the more the narrower they are; partial sums take some MiB, or 256 rows.
inline RowChunks partition_rows(bool host, std::int64_t rows, std::int64_t width) {
  std::int64_t const by_width = (std::int64_t{1} << 21) / (width > 0 ? width : 1);
  std::int64_t const wide = std::clamp<std::int64_t>(2 * by_width, 256, 1024);
  std::int64_t const most = host ? 256 : std::clamp<std::int64_t>(by_width, wide, 8192);
  std::int64_t const least = host ? 16 : std::clamp<std::int64_t>(rows / 256, 1, 4);
  std::int64_t const even = (rows + most - 1) / most;
  return {rows, even < least ? least : even};
}

/// Bytes of partial sums for `rows` rows of `width` columns on any back end.
inline std::size_t row_sums_bytes(std::int64_t rows, std::int64_t width, std::size_t element_size) {
  // The device's partition has the more chunks.
  std::int64_t level = partition_rows(false, rows, width).count();
  std::int64_t total = level;
  while (level > row_sum_fan_in) {
    level = (level + row_sum_fan_in - 1) / row_sum_fan_in;
    total += level;
  }
  return static_cast<std::size_t>(total) * static_cast<std::size_t>(width) * element_size;
}

/// Kernel body: a host thread, or the lanes of a device thread, take one chunk. `Op` has
/// `host_chunk(index)` and `device_chunk(team, index)`; the first is never compiled for a device.
template <class Exec, class Op>
struct ChunkKernel {
  using Policy = Kokkos::TeamPolicy<Exec>;
  using Team = typename Policy::member_type;
  static constexpr int chunks_per_team = is_host_space<Exec> ? 1 : 8;

  Op op;
  std::int64_t chunks;

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    std::int64_t const first = std::int64_t{team.league_rank()} * chunks_per_team;
    int const count =
        static_cast<int>(chunks - first < chunks_per_team ? chunks - first : chunks_per_team);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](int c) {
      if constexpr (is_host_space<Exec>) {
        KOKKOS_IF_ON_HOST((op.host_chunk(first + c);))
      } else {
        op.device_chunk(team, first + c);
      }
    });
  }
};

template <class Exec, class Op>
void launch_chunks(Exec const& exec, char const* operation, Op const& op, std::int64_t chunks) {
  using Kernel = ChunkKernel<Exec, Op>;
  if (chunks == 0) return;
  constexpr bool host = is_host_space<Exec>;
  int const league =
      checked_league(operation, (chunks + Kernel::chunks_per_team - 1) / Kernel::chunks_per_team);
  launch(operation, "portable",
         typename Kernel::Policy(exec, league, host ? 1 : Kernel::chunks_per_team, host ? 1 : 32),
         Kernel{op, chunks});
}

/// One "row" of this operation is a stretch of columns of one group of up to row_sum_fan_in partial
/// rows, whose sum it writes. Columns begin at `partial` and lie side by side.
template <class Acc, class Out>
struct PartialSums {
  static constexpr int stretch = 64;
  Acc const* partial;
  std::int64_t rows, width, columns, stretches;
  Out* out;
  std::int64_t out_row_stride, out_stride;

  struct Range {
    std::int64_t group, first_row, last_row, first, last;
  };
  KOKKOS_INLINE_FUNCTION Range range(std::int64_t index) const {
    Range r{};
    r.group = index / stretches;
    r.first_row = r.group * row_sum_fan_in;
    r.last_row = r.first_row + row_sum_fan_in < rows ? r.first_row + row_sum_fan_in : rows;
    r.first = index % stretches * stretch;
    r.last = r.first + stretch < columns ? r.first + stretch : columns;
    return r;
  }

  void host_row(std::int64_t index) const {
    constexpr int V = host::lanes<Acc>;
    Range const at = range(index);
    for (std::int64_t j = at.first; j < at.last; j += V) {
      int const count = at.last - j < V ? static_cast<int>(at.last - j) : V;
      host::Vec<Acc> sum{};
      for (std::int64_t r = at.first_row; r < at.last_row; ++r)
        sum += host::load_row<Acc>(partial + r * width + j, 1, count);
      host::put<Acc>(out + at.group * out_row_stride + j * out_stride, out_stride, count, sum);
    }
  }

  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    Range const at = range(index);
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, at.first, at.last), [&](std::int64_t j) {
      constexpr int ahead = 8;  // loads under way together
      Acc sum = 0, next[ahead];
      std::int64_t r = at.first_row;
      for (; r + ahead <= at.last_row; r += ahead) {
        for (int i = 0; i < ahead; ++i) next[i] = partial[(r + i) * width + j];
        for (int i = 0; i < ahead; ++i) sum += next[i];
      }
      for (; r < at.last_row; ++r) sum += partial[r * width + j];
      out[at.group * out_row_stride + j * out_stride] = static_cast<Out>(sum);
    });
  }
};

/// Kernel body of a device: a team adds up 32 columns of all partial rows, each of its threads
/// every row at the distance of the team's size. Columns behind those of `out` are `more`'s.
template <class Exec, class Acc, class Out, class More>
struct ColumnSums {
  static constexpr int lanes = 32, most_threads = 16;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::LaunchBounds<lanes * most_threads, 2>>;
  using Team = typename Policy::member_type;

  Acc const* partial;
  std::int64_t rows, width;
  TensorRef<Out, 1> out;
  More more;

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    Acc* const slots = static_cast<Acc*>(team.team_scratch(0).get_shmem(
        static_cast<std::size_t>(lanes * team.team_size()) * sizeof(Acc)));
    int const lane = lane_of(team, lanes), threads = team.team_size();
    std::int64_t const column = std::int64_t{team.league_rank()} * lanes + lane;
    Acc sum = 0;
    if (column < width) sum = sum_of_thread(column, team.team_rank(), threads);
    slots[team.team_rank() * lanes + lane] = sum;
    team.team_barrier();
    if (team.team_rank() != 0 || column >= width) return;
    for (int t = 1; t < threads; ++t) sum += slots[t * lanes + lane];
    if (column < out.extent[0]) {
      out(column) = static_cast<Out>(sum);
    } else if constexpr (is_present<More>) {
      using Element = std::remove_reference_t<decltype(more(column))>;
      more(column - out.extent[0]) = static_cast<Element>(sum);
    }
  }

 private:
  KOKKOS_INLINE_FUNCTION Acc sum_of_thread(std::int64_t column, std::int64_t row,
                                           std::int64_t distance) const {
    constexpr int ahead = 8;  // loads under way together
    Acc sum = 0, next[ahead];
    for (; row + (ahead - 1) * distance < rows; row += ahead * distance) {
      for (int i = 0; i < ahead; ++i) next[i] = partial[(row + i * distance) * width + column];
      for (int i = 0; i < ahead; ++i) sum += next[i];
    }
    for (; row < rows; row += distance) sum += partial[row * width + column];
    return sum;
  }
};

/// Adds groups of partial rows until so few are left that finish_sums() adds them up in one step;
/// returns where those lie and sets `rows` to their number. Each level is written after the one
/// before.
template <class Acc, class Exec>
Acc const* sum_partials(Exec const& exec, char const* operation, Acc* partial, std::int64_t& rows,
                        std::int64_t width) {
  using Op = PartialSums<Acc, Acc>;
  constexpr std::int64_t few = is_host_space<Exec> ? row_sum_fan_in : 16 * row_sum_fan_in;
  std::int64_t const stretches = (width + Op::stretch - 1) / Op::stretch;
  while (rows > few) {
    std::int64_t const groups = (rows + row_sum_fan_in - 1) / row_sum_fan_in;
    Acc* const next = partial + rows * width;
    launch_rows(exec, operation, Op{partial, rows, width, width, stretches, next, width, 1},
                groups * stretches);
    partial = next;
    rows = groups;
  }
  return partial;
}

/// Writes the sum of what sum_partials() left, of as many columns as `out` has, and of as many
/// behind them as `more` has, if it is there. No rows give 0.
template <class Acc, class Exec, class Out, class More = Absent>
void finish_sums(Exec const& exec, char const* operation, Acc const* partial, std::int64_t rows,
                 std::int64_t width, TensorRef<Out, 1> const& out, More const& more = {}) {
  std::int64_t const columns = out.extent[0];
  if constexpr (is_host_space<Exec>) {
    using Op = PartialSums<Acc, Out>;
    std::int64_t const stretches = (columns + Op::stretch - 1) / Op::stretch;
    launch_rows(exec, operation,
                Op{partial, rows, width, columns, stretches, out.data, 0, out.stride[0]},
                stretches);
    if constexpr (is_present<More>)
      finish_sums(exec, operation, partial == nullptr ? nullptr : partial + columns, rows, width,
                  more);
  } else {
    using Kernel = ColumnSums<Exec, Acc, Out, More>;
    if (width == 0) return;
    auto const threads =
        static_cast<int>(std::clamp<std::int64_t>((rows + 7) / 8, 1, Kernel::most_threads));
    typename Kernel::Policy policy(
        exec, checked_league(operation, (width + Kernel::lanes - 1) / Kernel::lanes), threads,
        Kernel::lanes);
    policy.set_scratch_size(
        0, Kokkos::PerTeam(static_cast<int>(sizeof(Acc)) * Kernel::lanes * threads));
    launch(operation, "portable", policy, Kernel{partial, rows, width, out, more});
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
