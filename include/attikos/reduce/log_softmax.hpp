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
    Row<X const> const from = x(index);
    Row<Out> const to = out(index);
    bool const past = out.past_caches(x.data);
    host::with_dense(from.stride == 1 && to.stride == 1, [&](auto dense) {
      constexpr int V = host::lanes<Acc>;
      host::ScaledReader<Acc, dense(), X> const read{{from.data, from.stride}, scale};
      Acc const shift = read.shift(from.size);
      auto const total = host::sum_row<Acc, 1>(
          from.size, [&](std::int64_t j, int count, auto& sum) __attribute__((always_inline)) {
            sum[0] += host::exp_of_negative<Acc, V>(read(j, count) - shift);
          });
      Acc const sum = host::reduce_sum<Acc, V>(total.of[0]);
      Acc const log_sum = sum == Acc(0) ? Acc(0) : std::log(sum);
      host::write_row<Acc, dense()>(
          to.data, to.stride, from.size, past,
          ahead_of(index, x), [&](std::int64_t j, int count) __attribute__((always_inline)) {
            return host::Vec<Acc>((read(j, count) - shift) - log_sum);
          });
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
                        rows.count(), rows.size);
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
