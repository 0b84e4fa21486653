// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Trait entries that hand matrix products on Kokkos::Cuda to the compiled companion.
#pragma once

#include <attikos/abi/gemm.hpp>
#include <attikos/core/dispatch/dispatch.hpp>
#include <attikos/core/explain.hpp>

#if defined(KOKKOS_ENABLE_CUDA) && defined(ATTIKOS_HAVE_CUDA_COMPANION)
#include <attikos/core/dispatch/cuda_kernel.hpp>
#include <attikos/quantize/quantize_value.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Types of C that kernels with sums of floating-point or integer products round to.
template <class C>
concept KernelOutput = std::is_same_v<C, float> || std::is_same_v<C, float16> ||
    std::is_same_v<C, bfloat16> || is_quantized<C>;

template <>
struct Specializations<op::Gemm, Kokkos::Cuda, float16, float16, float> {
  using kernels = KernelList<CudaKernel<abi::GemmSm90WgmmaF16>, CudaKernel<abi::GemmSm90GroupedF16>,
                             CudaKernel<abi::GemmSm80MmaF16>, CudaKernel<abi::GemmSm75WmmaF16>>;
};
template <KernelOutput C>
struct Specializations<op::Gemm, Kokkos::Cuda, float16, float16, C> {
  using kernels = KernelList<CudaKernel<abi::GemmSm90WgmmaF16>, CudaKernel<abi::GemmSm90GroupedF16>,
                             CudaKernel<abi::GemmSm80MmaF16>>;
};

/// The first three take only calls that allow their rounding, the fourth batches of small products;
/// the last takes, from sm_80 on, what is left with a unit stride in A and in B.
template <>
struct Specializations<op::Gemm, Kokkos::Cuda, float, float, float> {
  using kernels = KernelList<CudaKernel<abi::GemmSm80MmaTf32>, CudaKernel<abi::GemmSm90WgmmaTf32x3>,
                             CudaKernel<abi::GemmSm80MmaTf32x3>, CudaKernel<abi::GemmSm80SmallF32>,
                             CudaKernel<abi::GemmSm90SimtF32>, CudaKernel<abi::GemmSm80SimtF32>>;
};

template <>
struct Specializations<op::Gemm, Kokkos::Cuda, double, double, double> {
  using kernels = KernelList<CudaKernel<abi::GemmSm80SmallF64>, CudaKernel<abi::GemmSm90MmaF64>,
                             CudaKernel<abi::GemmSm80MmaF64>>;
};

template <KernelOutput C>
struct Specializations<op::Gemm, Kokkos::Cuda, bfloat16, bfloat16, C> {
  using kernels =
      KernelList<CudaKernel<abi::GemmSm90WgmmaBf16>, CudaKernel<abi::GemmSm90GroupedBf16>,
                 CudaKernel<abi::GemmSm80MmaBf16>>;
};

template <class T>
concept Float8 = std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2>;

template <Float8 A, Float8 B, KernelOutput C>
struct Specializations<op::Gemm, Kokkos::Cuda, A, B, C> {
  using kernels = KernelList<CudaKernel<abi::GemmSm90WgmmaF8>, CudaKernel<abi::GemmSm90GroupedF8>,
                             CudaKernel<abi::GemmSm89MmaF8>>;
};

template <class C>
requires(KernelOutput<C> ||
         std::is_same_v<C, std::int32_t>) struct Specializations<op::Gemm, Kokkos::Cuda,
                                                                 std::int8_t, std::int8_t, C> {
  using kernels = KernelList<CudaKernel<abi::GemmSm90WgmmaS8>, CudaKernel<abi::GemmSm90GroupedS8>,
                             CudaKernel<abi::GemmSm80MmaS8>>;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
#endif
