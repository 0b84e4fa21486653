// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Which register holds what, and what the compiler may conclude about it.
///
/// Source: PTX ISA 9.0, "setp", "selp", "mov".
#pragma once

#include <attikos/config.hpp>
#include <cstdint>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// From here on the compiler knows nothing of x: it neither works out what follows from x before
/// this point and keeps it in registers, nor takes up what it has of x already. No instruction.
template <class T>
__device__ __forceinline__ void make_opaque(T& x) {
  if constexpr (std::is_same_v<T, float>) {
    asm volatile("" : "+f"(x));
  } else if constexpr (std::is_same_v<T, double>) {
    asm volatile("" : "+d"(x));
  } else if constexpr (std::is_pointer_v<T>) {
    asm volatile("" : "+l"(x));
  } else {
    static_assert(std::is_integral_v<T> && sizeof(T) == 4);
    asm volatile("" : "+r"(x));
  }
}

/// `value` becomes x where i == n. One after the other for all registers of an array takes the one
/// that a number not known at compile time says; an index would send all of them to memory.
__device__ __forceinline__ void take_if_equal(std::uint32_t& value, std::uint32_t x, int i, int n) {
  asm("{\n.reg .pred here;\nsetp.eq.s32 here, %1, %2;\nselp.b32 %0, %3, %0, here;\n}"
      : "+r"(value)
      : "r"(i), "r"(n), "r"(x));
}
__device__ __forceinline__ void take_if_equal(double& value, double x, int i, int n) {
  asm("{\n.reg .pred here;\nsetp.eq.s32 here, %1, %2;\nselp.f64 %0, %3, %0, here;\n}"
      : "+d"(value)
      : "r"(i), "r"(n), "d"(x));
}

/// x in a register of its own, from this point among accesses to memory on: for what an
/// asynchronous product reads until then.
__device__ __forceinline__ std::uint32_t copy_register(std::uint32_t x) {
  std::uint32_t y;
  asm volatile("mov.b32 %0, %1;" : "=r"(y) : "r"(x) : "memory");
  return y;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
