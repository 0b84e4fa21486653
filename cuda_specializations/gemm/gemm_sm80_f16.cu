// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm_sm80.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

Verdict GemmSm80MmaF16::accepts(GemmArgs const& args, Device const& device) noexcept {
  using Shapes = cuda::Shapes<cuda::HalfElement>;
  return cuda::with_tile<Shapes::Large, Shapes::Small>(
      cuda::accepts_sm80<cuda::HalfElement>(args, device), args, device);
}

GemmTiles GemmSm80MmaF16::tiles(GemmArgs const& args, Device const& device) noexcept {
  using Shapes = cuda::Shapes<cuda::HalfElement>;
  return cuda::list_tiles_sm80<Shapes::Large, Shapes::Small>(accepts(args, device), args, device);
}

int GemmSm80MmaF16::launch(GemmArgs const& args, Device const& device,
                           CUstream_st* stream) noexcept {
  using Shapes = cuda::Shapes<cuda::HalfElement>;
  if (!accepts(args, device).ok) return cudaErrorInvalidValue;
  return cuda::run_sm80<Shapes::Large, Shapes::Small>(args, device, stream);
}

Verdict GemmSm80MmaBf16::accepts(GemmArgs const& args, Device const& device) noexcept {
  using Shapes = cuda::Shapes<cuda::BfloatElement>;
  return cuda::with_tile<Shapes::Large, Shapes::Small>(
      cuda::accepts_sm80<cuda::BfloatElement>(args, device), args, device);
}

GemmTiles GemmSm80MmaBf16::tiles(GemmArgs const& args, Device const& device) noexcept {
  using Shapes = cuda::Shapes<cuda::BfloatElement>;
  return cuda::list_tiles_sm80<Shapes::Large, Shapes::Small>(accepts(args, device), args, device);
}

int GemmSm80MmaBf16::launch(GemmArgs const& args, Device const& device,
                            CUstream_st* stream) noexcept {
  using Shapes = cuda::Shapes<cuda::BfloatElement>;
  if (!accepts(args, device).ok) return cudaErrorInvalidValue;
  return cuda::run_sm80<Shapes::Large, Shapes::Small>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
