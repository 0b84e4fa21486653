// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The memory that a plan reckons with is what a call takes.
#include <attikos/distributed/plan/context.hpp>

#include "context_checks.hpp"

namespace attikos::test {
namespace {

namespace plan = distributed::plan;

TEST(PlanMemory, IsWhatCallsAllocate) {
  int const n = ranks().size();
  struct Kind {
    Strategy strategy;
    plan::Layout layout;
  };
  for (Kind const kind : {Kind{Strategy::ring, plan::Layout::ring},
                          Kind{Strategy::all_gather, plan::Layout::all_gather},
                          Kind{Strategy::all_to_all, plan::Layout::all_to_all}})
    for (bool const causal : {false, true}) {
      plan::Model model;
      model.heads = 8;
      model.kv_heads = 2;
      model.head_dim = 16;
      model.length = 16 * n;
      model.batch = 2;
      model.causal = causal;
      model.type = DType::float64;
      plan::MemoryUse const use = plan::ContextSchedule(kind.layout, model, {}, n).memory();
      Shards const shards =
          causal ? Shards::zigzag(model.length, n) : Shards::contiguous(model.length, n);
      ContextRun<double> run(
          {2, 8, 2, 16, 16, shards, {.causal = causal, .strategy = kind.strategy}});
      auto const fresh = make_ranks();  // which have no memory yet
      auto& comm = *fresh;
      distributed::attention(Kokkos::DefaultExecutionSpace(), comm, run.p.shards,
                             run.q.const_view(), run.k.const_view(), run.v.const_view(),
                             run.out.view(), run.lse.view(), run.p.options);
      auto const most =
          static_cast<double>(largest(static_cast<std::int64_t>(comm.buffer_bytes())));
      EXPECT_EQ(most, use.messages + use.states)
          << strategy_name(kind.strategy) << " causal " << causal;
    }
}

}  // namespace
}  // namespace attikos::test
