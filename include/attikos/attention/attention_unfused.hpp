// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Attention with stored scores, in three launches: scores, softmax of each row, weighted sum of
/// values.
///
/// `naive` computes each element by itself; `tiled` runs both products through scratch tiles. They
/// exist to be compared with, and their memory grows with seqlen_q·seqlen_kv.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/attention/attention_arguments.hpp>
#include <attikos/attention/online_softmax.hpp>
#include <attikos/core/launch.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Bytes of the stored scores: [groups, seqlen_q, seqlen_kv], accumulators, contiguous.
inline std::size_t attention_scores_bytes(std::int64_t groups, std::int64_t seqlen_q,
                                          std::int64_t seqlen_kv, std::size_t acc_size) {
  std::int64_t bytes = static_cast<std::int64_t>(acc_size);
  bool overflow = false;
  for (std::int64_t const extent : {groups, seqlen_q, seqlen_kv})
    overflow |= __builtin_mul_overflow(bytes, extent, &bytes);
  if (overflow && groups != 0 && seqlen_q != 0 && seqlen_kv != 0)
    raise<ResourceError>("attention: the scores of ", groups, " heads x ", seqlen_q, " x ",
                         seqlen_kv, " do not fit any memory; expected algorithm flash");
  return overflow ? 0 : static_cast<std::size_t>(bytes);
}

/// One thread per score: a dot product over the features.
template <class T, class Out, class Functors>
struct NaiveScores {
  using Acc = AttentionAccumulator<T>;
  abi::AttentionArgs g;
  Functors functors;
  Acc* scores;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t index) const {
    std::int64_t const j = index % g.seqlen_kv;
    std::int64_t const row = index / g.seqlen_kv % g.seqlen_q;
    std::int64_t const group = index / g.seqlen_kv / g.seqlen_q;
    AttentionHead<T, Out> const head(g, locate_row(g, group, row), group % g.heads_q);
    std::int64_t const i = row - head.begin_q;
    if (j >= head.last(i)) return;  // the row step never reads it
    Acc sum = 0;
    if (j >= head.first(i) && sees_in_blocks(g, functors, head, i, j)) {
      T const* const key = head.key(j);
      for (std::int64_t p = 0; p < g.head_dim; ++p)
        sum += static_cast<Acc>(*head.q.at(i, p)) * static_cast<Acc>(key[p * head.k.col_stride]);
    }
    scores[index] = pair_score(g, functors, head, i, j, sum);
  }
};

/// One thread per output element: a weighted sum over the keys.
template <class T, class Out, class Functors>
struct NaiveOutput {
  using Acc = AttentionAccumulator<T>;
  abi::AttentionArgs g;
  Acc const* scores;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t index) const {
    std::int64_t const d = index % g.head_dim_v;
    std::int64_t const row = index / g.head_dim_v % g.seqlen_q;
    std::int64_t const group = index / g.head_dim_v / g.seqlen_q;
    AttentionHead<T, Out> const head(g, locate_row(g, group, row), group % g.heads_q);
    std::int64_t const i = row - head.begin_q;
    Acc const* const x = scores + (group * g.seqlen_q + row) * g.seqlen_kv;
    std::int64_t const last = head.last(i);
    Acc sum = 0;
    for (std::int64_t j = head.first(i); j < last; ++j)
      if (x[j] != Acc(0)) sum += x[j] * static_cast<Acc>(head.value(j)[d * head.v.col_stride]);
    *head.out.at(i, d) = static_cast<Out>(sum * head.value_scale);
  }
};

