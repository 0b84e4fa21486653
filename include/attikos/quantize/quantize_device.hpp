// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// quantize() and dequantize() on a device: a piece that has one factor is a row that is read once.
#pragma once

#include <attikos/core/rows/device.hpp>
#include <attikos/quantize/quantize_portable.hpp>
#include <optional>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Nearest elements to value/scale as quantize_value() gives them, several at once.
template <class Out>
struct DeviceQuantizer {
  float scale, inverse;
  bool by_reciprocal;

  /// `bounded`: no quotient is past the range of float.
  KOKKOS_INLINE_FUNCTION DeviceQuantizer(float factor, bool bounded)
      : scale(factor),
        inverse(1.0f / factor),
        // Neither the reciprocal nor a remainder that matters is subnormal.
        by_reciprocal(bounded && factor > 0x1p-60f && factor < 0x1p60f) {}

  /// value/scale rounded to nearest. With the reciprocal rounded to nearest, one step of Newton's
  /// from the product gives that (P. Markstein, IBM J. Res. Dev. 34, 1990). NaN of an infinity. The
  /// remainder has the sign that leaves a quotient of -0 as it is.
  KOKKOS_INLINE_FUNCTION float quotient(float value) const {
    float const near = value * inverse;
    float const excess = Kokkos::fma(near, scale, -value);
    return Kokkos::fma(-excess, inverse, near);
  }
  KOKKOS_INLINE_FUNCTION float divided(float value) const {
    return is_finite(value) ? value / scale : value - value;
  }

  template <int Count>
  KOKKOS_INLINE_FUNCTION void convert(float const (&values)[Count], Out (&out)[Count]) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    if constexpr (!std::is_same_v<Out, std::int8_t>) {
      float quotients[Count];
      if (by_reciprocal)
        for (int i = 0; i < Count; ++i) quotients[i] = quotient(values[i]);
      else
        for (int i = 0; i < Count; ++i) quotients[i] = divided(values[i]);
      round(values, quotients, out);
    } else
#endif
    {
      for (int i = 0; i < Count; ++i)
        out[i] = quantize_value<Out>(static_cast<double>(values[i] / scale), is_finite(values[i]));
    }
  }

 private:
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  /// Two conversions in one instruction, which saturates; NaN stays NaN.
  template <int Count>
  static KOKKOS_INLINE_FUNCTION void round(float const (&values)[Count],
                                           float const (&quotients)[Count], Out (&out)[Count]) {
    constexpr bool e4m3 = std::is_same_v<Out, float8_e4m3>;
    for (int i = 0; i < Count; i += 2) {
      float2 const pair{quotients[i], i + 1 < Count ? quotients[i + 1] : 0.0f};
      unsigned const codes =
          __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, e4m3 ? __NV_E4M3 : __NV_E5M2);
      out[i].bits = static_cast<std::uint8_t>(codes);
      if (i + 1 < Count) out[i + 1].bits = static_cast<std::uint8_t>(codes >> 8);
    }
    if constexpr (!e4m3)  // which has infinities
      for (int i = 0; i < Count; ++i)
        if (Kokkos::abs(values[i]) > 0x1.fffffep127f)
          out[i].bits = static_cast<std::uint8_t>(0x7cu | (values[i] < 0 ? 0x80u : 0u));
  }
#endif
};

/// Rows of one factor each.
template <class In, class Result>
struct QuantizeDeviceRow {
  using Acc = float;
  using X = In;
  using Out = Result;

  Rows<X const> x;
  Rows<Out> out;
  Rows<float> scale;  ///< of rows of one element
  ScaleRule<Out> rule;
  QuantizePass pass;

  KOKKOS_INLINE_FUNCTION Row<X const> source(std::int64_t index) const {
    return device_row_of(x, index);
  }
  KOKKOS_INLINE_FUNCTION Row<Out> target(std::int64_t index) const {
    return device_row_of(out, index);
  }

  template <class Held>
  KOKKOS_INLINE_FUNCTION void device_row(Held& row, std::int64_t index, Absent) const {
    auto const from = device_row_of(x, index);
    float* const factor = device_row_of(scale, index).data;
    float by = 0;
    if (pass == QuantizePass::apply) {
      by = *factor;
    } else {
      float const largest = largest_of(row, from);
      if (pass == QuantizePass::measure) {
        // The order of maxima does not matter, and few of them raise what is there.
        if (row.first_lane() && Kokkos::atomic_load(factor) < largest)
          Kokkos::atomic_max(factor, largest);
        return;
      }
      by = rule(largest);
      if (row.first_lane()) *factor = by;
    }
    row.store(from, target(index), DeviceQuantizer<Out>(by, pass != QuantizePass::apply));
  }

 private:
  /// The largest magnitude that counts. Rows without infinities, nearly all, need no question for
  /// each element; NaN is never the larger.
  template <class Held>
  KOKKOS_INLINE_FUNCTION float largest_of(Held& row, Row<X const> const& from) const {
    if (row.whole()) {
      float const largest =
          row.template max<true>(from, 0.0f, [](float v) { return Kokkos::abs(v); });
      if (is_finite(largest)) return largest;
    }
    return row.template max<true>(
        from, 0.0f, [](float v) { return counted_magnitude(v); }, pass == QuantizePass::measure);
  }
};

