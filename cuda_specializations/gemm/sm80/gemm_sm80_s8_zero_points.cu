// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

template <bool MnA, bool MnB>
using LargeZeroPoints = Sm80Config<ByteElement, MnA, MnB, 128, 128, 64, 64, 3, 2, 100, true>;
template <bool MnA, bool MnB>
using SmallZeroPoints = Sm80Config<ByteElement, MnA, MnB, 64, 64, 32, 32, 4, 3, 125, true>;

}  // namespace

int launch_zero_points(abi::GemmArgs const& g, abi::Device const& device, CUstream_st* stream) {
  return Sm80Product<LargeZeroPoints, SmallZeroPoints>::launch(g, device, stream);
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
