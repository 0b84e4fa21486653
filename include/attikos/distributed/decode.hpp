// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// distributed::decode(): few queries, which every rank has, over a cache that is spread over the
/// ranks.
#pragma once

#include <attikos/decode/decode.hpp>
#include <attikos/distributed/context_arguments.hpp>
#include <attikos/distributed/context_transfers.hpp>
#include <optional>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
concept JoinedDecodeExtra = is_any_wrapper<T, Lengths, Paged, Sinks, Descale>;

/// States of the same queries over parts of a cache, one of each rank: outputs and log-sum-exps go
/// to all ranks, which merge them in the order of ranks.
template <class T, class Exec>
class SpreadStates {
 public:
  using Acc = AttentionAccumulator<T>;
  static constexpr char const* operation = "distributed::decode";

  SpreadStates(Exec const& exec, distributed::Communicator& comm, std::int64_t batch,
               std::int64_t heads, std::int64_t queries, std::int64_t features)
      : exec_(exec),
        comm_(comm),
        batch_(batch),
        heads_(heads),
        queries_(queries),
        features_(features) {}

  void prepare() {
    message_rows(operation, rows() * (features_ + 1) * comm_.size());
    own_ = MessageBuffer<Exec>(operation, comm_, 0, bytes());
    all_ = MessageBuffer<Exec>(operation, comm_, 1, bytes() * comm_.size());
  }

  /// Where this rank's state is to be written.
  AnyTensor out() const { return out_at(own_.data); }
  AnyTensor lse() const { return as_lse(lse_at(own_.data)); }

  /// Sends it, and writes what all have come to.
  void merge(AnyTensor const& out, AnyTensor const& lse, AnyTensor const& sinks) {
    std::int64_t const size = rows() * (features_ + 1);
    own_.to_wire(exec_, bytes());
    comm_.transport().gather_rows(QueueRef(exec_),
                                  "attikos::distributed::decode: the state is there", bytes(),
                                  own_.wire, all_.wire, RowParts::one_of_each(comm_.size()));
    all_.from_wire(exec_, bytes() * comm_.size());
    SplitStates<Acc, Acc> states{};
    states.out = ref_of<Acc const, 5>(out_at(all_.data));
    states.lse = ref_of<Acc const, 4>(as_lse(lse_at(all_.data)));
    states.out.extent[0] = states.lse.extent[0] = comm_.size();
    states.out.stride[0] = states.lse.stride[0] = size;
    TensorRef<Acc, 3> lse_ref{};
    if (lse.given()) lse_ref = ref_of<Acc, 3>(lse);
    launch_rows(exec_, operation,
                MergeStatesRow<Acc, SplitStates<Acc, Acc>, T, Acc>{
                    states, ref_of<T, 4>(out), lse_ref, {sinks.type, sinks.data, sinks.stride[0]}},
                rows(), features_);
  }

 private:
  std::int64_t rows() const { return batch_ * heads_ * queries_; }
  std::int64_t bytes() const {
    return rows() * (features_ + 1) * static_cast<std::int64_t>(sizeof(Acc));
  }
  AnyTensor out_at(void* data) const {
    return dense_rows(data, dtype_of<Acc>, batch_, heads_, queries_, features_, features_);
  }
  AnyTensor lse_at(void* data) const {
    return dense_rows(static_cast<Acc*>(data) + rows() * features_, dtype_of<Acc>, batch_, heads_,
                      queries_, 1, 1);
  }

  Exec const& exec_;
  distributed::Communicator& comm_;
  std::int64_t batch_, heads_, queries_, features_;
  MessageBuffer<Exec> own_, all_;
};

/// A call of distributed::decode() over positions that shards deal out.
template <class T, class Exec>
class SpreadDecode {
 public:
  static constexpr char const* operation = "distributed::decode";

  SpreadDecode(Exec const& exec, distributed::Communicator& comm,
               distributed::ContextShards const& shards, ContextProblem const& problem,
               AttentionTensors const& t)
      : comm_(comm),
        shards_(shards),
        problem_(problem),
        own_part_(problem),
        k_(t.k.with_rank(4)),
        v_(t.v.with_rank(4)),
        out_(t.out.with_rank(4)),
        lse_(t.lse.given() ? t.lse.with_rank(3) : AnyTensor{}),
        states_(exec, comm, problem.batch, problem.heads_q, shards.q.total(), problem.head_dim_v) {
    own_part_.sinks = {};  // they join when states are merged
    parts_.emplace(operation, exec, comm, own_part_, shards.q, shards.kv, 0,
                   std::vector<HeadRun>{{0, problem.heads_q, 0, problem.heads_kv}});
    parts_->set_queries(t.q.with_rank(4));
  }

  void prepare() {
    states_.prepare();
    parts_->begin(true);
    add();
    parts_->allocate();
    parts_->begin(false);
  }

  void run() {
    add();
    parts_->template finish<typename SpreadStates<T, Exec>::Acc>(states_.out(), states_.lse());
    states_.merge(out_, lse_, problem_.sinks);
  }

 private:
  void add() {
    parts_->add_block(shards_.kv.pieces(comm_.rank()), k_, v_, [] {});
  }

  distributed::Communicator& comm_;
  distributed::ContextShards const& shards_;
  ContextProblem problem_, own_part_;
  AnyTensor k_, v_, out_, lse_;
  SpreadStates<T, Exec> states_;
  std::optional<ContextParts<T, Exec>> parts_;
};

