// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What host code of the kernels for products asks of a call: which way operands lie, whether
/// scales and addends are of a kind that the epilogue reads.
#pragma once

#include "sm90_epilogue.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// The same product seen as Cᵀ = Bᵀ · Aᵀ.
inline abi::GemmArgs transposed(abi::GemmArgs const& g) {
  abi::GemmArgs t = g;
  t.m = g.n, t.n = g.m;
  t.a = g.b, t.type_a = g.type_b, t.a_batch = g.b_batch, t.a_m = g.b_n, t.a_k = g.b_k;
  t.b = g.a, t.type_b = g.type_a, t.b_batch = g.a_batch, t.b_k = g.a_k, t.b_n = g.a_m;
  t.c_m = g.c_n, t.c_n = g.c_m;
  t.bias_along = g.bias_along == BiasAlong::n ? BiasAlong::m : BiasAlong::n;
  t.residual_m = g.residual_n, t.residual_n = g.residual_m;
  auto const flip = [](abi::ScaleGrid const& s) {
    return abi::ScaleGrid{s.data, s.batch, s.col, s.row, s.col_shift, s.row_shift};
  };
  t.scale_a = flip(g.scale_b), t.scale_b = flip(g.scale_a);
  return t;
}

/// Whether an operand's unit stride is along K (K-major), along the other dimension, or along
/// neither.
enum class Major { k, mn, neither };
constexpr Major major_of(std::int64_t mn, std::int64_t stride_mn, std::int64_t k,
                         std::int64_t stride_k) {
  if (k > 1 && stride_k == 1) return Major::k;
  if (mn > 1 && stride_mn == 1) return Major::mn;
  return k <= 1 ? Major::k : mn <= 1 ? Major::mn : Major::neither;
}
constexpr Major major_a(abi::GemmArgs const& g) { return major_of(g.m, g.a_m, g.k, g.a_k); }
constexpr Major major_b(abi::GemmArgs const& g) { return major_of(g.n, g.b_n, g.k, g.b_k); }

/// Whether the factors of an operand are one for all of it or one for each of its rows (A) or
/// columns (B).
constexpr bool factors_fit(abi::ScaleGrid const& s, bool of_a) {
  if (s.data == nullptr) return true;
  return of_a ? s.col == 0 && s.row_shift == 0 : s.row == 0 && s.col_shift == 0;
}

/// Whether they change along K, but only from one 128 to the next.
constexpr bool along_blocks(abi::ScaleGrid const& s, bool of_a) {
  if (s.data == nullptr || factors_fit(s, of_a)) return false;
  return of_a ? s.col == 0 || s.col_shift >= 7 : s.row == 0 || s.row_shift >= 7;
}

constexpr bool readable(DType type) {
  return type == DType::float16 || type == DType::bfloat16 || type == DType::float32;
}

constexpr std::int64_t magnitude(std::int64_t x) { return x < 0 ? -x : x; }

inline Sm90Epilogue make_epilogue(abi::GemmArgs const& g) {
  Sm90Epilogue e{};
  e.alpha = static_cast<float>(g.alpha);
  e.beta = static_cast<float>(g.beta);
  e.scale = static_cast<float>(g.scale);
  e.along_m = g.n == 1 || (g.m > 1 && magnitude(g.c_m) < magnitude(g.c_n));
  e.activation = g.activation;
  e.c = g.c, e.type_c = g.type_c, e.c_batch = g.c_batch, e.c_m = g.c_m, e.c_n = g.c_n;
  if (g.bias != nullptr) {
    bool const along_n = g.bias_along == BiasAlong::n;
    e.bias = {g.bias, g.type_bias, 0, along_n ? 0 : g.bias_stride, along_n ? g.bias_stride : 0};
  }
  if (g.residual != nullptr)
    e.residual = {g.residual, g.type_residual, g.residual_batch, g.residual_m, g.residual_n};
  e.row_factors = g.scale_a.data;
  e.row_factors_batch = g.scale_a.batch, e.row_factors_stride = g.scale_a.row;
  e.column_factors = g.scale_b.data;
  e.column_factors_batch = g.scale_b.batch, e.column_factors_stride = g.scale_b.col;
  e.factor = g.device_scale;
  return e;
}

constexpr std::int64_t blocks_of(std::int64_t extent, int tile) {
  return (extent + tile - 1) / tile;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
