// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Launches that begin while the one before them ends, in kernels that older cards run too.
///
/// Source: PTX ISA 9.0, "griddepcontrol".
#pragma once

#include "cluster.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Launches are made dependent on the one before from sm_90 on.
__device__ __forceinline__ void wait_for_launch_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  wait_for_previous_launch();
#endif
}
__device__ __forceinline__ void allow_launch_behind() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  allow_next_launch();
#endif
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
