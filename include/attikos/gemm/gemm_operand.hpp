// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The matrices of a product without their static types, so that checks are compiled once.
#pragma once

#include <attikos/core/dispatch/to_abi.hpp>
#include <attikos/gemm/gemm_options.hpp>
#include <attikos/gemm/packed_b.hpp>
#include <string>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
inline constexpr bool is_matrix_pointers = false;
template <class T>
inline constexpr bool is_matrix_pointers<MatrixPointers<T>> = true;

/// What gemm() takes as a matrix or a batch of them.
template <class T>
concept GemmMatrix = TensorLike<T> || is_matrix_pointers<std::remove_cvref_t<T>>;

/// What it takes as the right factor: that, or what pack_b() made of a matrix.
template <class T>
concept GemmRight = GemmMatrix<T> || is_packed_b<std::remove_cvref_t<T>>;

template <class T>
struct GemmElement;
template <TensorLike T>
struct GemmElement<T> {
  using type = element_t<T>;
  static constexpr int rank = rank_of<T>;
};
template <class T>
struct GemmElement<MatrixPointers<T>> {
  using type = typename ElementOf<std::remove_cv_t<T>>::type;
  static constexpr int rank = 3;
};
template <class T>
struct GemmElement<PackedB<T>> {
  using type = T;
  static constexpr int rank = 2;
};
template <GemmRight T>
using gemm_element_t = typename GemmElement<std::remove_cvref_t<T>>::type;
template <GemmRight T>
inline constexpr int gemm_rank = GemmElement<std::remove_cvref_t<T>>::rank;

/// One operand as it was given. Rank 2 has a batch of 1 with stride 0.
struct GemmOperand {
  void const* data = nullptr;
  void const* const* pointers = nullptr;
  DType type = DType::float32;
  int rank = 2;
  std::int64_t batch = 1, rows = 0, cols = 0;
  std::int64_t batch_stride = 0, row_stride = 0, col_stride = 0;
  /// Of a packed right factor, what `data` holds.
  PackedLayout const* packed = nullptr;

  std::string text() const {
    std::string const lead = rank == 3 ? std::to_string(batch) + ", " : "";
    return "[" + lead + std::to_string(rows) + ", " + std::to_string(cols) + "] " +
           dtype_name(type) +
           (pointers != nullptr ? " behind pointers"
            : packed != nullptr ? ", packed"
                                : "");
  }
  /// The memory that the host sees: of matrices behind pointers the array of these.
  AnyTensor any() const {
    if (packed != nullptr)
      return {data, DType::uint8, 1, {static_cast<std::int64_t>(packed->bytes)}, {1}};
    if (pointers != nullptr) return {pointers, DType::int64, 1, {batch}, {1}};
    if (rank == 2) return {data, type, 2, {rows, cols}, {row_stride, col_stride}};
    return {data, type, 3, {batch, rows, cols}, {batch_stride, row_stride, col_stride}};
  }
  GemmOperand transposed(bool yes) const {
    GemmOperand result = *this;
    if (yes) {
      std::swap(result.rows, result.cols);
      std::swap(result.row_stride, result.col_stride);
    }
    return result;
  }
};

inline GemmOperand operand_of(AnyTensor const& x) {
  GemmOperand result;
  result.data = x.data;
  result.type = x.type;
  result.rank = x.rank;
  result.rows = x.extent[x.rank - 2];
  result.cols = x.extent[x.rank - 1];
  result.row_stride = x.stride[x.rank - 2];
  result.col_stride = x.stride[x.rank - 1];
  if (x.rank == 3) {
    result.batch = x.extent[0];
    result.batch_stride = x.stride[0];
  }
  return result;
}

/// The operand with what its type allows to be checked.
template <ExecutionSpace Exec, GemmMatrix T>
GemmOperand checked_operand(char const* operation, char const* name, T const& x) {
  if constexpr (TensorLike<T>) {
    check_tensor<Exec, T>();
    AnyTensor const any = any_tensor(x);
    check_extents(operation, name, any);
    return operand_of(any);
  } else {
    GemmOperand result;
    // Kernels read the pointers as what they are, pointers to elements.
    result.pointers = reinterpret_cast<void const* const*>(x.data);
    result.type = dtype_of<gemm_element_t<T>>;
    result.rank = 3;
    result.batch = x.count;
    result.rows = x.rows;
    result.cols = x.cols;
    result.row_stride = x.row_stride;
    result.col_stride = x.col_stride;
    std::int64_t const extents[] = {x.count, x.rows, x.cols};
    for (int r = 0; r < 3; ++r)
      if (extents[r] < 0)
        raise<ShapeError>(operation, ": ", name, " has extent ", extents[r], " in dimension ", r,
                          "; expected 0 or more");
    if (x.data == nullptr && x.count > 0)
      raise<Error>(operation, ": the array of pointers of ", name,
                   " is null; expected one pointer for each of ", x.count, " matrices");
    return result;
  }
}

/// A packed right factor as B was given, without strides where it has panels.
template <ExecutionSpace Exec, class T>
GemmOperand checked_operand(char const* operation, char const*, PackedB<T> const& x) {
  static_assert(
      is_host_space<Exec>,
      "attikos: a packed B is for execution spaces of hosts; kernels of devices read B as "
      "it is");
  check_packed_b(operation, x);
  GemmOperand result;
  result.data = x.memory.data();
  result.type = x.layout.type;
  result.rows = x.layout.trans_b ? x.layout.n : x.layout.k;
  result.cols = x.layout.trans_b ? x.layout.k : x.layout.n;
  if (x.layout.form == PackedForm::plain) {
    result.row_stride = result.cols;
    result.col_stride = 1;
  }
  result.packed = &x.layout;
  return result;
}

/// The same for a matrix that is written.
template <ExecutionSpace Exec, GemmMatrix T>
GemmOperand checked_output_operand(char const* operation, char const* name, T const& x) {
  GemmOperand const result = checked_operand<Exec>(operation, name, x);
  if constexpr (TensorLike<T>) {
    check_writable(x);
  } else {
    static_assert(!std::is_const_v<std::remove_pointer_t<decltype(*x.data)>>,
                  "attikos: pointers to an output must not be to const");
    // Each matrix by itself: where it lies the host does not see.
    AnyTensor const one{
        nullptr, result.type, 3, {1, x.rows, x.cols}, {0, x.row_stride, x.col_stride}};
    if (x.count > 0) check_distinct(operation, name, one);
  }
  return result;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
