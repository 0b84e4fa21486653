// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Attention over sequences so short that a batch of them is bound by what happens around the
/// sums: on a host, several heads to a team, each from beginning to end by one thread.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/abi/verdict.hpp>
#include <attikos/attention/attention_arguments.hpp>
#include <attikos/attention/attention_dot.hpp>
#include <attikos/attention/team_attention_problem.hpp>
#include <attikos/core/dispatch/dispatch.hpp>
#include <attikos/core/explain.hpp>
#include <attikos/core/launch.hpp>
#include <attikos/core/run_here.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// The longest sequence and the largest head_dim that count as small. Measured: at 48 positions the
/// flash kernel is as fast.
inline constexpr int small_attention_seqlen = 32;
inline constexpr int small_attention_head_dim = 128;
/// The same where flash attention has a host's dot products (attention_dot.hpp).
inline constexpr int small_attention_seqlen_of_dot = 16;

/// The head as team_attention() takes it.
template <class T, class Out>
KOKKOS_INLINE_FUNCTION TeamAttentionProblem<T, Out> small_attention_problem(
    abi::AttentionArgs const& g, std::int64_t group) {
  using Acc = AttentionAccumulator<T>;
  AttentionHead<T, Out> const head(g, {group / g.heads_q, 0, g.seqlen_q}, group % g.heads_q);
  TeamAttentionProblem<T, Out> x{};
  x.rows = static_cast<int>(g.seqlen_q);
  x.d = static_cast<int>(g.head_dim);
  x.dv = static_cast<int>(g.head_dim_v);
  x.q = head.q;
  x.k = head.k;
  x.v = head.v;
  x.out = head.out;
  if (g.lse != nullptr)
    x.lse = static_cast<Acc*>(g.lse) + head.batch * g.lse_stride[0] + head.head * g.lse_stride[1];
  x.lse_stride = g.lse_stride[2];
  x.scale = head.scale;
  x.value_scale = head.value_scale;
  x.softcap = static_cast<Acc>(g.softcap);
  static_cast<VisibleKeys&>(x) = static_cast<VisibleKeys const&>(head);
  return x;
}

/// A dispatch candidate on host spaces. What it accepts depends on the problem alone, so that the
/// same call gives the same bits whatever the number of threads.
template <class Exec, class T, class Out>
struct AttentionSmall {
  static constexpr char const* name = "portable/small";
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
  using Team = typename Policy::member_type;

  abi::AttentionArgs g;
  int per_team;

  static abi::Verdict accepts(abi::AttentionArgs const& g, Exec const&) {
    using Option = abi::AttentionOption;
    constexpr abi::AttentionOptionSet takes(
        Option::lse, Option::softcap, Option::causal, Option::causal_alignment, Option::window_left,
        Option::window_right, Option::lengths_q, Option::lengths_kv, Option::descale_q,
        Option::descale_k, Option::descale_v, Option::attention_chunk);
    if (g.seqlen_q > small_attention_seqlen) return abi::refused("seqlen_q is above 32");
    if (g.seqlen_kv > small_attention_seqlen) return abi::refused("seqlen_kv is above 32");
    if constexpr (uses_attention_dot<Exec, T, NoFunctors>) {
      if (std::max(g.seqlen_q, g.seqlen_kv) > small_attention_seqlen_of_dot &&
          takes_attention_dot(g))
        return abi::refused("a sequence of bfloat16 is above 16");
    }
    if (std::max(g.head_dim, g.head_dim_v) > small_attention_head_dim)
      return abi::refused("head_dim is above 128");
    char const* const reason = abi::beyond(g, takes);
    return reason == nullptr ? abi::accepted() : abi::refused(reason);
  }

  /// With ten for each pair's exponential and what is around it.
  static double operations(abi::AttentionArgs const& g) {
    auto const number = [](std::int64_t n) { return static_cast<double>(n); };
    return number(query_groups(g)) * number(g.seqlen_q) *
           (number(g.seqlen_kv) * (2 * number(g.head_dim + g.head_dim_v) + 10) +
            10 * number(g.head_dim_v));
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    KOKKOS_IF_ON_HOST((std::int64_t const groups = query_groups(g);
                       std::int64_t const first = std::int64_t{team.league_rank()} * per_team;
                       std::int64_t const end = std::min(first + per_team, groups);
                       for (std::int64_t group = first; group < end; ++group)
                           host::team_attention_all(small_attention_problem<T, Out>(g, group));))
    (void)team;
  }

  static void run(abi::AttentionArgs const& args, Exec const& exec) {
    std::int64_t const groups = query_groups(args);
    if (groups == 0 || args.seqlen_q == 0) return;
    if constexpr (runs_at_once<Exec>) {
      if (operations(args) <= few_operations)
        return run_here("attention", name, exec, [&] {
          for (std::int64_t group = 0; group < groups; ++group)
            host::team_attention_all(small_attention_problem<T, Out>(args, group));
        });
    }
    std::int64_t const share = groups / (8 * concurrency_of(exec));
    AttentionSmall const kernel{args, static_cast<int>(std::clamp<std::int64_t>(share, 1, 64))};
    Policy const policy(
        exec, checked_league("attention", (groups + kernel.per_team - 1) / kernel.per_team), 1, 1);
    launch("attention", name, policy, kernel);
  }
};

template <class Exec, class T, class Out>
requires(is_host_space<Exec>&& attention_types_supported<T, Out>()) struct Specializations<
    op::Attention, Exec, T, Out> {
  using kernels = KernelList<AttentionSmall<Exec, T, Out>>;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
