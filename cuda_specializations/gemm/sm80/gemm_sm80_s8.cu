// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Launches a call with zero points, whose kernels have a translation unit of their own.
int launch_zero_points(abi::GemmArgs const& g, abi::Device const& device, CUstream_st* stream);

namespace {

using ByteProduct = Sm80Product<ByteElement>;

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm80MmaS8::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::ByteProduct::accepts(cuda::refuse_sm80<cuda::ByteElement>(args, device), args,
                                    device);
}
GemmTiles GemmSm80MmaS8::tiles(GemmArgs const& args, Device const& device) noexcept {
  return cuda::ByteProduct::tiles(accepts(args, device), args, device);
}
int GemmSm80MmaS8::launch(GemmArgs const& args, Device const& device,
                          CUstream_st* stream) noexcept {
  if (args.zero_point_a != nullptr || args.zero_point_b != nullptr)
    return cuda::launch_zero_points(args, device, stream);
  return cuda::ByteProduct::launch(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
