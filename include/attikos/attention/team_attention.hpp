// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// team_attention(): attention of one head inside a kernel of the caller's, done by one team.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/attention/team_attention_problem.hpp>
#include <attikos/core/concepts.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of team_attention(); as in AttentionOptions.
struct TeamAttentionOptions {
  double softmax_scale = 0;  ///< factor of q·k; 0 means 1/√d
  bool causal = false;       ///< key j is visible to query i only if j ≤ i + offset
  CausalAlignment causal_alignment =
      CausalAlignment::bottom_right;  ///< offset seqlen_kv − seqlen_q, or 0
  std::int64_t window_left = -1;      ///< keys before i + offset that query i sees; −1: all
  std::int64_t window_right = -1;     ///< keys after i + offset that query i sees; −1: all
  double softcap = 0;                 ///< c > 0: scores become c·tanh(score/c); 0: none
};

namespace detail {

/// Element types of team_attention() as a value, which device functions may ask for.
template <class T>
inline constexpr bool team_attention_takes =
    std::is_same_v<T, double> || std::is_same_v<T, float> || std::is_same_v<T, float16> ||
    std::is_same_v<T, bfloat16>;

template <KokkosView View>
KOKKOS_INLINE_FUNCTION auto team_attention_block(View const& view) {
  using Storage = std::remove_pointer_t<decltype(view.data())>;
  using Element =
      std::conditional_t<std::is_const_v<Storage>, element_t<View> const, element_t<View>>;
  return Block<Element>{reinterpret_cast<Element*>(view.data()),
                        static_cast<std::int64_t>(view.stride(0)),
                        static_cast<std::int64_t>(view.stride(1))};
}

/// The problem that Views and options describe.
template <class T, class Q, class K, class V, class Out, class Lse>
KOKKOS_INLINE_FUNCTION auto team_attention_problem(Q const& q, K const& k, V const& v,
                                                   Out const& out, Lse const& lse,
                                                   TeamAttentionOptions const& options) {
  using Problem = TeamAttentionProblem<T, T>;
  using Acc = typename Problem::Acc;
  Problem x{};
  x.rows = static_cast<int>(q.extent(0));
  x.d = static_cast<int>(q.extent(1));
  x.dv = static_cast<int>(v.extent(1));
  x.len_q = x.rows;
  x.len_kv = static_cast<std::int64_t>(k.extent(0));
  auto const read = [](auto const& block) {
    return Block<T const>{block.data, block.row_stride, block.col_stride};
  };
  x.q = read(team_attention_block(q));
  x.k = read(team_attention_block(k));
  x.v = read(team_attention_block(v));
  x.out = team_attention_block(out);
  if constexpr (is_present<Lse>) {
    x.lse = lse.data();
    x.lse_stride = static_cast<std::int64_t>(lse.stride(0));
  }
  // In double, as attention() rounds it.
  double const scale = options.softmax_scale != 0
                           ? options.softmax_scale
                           : 1 / Kokkos::sqrt(static_cast<double>(x.d > 0 ? x.d : 1));
  x.scale = static_cast<Acc>(scale);
  x.value_scale = 1;
  x.softcap = static_cast<Acc>(options.softcap);
  x.offset = options.causal_alignment == CausalAlignment::bottom_right ? x.len_kv - x.len_q : 0;
  std::int64_t const everything = x.len_q + x.len_kv + 1;
  std::int64_t const left = options.window_left, right = options.window_right;
  x.causal_limit = right < 0 || right > everything ? everything : right + 1;
  if (options.causal && x.causal_limit > 1) x.causal_limit = 1;
  x.window_left = left < 0 || left > everything ? everything : left;
  return x;
}

template <class Team, class Q, class K, class V, class Out, class Lse>
KOKKOS_INLINE_FUNCTION void team_attention(Team const& team, Q const& q, K const& k, V const& v,
                                           Out const& out, Lse const& lse,
                                           TeamAttentionOptions const& options) {
  static_assert(rank_of<Q> == 2 && rank_of<K> == 2 && rank_of<V> == 2 && rank_of<Out> == 2,
                "attikos::team_attention: q, k, v and out have rank 2");
  using T = element_t<Q>;
  static_assert(std::is_same_v<T, element_t<K>> && std::is_same_v<T, element_t<V>> &&
                    std::is_same_v<T, element_t<Out>> && team_attention_takes<T>,
                "attikos::team_attention: q, k, v and out are all double, float, float16 or "
                "bfloat16");
  auto const problem = team_attention_problem<T>(q, k, v, out, lse, options);
  using Block = TeamAttentionBlock;
  KOKKOS_IF_ON_HOST((int const blocks = (problem.rows + Block::host_rows - 1) / Block::host_rows;
                     Kokkos::parallel_for(Kokkos::TeamThreadRange(team, blocks), [&](int block) {
                       int const row = block * Block::host_rows;
                       int const left = problem.rows - row;
                       host::team_attention_rows(problem, row,
                                                 left < Block::host_rows ? left : Block::host_rows);
                     });))
  KOKKOS_IF_ON_DEVICE((team_attention_pieces(team, problem);))
  team.team_barrier();
}

}  // namespace detail

