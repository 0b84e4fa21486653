// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Matrix products of a warp (mma.sync), one wrapper per instruction.
///
/// D[16, 8] += A[16, 32 bytes of K] · B[32 bytes of K, 8]. Lane 4 g + q holds in
/// - a[h + 2 l]: of row g + 8 h of A, bytes 4 q ... 4 q + 3 of half l of the 32;
/// - b0, b1: the same of column g of B, halves 0 and 1;
/// - d[j + 2 h]: row g + 8 h, column 2 q + j.
///
/// Source: PTX ISA 9.0, "Matrix multiply-accumulate operation using mma instruction".
#pragma once

#include <attikos/config.hpp>
#include <cstdint>

#if defined(__CUDACC__)
namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

#define ATTIKOS_MMA(instruction, constraint)                                                  \
  asm volatile(instruction " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : constraint(d[0]), constraint(d[1]), constraint(d[2]), constraint(d[3])       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

/// m16n8k16, sm_80.
__device__ __forceinline__ void mma_f16(float (&d)[4], std::uint32_t const (&a)[4],
                                        std::uint32_t b0, std::uint32_t b1) {
  ATTIKOS_MMA("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "+f");
}
__device__ __forceinline__ void mma_bf16(float (&d)[4], std::uint32_t const (&a)[4],
                                         std::uint32_t b0, std::uint32_t b1) {
  ATTIKOS_MMA("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "+f");
}
/// m16n8k8, sm_80. Factors are float32 bits, of which the lowest 13 are not looked at.
__device__ __forceinline__ void mma_tf32(float (&d)[4], std::uint32_t const (&a)[4],
                                         std::uint32_t b0, std::uint32_t b1) {
  ATTIKOS_MMA("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "+f");
}
/// m16n8k32, sm_80; sums wrap.
__device__ __forceinline__ void mma_s8(int (&d)[4], std::uint32_t const (&a)[4], std::uint32_t b0,
                                       std::uint32_t b1) {
  ATTIKOS_MMA("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "+r");
}

/// m16n8k32 of float8 in any mix, sm_89. `A5`, `B5`: e5m2, else e4m3.
template <bool A5, bool B5>
__device__ __forceinline__ void mma_f8(float (&d)[4], std::uint32_t const (&a)[4], std::uint32_t b0,
                                       std::uint32_t b1) {
  if constexpr (A5 && B5)
    ATTIKOS_MMA("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32", "+f");
  else if constexpr (A5)
    ATTIKOS_MMA("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32", "+f");
  else if constexpr (B5)
    ATTIKOS_MMA("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", "+f");
  else
    ATTIKOS_MMA("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "+f");
}
#undef ATTIKOS_MMA

/// float64 for Steps times 4 k: x[2 s + h] is the element (g + 8 h, 4 s + q) of A, y[s] is
/// (4 s + q, g) of B. One instruction on sm_90; before, two of 8 rows for each 4 k.
template <int Steps>
__device__ __forceinline__ void mma_f64(double (&d)[4], double const (&x)[2 * Steps],
                                        double const (&y)[Steps]) {
  static_assert(Steps == 1 || Steps == 2 || Steps == 4);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (Steps == 1) {
    asm volatile(
        "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(x[0]), "d"(x[1]), "d"(y[0]));
  } else if constexpr (Steps == 2) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(x[0]), "d"(x[1]), "d"(x[2]), "d"(x[3]), "d"(y[0]), "d"(y[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, "
        "%9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(x[0]), "d"(x[1]), "d"(x[2]), "d"(x[3]), "d"(x[4]), "d"(x[5]), "d"(x[6]), "d"(x[7]),
          "d"(y[0]), "d"(y[1]), "d"(y[2]), "d"(y[3]));
  }
#else
#pragma unroll
  for (int s = 0; s < Steps; ++s)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                   : "+d"(d[2 * h]), "+d"(d[2 * h + 1])
                   : "d"(x[2 * s + h]), "d"(y[s]));
#endif
}

/// The same for 8 rows and 4 k: x is the element (g, q) of A, y is (q, g) of B.
__device__ __forceinline__ void mma_f64_8_rows(double (&d)[2], double x, double y) {
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
               : "+d"(d[0]), "+d"(d[1])
               : "d"(x), "d"(y));
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
#endif
