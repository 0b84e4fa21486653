// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// distributed::attention(): attention over sequences whose positions are spread over the ranks of
/// an MPI communicator.
#pragma once

#include <attikos/distributed/context_attention.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
concept ContextExtra = is_any_wrapper<T, Lengths, Sinks>;

/// Lengths that the host reads: which keys a rank has to get depends on them.
template <class L>
std::vector<std::int64_t> host_lengths(char const* operation, char const* name, L const& view,
                                       std::int64_t batch, distributed::Shards const& shards) {
  if constexpr (!is_present<L>) {
    return {};
  } else {
    static_assert(is_accessible<Kokkos::DefaultHostExecutionSpace, L>(),
                  "attikos::distributed::attention: lengths lie in memory of the host");
    static_assert(std::is_same_v<element_t<L>, std::int32_t>, "attikos: lengths are int32_t");
    static_assert(rank_of<L> == 1, "attikos: lengths have rank 1");
    if (shards.sequences() != 1)
      raise<ShapeError>(operation, ": ", name, " beside ", shards.sequences(),
                        " packed sequences, whose lengths are in the shards; expected none");
    if (extent_of(view, 0) != batch)
      raise<ShapeError>(operation, ": ", name, " has ", extent_of(view, 0), " entries; expected ",
                        batch, ", one per entry of the batch");
    std::vector<std::int64_t> lengths;
    for (std::int64_t b = 0; b < batch; ++b) {
      std::int64_t const length = data_of(view)[b * stride_of(view, 0)];
      lengths.push_back(std::clamp<std::int64_t>(length, 0, shards.length(0)));
    }
    return lengths;
  }
}

inline std::int64_t number_of(std::vector<std::int64_t> const& values) {
  std::int64_t hash = static_cast<std::int64_t>(values.size());
  for (std::int64_t value : values) hash = (hash * 31 + value) & 0x7fffffffffffffff;
  return hash;
}

/// What tensors of a rank have to have to do with the shards.
inline void check_context_shards(char const* operation, distributed::Communicator const& comm,
                                 distributed::ContextShards const& shards,
                                 AttentionTensors const& t) {
  auto const check = [&](char const* name, distributed::Shards const& s, AnyTensor const& x) {
    if (s.ranks() != comm.size())
      raise<ShapeError>(operation, ": the shards of ", name, " are for ", s.ranks(),
                        " ranks; expected ", comm.size(), ", as the communicator has");
    std::int64_t const rows = x.with_rank(4).extent[2];
    if (rows != s.rows(comm.rank()))
      raise<ShapeError>(operation, ": ", name, " has ", rows, " rows; expected ",
                        s.rows(comm.rank()), " as the shards have for this rank.", t.shapes());
  };
  check("q", shards.q, t.q);
  check("k", shards.kv, t.k);
  if (shards.q.sequences() != shards.kv.sequences())
    raise<ShapeError>(operation, ": the shards have ", shards.q.sequences(),
                      " sequences of queries and ", shards.kv.sequences(),
                      " of keys; expected the same number");
  if (shards.q.sequences() > 1 && t.q.with_rank(4).extent[0] != 1)
    raise<ShapeError>(operation, ": packed sequences in a batch of ", t.q.extent[0],
                      "; expected q [heads_q, rows, d], or a batch of 1.", t.shapes());
}

inline void check_context_options(char const* operation,
                                  distributed::AttentionOptions const& options,
                                  distributed::ContextShards const& shards) {
  if (options.determinism != distributed::Determinism::rank_invariant) return;
  if (options.block < 1)
    raise<Error>(operation, ": block is ", options.block, "; expected a number of positions");
  if (!shards.q.aligned_to(options.block) || !shards.kv.aligned_to(options.block))
    raise<ShapeError>(
        operation, ": rank_invariant needs shards whose boundaries are multiples of ",
        options.block,
        " positions, its block; expected shards of that granularity, or another block");
}

