// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// From <H200, CUDA 13.0, TFLOP/s of large and small tiles>: 1024³ 19.5, 28.8; 1536³ 25.0, 29.7;
/// 2048³ 45.1, 34.6; 3072³ 40.5, 35.5; 4096³ 45 to 47 whatever the layouts and alignments, where
/// cuBLAS has 49 to 52.
template <bool MnA, bool MnB>
using LargeSimt = SimtF32Config<MnA, MnB, 128, 128, 64, 64, 3, 2, 100>;
template <bool MnA, bool MnB>
using SmallSimt = SimtF32Config<MnA, MnB, 64, 64, 32, 32, 3, 4, 125>;

using SimtProduct = Sm80Product<LargeSimt, SmallSimt>;

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm80SimtF32::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::SimtProduct::accepts(cuda::refuse_sm80<cuda::SimtFloat>(args, device), args, device);
}
GemmTiles GemmSm80SimtF32::tiles(GemmArgs const& args, Device const& device) noexcept {
  return cuda::SimtProduct::tiles(accepts(args, device), args, device);
}
int GemmSm80SimtF32::launch(GemmArgs const& args, Device const& device,
                            CUstream_st* stream) noexcept {
  return cuda::SimtProduct::launch(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
