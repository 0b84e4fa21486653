// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// embedding_backward(): the gradient of the table.
///
/// Ids are sorted, stably, and cut into tiles of as many each. A tile adds up the rows of each of
/// its runs of one id, in their order. A run within one tile is done by that; of one that goes on
/// in others every tile keeps a sum, these are added in order, tiles_per_group of them first where
/// all of those are of one id. Tiles depend on ids alone.
#pragma once

#include <algorithm>
#include <attikos/core/workspace.hpp>
#include <attikos/embedding/id_sort.hpp>
#include <cstddef>
#include <limits>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
concept EmbeddingBackwardExtra = is_any_wrapper<T, Workspace>;

/// Where things lie in the workspace, in bytes.
struct EmbeddingWorkspace {
  static constexpr std::int64_t ids_per_tile = 64, tiles_per_group = 32;
  std::int64_t count, tiles, groups, pitch;  // pitch: elements of a partial row
  std::size_t pairs[4], counts, heads, tails, of_groups, bytes;

  EmbeddingWorkspace(std::int64_t ids, std::int64_t width, std::size_t element_size)
      : count(ids),
        tiles((ids + ids_per_tile - 1) / ids_per_tile),
        groups(tiles / tiles_per_group),
        pitch((width + 15) / 16 * 16) {
    bytes = 0;
    auto const take = [&](std::int64_t elements, std::size_t size) {
      std::size_t const at = bytes;
      bytes += (static_cast<std::size_t>(elements) * size + 63) / 64 * 64;
      return at;
    };
    for (std::size_t& at : pairs) at = take(count, sizeof(std::uint32_t));
    counts = take(id_blocks(count) * id_digits, sizeof(std::uint32_t));
    heads = take(tiles * pitch, element_size);
    tails = take(tiles * pitch, element_size);
    of_groups = take(groups * pitch, element_size);
  }
};

/// What all steps know. Columns are dealt out in stretches.
template <class Number, class Dout, class Dtable>
struct EmbeddingSums {
  using Acc = Number;
  static constexpr std::int64_t tile = EmbeddingWorkspace::ids_per_tile,
                                group = EmbeddingWorkspace::tiles_per_group;
  Rows<Dout const> dout;
  Rows<Dtable> dtable;
  IdPairs sorted;
  std::int64_t count, tiles, pitch, stretch, stretches;
  Acc *heads, *tails, *of_groups;
  Acc beta;

  struct Columns {
    std::int64_t item, first, last;
  };
  KOKKOS_INLINE_FUNCTION Columns columns(std::int64_t index) const {
    std::int64_t const first = index % stretches * stretch;
    std::int64_t const last = first + stretch < dtable.size ? first + stretch : dtable.size;
    return {index / stretches, first, last};
  }
  KOKKOS_INLINE_FUNCTION std::uint32_t none() const {
    return static_cast<std::uint32_t>(dtable.count());
  }
  KOKKOS_INLINE_FUNCTION std::uint32_t key(std::int64_t i) const { return sorted.keys[i]; }
  /// Whether the run that pair i belongs to has a pair before it, or behind it.
  KOKKOS_INLINE_FUNCTION bool has_before(std::int64_t i) const {
    return i > 0 && key(i - 1) == key(i);
  }
  KOKKOS_INLINE_FUNCTION bool has_after(std::int64_t i) const {
    return i + 1 < count && key(i + 1) == key(i);
  }
  /// Whether tiles from `first` on, a group of them, are of one run that began before them.
  KOKKOS_INLINE_FUNCTION bool is_whole_group(std::int64_t first) const {
    std::int64_t const from = first * tile, to = (first + group) * tile;
    return first % group == 0 && to <= count && has_before(from) && key(from) == key(to - 1);
  }
  KOKKOS_INLINE_FUNCTION Acc updated(std::uint32_t row, std::int64_t j, Acc sum) const {
    if (beta == Acc(0)) return sum;
    return sum + beta * static_cast<Acc>(dtable(row)[j]);
  }

  void host_store(std::uint32_t row, std::int64_t j, int count_of, host::Vec<Acc> sum) const {
    Row<Dtable> const to = dtable(row);
    Dtable* const p = to.data + j * to.stride;
    if (beta != Acc(0))
      sum = host::multiply_add<Acc, host::lanes<Acc>>(host::load_row<Acc>(p, to.stride, count_of),
                                                      beta, sum);
    host::put<Acc>(p, to.stride, count_of, sum);
  }
  template <class F>
  void host_vectors(Columns const& at, F const& f) const {
    constexpr int V = host::lanes<Acc>;
    for (std::int64_t j = at.first; j < at.last; j += V)
      f(j, at.last - j < V ? static_cast<int>(at.last - j) : V);
  }
};

/// The sums of one tile.
template <class Sums, int Width>
struct EmbeddingTiles {
  using Acc = typename Sums::Acc;
  Sums s;

