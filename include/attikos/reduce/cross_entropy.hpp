// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// cross_entropy(): the loss of a classification from its logits.
#pragma once

#include <attikos/reduce/cross_entropy_rows.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class Acc, class X, class Label, class Loss>
struct CrossEntropyRow {
  Rows<X const> logits;
  LabeledRows<Acc, Label> labeled;
  Rows<Loss> loss;
  Rows<Acc> lse;  ///< without data where it is not asked for

  void host_row(std::int64_t index) const {
    Row<X const> const from = logits(index);
    host::with_dense(from.stride == 1, [&](auto dense) {
      constexpr int V = host::lanes<Acc>;
      host::ScaledReader<Acc, dense(), X> const read{{from.data, from.stride}, Acc(1)};
      Acc const shift = read.shift(from.size);
      auto const weights = host::sum_row<Acc, 1>(
          from.size, [&](std::int64_t j, int count, auto& sum) __attribute__((always_inline)) {
            sum[0] += host::exp_of_negative<Acc, V>(read(j, count) - shift);
          });
      Acc distances = 0;
      if (labeled.smoothing > Acc(0)) {
        auto const sums = host::sum_row<Acc, 1>(
            from.size, [&](std::int64_t j, int count, auto& sum) __attribute__((always_inline)) {
              sum[0] += read.row(j, count, shift) - shift;
            });
        distances = host::reduce_sum<Acc, V>(sums.of[0]);
      }
      finish(index, from, shift, host::reduce_sum<Acc, V>(weights.of[0]), distances);
    });
  }

  /// Of a row: the number that exponents are taken relative to, Σ e^(x − shift), and Σ (x − shift)
  /// where labels are smoothed.
  KOKKOS_INLINE_FUNCTION void finish(std::int64_t index, Row<X const> const& from, Acc shift,
                                     Acc sum, Acc distances) const {
    std::int64_t const label = labeled.label(index);
    bool const is_class = label >= 0 && label < from.size;
    finish(index, from, label, is_class ? static_cast<Acc>(from[label]) : Acc(0), shift, sum,
           distances);
  }
  /// The same, given the row's label and, if that is a class, its logit.
  KOKKOS_INLINE_FUNCTION void finish(std::int64_t index, Row<X const> const& from,
                                     std::int64_t label, Acc logit, Acc shift, Acc sum,
                                     Acc distances) const {
    constexpr Acc infinity = Kokkos::Experimental::infinity_v<Acc>;
    // A row of −∞ only sums to 0.
    Acc const log_sum = sum == Acc(0) ? -infinity : Kokkos::log(sum);
    if (lse.data != nullptr) *lse(index).data = sum == Acc(0) ? -infinity : shift + log_sum;
    Acc value = Kokkos::Experimental::quiet_NaN_v<Acc>;
    if (label == labeled.ignore_index) {
      value = 0;
    } else if (label >= 0 && label < from.size) {
      // Terms of weight 0 stay out: 0·∞ is NaN.
      Acc const on_label = Acc(1) - labeled.smoothing;
      value = log_sum;
      if (on_label > Acc(0)) value -= on_label * (logit - shift);
      if (labeled.smoothing > Acc(0))
        value -= labeled.smoothing / static_cast<Acc>(from.size) * distances;
      if (sum == Acc(0)) value = infinity;
    }
    *loss(index).data = static_cast<Loss>(value);
  }
};

/// The same on a device.
template <class Number, class In, class Label, class Loss>
struct CrossEntropyDeviceRow {
  using Acc = Number;
  using X = In;
  using Out = In;

  CrossEntropyRow<Acc, X, Label, Loss> op;

  KOKKOS_INLINE_FUNCTION Row<X const> source(std::int64_t index) const {
    return device_row_of(op.logits, index);
  }

  /// The label, which is waited for long after it was asked for.
  KOKKOS_INLINE_FUNCTION Label beside(std::int64_t index) const {
    return *op.labeled.labels(index).data;
  }

  template <class Held>
  KOKKOS_INLINE_FUNCTION void device_row(Held& row, std::int64_t index, Label of_row) const {
    auto const label = static_cast<std::int64_t>(of_row);
    auto const from = device_row_of(op.logits, index);
    Acc logit = 0;
    if (row.first_lane() && label >= 0 && label < from.size) logit = static_cast<Acc>(from[label]);
    bool const smooth = op.labeled.smoothing > Acc(0);
    auto const exponentials = row.exponentials(
        from, [](Acc v) { return v; }, !smooth);
    Acc const shift = exponentials.shift, sum = exponentials.sum;
    Acc distances = 0;
    if (smooth)
      distances = row.template sum<false>(
          from, [=](Acc v) { return v - shift; }, true);
    if (row.first_lane()) op.finish(index, from, label, logit, shift, sum, distances);
  }
};

}  // namespace detail

