// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Gradients of attention on any Kokkos back end, on a device in fragments (fragments/). Scores are
/// computed anew from q, k and the log-sum-exp; one kernel keeps a tile of keys and walks through
/// the queries, another keeps queries and walks through the keys, so that every sum belongs to one
/// team.
#pragma once

#include <attikos/attention/backward/arguments.hpp>
#include <attikos/attention/backward/dot.hpp>
#include <attikos/attention/backward/terms.hpp>
#include <attikos/attention/backward/tile.hpp>
#include <attikos/attention/fragments/gradients.hpp>
#include <limits>
#include <string>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// dout·out of every query.
template <class Exec, class T>
struct AttentionBackwardDelta {
  using Acc = AttentionAccumulator<T>;
  using Traits = TileTraits<Exec, Acc>;
  using Policy = Kokkos::TeamPolicy<Exec>;
  using Team = typename Policy::member_type;
  static constexpr int rows_per_team = 32;

  abi::AttentionBackwardArgs a;
  Acc* delta;

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    abi::AttentionArgs const& g = a.forward;
    std::int64_t const groups = query_groups(g);
    std::int64_t const group = team.league_rank() % groups;
    QueryTile const where = locate_tile(g, group, team.league_rank() / groups, rows_per_team);
    BackwardHead<T> const head(a, where.sequence, group % g.heads_q);
    std::int64_t const left = head.len_q - where.row0;
    if (left <= 0) return;
    int const rows = static_cast<int>(left < rows_per_team ? left : rows_per_team);
    std::int64_t const cols = g.head_dim_v;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int r) {
      std::int64_t const i = where.row0 + r;
      Acc sum = 0;
      if constexpr (Traits::host) {
        KOKKOS_IF_ON_HOST(
            (constexpr int W = host::lanes<Acc>; host::Vec<Acc> sums{};
             for (std::int64_t c = 0; c < cols; c += W) {
               int const count = cols - c < W ? static_cast<int>(cols - c) : W;
               sums += host::load_row<Acc>(head.dout.at(i, c), head.dout.col_stride, count) *
                       host::load_row<Acc>(head.out.at(i, c), head.out.col_stride, count);
             } sum = host::reduce_sum<Acc, W>(sums);))
      } else {
        Kokkos::parallel_reduce(
            Kokkos::ThreadVectorRange(team, cols),
            [&](std::int64_t c, Acc& part) {
              part += static_cast<Acc>(*head.dout.at(i, c)) * static_cast<Acc>(*head.out.at(i, c));
            },
            sum);
      }
      Kokkos::single(Kokkos::PerThread(team), [&] { delta[head.delta_row + i] = sum; });
    });
  }
};

/// What both walks share: arguments, tile, and sums of the team's rows. `Dots`: on a host's
/// dot-product instructions.
template <class Exec, class T, class Functors, bool Dots>
struct AttentionBackwardKernel {
  using Acc = AttentionAccumulator<T>;
  using Head = BackwardHead<T>;
  using Traits = TileTraits<Exec, Acc>;
  using Scratch = BackwardScratchOf<Traits, Acc, Dots>;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
  using Team = typename Policy::member_type;

  abi::AttentionBackwardArgs a;
  Functors functors;
  Acc const* delta;
  BackwardTile tile;
  std::int64_t tiles;  ///< along the rows

  KOKKOS_INLINE_FUNCTION Scratch scratch_of() const {
    return {tile, static_cast<int>(a.forward.head_dim), static_cast<int>(a.forward.head_dim_v)};
  }
  KOKKOS_INLINE_FUNCTION std::int64_t sum_size(int width) const {
    return std::int64_t{Scratch::whole_rows(tile.rows)} * Scratch::ld_sum(width);
  }
  KOKKOS_INLINE_FUNCTION static Acc* zeros(Team const& team, int level, std::int64_t count) {
    Acc* const result = scratch<Acc>(team, level, count);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, count),
                         [&](std::int64_t i) { result[i] = Acc(0); });
    return result;
  }
  KOKKOS_INLINE_FUNCTION static int clip(std::int64_t count, std::int64_t most) {
    return static_cast<int>(clamp_index(count, 0, most));
  }
};

/// dk and dv of a tile of keys: over the query heads they serve, and over the queries of each, in
/// ascending order.
template <class Exec, class T, class Functors, bool Dots = false>
struct AttentionBackwardKeys : AttentionBackwardKernel<Exec, T, Functors, Dots> {
  using Base = AttentionBackwardKernel<Exec, T, Functors, Dots>;
  using typename Base::Acc;
  using typename Base::Head;
  using typename Base::Scratch;
  using typename Base::Team;

