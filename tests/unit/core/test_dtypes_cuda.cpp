// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The element types beside CUDA's own: every code, and conversions of many floats, on the device.
// Empty where Kokkos has no CUDA.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <attikos/attikos.hpp>

#if defined(KOKKOS_ENABLE_CUDA)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

namespace attikos::test {

template <class T, class CudaType>
struct CompareWithCuda {
  using Bits = decltype(T::from_bits(0).bits);

  KOKKOS_FUNCTION static CudaType to_cuda(float x) {
    if constexpr (std::is_same_v<CudaType, __half>) return __float2half_rn(x);
    if constexpr (std::is_same_v<CudaType, __nv_bfloat16>) return __float2bfloat16_rn(x);
    if constexpr (std::is_same_v<CudaType, __nv_fp8_e4m3>) {
      CudaType y;
      y.__x = __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E4M3);
      return y;
    }
    if constexpr (std::is_same_v<CudaType, __nv_fp8_e5m2>) {
      CudaType y;
      y.__x = __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E5M2);
      return y;
    }
  }

  KOKKOS_FUNCTION static bool same(float a, float b) { return (a != a && b != b) || a == b; }

  /// `i` is a code for the first codes, and then the upper bits of a float.
  KOKKOS_FUNCTION void operator()(std::uint32_t i, int& wrong) const {
    if (i < (1u << (8 * sizeof(T)))) {
      auto const bits = static_cast<Bits>(i);
      float const theirs = static_cast<float>(__builtin_bit_cast(CudaType, bits));
      if (!same(static_cast<float>(T::from_bits(bits)), theirs)) ++wrong;
    }
    // Odd lower bits, zero lower bits (ties), all ones.
    for (std::uint32_t low : {0x0u, 0x1u, 0x7ffu}) {
      float const x = __builtin_bit_cast(float, (i << 11) | low);
      if (!same(static_cast<float>(T(x)), static_cast<float>(to_cuda(x)))) ++wrong;
    }
  }
};

template <class T, class CudaType>
void expect_same_as_cuda() {
  int wrong = -1;
  Kokkos::parallel_reduce("attikos_test",
                          Kokkos::RangePolicy<Kokkos::Cuda, std::uint32_t>(0, 1u << 21),
                          CompareWithCuda<T, CudaType>{}, wrong);
  EXPECT_EQ(wrong, 0) << "on the device";
  wrong = 0;
  for (std::uint32_t i = 0; i < (1u << 21); i += i < 0x10000u ? 1 : 7)
    CompareWithCuda<T, CudaType>{}(i, wrong);
  EXPECT_EQ(wrong, 0) << "on the host";
}

TEST(CudaTypes, Float16) { expect_same_as_cuda<float16, __half>(); }
TEST(CudaTypes, Bfloat16) { expect_same_as_cuda<bfloat16, __nv_bfloat16>(); }
TEST(CudaTypes, Float8E4m3) { expect_same_as_cuda<float8_e4m3, __nv_fp8_e4m3>(); }
TEST(CudaTypes, Float8E5m2) { expect_same_as_cuda<float8_e5m2, __nv_fp8_e5m2>(); }

}  // namespace attikos::test
#endif
