// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

using HalfProduct = Sm80Product<HalfElement>;

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm80MmaF16::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::HalfProduct::accepts(cuda::refuse_sm80<cuda::HalfElement>(args, device), args,
                                    device);
}
GemmTiles GemmSm80MmaF16::tiles(GemmArgs const& args, Device const& device) noexcept {
  return cuda::HalfProduct::tiles(accepts(args, device), args, device);
}
int GemmSm80MmaF16::launch(GemmArgs const& args, Device const& device,
                           CUstream_st* stream) noexcept {
  return cuda::HalfProduct::launch(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