/// One team per run of rows: scores become normalized weights, the log-sum-exp is written.
template <class Exec, class T, class Out, class Functors>
struct StoredSoftmax {
  using Acc = AttentionAccumulator<T>;
  using Traits = TileTraits<Exec, Acc>;
  using Policy = Kokkos::TeamPolicy<Exec>;
  using Team = typename Policy::member_type;
  static constexpr int rows_per_team = 32;
  abi::AttentionArgs g;
  Functors functors;
  Acc* scores;
  std::int64_t rows;

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    std::int64_t const first_row = std::int64_t{team.league_rank()} * rows_per_team;
    int const count =
        static_cast<int>(rows - first_row < rows_per_team ? rows - first_row : rows_per_team);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](int r) {
      std::int64_t const index = first_row + r;
      std::int64_t const group = index / g.seqlen_q;
      AttentionHead<T, Out> const head(g, locate_row(g, group, index % g.seqlen_q),
                                       group % g.heads_q);
      std::int64_t const i = index % g.seqlen_q - head.begin_q;
      std::int64_t const first = head.first(i);
      std::int64_t const last = head.last(i) > first ? head.last(i) : first;
      Acc* const x = scores + index * g.seqlen_kv;
      Acc maximum = negative_infinity<Acc>();
      Kokkos::parallel_reduce(
          Kokkos::ThreadVectorRange(team, first, last),
          [&](std::int64_t j, Acc& best) {
            if (x[j] > best) best = x[j];
          },
          Kokkos::Max<Acc>(maximum));
      // Kokkos starts a maximum at the lowest finite number, so that a row of −∞ only sums to 0.
      Acc const shift = maximum;
      Acc sum = 0;
      Kokkos::parallel_reduce(
          Kokkos::ThreadVectorRange(team, first, last),
          [&](std::int64_t j, Acc& part) {
            Acc p = Kokkos::exp(x[j] - shift);
            if constexpr (Functors::has_weight)
              if (p != Acc(0)) p *= static_cast<Acc>(functors.weight(head.batch, head.head, i, j));
            x[j] = p;
            part += p;
          },
          sum);
      bool const empty = sum == Acc(0);
      Acc top = shift;
      Acc factor = Acc(1);
      if (g.sinks != nullptr && !empty) {
        Acc const sink = load_any<Acc>(g.type_sinks, g.sinks, head.head * g.sinks_stride);
        top = sink > shift ? sink : shift;
        factor = Kokkos::exp(shift - top);
        sum = sum * factor + Kokkos::exp(sink - top);
      }
      factor = empty ? Acc(0) : factor / sum;
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, first, last),
                           [&](std::int64_t j) { x[j] *= factor; });
      if (g.lse != nullptr)
        Kokkos::single(Kokkos::PerThread(team), [&] {
          static_cast<Acc*>(
              g.lse)[(head.batch < 0 ? 0 : head.batch) * g.lse_stride[0] +
                     head.head * g.lse_stride[1] + (head.begin_q + i) * g.lse_stride[2]] =
              empty ? negative_infinity<Acc>() : top + Kokkos::log(sum);
        });
    });
  }
};

/// One team per tile of rows × columns of either product. `Output` false: scores of q·kᵀ; true: out
/// = weights·v.
template <class Exec, class T, class Out, class Functors, bool Output>
struct TiledProduct {
  using Acc = AttentionAccumulator<T>;
  using Head = AttentionHead<T, Out>;
  using Traits = TileTraits<Exec, Acc>;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
  using Team = typename Policy::member_type;
  static constexpr int tile_m = Traits::host ? Traits::rows * 8 : 32;
  static constexpr int tile_n = Traits::host ? Traits::cols * 4 : 32;
  static constexpr int tile_k = Traits::host ? 256 : 32;

  abi::AttentionArgs g;
  Functors functors;
  Acc* scores;
  std::int64_t tiles_m, tiles_n;

