// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One main for every test binary: Kokkos lives around the whole run, and the worst error/bound
// ratios that the tests noted are printed at the end.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <cstdio>

#include "comparison.hpp"

namespace {

class PrintWorstRatios : public testing::EmptyTestEventListener {
  void OnTestProgramEnd(testing::UnitTest const&) override {
    auto const& ratios = attikos::test::worst_ratios();
    if (ratios.empty()) return;
    std::printf("worst error/bound ratios:\n");
    for (auto const& [what, ratio] : ratios) std::printf("  %-44s %.3f\n", what.c_str(), ratio);
  }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  Kokkos::ScopeGuard guard(argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new PrintWorstRatios);
  return RUN_ALL_TESTS();
}
