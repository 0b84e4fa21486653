// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The work that a rank's queries make of a block of keys: the products of schedule.hpp, counted.
#pragma once

#include <attikos/distributed/plan/machine.hpp>
#include <attikos/distributed/plan/model.hpp>
#include <attikos/distributed/schedule.hpp>
#include <cstdint>
#include <limits>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {
namespace plan {

/// Pairs of a query and a key that a product computes: exact, in closed form.
inline std::int64_t pairs_of(Product const& p) {
  // Row i sees keys max(0, i − left) up to and without min(kv_rows, i + right + 1).
  std::int64_t pairs = p.q_rows * p.kv_rows;
  if (p.window.right >= 0) {
    std::int64_t const first = p.window.right + 1;
    std::int64_t const cut = std::clamp<std::int64_t>(p.kv_rows - first, 0, p.q_rows);
    // Rows 0 … cut − 1 see i + first keys in place of kv_rows.
    pairs -= cut * (p.kv_rows - first) - cut * (cut - 1) / 2;
  }
  if (p.window.left >= 0) {
    std::int64_t const hidden = std::max<std::int64_t>(0, p.q_rows - 1 - p.window.left);
    pairs -= hidden * (hidden + 1) / 2;
  }
  return pairs;
}

/// What pieces of queries make of pieces of keys, of one head and entry of the batch.
struct BlockWork {
  std::int64_t pairs = 0;
  std::int64_t rows = 0;         ///< of queries, of all products
  std::int64_t masked_rows = 0;  ///< of them, those of products that the mask cuts
  std::int64_t products = 0;     ///< launches of attention
  std::int64_t joins = 0;        ///< launches that join a partial result with a state
  std::int64_t joined_rows = 0;  ///< of queries, of all joins

  bool operator==(BlockWork const&) const = default;
};

/// Counts what distributed::attention() computes of one block. A product of a piece of queries that
/// has no state yet is the state; each later one is a partial result that is joined with it.
/// \param begun whether pieces of queries have states from earlier blocks
inline BlockWork block_work(std::vector<Piece> const& queries, std::vector<Piece> const& keys,
                            Model const& model, bool begun) {
  BlockWork work;
  Visible visible;
  if (model.causal) visible.right = 0;
  for (Piece const& q : queries) {
    bool state = begun;
    for (Piece const& kv : keys) {
      Product product{q.local, q.rows(), kv.local, kv.rows(), {}};
      // Most pairs of pieces are seen whole or not at all, which one comparison tells.
      if (model.causal) {
        if (kv.begin >= q.end) continue;
        if (kv.end > q.begin + 1) {
          auto const cut = product_of(q, kv, visible, 0, model.length, model.length);
          if (!cut) continue;
          product = *cut;
        }
      }
      work.pairs += pairs_of(product);
      work.rows += product.q_rows;
      if (product.window.right >= 0) work.masked_rows += product.q_rows;
      ++work.products;
      if (state) {
        ++work.joins;
        work.joined_rows += product.q_rows;
      }
      state = true;
    }
  }
  return work;
}

/// Seconds of it with `heads` of the query heads.
inline double seconds_of(BlockWork const& w, Model const& model, Machine const& machine,
                         std::int64_t heads) {
  auto const number = [](std::int64_t x) { return static_cast<double>(x); };
  double const share = number(heads) / number(model.heads);
  double const products = (number(w.pairs) + number(w.rows) * machine.row_keys +
                           number(w.masked_rows) * machine.masked_keys) *
                          model.operations_per_pair() * share / machine.attention;
  // A join reads two rows of float32 with their log-sum-exp, and writes one.
  double const row = number((model.head_dim + 1) * model.accumulator_bytes());
  if (machine.continues_states) return products + number(w.products) * machine.launch;
  double const joins =
      3 * number(w.joined_rows) * number(model.batch * heads) * row / machine.memory_bandwidth;
  return products + joins + number(w.products + w.joins) * machine.launch;
}

/// Seconds of attention on one rank that has everything, with nothing to send and to join: what the
/// efficiency of all layouts is measured by.
inline double seconds_on_one(Model const& model, Machine const& machine) {
  Shards const whole = Shards::contiguous(model.length, 1);
  return seconds_of(block_work(whole.pieces(0), whole.pieces(0), model, false), model, machine,
                    model.heads);
}

}  // namespace plan
}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
