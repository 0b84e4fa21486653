// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Loads of matrix fragments by a warp (ldmatrix, sm_75).
///
/// Source: PTX ISA 9.0, "Warp-level matrix load instruction: ldmatrix".
#pragma once

#include <attikos/config.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Four matrices of 8 rows of 16 bytes; lane 8 i + r gives the shared address of row r of matrix i.
/// Lane 4 g + q gets 4 bytes of each: number q of row g. `Transposed`: of 16-bit elements, element
/// g of rows 2 q and 2 q + 1.
template <bool Transposed = false>
__device__ __forceinline__ void load_matrices(std::uint32_t (&d)[4], std::uint32_t address) {
  if constexpr (Transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(address)
                 : "memory");
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
