// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What a gemm call may ask for besides its matrices.
#pragma once

#include <attikos/abi/gemm.hpp>
#include <attikos/core/bias.hpp>
#include <attikos/core/concepts.hpp>
#include <attikos/core/extras.hpp>
#include <attikos/core/residual.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of gemm(). All are run-time values; those that C has by the same name are rows of
/// abi/option_tables.h, which says what they mean.
struct GemmOptions {
  /// alpha, the factor of op(A)·op(B), and beta, that of what C holds; 0 never reads C.
  ATTIKOS_OPTION_FACTORS(ATTIKOS_CXX_OPTION_MEMBER)
  /// trans_a: op(A) = Aᵀ; trans_b: op(B) = Bᵀ.
  ATTIKOS_OPTION_TRANSPOSES(ATTIKOS_CXX_OPTION_MEMBER)
  /// activation: pointwise function before the residual is added.
  ATTIKOS_OPTION_ACTIVATION(ATTIKOS_CXX_OPTION_MEMBER)
  /// scale: factor of the whole product, before the bias.
  ATTIKOS_OPTION_SCALE(ATTIKOS_CXX_OPTION_MEMBER)
  BiasAlong bias_along = BiasAlong::n;  ///< the bias has one entry per column (n) or per row (m)
  /// compute: least precision of float products. The portable kernel always computes in IEEE
  /// float32, which every choice allows. Kernels named tf32 want `tf32`, those named tf32x3 either
  /// of the two.
  ATTIKOS_OPTION_COMPUTE(ATTIKOS_CXX_OPTION_MEMBER)
  /// accumulate: least precision of float8 sums. The portable kernel always sums in IEEE float32.
  ATTIKOS_OPTION_ACCUMULATE(ATTIKOS_CXX_OPTION_MEMBER)
  char const* kernel = "";  ///< "" chooses; a name demands it and never falls back
  /// tile_m, tile_n, tile_k: rows, columns and depth of the tile that a team, or a cluster of
  /// blocks, computes; 0 leaves that extent to the library. A tile that no compiled kernel has for
  /// the call sends it to the portable one, which on a device has two of its own for all calls but
  /// those with zero points or scales along k, and refuses others by UnsupportedError. gemm_tile()
  /// reads what a call uses, autotune_gemm() finds the fastest.
  ATTIKOS_OPTION_TILE(ATTIKOS_CXX_OPTION_MEMBER)
};

/// Matrices of one shape that lie anywhere, each behind a pointer. See matrix_pointers().
template <class T>
struct MatrixPointers {
  T* const* data;
  std::int64_t count, rows, cols, row_stride, col_stride;
};

/// A batch of `count` matrices [rows, cols] in place of a tensor of rank 3: `data` is an array of
/// pointers in memory that the execution space can reach, read when the call runs. Strides count
/// elements; without them rows are dense. A count of 1 in an input shares one matrix.
template <class T>
MatrixPointers<T> matrix_pointers(T* const* data, std::int64_t count, std::int64_t rows,
                                  std::int64_t cols, std::int64_t row_stride,
                                  std::int64_t col_stride) {
  return {data, count, rows, cols, row_stride, col_stride};
}
template <class T>
MatrixPointers<T> matrix_pointers(T* const* data, std::int64_t count, std::int64_t rows,
                                  std::int64_t cols) {
  return {data, count, rows, cols, cols, 1};
}

/// float factors that the elements of A (of B) are multiplied by, in a shape that quantize() writes
/// for the matrix as it is stored: [1]; [m] per row of op(A) ([n] per column of op(B)); and of A's
/// (B's) own rank per row or column of op(A) (op(B)) or in blocks of 1x128, 128x1 or 128x128, but
/// along k never finer than 128. In words of op: A has [m, 1], [m, ⌈k/128⌉] or [⌈m/128⌉, ⌈k/128⌉],
/// B has [1, n], [⌈k/128⌉, n] or [⌈k/128⌉, ⌈n/128⌉], transposed where the matrix is.
template <TensorLike T>
struct ScaleA {
  T view;
};
template <TensorLike T>
ScaleA<T> scale_a(T const& view) {
  return {view};
}
template <TensorLike T>
struct ScaleB {
  T view;
};
template <TensorLike T>
ScaleB<T> scale_b(T const& view) {
  return {view};
}

/// int32 numbers that are subtracted from int8 elements of A (of B): [1], or [m] per row of op(A)
/// ([n] per column of op(B)).
template <TensorLike T>
struct ZeroPointA {
  T view;
};
template <TensorLike T>
ZeroPointA<T> zero_point_a(T const& view) {
  return {view};
}
template <TensorLike T>
struct ZeroPointB {
  T view;
};
template <TensorLike T>
ZeroPointB<T> zero_point_b(T const& view) {
  return {view};
}

/// A factor of the whole product that a kernel before this one computes: float, [1]. It multiplies
/// `GemmOptions::scale`.
template <TensorLike T>
struct DeviceScale {
  T view;
};
template <TensorLike T>
DeviceScale<T> device_scale(T const& view) {
  return {view};
}

/// Quantizes the result: C, of an 8-bit type, gets round(D/scale), saturating, as quantize()
/// rounds. float, [1].
template <TensorLike T>
struct ScaleOut {
  T view;
};
template <TensorLike T>
ScaleOut<T> scale_out(T const& view) {
  return {view};
}

/// Output, of C's shape and any floating type but float8, of what goes into the activation.
template <TensorLike T>
struct PreActivation {
  T view;
};
template <TensorLike T>
PreActivation<T> pre_activation(T const& view) {
  return {view};
}

/// A function in place of the activation. See epilogue().
template <class F>
struct Epilogue {
  F function;
};

/// `function(value, batch, row, col)` gives what stands for act(value), in the type of `value`
/// (float, or double where an operand is double). It is copied into the portable kernel, which
/// takes the call: const, callable from a kernel of the execution space, without side effects.
/// `batch`, `row`, `col` are indices of C, int64; with grouped(), `batch` is the group.
template <class F>
Epilogue<F> epilogue(F const& function) {
  return {function};
}

/// Several products in one call, one behind the other. See grouped().
template <TensorLike T>
struct Grouped {
  T offsets;
};

/// Rows [offsets[g], offsets[g + 1]) of op(A) [total, k] and C [total, n] are multiplied by matrix
/// g of op(B) [groups, k, n]. Offsets are int32 or int64, [groups + 1], in ascending order, read on
/// the device and clamped to [0, total]; rows of C before the first and behind the last keep what
/// they hold.
template <TensorLike T>
Grouped<T> grouped(T const& offsets) {
  return {offsets};
}

/// Matrices of which only the first rows count. See masked().
template <TensorLike T>
struct Masked {
  T counts;
};

/// Of the rows of matrix g of op(A) [groups, max_m, k] and C [groups, max_m, n] only the first
/// counts[g] take part. Counts are int32, [groups], read on the device and clamped to [0, max_m].
/// Rows behind them are neither read nor written: buffers for a whole batch mostly stand empty, and
/// zeros in them would cost more than the product.
template <TensorLike T>
Masked<T> masked(T const& counts) {
  return {counts};
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