/// Cross entropy of the softmax over the last dimension: loss_i = −Σ_c t_c·log softmax(x_i)_c,
/// where t is 1 − ε + ε/classes at the row's label and ε/classes at all other classes, ε the
/// smoothing (Szegedy et al., arXiv:1512.00567). A mean or a sum over rows is the caller's.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param logits   rank 2 or 3, [..., rows, classes], classes ≥ 1
/// \param labels   the extents of logits but the last; int32 or int64
/// \param loss     the extents of labels
/// \param lse      the extents of labels, or none: log Σ e^x of each row, which
///                 cross_entropy_backward() takes; float, double if logits or loss is
/// \param options  smoothing, and the label of rows that do not count
///
/// A row whose label is options.ignore_index has loss 0. Labels are read where they lie and cannot
/// be checked beforehand without waiting for the device: a row whose label is neither in
/// [0, classes) nor ignore_index has loss NaN, and nothing outside the row is read. A row of −∞
/// only has loss +∞ and lse −∞; with smoothing, so has one with any −∞ but its lse is finite. A row
/// with +∞ or NaN becomes NaN. Types: any floating-point element for logits and loss; computed in
/// float, in double if one of them is double. Determinism: run to run, and for any number of host
/// threads. Throws ShapeError, StrideError, Error before launching.
template <ExecutionSpace Exec, TensorLike X, TensorLike Labels, TensorLike Loss,
          detail::TensorOrNone Lse>
void cross_entropy(Exec const& exec, X const& logits, Labels const& labels, Loss const& loss,
                   Lse const& lse, CrossEntropyOptions const& options = {}) {
  char const* const name = "cross_entropy";
  using Acc = detail::RowAccumulator<element_t<X>, element_t<Loss>>;
  using Label = element_t<Labels>;
  detail::check_labeled_rows<Exec>(name, logits, labels, options);
  detail::check_row_values<Exec, X>(name, "loss", logits, loss);
  detail::check_output<Exec>(loss);
  detail::Rows<Acc> of_lse{};
  if constexpr (detail::is_present<Lse>) {
    static_assert(std::is_same_v<element_t<Lse>, Acc>,
                  "attikos::cross_entropy: lse is float, double if logits or loss is");
    detail::check_row_values<Exec, X>(name, "lse", logits, lse);
    detail::check_output<Exec>(lse);
    of_lse = detail::values_of_rows(detail::to_ref(lse));
  }
  detail::check_outputs(
      name, {{"loss", detail::any_tensor(loss)}, {"lse", detail::any_tensor(lse)}},
      {{"logits", detail::any_tensor(logits)}, {"labels", detail::any_tensor(labels)}});
  auto const rows = detail::rows_of(detail::to_const_ref(logits));
  detail::CrossEntropyRow<Acc, element_t<X>, Label, element_t<Loss>> const op{
      rows, detail::labeled_rows<Acc>(detail::to_const_ref(labels), options),
      detail::values_of_rows(detail::to_ref(loss)), of_lse};
  if constexpr (is_host_space<Exec>) {
    detail::launch_rows(exec, name, op, rows.count(), rows.size);
  } else {
    detail::CrossEntropyDeviceRow<Acc, element_t<X>, Label, element_t<Loss>> const on_device{op};
    constexpr int width = detail::neighbors<element_t<X>, element_t<X>>;
    detail::launch_device_rows(exec, name, on_device, rows.count(), rows.size,
                               detail::common_width<width>(rows));
  }
}

/// The same without the log-sum-exp.
template <ExecutionSpace Exec, TensorLike X, TensorLike Labels, TensorLike Loss>
void cross_entropy(Exec const& exec, X const& logits, Labels const& labels, Loss const& loss,
                   CrossEntropyOptions const& options = {}) {
  cross_entropy(exec, logits, labels, loss, none, options);
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike Labels, TensorLike Loss, detail::TensorOrNone Lse>
void cross_entropy(X const& logits, Labels const& labels, Loss const& loss, Lse const& lse,
                   CrossEntropyOptions const& options = {}) {
  cross_entropy(Kokkos::DefaultExecutionSpace{}, logits, labels, loss, lse, options);
}

/// The same on an instance of the default execution space, without the log-sum-exp.
template <TensorLike X, TensorLike Labels, TensorLike Loss>
void cross_entropy(X const& logits, Labels const& labels, Loss const& loss,
                   CrossEntropyOptions const& options = {}) {
  cross_entropy(Kokkos::DefaultExecutionSpace{}, logits, labels, loss, none, options);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
