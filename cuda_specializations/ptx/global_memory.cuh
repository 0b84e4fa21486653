// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Accesses to device memory that the language has no words for: stores of a given width, stores
/// under a condition without a branch, prefetches.
///
/// Source: PTX ISA 9.0, "Data Movement and Conversion Instructions": "st", "prefetch";
/// "Predicated Execution".
#pragma once

#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Stores 16 bytes to a multiple of 16, by one instruction whatever is known of the address.
__device__ __forceinline__ void store_global_16(void* to, float4 const& x) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
               "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
               : "memory");
}

/// Stores 4 or 8 bytes to a multiple of as many where `wanted`, without a branch. Else `to` is not
/// followed.
__device__ __forceinline__ void store_global_if(bool wanted, void* to, float x) {
  asm volatile(
      "{\n.reg .pred wanted;\n"
      "setp.ne.s32 wanted, %0, 0;\n"
      "@wanted st.global.f32 [%1], %2;\n}" ::"r"(static_cast<int>(wanted)),
      "l"(__cvta_generic_to_global(to)), "f"(x)
      : "memory");
}
__device__ __forceinline__ void store_global_if(bool wanted, void* to, uint2 x) {
  asm volatile(
      "{\n.reg .pred wanted;\n"
      "setp.ne.s32 wanted, %0, 0;\n"
      "@wanted st.global.v2.u32 [%1], {%2, %3};\n}" ::"r"(static_cast<int>(wanted)),
      "l"(__cvta_generic_to_global(to)), "r"(x.x), "r"(x.y)
      : "memory");
}

/// Brings the line of an address to L1.
__device__ __forceinline__ void prefetch_l1(void const* from) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(__cvta_generic_to_global(from)));
}

/// Brings the 128 bytes that an address lies in into L2, where what is written to them later
/// arrives too. Before wait_for_previous_launch nothing else may be done with what that launch
/// writes.
__device__ __forceinline__ void prefetch_l2(void const* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(from)));
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
