// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Norms of the sum of an input and the residual stream, which is stored as well.
#pragma once

#include <attikos/core/rows/added_row.hpp>
#include <attikos/core/rows/gradient_device.hpp>
#include <attikos/norm/moments.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Where the sum of an input and its residual goes. See residual_sum().
template <TensorLike T>
struct ResidualSum {
  T view;
};

/// rms_norm() and layer_norm() with residual(r) store x + r here, rounded to the element type of
/// this tensor, and normalize what was stored: the residual stream of a transformer, of which the
/// next layer's input is a norm. It has the extents of x and may be x or r itself.
template <TensorLike T>
ResidualSum<T> residual_sum(T const& view) {
  return {view};
}

namespace detail {

template <class T>
concept NormExtra = is_any_wrapper<T, Residual, ResidualSum>;

/// sum = x + residual on a host.
template <class Acc, class X, class R, class S>
struct ResidualSumRow {
  Rows<X const> x;
  Rows<R const> residual;
  Rows<S> sum;

  void host_row(std::int64_t index) const {
    Row<X const> const a = x(index);
    Row<R const> const b = residual(index);
    Row<S> const to = sum(index);
    host::with_dense(a.stride == 1 && b.stride == 1 && to.stride == 1, [&](auto dense) {
      host::RowReader<Acc, dense(), X> const read_a{a.data, a.stride};
      host::RowReader<Acc, dense(), R> const read_b{b.data, b.stride};
      host::write_row<Acc, dense()>(
          to.data, to.stride, to.size, false,
          host::Ahead<>{}, [&](std::int64_t j, int count) __attribute__((always_inline)) {
            return host::Vec<Acc>(read_a(j, count) + read_b(j, count));
          });
    });
  }
};

/// Both, while a row is near.
template <class Sum, class Norm>
struct ResidualNormRow {
  Sum sum;
  Norm norm;
  void host_row(std::int64_t index) const {
    sum.host_row(index);
    norm.host_row(index);
  }
};

/// sum = x + residual, as it is stored.
template <class S, class Acc>
KOKKOS_INLINE_FUNCTION Acc stored_sum(Acc x, Acc residual) {
  return element_value<Acc>(nearest_element<S>(x + residual));
}

/// What both norms have on a device. Rows of x and of the residual are held as a gradient's two
/// are.
template <class Number, class In, class R, class S, class Result>
struct ResidualNormRows {
  using Acc = Number;
  using X = In;
  using Dout = R;
  using Out = Result;
  using Sum = S;
  static constexpr int partials = 0;

  Rows<X const> x;
  Rows<R const> residual;
  Rows<S> sum;
  Rows<Out> out;

  KOKKOS_INLINE_FUNCTION Acc* partial(std::int64_t) const { return nullptr; }
  KOKKOS_INLINE_FUNCTION Row<Out> target(std::int64_t row) const { return device_row_of(out, row); }
  KOKKOS_INLINE_FUNCTION Row<X const> source(std::int64_t row) const {
    return device_row_of(x, row);
  }
  KOKKOS_INLINE_FUNCTION Row<R const> gradient(std::int64_t row) const {
    return device_row_of(residual, row);
  }
};

/// out = s·factor(Σs²)·weight with s = x + residual.
template <class Number, class In, class R, class S, class W, class Result, class Factor>
struct ResidualRmsNormDeviceRow : ResidualNormRows<Number, In, R, S, Result> {
  using Acc = Number;
  TensorRef<W const, 1> weight;
  Factor factor;

