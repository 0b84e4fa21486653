// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Trait entries that hand append_kv on Kokkos::Cuda to the compiled companion.
#pragma once

#include <attikos/abi/append_kv_cuda.hpp>
#include <attikos/core/dispatch/dispatch.hpp>
#include <attikos/core/explain.hpp>

#if defined(KOKKOS_ENABLE_CUDA) && defined(ATTIKOS_HAVE_CUDA_COMPANION)
#include <attikos/core/dispatch/cuda_kernel.hpp>
#include <attikos/core/dtypes.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// The elements of new keys and of the cache. Those of queries and tables are `accepts`'s to judge.
struct AppendKvKernels {
  using kernels = KernelList<CudaKernel<abi::AppendKvSm80Simt>>;
};
template <>
struct Specializations<op::AppendKv, Kokkos::Cuda, double, double> : AppendKvKernels {};
template <>
struct Specializations<op::AppendKv, Kokkos::Cuda, float, float> : AppendKvKernels {};
template <>
struct Specializations<op::AppendKv, Kokkos::Cuda, float, float16> : AppendKvKernels {};
template <>
struct Specializations<op::AppendKv, Kokkos::Cuda, float, bfloat16> : AppendKvKernels {};
template <>
struct Specializations<op::AppendKv, Kokkos::Cuda, float, float8_e4m3> : AppendKvKernels {};
template <>
struct Specializations<op::AppendKv, Kokkos::Cuda, float, float8_e5m2> : AppendKvKernels {};
template <>
struct Specializations<op::AppendKv, Kokkos::Cuda, float16, float16> : AppendKvKernels {};
template <>
struct Specializations<op::AppendKv, Kokkos::Cuda, float16, float8_e4m3> : AppendKvKernels {};
template <>
struct Specializations<op::AppendKv, Kokkos::Cuda, float16, float8_e5m2> : AppendKvKernels {};
template <>
struct Specializations<op::AppendKv, Kokkos::Cuda, bfloat16, bfloat16> : AppendKvKernels {};
template <>
struct Specializations<op::AppendKv, Kokkos::Cuda, bfloat16, float8_e4m3> : AppendKvKernels {};
template <>
struct Specializations<op::AppendKv, Kokkos::Cuda, bfloat16, float8_e5m2> : AppendKvKernels {};
template <>
struct Specializations<op::AppendKv, Kokkos::Cuda, float8_e4m3, float8_e4m3> : AppendKvKernels {};
template <>
struct Specializations<op::AppendKv, Kokkos::Cuda, float8_e5m2, float8_e5m2> : AppendKvKernels {};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
#endif
