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

/// Bytes of the stored scores: [batch·heads_q, seqlen_q, seqlen_kv], accumulators, contiguous.
inline std::size_t attention_scores_bytes(std::int64_t batch, std::int64_t heads,
                                          std::int64_t seqlen_q, std::int64_t seqlen_kv,
                                          std::size_t acc_size) {
  std::int64_t bytes = static_cast<std::int64_t>(acc_size);
  bool overflow = false;
  for (std::int64_t const extent : {batch, heads, seqlen_q, seqlen_kv})
    overflow |= __builtin_mul_overflow(bytes, extent, &bytes);
  if (overflow && batch != 0 && heads != 0 && seqlen_q != 0 && seqlen_kv != 0)
    raise<ResourceError>("attention: the scores of ", batch, " x ", heads, " x ", seqlen_q, " x ",
                         seqlen_kv, " do not fit any memory; expected algorithm flash");
  return overflow ? 0 : static_cast<std::size_t>(bytes);
}

/// One thread per score: a dot product over the features.
template <class Exec, class T>
struct NaiveScores {
  using Acc = AttentionAccumulator<T>;
  abi::AttentionArgs g;
  Acc* scores;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t index) const {
    std::int64_t const j = index % g.seqlen_kv;
    std::int64_t const i = index / g.seqlen_kv % g.seqlen_q;
    std::int64_t const bh = index / g.seqlen_kv / g.seqlen_q;
    AttentionHead<T> const head(g, bh / g.heads_q, bh % g.heads_q);
    if (j >= head.visible(i)) return;  // the row step never reads it
    Acc sum = 0;
    for (std::int64_t p = 0; p < g.head_dim; ++p)
      sum += static_cast<Acc>(*head.q.at(i, p)) * static_cast<Acc>(*head.k.at(j, p));
    scores[index] = sum;
  }
};

/// One thread per output element: a weighted sum over the visible keys.
template <class Exec, class T>
struct NaiveOutput {
  using Acc = AttentionAccumulator<T>;
  abi::AttentionArgs g;
  Acc const* scores;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t index) const {
    std::int64_t const d = index % g.head_dim_v;
    std::int64_t const i = index / g.head_dim_v % g.seqlen_q;
    std::int64_t const bh = index / g.head_dim_v / g.seqlen_q;
    AttentionHead<T> const head(g, bh / g.heads_q, bh % g.heads_q);
    Acc const* const row = scores + (bh * g.seqlen_q + i) * g.seqlen_kv;
    std::int64_t const visible = head.visible(i);
    Acc sum = 0;
    for (std::int64_t j = 0; j < visible; ++j) sum += row[j] * static_cast<Acc>(*head.v.at(j, d));
    *head.out.at(i, d) = static_cast<T>(sum);
  }
};

/// One team per row: scores become normalized weights, the log-sum-exp is written.
template <class Exec, class T>
struct StoredSoftmax {
  using Acc = AttentionAccumulator<T>;
  using Traits = TileTraits<Exec, Acc>;
  using Policy = Kokkos::TeamPolicy<Exec>;
  using Team = typename Policy::member_type;
  abi::AttentionArgs g;
  Acc* scores;
  std::int64_t rows;
  int rows_per_team;

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    std::int64_t const first = std::int64_t{team.league_rank()} * rows_per_team;
    int const count = static_cast<int>(rows - first < rows_per_team ? rows - first : rows_per_team);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](int r) {
      std::int64_t const index = first + r;
      std::int64_t const i = index % g.seqlen_q;
      std::int64_t const bh = index / g.seqlen_q;
      std::int64_t const b = bh / g.heads_q, h = bh % g.heads_q;
      AttentionHead<T> const head(g, b, h);
      std::int64_t const visible = head.visible(i);
      Acc* const x = scores + index * g.seqlen_kv;
      Acc const scale = static_cast<Acc>(g.softmax_scale);
      Acc maximum = negative_infinity<Acc>();
      if (visible > 0)
        Kokkos::parallel_reduce(
            Kokkos::ThreadVectorRange(team, visible),
            [&](std::int64_t j, Acc& best) {
              Acc const s = x[j] * scale;
              x[j] = s;
              if (s > best) best = s;
            },
            Kokkos::Max<Acc>(maximum));
      // Kokkos starts a maximum at the lowest finite number, so that a row of −∞ only sums to 0.
      Acc const shift = maximum;
      Acc sum = 0;
      if (visible > 0)
        Kokkos::parallel_reduce(
            Kokkos::ThreadVectorRange(team, visible),
            [&](std::int64_t j, Acc& part) {
              Acc const p = Kokkos::exp(x[j] - shift);
              x[j] = p;
              part += p;
            },
            sum);
      Acc const inverse = sum == Acc(0) ? Acc(0) : Acc(1) / sum;
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, visible),
                           [&](std::int64_t j) { x[j] *= inverse; });
      if (g.lse != nullptr)
        Kokkos::single(Kokkos::PerThread(team), [&] {
          static_cast<Acc*>(
              g.lse)[b * g.lse_stride[0] + h * g.lse_stride[1] + i * g.lse_stride[2]] =
              sum == Acc(0) ? negative_infinity<Acc>() : shift + Kokkos::log(sum);
        });
    });
  }
};

