// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// softmax_backward() and log_softmax_backward().
#pragma once

#include <attikos/core/rows/checks.hpp>
#include <attikos/core/rows/gradient_device.hpp>
#include <attikos/reduce/softmax.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// dx = scale·p·(g − Σ p·g), from p = the softmax.
template <class Acc, class P, class Dout, class Dx>
struct SoftmaxBackwardRow {
  Rows<P const> out;
  Rows<Dout const> dout;
  Rows<Dx> dx;
  Acc scale;

  void host_row(std::int64_t index) const {
    Row<P const> const p = out(index);
    Row<Dout const> const g = dout(index);
    Row<Dx> const to = dx(index);
    bool const past = dx.past_caches(out.data) && dx.past_caches(dout.data);
    host::with_dense(p.stride == 1 && g.stride == 1 && to.stride == 1, [&](auto dense) {
      host::RowReader<Acc, dense(), P> const weight{p.data, p.stride};
      host::RowReader<Acc, dense(), Dout> const gradient{g.data, g.stride};
      auto const products = host::sum_row<Acc, 1>(
          p.size, [&](std::int64_t j, int count, auto& sum) __attribute__((always_inline)) {
            sum[0] = host::multiply_add<Acc, host::lanes<Acc>>(weight(j, count), gradient(j, count),
                                                               sum[0]);
          });
      Acc const sum = host::reduce_sum<Acc, host::lanes<Acc>>(products.of[0]);
      host::write_row<Acc, dense()>(
          to.data, to.stride, p.size, past, ahead_of(index, out, dout),
          [&](std::int64_t j, int count) __attribute__((always_inline)) {
            return host::Vec<Acc>(scale * weight(j, count) * (gradient(j, count) - sum));
          });
    });
  }
};

/// dx = scale·(g − e^y·Σ g), from y = the logarithm of the softmax; 0 where the whole row is −∞.
template <class Acc, class Y, class Dout, class Dx>
struct LogSoftmaxBackwardRow {
  Rows<Y const> out;
  Rows<Dout const> dout;
  Rows<Dx> dx;
  Acc scale;

  void host_row(std::int64_t index) const {
    Row<Y const> const y = out(index);
    Row<Dout const> const g = dout(index);
    Row<Dx> const to = dx(index);
    bool const past = dx.past_caches(out.data) && dx.past_caches(dout.data);
    host::with_dense(y.stride == 1 && g.stride == 1 && to.stride == 1, [&](auto dense) {
      constexpr int V = host::lanes<Acc>;
      constexpr Acc low = -std::numeric_limits<Acc>::infinity();
      host::RowReader<Acc, dense(), Y> const result{y.data, y.stride};
      host::RowReader<Acc, dense(), Dout> const gradient{g.data, g.stride};
      auto const sums = host::sum_row<Acc, 2>(
          y.size, [&](std::int64_t j, int count, auto& sum) __attribute__((always_inline)) {
            sum[0] += gradient(j, count);
            sum[1] = result(j, count, low) == low ? sum[1] : host::broadcast<Acc, V>(Acc(1));
          });
      Acc const sum = host::reduce_sum<Acc, V>(sums.of[0]);
      bool const any = host::reduce_sum<Acc, V>(sums.of[1]) != Acc(0);
      host::write_row<Acc, dense()>(
          to.data, to.stride, y.size, past, ahead_of(index, out, dout),
          [&](std::int64_t j, int count) __attribute__((always_inline)) {
            host::Vec<Acc> const weight = host::exp<Acc, V>(result(j, count));
            host::Vec<Acc> const d =
                scale * host::multiply_add<Acc, host::lanes<Acc>>(-weight, sum, gradient(j, count));
            return any ? d : host::Vec<Acc>{};
          });
    });
  }
};

/// Twin of SoftmaxBackwardRow, which `Host` is.
template <class Number, class P, class G, class Dx, class Host>
struct SoftmaxDeviceGradient {
  using Acc = Number;
  using X = P;
  using Dout = G;
  using Out = Dx;
  static constexpr int partials = 0;

  Host op;

  KOKKOS_INLINE_FUNCTION Acc* partial(std::int64_t) const { return nullptr; }

  KOKKOS_INLINE_FUNCTION Row<Out> target(std::int64_t row) const {
    return device_row_of(op.dx, row);
  }
  KOKKOS_INLINE_FUNCTION Row<X const> source(std::int64_t row) const {
    return device_row_of(op.out, row);
  }
  KOKKOS_INLINE_FUNCTION Row<Dout const> gradient(std::int64_t row) const {
    return device_row_of(op.dout, row);
  }

  template <class Held>
  KOKKOS_INLINE_FUNCTION void device_row(Held& held, std::int64_t row, Absent) const {
    Acc const scale = op.scale;
    auto const p = source(row);
    auto const g_row = gradient(row);
    auto const sums = held.template sums<1>(p, g_row, Acc(0),
                                            [](Acc v, Acc g, Acc, Acc* part) { part[0] += v * g; });
    Acc const sum = sums.of[0];
    held.store(p, g_row, target(row), [=](Acc v, Acc g, Acc*) { return scale * v * (g - sum); });
  }
};

/// Twin of LogSoftmaxBackwardRow.
template <class Number, class Y, class G, class Dx, class Host>
struct LogSoftmaxDeviceGradient {
  using Acc = Number;
  using X = Y;
  using Dout = G;
  using Out = Dx;
  static constexpr int partials = 0;