  static std::size_t bytes() {
    return scratch_bytes<Acc>(tile_m * (tile_k + 1)) + scratch_bytes<Acc>(tile_k * tile_n) +
           scratch_bytes<Acc>(tile_m * tile_n);
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    Acc* const a = scratch<Acc>(team, Traits::scratch_level, tile_m * (tile_k + 1));
    Acc* const b = scratch<Acc>(team, Traits::scratch_level, tile_k * tile_n);
    Acc* const c = scratch<Acc>(team, Traits::scratch_level, tile_m * tile_n);
    std::int64_t const rank = team.league_rank();
    std::int64_t const group = rank / (tiles_m * tiles_n);
    QueryTile const where = locate_tile(g, group, rank % tiles_m, tile_m);
    std::int64_t const row0 = where.row0;
    std::int64_t const col0 = rank / tiles_m % tiles_n * tile_n;
    Head const head(g, where.sequence, group % g.heads_q);
    if (row0 >= head.rows) return;  // a slot that no packed sequence needs
    std::int64_t const width = Output ? g.head_dim_v : head.len_kv;
    int const rows = static_cast<int>(head.rows - row0 < tile_m ? head.rows - row0 : tile_m);
    int const live = static_cast<int>(
        head.len_q - row0 < rows ? (head.len_q > row0 ? head.len_q - row0 : 0) : rows);
    int const cols =
        static_cast<int>(width - col0 < tile_n ? (width > col0 ? width - col0 : 0) : tile_n);
    Acc* const stored = scores + (group * g.seqlen_q + head.begin_q + row0) * g.seqlen_kv;
    // Columns of the weights past what the last row sees are never written, nor read.
    std::int64_t const last = live > 0 ? head.last(row0 + live - 1) : 0;
    std::int64_t const depth = Output ? last : g.head_dim;
    if (!Output && (live == 0 || cols == 0 || col0 >= last)) return;
    if constexpr (!Output && Functors::has_block_mask) {
      ColumnRange const seen =
          seen_columns<false, Functors>(g, head, row0, live, col0, col0 + cols);
      if (seen.begin == seen.end) {
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, live * cols), [&](int index) {
          stored[index / cols * g.seqlen_kv + col0 + index % cols] = negative_infinity<Acc>();
        });
        return;
      }
    }

    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile_m * tile_n),
                         [&](int i) { c[i] = Acc(0); });
    team.team_barrier();
    for (std::int64_t p = 0; p < depth; p += tile_k) {
      int const k = static_cast<int>(depth - p < tile_k ? depth - p : tile_k);
      if constexpr (Output && Functors::has_block_mask) {
        ColumnRange const seen = seen_columns<false, Functors>(g, head, row0, live, p, p + k);
        if (seen.begin == seen.end) continue;
      }
      int const ldb = Traits::host ? k : tile_n;
      if constexpr (Output) {
        pack_weights(team, a, stored, head, row0, p, live, k);
        pack_values<Traits>(team, b, ldb, head, p, k, col0, cols);
      } else {
        pack_rows<Traits>(team, a, tile_k + 1,
                          Block<T const>{head.q.at(row0, p), head.q.row_stride, head.q.col_stride},
                          live, k);
        Head shifted = head;
        shifted.k.data += p * head.k.col_stride;
        pack_keys<Traits>(team, b, ldb, shifted, col0, k, cols);
      }
      team.team_barrier();
      int const padded = Traits::host ? cols : tile_n;
      if constexpr (Output) {
        multiply_nonzero<Traits>(team, a, tile_k + 1, b, ldb, c, tile_n, live, padded, k);
      } else {
        multiply<Traits>(team, a, tile_k + 1, b, ldb, c, tile_n, live, padded, k, true);
      }
      team.team_barrier();
    }
    if constexpr (!Output) {
      score_tile<Traits>(team, g, functors, head, row0, col0, c, tile_n, live, cols);
      team.team_barrier();
    }
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, (Output ? rows : live) * cols),
                         [&](int index) {
                           int const i = index / cols, j = index % cols;
                           if constexpr (Output) {
                             *head.out.at(row0 + i, col0 + j) =
                                 static_cast<Out>(c[i * tile_n + j] * head.value_scale);
                           } else {
                             stored[i * g.seqlen_kv + col0 + j] = c[i * tile_n + j];
                           }
                         });
  }

  /// Weights of keys that a row does not see are 0: the stored ones were never written.
  KOKKOS_INLINE_FUNCTION void pack_weights(Team const& team, Acc* a, Acc const* stored,
                                           Head const& head, std::int64_t row0, std::int64_t p,
                                           int rows, int k) const {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * k), [&](int index) {
      int const i = index / k, j = index % k;
      a[i * (tile_k + 1) + j] = p + j < head.last(row0 + i) && p + j >= head.first(row0 + i)
                                    ? stored[i * g.seqlen_kv + p + j]
                                    : Acc(0);
    });
  }
};

