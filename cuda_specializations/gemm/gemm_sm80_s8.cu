// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm_sm80.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

template <bool MnA, bool MnB>
using LargeZeroPoints = Sm80Config<ByteElement, MnA, MnB, 128, 128, 64, 64, 3, 2, 100, true>;
template <bool MnA, bool MnB>
using SmallZeroPoints = Sm80Config<ByteElement, MnA, MnB, 64, 64, 32, 32, 4, 3, 125, true>;

using ByteProduct = Sm80Product<Shapes<ByteElement>::Large, Shapes<ByteElement>::Small>;
using ZeroPointsProduct = Sm80Product<LargeZeroPoints, SmallZeroPoints>;

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm80MmaS8::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::ByteProduct::accepts(cuda::refuse_sm80<cuda::ByteElement>(args, device), args,
                                    device);
}
GemmTiles GemmSm80MmaS8::tiles(GemmArgs const& args, Device const& device) noexcept {
  return cuda::ByteProduct::tiles(accepts(args, device), args, device);
}
int GemmSm80MmaS8::launch(GemmArgs const& args, Device const& device,
                          CUstream_st* stream) noexcept {
  Verdict const verdict = accepts(args, device);
  if (args.zero_point_a != nullptr || args.zero_point_b != nullptr)
    return cuda::ZeroPointsProduct::launch(verdict, args, device, stream);
  return cuda::ByteProduct::launch(verdict, args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
