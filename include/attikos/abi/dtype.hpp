// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Element types as they are named on both sides of the wall between Kokkos code and CUDA kernels.
#pragma once

#include <attikos/config.hpp>
#include <cstdint>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define ATTIKOS_HD __host__ __device__
#else
/// Marks a function that kernels on any device may call. Used where Kokkos's own macro is not
/// available.
#define ATTIKOS_HD
#endif

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Element type of a tensor whose static type was left behind (kernel arguments, messages,
/// dispatch).
enum class DType : std::uint8_t {
  float64,
  float32,
  float16,
  bfloat16,
  float8_e4m3,
  float8_e5m2,
  int8,
  uint8,
  int32,
  int64
};

/// Name of an element type as messages spell it, e.g. "bfloat16".
constexpr char const* dtype_name(DType type) noexcept {
  switch (type) {
    case DType::float64:
      return "float64";
    case DType::float32:
      return "float32";
    case DType::float16:
      return "float16";
    case DType::bfloat16:
      return "bfloat16";
    case DType::float8_e4m3:
      return "float8_e4m3";
    case DType::float8_e5m2:
      return "float8_e5m2";
    case DType::int8:
      return "int8";
    case DType::uint8:
      return "uint8";
    case DType::int32:
      return "int32";
    case DType::int64:
      return "int64";
  }
  return "unknown";
}

/// Size of one element in bytes.
constexpr int dtype_size(DType type) noexcept {
  switch (type) {
    case DType::float64:
    case DType::int64:
      return 8;
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::float16:
    case DType::bfloat16:
      return 2;
    default:
      return 1;
  }
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
