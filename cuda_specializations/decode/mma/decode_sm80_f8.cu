// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

Verdict DecodeSm80MmaE4m3::accepts(DecodeArgs const& args, Device const& device) noexcept {
  return cuda::accepts_decode<__nv_fp8_e4m3>(args, device);
}

std::size_t DecodeSm80MmaE4m3::workspace_bytes(DecodeArgs const& args,
                                               Device const& device) noexcept {
  return cuda::decode_workspace_bytes(args, device);
}

int DecodeSm80MmaE4m3::launch(DecodeArgs const& args, Device const& device,
                              CUstream_st* stream) noexcept {
  return cuda::run_decode<__nv_fp8_e4m3>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
