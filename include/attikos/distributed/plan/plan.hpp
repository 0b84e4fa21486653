// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What each layout of a transformer over ranks is expected to take, and which one to take: what
/// the command attikos-plan prints.
#pragma once

#include <attikos/distributed/plan/formula.hpp>
#include <attikos/distributed/plan/products.hpp>
#include <attikos/distributed/plan/simulate.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {
namespace plan {

/// One layout on one number of ranks. Times are those of all layers, forward.
struct Prediction {
  Layout layout = Layout::ring;
  int ranks = 1;
  std::string why_not;  ///< not empty: it cannot be, or a message has no way; only then no times
  double seconds = 0;
  double work = 0;      ///< of it, work and copies on the rank that has most
  double exposed = 0;   ///< the rest, in which ranks wait
  double one_rank = 0;  ///< seconds of the same on one rank that has the memory for it
  MemoryUse memory;     ///< of one layer; weights of all
  bool fits = true;     ///< into the machine's memory of a rank

  bool possible() const { return why_not.empty(); }
  /// Of one rank's rate, that ranks reach: one_rank/(ranks · seconds).
  double efficiency() const { return seconds > 0 ? one_rank / (ranks * seconds) : 0; }
};

/// By simulate(). Throws ShapeError or DtypeError for a model that cannot be, Error for
/// disturbances that name what is not there.
inline Prediction predict(Layout layout, Model const& model, Machine const& machine, int ranks,
                          Disturbances const& disturbances = {}) {
  check_model(model);
  Prediction result;
  result.layout = layout;
  result.ranks = ranks;
  auto const layers = static_cast<double>(model.layers);
  auto const take = [&](auto const& schedule) {
    result.memory = schedule.memory();
    result.fits = machine.memory == 0 || result.memory.device() <= machine.memory;
    Outcome const outcome = simulate(schedule, machine, disturbances);
    result.why_not = outcome.failure;
    result.seconds = outcome.seconds * layers;
    result.work = outcome.work * layers;
    result.exposed = outcome.exposed * layers;
  };
  if (is_attention(layout)) {
    result.why_not = ContextSchedule::why_not(layout, model, machine, ranks);
    result.one_rank = layers * seconds_on_one(model, machine);
    if (result.possible()) take(ContextSchedule(layout, model, machine, ranks));
  } else {
    result.why_not = ProductSchedule::why_not(layout, model, ranks);
    result.one_rank = layers * (model.product_operations() / machine.gemm + 4 * machine.launch);
    if (result.possible()) take(ProductSchedule(layout, model, machine, ranks));
  }
  return result;
}

/// All layouts on one number of ranks, and which to take: of those that fit the one that is done
/// first, −1 if none does.
struct RankPlan {
  std::vector<Prediction> predictions;
  int attention = -1;  ///< index of a layout of attention
  int products = -1;   ///< index of a layout of products
};

inline RankPlan plan_ranks(Model const& model, Machine const& machine, int ranks,
                           Disturbances const& disturbances = {}) {
  RankPlan plan;
  for (Layout const layout : {Layout::ring, Layout::all_gather, Layout::all_to_all,
                              Layout::two_level, Layout::tensor_parallel, Layout::local}) {
    plan.predictions.push_back(predict(layout, model, machine, ranks, disturbances));
    Prediction const& latest = plan.predictions.back();
    int& best = is_attention(layout) ? plan.attention : plan.products;
    if (latest.possible() && latest.fits &&
        (best < 0 || latest.seconds < plan.predictions[static_cast<std::size_t>(best)].seconds))
      best = static_cast<int>(plan.predictions.size()) - 1;
  }
  return plan;
}

}  // namespace plan
}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
