// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Trait entries that hand gated MLPs on Kokkos::Cuda to the compiled companion.
#pragma once

#include <attikos/abi/gated_mlp.hpp>
#include <attikos/core/dispatch/dispatch.hpp>
#include <attikos/core/explain.hpp>
#include <type_traits>

#if defined(KOKKOS_ENABLE_CUDA) && defined(ATTIKOS_HAVE_CUDA_COMPANION)
#include <attikos/core/dispatch/cuda_kernel.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class Out>
requires(std::is_same_v<Out, float16> ||
         std::is_same_v<Out, float>) struct Specializations<op::GatedMlp, Kokkos::Cuda, float16,
                                                            float16, Out> {
  using kernels = KernelList<CudaKernel<abi::GatedMlpSm90WgmmaF16>>;
};
template <class Out>
requires(std::is_same_v<Out, bfloat16> ||
         std::is_same_v<Out, float>) struct Specializations<op::GatedMlp, Kokkos::Cuda, bfloat16,
                                                            bfloat16, Out> {
  using kernels = KernelList<CudaKernel<abi::GatedMlpSm90WgmmaBf16>>;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
#endif