  void host_row(std::int64_t index) const {
    auto const at = s.columns(index);
    std::int64_t const begin = at.item * s.tile;
    std::int64_t const end = begin + s.tile < s.count ? begin + s.tile : s.count;
    Acc sums[256];
    for (std::int64_t i = begin, last = begin; i < end && s.key(i) != s.none(); i = last) {
      for (last = i + 1; last < end && s.key(last) == s.key(i);) ++last;
      for (std::int64_t r = i; r < last; ++r) {
        auto const row = s.dout(s.sorted.positions[r]);
        host::SumsOfRows<Acc> const add{r == i};
        s.host_vectors(at, [&](std::int64_t j, int count) {
          add(sums + (j - at.first),
              host::load_row<Acc>(row.data + j * row.stride, row.stride, count), count);
        });
      }
      bool const before = s.has_before(i), after = s.has_after(last - 1);
      s.host_vectors(at, [&](std::int64_t j, int count) {
        auto const sum = host::load_row<Acc>(sums + (j - at.first), 1, count);
        if (before || after)
          host::put<Acc>((before ? s.heads : s.tails) + at.item * s.pitch + j, 1, count, sum);
        else
          s.host_store(s.key(i), j, count, sum);
      });
    }
  }

  KOKKOS_INLINE_FUNCTION void keep(std::int64_t tile, std::uint32_t row, bool before, bool after,
                                   std::int64_t j, Acc const (&sum)[Width]) const {
    if (row == s.none()) return;
    if (before || after) {
      store_neighbors((before ? s.heads : s.tails) + tile * s.pitch + j, sum);
      return;
    }
    Acc result[Width];
    for (int i = 0; i < Width; ++i) result[i] = s.updated(row, j + i, sum[i]);
    store_values<Width>(device_row_of(s.dtable, row), j / Width, result);
  }

  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    auto const at = s.columns(index);
    std::int64_t const begin = at.item * s.tile;
    std::int64_t const end = begin + s.tile < s.count ? begin + s.tile : s.count;
    constexpr int batch = 4;  // rows that are asked for before the first is added
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, 32), [&](int lane) {
      std::int64_t const j = at.first + lane * Width;
      if (j >= at.last) return;
      Acc sum[Width] = {};
      std::uint32_t row = s.key(begin);
      bool before = s.has_before(begin);
      for (std::int64_t i = begin; i < end && row != s.none(); i += batch) {
        Acc values[batch][Width] = {};
        for (int b = 0; b < batch; ++b) {
          if (i + b >= end || s.key(i + b) == s.none()) continue;
          auto const from = device_row_of(s.dout, s.sorted.positions[i + b]);
          load_neighbors<Acc, Width>(from.data + (Width > 1 ? j : j * from.stride), values[b]);
        }
        for (int b = 0; b < batch && i + b < end; ++b) {
          std::uint32_t const next = s.key(i + b);
          bool const begins = i + b == begin || next != row;
          if (begins && i + b != begin) {
            keep(at.item, row, before, false, j, sum);
            before = false;
          }
          row = next;
          for (int e = 0; e < Width; ++e) sum[e] = begins ? values[b][e] : sum[e] + values[b][e];
        }
      }
      keep(at.item, row, before, s.has_after(end - 1), j, sum);
    });
  }
};

/// The sums of groups of tiles of one id.
template <class Sums>
struct EmbeddingGroups {
  using Acc = typename Sums::Acc;
  Sums s;

  void host_row(std::int64_t index) const {
    auto const at = s.columns(index);
    if (!s.is_whole_group(at.item * s.group)) return;
    s.host_vectors(at, [&](std::int64_t j, int count) {
      host::Vec<Acc> sum{};
      for (std::int64_t t = at.item * s.group; t < (at.item + 1) * s.group; ++t)
        sum += host::load_row<Acc>(s.heads + t * s.pitch + j, 1, count);
      host::put<Acc>(s.of_groups + at.item * s.pitch + j, 1, count, sum);
    });
  }
  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    auto const at = s.columns(index);
    if (!s.is_whole_group(at.item * s.group)) return;
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, at.first, at.last), [&](std::int64_t j) {
      Acc sum = 0;
      for (std::int64_t t = at.item * s.group; t < (at.item + 1) * s.group; ++t)
        sum += s.heads[t * s.pitch + j];
      s.of_groups[at.item * s.pitch + j] = sum;
    });
  }
};

/// The sum of the run that begins in a tile and goes on behind it.
template <class Sums>
struct EmbeddingRuns {
  using Acc = typename Sums::Acc;
  Sums s;

