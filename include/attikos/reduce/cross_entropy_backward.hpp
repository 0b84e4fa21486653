// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// cross_entropy_backward(): the gradient of the logits.
#pragma once

#include <attikos/reduce/cross_entropy_rows.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// dx_c = g·(e^(x_c − lse) − t_c)
template <class Acc, class X, class Label, class Dloss, class Dx>
struct CrossEntropyBackwardRow {
  Rows<X const> logits;
  LabeledRows<Acc, Label> labeled;
  Rows<Acc const> lse;
  Rows<Dloss const> dloss;
  Rows<Dx> dlogits;

  /// What a row has besides its logits. Rows that have no gradient have the factor 0, and those
  /// whose label is no class NaN.
  struct Target {
    Acc factor, lse, everywhere, on_label;
    std::int64_t label;
    bool counts;
  };
  struct Numbers {
    Label label;
    Acc lse;
    Dloss dloss;
  };
  KOKKOS_INLINE_FUNCTION Numbers numbers(std::int64_t index) const {
    return {*labeled.labels(index).data, *lse(index).data, *dloss(index).data};
  }
  KOKKOS_INLINE_FUNCTION Target target(std::int64_t index) const { return target(numbers(index)); }
  KOKKOS_INLINE_FUNCTION Target target(Numbers const& of_row) const {
    auto const label = static_cast<std::int64_t>(of_row.label);
    Target t{static_cast<Acc>(of_row.dloss),
             of_row.lse,
             labeled.smoothing / static_cast<Acc>(logits.size),
             Acc(1) - labeled.smoothing,
             label,
             true};
    if (label == labeled.ignore_index || of_row.lse == -Kokkos::Experimental::infinity_v<Acc>) {
      t.counts = false;
    } else if (label < 0 || label >= logits.size) {
      t.factor = Kokkos::Experimental::quiet_NaN_v<Acc>;
    }
    return t;
  }

  void host_row(std::int64_t index) const {
    Row<X const> const from = logits(index);
    Row<Dx> const to = dlogits(index);
    Target const t = target(index);
    bool const past = dlogits.past_caches(logits.data);
    host::with_dense(from.stride == 1 && to.stride == 1, [&](auto dense) {
      constexpr int V = host::lanes<Acc>;
      auto const write = [&](auto const& f) __attribute__((always_inline)) {
        host::write_row<Acc, dense()>(to.data, to.stride, from.size, past, ahead_of(index, logits),
                                      f);
      };
      if (!t.counts) {
        write([](std::int64_t, int) __attribute__((always_inline)) { return host::Vec<Acc>{}; });
        return;
      }
      host::RowReader<Acc, dense(), X> const read{from.data, from.stride};
      write([&](std::int64_t j, int count) __attribute__((always_inline)) {
        host::Vec<Acc> d =
            host::exp_of_negative<Acc, V>(read(j, count, t.lse) - t.lse) - t.everywhere;
        std::int64_t const lane = t.label - j;
        if (lane >= 0 && lane < count) d[lane] -= t.on_label;
        return host::Vec<Acc>(d * t.factor);
      });
    });
  }
};

template <class Number, class In, class Label, class Dloss, class Dx>
struct CrossEntropyBackwardDeviceRow {
  using Acc = Number;
  using X = In;
  using Out = Dx;

  CrossEntropyBackwardRow<Acc, X, Label, Dloss, Dx> op;

  KOKKOS_INLINE_FUNCTION Row<X const> source(std::int64_t index) const {
    return device_row_of(op.logits, index);
  }
  KOKKOS_INLINE_FUNCTION Row<Out> target(std::int64_t index) const {
    return device_row_of(op.dlogits, index);
  }

  KOKKOS_INLINE_FUNCTION auto beside(std::int64_t index) const { return op.numbers(index); }

  template <class Held, class Numbers>
  KOKKOS_INLINE_FUNCTION void device_row(Held& row, std::int64_t index,
                                         Numbers const& of_row) const {
    auto const from = device_row_of(op.logits, index);
    auto const t = op.target(of_row);
    row.store_indexed(from, target(index), [=](std::int64_t j, Acc x) {
      Acc const weight = sizeof(Out) <= 2 ? quick_exp(x - t.lse) : Kokkos::exp(x - t.lse);
      Acc const d = weight - t.everywhere - (j == t.label ? t.on_label : Acc(0));
      return t.counts ? t.factor * d : Acc(0);
    });
  }
};

}  // namespace detail

