// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What a context-parallel attention call may ask for besides its tensors.
#pragma once

#include <attikos/attention/attention_options.hpp>
#include <attikos/distributed/shards.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {

/// How keys and values get to the queries that see them.
enum class Strategy : std::uint8_t {
  automatic,   ///< the one that the cost model expects to be done first; explain() tells
  ring,        ///< blocks of keys and values go round; the next one travels behind a product
  all_gather,  ///< every rank gets all keys and values
  all_to_all,  ///< every rank gets all positions of some heads (Ulysses)
  two_level    ///< all_to_all among the ranks of a node (MachineModel), a ring between nodes
};

constexpr char const* strategy_name(Strategy strategy) noexcept {
  switch (strategy) {
    case Strategy::ring:
      return "ring";
    case Strategy::all_gather:
      return "all_gather";
    case Strategy::all_to_all:
      return "all_to_all";
    case Strategy::two_level:
      return "two_level";
    case Strategy::automatic:
      break;
  }
  return "automatic";
}

/// How far bits repeat.
enum class Determinism : std::uint8_t {
  run_to_run,     ///< from run to run with the same number of ranks, shards and strategy
  rank_invariant  ///< also with any other number of ranks, shards and strategy
};

/// Options of distributed::attention(), the same on all ranks. Those that attention() has too mean
/// the same, of the sequence as a whole.
struct AttentionOptions {
  ATTIKOS_OPTION_SOFTMAX_SCALE(ATTIKOS_CXX_OPTION_MEMBER)
  ATTIKOS_OPTION_CAUSAL(ATTIKOS_CXX_OPTION_MEMBER)
  CausalAlignment causal_alignment =
      CausalAlignment::bottom_right;  ///< offset len_kv − len_q, or 0
  char const* kernel = "";            ///< of the products on a rank; as attention() takes it
  ATTIKOS_OPTION_WINDOW(ATTIKOS_CXX_OPTION_MEMBER)
  ATTIKOS_OPTION_SOFTCAP(ATTIKOS_CXX_OPTION_MEMBER)
  ATTIKOS_OPTION_COMPUTE(ATTIKOS_CXX_OPTION_MEMBER)
  Strategy strategy = Strategy::automatic;
  /// `rank_invariant` computes products of `block` queries and `block` keys, whose partial results
  /// are joined in the order of a binary tree over the blocks of a sequence. It needs shards whose
  /// boundaries are multiples of `block`.
  Determinism determinism = Determinism::run_to_run;
  std::int64_t block = 512;
};

/// Which rank holds which queries, and which keys and values; one Shards for both where they are
/// dealt out alike.
struct ContextShards {
  Shards q, kv;

  ContextShards(Shards const& both) : q(both), kv(both) {}
  ContextShards(Shards const& queries, Shards const& keys) : q(queries), kv(keys) {}
};

}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
