// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// layer_norm(): normalization of each row to mean 0 and variance 1.
#pragma once

#include <attikos/core/rows/rows.hpp>
#include <attikos/norm/norm_device.hpp>
#include <attikos/norm/residual_norm.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of layer_norm().
struct LayerNormOptions {
  double eps = 1e-5;  ///< added to the variance
};

namespace detail {

template <class Acc, class X, class W, class B, class Out>
struct LayerNormRow {
  Rows<X const> x;
  TensorRef<W const, 1> weight;
  TensorRef<B const, 1> bias;
  Rows<Out> out;
  Acc eps;

  void host_row(std::int64_t index) const {
    constexpr int V = host::lanes<Acc>;
    Row<X const> const from = x(index);
    Row<Out> const to = out(index);
    Acc const n = static_cast<Acc>(from.size);
    bool const past = out.past_caches(x.data);
    bool const dense_vectors = unit_stride(weight) && unit_stride(bias);
    host::with_dense(from.stride == 1 && to.stride == 1 && dense_vectors, [&](auto dense) {
      host::RowReader<Acc, dense(), X> const read{from.data, from.stride};
      auto const w = row_reader<Acc, dense()>(weight);
      auto const b = row_reader<Acc, dense()>(bias);
      auto const sums = host::sum_row<Acc, 1>(
          from.size, [&](std::int64_t j, int count, auto& sum)
                         __attribute__((always_inline)) { sum[0] += read(j, count); });
      Acc const mean = host::reduce_sum<Acc, V>(sums.of[0]) / n;
      auto const squares = host::sum_row<Acc, 1>(
          from.size, [&](std::int64_t j, int count, auto& sum) __attribute__((always_inline)) {
            host::Vec<Acc> const v = read(j, count, mean) - mean;
            sum[0] = host::multiply_add<Acc, V>(v, v, sum[0]);
          });
      Acc const inverse = Acc(1) / std::sqrt(host::reduce_sum<Acc, V>(squares.of[0]) / n + eps);
      host::write_row<Acc, dense()>(
          to.data, to.stride, from.size, past,
          ahead_of(index, x), [&](std::int64_t j, int count) __attribute__((always_inline)) {
            return host::multiply_add<Acc, V>((read(j, count) - mean) * inverse, w(j, count),
                                              b(j, count));
          });
    });
  }
};

/// layer_norm() of x + residual.
template <ExecutionSpace Exec, class X, class W, class B, class Out, int Rank, class... Extras>
void residual_layer_norm(Exec const& exec, TensorRef<X const, Rank> const& x,
                         TensorRef<W const, 1> const& weight, TensorRef<B const, 1> const& bias,
                         TensorRef<Out, Rank> const& out, double eps, Extras const&... extras) {
  char const* const name = "layer_norm";
  auto const given = residual_arguments<Exec>(name, x, extras...);
  using R = std::remove_const_t<std::remove_pointer_t<decltype(given.residual.data)>>;
  using S = std::remove_pointer_t<decltype(given.sum.data)>;
  using Acc = RowAccumulator<RowAccumulator<X, Out>, RowAccumulator<R, S>>;
  check_outputs(name, {{"residual_sum", any_tensor(given.sum)}, {"out", any_tensor(out)}},
                {{"x", any_tensor(x), 0},
                 {"residual", any_tensor(given.residual), 0},
                 {"weight", any_tensor(weight)},
                 {"bias", any_tensor(bias)}});
  auto const rows = rows_of(x);
  auto const sum = rows_of(given.sum);
  if constexpr (is_host_space<Exec>) {
    using Sum = ResidualSumRow<Acc, X, R, S>;
    using Norm = LayerNormRow<Acc, S, W, B, Out>;
    launch_rows(exec, name,
                ResidualNormRow<Sum, Norm>{Sum{rows, rows_of(given.residual), sum},
                                           Norm{rows_of(as_const(given.sum)), weight, bias,
                                                rows_of(out), static_cast<Acc>(eps)}},
                rows.count(), rows.size);
  } else {
    launch_residual_norm(exec, name,
                         ResidualLayerNormDeviceRow<Acc, X, R, S, W, B, Out>{
                             {rows, rows_of(given.residual), sum, rows_of(out)},
                             weight,
                             bias,
                             static_cast<Acc>(eps)},
                         weight, bias);
  }
}

}  // namespace detail

/// Layer normalization: out = (x − mean(x))/√(var(x) + eps)·weight + bias over the last dimension.
///
/// \param exec    execution space instance; the call is asynchronous on it and never fences
/// \param x       rank 1 to 3, [..., hidden]
/// \param weight  [hidden]
/// \param bias    [hidden]
/// \param out     the extents of x; may be x itself
/// \param extras  residual(r) and residual_sum(s), together: s = x + r is stored, and normalized as
///                it was stored. r and s have the extents of x; s may be x or r, out neither then
///
/// Types: any floating-point element for each argument; mean and (biased) variance in two passes in
/// float, in double if x or out is double. A row whose sum exceeds that type's range becomes NaN.
/// hidden = 0 and empty batches are valid. Determinism: run to run, and for any number of host
/// threads. Throws ShapeError, StrideError, Error before launching. Source: J. L. Ba et al., "Layer
/// Normalization", arXiv:1607.06450.
template <ExecutionSpace Exec, TensorLike X, TensorLike W, TensorLike B, TensorLike Out,
          detail::NormExtra... Extras>
void layer_norm(Exec const& exec, X const& x, W const& weight, B const& bias, Out const& out,
                LayerNormOptions const& options = {}, Extras const&... extras) {
  using Acc = detail::RowAccumulator<element_t<X>, element_t<Out>>;
  detail::check_row_operation<Exec>("layer_norm", x, out);
  detail::check_tensor<Exec, W>();
  detail::check_tensor<Exec, B>();
  auto const rx = detail::to_const_ref(x);
  auto const rw = detail::to_const_ref(weight);
  auto const rb = detail::to_const_ref(bias);
  auto const ro = detail::to_ref(out);
  detail::check_same_extents("layer_norm", rx, ro);
  detail::check_row_vector("layer_norm", "weight", rx, rw);
  detail::check_row_vector("layer_norm", "bias", rx, rb);
  if constexpr (sizeof...(Extras) > 0)
    return detail::residual_layer_norm(exec, rx, rw, rb, ro, options.eps, extras...);
  detail::check_outputs("layer_norm", {{"out", detail::any_tensor(ro)}},
                        {{"x", detail::any_tensor(rx), 0},
                         {"weight", detail::any_tensor(rw)},
                         {"bias", detail::any_tensor(rb)}});
  auto const rows = detail::rows_of(rx);
  auto const eps = static_cast<Acc>(options.eps);
  if constexpr (is_host_space<Exec>) {
    detail::launch_rows(
        exec, "layer_norm",
        detail::LayerNormRow<Acc, element_t<X>, element_t<W>, element_t<B>, element_t<Out>>{
            rows, rw, rb, detail::rows_of(ro), eps},
        rows.count(), rows.size);
  } else {
    detail::launch_layer_norm(
        exec,
        detail::LayerNormDeviceRow<Acc, element_t<X>, element_t<W>, element_t<B>, element_t<Out>>{
            rows, rw, rb, detail::rows_of(ro), eps});
  }
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike W, TensorLike B, TensorLike Out, detail::NormExtra... Extras>
void layer_norm(X const& x, W const& weight, B const& bias, Out const& out,
                LayerNormOptions const& options = {}, Extras const&... extras) {
  layer_norm(Kokkos::DefaultExecutionSpace{}, x, weight, bias, out, options, extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
