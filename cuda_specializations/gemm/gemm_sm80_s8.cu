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

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm80MmaS8::accepts(GemmArgs const& args, Device const& device) noexcept {
  using Shapes = cuda::Shapes<cuda::ByteElement>;
  return cuda::with_tile<Shapes::Large, Shapes::Small>(
      cuda::accepts_sm80<cuda::ByteElement>(args, device), args, device);
}

GemmTiles GemmSm80MmaS8::tiles(GemmArgs const& args, Device const& device) noexcept {
  using Shapes = cuda::Shapes<cuda::ByteElement>;
  return cuda::list_tiles_sm80<Shapes::Large, Shapes::Small>(accepts(args, device), args, device);
}

int GemmSm80MmaS8::launch(GemmArgs const& args, Device const& device,
                          CUstream_st* stream) noexcept {
  using Shapes = cuda::Shapes<cuda::ByteElement>;
  if (!accepts(args, device).ok) return cudaErrorInvalidValue;
  if (args.zero_point_a != nullptr || args.zero_point_b != nullptr)
    return cuda::run_sm80<cuda::LargeZeroPoints, cuda::SmallZeroPoints>(args, device, stream);
  return cuda::run_sm80<Shapes::Large, Shapes::Small>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
