// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm/sm90/launch_8bit.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

cudaError_t Sm90ProductsF8::e4m3(abi::GemmArgs const& g, abi::Device const& device,
                                 Destination const& to) {
  return launch_8bit<__nv_fp8_e4m3, __nv_fp8_e4m3>(g, device, to);
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