/// A call of distributed::decode() over a cache of each rank's own: attikos::decode() of it, whose
/// state is merged with those of the others.
template <class T, class Exec>
class JoinedDecode {
 public:
  static constexpr char const* operation = "distributed::decode";

  JoinedDecode(Exec const& exec, distributed::Communicator& comm, AttentionTensors const& t,
               DecodeOptions const& options)
      : exec_(exec),
        t_(t),
        options_(options),
        out_(t.out),
        lse_(t.lse),
        sinks_(t.terms.sinks),
        states_(exec, comm, t.q.extent[0], t.q.extent[1], t.q.extent[2], t.out.extent[3]) {
    t_.terms.sinks = {};  // they join when states are merged
  }
  void prepare() {
    states_.prepare();
    t_.out = states_.out();
    t_.lse = states_.lse();
    Explanation explanation;
    decode(&explanation);
  }
  void run() {
    decode(nullptr);
    states_.merge(out_, lse_, sinks_);
  }

 private:
  void decode(Explanation* log) {
    decode_run<T, typename SpreadStates<T, Exec>::Acc>(exec_, t_, options_, pair_functors(), log);
  }

  Exec const& exec_;
  AttentionTensors t_;
  DecodeOptions options_;
  AnyTensor out_, lse_, sinks_;
  SpreadStates<T, Exec> states_;
};

/// \param lse a tensor or Absent
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out, class Lse,
          class... Extras>
void joined_decode(Exec const& exec, distributed::Communicator& comm, Q const& q, K const& k,
                   V const& v, Out const& out, Lse const& lse, DecodeOptions const& options,
                   Extras const&... extras) {
  using T = element_t<Q>;
  static_assert(std::is_same_v<T, element_t<Out>> && sizeof(T) >= 2,
                "attikos::distributed::decode: q and out are both double, float, float16 or "
                "bfloat16");
  static_assert(rank_of<Q> == 4,
                "attikos::distributed::decode: q is [batch, heads_q, seqlen_q, d]");
  check_writable(out);
  if constexpr (is_present<Lse>) check_writable(lse);
  using Call = JoinedDecode<T, Exec>;
  constexpr char const* operation = Call::operation;
  std::optional<Call> call;
  agree(exec, comm, DistributedOperation::decode, [&](std::vector<CommonArgument>& common) {
    auto const t = attention_tensors<Exec>(q, k, v, out, lse, extras...);
    attention_forward_arguments(operation, t, attention_options(options));
    bool const window = options.window_left >= 0 || options.window_right >= 0 ||
                        options.attention_chunk != 0 || (options.causal && t.q.extent[2] > 1);
    if (window)
      raise<UnsupportedError>(
          operation,
          ": a causal mask of several queries, a window or chunks go by positions, which no rank "
          "knows of another's keys; expected queries that see all keys");
    auto const add = [&](char const* name, std::int64_t value) { common.push_back({name, value}); };
    auto const hidden = [&](char const* name, std::int64_t value) {
      common.push_back({name, value, RankFailure::shape, false});
    };
    common.push_back(
        {"element type", static_cast<std::int64_t>(t.q.type), RankFailure::dtype, false});
    add("batch", t.q.extent[0]);
    add("heads_q", t.q.extent[1]);
    add("queries", t.q.extent[2]);
    add("head_dim", t.q.extent[3]);
    add("head_dim of v", t.out.extent[3]);
    hidden("softmax_scale", number_of(options.softmax_scale));
    hidden("softcap", number_of(options.softcap));
    add("sinks", t.terms.sinks.given());
    call.emplace(exec, comm, t, options);
    call->prepare();
  });
  call->run();
}

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
/// \param exec    execution space instance; over MPI it is fenced once, before states are sent
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

/// Attention of a few queries, which every rank has, over the caches that ranks have each for
/// itself: pages that were dealt out, or positions wherever they were appended. Which positions
/// they are does not matter, since every query sees all keys of all ranks.
///
/// \param exec, comm, q, out, lse as above
/// \param k       this rank's cache, as attikos::decode() takes it: padded [batch, heads_kv,
///                seqlen_max, d] or paged [num_pages, heads_kv, page_size, d]
/// \param v       as k with dv in place of d
/// \param options those of attikos::decode(), the same on all ranks but for `kernel` and
///                `splits`; no window, no attention_chunk, and `causal` only with one query
/// \param extras  lengths(none, kv): int32 [batch] in memory of `exec`, positions in use of this
///                rank's cache, 0 too; paged(table, page_size): of this rank's pages;
///                descale(q, k, v); sinks(view): the same on all ranks
///
/// Everything else as above.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          TensorLike Lse, ::attikos::detail::JoinedDecodeExtra... Extras>
void decode(Exec const& exec, Communicator& comm, Q const& q, K const& k, V const& v,
            Out const& out, Lse const& lse, DecodeOptions const& options = {},
            Extras const&... extras) {
  ::attikos::detail::joined_decode(exec, comm, q, k, v, out, lse, options, extras...);
}

/// The same without the log-sum-exp.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          ::attikos::detail::JoinedDecodeExtra... Extras>
void decode(Exec const& exec, Communicator& comm, Q const& q, K const& k, V const& v,
            Out const& out, DecodeOptions const& options = {}, Extras const&... extras) {
  ::attikos::detail::joined_decode(exec, comm, q, k, v, out, ::attikos::detail::Absent{}, options,
                                   extras...);
}

}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
