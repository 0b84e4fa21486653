// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Few queries against one stretch of a long cache: one team for every stretch, sequence and key
/// head, with all query heads that share the key head in one tile.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/attention/attention_arguments.hpp>
#include <attikos/attention/attention_scores.hpp>
#include <attikos/attention/online_softmax.hpp>
#include <attikos/core/launch.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// How a decode problem is cut up: tile extents, where scratch lies, keys of one split (a multiple
/// of the key tile) and number of splits.
struct DecodePlan {
  int tile_q, tile_kv, scratch_level;
  std::int64_t chunk, splits;
};

/// Writes unnormalized results of one split as a partial state: out/sum and log-sum-exp.
template <class Traits, class Team, class Acc>
KOKKOS_INLINE_FUNCTION void store_partial_rows(Team const& team, Acc value_scale, Acc* out,
                                               Acc* lse, int rows, int cols,
                                               SoftmaxState<Acc> const& state) {
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
    Acc const sum = state.sum[i];
    bool const empty = sum == Acc(0);
    Acc const factor = empty ? Acc(0) : value_scale / sum;
    Acc const* const from = state.out + i * state.ldo;
    Acc* const to = out + std::int64_t{i} * cols;
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, cols),
                         [&](int j) { to[j] = empty ? Acc(0) : from[j] * factor; });
    Kokkos::single(Kokkos::PerThread(team), [&] {
      lse[i] = empty ? negative_infinity<Acc>() : state.maximum[i] + Kokkos::log(sum);
    });
  });
}

/// Rows of a group are its query heads one after another, each with all its queries: row r is query
/// r mod seqlen_q of head r div seqlen_q. Partial states are [splits, batch, heads_q, seqlen_q].
template <class Exec, class T>
struct DecodeSplit {
  using Acc = AttentionAccumulator<T>;
  using Head = AttentionHead<T>;
  using Traits = TileTraits<Exec, Acc>;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
  using Team = typename Policy::member_type;
  static constexpr int padding = Traits::host ? 16 : 1;

  abi::AttentionArgs g;
  DecodePlan plan;
  std::int64_t row_tiles;
  Acc* partial_out;
  Acc* partial_lse;

  KOKKOS_INLINE_FUNCTION int d() const { return static_cast<int>(g.head_dim); }
  KOKKOS_INLINE_FUNCTION int dv() const { return static_cast<int>(g.head_dim_v); }
  KOKKOS_INLINE_FUNCTION int ldq() const { return d() + padding; }
  KOKKOS_INLINE_FUNCTION int lds() const {
    return round_up(plan.tile_kv, Traits::cols) + (Traits::host ? 0 : padding);
  }
  KOKKOS_INLINE_FUNCTION int ldo() const { return round_up(dv(), Traits::cols); }
  KOKKOS_INLINE_FUNCTION std::int64_t group() const { return g.heads_q / g.heads_kv; }
  KOKKOS_INLINE_FUNCTION std::int64_t packed_size() const {
    std::int64_t const keys = std::int64_t{d()} * round_up(plan.tile_kv, Traits::cols);
    std::int64_t const values = std::int64_t{plan.tile_kv} * ldo();
    return keys > values ? keys : values;
  }

  std::size_t bytes() const {
    return scratch_bytes<Acc>(std::int64_t{plan.tile_q} * ldq()) +
           scratch_bytes<Acc>(std::int64_t{plan.tile_q} * lds()) +
           scratch_bytes<Acc>(std::int64_t{plan.tile_q} * ldo()) +
           scratch_bytes<Acc>(packed_size()) + 2 * scratch_bytes<Acc>(plan.tile_q);
  }

