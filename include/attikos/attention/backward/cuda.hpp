// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Trait entries that hand attention's gradients on Kokkos::Cuda to the compiled companion.
#pragma once

#include <attikos/abi/attention_backward_cuda.hpp>
#include <attikos/core/dispatch/dispatch.hpp>
#include <attikos/core/explain.hpp>

#if defined(KOKKOS_ENABLE_CUDA) && defined(ATTIKOS_HAVE_CUDA_COMPANION)
#include <attikos/core/dispatch/cuda_kernel.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <>
struct Specializations<op::AttentionBackward, Kokkos::Cuda, float16> {
  using kernels = KernelList<CudaKernel<abi::AttentionBackwardSm80ShortF16>,
                             CudaKernel<abi::AttentionBackwardSm90WgmmaF16>,
                             CudaKernel<abi::AttentionBackwardSm80MmaF16>>;
};
template <>
struct Specializations<op::AttentionBackward, Kokkos::Cuda, bfloat16> {
  using kernels = KernelList<CudaKernel<abi::AttentionBackwardSm80ShortBf16>,
                             CudaKernel<abi::AttentionBackwardSm90WgmmaBf16>,
                             CudaKernel<abi::AttentionBackwardSm80MmaBf16>>;
};
template <>
struct Specializations<op::AttentionBackward, Kokkos::Cuda, float> {
  using kernels = KernelList<CudaKernel<abi::AttentionBackwardSm80MmaTf32x3>,
                             CudaKernel<abi::AttentionBackwardSm80SimtF32>>;
};
template <>
struct Specializations<op::AttentionBackward, Kokkos::Cuda, double> {
  using kernels = KernelList<CudaKernel<abi::AttentionBackwardSm80MmaF64>>;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
#endif