/// Gradient of cross_entropy(): dlogits_ic = dloss_i·(e^(logits_ic − lse_i) − t_ic), t as there.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param logits   rank 2 or 3, [..., rows, classes], classes ≥ 1
/// \param labels   the extents of logits but the last; int32 or int64
/// \param lse      the extents of labels: what cross_entropy() gave
/// \param dloss    the extents of labels; a stride of 0 serves where all rows have one
/// \param dlogits  the extents of logits; may be logits itself
/// \param options  what cross_entropy() had
///
/// Rows with the label options.ignore_index, and those of −∞ only, have the gradient 0; a row whose
/// label is no class has NaN. Types: any floating-point element for logits, dloss and dlogits, lse
/// float, or double if logits is double, which is what is computed in. Determinism: run to run, and
/// for any number of host threads. Throws ShapeError, StrideError, Error before launching.
template <ExecutionSpace Exec, TensorLike X, TensorLike Labels, TensorLike Lse, TensorLike Dloss,
          TensorLike Dx>
void cross_entropy_backward(Exec const& exec, X const& logits, Labels const& labels, Lse const& lse,
                            Dloss const& dloss, Dx const& dlogits,
                            CrossEntropyOptions const& options = {}) {
  char const* const name = "cross_entropy_backward";
  using Acc = element_t<Lse>;
  using Label = element_t<Labels>;
  static_assert(std::is_same_v<Acc, double> ||
                    (std::is_same_v<Acc, float> && !std::is_same_v<element_t<X>, double>),
                "attikos::cross_entropy_backward: lse is float, double if logits is");
  detail::check_labeled_rows<Exec>(name, logits, labels, options);
  detail::check_row_values<Exec, X>(name, "lse", logits, lse);
  detail::check_row_values<Exec, X>(name, "dloss", logits, dloss);
  static_assert(is_floating_element<element_t<Dloss>> && is_floating_element<element_t<Dx>> &&
                    rank_of<Dx> == rank_of<X>,
                "attikos::cross_entropy_backward: dloss and dlogits hold floating-point elements, "
                "dlogits has the rank of logits");
  detail::check_output<Exec>(dlogits);
  detail::check_extents(name, "dlogits", dlogits);
  auto const rx = detail::to_const_ref(logits);
  detail::check_extents_like(name, "dlogits", detail::to_const_ref(dlogits), "logits", rx);
  detail::check_outputs(name, {{"dlogits", detail::any_tensor(dlogits)}},
                        {{"logits", detail::any_tensor(logits), 0},
                         {"labels", detail::any_tensor(labels)},
                         {"lse", detail::any_tensor(lse)},
                         {"dloss", detail::any_tensor(dloss)}});
  auto const rows = detail::rows_of(rx);
  detail::CrossEntropyBackwardRow<Acc, element_t<X>, Label, element_t<Dloss>, element_t<Dx>> const
      op{rows, detail::labeled_rows<Acc>(detail::to_const_ref(labels), options),
         detail::values_of_rows(detail::to_const_ref(lse)),
         detail::values_of_rows(detail::to_const_ref(dloss)),
         detail::rows_of(detail::to_ref(dlogits))};
  if constexpr (is_host_space<Exec>) {
    detail::launch_rows(exec, name, op, rows.count(), rows.size);
  } else {
    detail::CrossEntropyBackwardDeviceRow<Acc, element_t<X>, Label, element_t<Dloss>,
                                          element_t<Dx>> const on_device{op};
    constexpr int width = detail::neighbors<element_t<X>, element_t<Dx>>;
    detail::launch_device_rows(exec, name, on_device, rows.count(), rows.size,
                               detail::common_width<width>(rows, op.dlogits));
  }
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike Labels, TensorLike Lse, TensorLike Dloss, TensorLike Dx>
void cross_entropy_backward(X const& logits, Labels const& labels, Lse const& lse,
                            Dloss const& dloss, Dx const& dlogits,
                            CrossEntropyOptions const& options = {}) {
  cross_entropy_backward(Kokkos::DefaultExecutionSpace{}, logits, labels, lse, dloss, dlogits,
                         options);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
