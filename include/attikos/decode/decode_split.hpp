// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Few queries against one stretch of a long cache: one team for every stretch, sequence and key
/// head, with all query heads that share the key head in one tile. On a device in fragments
/// (decode_launch.hpp).
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/attention/attention_scores.hpp>
#include <attikos/core/launch.hpp>
#include <attikos/decode/decode_launch.hpp>
#include <attikos/decode/decode_rows.hpp>
#include <attikos/decode/decode_tiles.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// The weight functor as online_softmax() asks for it: by row and column of a tile.
template <class Acc, class Functors>
struct DecodeWeight {
  Functors const& functors;
  DecodeRows const& at;
  std::int64_t first_head, j0;
  KOKKOS_INLINE_FUNCTION Acc operator()(int r, int j) const {
    return static_cast<Acc>(
        functors.weight(at.sequence.batch, first_head + at.head(r), at.query(r), j0 + j));
  }
};

/// Partial states are [splits, batch, heads_q, seqlen_q], with a batch of 1 where q is packed.
template <class Exec, class T, class Functors = NoFunctors>
struct DecodeSplit {
  using Acc = AttentionAccumulator<T>;
  using Head = AttentionHead<T>;
  using Traits = TileTraits<Exec, Acc>;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
  using Team = typename Policy::member_type;

  abi::AttentionArgs g;
  Functors functors;
  DecodePlan plan;
  std::int64_t row_tiles;  ///< slots for tiles of rows: of a sequence, or of all where q is packed
  Acc* partial_out;
  Acc* partial_lse;

  KOKKOS_INLINE_FUNCTION int d() const { return static_cast<int>(g.head_dim); }
  KOKKOS_INLINE_FUNCTION int dv() const { return static_cast<int>(g.head_dim_v); }
  KOKKOS_INLINE_FUNCTION int ldq() const { return d() + 16; }
  KOKKOS_INLINE_FUNCTION int lds() const { return round_up(plan.tile_kv, Traits::cols); }
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
  KOKKOS_INLINE_FUNCTION static void for_each_head(DecodeRows const& at, F const& f) {
    for (int r = 0; r < at.rows;) {
      std::int64_t const i = at.query(r), left = at.sequence.rows - i;
      int const count = static_cast<int>(left < at.rows - r ? left : std::int64_t{at.rows - r});
      f(r, count, at.head(r), i);
      r += count;
    }
  }

