// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/sm90/plan.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

cudaError_t Sm90LaunchesBf16::to_128(abi::AttentionArgs const& g, abi::Device const& device,
                                     CUstream_st* stream) {
  return launch_to_128<__nv_bfloat16>(g, device, stream);
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
