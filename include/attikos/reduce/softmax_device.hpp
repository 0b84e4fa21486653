// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Device bodies of softmax() and log_softmax().
#pragma once

#include <attikos/core/rows/device.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class Number, class In, class Result, bool Logarithm>
struct SoftmaxDeviceRow {
  using Acc = Number;
  using X = In;
  using Out = Result;

  Rows<X const> x;
  Rows<Out> out;
  Acc scale;

  /// e^t; as exact as results of 32 bits show.
  static KOKKOS_INLINE_FUNCTION Acc weight_of(Acc t) {
    return sizeof(Out) <= 2 ? quick_exp(t) : Kokkos::exp(t);
  }

  KOKKOS_INLINE_FUNCTION Row<Out> target(std::int64_t index) const {
    return device_row_of(out, index);
  }
  KOKKOS_INLINE_FUNCTION Row<X const> source(std::int64_t index) const {
    return device_row_of(x, index);
  }

  template <class Held>
  KOKKOS_INLINE_FUNCTION void device_row(Held& row, std::int64_t index, Absent) const {
    auto const from = device_row_of(x, index);
    auto const to = target(index);
    Acc const s = scale;
    if (Logarithm || !row.whole()) {
      auto const exponentials = row.exponentials(from, [=](Acc v) { return v * s; });
      Acc const shift = exponentials.shift, sum = exponentials.sum;
      // 0, or NaN where the largest is infinite: fused multiply-adds subtract that from v·s before
      // it overflows, so that every weight would be 0.
      if constexpr (Logarithm) {
        Acc const log_sum = sum == Acc(0) ? shift - shift : Kokkos::log(sum);
        row.store(from, to, [=](Acc v) { return (v * s - shift) - log_sum; });
      } else {
        Acc const inverse = sum == Acc(0) ? shift - shift : Acc(1) / sum;
        row.store(from, to, [=](Acc v) { return weight_of(v * s - shift) * inverse; });
      }
    } else {
      Acc const shift =
          row.max(from, Kokkos::Experimental::finite_min_v<Acc>, [=](Acc v) { return v * s; });
      Acc const sum = row.sum_and_keep(from, [=](Acc v) { return weight_of(v * s - shift); });
      Acc const inverse = sum == Acc(0) ? shift - shift : Acc(1) / sum;  // as above
      row.store(from, to, [=](Acc e) { return e * inverse; });
    }
  }
};

template <bool Logarithm, class Acc, class Exec, class X, class Out>
void launch_softmax(Exec const& exec, char const* operation, Rows<X const> const& x,
                    Rows<Out> const& out, double scale) {
  constexpr int width = neighbors<X, Out>;
  SoftmaxDeviceRow<Acc, X, Out, Logarithm> const op{x, out, static_cast<Acc>(scale)};
  launch_device_rows(exec, operation, op, op.x.count(), op.x.size,
                     common_width<width>(op.x, op.out));
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
