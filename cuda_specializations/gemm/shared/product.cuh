// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What host code of the kernels for products asks of a call: which way operands lie, whether
/// scales and addends are of a kind that the epilogue reads.
#pragma once

#include "epilogue.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// The same product seen as Cᵀ = Bᵀ · Aᵀ.
inline abi::GemmArgs transposed(abi::GemmArgs const& g) {
  abi::GemmArgs t = g;
  t.m = g.n, t.n = g.m, t.tile.m = g.tile.n, t.tile.n = g.tile.m;
  t.a = g.b, t.a_pointers = g.b_pointers;
  t.type_a = g.type_b, t.a_batch = g.b_batch, t.a_m = g.b_n, t.a_k = g.b_k;
  t.b = g.a, t.b_pointers = g.a_pointers;
  t.type_b = g.type_a, t.b_batch = g.a_batch, t.b_k = g.a_k, t.b_n = g.a_m;
  t.c_m = g.c_n, t.c_n = g.c_m;
  t.bias_along = g.bias_along == BiasAlong::n ? BiasAlong::m : BiasAlong::n;
  t.residual_m = g.residual_n, t.residual_n = g.residual_m;
  t.pre_activation_m = g.pre_activation_n, t.pre_activation_n = g.pre_activation_m;
  t.zero_point_a = g.zero_point_b, t.zero_point_a_stride = g.zero_point_b_stride;
  t.zero_point_b = g.zero_point_a, t.zero_point_b_stride = g.zero_point_a_stride;
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

/// Whether they change along K, but only every 128.
constexpr bool along_blocks(abi::ScaleGrid const& s, bool of_a) {
  if (s.data == nullptr || factors_fit(s, of_a)) return false;
  // Kernels count in 32 bits between a matrix's factors.
  constexpr std::int64_t most = std::int64_t{1} << 30;
  for (std::int64_t stride : {s.batch, s.row, s.col})
    if (stride > most || stride < -most) return false;
  return of_a ? s.col == 0 || s.col_shift >= 7 : s.row == 0 || s.row_shift >= 7;
}

/// Whether the factors of an operand go to the epilogue: those along K do not.
constexpr bool has_factors(abi::ScaleGrid const& s, bool of_a) {
  return s.data != nullptr && !along_blocks(s, of_a);
}

/// Whether alpha is all that an epilogue has to do.
inline bool only_alpha(abi::GemmArgs const& g) {
  return g.beta == 0 && g.scale == 1 && g.activation == Activation::none && g.bias == nullptr &&
         g.residual == nullptr && !has_factors(g.scale_a, true) && !has_factors(g.scale_b, false) &&
         g.device_scale == nullptr && g.pre_activation == nullptr;
}

/// Whether there is C or a residual to add besides, and nothing else.
inline bool only_added(abi::GemmArgs const& g) {
  abi::GemmArgs rest = g;
  rest.beta = 0;
  rest.residual = nullptr;
  return (g.beta != 0) != (g.residual != nullptr) && only_alpha(rest);
}

/// Whether it does no more than multiply rows and columns by numbers of their own.
inline bool only_row_column_factors(abi::GemmArgs const& g) {
  return g.beta == 0 && g.activation == Activation::none && g.bias == nullptr &&
         g.residual == nullptr && g.pre_activation == nullptr;
}

/// Whether it does no more than multiply all elements of a matrix by the same numbers.
inline bool only_factors(abi::GemmArgs const& g) {
  return only_row_column_factors(g) && (!has_factors(g.scale_a, true) || g.scale_a.row == 0) &&
         (!has_factors(g.scale_b, false) || g.scale_b.col == 0);
}

/// Whether it can be done where the sums lie, pairs of columns in each thread: one number for each
/// row and each column, and of C or a residual, 16-bit elements whose pairs lie together, as do
/// those of the argument of act.
inline bool goes_by_pairs(abi::GemmArgs const& g) {
  if (g.pre_activation != nullptr) {
    auto const address = reinterpret_cast<std::uintptr_t>(g.pre_activation);
    if (g.pre_activation_n != 1 || g.pre_activation_m % 2 != 0 || g.pre_activation_batch % 2 != 0 ||
        g.n % 2 != 0 || address % (2 * dtype_size(g.type_pre_activation)) != 0)
      return false;
  }
  if (g.beta != 0 || g.residual != nullptr) {
    bool const of_c = g.beta != 0;
    void const* const data = of_c ? g.c : g.residual;
    if ((of_c && g.residual != nullptr) || dtype_size(of_c ? g.type_c : g.type_residual) != 2 ||
        (of_c ? g.c_n : g.residual_n) != 1 || (of_c ? g.c_m : g.residual_m) % 2 != 0 ||
        (of_c ? g.c_batch : g.residual_batch) % 2 != 0 || g.n % 2 != 0 ||
        reinterpret_cast<std::uintptr_t>(data) % 4 != 0)
      return false;
  }
  auto const in_pairs = [&](void const* data, std::int64_t stride, std::int64_t batch_stride,
                            DType type) {
    return stride == 0 || (stride == 1 && g.n % 2 == 0 && (g.batch <= 1 || batch_stride % 2 == 0) &&
                           reinterpret_cast<std::uintptr_t>(data) % (2 * dtype_size(type)) == 0);
  };
  if (has_factors(g.scale_b, false) &&
      !in_pairs(g.scale_b.data, g.scale_b.col, g.scale_b.batch, DType::float32))
    return false;
  return g.bias == nullptr || g.bias_along == BiasAlong::m ||
         in_pairs(g.bias, g.bias_stride, 0, g.type_bias);
}

/// Whether an int32 C gets the sums as they are.
inline bool exact_in_int32(abi::GemmArgs const& g) {
  return g.alpha == 1 && (g.beta == 0 || g.beta == 1) && g.scale == 1 &&
         g.activation == Activation::none && g.bias == nullptr && g.residual == nullptr &&
         g.scale_a.data == nullptr && g.scale_b.data == nullptr && g.device_scale == nullptr &&
         g.pre_activation == nullptr;
}
constexpr char const* not_exact_in_int32 = "int32 C takes alpha 1, beta 0 or 1, and no epilogue";

/// Why a product that has something to read and to write cannot go ahead; null if it can.
inline char const* refuse_operands(abi::GemmArgs const& g) {
  if (g.k == 0) return "K is 0";
  if (g.c == nullptr) return "C is a null pointer";
  if (g.a == nullptr) return "A is a null pointer";
  if (g.b == nullptr) return "B is a null pointer";
  if ((g.m > 1 && g.c_m == 0) || (g.n > 1 && g.c_n == 0) || (g.batch > 1 && g.c_batch == 0))
    return "C has a zero stride, so its elements overlap";
  return nullptr;
}

constexpr bool readable(DType type) {
  return type == DType::float16 || type == DType::bfloat16 || type == DType::float32;
}

/// The same beside a C that may be float64.
constexpr bool readable_beside(DType type, DType c) {
  return readable(type) || (c == DType::float64 && type == DType::float64);
}

/// Why the argument of act cannot be written; null if it can.
inline char const* refuse_pre_activation(abi::GemmArgs const& g) {
  if (g.pre_activation == nullptr) return nullptr;
  if (!readable_beside(g.type_pre_activation, g.type_c))
    return "it does not write the pre-activation's element type";
  bool const some = g.m > 0 && g.n > 0 && g.batch > 0;
  if (some && ((g.m > 1 && g.pre_activation_m == 0) || (g.n > 1 && g.pre_activation_n == 0) ||
               (g.batch > 1 && g.pre_activation_batch == 0)))
    return "the pre-activation has a zero stride, so its elements overlap";
  return nullptr;
}

/// Types of C that an epilogue in float32 writes.
constexpr bool writable(DType type) { return readable(type) || has_8_bits(type); }

/// Why C's type does not go with what is to be added to it; null if it does.
inline char const* refuse_quantized(abi::GemmArgs const& g) {
  return has_8_bits(g.type_c) && g.beta != 0 ? "8-bit C takes beta 0" : nullptr;
}

constexpr std::int64_t magnitude(std::int64_t x) { return x < 0 ? -x : x; }

inline Epilogue make_epilogue(abi::GemmArgs const& g) {
  Epilogue e{};
  e.alpha = static_cast<float>(g.alpha);
  e.beta = static_cast<float>(g.beta);
  e.scale = static_cast<float>(g.scale);
  e.along_m = g.n == 1 || (g.m > 1 && magnitude(g.c_m) < magnitude(g.c_n));
  e.activation = g.activation;
  e.only_alpha = only_alpha(g) && !has_8_bits(g.type_c);
  e.c = g.c, e.type_c = g.type_c, e.c_batch = g.c_batch, e.c_m = g.c_m, e.c_n = g.c_n;
  if (g.bias != nullptr) {
    bool const along_n = g.bias_along == BiasAlong::n;
    e.bias = {g.bias, g.type_bias, 0, along_n ? 0 : g.bias_stride, along_n ? g.bias_stride : 0};
  }
  if (g.residual != nullptr)
    e.residual = {g.residual, g.type_residual, g.residual_batch, g.residual_m, g.residual_n};
  e.pre_activation = {g.pre_activation, g.type_pre_activation, g.pre_activation_batch,
                      g.pre_activation_m, g.pre_activation_n};
  e.row_factors = g.scale_a.data;
  e.row_factors_batch = g.scale_a.batch, e.row_factors_stride = g.scale_a.row;
  e.column_factors = g.scale_b.data;
  e.column_factors_batch = g.scale_b.batch, e.column_factors_stride = g.scale_b.col;
  e.factor = g.device_scale;
  e.out = g.scale_out;
  return e;
}

constexpr std::int64_t blocks_of(std::int64_t extent, int tile) {
  return (extent + tile - 1) / tile;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