/// One team per tile of rows × columns of either product. `Output` false: scores = q·kᵀ; true: out
/// = weights·v.
template <class Exec, class T, bool Output>
struct TiledProduct {
  using Acc = AttentionAccumulator<T>;
  using Traits = TileTraits<Exec, Acc>;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
  using Team = typename Policy::member_type;
  static constexpr int tile_m = Traits::host ? Traits::rows * 8 : 32;
  static constexpr int tile_n = Traits::host ? Traits::cols * 4 : 32;
  static constexpr int tile_k = Traits::host ? 256 : 32;

  abi::AttentionArgs g;
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
    std::int64_t const bh = rank / (tiles_m * tiles_n);
    std::int64_t const row0 = rank % tiles_m * tile_m;
    std::int64_t const col0 = rank / tiles_m % tiles_n * tile_n;
    AttentionHead<T> const head(g, bh / g.heads_q, bh % g.heads_q);
    std::int64_t const width = Output ? g.head_dim_v : head.len_kv;
    int const rows = static_cast<int>(g.seqlen_q - row0 < tile_m ? g.seqlen_q - row0 : tile_m);
    int const live = static_cast<int>(
        head.len_q - row0 < rows ? (head.len_q > row0 ? head.len_q - row0 : 0) : rows);
    int const cols =
        static_cast<int>(width - col0 < tile_n ? (width > col0 ? width - col0 : 0) : tile_n);
    Acc* const stored = scores + (bh * g.seqlen_q + row0) * g.seqlen_kv;
    // Columns of the weights past what the last row sees are never written, nor read.
    std::int64_t const last = live > 0 ? head.visible(row0 + live - 1) : 0;
    std::int64_t const depth = Output ? last : g.head_dim;
    if (!Output && (live == 0 || cols == 0 || col0 >= last)) return;

    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile_m * tile_n),
                         [&](int i) { c[i] = Acc(0); });
    team.team_barrier();
    for (std::int64_t p = 0; p < depth; p += tile_k) {
      int const k = static_cast<int>(depth - p < tile_k ? depth - p : tile_k);
      int const ldb = Traits::host ? k : tile_n;
      if constexpr (Output) {
        pack_weights(team, a, stored, head, row0, p, live, k);
        pack_panels<Traits>(
            team, b, ldb, Block<T const>{head.v.at(p, col0), head.v.row_stride, head.v.col_stride},
            k, cols);
      } else {
        pack_rows<Traits>(team, a, tile_k + 1,
                          Block<T const>{head.q.at(row0, p), head.q.row_stride, head.q.col_stride},
                          live, k);
        pack_panels<Traits>(
            team, b, ldb, Block<T const>{head.k.at(col0, p), head.k.col_stride, head.k.row_stride},
            k, cols);
      }
      team.team_barrier();
      if constexpr (Output) {
        multiply_ragged<Traits>(team, a, tile_k + 1, b, ldb, c, tile_n, live,
                                Traits::host ? cols : tile_n, k, [&](int i) {
                                  std::int64_t const n = head.visible(row0 + i) - p;
                                  return static_cast<int>(n > k ? k : (n < 0 ? 0 : n));
                                });
      } else {
        multiply<Traits>(team, a, tile_k + 1, b, ldb, c, tile_n, live, Traits::host ? cols : tile_n,
                         k, true);
      }
      team.team_barrier();
    }
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, (Output ? rows : live) * cols),
                         [&](int index) {
                           int const i = index / cols, j = index % cols;
                           if constexpr (Output) {
                             *head.out.at(row0 + i, col0 + j) = static_cast<T>(c[i * tile_n + j]);
                           } else {
                             stored[i * g.seqlen_kv + col0 + j] = c[i * tile_n + j];
                           }
                         });
  }

  /// Weights of keys that a row does not see are 0: the stored ones were never written.
  KOKKOS_INLINE_FUNCTION void pack_weights(Team const& team, Acc* a, Acc const* stored,
                                           AttentionHead<T> const& head, std::int64_t row0,
                                           std::int64_t p, int rows, int k) const {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * k), [&](int index) {
      int const i = index / k, j = index % k;
      a[i * (tile_k + 1) + j] =
          p + j < head.visible(row0 + i) ? stored[i * g.seqlen_kv + p + j] : Acc(0);
    });
  }
};

