// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The CUDA run time's functions that the companion calls, of which the n-th call fails: a program
/// whose linker wraps these functions has those of failing_cuda.cpp in their place.
#pragma once

#include <cuda_runtime.h>

#include <string>

namespace attikos::test {

/// What became of the calls made while a fault was waiting.
struct CudaCalls {
  long count = 0;      ///< calls before the one that failed, or all
  long launches = 0;   ///< of these, kernels that were launched
  std::string failed;  ///< name of the one that failed; empty if none did
};

/// The `nth` call from here on fails with this status, from 0; the functions do nothing then, and
/// the status becomes the thread's last error, as the run time's own failures do.
void fail_cuda_call(long nth, cudaError_t status);

/// No call fails from here on.
CudaCalls stop_failing_cuda_calls();

}  // namespace attikos::test
