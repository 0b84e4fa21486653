// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// distributed::attention_backward(): gradients of distributed::attention().
#pragma once

#include <attikos/distributed/context_arguments.hpp>
#include <attikos/distributed/context_gradients.hpp>
#include <optional>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
concept ContextGradientExtra = ContextExtra<T> || is_any_wrapper<T, DSinks>;

template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          TensorLike Lse, TensorLike Dout, TensorLike Dq, TensorLike Dk, TensorLike Dv,
          class... Extras>
void context_attention_backward(Exec const& exec, distributed::Communicator& comm,
                                distributed::ContextShards const& shards, Q const& q, K const& k,
                                V const& v, Out const& out, Lse const& lse, Dout const& dout,
                                Dq const& dq, Dk const& dk, Dv const& dv,
                                distributed::AttentionOptions const& options,
                                Extras const&... extras) {
  using Call = GradientCall<element_t<Q>, Exec>;
  constexpr char const* operation = Call::operation;
  std::optional<Call> call;
  agree(
      exec, comm, DistributedOperation::attention_backward,
      [&](std::vector<CommonArgument>& common) {
        auto const sinks = find_extra<Sinks>(extras...);
        auto const sink_gradients = find_extra<DSinks>(extras...);
        auto const given = find_extra<Lengths>(extras...);
        AttentionBackwardTensors const t = [&] {
          auto const tensors = [&](auto const&... some) {
            return attention_backward_tensors<Exec>(q, k, v, out, lse, dout, dq, dk, dv, some...);
          };
          if constexpr (is_present<decltype(sinks)> && is_present<decltype(sink_gradients)>)
            return tensors(sinks, sink_gradients);
          else if constexpr (is_present<decltype(sinks)>)
            return tensors(sinks);
          else
            return tensors();
        }();
        ContextProblem unchecked;
        unchecked.options = options;
        attention_backward_arguments(operation, t, unchecked.product_options(unchecked.visible()));
        ContextProblem const problem =
            context_problem(operation, comm, shards, t.forward, options, given);
        if (problem.invariant())
          raise<UnsupportedError>(operation,
                                  ": gradients depend on the number of ranks by the order of their "
                                  "sums; expected determinism run_to_run");
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

/// Gradients of distributed::attention(): what attikos::attention_backward() computes of all
/// positions, of which each rank brings its rows and gets its rows.
///
/// \param exec, comm, shards, q, k, v as for attention(); out, lse what it wrote for the same
/// options
///                and extras
/// \param dout    as out
/// \param dq, dk, dv as q, k and v
/// \param options those of attention(), but `kernel`, which names kernels of attention_backward(),
/// and
///                `determinism`, where rank_invariant is refused
/// \param extras  lengths(q, kv), sinks(view), as for attention(); d_sinks(view): [heads_q], the
///                gradient of sinks(), of all positions on every rank
///
/// Strategies: with `ring` the sums of a block's gradients travel one step behind the block and
/// come home with the last. `all_gather` gives every rank all keys and values, and each what all
/// have for its rows. `all_to_all` deals out heads, `two_level` among the ranks of a node. Sums in
/// float (double for double), in an order that follows from ranks and shards alone: the same bits
/// on every run. On a device 16-bit gradients of products are rounded before they are added.
///
/// Types, asynchrony, memory and errors are those of attention(); a rank that fails after the first
/// message makes all throw at the end of the call.
///
/// Source: H. Liu et al., "Ring Attention", arXiv:2310.01889.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          TensorLike Lse, TensorLike Dout, TensorLike Dq, TensorLike Dk, TensorLike Dv,
          ::attikos::detail::ContextGradientExtra... Extras>
void attention_backward(Exec const& exec, Communicator& comm, ContextShards const& shards,
                        Q const& q, K const& k, V const& v, Out const& out, Lse const& lse,
                        Dout const& dout, Dq const& dq, Dk const& dk, Dv const& dv,
                        AttentionOptions const& options = {}, Extras const&... extras) {
  ::attikos::detail::context_attention_backward(exec, comm, shards, q, k, v, out, lse, dout, dq, dk,
                                                dv, options, extras...);
}

}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