/// Tiles of one of the two products: along the rows, and along the columns.
template <class Kernel>
std::int64_t product_tiles(abi::AttentionArgs const& g, std::int64_t width) {
  return query_tiles(g, Kernel::tile_m) * ((width + Kernel::tile_n - 1) / Kernel::tile_n) *
         query_groups(g);
}

template <bool Output, class T, class Out, class Exec, class Functors>
void launch_tiled_product(Exec const& exec, abi::AttentionArgs const& g, Functors const& functors,
                          AttentionAccumulator<T>* scores, char const* name) {
  using Kernel = TiledProduct<Exec, T, Out, Functors, Output>;
  std::int64_t const width = Output ? g.head_dim_v : g.seqlen_kv;
  std::int64_t const league = product_tiles<Kernel>(g, width);
  if (league == 0) return;
  Kernel const kernel{g, functors, scores, query_tiles(g, Kernel::tile_m),
                      (width + Kernel::tile_n - 1) / Kernel::tile_n};
  typename Kernel::Policy policy(exec, static_cast<int>(league), Kernel::Traits::team_size,
                                 Kernel::Traits::vector_length);
  policy.set_scratch_size(Kernel::Traits::scratch_level,
                          Kokkos::PerTeam(static_cast<int>(Kernel::bytes())));
  launch("attention", name, policy, kernel);
}

/// Refuses a problem of which one of the launches would have too many teams, before the first.
template <class T, class Out, class Functors, class Exec>
void check_unfused_leagues(abi::AttentionArgs const& g) {
  using Kernel = TiledProduct<Exec, T, Out, Functors, false>;
  checked_league("attention",
                 std::max(product_tiles<Kernel>(g, std::max(g.seqlen_kv, g.head_dim_v)),
                          query_groups(g) * (g.seqlen_q / 32 + 1)));
}

/// Launches naive or tiled attention with `workspace` for the scores. Asynchronous on `exec`.
template <class T, class Out, class Exec, class Functors>
void attention_unfused(Exec const& exec, abi::AttentionArgs const& g, Functors const& functors,
                       bool tiled, void* workspace) {
  using Acc = AttentionAccumulator<T>;
  std::int64_t const rows = query_groups(g) * g.seqlen_q;
  if (rows == 0) return;
  auto* const scores = static_cast<Acc*>(workspace);
  if (tiled) {
    launch_tiled_product<false, T, Out>(exec, g, functors, scores, "portable/tiled/scores");
  } else {
    launch("attention", "portable/naive/scores", range_policy(exec, rows * g.seqlen_kv),
           NaiveScores<T, Out, Functors>{g, functors, scores});
  }
  using Softmax = StoredSoftmax<Exec, T, Out, Functors>;
  launch("attention", tiled ? "portable/tiled/softmax" : "portable/naive/softmax",
         typename Softmax::Policy(
             exec, static_cast<int>((rows + Softmax::rows_per_team - 1) / Softmax::rows_per_team),
             Softmax::Traits::team_size, Softmax::Traits::vector_length),
         Softmax{g, functors, scores, rows});
  if (tiled) {
    launch_tiled_product<true, T, Out>(exec, g, functors, scores, "portable/tiled/output");
  } else {
    launch("attention", "portable/naive/output", range_policy(exec, rows * g.head_dim_v),
           NaiveOutput<T, Out, Functors>{g, scores});
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
