// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// distributed::decode(): few queries, which every rank has, over a cache that is spread over the
/// ranks.
#pragma once

#include <attikos/distributed/context_arguments.hpp>
#include <attikos/distributed/context_transfers.hpp>
#include <optional>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// A call of distributed::decode(): states over the parts of the cache, gathered and merged.
template <class T, class Exec>
class SpreadDecode {
 public:
  using Acc = AttentionAccumulator<T>;
  static constexpr char const* operation = "distributed::decode";

  SpreadDecode(Exec const& exec, distributed::Communicator& comm,
               distributed::ContextShards const& shards, ContextProblem const& problem,
               AttentionTensors const& t)
      : exec_(exec),
        comm_(comm),
        shards_(shards),
        problem_(problem),
        own_part_(problem),
        k_(t.k.with_rank(4)),
        v_(t.v.with_rank(4)),
        out_(t.out.with_rank(4)),
        lse_(t.lse.given() ? t.lse.with_rank(3) : AnyTensor{}) {
    own_part_.sinks = {};  // they join when states are merged
    parts_.emplace(operation, exec, comm, own_part_, shards.q, shards.kv, 0,
                   std::vector<HeadRun>{{0, problem.heads_q, 0, problem.heads_kv}});
    parts_->set_queries(t.q.with_rank(4));
  }

  void prepare() {
    message_rows(operation, rows() * (problem_.head_dim_v + 1) * comm_.size());
    own_ = MessageBuffer<Exec>(operation, comm_, 0, state_bytes());
    all_ = MessageBuffer<Exec>(operation, comm_, 1, state_bytes() * comm_.size());
    parts_->begin(true);
    add();
    parts_->allocate();
    parts_->begin(false);
  }

  void run() {
    std::int64_t const dv = problem_.head_dim_v, size = rows() * (dv + 1);
    auto* const own = static_cast<Acc*>(own_.data);
    add();
    parts_->template finish<Acc>(state(own), as_lse(state_lse(own)));
    own_.to_wire(exec_, state_bytes());
    RowParts parts;
    for (int r = 0; r < comm_.size(); ++r) parts.add(1);
    comm_.transport().gather_rows(QueueRef(exec_),
                                  "attikos::distributed::decode: the state is there", state_bytes(),
                                  own_.wire, all_.wire, parts);
    all_.from_wire(exec_, state_bytes() * comm_.size());
    auto* const all = static_cast<Acc*>(all_.data);
    SplitStates<Acc, Acc> states{};
    states.out = ref_of<Acc const, 5>(state(all));
    states.lse = ref_of<Acc const, 4>(as_lse(state_lse(all)));
    states.out.extent[0] = states.lse.extent[0] = comm_.size();
    states.out.stride[0] = states.lse.stride[0] = size;
    TensorRef<Acc, 3> lse{};
    if (lse_.given()) lse = ref_of<Acc, 3>(lse_);
    launch_rows(exec_, operation,
                MergeStatesRow<Acc, SplitStates<Acc, Acc>, T, Acc>{
                    states,
                    ref_of<T, 4>(out_),
                    lse,
                    {problem_.sinks.type, problem_.sinks.data, problem_.sinks.stride[0]}},
                rows(), dv);
  }

 private:
  std::int64_t rows() const { return problem_.batch * problem_.heads_q * shards_.q.total(); }
  std::int64_t state_bytes() const {
    return rows() * (problem_.head_dim_v + 1) * static_cast<std::int64_t>(sizeof(Acc));
  }
  AnyTensor state(Acc* data) const {
    return dense_rows(data, dtype_of<Acc>, problem_.batch, problem_.heads_q, shards_.q.total(),
                      problem_.head_dim_v, problem_.head_dim_v);
  }
  AnyTensor state_lse(Acc* data) const {
    return dense_rows(data + rows() * problem_.head_dim_v, dtype_of<Acc>, problem_.batch,
                      problem_.heads_q, shards_.q.total(), 1, 1);
  }
  void add() {
    parts_->add_block(shards_.kv.pieces(comm_.rank()), k_, v_, [] {});
  }

  Exec const& exec_;
  distributed::Communicator& comm_;
  distributed::ContextShards const& shards_;
  ContextProblem problem_, own_part_;
  AnyTensor k_, v_, out_, lse_;
  std::optional<ContextParts<T, Exec>> parts_;
  MessageBuffer<Exec> own_, all_;
};

