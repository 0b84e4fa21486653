// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What context-parallel attention takes in closed form, for ranks that share evenly.
#pragma once

#include <attikos/distributed/plan/context.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {
namespace plan {

/// Seconds of one call of attention, in a fixed number of operations whatever the number of ranks.
///
/// With n groups of ranks in the ring, h rows a piece (half of a group's rows where the mask is
/// causal), L and B of the slower link that the ring crosses and b bytes a block:
///
///     pack + max(W₀, L + b/B) + (n − 2)·max(W, L + b/B) + W + finish  [+ exchanges of heads]
///
/// where W is the time of the products of a step and W₀ that of a group's own block: of the slowest
/// rank, since the last group's pieces meet and are one. It is what simulate() gives without
/// disturbances, but for rounding, where 2·n divides the length, ranks have equally many heads,
/// nodes are full, and a block takes either less than the products of any step or more. Elsewhere
/// steps and ranks differ by less than the joins of a block and by a row or a head, and the two by
/// that share; tests hold them to 2 % from 64 rows a rank on.
inline double formula_seconds(Layout layout, Model const& model, Machine const& machine,
                              int ranks) {
  auto const number = [](auto x) { return static_cast<double>(x); };
  Grid const grid = ContextSchedule::grid(layout, machine, ranks);
  std::int64_t const n = grid.ring, heads = (model.heads + grid.heads - 1) / grid.heads;
  std::int64_t const group = model.heads / model.kv_heads;
  std::int64_t const kv_heads = std::min((heads + group - 1) / group, model.kv_heads);
  double const rows = number(model.length) / number(n);  // of a group
  double const e = model.element_bytes(), acc = model.accumulator_bytes();
  double const d = number(model.head_dim), b = number(model.batch);
  auto const copy = [&](double bytes) { return machine.copy_seconds(bytes); };
  auto const stage = [&](double bytes) { return machine.stage_seconds(bytes); };
  auto const work = [&](double pairs, double q_rows, int products, double joined_rows, int joins,
                        double masked_rows = 0) {
    double const operations = model.operations_per_pair() * number(heads) / number(model.heads);
    return (pairs + q_rows * machine.row_keys + masked_rows * machine.masked_keys) * operations /
               machine.attention +
           products * machine.launch +
           (machine.continues_states
                ? 0.0
                : 3 * joined_rows * b * number(heads) * (d + 1) * acc / machine.memory_bandwidth +
                      joins * machine.launch);
  };
  auto const transfer = [](Link const& link, double bytes, double share) {
    return link.latency + bytes * share / link.bandwidth;
  };
  bool const inside = ranks <= machine.ranks_per_node;
  int const ranks_inside = std::min(ranks, machine.ranks_per_node);
  double const port = machine.shared ? ranks_inside : 1;  // messages on a port inside at once

  double const block = rows * b * number(kv_heads) * 2 * d * e;
  double const h = rows / 2;
  double const finish =
      rows * b * number(heads) * (d * (e + acc) + 2 * acc) / machine.memory_bandwidth +
      (model.causal && (n > 1) ? 2 : 1) * machine.launch;
  double const pack = copy(block) + 2 * machine.launch + stage(block);
  // A step of the ring waits for the slower of the links that it crosses.
  double step = 0;
  if (grid.heads == 1 && ranks_inside > 1)
    step = transfer(machine.inside, block, machine.shared && !inside ? port - 1 : port);
  if (!inside) {
    double const on_card =
        std::ceil(number(grid.heads) / number(std::min(machine.cards, grid.heads)));
    step = std::max(step, transfer(machine.outside, block, on_card));
  }

  if (layout == Layout::all_gather) {
    double const all = block * number(n);
    double const products =
        model.causal && n > 1 ? work(h * h * (2 * number(n) - 1) + h * (h + 1), rows, 2, 0, 0, rows)
                              : work(model.causal ? rows * (rows + 1) / 2 : rows * rows * number(n),
                                     rows, 1, 0, 0, model.causal ? rows : 0);
    return pack + number(n - 1) * step + copy(all) + stage(all) + 2 * number(n) * machine.launch +
           products + finish;
  }
  double seconds = finish;
  if (layout != Layout::all_to_all) seconds += pack;
  if (n == 1) {
    seconds += work(model.causal ? rows * (rows + 1) / 2 : rows * rows, rows, 1, 0, 0,
                    model.causal ? rows : 0);
  } else {
    double const m = number(n);
    double ring = 0;
    if (model.causal) {
      // All ranks but the last have two pieces; the last one's meet, and are one product less for
      // whoever works on them.
      double const own = work(2 * h * h + h, 3 * h, 3, h, 1, 2 * h),
                   later = work(2 * h * h, 2 * h, 2, 2 * h, 2);
      double const with_last = work(2 * h * h, h, 1, h, 1);
      double const own_of_last = work(2 * h * h + h, 2 * h, 1, 0, 0, 2 * h),
                   last = work(2 * h * h, 2 * h, 1, 2 * h, 1);
      // The last block that comes to a rank is that of the last rank, or another one.
      ring = std::max(own, step) + (m - 2) * std::max(later, step) + with_last;
      if (n > 2)
        ring = std::max(ring, std::max(own, step) + std::max(with_last, step) +
                                  (m - 3) * std::max(later, step) + later);
      ring = std::max(ring, std::max(own_of_last, step) + (m - 2) * std::max(last, step) + last);
    } else {
      double const own = work(rows * rows, rows, 1, 0, 0),
                   later = work(rows * rows, rows, 1, rows, 1);
      ring = std::max(own, step) + (m - 2) * std::max(later, step) + later;
    }
    seconds += ring + (m - 1) * stage(block);
  }
  if (grid.heads > 1 || layout == Layout::all_to_all) {
    double const own = rows / grid.heads;
    Link const& link = layout == Layout::all_to_all && !inside ? machine.outside : machine.inside;
    for (int tensor = 0; tensor < 5; ++tensor) {
      double const feature = tensor == 4 ? acc : d * e;
      double const mine = number(tensor == 1 || tensor == 2 ? kv_heads : heads);
      double const by_heads = b * mine * rows * feature;
      double const by_rows = b * mine * grid.heads * own * feature;
      seconds += copy(by_rows) + copy(by_heads) + 2 * grid.heads * machine.launch + stage(by_rows) +
                 stage(by_heads) +
                 (grid.heads - 1) * transfer(link, b * mine * own * feature, port);
    }
  }
  return seconds;
}

}  // namespace plan
}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
