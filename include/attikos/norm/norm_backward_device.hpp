// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Device bodies of rms_norm_backward(), l2_normalize_backward() and layer_norm_backward().
#pragma once

#include <attikos/core/rows/added_row.hpp>
#include <attikos/core/rows/gradient_device.hpp>
#include <attikos/norm/moments.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Twin of RmsNormBackward for rows as they are stored.
template <class Number, class In, class W, class G, class Result, class Factor, class More = Absent>
struct RmsNormDeviceGradient {
  using Acc = Number;
  using X = In;
  using Dout = G;
  using Out = Result;
  static constexpr int partials = 1;

  Rows<X const> x;
  TensorRef<W const, 1> weight;
  Rows<Dout const> dout;
  Rows<Out> dx;
  Factor factor;
  Acc* sums;
  More residual = {};

  KOKKOS_INLINE_FUNCTION Acc* partial(std::int64_t chunk) const { return sums + chunk * x.size; }

  KOKKOS_INLINE_FUNCTION Row<Out> target(std::int64_t row) const { return device_row_of(dx, row); }
  KOKKOS_INLINE_FUNCTION Row<X const> source(std::int64_t row) const {
    return device_row_of(x, row);
  }
  KOKKOS_INLINE_FUNCTION Row<Dout const> gradient(std::int64_t row) const {
    return device_row_of(dout, row);
  }
  template <class Held>
  KOKKOS_INLINE_FUNCTION auto vectors(Held const& held) const {
    return held.along(weight);
  }

  template <class Held, class Weights>
  KOKKOS_INLINE_FUNCTION void device_row(Held& held, std::int64_t row, Weights& weights) const {
    auto const from = source(row);
    auto const g_row = gradient(row);
    auto const more = held.added(added_row(residual, row));
    auto const sum_of = held.template sums<2>(
        from, g_row, Acc(0),
        [](Acc v, Acc g, Acc w, Acc, Acc* sum) {
          sum[0] += v * v;
          sum[1] += g * w * v;
        },
        weights);
    Acc const f = factor(sum_of.of[0], x.size);
    Acc const c = sum_of.of[1] * f / static_cast<Acc>(x.size);
    held.store_sum(
        more, from, g_row, target(row),
        [=](Acc v, Acc g, Acc w, Acc* add) {
          Acc const normalized = v * f;
          add[0] = g * normalized;
          return f * (g * w - normalized * c);
        },
        weights);
  }
};

/// Twin of L2NormalizeBackward, which `Factors` is.
template <class Number, class In, class G, class Result, class Factors>
struct L2NormalizeDeviceGradient {
  using Acc = Number;
  using X = In;
  using Dout = G;
  using Out = Result;
  static constexpr int partials = 0;

  Factors op;

  KOKKOS_INLINE_FUNCTION Acc* partial(std::int64_t) const { return nullptr; }

  KOKKOS_INLINE_FUNCTION Row<Out> target(std::int64_t row) const {
    return device_row_of(op.dx, row);
  }
  KOKKOS_INLINE_FUNCTION Row<X const> source(std::int64_t row) const {
    return device_row_of(op.x, row);
  }
  KOKKOS_INLINE_FUNCTION Row<Dout const> gradient(std::int64_t row) const {
    return device_row_of(op.dout, row);
  }

  template <class Held>
  KOKKOS_INLINE_FUNCTION void device_row(Held& held, std::int64_t row, Absent) const {
    auto const from = source(row);
    auto const g_row = gradient(row);
    auto const sum_of = held.template sums<2>(from, g_row, Acc(0), [](Acc v, Acc g, Acc, Acc* sum) {
      sum[0] += v * v;
      sum[1] += v * g;
    });
    auto const k = op.factors(sum_of.of[0], sum_of.of[1]);
    held.store(from, g_row, target(row), [=](Acc v, Acc g, Acc*) { return k.f * (g - v * k.c); });
  }
};

/// Twin of LayerNormBackward.
template <class Number, class In, class W, class G, class Result, class More = Absent>
struct LayerNormDeviceGradient {
  using Acc = Number;
  using X = In;
  using Dout = G;
  using Out = Result;
  static constexpr int partials = 2;

  /// Σd, Σd², Σg·w and Σg·w·d, where d is x − shift.
  struct AddToSums {
    KOKKOS_INLINE_FUNCTION void operator()(Acc v, Acc g, Acc w, Acc shift, Acc* sum) const {
      AddMoments{}(v, shift, sum);
      Acc const weighted = g * w;
      sum[2] += weighted;
      sum[3] += weighted * (v - shift);
    }
  };

  Rows<X const> x;
  TensorRef<W const, 1> weight;
  Rows<Dout const> dout;
  Rows<Out> dx;
  Acc eps;
  Acc* sums;
  More residual = {};

  KOKKOS_INLINE_FUNCTION Acc* partial(std::int64_t chunk) const {
    return sums + chunk * 2 * x.size;
  }

  KOKKOS_INLINE_FUNCTION Row<Out> target(std::int64_t row) const { return device_row_of(dx, row); }
  KOKKOS_INLINE_FUNCTION Row<X const> source(std::int64_t row) const {
    return device_row_of(x, row);
  }
  KOKKOS_INLINE_FUNCTION Row<Dout const> gradient(std::int64_t row) const {
    return device_row_of(dout, row);
  }
  template <class Held>
  KOKKOS_INLINE_FUNCTION auto vectors(Held const& held) const {
    return held.along(weight);
  }

  template <class Held, class Weights>
  KOKKOS_INLINE_FUNCTION void device_row(Held& held, std::int64_t row, Weights& weights) const {
    auto const from = source(row);
    auto const g_row = gradient(row);
    auto const more = held.added(added_row(residual, row));
    auto const of = moments(held.first_x(), x.size, [&](Acc shift) {
      return held.template sums<4>(from, g_row, shift, AddToSums{}, weights);
    });
    Acc const f = Kokkos::rsqrt(of.variance + eps);
    Acc const share = Acc(1) / static_cast<Acc>(x.size);
    Acc const mean_g = of.sums.of[2] * share;
    Acc const mean_gh = (of.sums.of[3] * share - of.from_shift * mean_g) * f;
    held.store_sum(
        more, from, g_row, target(row),
        [=, mean = of.mean](Acc v, Acc g, Acc w, Acc* add) {
          Acc const h = (v - mean) * f;
          add[0] = g * h;
          add[1] = g;
          return f * (g * w - mean_g - h * mean_gh);
        },
        weights);
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
