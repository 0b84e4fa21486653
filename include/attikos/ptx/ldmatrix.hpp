// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Loads of matrix fragments by a warp (ldmatrix, sm_75).
///
/// Source: PTX ISA 9.0, "Warp-level matrix load instruction: ldmatrix".
#pragma once

#include <attikos/config.hpp>
#include <cstdint>

#if defined(__CUDACC__)
namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

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

/// The same, transposed or not as all lanes say.
__device__ __forceinline__ void load_matrices_in_order(std::uint32_t (&d)[4], std::uint32_t address,
                                                       bool transposed) {
  asm volatile(
      "{\n"
      ".reg .pred transposed;\n"
      "setp.ne.u32 transposed, %5, 0;\n"
      "@transposed ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
      "@!transposed ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
      "}"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(address), "r"(static_cast<std::uint32_t>(transposed))
      : "memory");
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
#endif
