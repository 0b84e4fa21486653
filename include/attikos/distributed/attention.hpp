// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// distributed::attention(): attention over sequences whose positions are spread over the ranks of
/// a communicator.
#pragma once

#include <attikos/distributed/context_arguments.hpp>
#include <attikos/distributed/context_attention.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// \param lse a tensor or Absent
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out, class Lse,
          class... Extras>
void context_attention(Exec const& exec, distributed::Communicator& comm,
                       distributed::ContextShards const& shards, Q const& q, K const& k, V const& v,
                       Out const& out, Lse const& lse, distributed::AttentionOptions const& options,
                       Extras const&... extras) {
  using T = element_t<Q>;
  static_assert(
      std::is_same_v<T, element_t<Out>> && sizeof(T) >= 2,
      "attikos::distributed::attention: q, k, v and out are all double, float, float16 or "
      "bfloat16");
  check_writable(out);
  if constexpr (is_present<Lse>) check_writable(lse);
  using Call = ContextCall<T, Exec>;
  constexpr char const* operation = Call::operation;
  std::optional<Call> call;
  agree(exec, comm, DistributedOperation::attention, [&](std::vector<CommonArgument>& common) {
    auto const sinks = find_extra<Sinks>(extras...);
    auto const given = find_extra<Lengths>(extras...);
    AttentionTensors const t = [&] {
      if constexpr (is_present<decltype(sinks)>)
        return attention_tensors<Exec>(q, k, v, out, lse, sinks);
      else
        return attention_tensors<Exec>(q, k, v, out, lse);
    }();
    ContextProblem unchecked;
    unchecked.options = options;
    attention_forward_arguments(operation, t, unchecked.product_options(unchecked.visible()));
    ContextProblem const problem = context_problem(operation, comm, shards, t, options, given);
    distributed::Strategy const strategy =
        distributed::plan_context(context_extents(problem), shards.q, shards.kv, options,
                                  comm.machine())
            .strategy;
    common_context_arguments(common, problem, shards, strategy, comm.machine().ranks_per_node);
    call.emplace(exec, comm, shards, problem, t);
    call->prepare(strategy);
  });
  call->run();
}

}  // namespace detail

namespace distributed {

/// Scaled dot-product attention of sequences that no rank holds whole: what attikos::attention()
/// computes of all positions, of which each rank brings its rows and gets its rows.
///
/// \param exec    execution space instance; kernels are asynchronous on it. Over MPI the call
/// fences
///                `exec` before memory is sent, nothing else, and returns when messages have come
///                and the last kernels are in the queue; over NCCL it fences nothing, and returns
///                when messages, too, are in queues
/// \param comm    communicator; all ranks make the same calls in the same order
/// \param shards  which rank holds which positions: one Shards, or ContextShards(q, kv)
/// \param q       [batch, heads_q, rows, d] with the rows of this rank, or [heads_q, rows, d];
///                packed sequences: batch 1
/// \param k       [batch, heads_kv, rows_kv, d]; heads_q is a multiple of heads_kv
/// \param v       as k with dv in place of d
/// \param out     as q with dv in place of d
/// \param lse     as q without d; may be left out
/// \param options see AttentionOptions; the same on all ranks
/// \param extras  lengths(q, kv): int32 in memory of the host, the numbers of positions of each
///                entry of the batch that count; sinks(view): [heads_q], of all heads on every rank
///
/// Everything means what it means for attention(): positions, offsets, causal mask, window and
/// lengths are those of whole sequences. Rows past a length, and rows that see no key, get out 0
/// and lse −∞; padding is never read.
///
/// Strategies: `ring` sends blocks of keys and values around, the next one while this one is worked
/// on, and needs memory for two blocks of the largest rank. With a causal mask Placement::zigzag
/// gives all ranks the same work. `all_gather` gives every rank all keys and values. `all_to_all`
/// deals out heads instead of positions, key heads to as many ranks as their query heads are on.
/// `two_level` does so among the ranks of a node, comm.machine().ranks_per_node of them, and sends
/// blocks of a node's rows around between nodes; it wants several full nodes of several ranks.
/// `automatic` takes what plan_context() expects to be done first with comm.machine(). Over MPI
/// memory of devices goes through pinned memory of the host unless the communicator was told that
/// MPI is aware of devices.
///
/// Types: q, k, v and out double, float, float16 or bfloat16, the same on all ranks; scores, sums
/// and partial results in float (double for double), joined as merge_states() joins them and
/// rounded to the type of out once. Determinism: the same bits on every run with the same ranks,
/// whatever the order in which messages come; `rank_invariant`: whatever the number of ranks, too.
///
/// All ranks throw the same ShapeError, DtypeError, StrideError, Error, UnsupportedError or
/// ResourceError, naming a rank and its argument, if one of them has arguments that do not fit,
/// lacks memory, or differs from the others; before anything is sent or written. A message that
/// fails is a CommunicationError; outputs are undefined then.
///
/// Source: H. Liu et al., "Ring Attention", arXiv:2310.01889; S. Jacobs et al., "DeepSpeed
/// Ulysses", arXiv:2309.14509; W. Brandon et al., "Striped Attention", arXiv:2311.09431, for the
/// balance.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          TensorLike Lse, ::attikos::detail::ContextExtra... Extras>
void attention(Exec const& exec, Communicator& comm, ContextShards const& shards, Q const& q,
               K const& k, V const& v, Out const& out, Lse const& lse,
               AttentionOptions const& options = {}, Extras const&... extras) {
  ::attikos::detail::context_attention(exec, comm, shards, q, k, v, out, lse, options, extras...);
}

/// The same without the log-sum-exp.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          ::attikos::detail::ContextExtra... Extras>
void attention(Exec const& exec, Communicator& comm, ContextShards const& shards, Q const& q,
               K const& k, V const& v, Out const& out, AttentionOptions const& options = {},
               Extras const&... extras) {
  ::attikos::detail::context_attention(exec, comm, shards, q, k, v, out,
                                       ::attikos::detail::Absent{}, options, extras...);
}

/// Which strategy attention() takes for tensors with these shards, and what each is expected to
/// take. Asks no other rank.
template <TensorLike Q, TensorLike K, TensorLike V>
ContextPlan explain(op::Attention, Communicator const& comm, ContextShards const& shards,
                    Q const& q, K const& k, V const& v, AttentionOptions const& options = {}) {
  using ::attikos::detail::any_tensor;
  auto const q4 = any_tensor(q).with_rank(4), k4 = any_tensor(k).with_rank(4),
             v4 = any_tensor(v).with_rank(4);
  std::int64_t const size = dtype_size(q4.type);
  return plan_context({q4.extent[0], q4.extent[1], k4.extent[1], q4.extent[3], v4.extent[3], size,
                       size == 8 ? 8 : 4},
                      shards.q, shards.kv, options, comm.machine());
}

}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
