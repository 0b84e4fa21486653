// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Flash attention: on a device in fragments (fragments/), on a host one team per tile of query
/// rows, keys and values streamed through scratch.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/attention/attention_arguments.hpp>
#include <attikos/attention/attention_dot.hpp>
#include <attikos/attention/attention_scores.hpp>
#include <attikos/attention/attention_store.hpp>
#include <attikos/attention/fragments/attention_fragments.hpp>
#include <attikos/attention/online_softmax.hpp>
#include <attikos/core/launch.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Extents of one team's work.
struct AttentionTile {
  int q, kv;
};

/// The weight functor as online_softmax() asks for it: by row and column of a tile.
template <class Head, class Functors>
struct TileWeight {
  Head const& head;
  Functors const& functors;
  std::int64_t row0, j0;
  KOKKOS_INLINE_FUNCTION typename Head::Acc operator()(int i, int j) const {
    return static_cast<typename Head::Acc>(
        functors.weight(head.batch, head.head, row0 + i, j0 + j));
  }
};

template <class Exec, class T, class Out, class Functors>
struct AttentionFlash {
  using Acc = AttentionAccumulator<T>;
  using Head = AttentionHead<T, Out>;
  using Traits = TileTraits<Exec, Acc>;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
  using Team = typename Policy::member_type;
  static_assert(Traits::host);
  static constexpr int padding = 16;  // keeps rows out of one another's cache sets

  abi::AttentionArgs g;
  Functors functors;
  AttentionTile tile;
  std::int64_t tiles_q;

  KOKKOS_INLINE_FUNCTION int d() const { return static_cast<int>(g.head_dim); }
  KOKKOS_INLINE_FUNCTION int dv() const { return static_cast<int>(g.head_dim_v); }
  KOKKOS_INLINE_FUNCTION int ldq() const { return d() + padding; }
  KOKKOS_INLINE_FUNCTION int lds() const { return round_up(tile.kv, Traits::cols); }
  KOKKOS_INLINE_FUNCTION int ldo() const { return round_up(dv(), Traits::cols); }
  KOKKOS_INLINE_FUNCTION std::int64_t packed_size() const {
    std::int64_t const keys = std::int64_t{d()} * round_up(tile.kv, Traits::cols);
    std::int64_t const values = std::int64_t{tile.kv} * ldo();
    return keys > values ? keys : values;
  }

  std::size_t bytes() const {
    return scratch_bytes<Acc>(std::int64_t{tile.q} * ldq()) +
           scratch_bytes<Acc>(std::int64_t{tile.q} * lds()) +
           scratch_bytes<Acc>(std::int64_t{tile.q} * ldo()) + scratch_bytes<Acc>(packed_size()) +
           2 * scratch_bytes<Acc>(tile.q);
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    constexpr int level = Traits::scratch_level;
    Acc* const q = scratch<Acc>(team, level, std::int64_t{tile.q} * ldq());
    Acc* const scores = scratch<Acc>(team, level, std::int64_t{tile.q} * lds());
    Acc* const packed = scratch<Acc>(team, level, packed_size());
    SoftmaxState<Acc> state{};
    state.out = scratch<Acc>(team, level, std::int64_t{tile.q} * ldo());
    state.ldo = ldo();
    state.maximum = scratch<Acc>(team, level, tile.q);
    state.sum = scratch<Acc>(team, level, tile.q);

    // Late tiles of a causal problem see the most keys: they go first, so that no long one starts
    // last.
    std::int64_t const groups = query_groups(g);
    std::int64_t const group = team.league_rank() % groups;
    QueryTile const where =
        locate_tile(g, group, tiles_q - 1 - team.league_rank() / groups, tile.q);
    std::int64_t const row0 = where.row0;
    Head const head(g, where.sequence, group % g.heads_q);
    if (row0 >= head.rows) return;  // a slot that no packed sequence needs
    int const rows = static_cast<int>(head.rows - row0 < tile.q ? head.rows - row0 : tile.q);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows), [&](int i) {
      state.maximum[i] = negative_infinity<Acc>();
      state.sum[i] = Acc(0);
    });
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * ldo()),
                         [&](int i) { state.out[i] = Acc(0); });

    std::int64_t const live_rows =
        head.len_q - row0 < rows ? (head.len_q > row0 ? head.len_q - row0 : 0) : rows;
    int const live = static_cast<int>(live_rows);
    // No row of this tile sees a key past `last` or before the first row's first; key tiles begin
    // at multiples of their size, so that a row's sums do not depend on the tile it is in.
    std::int64_t const last = live > 0 ? head.last(row0 + live - 1) : 0;
    std::int64_t const begin = live > 0 ? head.first(row0) / tile.kv * tile.kv : 0;
    bool const terms = has_terms<Functors>(g);
    if (last > begin)
      pack_rows<Traits>(team, q, ldq(),
                        Block<T const>{head.q.at(row0, 0), head.q.row_stride, head.q.col_stride},
                        live, d());
    for (std::int64_t tile0 = begin; tile0 < last; tile0 += tile.kv) {
      std::int64_t const end = last - tile0 < tile.kv ? last : tile0 + tile.kv;
      ColumnRange const seen = seen_columns<false, Functors>(g, head, row0, live, tile0, end);
      if (seen.begin == seen.end) continue;
      // Whole vectors are left out, so that a key stays in the lane that adds it up.
      std::int64_t const j0 = seen.begin - (seen.begin - tile0) % Traits::cols;
      int const cols = static_cast<int>(seen.end - j0);
      int const padded = round_up(cols, Traits::cols);
      team.team_barrier();
      pack_keys<Traits>(team, packed, d(), head, j0, d(), cols);
      team.team_barrier();
      multiply<Traits>(team, q, ldq(), packed, d(), scores, lds(), live, padded, d(), false);
      team.team_barrier();
      int const ldv = cols;
      pack_values<Traits>(team, packed, ldv, head, j0, cols, 0, dv());
      // Only lengths and a causal limit: each row sees a run of leading keys.
      bool const plain = !terms && head.first(row0 + live - 1) <= j0;
      if (plain) {
        auto const valid = [&](int i) {
          std::int64_t const n = head.last(row0 + i) - j0;
          return static_cast<int>(n > cols ? cols : (n < 0 ? 0 : n));
        };
        online_softmax<Traits>(team, scores, lds(), live, cols, head.scale, state, ldo(), valid);
      } else {
        score_tile<Traits>(team, g, functors, head, row0, j0, scores, lds(), live, cols);
        team.team_barrier();
        auto const all = [&](int) { return cols; };
        if constexpr (Functors::has_weight) {
          online_softmax<Traits>(team, scores, lds(), live, cols, Acc(1), state, ldo(), all,
                                 TileWeight<Head, Functors>{head, functors, row0, j0});
        } else {
          online_softmax<Traits>(team, scores, lds(), live, cols, Acc(1), state, ldo(), all);
        }
      }
      team.team_barrier();
      if (plain && head.last(row0) - j0 >= cols) {
        multiply<Traits>(team, scores, lds(), packed, ldv, state.out, ldo(), live, ldo(), cols,
                         true);
      } else {  // some pairs are excluded
        multiply_nonzero<Traits>(team, scores, lds(), packed, ldv, state.out, ldo(), live, ldo(),
                                 cols);
      }
    }
    team.team_barrier();
    store_attention_rows<Traits>(team, g, head, row0, rows, state, 0,
                                 static_cast<int>(g.head_dim_v));
  }
};