/// What all ranks have to give alike.
inline void common_context_arguments(std::vector<CommonArgument>& common,
                                     ContextProblem const& problem,
                                     distributed::ContextShards const& shards,
                                     distributed::Strategy strategy) {
  auto const& o = problem.options;
  auto const add = [&](char const* name, std::int64_t value) { common.push_back({name, value}); };
  auto const hidden = [&](char const* name, std::int64_t value) {
    common.push_back({name, value, RankFailure::shape, false});
  };
  common.push_back(
      {"element type", static_cast<std::int64_t>(problem.type), RankFailure::dtype, false});
  add("batch", problem.batch);
  add("heads_q", problem.heads_q);
  add("heads_kv", problem.heads_kv);
  add("head_dim", problem.head_dim);
  add("head_dim of v", problem.head_dim_v);
  hidden("shards of q", shards.q.fingerprint());
  hidden("shards of k and v", shards.kv.fingerprint());
  hidden("lengths of q", number_of(problem.lengths_q));
  hidden("lengths of kv", number_of(problem.lengths_kv));
  hidden("softmax_scale", number_of(o.softmax_scale));
  add("causal", o.causal);
  add("causal_alignment", static_cast<std::int64_t>(o.causal_alignment));
  hidden("kernel", number_of(o.kernel));
  add("window_left", o.window_left);
  add("window_right", o.window_right);
  hidden("softcap", number_of(o.softcap));
  add("compute", static_cast<std::int64_t>(o.compute));
  add("determinism", static_cast<std::int64_t>(o.determinism));
  add("block", o.block);
  add("strategy", static_cast<std::int64_t>(strategy));
  add("sinks", problem.sinks.given());
}

inline distributed::ContextExtents context_extents(ContextProblem const& p) {
  std::int64_t const size = dtype_size(p.type);
  return {p.batch, p.heads_q, p.heads_kv, p.head_dim, p.head_dim_v, size, size == 8 ? 8 : 4};
}

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
  Agreement const agreement(
      comm, DistributedOperation::attention, [&](std::vector<CommonArgument>& common) {
        auto const sinks = find_extra<Sinks>(extras...);
        auto const given = find_extra<Lengths>(extras...);
        AttentionTensors const t = [&] {
          if constexpr (is_present<decltype(sinks)>)
            return attention_tensors<Exec>(q, k, v, out, lse, sinks);
          else
            return attention_tensors<Exec>(q, k, v, out, lse);
        }();
        ContextProblem problem;
        problem.options = options;
        AnyTensor const q4 = t.q.with_rank(4), v4 = t.v.with_rank(4);
        problem.batch = q4.extent[0];
        problem.heads_q = q4.extent[1];
        problem.heads_kv = t.k.with_rank(4).extent[1];
        problem.head_dim = q4.extent[3];
        problem.head_dim_v = v4.extent[3];
        problem.type = t.q.type;
        problem.sinks = t.terms.sinks;
        attention_forward_arguments(operation, t, problem.product_options(problem.visible()));
        check_context_shards(operation, comm, shards, t);
        check_context_options(operation, options, shards);
        if constexpr (is_present<decltype(given)>) {
          problem.lengths_q =
              host_lengths(operation, "lengths of q", given.q, problem.batch, shards.q);
          problem.lengths_kv =
              host_lengths(operation, "lengths of kv", given.kv, problem.batch, shards.kv);
        }
        distributed::Strategy const strategy =
            distributed::plan_context(context_extents(problem), shards.q, shards.kv, options,
                                      comm.machine())
                .strategy;
        common_context_arguments(common, problem, shards, strategy);
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
/// \param exec    execution space instance; kernels are asynchronous on it. The call returns when
///                messages have come and the last kernels are in the queue; it fences `exec` before
///                memory goes to MPI, nothing else
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
/// `automatic` takes what plan_context() expects to be done first with comm.machine(). Memory of
/// devices goes through pinned memory of the host unless the communicator was told that MPI is
/// aware of devices.
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
