// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// cuBLAS as a peer, on the stream of the execution space instance.
#pragma once

#include <cublas_v2.h>

#include <attikos/core/dtypes.hpp>
#include <cstdint>
#include <stdexcept>
#include <support/settings.hpp>
#include <type_traits>

namespace attikos::perf {

/// C = op(A)·op(B), row-major and contiguous. float32 is IEEE float32 here, as in Attikos.
class Cublas {
 public:
  explicit Cublas(Exec const& exec) {
    check(cublasCreate(&handle_));
    check(cublasSetStream(handle_, exec.cuda_stream()));
    check(cublasSetMathMode(handle_, CUBLAS_PEDANTIC_MATH));
  }
  Cublas(Cublas const&) = delete;
  Cublas& operator=(Cublas const&) = delete;
  ~Cublas() { cublasDestroy(handle_); }

  template <class A, class C>
  void gemm(int m, int n, int k, bool trans_a, bool trans_b, A const* a, A const* b, C* c) const {
    using Scalar =
        std::conditional_t<std::is_same_v<C, double>, double,
                           std::conditional_t<std::is_integral_v<C>, std::int32_t, float>>;
    constexpr cublasComputeType_t compute = std::is_same_v<C, double>  ? CUBLAS_COMPUTE_64F
                                            : std::is_integral_v<C>    ? CUBLAS_COMPUTE_32I
                                            : std::is_same_v<A, float> ? CUBLAS_COMPUTE_32F_PEDANTIC
                                                                       : CUBLAS_COMPUTE_32F;
    Scalar const one = 1;
    Scalar const zero = 0;
    // Column-major Cᵀ = op(B)ᵀ·op(A)ᵀ is row-major C.
    check(cublasGemmEx(handle_, trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                       trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k, &one, b, type<A>(),
                       trans_b ? k : n, a, type<A>(), trans_a ? m : k, &zero, c, type<C>(), n,
                       compute, CUBLAS_GEMM_DEFAULT));
  }

 private:
  template <class T>
  static constexpr cudaDataType_t type() {
    if constexpr (std::is_same_v<T, double>) return CUDA_R_64F;
    if constexpr (std::is_same_v<T, float>) return CUDA_R_32F;
    if constexpr (std::is_same_v<T, float16>) return CUDA_R_16F;
    if constexpr (std::is_same_v<T, bfloat16>) return CUDA_R_16BF;
    if constexpr (std::is_same_v<T, std::int8_t>) return CUDA_R_8I;
    return CUDA_R_32I;
  }
  static void check(cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS)
      throw std::runtime_error(std::string("cuBLAS: ") + cublasGetStatusString(status));
  }

  cublasHandle_t handle_ = nullptr;
};

}  // namespace attikos::perf
