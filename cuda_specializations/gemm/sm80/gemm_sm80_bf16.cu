// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

using BfloatProduct = Sm80Product<BfloatElement>;

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm80MmaBf16::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::BfloatProduct::accepts(cuda::refuse_sm80<cuda::BfloatElement>(args, device), args,
                                      device);
}
GemmTiles GemmSm80MmaBf16::tiles(GemmArgs const& args, Device const& device) noexcept {
  return cuda::BfloatProduct::tiles(accepts(args, device), args, device);
}
int GemmSm80MmaBf16::launch(GemmArgs const& args, Device const& device,
                            CUstream_st* stream) noexcept {
  return cuda::BfloatProduct::launch(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
