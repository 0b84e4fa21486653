// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

using namespace sm80_gemm_shapes;
using ZeroPointProduct = Sm80Product<ByteElement, ZeroPoints<M128N128>, ZeroPoints<M64N64>>;

}  // namespace

int launch_zero_points(abi::GemmArgs const& g, abi::Device const& device, CUstream_st* stream) {
  return ZeroPointProduct::launch(g, device, stream);
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
