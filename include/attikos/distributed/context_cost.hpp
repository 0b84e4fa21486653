// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What each strategy of context-parallel attention is expected to take: plain arithmetic over the
/// schedule, without MPI and without kernels. The options bring in Kokkos's headers.
#pragma once

#include <algorithm>
#include <attikos/distributed/attention_options.hpp>
#include <attikos/distributed/machine_model.hpp>
#include <attikos/distributed/schedule.hpp>
#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {

/// What one strategy is expected to take on the slowest rank.
struct StrategyCost {
  Strategy strategy;
  bool possible;
  std::string why_not;
  double compute = 0;   ///< seconds
  double transfer = 0;  ///< seconds, all of it
  double exposed = 0;   ///< seconds of it that no product hides
  double buffers = 0;   ///< bytes beside the rank's tensors

  double seconds() const { return compute + exposed; }
};

/// A choice and the reasons.
struct ContextPlan {
  Strategy strategy = Strategy::ring;
  std::vector<StrategyCost> costs;

  /// A line for each strategy, the one chosen marked.
  std::string text() const {
    std::ostringstream lines;
    for (StrategyCost const& cost : costs) {
      lines << (cost.strategy == strategy ? "* " : "  ") << strategy_name(cost.strategy) << ": ";
      if (!cost.possible) {
        lines << cost.why_not << '\n';
        continue;
      }
      lines << cost.seconds() * 1e3 << " ms (products " << cost.compute * 1e3 << ", transfers "
            << cost.transfer * 1e3 << " of which exposed " << cost.exposed * 1e3 << "), buffers "
            << cost.buffers / 1e6 << " MB\n";
    }
    return lines.str();
  }
};

/// Numbers that costs depend on.
struct ContextExtents {
  std::int64_t batch = 1, heads_q = 1, heads_kv = 1, head_dim = 1, head_dim_v = 1;
  std::int64_t element_bytes = 4, accumulator_bytes = 4;
};

/// About how many pairs of positions of one head and batch entry pieces of queries see of pieces of
/// keys: an estimate from 16 rows of each product, which is what a cost needs. plan::pairs_of()
/// counts.
inline double visible_pairs(std::vector<Piece> const& queries, std::vector<Piece> const& keys,
                            Visible const& visible, Shards const& q, Shards const& kv,
                            CausalAlignment alignment) {
  double pairs = 0;
  for (Piece const& a : queries) {
    for (Piece const& b : keys) {
      if (a.sequence != b.sequence) continue;
      std::int64_t const nq = q.length(a.sequence), nk = kv.length(a.sequence);
      std::int64_t const offset = alignment == CausalAlignment::top_left ? 0 : nk - nq;
      auto const p = product_of(a, b, visible, offset, nq, nk);
      if (!p) continue;
      // Keys [i − left, i + right] of row i, clipped: a triangle is counted by its corners.
      auto const clipped = [&](double i) {
        double const low =
            p->window.left < 0 ? 0 : std::max(0.0, i - static_cast<double>(p->window.left));
        double const high = p->window.right < 0
                                ? static_cast<double>(p->kv_rows)
                                : std::min(static_cast<double>(p->kv_rows),
                                           i + static_cast<double>(p->window.right) + 1);
        return std::max(0.0, high - low);
      };
      constexpr int samples = 16;
      double sum = 0;
      for (int s = 0; s < samples; ++s)
        sum += clipped((s + 0.5) / samples * static_cast<double>(p->q_rows));
      pairs += sum / samples * static_cast<double>(p->q_rows);
    }
  }
  return pairs;
}

