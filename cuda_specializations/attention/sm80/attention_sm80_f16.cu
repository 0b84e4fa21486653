// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

Verdict AttentionSm80MmaF16::accepts(AttentionArgs const& args, Device const& device) noexcept {
  return cuda::accepts_sm80_attention<__half>(args, device);
}

int AttentionSm80MmaF16::launch(AttentionArgs const& args, Device const& device,
                                CUstream_st* stream) noexcept {
  return cuda::run_sm80_attention<__half>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