/// \param lse a tensor or Absent
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out, class Lse,
          class... Extras>
void spread_decode(Exec const& exec, distributed::Communicator& comm,
                   distributed::Shards const& shards, Q const& q, K const& k, V const& v,
                   Out const& out, Lse const& lse, distributed::AttentionOptions const& options,
                   Extras const&... extras) {
  using T = element_t<Q>;
  static_assert(std::is_same_v<T, element_t<Out>> && sizeof(T) >= 2,
                "attikos::distributed::decode: q, k, v and out are all double, float, float16 or "
                "bfloat16");
  static_assert(rank_of<Q> == 4,
                "attikos::distributed::decode: q is [batch, heads_q, seqlen_q, d]");
  check_writable(out);
  if constexpr (is_present<Lse>) check_writable(lse);
  using Call = SpreadDecode<T, Exec>;
  constexpr char const* operation = Call::operation;
  std::optional<Call> call;
  std::optional<distributed::ContextShards> both;
  agree(exec, comm, DistributedOperation::decode, [&](std::vector<CommonArgument>& common) {
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
    if (shards.sequences() != 1)
      raise<UnsupportedError>(operation, ": the cache has ", shards.sequences(),
                              " packed sequences; expected one for each entry of the batch");
    // Every rank has all queries.
    std::vector<std::int64_t> const rows{t.q.extent[2]};
    both.emplace(distributed::Shards::uneven(rows), shards);
    ContextProblem const problem = context_problem(operation, comm, *both, t, options, given, true);
    if (problem.invariant() || options.strategy != distributed::Strategy::automatic)
      raise<UnsupportedError>(operation,
                              ": there is one strategy, which repeats its bits from run to run; "
                              "expected strategy automatic and determinism run_to_run");
    common_context_arguments(common, problem, *both, options.strategy, 0);
    call.emplace(exec, comm, *both, problem, t);
    call->prepare();
  });
  call->run();
}

}  // namespace detail

namespace distributed {

/// Attention of a few queries, which every rank has, over a cache of keys and values whose
/// positions are spread over the ranks: what attikos::decode() computes over the whole cache.
///
/// \param exec    execution space instance; over MPI it is fenced
///                once, before states are sent
/// \param comm    communicator
/// \param shards  which rank holds which positions of the cache
/// \param q       [batch, heads_q, seqlen_q, d], the same on all ranks
/// \param k       [batch, heads_kv, rows, d] with the rows of this rank
/// \param v       as k with dv in place of d
/// \param out     as q with dv in place of d; every rank gets all of it, the same bits
/// \param lse     as q without d; may be left out
/// \param options those of attention(); `strategy` automatic, `determinism` run_to_run
/// \param extras  lengths(none, kv), lengths(q, kv): int32 in memory of the host, positions in use
/// of
///                each entry of the batch; sinks(view)
///
/// Each rank attends to its part of the cache, by decode()'s kernels where those pay off; outputs
/// and log-sum-exps go to all ranks (an all-gather) and are merged in the order of ranks, with the
/// sinks: batch·heads_q·seqlen_q·(dv + 1) accumulators from each rank, whatever the length of the
/// cache. Types and errors are those of attention().
///
/// Source: T. Dao et al., "Flash-Decoding for long-context inference", 2023.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          TensorLike Lse, ::attikos::detail::ContextExtra... Extras>
void decode(Exec const& exec, Communicator& comm, Shards const& shards, Q const& q, K const& k,
            V const& v, Out const& out, Lse const& lse, AttentionOptions const& options = {},
            Extras const&... extras) {
  ::attikos::detail::spread_decode(exec, comm, shards, q, k, v, out, lse, options, extras...);
}

/// The same without the log-sum-exp.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          ::attikos::detail::ContextExtra... Extras>
void decode(Exec const& exec, Communicator& comm, Shards const& shards, Q const& q, K const& k,
            V const& v, Out const& out, AttentionOptions const& options = {},
            Extras const&... extras) {
  ::attikos::detail::spread_decode(exec, comm, shards, q, k, v, out, ::attikos::detail::Absent{},
                                   options, extras...);
}

}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
