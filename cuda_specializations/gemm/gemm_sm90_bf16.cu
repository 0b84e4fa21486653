// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm_sm90.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

Verdict GemmSm90WgmmaBf16::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::accepts_sm90<__nv_bfloat16, __nv_bfloat16>(args, device);
}

GemmTiles GemmSm90WgmmaBf16::tiles(GemmArgs const& args, Device const& device) noexcept {
  return cuda::list_tiles_sm90<__nv_bfloat16, __nv_bfloat16>(args, device);
}

int GemmSm90WgmmaBf16::launch(GemmArgs const& args, Device const& device,
                              CUstream_st* stream) noexcept {
  return cuda::run_sm90<__nv_bfloat16, __nv_bfloat16>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
