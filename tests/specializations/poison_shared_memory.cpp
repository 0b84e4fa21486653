// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shared memory full of 0xFF, so that a kernel which reads what it has not written meets NaN.
// Compiled as CUDA.
#include "direct_common.hpp"

#pragma nv_diag_suppress 177  // GoogleTest's test_info_ members are unused by design

namespace {

/// One block has a multiprocessor to itself, long enough for all others to find theirs. Counts the
/// words that are not 0xFFFFFFFF, then makes them so.
__global__ void fill(int words, int* others) {
  extern __shared__ unsigned memory[];
  unsigned volatile* const at = memory;
  int different = 0;
  for (int i = static_cast<int>(threadIdx.x); i < words; i += static_cast<int>(blockDim.x)) {
    if (others != nullptr) different += at[i] != 0xFFFFFFFFu;
    at[i] = 0xFFFFFFFFu;
  }
  if (different != 0) atomicAdd(others, different);
  long long const begin = clock64();
  while (clock64() - begin < 10000) {
  }
}

}  // namespace

void poison_shared_memory(int* others) {
  int device = 0, bytes = 0, multiprocessors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  cudaFuncSetAttribute(fill, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  fill<<<multiprocessors, 1024, bytes>>>(bytes / 4, others);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}
