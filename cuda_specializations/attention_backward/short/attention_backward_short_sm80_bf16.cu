// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

Verdict AttentionBackwardSm80ShortBf16::accepts(AttentionBackwardArgs const& args,
                                                Device const& device) noexcept {
  return cuda::accepts_backward_short<__nv_bfloat16>(args, device);
}

std::size_t AttentionBackwardSm80ShortBf16::workspace_bytes(AttentionBackwardArgs const& args,
                                                            Device const& device) noexcept {
  return cuda::backward_short_bytes<__nv_bfloat16>(args, device);
}

int AttentionBackwardSm80ShortBf16::launch(AttentionBackwardArgs const& args, Device const& device,
                                           CUstream_st* stream) noexcept {
  return cuda::run_backward_short<__nv_bfloat16>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
