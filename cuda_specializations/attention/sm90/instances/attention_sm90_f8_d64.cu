// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/sm90/plan.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

cudaError_t Sm90LaunchesE4m3::to_64(abi::AttentionArgs const& g, abi::Device const& device,
                                    CUstream_st* stream) {
  return launch_to_64<__nv_fp8_e4m3>(g, device, stream);
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
