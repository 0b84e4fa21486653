// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Device bodies of rms_norm(), l2_normalize() and layer_norm().
#pragma once

#include <attikos/core/extras.hpp>
#include <attikos/core/rows/device.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// out = x·factor(Σx²)·weight. `Weight` is a rank-1 tensor or Absent.
template <class Number, class In, class Weight, class Result, class Factor>
struct ScaledDeviceRow {
  using Acc = Number;
  using X = In;
  using Out = Result;

  Rows<X const> x;
  Weight weight;
  Rows<Out> out;
  Factor factor;

  KOKKOS_INLINE_FUNCTION Row<Out> target(std::int64_t index) const {
    return device_row_of(out, index);
  }
  KOKKOS_INLINE_FUNCTION Row<X const> source(std::int64_t index) const {
    return device_row_of(x, index);
  }

  template <class Held>
  KOKKOS_INLINE_FUNCTION void device_row(Held& row, std::int64_t index) const {
    auto const from = device_row_of(x, index);
    auto const to = target(index);
    auto const squares = [&] { return row.template sum<true>(from, [](Acc v) { return v * v; }); };
    if constexpr (is_present<Weight>) {
      auto weights = row.along(weight);
      Acc const scale = factor(squares(), from.size);
      row.store(
          from, to, [=](Acc v, Acc w) { return v * scale * w; }, weights);
    } else {
      Acc const scale = factor(squares(), from.size);
      row.store(from, to, [=](Acc v) { return v * scale; });
    }
  }
};

template <class Exec, class Number, class In, class Weight, class Result, class Factor>
void launch_scaled_rows(Exec const& exec, char const* operation,
                        ScaledDeviceRow<Number, In, Weight, Result, Factor> const& op) {
  constexpr int width = neighbors<In, Result>;
  launch_device_rows(exec, operation, op, op.x.count(), op.x.size,
                     common_access<width>(op.x, op.out, op.weight));
}

/// out = (x − mean)/√(variance + eps)·weight + bias; the variance is that of x − mean.
template <class Number, class In, class W, class B, class Result>
struct LayerNormDeviceRow {
  using Acc = Number;
  using X = In;
  using Out = Result;

  Rows<X const> x;
  TensorRef<W const, 1> weight;
  TensorRef<B const, 1> bias;
  Rows<Out> out;
  Acc eps;

  KOKKOS_INLINE_FUNCTION Row<Out> target(std::int64_t index) const {
    return device_row_of(out, index);
  }
  KOKKOS_INLINE_FUNCTION Row<X const> source(std::int64_t index) const {
    return device_row_of(x, index);
  }

  template <class Held>
  KOKKOS_INLINE_FUNCTION void device_row(Held& row, std::int64_t index) const {
    auto const from = device_row_of(x, index);
    auto const to = target(index);
    Acc const n = static_cast<Acc>(from.size);
    Acc const mean = row.template sum<true>(from, [](Acc v) { return v; }) / n;
    Acc const squares =
        row.template sum<false>(from, [=](Acc v) { return (v - mean) * (v - mean); });
    Acc const inverse = Acc(1) / Kokkos::sqrt(squares / n + eps);
    // Both ahead of the sums would take registers that more rows in flight are worth more than.
    auto weights = row.along(weight);
    auto biases = row.along(bias);
    row.store(
        from, to, [=](Acc v, Acc w, Acc b) { return (v - mean) * inverse * w + b; }, weights,
        biases);
  }
};

template <class Exec, class Number, class In, class W, class B, class Result>
void launch_layer_norm(Exec const& exec, LayerNormDeviceRow<Number, In, W, B, Result> const& op) {
  constexpr int width = neighbors<In, Result>;
  launch_device_rows(exec, "layer_norm", op, op.x.count(), op.x.size,
                     common_access<width>(op.x, op.out, op.weight, op.bias));
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
