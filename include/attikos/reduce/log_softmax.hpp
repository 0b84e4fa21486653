// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// log_softmax() over the last dimension.
#pragma once

#include <attikos/reduce/softmax.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class Acc, class X, class Out>
struct LogSoftmaxRow {
  Rows<X const> x;
  Rows<Out> out;
  Acc scale;

  void host_row(std::int64_t index) const {
    constexpr int V = host::lanes<Acc>;
    constexpr Acc low = -std::numeric_limits<Acc>::infinity();
    Row<X const> const from = x(index);
    Row<Out> const to = out(index);
    auto const each = [&](auto&& f) {
      host::for_each_vector<Acc>(from.data, from.stride, from.size, Acc(0),
                                 [&](std::int64_t j, host::Vec<Acc> v, int count) {
                                   v *= scale;
                                   for (int l = count; l < V; ++l) v[l] = low;
                                   f(j, v, count);
                                 });
    };
    host::Vec<Acc> best = host::broadcast<Acc, V>(low);
    each([&](std::int64_t, host::Vec<Acc> v, int) { best = host::max<Acc, V>(v, best); });
    Acc const maximum = host::reduce_max<Acc, V>(best);
    Acc const shift = maximum == low ? Acc(0) : maximum;
    host::Vec<Acc> total{};
    each([&](std::int64_t, host::Vec<Acc> v, int) { total += host::exp<Acc, V>(v - shift); });
    Acc const sum = host::reduce_sum<Acc, V>(total);
    Acc const log_sum = sum == Acc(0) ? Acc(0) : std::log(sum);
    each([&](std::int64_t j, host::Vec<Acc> v, int count) {
      host::put<Acc>(to.data + j * to.stride, to.stride, count, (v - shift) - log_sum);
    });
  }
};

}  // namespace detail

/// Logarithm of the softmax: out_j = (scale·x_j − m) − log Σ e^(scale·x − m) over the last
/// dimension, m the largest scale·x.
///
/// \param exec  execution space instance; the call is asynchronous on it and never fences
/// \param x     rank 1 to 3, [..., size]
/// \param out   the extents of x; may be x itself
///
/// A row of −∞ only stays −∞. Types: any floating-point element for each argument; computed in
/// float, in double if x or out is double. A row with +∞, or with a scale·x beyond that type's
/// range upwards, becomes NaN. Determinism: run to run, and for any number of host threads. Throws
/// ShapeError, StrideError, Error before launching.
template <ExecutionSpace Exec, TensorLike X, TensorLike Out>
void log_softmax(Exec const& exec, X const& x, Out const& out, SoftmaxOptions const& options = {}) {
  using Acc = detail::RowAccumulator<element_t<X>, element_t<Out>>;
  detail::check_row_operation<Exec>("log_softmax", x, out);
  auto const rx = detail::to_const_ref(x);
  auto const ro = detail::to_ref(out);
  detail::check_same_extents("log_softmax", rx, ro);
  detail::check_outputs("log_softmax", {{"out", detail::any_tensor(ro)}},
                        {{"x", detail::any_tensor(rx), 0}});
  auto const rows = detail::rows_of(rx);
  if constexpr (is_host_space<Exec>) {
    detail::launch_rows(exec, "log_softmax",
                        detail::LogSoftmaxRow<Acc, element_t<X>, element_t<Out>>{
                            rows, detail::rows_of(ro), static_cast<Acc>(options.scale)},
                        rows.count());
  } else {
    detail::launch_softmax<true, Acc>(exec, "log_softmax", rows, detail::rows_of(ro),
                                      options.scale);
  }
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike Out>
void log_softmax(X const& x, Out const& out, SoftmaxOptions const& options = {}) {
  log_softmax(Kokkos::DefaultExecutionSpace{}, x, out, options);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