  KOKKOS_INLINE_FUNCTION bool begins(std::int64_t tile) const {
    std::int64_t const begin = tile * s.tile, end = begin + s.tile;
    if (end >= s.count || s.key(end - 1) == s.none() || !s.has_after(end - 1)) return false;
    return s.key(begin) != s.key(end - 1) || !s.has_before(begin);
  }
  /// Calls f with one partial row after another.
  template <class F>
  KOKKOS_INLINE_FUNCTION void for_each_part(std::int64_t tile, F const& f) const {
    std::uint32_t const row = s.key((tile + 1) * s.tile - 1);
    f(s.tails + tile * s.pitch);
    for (std::int64_t t = tile + 1; t < s.tiles && s.key(t * s.tile) == row;) {
      bool const whole = s.is_whole_group(t);
      f(whole ? s.of_groups + t / s.group * s.pitch : s.heads + t * s.pitch);
      t += whole ? s.group : 1;
    }
  }

  void host_row(std::int64_t index) const {
    auto const at = s.columns(index);
    if (!begins(at.item)) return;
    s.host_vectors(at, [&](std::int64_t j, int count) {
      host::Vec<Acc> sum{};
      for_each_part(at.item,
                    [&](Acc const* part) { sum += host::load_row<Acc>(part + j, 1, count); });
      s.host_store(s.key((at.item + 1) * s.tile - 1), j, count, sum);
    });
  }
  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    auto const at = s.columns(index);
    if (!begins(at.item)) return;
    std::uint32_t const row = s.key((at.item + 1) * s.tile - 1);
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, at.first, at.last), [&](std::int64_t j) {
      Acc sum = 0;
      for_each_part(at.item, [&](Acc const* part) { sum += part[j]; });
      s.dtable(row)[j] =
          static_cast<std::remove_reference_t<decltype(s.dtable(row)[j])>>(s.updated(row, j, sum));
    });
  }
};

/// Rows that no id names: beta of what they hold.
template <class Sums, int Width>
struct EmbeddingUnused {
  using Acc = typename Sums::Acc;
  Sums s;

  KOKKOS_INLINE_FUNCTION bool is_used(std::int64_t row) const {
    std::int64_t low = 0, high = s.count;
    while (low < high) {
      std::int64_t const middle = low + (high - low) / 2;
      if (s.key(middle) < row)
        low = middle + 1;
      else
        high = middle;
    }
    return low < s.count && s.key(low) == row;
  }
  void host_row(std::int64_t row) const {
    if (is_used(row)) return;
    s.host_vectors({0, 0, s.dtable.size}, [&](std::int64_t j, int count) {
      s.host_store(static_cast<std::uint32_t>(row), j, count, host::Vec<Acc>{});
    });
  }
  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t row) const {
    if (is_used(row)) return;
    auto const to = device_row_of(s.dtable, row);
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, to.size / Width), [&](std::int64_t chunk) {
      Acc values[Width];
      for (int i = 0; i < Width; ++i)
        values[i] = s.updated(static_cast<std::uint32_t>(row), chunk * Width + i, Acc(0));
      store_values<Width>(to, chunk, values);
    });
  }
};

template <int Width, class Exec, class Sums>
void run_embedding_sums(Exec const& exec, char const* operation, Sums sums, std::int64_t groups) {
  std::int64_t const width = sums.dtable.size;
  sums.stretch = is_host_space<Exec> ? 256 : 32 * Width;
  sums.stretches = (width + sums.stretch - 1) / sums.stretch;
  std::int64_t const columns = width < sums.stretch ? width : sums.stretch;
  if (sums.beta != 1)
    launch_rows(exec, operation, EmbeddingUnused<Sums, Width>{sums}, sums.dtable.count(), width);
  launch_rows(exec, operation, EmbeddingTiles<Sums, Width>{sums}, sums.tiles * sums.stretches,
              sums.tile * columns);
  launch_rows(exec, operation, EmbeddingGroups<Sums>{sums}, groups * sums.stretches, columns);
  launch_rows(exec, operation, EmbeddingRuns<Sums>{sums}, sums.tiles * sums.stretches, columns);
}

/// Throws UnsupportedError for more ids, or rows of a table, than 32 bits count.
inline void check_id_counts(char const* operation, std::int64_t ids, std::int64_t rows) {
  constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max() - 1;
  if (ids > most || rows > most)
    raise<UnsupportedError>(operation, ": ", ids, " ids of ", rows, " rows; expected at most ",
                            most, " of each");
}

}  // namespace detail

/// Upper bound of the workspace of embedding_backward() for these tensors, in bytes.
template <TensorLike Ids, TensorLike Dout, TensorLike Dtable>
std::size_t embedding_backward_workspace_size(Ids const& ids, Dout const&, Dtable const& dtable) {
  using Acc = detail::RowAccumulator<element_t<Dout>, element_t<Dtable>>;
  std::int64_t const count = detail::values_of_rows(detail::to_const_ref(ids)).count();
  return detail::EmbeddingWorkspace(count, detail::extent_of(dtable, 1), sizeof(Acc)).bytes;
}