  std::size_t bytes() const {
    Scratch const s = this->scratch_of();
    return s.bytes() + scratch_bytes<Acc>(this->sum_size(s.d)) +
           scratch_bytes<Acc>(this->sum_size(s.dv));
  }

  KOKKOS_INLINE_FUNCTION static std::int64_t groups(abi::AttentionArgs const& g) {
    return (g.cu_seqlens_kv.data == nullptr ? g.batch : 1) * g.heads_kv;
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    abi::AttentionArgs const& g = this->a.forward;
    BackwardTile const& tile = this->tile;
    std::int64_t const group = team.league_rank() % groups(g);
    std::int64_t const slot = team.league_rank() / groups(g);
    QueryTile const where = g.cu_seqlens_kv.data == nullptr
                                ? QueryTile{{group / g.heads_kv, 0, g.seqlen_kv}, slot * tile.rows}
                                : locate_packed_tile(packed_keys(g), slot, tile.rows);
    std::int64_t const row0 = where.row0;
    std::int64_t const batch = where.sequence.batch;
    if (row0 >= where.sequence.rows) return;  // a slot that no packed sequence needs
    int const rows = this->clip(where.sequence.rows - row0, tile.rows);

    Scratch s = this->scratch_of();
    s.allocate(team);
    Acc* const sum_k = this->zeros(team, tile.scratch_level, this->sum_size(s.d));
    Acc* const sum_v = this->zeros(team, tile.scratch_level, this->sum_size(s.dv));

    std::int64_t const head_kv = group % g.heads_kv;
    std::int64_t const shared = g.heads_q / g.heads_kv;
    for (std::int64_t n = 0; batch >= 0 && n < shared; ++n) {
      Head const head(this->a, query_rows(g, batch), head_kv * shared + n);
      int const live = this->clip(head.len_kv - row0, rows);
      if (live == 0) break;  // the heads of a group have one len_kv
      if (n == 0)
        s.load_rows(team, Block<T const>{head.k.at(row0, 0), head.k.row_stride, head.k.col_stride},
                    Block<T const>{head.v.at(row0, 0), head.v.row_stride, head.v.col_stride}, live);
      std::int64_t const last = head.last_query(row0 + live - 1);
      for (std::int64_t tile0 = Scratch::aligned(head.first_query(row0)); tile0 < last;
           tile0 += tile.cols) {
        std::int64_t const end = last - tile0 < tile.cols ? last : tile0 + tile.cols;
        ColumnRange const seen = seen_columns<true, Functors>(g, head, row0, live, tile0, end);
        if (seen.begin == seen.end) continue;
        std::int64_t const i0 = Scratch::aligned(seen.begin);
        int const cols = static_cast<int>(seen.end - i0);
        Block<T const> const q{head.q.at(i0, 0), head.q.row_stride, head.q.col_stride};
        Block<T const> const dout{head.dout.at(i0, 0), head.dout.row_stride, head.dout.col_stride};
        s.load_queries(team, head, this->delta, i0, cols);
        s.template differentiate<true>(team, g, this->functors, head, q, dout, row0, live, i0,
                                       cols);
        s.add_columns(team, s.pair_gradients(), q, s.d, sum_k, live, cols);
        s.add_columns(team, s.pair_weights(), dout, s.dv, sum_v, live, cols);
      }
    }
    team.team_barrier();
    std::int64_t const b = batch < 0 ? 0 : batch;
    std::int64_t const row = where.sequence.begin + row0;
    auto const store = [&](void* data, std::int64_t const(&stride)[4], Acc const* sum, int width) {
      Block<T> const out{
          static_cast<T*>(data) + b * stride[0] + head_kv * stride[1] + row * stride[2], stride[2],
          stride[3]};
      store_sums(out, sum, Scratch::ld_sum(width), rows, width);
    };
    store(this->a.dk, this->a.dk_stride, sum_k, s.d);
    store(this->a.dv, this->a.dv_stride, sum_v, s.dv);
  }
};

/// dq of a tile of queries, over the keys in ascending order.
template <class Exec, class T, class Functors, bool Dots = false>
struct AttentionBackwardQueries : AttentionBackwardKernel<Exec, T, Functors, Dots> {
  using Base = AttentionBackwardKernel<Exec, T, Functors, Dots>;
  using typename Base::Acc;
  using typename Base::Head;
  using typename Base::Scratch;
  using typename Base::Team;

