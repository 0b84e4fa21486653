// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch_sm80.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

Verdict AttentionSm80ShortBf16::accepts(AttentionArgs const& args, Device const& device) noexcept {
  return cuda::accepts_short<__nv_bfloat16>(args, device);
}

int AttentionSm80ShortBf16::launch(AttentionArgs const& args, Device const& device,
                                   CUstream_st* stream) noexcept {
  return cuda::run_short<__nv_bfloat16>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
