// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Numbers of which the compiler does not know where they are from.
#pragma once

#include <attikos/config.hpp>
#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Leaves x as it is.
__device__ __forceinline__ void make_opaque(std::int64_t& x) { asm volatile("" : "+l"(x)); }

/// Leaves p, which points to global memory, as it is: what is added to it is then added by one
/// instruction, not to each part of a sum that p once was.
template <class T>
__device__ __forceinline__ T* opaque_global(T* p) {
  std::size_t address = __cvta_generic_to_global(p);
  asm("" : "+l"(address));
  return static_cast<T*>(__cvta_global_to_generic(address));
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
#endif
