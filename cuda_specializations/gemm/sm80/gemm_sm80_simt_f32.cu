// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

using SimtProduct =
    Sm80Product<SimtFloat, sm80_gemm_shapes::M128N128, sm80_gemm_shapes::M64N64Simt>;

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm80SimtF32::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::SimtProduct::accepts(cuda::refuse_sm80<cuda::SimtFloat>(args, device), args, device);
}
GemmTiles GemmSm80SimtF32::tiles(GemmArgs const& args, Device const& device) noexcept {
  return cuda::SimtProduct::tiles(accepts(args, device), args, device);
}
int GemmSm80SimtF32::launch(GemmArgs const& args, Device const& device,
                            CUstream_st* stream) noexcept {
  return cuda::SimtProduct::launch(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
