// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

Verdict DecodeSm80SimtF64::accepts(DecodeArgs const& args, Device const& device) noexcept {
  return cuda::accepts_simt_decode<double>(args, device);
}

std::size_t DecodeSm80SimtF64::workspace_bytes(DecodeArgs const& args,
                                               Device const& device) noexcept {
  return cuda::simt_decode_workspace_bytes<double>(args, device);
}

int DecodeSm80SimtF64::launch(DecodeArgs const& args, Device const& device,
                              CUstream_st* stream) noexcept {
  return cuda::run_simt_decode<double>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
