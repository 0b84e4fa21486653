// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

template <bool MnA, bool MnB>
using LargeDouble = Sm80Config<DoubleElement<1>, MnA, MnB, 128, 128, 64, 32, 3, 1, 100>;
template <bool MnA, bool MnB>
using SmallDouble = Sm80Config<DoubleElement<1>, MnA, MnB, 64, 64, 32, 32, 4, 3, 105>;

using DoubleProduct = Sm80Product<LargeDouble, SmallDouble>;

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
