// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// cuBLASLt as a peer: its first heuristic, and the fastest of its first ten.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <Kokkos_Core.hpp>
#include <attikos/core/dtypes.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <support/settings.hpp>
#include <type_traits>
#include <vector>

namespace attikos::measure {

/// Factors on the device that cuBLASLt multiplies float8 operands by: of one element each, or with
/// `rows` one for every row of op(A) and column of op(B).
struct CublasLtScales {
  float const* a = nullptr;
  float const* b = nullptr;
  bool rows = false;
};

/// C = op(A)·op(B), row-major and contiguous. float32 is IEEE float32 here, as in Attikos, unless
/// `tf32` asks for less.
class CublasLt {
 public:
  /// `operand` and `result` are type_of<T>() of A and B, and of C.
  CublasLt(Exec const& exec, cudaDataType_t operand, cudaDataType_t result, int m, int n, int k,
           bool trans_a, bool trans_b, bool fast, bool tf32 = false,
           CublasLtScales const& scales = {})
      : stream_(exec.cuda_stream()), workspace_("cublaslt workspace", workspace_bytes + 256) {
    bool const integer = operand == CUDA_R_8I;
    bool const float8 = operand == CUDA_R_8F_E4M3 || operand == CUDA_R_8F_E5M2;
    compute_in_double_ = result == CUDA_R_64F;
    compute_in_integers_ = integer;
    check(cublasLtCreate(&handle_));
    cublasComputeType_t const compute = compute_in_double_      ? CUBLAS_COMPUTE_64F
                                        : integer               ? CUBLAS_COMPUTE_32I
                                        : tf32                  ? CUBLAS_COMPUTE_32F_FAST_TF32
                                        : operand == CUDA_R_32F ? CUBLAS_COMPUTE_32F_PEDANTIC
                                                                : CUBLAS_COMPUTE_32F;
    check(cublasLtMatmulDescCreate(&operation_, compute,
                                   compute_in_double_ ? CUDA_R_64F
                                   : integer          ? CUDA_R_32I
                                                      : CUDA_R_32F));
    // Column-major Cᵀ = op(B)ᵀ·op(A)ᵀ is row-major C.
    set(CUBLASLT_MATMUL_DESC_TRANSA, trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (float8 && fast) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});
    if (scales.a != nullptr) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.b);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales.a);
    }
    if (scales.rows) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
    }
    layout(&a_, operand, trans_b ? k : n, trans_b ? n : k);
    layout(&b_, operand, trans_a ? m : k, trans_a ? k : m);
    layout(&c_, result, n, m);
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference));
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &workspace_bytes, sizeof workspace_bytes));
    check(cublasLtMatmulAlgoGetHeuristic(handle_, operation_, a_, b_, c_, c_, preference, 10,
                                         found_, &count_));
    check(cublasLtMatmulPreferenceDestroy(preference));
  }
  CublasLt(CublasLt const&) = delete;
  CublasLt& operator=(CublasLt const&) = delete;
  ~CublasLt() {
    cublasLtMatrixLayoutDestroy(a_);
    cublasLtMatrixLayoutDestroy(b_);
    cublasLtMatrixLayoutDestroy(c_);
    cublasLtMatmulDescDestroy(operation_);
    cublasLtDestroy(handle_);
  }

  template <class T>
  static constexpr cudaDataType_t type_of() {
    if constexpr (std::is_same_v<T, double>) return CUDA_R_64F;
    if constexpr (std::is_same_v<T, float>) return CUDA_R_32F;
    if constexpr (std::is_same_v<T, float16>) return CUDA_R_16F;
    if constexpr (std::is_same_v<T, bfloat16>) return CUDA_R_16BF;
    if constexpr (std::is_same_v<T, float8_e4m3>) return CUDA_R_8F_E4M3;
    if constexpr (std::is_same_v<T, float8_e5m2>) return CUDA_R_8F_E5M2;
    if constexpr (std::is_same_v<T, std::int8_t>) return CUDA_R_8I;
    return CUDA_R_32I;
  }

  std::size_t candidates() const { return static_cast<std::size_t>(count_); }

  /// Runs heuristic number `which`.
  void run(std::size_t which, void const* a, void const* b, void* c) const {
    double const one = 1, zero = 0;
    float const one_f = 1, zero_f = 0;
    std::int32_t const one_i = 1, zero_i = 0;
    void const* alpha = &one_f;
    void const* beta = &zero_f;
    if (compute_in_double_) alpha = &one, beta = &zero;
    if (compute_in_integers_) alpha = &one_i, beta = &zero_i;
    check(cublasLtMatmul(handle_, operation_, alpha, b, a_, a, b_, beta, c, c_, c, c_,
                         &found_[which].algo, aligned_workspace(), workspace_bytes, stream_));
  }

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    check(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof value));
  }
  static void layout(cublasLtMatrixLayout_t* to, cudaDataType_t type, int rows, int columns) {
    check(cublasLtMatrixLayoutCreate(to, type, static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), rows));
  }
  static void check(cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS)
      throw std::runtime_error("cuBLASLt: status " + std::to_string(static_cast<int>(status)));
  }

  /// cuBLASLt wants a multiple of 256; Kokkos promises less.
  void* aligned_workspace() const {
    auto const address = reinterpret_cast<std::uintptr_t>(workspace_.data());
    return reinterpret_cast<void*>((address + 255) / 256 * 256);
  }

  static constexpr std::size_t workspace_bytes = std::size_t{64} << 20;
  cudaStream_t stream_;
  Kokkos::View<unsigned char*, Memory> workspace_;
  bool compute_in_double_ = false, compute_in_integers_ = false;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  cublasLtMatmulHeuristicResult_t found_[10];  // nvcc 13.0 fails on a std::vector of them
  int count_ = 0;
};

/// One heuristic's product of a set's operands.
template <class Operands>
struct CublasLtCall {
  std::shared_ptr<CublasLt const> peer;
  std::vector<Operands> const* sets;
  std::size_t which;

  void operator()(std::size_t set) const { run(which, set); }
  void run(std::size_t heuristic, std::size_t set) const {
    Operands const& x = (*sets)[set];
    peer->run(heuristic, x.a.data(), x.b.data(), x.c.data());
  }
};

}  // namespace attikos::measure
