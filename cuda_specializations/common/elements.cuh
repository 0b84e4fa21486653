// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Elements of 8 and 16 bits as float32 and back, one and two at a time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <attikos/abi/dtype.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float widen(__nv_fp8_e4m3 x) { return static_cast<float>(x); }
__device__ __forceinline__ float widen(__nv_fp8_e5m2 x) { return static_cast<float>(x); }

/// Two elements of 16 bits in one word, the first in its lower half, rounded to nearest.
template <class T>
__device__ __forceinline__ std::uint32_t pack_pair(float x, float y);
template <>
__device__ __forceinline__ std::uint32_t pack_pair<__half>(float x, float y) {
  __half2 const h = __floats2half2_rn(x, y);
  return *reinterpret_cast<std::uint32_t const*>(&h);
}
template <>
__device__ __forceinline__ std::uint32_t pack_pair<__nv_bfloat16>(float x, float y) {
  __nv_bfloat162 const h = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<std::uint32_t const*>(&h);
}
__device__ __forceinline__ std::uint32_t pack_pair(DType type, float x, float y) {
  return type == DType::float16 ? pack_pair<__half>(x, y) : pack_pair<__nv_bfloat16>(x, y);
}

/// The two elements of a word.
template <class T>
__device__ __forceinline__ float2 widen_pair(std::uint32_t word);
template <>
__device__ __forceinline__ float2 widen_pair<__half>(std::uint32_t word) {
  return __half22float2(*reinterpret_cast<__half2 const*>(&word));
}
template <>
__device__ __forceinline__ float2 widen_pair<__nv_bfloat16>(std::uint32_t word) {
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}
__device__ __forceinline__ float2 widen_pair(DType type, std::uint32_t word) {
  return type == DType::float16 ? widen_pair<__half>(word) : widen_pair<__nv_bfloat16>(word);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
