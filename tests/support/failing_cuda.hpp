// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// CUDA's run time, of whose functions the n-th call fails: a program whose linker wraps those of
/// failing_cuda_functions.hpp has those of failing_cuda.cpp in their place.
#pragma once

#include <cuda_runtime.h>

#include <set>
#include <string>

namespace attikos::test {

/// What became of the calls made while a fault was waiting.
struct CudaCalls {
  long count = 0;              ///< calls before the one that failed, or all
  long launches = 0;           ///< of these, kernels that were launched
  std::string failed;          ///< name of the one that failed; empty if none did
  bool failed_launch = false;  ///< that one launches a kernel
};

/// The `nth` call from here on fails with this status, from 0; of one function alone if it is
/// named. It does nothing then, and the status becomes the thread's last error, as of the run
/// time's own failures. To allocate no bytes does not fail: Kokkos does so before every launch of
/// teams, and would leave behind what it has taken for it.
void fail_cuda_call(long nth, cudaError_t status, std::set<std::string> functions = {});

/// No call fails from here on.
CudaCalls stop_failing_cuda_calls();

/// Allocations of device memory that were not freed.
long device_allocations();

}  // namespace attikos::test