template <class In, class Result>
struct DequantizeDeviceRow {
  using Acc = float;
  using X = In;
  using Out = Result;

  Rows<X const> x;
  Rows<Out> out;
  Rows<float const> scale;

  KOKKOS_INLINE_FUNCTION Row<X const> source(std::int64_t index) const {
    return device_row_of(x, index);
  }
  KOKKOS_INLINE_FUNCTION Row<Out> target(std::int64_t index) const {
    return device_row_of(out, index);
  }

  template <class Held>
  KOKKOS_INLINE_FUNCTION void device_row(Held& row, std::int64_t index, Absent) const {
    auto const from = device_row_of(x, index);
    float const by = *device_row_of(scale, index).data;
    row.store(from, target(index), [=](float v) { return v * by; });
  }
};

/// The pieces of a matrix that have one factor each, as rows: of the whole extent, or of `length`
/// elements where factors are blocked. Nothing where batch, rows and blocks need three strides.
template <class T>
std::optional<Rows<T>> factor_rows(TensorRef<T, 3> const& x, std::int64_t length, bool blocked) {
  Rows<T> const rows = flattened(Rows<T>{x.data, x.extent[0], x.extent[1], x.extent[2], x.stride[0],
                                         x.stride[1], x.stride[2]});
  if (!blocked) return rows;
  if (rows.outer != 1 || rows.size % length != 0) return std::nullopt;
  return flattened(Rows<T>{rows.data, rows.inner, rows.size / length, length, rows.inner_stride,
                           length * rows.stride, rows.stride});
}

/// Runs `launch(x rows, out rows, scale rows)` if the arguments come to rows; says whether. `cut`:
/// where a factor covers the row, the work may be shared out in pieces of it.
template <class X, class Out, class Launch>
bool with_factor_rows(TensorRef<X const, 3> const& x, TensorRef<Out, 3> const& out,
                      abi::ScaleGrid const& grid, float* scales, bool cut, Launch const& launch) {
  constexpr std::int64_t block = std::int64_t{1} << scale_block_shift, piece = 4096;
  if (grid.row != 0 && grid.row_shift != 0 && x.extent[1] > 1) return false;
  bool const blocked = grid.col != 0 && grid.col_shift != 0 && x.extent[2] > block;
  bool const pieces = !blocked && cut && x.extent[2] > piece;
  std::int64_t const length = blocked ? block : piece;
  auto const from = factor_rows(x, length, blocked || pieces);
  auto const to = factor_rows(out, length, blocked || pieces);
  std::int64_t const factors_per_row = blocked || pieces ? x.extent[2] / length : 1;
  TensorRef<float, 3> const factors{scales,
                                    {x.extent[0], x.extent[1], factors_per_row},
                                    {grid.batch, grid.row, blocked ? grid.col : 0}};
  auto const scale = factor_rows(factors, 1, blocked || pieces);
  if (!from || !to || !scale) return false;
  launch(*from, *to, *scale);
  return true;
}

/// Whether this was one launch over rows.
template <class Exec, class X, class Out>
bool quantize_device_rows(Exec const& exec, char const* operation, TensorRef<X const, 3> const& x,
                          TensorRef<Out, 3> const& out, abi::ScaleGrid const& grid, float* scales,
                          ScaleRule<Out> rule, QuantizePass pass) {
  if constexpr (std::is_same_v<X, double>) {
    return false;
  } else {
    // Too short to ask for a common factor once a row.
    if (pass == QuantizePass::measure && x.extent[2] < 256) return false;
    return with_factor_rows(
        x, out, grid, scales, pass != QuantizePass::fused, [&](auto from, auto to, auto scale) {
          constexpr int width = neighbors<X, Out>;
          launch_device_rows(exec, operation,
                             QuantizeDeviceRow<X, Out>{from, to, scale, rule, pass}, from.count(),
                             from.size, common_width<width>(from, to));
        });
  }
}

template <class Exec, class X, class Out>
bool dequantize_device_rows(Exec const& exec, TensorRef<X const, 3> const& x,
                            TensorRef<Out, 3> const& out, abi::ScaleGrid const& grid) {
  if constexpr (std::is_same_v<Out, double>) {
    return false;
  } else {
    // Read alone.
    auto* const factors = const_cast<float*>(grid.data);
    return with_factor_rows(x, out, grid, factors, true, [&](auto from, auto to, auto scale) {
      constexpr int width = neighbors<X, Out>;
      Rows<float const> const read{scale.data,         scale.outer,        scale.inner, scale.size,
                                   scale.outer_stride, scale.inner_stride, scale.stride};
      launch_device_rows(exec, "dequantize", DequantizeDeviceRow<X, Out>{from, to, read},
                         from.count(), from.size, common_width<width>(from, to));
    });
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
