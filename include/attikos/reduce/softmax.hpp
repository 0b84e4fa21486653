// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// softmax() over the last dimension.
#pragma once

#include <attikos/core/rows/rows.hpp>
#include <attikos/reduce/softmax_device.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of softmax() and log_softmax(), and of their gradients.
struct SoftmaxOptions {
  double scale = 1;  ///< factor of x inside the exponential
};

namespace detail {

namespace host {

/// A row times a number, −∞ behind its end.
template <class Acc, bool Dense, class T>
struct ScaledReader {
  RowReader<Acc, Dense, T> row;
  Acc scale;

  inline __attribute__((always_inline)) Vec<Acc> operator()(std::int64_t j, int count) const {
    constexpr int W = lanes<Acc>;
    constexpr Acc low = -std::numeric_limits<Acc>::infinity();
    Vec<Acc> const v = row(j, count) * scale;
    return count == W ? v : keep_lanes<Acc, W>(v, count, low);
  }

  /// The largest, which exponents are taken relative to; 0 where all are −∞.
  Acc shift(std::int64_t n) const {
    constexpr int W = lanes<Acc>;
    constexpr Acc low = -std::numeric_limits<Acc>::infinity();
    auto const best = reduce_row<Acc, 1>(
        n, Partials<Acc, 1>{{broadcast<Acc, W>(low)}},
        [&](std::int64_t j, int count, auto& largest) __attribute__((always_inline)) {
          largest[0] = max<Acc, W>((*this)(j, count), largest[0]);
        },
        [](Vec<Acc> a, Vec<Acc> b) -> Vec<Acc> { return max<Acc, W>(a, b); });
    Acc const maximum = reduce_max<Acc, W>(best.of[0]);
    return maximum == low ? Acc(0) : maximum;
  }
};

}  // namespace host

template <class Acc, class X, class Out>
struct SoftmaxRow {
  Rows<X const> x;
  Rows<Out> out;
  Acc scale;

  /// Exponentials that a host thread keeps between the sum and the result.
  static constexpr std::int64_t kept = 4096;

  void host_row(std::int64_t index) const {
    Row<X const> const from = x(index);
    Row<Out> const to = out(index);
    bool const past = out.past_caches(x.data);
    host::with_dense(from.stride == 1 && to.stride == 1, [&](auto dense) {
      constexpr int V = host::lanes<Acc>;
      host::ScaledReader<Acc, dense(), X> const read{{from.data, from.stride}, scale};
      Acc const shift = read.shift(from.size);
      auto const exponential = [&](std::int64_t j, int count) __attribute__((always_inline)) {
        return host::exp_of_negative<Acc, V>(read(j, count) - shift);
      };
      auto const write = [&](auto const& weight) __attribute__((always_inline)) {
        host::write_row<Acc, dense()>(to.data, to.stride, from.size, past, ahead_of(index, x),
                                      weight);
      };
      if (from.size <= kept) {
        alignas(64) Acc weights[kept];
        auto const total = host::sum_row<Acc, 1>(
            from.size, [&](std::int64_t j, int count, auto& sum) __attribute__((always_inline)) {
              host::Vec<Acc> const e = exponential(j, count);
              sum[0] += e;
              host::store<Acc, V>(weights + j, e);
            });
        Acc const factor = inverse(total.of[0]);
        write([&](std::int64_t j, int) __attribute__((always_inline)) {
          return host::Vec<Acc>(host::load<Acc, V>(weights + j) * factor);
        });
        return;
      }
      // Evaluated twice: keeping the exponentials would need memory of the row's size.
      auto const total = host::sum_row<Acc, 1>(
          from.size, [&](std::int64_t j, int count, auto& sum)
                         __attribute__((always_inline)) { sum[0] += exponential(j, count); });
      Acc const factor = inverse(total.of[0]);
      write([&](std::int64_t j, int count) __attribute__((always_inline)) {
        return host::Vec<Acc>(exponential(j, count) * factor);
      });
    });
  }

  static Acc inverse(host::Vec<Acc> total) {
    Acc const sum = host::reduce_sum<Acc, host::lanes<Acc>>(total);
    return sum == Acc(0) ? Acc(0) : Acc(1) / sum;
  }
};

}  // namespace detail

/// Softmax: out_j = e^(scale·x_j − m)/Σ e^(scale·x − m) over the last dimension, m the largest
/// scale·x.
///
/// \param exec  execution space instance; the call is asynchronous on it and never fences
/// \param x     rank 1 to 3, [..., size]
/// \param out   the extents of x; may be x itself
///
/// A row of −∞ only gives zeros. Types: any floating-point element for each argument; computed in
/// float, in double if x or out is double. A row with +∞, or with a scale·x beyond that type's
/// range upwards, becomes NaN. Determinism: run to run, and for any number of host threads. Throws
/// ShapeError, StrideError, Error before launching.
template <ExecutionSpace Exec, TensorLike X, TensorLike Out>
void softmax(Exec const& exec, X const& x, Out const& out, SoftmaxOptions const& options = {}) {
  using Acc = detail::RowAccumulator<element_t<X>, element_t<Out>>;
  detail::check_row_operation<Exec>("softmax", x, out);
  auto const rx = detail::to_const_ref(x);
  auto const ro = detail::to_ref(out);
  detail::check_same_extents("softmax", rx, ro);
  detail::check_outputs("softmax", {{"out", detail::any_tensor(ro)}},
                        {{"x", detail::any_tensor(rx), 0}});
  auto const rows = detail::rows_of(rx);
  if constexpr (is_host_space<Exec>) {
    detail::launch_rows(exec, "softmax",
                        detail::SoftmaxRow<Acc, element_t<X>, element_t<Out>>{
                            rows, detail::rows_of(ro), static_cast<Acc>(options.scale)},
                        rows.count(), rows.size);
  } else {
    detail::launch_softmax<false, Acc>(exec, "softmax", rows, detail::rows_of(ro), options.scale);
  }
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike Out>
void softmax(X const& x, Out const& out, SoftmaxOptions const& options = {}) {
  softmax(Kokkos::DefaultExecutionSpace{}, x, out, options);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