  /// Whether keys and values are read where they lie. Depends on nothing but the sequence, so that
  /// its bits depend on nothing else.
  KOKKOS_INLINE_FUNCTION bool is_direct(DecodeRows const& at) const {
    return group() * at.sequence.rows <= direct_rows && g.k_stride[3] == 1 && g.v_stride[3] == 1;
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
    std::int64_t const sequence = rest / row_tiles / g.heads_kv;
    std::int64_t const first_head = rest / row_tiles % g.heads_kv * group();
    DecodeRows const at = locate_decode_rows(g, sequence, rest % row_tiles, plan.tile_q);
    int const rows = at.rows;
    if (rows == 0) return;  // a slot that no packed sequence needs
    std::int64_t const b = at.sequence.batch;
    PartialRows const state_row(g, at, split, sequence, first_head);
    if (b < 0) return state_row.leave_empty(team, partial_lse);
    Head const head(g, at.sequence, first_head);

    DecodeQueries const queries(at.row(0), at.row(rows - 1), at.sequence.rows, head.len_q);
    std::int64_t begin = split * plan.chunk, last = begin;
    if (queries.low <= queries.highest) {
      std::int64_t const first = head.first(queries.low) / plan.tile_kv * plan.tile_kv;
      last = clamp_index(head.last(queries.highest), begin, begin + plan.chunk);
      if (first > begin) begin = first;
    }
    if (begin >= last) return state_row.leave_empty(team, partial_lse);

    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows), [&](int i) {
      state.maximum[i] = negative_infinity<Acc>();
      state.sum[i] = Acc(0);
    });
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * ldo()),
                         [&](int i) { state.out[i] = Acc(0); });
    if (at.sequence.rows == 1) {
      pack_rows<Traits>(
          team, q, ldq(),
          Block<T const>{head.q.data + at.row0 * g.q_stride[1], g.q_stride[1], head.q.col_stride},
          rows, d());
    } else {
      for_each_head(at, [&](int r, int count, std::int64_t h, std::int64_t i) {
        pack_rows<Traits>(team, q + r * ldq(), ldq(),
                          Block<T const>{head.q.at(i, 0) + h * g.q_stride[1], head.q.row_stride,
                                         head.q.col_stride},
                          count, d());
      });
    }
    bool const terms = has_terms<Functors>(g);
    bool const direct = is_direct(at);
    for (std::int64_t j0 = begin; j0 < last; j0 += plan.tile_kv) {
      int const cols = static_cast<int>(last - j0 < plan.tile_kv ? last - j0 : plan.tile_kv);
      int const padded = round_up(cols, Traits::cols);
      KOKKOS_IF_ON_HOST((if (direct) host::direct_scores<Acc>(q, ldq(), rows, head, j0, cols, d(),
                                                              scores, lds());))
      if (!direct) {
        team.team_barrier();
        pack_keys<Traits>(team, packed, d(), head, j0, d(), cols);
        team.team_barrier();
        multiply<Traits>(team, q, ldq(), packed, d(), scores, lds(), rows, padded, d(), false);
        team.team_barrier();
        pack_values<Traits>(team, packed, cols, head, j0, cols, 0, dv());
      }
      bool const plain = !terms && head.first(queries.highest) <= j0;
      if (plain) {
        auto const valid = [&](int r) {
          std::int64_t const n = head.last(at.query(r)) - j0;
          return static_cast<int>(n > cols ? cols : (n < 0 ? 0 : n));
        };
        online_softmax<Traits>(team, scores, lds(), rows, cols, head.scale, state, ldo(), valid);
      } else {
        for_each_head(at, [&](int r, int count, std::int64_t h, std::int64_t i) {
          Head own = head;
          own.head = first_head + h;
          if (g.alibi != nullptr)
            own.slope =
                static_cast<Acc>(g.alibi[b * g.alibi_stride[0] + own.head * g.alibi_stride[1]]);
          score_tile<Traits>(team, g, functors, own, i, j0, scores + r * lds(), lds(), count, cols);
        });
        team.team_barrier();
        auto const all = [&](int) { return cols; };
        if constexpr (Functors::has_weight) {
          online_softmax<Traits>(team, scores, lds(), rows, cols, Acc(1), state, ldo(), all,
                                 DecodeWeight<Acc, Functors>{functors, at, first_head, j0});
        } else {
          online_softmax<Traits>(team, scores, lds(), rows, cols, Acc(1), state, ldo(), all);
        }
      }
      team.team_barrier();
      // Rows past len_q add 0 to what is thrown away.
      bool const whole = plain && head.last(queries.low) - j0 >= cols;
      KOKKOS_IF_ON_HOST((if (direct && whole) host::direct_values<false, Acc>(
                             scores, lds(), rows, head, j0, cols, dv(), state.out, ldo());
                         if (direct && !whole) host::direct_values<true, Acc>(
                             scores, lds(), rows, head, j0, cols, dv(), state.out, ldo());))
      if (direct) continue;
      if (whole) {
        multiply<Traits>(team, scores, lds(), packed, cols, state.out, ldo(), rows, ldo(), cols,
                         true);
      } else {  // some pairs are excluded
        multiply_nonzero<Traits>(team, scores, lds(), packed, cols, state.out, ldo(), rows, ldo(),
                                 cols);
      }
    }
    team.team_barrier();
    store_partial_rows(team, head.value_scale, partial_out, g.head_dim_v, partial_lse, rows, dv(),
                       state, state_row);
  }
};

