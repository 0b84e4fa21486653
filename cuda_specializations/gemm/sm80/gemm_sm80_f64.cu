// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

using DoubleProduct =
    Sm80Product<DoubleElement<1>, sm80_gemm_shapes::M128N128Double, sm80_gemm_shapes::M64N64Double>;

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm80MmaF64::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::DoubleProduct::accepts(cuda::refuse_sm80<cuda::DoubleElement<1>>(args, device), args,
                                      device);
}
GemmTiles GemmSm80MmaF64::tiles(GemmArgs const& args, Device const& device) noexcept {
  return cuda::DoubleProduct::tiles(accepts(args, device), args, device);
}
int GemmSm80MmaF64::launch(GemmArgs const& args, Device const& device,
                           CUstream_st* stream) noexcept {
  return cuda::DoubleProduct::launch(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