/// Gradient of embedding(): dtable_r = Σ over all i with ids_i = r of dout_i, + beta·dtable_r.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param ids      rank 1 or 2, int32 or int64
/// \param dout     the extents of ids and width
/// \param dtable   [rows, width]
/// \param options  the id whose row has the gradient 0, and beta, with which gradients add up
/// \param extras   workspace(view): at least embedding_backward_workspace_size() bytes
///
/// Ids outside [0, rows) add nothing. The work is that of reading dout and writing dtable, however
/// often one id is there, and of a sort of the ids; with beta = 1 rows of no id are not touched.
/// Types: any floating-point element for dout and dtable; summed in float, in double if one of them
/// is double, and rounded once. Determinism: the order of sums depends on the ids alone: the same
/// bits on every run, and for any number of host threads. Throws ShapeError, StrideError, Error,
/// UnsupportedError, ResourceError before launching.
template <ExecutionSpace Exec, TensorLike Ids, TensorLike Dout, TensorLike Dtable,
          detail::EmbeddingBackwardExtra... Extras>
void embedding_backward(Exec const& exec, Ids const& ids, Dout const& dout, Dtable const& dtable,
                        EmbeddingBackwardOptions const& options = {}, Extras const&... extras) {
  char const* const name = "embedding_backward";
  using From = element_t<Dout>;
  using To = element_t<Dtable>;
  using Acc = detail::RowAccumulator<From, To>;
  detail::check_tensor<Exec, Dout>();
  detail::check_output<Exec>(dtable);
  detail::check_embedding<Exec>(name, "dtable", dtable, ids, "dout", dout);
  detail::check_outputs(
      name,
      {{"dtable", detail::any_tensor(dtable)}, {"workspace", detail::any_workspace(extras...)}},
      {{"ids", detail::any_tensor(ids)}, {"dout", detail::any_tensor(dout)}});
  auto const of_ids = detail::values_of_rows(detail::to_const_ref(ids));
  auto const from = detail::rows_of(detail::to_const_ref(dout));
  auto const to = detail::rows_of(detail::to_ref(dtable));
  detail::check_id_counts(name, of_ids.count(), to.count());
  if constexpr (!is_host_space<Exec>)
    detail::check_row_counts(name, std::max(of_ids.count(), to.count()), to.size);
  detail::EmbeddingWorkspace const at(of_ids.count(), to.size, sizeof(Acc));
  detail::WorkspaceLease const lease = detail::get_workspace(name, exec, at.bytes, extras...);
  if (to.count() == 0 || to.size == 0) return;
  auto* const memory = static_cast<std::byte*>(lease.data);
  auto const numbers = [&](std::size_t offset) {
    return reinterpret_cast<std::uint32_t*>(memory + offset);
  };
  auto const sums_at = [&](std::size_t offset) { return reinterpret_cast<Acc*>(memory + offset); };
  detail::IdPairs pairs{numbers(at.pairs[0]), numbers(at.pairs[1])};
  if (at.count > 0) {
    detail::launch_rows(
        exec, name,
        detail::IdKeys<element_t<Ids>>{of_ids, pairs, to.count(), options.padding_index},
        detail::id_blocks(at.count), detail::ids_per_block);
    pairs = detail::sort_ids(exec, name, pairs, {numbers(at.pairs[2]), numbers(at.pairs[3])},
                             numbers(at.counts), at.count, to.count());
  }
  detail::EmbeddingSums<Acc, From, To> const sums{from,
                                                  to,
                                                  pairs,
                                                  at.count,
                                                  at.tiles,
                                                  at.pitch,
                                                  1,
                                                  1,
                                                  sums_at(at.heads),
                                                  sums_at(at.tails),
                                                  sums_at(at.of_groups),
                                                  static_cast<Acc>(options.beta)};
  if constexpr (is_host_space<Exec>) {
    detail::run_embedding_sums<1>(exec, name, sums, at.groups);
  } else {
    constexpr int wide = detail::neighbors<From, To>;
    if (detail::rows_move_at_once<wide>(from) && detail::rows_move_at_once<wide>(to))
      detail::run_embedding_sums<wide>(exec, name, sums, at.groups);
    else
      detail::run_embedding_sums<1>(exec, name, sums, at.groups);
  }
}

/// The same on an instance of the default execution space.
template <TensorLike Ids, TensorLike Dout, TensorLike Dtable,
          detail::EmbeddingBackwardExtra... Extras>
void embedding_backward(Ids const& ids, Dout const& dout, Dtable const& dtable,
                        EmbeddingBackwardOptions const& options = {}, Extras const&... extras) {
  embedding_backward(Kokkos::DefaultExecutionSpace{}, ids, dout, dtable, options, extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
