// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Conversions to and from the number formats that only tensor cores compute in.
///
/// Source: PTX ISA 9.0, "Data Movement and Conversion Instructions: cvt".
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <attikos/config.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// float32 rounded to the 11 significant bits of tf32, halves away from zero, as bits of float32.
/// NaN stays NaN, but for one of which only the lowest 13 bits say so: Hopper makes it infinity, as
/// its tensor cores take such a NaN anyway. sm_80.
__device__ __forceinline__ std::uint32_t round_tf32(float x) {
  std::uint32_t y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}

/// Four numbers as float8 of a format, the first in the lowest byte, halves to even. What is too
/// large, infinity too, becomes the largest; NaN stays NaN. One instruction for two on sm_89, by
/// CUDA's function, which takes many before.
template <__nv_fp8_interpretation_t Format>
__device__ __forceinline__ std::uint32_t round_to_float8(float4 v) {
  std::uint32_t const low = __nv_cvt_float2_to_fp8x2({v.x, v.y}, __NV_SATFINITE, Format);
  return low |
         static_cast<std::uint32_t>(__nv_cvt_float2_to_fp8x2({v.z, v.w}, __NV_SATFINITE, Format))
             << 16;
}

/// Four numbers of float8_e4m3, the first in the lowest byte, as float16, which holds them all.
/// One instruction for two on sm_89; before, a few of integers and a product.
__device__ __forceinline__ void widen_four(std::uint32_t x, std::uint32_t& low,
                                           std::uint32_t& high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{\n.reg .b16 two, next;\n"
      "mov.b32 {two, next}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, two;\n"
      "cvt.rn.f16x2.e4m3x2 %1, next;\n}"
      : "=r"(low), "=r"(high)
      : "r"(x));
#else
  // As bits of float16 they are 2^-8 of what they stand for; NaN, the largest, gets the highest bit
  // of an exponent that is NaN's.
  auto const pair = [&](unsigned selector) {
    std::uint32_t const bytes = __byte_perm(x, 0, selector);
    std::uint32_t const half = bytes >> 1 & 0x3f803f80u;
    std::uint32_t const bits = (bytes - half) | ((half + 0x00800080u) & 0x40004000u);
    __half2 const y = __hmul2(*reinterpret_cast<__half2 const*>(&bits), __float2half2_rn(256.0f));
    return *reinterpret_cast<std::uint32_t const*>(&y);
  };
  low = pair(0x1404), high = pair(0x3424);
#endif
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
