// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/sm90/launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

Verdict AttentionSm90WgmmaBf16::accepts(AttentionArgs const& args, Device const& device) noexcept {
  return cuda::accepts_attention<__nv_bfloat16>(args, device);
}

int AttentionSm90WgmmaBf16::launch(AttentionArgs const& args, Device const& device,
                                   CUstream_st* stream) noexcept {
  return cuda::run_attention<__nv_bfloat16, cuda::Sm90LaunchesBf16>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
