// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm/sm90/launch_many.cuh"
#include "gemm/sm90/launch_product.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

cudaError_t Sm90ProductsF16::many_k(abi::GemmArgs const& g, abi::Device const& device,
                                    Destination const& to) {
  return launch_many<__half, __half, layouts::TN>(g, device, to);
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
