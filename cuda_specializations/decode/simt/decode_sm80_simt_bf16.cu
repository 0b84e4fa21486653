// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

Verdict DecodeSm80SimtBf16::accepts(DecodeArgs const& args, Device const& device) noexcept {
  return cuda::accepts_simt_decode<__nv_bfloat16>(args, device);
}

std::size_t DecodeSm80SimtBf16::workspace_bytes(DecodeArgs const& args,
                                                Device const& device) noexcept {
  return cuda::simt_decode_workspace_bytes<__nv_bfloat16>(args, device);
}

int DecodeSm80SimtBf16::launch(DecodeArgs const& args, Device const& device,
                               CUstream_st* stream) noexcept {
  return cuda::run_simt_decode<__nv_bfloat16>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
