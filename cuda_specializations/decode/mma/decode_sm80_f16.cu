// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

Verdict DecodeSm80MmaF16::accepts(DecodeArgs const& args, Device const& device) noexcept {
  return cuda::accepts_decode<__half>(args, device);
}

std::size_t DecodeSm80MmaF16::workspace_bytes(DecodeArgs const& args,
                                              Device const& device) noexcept {
  return cuda::decode_workspace_bytes(args, device);
}

int DecodeSm80MmaF16::launch(DecodeArgs const& args, Device const& device,
                             CUstream_st* stream) noexcept {
  return cuda::run_decode<__half>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
