// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Checks of what context-parallel calls are given, and what ranks have to give alike.
#pragma once

#include <attikos/distributed/agreement.hpp>
#include <attikos/distributed/context_cost.hpp>
#include <attikos/distributed/context_parts.hpp>
#include <vector>

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
/// \param all_queries every rank has all of them
inline void check_context_shards(char const* operation, distributed::Communicator const& comm,
                                 distributed::ContextShards const& shards,
                                 AttentionTensors const& t, bool all_queries) {
  auto const check = [&](char const* name, distributed::Shards const& s, AnyTensor const& x) {
    if (s.ranks() != comm.size())
      raise<ShapeError>(operation, ": the shards of ", name, " are for ", s.ranks(),
                        " ranks; expected ", comm.size(), ", as the communicator has");
    std::int64_t const rows = x.with_rank(4).extent[2];
    if (rows != s.rows(comm.rank()))
      raise<ShapeError>(operation, ": ", name, " has ", rows, " rows; expected ",
                        s.rows(comm.rank()), " as the shards have for this rank.", t.shapes());
  };
  if (!all_queries) check("q", shards.q, t.q);
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
                                     distributed::Strategy strategy, int ranks_per_node) {
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
  add("ranks_per_node", strategy == distributed::Strategy::two_level ? ranks_per_node : 0);
  add("sinks", problem.sinks.given());
}

inline distributed::ContextExtents context_extents(ContextProblem const& p) {
  std::int64_t const size = dtype_size(p.type);
  return {p.batch, p.heads_q, p.heads_kv, p.head_dim, p.head_dim_v, size, size == 8 ? 8 : 4};
}

/// The problem that checked tensors are, and its lengths.
/// \param given lengths(q, kv) or Absent
template <class L>
ContextProblem context_problem(char const* operation, distributed::Communicator const& comm,
                               distributed::ContextShards const& shards, AttentionTensors const& t,
                               distributed::AttentionOptions const& options, L const& given,
                               bool all_queries = false) {
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
  check_context_shards(operation, comm, shards, t, all_queries);
  check_context_options(operation, options, shards);
  if constexpr (is_present<L>) {
    problem.lengths_q = host_lengths(operation, "lengths of q", given.q, problem.batch, shards.q);
    problem.lengths_kv =
        host_lengths(operation, "lengths of kv", given.kv, problem.batch, shards.kv);
  }
  return problem;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