  template <class Held>
  KOKKOS_INLINE_FUNCTION auto vectors(Held const& held) const {
    return held.along(weight);
  }
  template <class Held, class Weights>
  KOKKOS_INLINE_FUNCTION void device_row(Held& held, std::int64_t row, Weights& weights) const {
    auto const from = this->source(row);
    auto const more = this->gradient(row);
    auto const squares = held.template sums<1>(from, more, Acc(0), [](Acc v, Acc r, Acc, Acc* sum) {
      Acc const s = stored_sum<S>(v, r);
      sum[0] += s * s;
    });
    Acc const scale = factor(squares.of[0], from.size);
    held.store_two(
        from, more, device_row_of(this->sum, row), this->target(row),
        [=](Acc v, Acc r, Acc w, Acc& normalized) {
          Acc const s = stored_sum<S>(v, r);
          normalized = s * scale * w;
          return s;
        },
        weights);
  }
};

/// out = (s − mean)/√(variance + eps)·weight + bias with s = x + residual.
template <class Number, class In, class R, class S, class W, class B, class Result>
struct ResidualLayerNormDeviceRow : ResidualNormRows<Number, In, R, S, Result> {
  using Acc = Number;
  TensorRef<W const, 1> weight;
  TensorRef<B const, 1> bias;
  Acc eps;

  template <class Weights, class Biases>
  struct Vectors {
    Weights weights;
    Biases biases;
  };
  template <class Held>
  KOKKOS_INLINE_FUNCTION auto vectors(Held const& held) const {
    return Vectors<decltype(held.along(weight)), decltype(held.along(bias))>{held.along(weight),
                                                                             held.along(bias)};
  }
  template <class Held, class Both>
  KOKKOS_INLINE_FUNCTION void device_row(Held& held, std::int64_t row, Both& vectors) const {
    auto const from = this->source(row);
    auto const more = this->gradient(row);
    auto const add = [](Acc v, Acc r, Acc shift, Acc* sum) {
      AddMoments{}(stored_sum<S>(v, r), shift, sum);
    };
    auto const of =
        moments(stored_sum<S>(held.first_x(), held.first_g()), from.size,
                [&](Acc shift) { return held.template sums<2>(from, more, shift, add); });
    Acc const inverse = Kokkos::rsqrt(of.variance + eps);
    held.store_two(
        from, more, device_row_of(this->sum, row), this->target(row),
        [=, mean = of.mean](Acc v, Acc r, Acc w, Acc b, Acc& normalized) {
          Acc const s = stored_sum<S>(v, r);
          normalized = (s - mean) * inverse * w + b;
          return s;
        },
        vectors.weights, vectors.biases);
  }
};

/// The residual and the sum of a call, checked.
template <class R, class S, int Rank>
struct ResidualArguments {
  TensorRef<R const, Rank> residual;
  TensorRef<S, Rank> sum;
};
template <ExecutionSpace Exec, class X, int Rank, class... Extras>
auto residual_arguments(char const* operation, TensorRef<X, Rank> const& x,
                        Extras const&... extras) {
  auto const residual = find_extra<Residual>(extras...);
  auto const sum = find_extra<ResidualSum>(extras...);
  static_assert(is_present<decltype(residual)> && is_present<decltype(sum)>,
                "attikos: a norm takes residual(view) and residual_sum(view) together");
  residual_memory<Exec>(operation, x, "x", extras...);
  using View = decltype(sum.view);
  check_output<Exec>(sum.view);
  static_assert(rank_of<View> == Rank && is_floating_element<element_t<View>>,
                "attikos::residual_sum: it has the rank of x and floating-point elements");
  check_extents(operation, "residual_sum", sum.view);
  check_extents_like(operation, "residual_sum", to_const_ref(sum.view), "x", x);
  using R = element_t<decltype(residual.view)>;
  return ResidualArguments<R, element_t<View>, Rank>{to_const_ref(residual.view), to_ref(sum.view)};
}

/// Launches a device's row.
template <class Exec, class Op, class... Vectors>
void launch_residual_norm(Exec const& exec, char const* operation, Op const& op,
                          Vectors const&... vectors) {
  launch_device_gradient(
      exec, operation, op, single_rows(op.x.count()), op.x.size,
      common_width<gradient_neighbors<Op>>(op.x, op.residual, op.sum, op.out, vectors...));
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
