// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Trait entries that hand attention on Kokkos::Cuda to the compiled companion.
#pragma once

#include <attikos/abi/attention_cuda.hpp>
#include <attikos/core/dispatch/dispatch.hpp>
#include <attikos/core/explain.hpp>

#if defined(KOKKOS_ENABLE_CUDA) && defined(ATTIKOS_HAVE_CUDA_COMPANION)
#include <attikos/core/dispatch/cuda_kernel.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <>
struct Specializations<op::Attention, Kokkos::Cuda, float16, float16> {
  using kernels =
      KernelList<CudaKernel<abi::AttentionSm90ShortF16>, CudaKernel<abi::AttentionSm80ShortF16>,
                 CudaKernel<abi::AttentionSm90WgmmaF16>, CudaKernel<abi::AttentionSm80MmaF16>,
                 CudaKernel<abi::AttentionSm75WmmaF16>>;
};
template <>
struct Specializations<op::Attention, Kokkos::Cuda, bfloat16, bfloat16> {
  using kernels =
      KernelList<CudaKernel<abi::AttentionSm90ShortBf16>, CudaKernel<abi::AttentionSm80ShortBf16>,
                 CudaKernel<abi::AttentionSm90WgmmaBf16>, CudaKernel<abi::AttentionSm80MmaBf16>>;
};
template <>
struct Specializations<op::Attention, Kokkos::Cuda, float, float> {
  using kernels =
      KernelList<CudaKernel<abi::AttentionSm80MmaTf32x3>, CudaKernel<abi::AttentionSm80SimtF32>>;
};

template <>
struct Specializations<op::Attention, Kokkos::Cuda, float8_e4m3, float16> {
  using kernels =
      KernelList<CudaKernel<abi::AttentionSm90WgmmaE4m3>, CudaKernel<abi::AttentionSm80MmaE4m3>>;
};
template <>
struct Specializations<op::Attention, Kokkos::Cuda, float8_e4m3, bfloat16> {
  using kernels =
      KernelList<CudaKernel<abi::AttentionSm90WgmmaE4m3>, CudaKernel<abi::AttentionSm80MmaE4m3>>;
};

template <>
struct Specializations<op::Attention, Kokkos::Cuda, double, double> {
  using kernels = KernelList<CudaKernel<abi::AttentionSm80MmaF64>>;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
#endif