template <bool Output, class T, class Exec>
void launch_tiled_product(Exec const& exec, abi::AttentionArgs const& g,
                          AttentionAccumulator<T>* scores, char const* name) {
  using Kernel = TiledProduct<Exec, T, Output>;
  std::int64_t const width = Output ? g.head_dim_v : g.seqlen_kv;
  Kernel const kernel{g, scores, (g.seqlen_q + Kernel::tile_m - 1) / Kernel::tile_m,
                      (width + Kernel::tile_n - 1) / Kernel::tile_n};
  std::int64_t const league = kernel.tiles_m * kernel.tiles_n * g.batch * g.heads_q;
  if (league == 0) return;
  typename Kernel::Policy policy(exec, static_cast<int>(league), Kernel::Traits::team_size,
                                 Kernel::Traits::vector_length);
  policy.set_scratch_size(Kernel::Traits::scratch_level,
                          Kokkos::PerTeam(static_cast<int>(Kernel::bytes())));
  launch("attention", name, policy, kernel);
}

/// Refuses a problem of which one of the launches would have too many teams, before the first.
template <class T, class Exec>
void check_unfused_leagues(abi::AttentionArgs const& g) {
  using Kernel = TiledProduct<Exec, T, false>;
  std::int64_t const tiles_m = (g.seqlen_q + Kernel::tile_m - 1) / Kernel::tile_m;
  std::int64_t const widest = std::max(g.seqlen_kv, g.head_dim_v);
  std::int64_t const tiles_n = (widest + Kernel::tile_n - 1) / Kernel::tile_n;
  checked_league("attention",
                 g.batch * g.heads_q * std::max(tiles_m * tiles_n, g.seqlen_q / 32 + 1));
}

/// Launches naive or tiled attention with `workspace` for the scores. Asynchronous on `exec`.
template <class T, class Exec>
void attention_unfused(Exec const& exec, abi::AttentionArgs const& g, bool tiled, void* workspace) {
  using Acc = AttentionAccumulator<T>;
  using Range = Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>;
  std::int64_t const rows = g.batch * g.heads_q * g.seqlen_q;
  if (rows == 0) return;
  auto* const scores = static_cast<Acc*>(workspace);
  if (tiled) {
    launch_tiled_product<false, T>(exec, g, scores, "portable/tiled/scores");
  } else {
    Kokkos::parallel_for(label("attention", "portable/naive/scores"),
                         Range(exec, 0, rows * g.seqlen_kv), NaiveScores<Exec, T>{g, scores});
  }
  using Softmax = StoredSoftmax<Exec, T>;
  Softmax const softmax{g, scores, rows, 32};
  launch("attention", tiled ? "portable/tiled/softmax" : "portable/naive/softmax",
         typename Softmax::Policy(exec, static_cast<int>((rows + 31) / 32),
                                  Softmax::Traits::team_size, Softmax::Traits::vector_length),
         softmax);
  if (tiled) {
    launch_tiled_product<true, T>(exec, g, scores, "portable/tiled/output");
  } else {
    Kokkos::parallel_for(label("attention", "portable/naive/output"),
                         Range(exec, 0, rows * g.head_dim_v), NaiveOutput<Exec, T>{g, scores});
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
