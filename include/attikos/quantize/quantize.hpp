// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// quantize(), quantize_with_scale() and dequantize(): 8-bit elements with float32 scales.
#pragma once

#include <attikos/quantize/quantize_device.hpp>
#include <attikos/quantize/quantize_portable.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of quantize().
struct QuantizeOptions {
  /// Rounds each scale up to a power of two, so that scaling back is exact.
  bool power_of_two_scale = false;
};

namespace detail {

/// A tensor of rank 2 as one of rank 3 with one matrix.
template <class T, int Rank>
TensorRef<T, 3> as_matrices(TensorRef<T, Rank> const& x) {
  if constexpr (Rank == 3) {
    return x;
  } else {
    return {x.data, {1, x.extent[0], x.extent[1]}, {0, x.stride[0], x.stride[1]}};
  }
}

template <class T>
void swap_matrix_dimensions(TensorRef<T, 3>& x) {
  std::swap(x.extent[1], x.extent[2]);
  std::swap(x.stride[1], x.stride[2]);
}

/// Checked arguments of the three functions, columns running along the pieces of a factor.
template <class X, class Out>
struct QuantizeArguments {
  TensorRef<X const, 3> x;
  TensorRef<Out, 3> out;
  abi::ScaleGrid grid;
};

template <ExecutionSpace Exec, TensorLike X, TensorLike S, TensorLike Out>
auto quantize_arguments(char const* operation, X const& x, S const& scale, Out const& out) {
  static_assert(rank_of<X> == 2 || rank_of<X> == 3, "attikos: x has rank 2 or 3");
  static_assert(rank_of<X> == rank_of<Out>, "attikos: x and out have one rank");
  check_tensor<Exec, X>();
  check_extents(operation, "x", x);
  check_extents(operation, "out", out);
  check_extents(operation, "scale", scale);
  auto const rx = to_const_ref(x);
  check_same_extents(operation, rx, to_ref(out));
  check_output<Exec>(out);
  QuantizeArguments<element_t<X>, element_t<Out>> a{as_matrices(rx), as_matrices(to_ref(out)), {}};
  auto const tensor = scale_tensor<Exec>(scale);
  auto const text = [&] { return "x, which is " + describe(rx); };
  ScaledMatrix const matrix{rank_of<X>, a.x.extent[0], a.x.extent[1], a.x.extent[2]};
  a.grid = scale_grid(operation, "scale", tensor, matrix, text);
  auto const each = [](std::int64_t step, std::int32_t shift, std::int64_t extent) {
    return extent > 1 && step != 0 && shift == 0;
  };
  bool const each_row = each(a.grid.row, a.grid.row_shift, a.x.extent[1]);
  bool const each_col = each(a.grid.col, a.grid.col_shift, a.x.extent[2]);
  if (each_row && each_col)
    raise<ShapeError>(operation, ": scale has one factor for each element; expected ",
                      scale_shape_text(matrix), ", of ", text());
  if (each_col) {
    swap_matrix_dimensions(a.x);
    swap_matrix_dimensions(a.out);
    std::swap(a.grid.row, a.grid.col);
    std::swap(a.grid.row_shift, a.grid.col_shift);
  }
  return a;
}

template <class X>
constexpr bool is_quantize_input() {
  return std::is_same_v<X, double> || std::is_same_v<X, float> || std::is_same_v<X, float16> ||
         std::is_same_v<X, bfloat16>;
}

/// One pass over all elements.
template <class Exec, class X, class Out>
void quantize_pass(Exec const& exec, char const* operation, QuantizeArguments<X, Out> const& a,
                   float* scales, ScaleRule<Out> rule, QuantizePass pass) {
  if constexpr (!is_host_space<Exec>) {
    // Read where they are not written.
    auto* const factors = const_cast<float*>(a.grid.data);
    if (quantize_device_rows(exec, operation, a.x, a.out, a.grid, factors, rule, pass)) return;
  }
  auto const pieces =
      make_pieces(a.x.extent[1], a.x.extent[2], a.grid, pass == QuantizePass::fused);
  launch_rows(
      exec, operation, QuantizePiece<X, Out>{a.x, a.out, a.grid, scales, pieces, rule, pass},
      a.x.extent[0] * a.x.extent[1] * pieces.per_row, std::min(pieces.length, a.x.extent[2]));
}

}  // namespace detail

