// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm/sm90/launch_product.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {
namespace {
constexpr auto product = cuda::launch_16bit<cuda::Sm90ProductsF16>;
}

Verdict GemmSm90WgmmaF16::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::accepts_sm90<__half, __half>(args, device, product);
}

GemmTiles GemmSm90WgmmaF16::tiles(GemmArgs const& args, Device const& device) noexcept {
  return cuda::list_tiles_sm90<__half, __half>(args, device, product);
}

int GemmSm90WgmmaF16::launch(GemmArgs const& args, Device const& device,
                             CUstream_st* stream) noexcept {
  return cuda::run_sm90<__half, __half>(args, device, stream, product);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