  /// Calls f(row of the tile, number of rows, head of the group, first query) for each stretch of
  /// rows that belong to one head.
  template <class F>
  KOKKOS_INLINE_FUNCTION void for_each_head(std::int64_t row0, int rows, F const& f) const {
    for (int r = 0; r < rows;) {
      std::int64_t const i = (row0 + r) % g.seqlen_q;
      int const count =
          static_cast<int>(g.seqlen_q - i < rows - r ? g.seqlen_q - i : std::int64_t{rows - r});
      f(r, count, (row0 + r) / g.seqlen_q, i);
      r += count;
    }
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    int const level = plan.scratch_level;
    Acc* const q = scratch<Acc>(team, level, std::int64_t{plan.tile_q} * ldq());
    Acc* const scores = scratch<Acc>(team, level, std::int64_t{plan.tile_q} * lds());
    Acc* const packed = scratch<Acc>(team, level, packed_size());
    SoftmaxState<Acc> state{};
    state.out = scratch<Acc>(team, level, std::int64_t{plan.tile_q} * ldo());
    state.ldo = ldo();
    state.maximum = scratch<Acc>(team, level, plan.tile_q);
    state.sum = scratch<Acc>(team, level, plan.tile_q);

    std::int64_t const split = team.league_rank() % plan.splits;
    std::int64_t const rest = team.league_rank() / plan.splits;
    std::int64_t const b = rest / row_tiles / g.heads_kv;
    std::int64_t const first_head = rest / row_tiles % g.heads_kv * group();
    std::int64_t const row0 = rest % row_tiles * plan.tile_q;
    std::int64_t const all = group() * g.seqlen_q;
    int const rows = static_cast<int>(all - row0 < plan.tile_q ? all - row0 : plan.tile_q);
    Head const head(g, {b, 0, g.seqlen_q}, first_head);
    std::int64_t const state_row =
        ((split * g.batch + b) * g.heads_q + first_head) * g.seqlen_q + row0;
    Acc* const lse = partial_lse + state_row;

    // The queries of this tile lie in [low, high], and those past len_q see nothing.
    bool const one_head = row0 / g.seqlen_q == (row0 + rows - 1) / g.seqlen_q;
    std::int64_t const low = one_head ? row0 % g.seqlen_q : 0;
    std::int64_t const high = one_head ? (row0 + rows - 1) % g.seqlen_q : g.seqlen_q - 1;
    std::int64_t const highest = high < head.len_q ? high : head.len_q - 1;
    std::int64_t begin = split * plan.chunk, last = begin;
    if (low <= highest) {
      std::int64_t const first = head.first(low) / plan.tile_kv * plan.tile_kv;
      last = clamp_index(head.last(highest), begin, begin + plan.chunk);
      if (first > begin) begin = first;
    }
    if (begin >= last) {  // what an empty state's output holds is never looked at
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows),
                           [&](int i) { lse[i] = negative_infinity<Acc>(); });
      return;
    }

    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows), [&](int i) {
      state.maximum[i] = negative_infinity<Acc>();
      state.sum[i] = Acc(0);
    });
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * ldo()),
                         [&](int i) { state.out[i] = Acc(0); });
    if (g.seqlen_q == 1) {
      pack_rows<Traits>(
          team, q, ldq(),
          Block<T const>{head.q.data + row0 * g.q_stride[1], g.q_stride[1], head.q.col_stride},
          rows, d());
    } else {
      for_each_head(row0, rows, [&](int r, int count, std::int64_t h, std::int64_t i) {
        pack_rows<Traits>(team, q + r * ldq(), ldq(),
                          Block<T const>{head.q.at(i, 0) + h * g.q_stride[1], head.q.row_stride,
                                         head.q.col_stride},
                          count, d());
      });
    }
    bool const terms = has_terms<NoFunctors>(g);
    auto const query = [&](int r) { return (row0 + r) % g.seqlen_q; };
    for (std::int64_t j0 = begin; j0 < last; j0 += plan.tile_kv) {
      int const cols = static_cast<int>(last - j0 < plan.tile_kv ? last - j0 : plan.tile_kv);
      int const padded = round_up(cols, Traits::cols);
      team.team_barrier();
      pack_keys<Traits>(team, packed, Traits::host ? d() : padded, head, j0, d(), cols);
      team.team_barrier();
      multiply<Traits>(team, q, ldq(), packed, Traits::host ? d() : padded, scores, lds(), rows,
                       padded, d(), false);
      team.team_barrier();
      int const ldv = Traits::host ? cols : ldo();
      pack_values<Traits>(team, packed, ldv, head, j0, cols, 0, dv());
      bool const plain = !terms && head.first(highest) <= j0;
      if (plain) {
        auto const valid = [&](int r) {
          std::int64_t const n = head.last(query(r)) - j0;
          return static_cast<int>(n > cols ? cols : (n < 0 ? 0 : n));
        };
        online_softmax<Traits>(team, scores, lds(), rows, cols, head.scale, state, ldo(), valid);
      } else {
        for_each_head(row0, rows, [&](int r, int count, std::int64_t h, std::int64_t i) {
          Head own = head;
          own.head = first_head + h;
          if (g.alibi != nullptr)
            own.slope =
                static_cast<Acc>(g.alibi[b * g.alibi_stride[0] + own.head * g.alibi_stride[1]]);
          score_tile<Traits>(team, g, NoFunctors{}, own, i, j0, scores + r * lds(), lds(), count,
                             cols);
        });
        team.team_barrier();
        online_softmax<Traits>(team, scores, lds(), rows, cols, Acc(1), state, ldo(),
                               [&](int) { return cols; });
      }
      team.team_barrier();
      if (plain && head.last(low) - j0 >= cols) {  // rows past len_q add 0 to what is thrown away
        multiply<Traits>(team, scores, lds(), packed, ldv, state.out, ldo(), rows, ldo(), cols,
                         true);
      } else {  // some pairs are excluded
        multiply_nonzero<Traits>(team, scores, lds(), packed, ldv, state.out, ldo(), rows, ldo(),
                                 cols);
      }
    }
    team.team_barrier();
    store_partial_rows<Traits>(team, head.value_scale, partial_out + state_row * g.head_dim_v, lse,
                               rows, dv(), state);
  }
};