/// Attention of one small head by the threads of one team, for kernels of the caller's own:
/// out = softmax(s)·v over the keys, where s = scale·q·kᵀ, then softcap and masks.
///
/// \param team     member of a Kokkos::TeamPolicy; all its threads make the call, with equal
///                 arguments, outside of nested parallel loops
/// \param q, k, v  rank-2 Views (subviews, scratch memory) of [seqlen_q, d], [seqlen_kv, d],
///                 [seqlen_kv, dv]
/// \param out      [seqlen_q, dv]; overlaps none of them
/// \param lse      [seqlen_q], float (double for double): natural logarithm of Σ e^s over the keys
///                 that a query sees
///
/// Any strides; extents below 2³¹, and seqlen_q·⌈dv/16⌉ too, which must fit together: inside a
/// kernel nothing is checked. Any extent may be 0.
///
/// off = seqlen_kv − seqlen_q (0 with top_left). Query i sees key j if i + off − window_left ≤ j ≤
/// i + off + window_right, and j ≤ i + off where causal. A pair that is not seen, or whose score is
/// −∞, adds nothing, not even a NaN of its value. A row that sees no key gives out 0 and lse −∞.
///
/// Types: all four double, float, float16 or bfloat16; scores, weights and sums in float (double
/// for double). Online softmax: no scratch memory is needed, whatever the lengths. A host thread
/// works on 32 rows at a time (and has some 60 KiB of them on its stack, 120 for double), so one
/// thread to a team is best there; a device's threads and lanes share pieces of 16 columns of a
/// row and compute the scores of each anew, as do hosts for each 128 columns. Meant for some tens
/// of queries and keys; attention() tiles longer ones. Ends with a barrier of the team, so that
/// all threads see out; what others of the team wrote to q, k, v needs one before.
///
/// Determinism: the same bits whatever the team's size. Source: T. Dao et al., "FlashAttention",
/// arXiv:2205.14135.
template <class Team, KokkosView Q, KokkosView K, KokkosView V, KokkosView Out, KokkosView Lse>
KOKKOS_INLINE_FUNCTION void team_attention(Team const& team, Q const& q, K const& k, V const& v,
                                           Out const& out, Lse const& lse,
                                           TeamAttentionOptions const& options = {}) {
  static_assert(rank_of<Lse> == 1, "attikos::team_attention: lse has rank 1");
  static_assert(std::is_same_v<element_t<Lse>, detail::AttentionAccumulator<element_t<Q>>>,
                "attikos::team_attention: lse is double for double inputs and float for the "
                "others");
  detail::team_attention(team, q, k, v, out, lse, options);
}

/// The same without the log-sum-exp.
template <class Team, KokkosView Q, KokkosView K, KokkosView V, KokkosView Out>
KOKKOS_INLINE_FUNCTION void team_attention(Team const& team, Q const& q, K const& k, V const& v,
                                           Out const& out,
                                           TeamAttentionOptions const& options = {}) {
  detail::team_attention(team, q, k, v, out, detail::Absent{}, options);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
