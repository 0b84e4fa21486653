// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm/sm90/launch_many.cuh"
#include "gemm/sm90/launch_product.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

cudaError_t Sm90ProductsF16::many_mn(abi::GemmArgs const& g, abi::Device const& device,
                                     Destination const& to) {
  if (major_a(g) != Major::mn) return launch_many<__half, __half, layouts::TT>(g, device, to);
  return major_b(g) == Major::mn ? launch_many<__half, __half, layouts::NT>(g, device, to)
                                 : launch_many<__half, __half, layouts::NN>(g, device, to);
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