  std::size_t bytes() const {
    Scratch const s = this->scratch_of();
    return s.bytes() + scratch_bytes<Acc>(this->sum_size(s.d));
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    abi::AttentionBackwardArgs const& a = this->a;
    abi::AttentionArgs const& g = a.forward;
    BackwardTile const& tile = this->tile;
    // Late tiles of a causal problem see the most keys: they go first, so that no long one starts
    // last.
    std::int64_t const groups = query_groups(g);
    std::int64_t const group = team.league_rank() % groups;
    QueryTile const where =
        locate_tile(g, group, this->tiles - 1 - team.league_rank() / groups, tile.rows);
    std::int64_t const row0 = where.row0;
    Head const head(a, where.sequence, group % g.heads_q);
    if (row0 >= head.rows) return;  // a slot that no packed sequence needs
    int const rows = this->clip(head.rows - row0, tile.rows);
    int const live = this->clip(head.len_q - row0, rows);

    Scratch s = this->scratch_of();
    s.allocate(team);
    Acc* const sum_q = this->zeros(team, tile.scratch_level, this->sum_size(s.d));

    std::int64_t const last = live > 0 ? head.last(row0 + live - 1) : 0;
    std::int64_t const begin = live > 0 ? Scratch::aligned(head.first(row0)) : 0;
    if (begin < last) {
      s.load_rows(team, Block<T const>{head.q.at(row0, 0), head.q.row_stride, head.q.col_stride},
                  Block<T const>{head.dout.at(row0, 0), head.dout.row_stride, head.dout.col_stride},
                  live);
      s.load_queries(team, head, this->delta, row0, live);
    }
    for (std::int64_t tile0 = begin; tile0 < last; tile0 += tile.cols) {
      std::int64_t const end = last - tile0 < tile.cols ? last : tile0 + tile.cols;
      ColumnRange const seen = seen_columns<false, Functors>(g, head, row0, live, tile0, end);
      if (seen.begin == seen.end) continue;
      std::int64_t const j0 = Scratch::aligned(seen.begin);
      int const cols = static_cast<int>(seen.end - j0);
      Block<T const> const k{head.k.at(j0, 0), head.k.row_stride, head.k.col_stride};
      Block<T const> const v{head.v.at(j0, 0), head.v.row_stride, head.v.col_stride};
      s.template differentiate<false>(team, g, this->functors, head, k, v, row0, live, j0, cols);
      s.add_columns(team, s.pair_gradients(), k, s.d, sum_q, live, cols);
    }
    team.team_barrier();
    std::int64_t const b = head.batch < 0 ? 0 : head.batch;
    Block<T> const out{static_cast<T*>(a.dq) + b * a.dq_stride[0] + head.head * a.dq_stride[1] +
                           (head.begin_q + row0) * a.dq_stride[2],
                       a.dq_stride[2], a.dq_stride[3]};
    store_sums(out, sum_q, Scratch::ld_sum(s.d), rows, s.d);
  }
};

/// Number of sums dout·out.
inline std::int64_t attention_backward_rows(abi::AttentionArgs const& g) {
  return query_groups(g) * g.seqlen_q;
}

/// Launches all of a call. `gradients(delta, first)` prepares the kernels of dq, dk and dv, which
/// may be refused, then calls `first`, then launches them.
template <class T, class Exec, class Functors, class Gradients>
void attention_backward_launches(Exec const& exec, abi::AttentionBackwardArgs const& a,
                                 Functors const& functors, void* workspace,
                                 Gradients const& gradients) {
  using Acc = AttentionAccumulator<T>;
  using Delta = AttentionBackwardDelta<Exec, T>;
  using TermBias = AttentionBackwardBias<Exec, T, Functors>;
  using TermSinks = AttentionBackwardSinks<Exec, T>;
  using Traits = typename Delta::Traits;
  constexpr char const* operation = "attention_backward";
  abi::AttentionArgs const& g = a.forward;
  Acc* const delta = static_cast<Acc*>(workspace);

  // All that can be refused is refused before the first launch.
  Delta const delta_kernel{a, delta};
  std::int64_t const delta_teams = query_tiles(g, Delta::rows_per_team) * query_groups(g);
  typename Delta::Policy const delta_policy(exec, checked_league(operation, delta_teams),
                                            Traits::team_size, Traits::vector_length);
  TermBias bias{a, functors, delta, {}};
  // Where a sum runs over rows and columns both, the tile sets its order: it must not depend on the
  // number of threads.
  choose_backward_tile(bias, exec, g.seqlen_q, g.seqlen_kv,
                       [](std::int64_t) { return std::numeric_limits<std::int64_t>::max(); });
  auto const bias_policy =
      backward_policy(bias, exec, a.d_bias == nullptr ? 0 : bias.teams(bias.tile.rows));

  gradients(delta, [&] {
    if (delta_teams > 0) launch(operation, "portable/delta", delta_policy, delta_kernel);
  });
  if (bias_policy.league_size() > 0) launch(operation, "portable/dbias", bias_policy, bias);
  if (a.d_sinks != nullptr && g.heads_q > 0)
    launch(operation, "portable/dsinks",
           typename TermSinks::Policy(exec, checked_league(operation, g.heads_q), Traits::team_size,
                                      Traits::vector_length),
           TermSinks{a, delta});
}

