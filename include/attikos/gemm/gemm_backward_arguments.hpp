// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From tensors and options to a checked call of gemm_backward().
#pragma once

#include <attikos/core/workspace.hpp>
#include <attikos/gemm/gemm_arguments.hpp>
#include <attikos/gemm/gemm_backward_portable.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Output of gemm_backward(): the gradient of the bias, rank 1, n elements (or m). See
/// bias_gradient().
template <TensorLike T>
struct BiasGradient {
  T view;
};
template <TensorLike T>
BiasGradient<T> bias_gradient(T const& view) {
  return {view};
}

/// Output of gemm_backward(): the gradient of the pre-activation, of the shape and type of the
/// gradient that comes in, which it may be itself.
template <TensorLike T>
struct PreActivationGradient {
  T view;
};
template <TensorLike T>
PreActivationGradient<T> pre_activation_gradient(T const& view) {
  return {view};
}

/// Output of gemm_backward(): the gradient of the C that beta multiplied, of the shape of the
/// gradient that comes in. It is 0 where beta is 0.
template <TensorLike T>
struct CGradient {
  T view;
};
template <TensorLike T>
CGradient<T> c_gradient(T const& view) {
  return {view};
}

namespace detail {

/// Extras of gemm() that have no gradient: accepted as arguments only to be refused with a reason.
template <class T>
inline constexpr bool is_without_gradient =
    is_any_wrapper<T, ScaleA, ScaleB, ZeroPointA, ZeroPointB, ScaleOut, Epilogue>;

template <class T>
concept GemmBackwardExtra =
    is_any_wrapper<T, PreActivation, DeviceScale, BiasGradient, PreActivationGradient, CGradient,
                   Grouped, Masked, Workspace> || is_without_gradient<T>;

/// Where a gradient goes, or Absent.
template <class T>
concept GradientOutput = TensorLike<T> || std::is_same_v<std::remove_cvref_t<T>, Absent>;

/// What a call of gemm_backward() was given; `c` of the matrices is dout.
struct GemmBackwardTensors {
  GemmOperands matrices;
  AnyTensor da, db, offsets, counts, pre_activation, device_scale, bias_gradient, c_gradient,
      pre_activation_gradient, workspace;
};

/// Whether an optional tensor is there: null data stand for one that is not.
inline bool is_wanted(AnyTensor const& x) { return x.given() && x.data != nullptr; }

/// Where a gradient goes, checked against what it is the gradient of.
inline GemmOperand gradient_operand(char const* name, char const* of, AnyTensor const& view,
                                    GemmOperand const& x) {
  if (!view.given()) return {};
  auto const d = operand_of(view);
  if (d.rank != x.rank || d.batch != x.batch || d.rows != x.rows || d.cols != x.cols)
    raise<ShapeError>("gemm_backward: ", name, " is ", d.text(), "; expected the extents of ", of,
                      ", which is ", x.text());
  return d;
}

/// Refuses what rounds: a result between two representable numbers does not change with its input.
template <class Extra>
void refuse_without_gradient(Extra const&) {
  if constexpr (is_without_gradient<Extra>) {
    char const* const what = is_wrapper<ScaleOut, Extra> ? "scale_out(view) quantizes the result"
                             : is_wrapper<ZeroPointA, Extra> ? "zero_point_a(view) is of an int8 A"
                             : is_wrapper<ZeroPointB, Extra> ? "zero_point_b(view) is of an int8 B"
                             : is_wrapper<ScaleA, Extra>     ? "scale_a(view) is of a quantized A"
                             : is_wrapper<ScaleB, Extra>
                                 ? "scale_b(view) is of a quantized B"
                                 : "epilogue(function) has no known derivative";
    raise<UnsupportedError>("gemm_backward: ", what,
                            "; expected a product of double, float, float16 or bfloat16 with a ",
                            "named activation, to which alone gradients belong");
  }
}

/// A checked call of gemm_backward().
struct GemmBackwardPlan {
  CountedRows counted;
  GemmOptions factors;  ///< the caller's, alpha and scale as the kernels use them
  float const* device_scale = nullptr;
  double factor_c = 0;
  bool activated = false, own_dx = true, has_bias = false;
  GemmOperand a, b, da, db, dx, dc, x;  ///< op(A) and op(B) with their gradients, not transposed
};

/// Checks everything the host can see. `in_float`: whether factors are floats in the kernels.
inline GemmBackwardPlan gemm_backward_plan(GemmBackwardTensors const& t, GemmOptions const& options,
                                           bool in_float) {
  char const* const op = "gemm_backward";
  GemmOperands const& given = t.matrices;
  gemm_matrices(op, given, options, t.offsets.given());
  if (options.tile_m != 0 || options.tile_n != 0 || options.tile_k != 0)
    raise<UnsupportedError>(op, ": tile_m, tile_n, tile_k are ", options.tile_m, ", ",
                            options.tile_n, ", ", options.tile_k,
                            "; expected 0, since its products have other extents");
  GemmBackwardPlan p;
  GemmRows const rows = gemm_rows(op, t.offsets, t.counts, given);
  p.counted = {given.c.rows, rows.offsets, rows.type_offsets, rows.offsets_stride,
               rows.groups,  rows.counts,  rows.counts_stride};
  if (is_wanted(t.da) && p.counted.counts != nullptr && given.a.batch == 1 && given.c.batch != 1)
    raise<UnsupportedError>(op, ": matrices of counted rows share one A; expected none for da, or ",
                            "an A for each of them.", given.text());
  p.factors = options;
  p.factors.alpha = checked_factor(op, "alpha", options.alpha, in_float);
  p.factors.scale = checked_factor(op, "scale", options.scale, in_float);
  p.a = given.a.transposed(options.trans_a);
  p.b = given.b.transposed(options.trans_b);
  p.da = gradient_operand("da", "A", t.da, given.a).transposed(options.trans_a);
  p.db = gradient_operand("db", "B", t.db, given.b).transposed(options.trans_b);
  if (t.device_scale.given()) p.device_scale = gemm_number(op, "device_scale", t.device_scale);

  p.dx = given.c;
  if (t.pre_activation.given()) p.x = gemm_companion(op, "pre_activation", t.pre_activation, given);
  p.activated = options.activation != Activation::none;
  bool const missing = p.x.data == nullptr && p.dx.batch * p.dx.rows * p.dx.cols != 0;
  if (p.activated && (missing || !t.pre_activation.given()))
    raise<UnsupportedError>(op, ": activation is ", activation_name(options.activation),
                            " but there is no pre_activation(view); expected what gemm() saved");
  p.own_dx = !t.pre_activation_gradient.given();
  if (!p.own_dx)
    p.dx = gradient_operand("pre_activation_gradient", "dout", t.pre_activation_gradient, given.c);
  if (t.bias_gradient.given()) {
    p.has_bias = is_wanted(t.bias_gradient);
    bool const along_n = options.bias_along == BiasAlong::n;
    std::int64_t const expected = along_n ? given.c.cols : given.c.rows;
    if (t.bias_gradient.extent[0] != expected)
      raise<ShapeError>(op, ": bias_gradient has ", t.bias_gradient.extent[0],
                        " elements; expected ", expected, ", one per ", along_n ? "column" : "row",
                        " of dout.", given.text());
  }
  if (t.c_gradient.given()) {
    p.dc = gradient_operand("c_gradient", "dout", t.c_gradient, given.c);
    p.factor_c = p.factors.scale * checked_factor(op, "beta", options.beta, in_float);
  }
  check_outputs(op,
                {{"pre_activation_gradient", t.pre_activation_gradient},
                 {"da", t.da},
                 {"db", t.db},
                 {"bias_gradient", t.bias_gradient},
                 {"c_gradient", t.c_gradient},
                 {"workspace", t.workspace}},
                {{"dout", given.c.any(), 0},
                 {"A", given.a.any()},
                 {"B", given.b.any()},
                 {"pre_activation", t.pre_activation},
                 {"device_scale", t.device_scale},
                 {"grouped()", t.offsets},
                 {"masked()", t.counts}});
  return p;
}

/// An output of gemm_backward() without its static type, or Absent.
template <ExecutionSpace Exec, class View>
AnyTensor gradient_tensor(View const& view) {
  if constexpr (is_present<View>) {
    check_tensor<Exec, View>();
    check_writable(view);
    static_assert(is_wide_real<element_t<View>>,
                  "attikos::gemm_backward: gradients are double, float, float16 or bfloat16");
  }
  return any_tensor(view);
}

template <class View>
struct GradientElement {
  using type = void;
};
template <TensorLike View>
struct GradientElement<View> {
  using type = element_t<View>;
};
/// Element type of an output, void where it is Absent.
template <class View>
using gradient_element_t = typename GradientElement<std::remove_cvref_t<View>>::type;

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