/// Tile extents: those that fill the second-level cache, smaller where threads would idle.
template <class Kernel, class Exec>
void choose_attention_tile(Kernel& kernel, Exec const& exec) {
  using Traits = typename Kernel::Traits;
  abi::AttentionArgs const& g = kernel.g;
  // The key tile must not depend on the number of threads: it sets the order in which a row's
  // sums are taken.
  std::int64_t const widest = std::max<std::int64_t>({g.head_dim, g.head_dim_v, 1});
  std::int64_t const room = (std::int64_t{256} << 10) /
                            (widest * static_cast<std::int64_t>(sizeof(typename Kernel::Acc)));
  auto const kv = std::clamp<std::int64_t>(room / Traits::cols * Traits::cols, Traits::cols, 256);
  kernel.tile = {Traits::rows * 16, static_cast<int>(kv)};
  auto const tiles = [&] { return query_tiles(g, kernel.tile.q) * query_groups(g); };
  while (tiles() < 4 * concurrency_of(exec) && kernel.tile.q > Traits::rows) kernel.tile.q /= 2;
  // Rows of thousands of features: as many as a share of the last-level cache holds.
  while (kernel.tile.q > 1 && kernel.bytes() > (std::size_t{8} << 20)) kernel.tile.q /= 2;
  kernel.tile.q = static_cast<int>(
      std::min<std::int64_t>(kernel.tile.q, std::max<std::int64_t>(g.seqlen_q, 1)));
  kernel.tile.kv = static_cast<int>(std::min<std::int64_t>(
      kernel.tile.kv,
      std::max<std::int64_t>(round_up<std::int64_t>(g.seqlen_kv, Traits::cols), Traits::cols)));
}

/// Launches flash attention on a host. Asynchronous on `exec`.
template <class T, class Out, class Exec, class Functors>
void attention_flash_on_host(Exec const& exec, abi::AttentionArgs const& args,
                             Functors const& functors) {
  using Kernel = AttentionFlash<Exec, T, Out, Functors>;
  using Traits = typename Kernel::Traits;
  if constexpr (uses_attention_dot<Exec, T, Functors>) {
    if (takes_attention_dot(args)) return attention_dot<Out>(exec, args, functors);
  }
  Kernel kernel{args, functors, {}, 0};
  choose_attention_tile(kernel, exec);
  kernel.tiles_q = query_tiles(args, kernel.tile.q);
  typename Kernel::Policy policy(exec,
                                 checked_league("attention", kernel.tiles_q * query_groups(args)),
                                 Traits::team_size, Traits::vector_length);
  policy.set_scratch_size(Traits::scratch_level,
                          Kokkos::PerTeam(checked_scratch("attention", kernel.bytes())));
  launch("attention", portable_name(AttentionAlgorithm::flash), policy, kernel);
}

/// Launches flash attention. Asynchronous on `exec`.
template <class T, class Out, class Exec, class Functors>
void attention_flash(Exec const& exec, abi::AttentionArgs const& args, Functors const& functors) {
  if (query_groups(args) == 0 || args.seqlen_q == 0) return;
  if (std::max(args.head_dim, args.head_dim_v) > (std::int64_t{1} << 26))
    raise<UnsupportedError>("attention: head_dim is ", std::max(args.head_dim, args.head_dim_v),
                            "; expected at most 67108864");
  if constexpr (multiplies_in_fragments<Exec>)
    attention_fragments<T, Out>(exec, args, functors);
  else
    attention_flash_on_host<T, Out>(exec, args, functors);
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
