// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm_sm80.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
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
  return cuda::run_sm80<Shapes::Large, Shapes::Small>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
