// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Whether several products fit in a warp: <H200, 8192 of 16 cubed> in a quarter of the time that
/// tensor cores need for one after the other, <32 cubed> in 0.84 of it, <64 cubed> in three times.
bool small_products(abi::GemmArgs const& g, abi::Device const& device) {
  return g.m <= 32 && g.n <= 32 && g.k <= 32 && abi::GemmSm80SmallF32::accepts(g, device).ok;
}

/// First reason not to take a call, whatever its precision; null if there is none.
template <class Type>
char const* refuse_float(abi::GemmArgs const& g, abi::Device const& device) {
  if (small_products(g, device)) return "several products without an extent above 32 fit in a warp";
  return refuse_sm80<Type>(g, device);
}

using Tf32Product = Sm80Product<Tf32Element>;
using Tf32x3Product = Sm80Product<Tf32x3Element, sm80_gemm_shapes::M128N64>;

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm80MmaTf32::accepts(GemmArgs const& args, Device const& device) noexcept {
  if (args.compute != Compute::tf32)
    return refused("it rounds factors to 11 significant bits, which compute = tf32 allows");
  return cuda::Tf32Product::accepts(cuda::refuse_float<cuda::Tf32Element>(args, device), args,
                                    device);
}
GemmTiles GemmSm80MmaTf32::tiles(GemmArgs const& args, Device const& device) noexcept {
  return cuda::Tf32Product::tiles(accepts(args, device), args, device);
}
int GemmSm80MmaTf32::launch(GemmArgs const& args, Device const& device,
                            CUstream_st* stream) noexcept {
  return cuda::Tf32Product::launch(args, device, stream);
}

Verdict GemmSm80MmaTf32x3::accepts(GemmArgs const& args, Device const& device) noexcept {
  if (args.compute == Compute::ieee)
    return refused("it drops the lowest bits of products, which compute = tf32x3 allows");
  return cuda::Tf32x3Product::accepts(cuda::refuse_float<cuda::Tf32x3Element>(args, device), args,
                                      device);
}
GemmTiles GemmSm80MmaTf32x3::tiles(GemmArgs const& args, Device const& device) noexcept {
  return cuda::Tf32x3Product::tiles(accepts(args, device), args, device);
}
int GemmSm80MmaTf32x3::launch(GemmArgs const& args, Device const& device,
                              CUstream_st* stream) noexcept {
  return cuda::Tf32x3Product::launch(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