/// dq, dk and dv on a host, with or without dot products.
template <class T, bool Dots, class Exec, class Functors>
void attention_backward_on_host(Exec const& exec, abi::AttentionBackwardArgs const& a,
                                Functors const& functors, void* workspace) {
  using Keys = AttentionBackwardKeys<Exec, T, Functors, Dots>;
  using Queries = AttentionBackwardQueries<Exec, T, Functors, Dots>;
  constexpr char const* operation = "attention_backward";
  abi::AttentionArgs const& g = a.forward;
  attention_backward_launches<T>(
      exec, a, functors, workspace, [&](typename Keys::Acc const* delta, auto const& first) {
        Keys keys{{a, functors, delta, {}, 0}};
        auto const key_teams = [&](std::int64_t rows) {
          return packed_tiles(packed_keys(g), rows) * Keys::groups(g);
        };
        choose_backward_tile(keys, exec, g.seqlen_kv, g.seqlen_q, key_teams);
        auto const key_policy = backward_policy(keys, exec, key_teams(keys.tile.rows));

        Queries queries{{a, functors, delta, {}, 0}};
        auto const query_teams = [&](std::int64_t rows) {
          return query_tiles(g, rows) * query_groups(g);
        };
        choose_backward_tile(queries, exec, g.seqlen_q, g.seqlen_kv, query_teams);
        queries.tiles = query_tiles(g, queries.tile.rows);
        auto const query_policy = backward_policy(queries, exec, query_teams(queries.tile.rows));

        first();
        if (query_groups(g) > 0 && g.seqlen_q > 0)
          launch(operation, "portable/dq", query_policy, queries);
        if (Keys::groups(g) > 0 && g.seqlen_kv > 0)
          launch(operation, "portable/dkdv", key_policy, keys);
      });
}

/// The same on a device.
template <class T, class Exec, class Functors>
void attention_backward_on_device(Exec const& exec, abi::AttentionBackwardArgs const& a,
                                  Functors const& functors, void* workspace) {
  auto const start = [](char const* name, auto const& one) {
    if (one.policy.league_size() > 0) launch("attention_backward", name, one.policy, one.kernel);
  };
  attention_backward_launches<T>(
      exec, a, functors, workspace, [&](AttentionAccumulator<T> const* delta, auto const& first) {
        with_gradient_launch<GradientOf::query, T>(exec, a, functors, delta, [&](auto const& dq) {
          if constexpr (may_join_key_and_value<Exec, T, Functors>) {
            if (joins_key_and_value<Exec, T, Functors>(a.forward))
              return with_gradient_launch<GradientOf::key_and_value, T>(
                  exec, a, functors, delta, [&](auto const& dkdv) {
                    first();
                    start("portable/dq", dq);
                    start("portable/dkdv", dkdv);
                  });
          }
          with_gradient_launch<GradientOf::key, T>(exec, a, functors, delta, [&](auto const& dk) {
            with_gradient_launch<GradientOf::value, T>(exec, a, functors, delta,
                                                       [&](auto const& dv) {
                                                         first();
                                                         start("portable/dq", dq);
                                                         start("portable/dk", dk);
                                                         start("portable/dv", dv);
                                                       });
          });
        });
      });
}

/// By what the portable kernels multiply, by name; empty: by arithmetic that all have.
template <class Exec, class T, class Functors>
std::string attention_backward_instructions(abi::AttentionArgs const& g) {
  if constexpr (multiplies_in_fragments<Exec>)
    return FragmentsFor<Exec, GradientFactor<Exec, T>>::name;
  else
    return attention_instructions<Exec, T, Functors>(g);
}

/// Launches what the call asks for. Asynchronous on `exec`. `delta` has attention_backward_rows()
/// entries.
template <class T, class Exec, class Functors>
void attention_backward_portable(Exec const& exec, abi::AttentionBackwardArgs const& a,
                                 Functors const& functors, void* workspace) {
  if constexpr (multiplies_in_fragments<Exec>) {
    attention_backward_on_device<T>(exec, a, functors, workspace);
  } else {
    if constexpr (uses_attention_dot<Exec, T, Functors>) {
      if (takes_attention_dot(a.forward))
        return attention_backward_on_host<T, true>(exec, a, functors, workspace);
    }
    attention_backward_on_host<T, false>(exec, a, functors, workspace);
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
