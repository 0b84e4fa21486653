// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention_backward/sm90/launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

Verdict AttentionBackwardSm90WgmmaF16::accepts(AttentionBackwardArgs const& args,
                                               Device const& device) noexcept {
  char const* const reason = cuda::refuse_backward_sm90<__half>(args, device);
  return reason == nullptr ? accepted() : refused(reason);
}

std::size_t AttentionBackwardSm90WgmmaF16::workspace_bytes(AttentionBackwardArgs const& args,
                                                           Device const& device) noexcept {
  return cuda::backward_sm90_bytes<__half>(args, device);
}

int AttentionBackwardSm90WgmmaF16::launch(AttentionBackwardArgs const& args, Device const& device,
                                          CUstream_st* stream) noexcept {
  return cuda::run_backward_sm90<__half>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
