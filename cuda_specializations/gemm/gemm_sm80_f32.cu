// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm_sm80.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

Verdict GemmSm80MmaTf32::accepts(GemmArgs const& args, Device const& device) noexcept {
  if (args.compute != Compute::tf32)
    return refused("it rounds factors to 11 significant bits, which compute = tf32 allows");
  using Shapes = cuda::Shapes<cuda::Tf32Element>;
  return cuda::with_tile<Shapes::Large, Shapes::Small>(
      cuda::accepts_sm80<cuda::Tf32Element>(args, device), args, device);
}

GemmTiles GemmSm80MmaTf32::tiles(GemmArgs const& args, Device const& device) noexcept {
  using Shapes = cuda::Shapes<cuda::Tf32Element>;
  return cuda::list_tiles_sm80<Shapes::Large, Shapes::Small>(accepts(args, device), args, device);
}

int GemmSm80MmaTf32::launch(GemmArgs const& args, Device const& device,
                            CUstream_st* stream) noexcept {
  using Shapes = cuda::Shapes<cuda::Tf32Element>;
  if (!accepts(args, device).ok) return cudaErrorInvalidValue;
  return cuda::run_sm80<Shapes::Large, Shapes::Small>(args, device, stream);
}

Verdict GemmSm80MmaTf32x3::accepts(GemmArgs const& args, Device const& device) noexcept {
  if (args.compute == Compute::ieee)
    return refused("it drops the lowest bits of products, which compute = tf32x3 allows");
  using Shapes = cuda::Shapes<cuda::Tf32x3Element>;
  return cuda::with_tile<Shapes::Medium, Shapes::Small>(
      cuda::accepts_sm80<cuda::Tf32x3Element>(args, device), args, device);
}

GemmTiles GemmSm80MmaTf32x3::tiles(GemmArgs const& args, Device const& device) noexcept {
  using Shapes = cuda::Shapes<cuda::Tf32x3Element>;
  return cuda::list_tiles_sm80<Shapes::Medium, Shapes::Small>(accepts(args, device), args, device);
}

int GemmSm80MmaTf32x3::launch(GemmArgs const& args, Device const& device,
                              CUstream_st* stream) noexcept {
  using Shapes = cuda::Shapes<cuda::Tf32x3Element>;
  if (!accepts(args, device).ok) return cudaErrorInvalidValue;
  return cuda::run_sm80<Shapes::Medium, Shapes::Small>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
