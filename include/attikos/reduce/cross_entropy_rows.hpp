// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rows with labels: options and checks that cross_entropy() and its gradient share.
#pragma once

#include <attikos/core/rows/checks.hpp>
#include <attikos/core/rows/device.hpp>
#include <attikos/reduce/softmax.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of cross_entropy() and cross_entropy_backward().
struct CrossEntropyOptions {
  double label_smoothing = 0;        ///< ε in [0, 1]: the share of the target that all classes get
  std::int64_t ignore_index = -100;  ///< label of rows that do not count
};

namespace detail {

template <class T>
concept TensorOrNone = TensorLike<T> || std::is_same_v<T, Absent>;

template <class Acc, class Label>
struct LabeledRows {
  Rows<Label const> labels;
  Acc smoothing;
  std::int64_t ignore_index;

  KOKKOS_INLINE_FUNCTION std::int64_t label(std::int64_t index) const {
    return static_cast<std::int64_t>(*labels(index).data);
  }
};

template <class Acc, class Label, int Rank>
LabeledRows<Acc, Label> labeled_rows(TensorRef<Label const, Rank> const& labels,
                                     CrossEntropyOptions const& options) {
  return {values_of_rows(labels), static_cast<Acc>(options.label_smoothing), options.ignore_index};
}

/// A tensor of one number for each row of `rows` agrees with it; throws ShapeError otherwise.
template <ExecutionSpace Exec, TensorLike X, TensorLike T>
void check_row_values(char const* operation, char const* name, X const& rows, T const& values) {
  check_tensor<Exec, T>();
  static_assert(rank_of<T> + 1 == rank_of<X>,
                "attikos: numbers of rows have the dimensions of logits but the last");
  check_extents(operation, name, values);
  auto const x = to_const_ref(rows);
  auto const v = to_const_ref(values);
  for (int r = 0; r < rank_of<T>; ++r)
    if (v.extent[r] != x.extent[r])
      raise<ShapeError>(operation, ": ", name, " is ", describe(v),
                        "; expected the extents of logits but the last, which is ", describe(x));
}

inline void check_label_smoothing(char const* operation, CrossEntropyOptions const& options) {
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
    raise<Error>(operation, ": label_smoothing is ", options.label_smoothing,
                 "; expected a number in [0, 1]");
}

template <ExecutionSpace Exec, TensorLike X, TensorLike Labels>
void check_labeled_rows(char const* operation, X const& logits, Labels const& labels,
                        CrossEntropyOptions const& options) {
  check_tensor<Exec, X>();
  static_assert(rank_of<X> == 2 || rank_of<X> == 3,
                "attikos: logits are [rows, classes] or [batch, rows, classes]");
  static_assert(is_floating_element<element_t<X>>, "attikos: logits hold floating-point elements");
  static_assert(std::is_same_v<element_t<Labels>, std::int32_t> ||
                    std::is_same_v<element_t<Labels>, std::int64_t>,
                "attikos: labels are int32_t or int64_t");
  check_extents(operation, "logits", logits);
  check_row_values<Exec, X>(operation, "labels", logits, labels);
  auto const x = to_const_ref(logits);
  if (x.extent[rank_of<X> - 1] == 0)
    raise<ShapeError>(operation, ": logits is ", describe(x), "; expected at least one class");
  check_label_smoothing(operation, options);
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
