// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Ordinary accesses to shared memory by address. Where the compiler has lost sight of the address
/// space, as of a rounded-up address, it would use generic ones.
///
/// Source: PTX ISA 9.0, "Data Movement and Conversion Instructions": "ld", "st".
#pragma once

#include <attikos/config.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Address of something in shared memory as the instructions take it.
__device__ __forceinline__ std::uint32_t shared_address(void const* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

/// 16 bytes from a shared address, a multiple of 16. The compiler may move it over stores: for what
/// does not change between two barriers.
__device__ __forceinline__ float4 load_shared(std::uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address));
  return v;
}

/// 4 and 8 bytes as floats.
__device__ __forceinline__ float load_shared_word(std::uint32_t address) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ float2 load_shared_two(std::uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}

/// 16 bytes as floats. Unlike load_shared it stays where it stands among stores and barriers.
__device__ __forceinline__ float4 load_shared_four(std::uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
/// 16 bytes as float64.
__device__ __forceinline__ double2 load_shared_pair(std::uint32_t address) {
  double2 v;
  asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];" : "=d"(v.x), "=d"(v.y) : "r"(address) : "memory");
  return v;
}

/// 4, 8 and 16 bytes of floats, and two float64, to a shared address.
__device__ __forceinline__ void store_shared(std::uint32_t address, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}
__device__ __forceinline__ void store_shared(std::uint32_t address, float4 v) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(v.x), "f"(v.y),
               "f"(v.z), "f"(v.w)
               : "memory");
}

__device__ __forceinline__ void store_shared(std::uint32_t address, float2 v) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(v.x), "f"(v.y) : "memory");
}
__device__ __forceinline__ void store_shared(std::uint32_t address, double2 v) {
  asm volatile("st.shared.v2.f64 [%0], {%1, %2};" ::"r"(address), "d"(v.x), "d"(v.y) : "memory");
}

/// 4 and 8 bytes from a shared address.
__device__ __forceinline__ std::uint32_t load_shared_4(std::uint32_t address) {
  std::uint32_t value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}
__device__ __forceinline__ double load_shared_8(std::uint32_t address) {
  double value;
  asm volatile("ld.shared.f64 %0, [%1];" : "=d"(value) : "r"(address) : "memory");
  return value;
}

/// 16 bytes from a shared address.
__device__ __forceinline__ void load_shared_16(std::uint32_t (&words)[4], std::uint32_t address) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

/// 4 and 16 bytes to a shared address.
__device__ __forceinline__ void store_shared_4(std::uint32_t address, std::uint32_t word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}
__device__ __forceinline__ void store_shared_16(std::uint32_t address,
                                                std::uint32_t const (&words)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words[0]),
               "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
