// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm_sm80.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

Verdict GemmSm80MmaF16::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::accepts_sm80<cuda::HalfElement>(args, device);
}

int GemmSm80MmaF16::launch(GemmArgs const& args, Device const& device,
                           CUstream_st* stream) noexcept {
  using Shapes = cuda::Shapes<cuda::HalfElement>;
  if (!accepts(args, device).ok) return cudaErrorInvalidValue;
  return cuda::run_sm80<Shapes::Large, Shapes::Small>(args, device, stream);
}

Verdict GemmSm80MmaBf16::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::accepts_sm80<cuda::BfloatElement>(args, device);
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
