// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// All ranks run the same cases in the same order. Rank 0 reports; the others only what failed.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "distributed/ranks.hpp"
#include "support/comparison.hpp"

namespace {

class PrintFailures : public testing::EmptyTestEventListener {
  void OnTestPartResult(testing::TestPartResult const& result) override {
    if (!result.failed()) return;
    std::printf("rank %d, %s:%d: %s\n", attikos::test::ranks().rank(), result.file_name(),
                result.line_number(), result.message());
    std::fflush(stdout);
  }
};

}  // namespace

int main(int argc, char** argv) {
  using namespace attikos::test;
  begin_ranks(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  int result = 1;
  {
    Kokkos::InitializationSettings settings;
    if (int const device = device_of_this_rank(); device >= 0) settings.set_device_id(device);
    Kokkos::ScopeGuard guard(settings);
    attikos::distributed::CommunicatorOptions options;
    options.machine.ranks_per_node = 2;
    auto const comm = make_ranks(options);
    current_ranks() = comm.get();
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    if (comm->rank() != 0) {
      delete listeners.Release(listeners.default_result_printer());
      listeners.Append(new PrintFailures);
    }
    result = RUN_ALL_TESTS();
    if (comm->rank() == 0)
      for (auto const& [what, ratio] : worst_ratios())
        std::printf("  %-44s %.3f\n", what.c_str(), ratio);
  }
  end_ranks();
  return result;
}
