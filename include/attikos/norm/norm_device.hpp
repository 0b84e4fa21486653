// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Device bodies of rms_norm(), l2_normalize() and layer_norm().
#pragma once

#include <attikos/core/extras.hpp>
#include <attikos/core/rows/device.hpp>
#include <attikos/norm/moments.hpp>

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
  KOKKOS_INLINE_FUNCTION auto vectors(Held const& row) const {
    return row.along(weight);
  }

  template <class Held, class Weights>
  KOKKOS_INLINE_FUNCTION void device_row(Held& row, std::int64_t index, Weights& weights) const {
    auto const from = source(index);
    Acc const squares = row.template sum<true>(from, [](Acc v) { return v * v; });
    Acc const scale = factor(squares, from.size);
    if constexpr (is_present<Weight>)
      row.store(
          from, target(index), [=](Acc v, Acc w) { return v * scale * w; }, weights);
    else
      row.store(from, target(index), [=](Acc v) { return v * scale; });
  }
};

template <class Exec, class Number, class In, class Weight, class Result, class Factor>
void launch_scaled_rows(Exec const& exec, char const* operation,
                        ScaledDeviceRow<Number, In, Weight, Result, Factor> const& op) {
  constexpr int width = neighbors<In, Result>;
  launch_device_rows(exec, operation, op, op.x.count(), op.x.size,
                     common_width<width>(op.x, op.out, op.weight));
}

/// out = (x − mean)/√(variance + eps)·weight + bias; the variance is that of x − mean.
template <class Number, class In, class W, class B, class Result>
struct LayerNormDeviceRow {
  using Acc = Number;
  using X = In;
  using Out = Result;
  static constexpr bool waits_often = true;

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

  template <class Weights, class Biases>
  struct Vectors {
    Weights weights;
    Biases biases;
  };
  template <class Held>
  KOKKOS_INLINE_FUNCTION auto vectors(Held const& row) const {
    return Vectors<decltype(row.along(weight)), decltype(row.along(bias))>{row.along(weight),
                                                                           row.along(bias)};
  }

  template <class Held, class Both>
  KOKKOS_INLINE_FUNCTION void device_row(Held& row, std::int64_t index, Both& vectors) const {
    auto const from = source(index);
    auto const of = moments(row.first(), from.size, [&](Acc shift) {
      return row.template sums<2>(from, shift, AddMoments{});
    });
    Acc const inverse = Kokkos::rsqrt(of.variance + eps);
    row.store(
        from, target(index),
        [=, mean = of.mean](Acc v, Acc w, Acc b) { return (v - mean) * inverse * w + b; },
        vectors.weights, vectors.biases);
  }
};

template <class Exec, class Number, class In, class W, class B, class Result>
void launch_layer_norm(Exec const& exec, LayerNormDeviceRow<Number, In, W, B, Result> const& op) {
  constexpr int width = neighbors<In, Result>;
  launch_device_rows(exec, "layer_norm", op, op.x.count(), op.x.size,
                     common_width<width>(op.x, op.out, op.weight, op.bias));
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