/// Cuts up a problem. On a host the splits follow from the length of the cache alone, so that a
/// result depends neither on the number of threads nor on what else is in the batch; on a device
/// there are enough to fill it.
template <class Exec, class T>
DecodePlan decode_plan(Exec const& exec, abi::AttentionArgs const& g, std::int64_t wanted) {
  using Kernel = DecodeSplit<Exec, T>;
  using Traits = typename Kernel::Traits;
  Kernel kernel{g, {}, 0, nullptr, nullptr};
  DecodePlan& plan = kernel.plan;
  std::int64_t const rows =
      g.heads_kv == 0 ? 1 : std::max<std::int64_t>(g.heads_q / g.heads_kv * g.seqlen_q, 1);
  auto const tile_of = [&](std::int64_t most) {
    return static_cast<int>(std::min<std::int64_t>(rows, most));
  };
  std::int64_t splits = std::min(wanted, std::max<std::int64_t>(g.seqlen_kv, 1));
  if constexpr (Traits::host) {
    std::int64_t const widest = std::max<std::int64_t>({g.head_dim, g.head_dim_v, 1});
    std::int64_t const room = (std::int64_t{256} << 10) /
                              (widest * static_cast<std::int64_t>(sizeof(typename Kernel::Acc)));
    auto const kv = std::clamp<std::int64_t>(room / Traits::cols * Traits::cols, Traits::cols, 256);
    plan = {tile_of(Traits::rows * 16), static_cast<int>(kv), Traits::scratch_level, 0, 0};
    while (plan.tile_q > 1 && kernel.bytes() > (std::size_t{8} << 20)) plan.tile_q /= 2;
    if (splits == 0) splits = std::clamp<std::int64_t>(g.seqlen_kv / 512, 1, 64);
  } else {
    std::size_t const limit = static_cast<std::size_t>(Kernel::Policy::scratch_size_max(0)) - 1024;
    int size = 64;
    do {
      plan = {tile_of(size), size, 0, 0, 0};
      size /= 2;
    } while (kernel.bytes() > limit && size >= 4);
    if (kernel.bytes() > limit) plan = {tile_of(16), 16, 1, 0, 0};
    if (splits == 0) {
      // Four teams for each 2048 threads; a split of less than four tiles is not worth its merge.
      std::int64_t const teams = g.batch * g.heads_kv * ((rows + plan.tile_q - 1) / plan.tile_q);
      std::int64_t const room = exec.concurrency() / 512;
      splits = std::clamp<std::int64_t>(
          std::min(room / std::max<std::int64_t>(teams, 1), g.seqlen_kv / (4 * plan.tile_kv)), 1,
          128);
    }
  }
  std::int64_t const share = (g.seqlen_kv + splits - 1) / splits;
  plan.chunk = round_up<std::int64_t>(std::max<std::int64_t>(share, 1), plan.tile_kv);
  plan.splits = std::max<std::int64_t>((g.seqlen_kv + plan.chunk - 1) / plan.chunk, 1);
  return plan;
}

/// Bytes of the partial states; throws ResourceError if no memory could hold them.
template <class Acc>
std::size_t decode_bytes(abi::AttentionArgs const& g, DecodePlan const& plan) {
  std::int64_t bytes = static_cast<std::int64_t>(sizeof(Acc));
  bool overflow = false;
  std::int64_t const extents[] = {plan.splits, g.batch, g.heads_q, g.seqlen_q, g.head_dim_v + 1};
  for (std::int64_t const extent : extents)
    overflow |= __builtin_mul_overflow(bytes, extent, &bytes);
  if (!overflow) return static_cast<std::size_t>(bytes);
  if (g.batch == 0 || g.heads_q == 0 || g.seqlen_q == 0) return 0;
  raise<ResourceError>("decode: the partial results of ", plan.splits, " splits x ", g.batch, " x ",
                       g.heads_q, " x ", g.seqlen_q, " rows do not fit any memory");
}

/// Launches the splits of a problem that has rows. Asynchronous on `exec`.
template <class T, class Exec>
void decode_splits(Exec const& exec, abi::AttentionArgs const& g, DecodePlan const& plan,
                   AttentionAccumulator<T>* out, AttentionAccumulator<T>* lse) {
  using Kernel = DecodeSplit<Exec, T>;
  std::int64_t const rows = g.heads_q / g.heads_kv * g.seqlen_q;
  Kernel const kernel{g, plan, (rows + plan.tile_q - 1) / plan.tile_q, out, lse};
  typename Kernel::Policy policy(
      exec, checked_league("decode", plan.splits * kernel.row_tiles * g.batch * g.heads_kv),
      Kernel::Traits::team_size, Kernel::Traits::vector_length);
  policy.set_scratch_size(plan.scratch_level,
                          Kokkos::PerTeam(checked_scratch("decode", kernel.bytes())));
  launch("decode", "portable/split", policy, kernel);
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