/// Rounds a matrix to 8-bit elements and finds the scales for it: per block of elements
/// scale = max(max|x|/limit, 2⁻¹²⁶), out = round(x/scale), so that x ≈ scale·out.
///
/// \param exec   execution space instance; the call is asynchronous on it and never fences
/// \param x      [rows, cols] or [batch, rows, cols]; double, float, float16 or bfloat16
/// \param out    the extents of x; float8_e4m3 (limit 448), float8_e5m2 (57344) or int8 (127)
/// \param scale  output, float; its shape says what shares a factor. With leading `batch` (or 1 in
///               its place, to share factors over the batch) where x has rank 3:
///               [1] of rank 1: the whole tensor; [1, 1]: a matrix; [rows] or [rows, 1]: a row;
///               [1, cols]: a column; [rows, ⌈cols/128⌉]: 128 neighbors in a row;
///               [⌈rows/128⌉, cols]: 128 neighbors in a column;
///               [⌈rows/128⌉, ⌈cols/128⌉]: 128 × 128 elements.
///               Where two shapes coincide so do their blocks. A tensor of rank 0 is given as [1].
///
/// The quotient is rounded to float (double for double), then to nearest with ties to even; finite
/// numbers saturate (int8 at −128 and 127). Zeros stay 0. Scales come from finite elements alone,
/// and what is not finite shows in the result, whatever shares its scale: ±inf becomes ±inf in
/// float8_e5m2, NaN in float8_e4m3, which has no infinity, ±127 in int8; NaN stays NaN, in int8 it
/// becomes 0. Subnormal quotients keep what the format can hold. Any strides; all extents may be 0.
/// Scales of no finite element but 0 are 2⁻¹²⁶. Nothing may overlap.
///
/// Error for finite x: |scale·out − x| ≤ scale·(half the spacing of the format at x/scale) +
/// 2⁻²⁴·|x|.
///
/// Determinism: run to run, and for any number of host threads; maxima do not depend on order.
///
/// Throws ShapeError, StrideError, Error before anything is launched or written. Source of the
/// formats: Open Compute Project, "8-bit Floating Point Specification", revision 1.0; of the block
/// sizes: DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv:2412.19437, section 3.3.
template <ExecutionSpace Exec, TensorLike X, TensorLike Out, TensorLike S>
void quantize(Exec const& exec, X const& x, Out const& out, S const& scale,
              QuantizeOptions const& options = {}) {
  static_assert(detail::is_quantize_input<element_t<X>>(),
                "attikos::quantize: x holds double, float, float16 or bfloat16");
  static_assert(detail::is_quantized<element_t<Out>>,
                "attikos::quantize: out holds float8_e4m3, float8_e5m2 or int8_t");
  using detail::QuantizePass;
  auto const a = detail::quantize_arguments<Exec>("quantize", x, scale, out);
  detail::check_output<Exec>(scale);
  detail::check_outputs("quantize",
                        {{"out", detail::any_tensor(out)}, {"scale", detail::any_tensor(scale)}},
                        {{"x", detail::any_tensor(x)}});
  detail::ScaleRule<element_t<Out>> const rule{options.power_of_two_scale};
  auto const ref = detail::to_ref(scale);
  bool const empty = a.x.size() == 0;
  bool const own_row = (a.grid.row != 0 && a.grid.row_shift == 0) || a.x.extent[1] == 1;
  bool const own_batch = a.grid.batch != 0 || a.x.extent[0] == 1;
  if (own_row && own_batch && !empty) {
    detail::quantize_pass(exec, "quantize", a, ref.data, rule, QuantizePass::fused);
    return;
  }
  // All factors as one list of rank 3.
  detail::TensorRef<float, 3> all{ref.data, {1, 1, 1}, {0, 0, 0}};
  for (int r = 0; r < rank_of<S>; ++r) {
    all.extent[3 - rank_of<S> + r] = ref.extent[r];
    all.stride[3 - rank_of<S> + r] = ref.stride[r];
  }
  auto const finish = [&](bool done) {
    if (all.size() == 0) return;
    detail::launch("quantize", "portable", detail::range_policy(exec, all.size()),
                   detail::FinishScales<element_t<Out>>{all, rule, done});
  };
  finish(false);
  if (!empty) detail::quantize_pass(exec, "quantize", a, ref.data, rule, QuantizePass::measure);
  finish(true);
  if (!empty) detail::quantize_pass(exec, "quantize", a, ref.data, rule, QuantizePass::apply);
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike Out, TensorLike S>
void quantize(X const& x, Out const& out, S const& scale, QuantizeOptions const& options = {}) {
  quantize(Kokkos::DefaultExecutionSpace{}, x, out, scale, options);
}

/// Rounds a matrix to 8-bit elements by scales that are given: out = round(x/scale), saturating.
///
/// Shapes, types, rounding, infinities, NaN and errors as for quantize(); scale is read, and holds
/// positive finite numbers. Asynchronous on `exec`; deterministic.
template <ExecutionSpace Exec, TensorLike X, TensorLike S, TensorLike Out>
void quantize_with_scale(Exec const& exec, X const& x, S const& scale, Out const& out) {
  static_assert(detail::is_quantize_input<element_t<X>>(),
                "attikos::quantize_with_scale: x holds double, float, float16 or bfloat16");
  static_assert(detail::is_quantized<element_t<Out>>,
                "attikos::quantize_with_scale: out holds float8_e4m3, float8_e5m2 or int8_t");
  auto const a = detail::quantize_arguments<Exec>("quantize_with_scale", x, scale, out);
  detail::check_outputs("quantize_with_scale", {{"out", detail::any_tensor(out)}},
                        {{"x", detail::any_tensor(x)}, {"scale", detail::any_tensor(scale)}});
  if (a.x.size() == 0) return;
  detail::quantize_pass(exec, "quantize_with_scale", a, nullptr,
                        detail::ScaleRule<element_t<Out>>{false}, detail::QuantizePass::apply);
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike S, TensorLike Out>
void quantize_with_scale(X const& x, S const& scale, Out const& out) {
  quantize_with_scale(Kokkos::DefaultExecutionSpace{}, x, scale, out);
}

/// Scales 8-bit elements back: out = scale·x.
///
/// \param exec   execution space instance; the call is asynchronous on it and never fences
/// \param x      [rows, cols] or [batch, rows, cols]; float8_e4m3, float8_e5m2 or int8
/// \param scale  float, in one of the shapes that quantize() takes
/// \param out    the extents of x; double, float, float16 or bfloat16
///
/// One product in float (double for double), rounded to out, so that NaN and infinities stay what
/// they are. Determinism and errors as for quantize().
template <ExecutionSpace Exec, TensorLike X, TensorLike S, TensorLike Out>
void dequantize(Exec const& exec, X const& x, S const& scale, Out const& out) {
  static_assert(detail::is_quantized<element_t<X>>,
                "attikos::dequantize: x holds float8_e4m3, float8_e5m2 or int8_t");
  static_assert(detail::is_quantize_input<element_t<Out>>(),
                "attikos::dequantize: out holds double, float, float16 or bfloat16");
  auto const a = detail::quantize_arguments<Exec>("dequantize", x, scale, out);
  detail::check_outputs("dequantize", {{"out", detail::any_tensor(out)}},
                        {{"x", detail::any_tensor(x)}, {"scale", detail::any_tensor(scale)}});
  if (a.x.size() == 0) return;
  if constexpr (!is_host_space<Exec>) {
    if (detail::dequantize_device_rows(exec, a.x, a.out, a.grid)) return;
  }
  auto const pieces = detail::make_pieces(a.x.extent[1], a.x.extent[2], a.grid, false);
  detail::launch_rows(
      exec, "dequantize",
      detail::DequantizePiece<element_t<X>, element_t<Out>>{a.x, a.out, a.grid, pieces},
      a.x.extent[0] * a.x.extent[1] * pieces.per_row, std::min(pieces.length, a.x.extent[2]));
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike S, TensorLike Out>
void dequantize(X const& x, S const& scale, Out const& out) {
  dequantize(Kokkos::DefaultExecutionSpace{}, x, scale, out);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
