// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention_backward/sm80/family_16.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

Verdict AttentionBackwardSm80MmaBf16::accepts(AttentionBackwardArgs const& args,
                                              Device const& device) noexcept {
  return cuda::accepts_backward_sm80<cuda::BackwardFamily16<__nv_bfloat16>>(args, device);
}

std::size_t AttentionBackwardSm80MmaBf16::workspace_bytes(AttentionBackwardArgs const& args,
                                                          Device const& device) noexcept {
  return cuda::backward_sm80_bytes<cuda::BackwardFamily16<__nv_bfloat16>>(args, device);
}

int AttentionBackwardSm80MmaBf16::launch(AttentionBackwardArgs const& args, Device const& device,
                                         CUstream_st* stream) noexcept {
  return cuda::run_backward_sm80<cuda::BackwardFamily16<__nv_bfloat16>>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
