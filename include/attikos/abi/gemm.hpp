// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What crosses the wall for a matrix product: one plain struct, and the CUDA kernels that take it.
#pragma once

#include <attikos/abi/device.hpp>
#include <attikos/abi/dtype.hpp>
#include <attikos/abi/verdict.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Pointwise function applied by an epilogue; `gelu` is the erf form.
enum class Activation : std::uint8_t { none, relu, gelu, gelu_tanh, silu };

/// The dimension of C that a bias vector runs along: `n` is one value per column, `m` one per row.
enum class BiasAlong : std::uint8_t { n, m };

namespace abi {

using ::attikos::ATTIKOS_VERSION_NAMESPACE::Activation;
using ::attikos::ATTIKOS_VERSION_NAMESPACE::BiasAlong;
using ::attikos::ATTIKOS_VERSION_NAMESPACE::DType;

/// One batched product, D = act(scale·(alpha·A·B + beta·C) + bias) + residual, written into C.
///
/// A is [batch, m, k], B is [batch, k, n], C is [batch, m, n]. Transposition is folded into the
/// strides. Strides count elements, are 64-bit, and may be 0 or negative in inputs (0 in a batch
/// stride broadcasts). A dimension of extent 1 may carry any stride. `bias` and `residual` may be
/// null, which means none. beta = 0 means that C is never read. Storage of A, B, bias must not
/// overlap C; residual may be C itself.
struct GemmArgs {
  void const* a = nullptr;
  void const* b = nullptr;
  void* c = nullptr;
  DType type_a = DType::float32;
  DType type_b = DType::float32;
  DType type_c = DType::float32;
  std::int64_t m = 0, n = 0, k = 0, batch = 0;
  std::int64_t a_batch = 0, a_m = 0, a_k = 0;
  std::int64_t b_batch = 0, b_k = 0, b_n = 0;
  std::int64_t c_batch = 0, c_m = 0, c_n = 0;
  double alpha = 1, beta = 0, scale = 1;
  Activation activation = Activation::none;
  void const* bias = nullptr;
  DType type_bias = DType::float32;
  BiasAlong bias_along = BiasAlong::n;
  std::int64_t bias_stride = 0;
  void const* residual = nullptr;
  DType type_residual = DType::float32;
  std::int64_t residual_batch = 0, residual_m = 0, residual_n = 0;
};

/// float16 × float16 → float32 on tensor cores through `nvcuda::wmma`, accumulating in float32;
/// sm_75 and newer.
///
/// - A and B are float16, each with a unit stride in one of its two dimensions (any of the four
/// transposes);
///   C is float32 with any strides that do not overlap; bias and residual are float32 or float16,
///   any strides. Pointers and strides that are multiples of 16 bytes load faster; nothing needs
///   them.
/// - Any m, n, k, batch ≥ 0. Elements outside the operands never enter a sum. k = 0 is a product of
/// zero.
/// - alpha, beta and scale are rounded to float32, in which the epilogue computes.
/// - `accepts` looks at the arguments only: it neither calls CUDA nor reads device memory.
/// - `launch` is asynchronous on the stream, allocates nothing, may be captured into a graph, and
/// returns 0 or
///   a `cudaError_t` (`error_string` has its text). An error that was pending before stays pending.
///   The stream must belong to `Device::ordinal`, which becomes current only for the time of the
///   call.
/// - Deterministic: the same arguments on the same kind of device give the same bits.
///
/// Source: CUDA C++ Programming Guide, "Warp Matrix Functions"; `wmma` in the PTX ISA,
/// section 9.7.15.
struct GemmSm75WmmaF16 {
  static constexpr char const* name = "gemm/sm75_wmma_f16";
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
