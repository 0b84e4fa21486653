// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Trait entries that hand matrix products on Kokkos::Cuda to the compiled companion.
#pragma once

#include <attikos/abi/gemm.hpp>
#include <attikos/core/dispatch.hpp>
#include <attikos/core/explain.hpp>

#if defined(KOKKOS_ENABLE_CUDA) && defined(ATTIKOS_HAVE_CUDA_COMPANION)
#include <attikos/core/cuda_kernel.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <>
struct Specializations<op::Gemm, Kokkos::Cuda, float16, float16, float> {
  using kernels = KernelList<CudaKernel<abi::GemmSm75WmmaF16>>;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
#endif