/// Expected costs of all strategies, and the one with the least. A strategy of the options other
/// than automatic is taken as it is.
inline ContextPlan plan_context(ContextExtents const& e, Shards const& q, Shards const& kv,
                                AttentionOptions const& options, MachineModel const& machine) {
  int const n = q.ranks();
  Visible visible{options.window_left, options.window_right};
  if (options.causal) visible.right = 0;
  auto const number = [](auto x) { return static_cast<double>(x); };
  double const per_pair = 2.0 * number(e.head_dim + e.head_dim_v) * number(e.batch * e.heads_q);
  auto const seconds_of = [&](double pairs) { return pairs * per_pair / machine.operations; };
  auto const pairs_of = [&](int rank, std::vector<Piece> const& keys) {
    return visible_pairs(q.pieces(rank), keys, visible, q, kv, options.causal_alignment);
  };
  // Ranks that are looked at: all of a few, some of many.
  std::vector<int> ranks;
  for (int r = 0; r < n; r += std::max(1, n / 16)) ranks.push_back(r);
  double const kv_row =
      number(e.batch * e.heads_kv * (e.head_dim + e.head_dim_v) * e.element_bytes);
  double const block = number(kv.max_rows()) * kv_row;
  double const sent = number(kv.shared_with(q).max_rows()) * kv_row;  // of a block, round a ring
  double const state =
      number(q.max_rows() * e.batch * e.heads_q * (e.head_dim_v + 1) * e.accumulator_bytes);

  StrategyCost ring{Strategy::ring, true, ""};
  for (int step = 0; step < n; ++step) {
    double compute = 0;
    for (int r : ranks)
      compute = std::max(compute, pairs_of(r, kv.pieces(ring_step(r, n, step).block)));
    double const transfer = step + 1 < n ? machine.latency + sent / machine.bandwidth : 0;
    ring.compute += seconds_of(compute);
    ring.transfer += transfer;
    ring.exposed += std::max(0.0, transfer - seconds_of(compute));
  }
  ring.buffers = 2 * sent + (sent < block ? block : 0) + 2 * state;

  double whole_pairs = 0;
  std::vector<Piece> const whole = kv.whole().pieces(0);
  StrategyCost gather{Strategy::all_gather, true, ""};
  for (int r : ranks) whole_pairs = std::max(whole_pairs, pairs_of(r, whole));
  double const all = number(kv.total()) * kv_row;
  gather.compute = seconds_of(whole_pairs);
  gather.transfer = machine.latency * std::ceil(std::log2(n)) + (all - block) / machine.bandwidth +
                    (n > 1 ? 2 * all / machine.copy_bandwidth : 0);
  gather.exposed = gather.transfer;
  gather.buffers = 2 * all + block + state;

  StrategyCost heads{Strategy::all_to_all, e.heads_q >= n, ""};
  if (!heads.possible)
    heads.why_not = "there are fewer query heads (" + std::to_string(e.heads_q) + ") than ranks";
  double const part =
      std::ceil(number(e.heads_q) / n) / number(std::max<std::int64_t>(e.heads_q, 1));
  double const kv_part = std::max(part, 1.0 / number(std::max<std::int64_t>(e.heads_kv, 1)));
  heads.compute = seconds_of(
      part * visible_pairs(q.whole().pieces(0), whole, visible, q, kv, options.causal_alignment));
  double const q_row = number(e.batch * e.heads_q * (e.head_dim + e.head_dim_v) * e.element_bytes);
  double const moved = part * number(q.total()) * q_row + kv_part * all;
  heads.transfer = n > 1 ? 4 * machine.latency * n + moved / machine.bandwidth +
                               2 * moved / machine.copy_bandwidth
                         : 0;
  heads.exposed = heads.transfer;
  heads.buffers = 4 * moved + part * n * state;

  // all_to_all among the ranks of a node, and a ring between nodes.
  int const per_node = machine.ranks_per_node;
  StrategyCost two_level{Strategy::two_level, true, ""};
  if (per_node <= 1)
    two_level.why_not = "a node has one rank";
  else if (n <= per_node)
    two_level.why_not = "the ranks are on one node, where it is all_to_all";
  else if (n % per_node != 0)
    two_level.why_not = "the last node is not full";
  else if (e.heads_q < per_node)
    two_level.why_not =
        "there are fewer query heads (" + std::to_string(e.heads_q) + ") than ranks of a node";
  two_level.possible = two_level.why_not.empty();
  if (two_level.possible) {
    Shards const queries = q.joined(per_node), keys = kv.joined(per_node);
    int const nodes = n / per_node;
    double const q_share = std::ceil(number(e.heads_q) / per_node) / number(e.heads_q);
    double const kv_share = std::max(q_share, 1.0 / number(std::max<std::int64_t>(e.heads_kv, 1)));
    double const node_block = number(keys.max_rows()) * kv_share * kv_row;
    for (int step = 0; step < nodes; ++step) {
      double pairs = 0;
      for (int node = 0; node < nodes; node += std::max(1, nodes / 16))
        pairs = std::max(pairs, visible_pairs(queries.pieces(node),
                                              keys.pieces(ring_step(node, nodes, step).block),
                                              visible, q, kv, options.causal_alignment));
      double const compute = seconds_of(q_share * pairs);
      double const transfer =
          step + 1 < nodes ? machine.latency + node_block / machine.bandwidth : 0;
      two_level.compute += compute;
      two_level.transfer += transfer;
      two_level.exposed += std::max(0.0, transfer - compute);
    }
    double const latency = machine.node_latency > 0 ? machine.node_latency : machine.latency;
    double const bandwidth =
        machine.node_bandwidth > 0 ? machine.node_bandwidth : machine.bandwidth;
    double const dealt = q_share * number(queries.max_rows()) * q_row + node_block;
    double const exchange =
        4 * latency * per_node + dealt / bandwidth + 2 * dealt / machine.copy_bandwidth;
    two_level.transfer += exchange;
    two_level.exposed += exchange;
    two_level.buffers = 4 * dealt + 2 * node_block + 2 * q_share * per_node * state;
  }

  ContextPlan plan{options.strategy, {ring, gather, heads, two_level}};
  if (options.strategy == Strategy::automatic) {
    plan.strategy = Strategy::ring;
    double least = ring.seconds();
    for (StrategyCost const& cost : plan.costs)
      if (cost.possible && cost.seconds() < least) {
        least = cost.seconds();
        plan.strategy = cost.strategy;
      }
  }
  return plan;
}

}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