  Host op;

  KOKKOS_INLINE_FUNCTION Acc* partial(std::int64_t) const { return nullptr; }

  KOKKOS_INLINE_FUNCTION Row<Out> target(std::int64_t row) const {
    return device_row_of(op.dx, row);
  }
  KOKKOS_INLINE_FUNCTION Row<X const> source(std::int64_t row) const {
    return device_row_of(op.out, row);
  }
  KOKKOS_INLINE_FUNCTION Row<Dout const> gradient(std::int64_t row) const {
    return device_row_of(op.dout, row);
  }

  template <class Held>
  KOKKOS_INLINE_FUNCTION void device_row(Held& held, std::int64_t row, Absent) const {
    Acc const scale = op.scale;
    auto const y = source(row);
    auto const g_row = gradient(row);
    auto const sums = held.template sums<2>(y, g_row, Acc(1), [](Acc v, Acc g, Acc one, Acc* part) {
      part[0] += g;
      part[1] += v == -Kokkos::Experimental::infinity_v<Acc> ? Acc(0) : one;
    });
    Acc const sum = sums.of[0];
    bool const any = sums.of[1] != Acc(0);
    held.store(y, g_row, device_row_of(op.dx, row), [=](Acc v, Acc g, Acc*) {
      return any ? scale * (g - Kokkos::exp(v) * sum) : Acc(0);
    });
  }
};

/// Both gradients: checks and launch of `Op`, or of `OnDevice`.
template <template <class, class, class, class> class Op,
          template <class, class, class, class, class> class OnDevice, class Exec, class Result,
          class Dout, class Dx>
void run_softmax_backward(Exec const& exec, char const* operation, Result const& out,
                          Dout const& dout, Dx const& dx, SoftmaxOptions const& options) {
  using Acc = RowAccumulator<element_t<Result>, element_t<Dout>>;
  check_row_backward<Exec>(operation, "out", out, dout, dx);
  check_outputs(operation, {{"dx", any_tensor(dx)}},
                {{"out", any_tensor(out), 0}, {"dout", any_tensor(dout), 0}});
  auto const rows = rows_of(to_const_ref(out));
  using OnHost = Op<Acc, element_t<Result>, element_t<Dout>, element_t<Dx>>;
  OnHost const op{rows, rows_of(to_const_ref(dout)), rows_of(to_ref(dx)),
                  static_cast<Acc>(options.scale)};
  if constexpr (is_host_space<Exec>) {
    launch_rows(exec, operation, op, rows.count(), rows.size);
  } else {
    using Gradient = OnDevice<Acc, element_t<Result>, element_t<Dout>, element_t<Dx>, OnHost>;
    launch_device_gradient(exec, operation, Gradient{op}, single_rows(rows.count()), rows.size,
                           common_width<gradient_neighbors<Gradient>>(op.out, op.dout, op.dx));
  }
}

}  // namespace detail

/// Gradient of softmax(): dx = scale·out·(dout − Σ out·dout) over the last dimension.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param out      rank 1 to 3, [..., size]: what softmax() gave
/// \param dout     the extents of out
/// \param dx       the extents of out; may be out or dout itself
/// \param options  what softmax() had
///
/// A row of zeros, which softmax() gives for −∞ only, has the gradient 0. Types: any floating-point
/// element for each argument; computed in float, in double if out or dout is double. Determinism:
/// run to run, and for any number of host threads. Throws ShapeError, StrideError, Error before
/// launching.
template <ExecutionSpace Exec, TensorLike Out, TensorLike Dout, TensorLike Dx>
void softmax_backward(Exec const& exec, Out const& out, Dout const& dout, Dx const& dx,
                      SoftmaxOptions const& options = {}) {
  detail::run_softmax_backward<detail::SoftmaxBackwardRow, detail::SoftmaxDeviceGradient>(
      exec, "softmax_backward", out, dout, dx, options);
}

/// The same on an instance of the default execution space.
template <TensorLike Out, TensorLike Dout, TensorLike Dx>
void softmax_backward(Out const& out, Dout const& dout, Dx const& dx,
                      SoftmaxOptions const& options = {}) {
  softmax_backward(Kokkos::DefaultExecutionSpace{}, out, dout, dx, options);
}

/// Gradient of log_softmax(): dx = scale·(dout − e^out·Σ dout) over the last dimension.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param out      rank 1 to 3, [..., size]: what log_softmax() gave
/// \param dout     the extents of out
/// \param dx       the extents of out; may be out or dout itself
/// \param options  what log_softmax() had
///
/// A row of −∞ only has the gradient 0. Types, determinism and errors as for softmax_backward().
template <ExecutionSpace Exec, TensorLike Out, TensorLike Dout, TensorLike Dx>
void log_softmax_backward(Exec const& exec, Out const& out, Dout const& dout, Dx const& dx,
                          SoftmaxOptions const& options = {}) {
  detail::run_softmax_backward<detail::LogSoftmaxBackwardRow, detail::LogSoftmaxDeviceGradient>(
      exec, "log_softmax_backward", out, dout, dx, options);
}

/// The same on an instance of the default execution space.
template <TensorLike Out, TensorLike Dout, TensorLike Dx>
void log_softmax_backward(Out const& out, Dout const& dout, Dx const& dx,
                          SoftmaxOptions const& options = {}) {
  log_softmax_backward(Kokkos::DefaultExecutionSpace{}, out, dout, dx, options);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
