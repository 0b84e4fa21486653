// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Trait entries that hand decode on Kokkos::Cuda to the compiled companion.
#pragma once

#include <attikos/abi/decode_cuda.hpp>
#include <attikos/core/dispatch/dispatch.hpp>
#include <attikos/core/explain.hpp>

#if defined(KOKKOS_ENABLE_CUDA) && defined(ATTIKOS_HAVE_CUDA_COMPANION)
#include <attikos/core/dispatch/cuda_kernel.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <>
struct Specializations<op::Decode, Kokkos::Cuda, float16, float16> {
  using kernels = KernelList<CudaKernel<abi::DecodeSm80MmaF16>, CudaKernel<abi::DecodeSm80SimtF16>>;
};
template <>
struct Specializations<op::Decode, Kokkos::Cuda, bfloat16, bfloat16> {
  using kernels =
      KernelList<CudaKernel<abi::DecodeSm80MmaBf16>, CudaKernel<abi::DecodeSm80SimtBf16>>;
};
template <>
struct Specializations<op::Decode, Kokkos::Cuda, float, float> {
  using kernels = KernelList<CudaKernel<abi::DecodeSm80SimtF32>>;
};
template <>
struct Specializations<op::Decode, Kokkos::Cuda, double, double> {
  using kernels = KernelList<CudaKernel<abi::DecodeSm80SimtF64>>;
};
template <>
struct Specializations<op::Decode, Kokkos::Cuda, float8_e4m3, float16> {
  using kernels = KernelList<CudaKernel<abi::DecodeSm80MmaE4m3>>;
};
template <>
struct Specializations<op::Decode, Kokkos::Cuda, float8_e4m3, bfloat16> {
  using kernels = KernelList<CudaKernel<abi::DecodeSm80MmaE4m3>>;
};
template <>
struct Specializations<op::Decode, Kokkos::Cuda, float8_e4m3, float> {
  using kernels = KernelList<CudaKernel<abi::DecodeSm80MmaE4m3>>;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
#endif
