// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The companion as a whole, and what these tests themselves rest on. The suite Companion needs no
// GPU; PoisonRuns fails without one.
#include <attikos/abi/device.hpp>

#include "direct_common.hpp"

namespace {

TEST(Companion, IsOfTheHeadersVersion) { EXPECT_TRUE(attikos::abi::companion_matches_headers()); }

TEST(PoisonRuns, StaysInSharedMemory) {
  int *others = nullptr, count = -1;
  ASSERT_CUDA(cudaMalloc(&others, sizeof count));
  ASSERT_CUDA(cudaMemset(others, 0, sizeof count));
  poison_shared_memory();
  poison_shared_memory(others);
  ASSERT_CUDA(cudaMemcpy(&count, others, sizeof count, cudaMemcpyDeviceToHost));
  EXPECT_EQ(count, 0);
  cudaFree(others);
}

}  // namespace
