// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch_sm90.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

Verdict AttentionSm90ShortF16::accepts(AttentionArgs const& args, Device const& device) noexcept {
  return cuda::accepts_short<__half>(args, device);
}

int AttentionSm90ShortF16::launch(AttentionArgs const& args, Device const& device,
                                  CUstream_st* stream) noexcept {
  return cuda::run_short<__half>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
