// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm_sm80.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Whether several products fit in a warp: <H200, 8192 of 16 cubed> in a quarter of the time that
/// tensor cores need for one after the other, <32 cubed> in 0.84 of it, <64 cubed> in three times.
bool small_products(abi::GemmArgs const& g, abi::Device const& device) {
  return g.m <= 32 && g.n <= 32 && g.k <= 32 && abi::GemmSm80SmallF32::accepts(g, device).ok;
}
constexpr char const* are_small = "several products without an extent above 32 fit in a warp";

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm80MmaTf32::accepts(GemmArgs const& args, Device const& device) noexcept {
  if (args.compute != Compute::tf32)
    return refused("it rounds factors to 11 significant bits, which compute = tf32 allows");
  if (cuda::small_products(args, device)) return refused(cuda::are_small);
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
  if (cuda::small_products(args, device)) return refused(cuda::are_small);
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