/// Cuts up a problem for a host. The splits follow from the length of the cache alone, so that a
/// result depends neither on the number of threads nor on what else is in the batch.
template <class Exec, class T>
DecodePlan decode_plan_of_host(abi::AttentionArgs const& g, std::int64_t wanted) {
  using Kernel = DecodeSplit<Exec, T>;
  using Traits = typename Kernel::Traits;
  Kernel kernel{g, {}, {}, 0, nullptr, nullptr};
  DecodePlan& plan = kernel.plan;
  std::int64_t const widest = std::max<std::int64_t>({g.head_dim, g.head_dim_v, 1});
  std::int64_t const room = (std::int64_t{256} << 10) /
                            (widest * static_cast<std::int64_t>(sizeof(typename Kernel::Acc)));
  auto const kv = std::clamp<std::int64_t>(room / Traits::cols * Traits::cols, Traits::cols, 256);
  auto const tile = static_cast<int>(
      std::min<std::int64_t>(decode_rows_of_sequence(g), std::int64_t{Traits::rows} * 16));
  plan = {tile, static_cast<int>(kv), Traits::scratch_level, 0, 0};
  while (plan.tile_q > 1 && kernel.bytes() > (std::size_t{8} << 20)) plan.tile_q /= 2;
  std::int64_t const splits = wanted == 0
                                  ? std::clamp<std::int64_t>(g.seqlen_kv / 512, 1, 64)
                                  : std::min(wanted, std::max<std::int64_t>(g.seqlen_kv, 1));
  std::int64_t const share = (g.seqlen_kv + splits - 1) / splits;
  plan.chunk = round_up<std::int64_t>(std::max<std::int64_t>(share, 1), plan.tile_kv);
  plan.splits = std::max<std::int64_t>((g.seqlen_kv + plan.chunk - 1) / plan.chunk, 1);
  return plan;
}

/// How decode() cuts up a problem.
template <class Exec, class T>
DecodePlan decode_plan(Exec const& exec, abi::AttentionArgs const& g, std::int64_t wanted) {
  if constexpr (multiplies_in_fragments<Exec>)
    return decode_fragment_plan<Exec, T>(exec, g, wanted);
  else
    return decode_plan_of_host<Exec, T>(g, wanted);
}

/// Bytes of the partial states; throws ResourceError if no memory could hold them.
template <class Acc>
std::size_t decode_bytes(abi::AttentionArgs const& g, DecodePlan const& plan) {
  std::int64_t bytes = static_cast<std::int64_t>(sizeof(Acc));
  std::int64_t const batch = decode_batch(g);
  bool overflow = false;
  std::int64_t const extents[] = {plan.splits, batch, g.heads_q, g.seqlen_q, g.head_dim_v + 1};
  for (std::int64_t const extent : extents)
    overflow |= __builtin_mul_overflow(bytes, extent, &bytes);
  if (!overflow) return static_cast<std::size_t>(bytes);
  if (batch == 0 || g.heads_q == 0 || g.seqlen_q == 0) return 0;
  raise<ResourceError>("decode: the partial results of ", plan.splits, " splits x ", batch, " x ",
                       g.heads_q, " x ", g.seqlen_q, " rows do not fit any memory");
}

/// Launches the splits of a problem that has rows. Asynchronous on `exec`.
template <class T, class Out, class Exec, class Functors>
void decode_splits(char const* operation, Exec const& exec, abi::AttentionArgs const& g,
                   Functors const& functors, DecodePlan const& plan, AttentionAccumulator<T>* out,
                   AttentionAccumulator<T>* lse) {
  if constexpr (multiplies_in_fragments<Exec>) {
    decode_fragments<T, Out>(operation, exec, g, functors, plan, out, lse);
  } else {
    using Kernel = DecodeSplit<Exec, T, Functors>;
    std::int64_t const tiles = decode_row_tiles(g, plan.tile_q);
    Kernel const kernel{g, functors, plan, tiles, out, lse};
    typename Kernel::Policy policy(
        exec, checked_league(operation, plan.splits * tiles * decode_batch(g) * g.heads_kv),
        Kernel::Traits::team_size, Kernel::Traits::vector_length);
    policy.set_scratch_size(plan.scratch_level,
                            Kokkos::PerTeam(checked_scratch(operation, kernel.bytes())));
    launch(operation, "portable/split", policy, kernel);
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
