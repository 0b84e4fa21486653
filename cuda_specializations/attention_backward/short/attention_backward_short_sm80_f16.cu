// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

Verdict AttentionBackwardSm80ShortF16::accepts(AttentionBackwardArgs const& args,
                                               Device const& device) noexcept {
  return cuda::accepts_backward_short<__half>(args, device);
}

std::size_t AttentionBackwardSm80ShortF16::workspace_bytes(AttentionBackwardArgs const& args,
                                                           Device const& device) noexcept {
  return cuda::backward_short_bytes<__half>(args, device);
}

int AttentionBackwardSm80ShortF16::launch(AttentionBackwardArgs const& args, Device const& device,
                                          CUstream_st* stream) noexcept {
  return cuda::run_backward_short<__half>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
