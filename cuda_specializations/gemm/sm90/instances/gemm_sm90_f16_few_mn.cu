// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm/sm90/launch_few.cuh"
#include "gemm/sm90/launch_product.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

cudaError_t Sm90ProductsF16::few_mn(int width, abi::GemmArgs const& g, abi::Device const& device,
                                    Destination const& to) {
  return major_b(g) == Major::mn ? launch_few<__half, __half, layouts::NT>(width, g, device, to)
                                 : launch_few<__half, __half, layouts::NN>(width, g, device, to);
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
