// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From tensors and options to checked kernel arguments of a matrix product.
#pragma once

#include <attikos/epilogue/activation.hpp>
#include <attikos/gemm/gemm_operand.hpp>
#include <attikos/gemm/gemm_types.hpp>
#include <attikos/quantize/scale_grid.hpp>
#include <cmath>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// A factor as the kernels use it: rounded to the accumulator. Throws Error unless it is finite
/// there.
template <class Acc>
double checked_factor(char const* operation, char const* name, double value) {
  double rounded = value;
  if constexpr (std::is_same_v<Acc, float>)
    rounded = static_cast<double>(static_cast<float>(value));
  if (!std::isfinite(rounded))
    raise<Error>(operation, ": ", name, " is ", value, "; expected a number that is finite in ",
                 std::is_same_v<Acc, float> ? "float32" : "float64");
  return rounded;
}

/// The three operands as they were given, for checks and messages.
struct GemmOperands {
  GemmOperand a, b, c;
  char const* c_name = "C";
  std::string text() const {
    return " A is " + a.text() + ", B is " + b.text() + ", " + c_name + " is " + c.text() + ".";
  }
};

/// Extents, strides and pointers of the product; `is_grouped` where rows of A and C are grouped.
inline abi::GemmArgs gemm_matrices(char const* operation, GemmOperands const& given,
                                   GemmOptions const& options, bool is_grouped) {
  GemmOperand const a = given.a.transposed(options.trans_a);
  GemmOperand const b = given.b.transposed(options.trans_b);
  GemmOperand const& c = given.c;
  if (a.cols != b.rows)
    raise<ShapeError>(operation, ": ", options.trans_b ? "op(B) = B^T" : "B", " has ", b.rows,
                      " rows but ", options.trans_a ? "op(A) = A^T" : "A", " has ", a.cols,
                      " columns (k must match).", given.text());
  if (c.rows != a.rows || c.cols != b.cols)
    raise<ShapeError>(operation, ": ", given.c_name, " has extents [", c.rows, ", ", c.cols,
                      "]; expected [", a.rows, ", ", b.cols, "] from op(A) and op(B).",
                      given.text());
  auto const check_batch = [&](char const* name, GemmOperand const& x) {
    if (x.batch != c.batch && x.batch != 1)
      raise<ShapeError>(operation, ": ", name, " has batch ", x.batch, "; expected ", c.batch,
                        " as in ", given.c_name, ", or 1 to share one matrix.", given.text());
  };
  if (!is_grouped) {
    check_batch("A", a);
    check_batch("B", b);
  }
  abi::GemmArgs g{};
  g.a = a.data;
  g.b = b.data;
  g.c = const_cast<void*>(c.data);
  g.a_pointers = a.pointers;
  g.b_pointers = b.pointers;
  g.c_pointers = const_cast<void* const*>(c.pointers);
  g.type_a = a.type;
  g.type_b = b.type;
  g.type_c = c.type;
  g.batch = c.batch;
  g.m = c.rows;
  g.n = c.cols;
  g.k = a.cols;
  auto const batch_stride = [](GemmOperand const& x) {
    return x.batch == 1 ? 0 : (x.pointers != nullptr ? 1 : x.batch_stride);
  };
  g.a_batch = batch_stride(a);
  g.a_m = a.row_stride;
  g.a_k = a.col_stride;
  g.b_batch = batch_stride(b);
  g.b_k = b.row_stride;
  g.b_n = b.col_stride;
  g.c_batch = c.pointers != nullptr ? 1 : c.batch_stride;
  g.c_m = c.row_stride;
  g.c_n = c.col_stride;
  g.activation = options.activation;
  g.bias_along = options.bias_along;
  g.compute = options.compute;
  g.accumulate = options.accumulate;
  return g;
}

/// Scale of A or B, turned from the stored matrix to op(A) or op(B).
inline abi::ScaleGrid gemm_scale(char const* operation, char const* name, ScaleTensor const& s,
                                 GemmOperand const& x, bool transposed, bool is_a,
                                 GemmOperands const& given) {
  // Along k one factor stands for 128 elements at least.
  bool const k_in_cols = is_a != transposed;
  ScaledMatrix const matrix{x.rank,    x.batch,   x.rows, x.cols, k_in_cols ? 0 : 1,
                            k_in_cols, !k_in_cols};
  auto grid = scale_grid(operation, name, s, matrix,
                         std::string(is_a ? "A" : "B") + " as it is stored." + given.text());
  if (transposed) {
    std::swap(grid.row, grid.col);
    std::swap(grid.row_shift, grid.col_shift);
  }
  return grid;
}

/// A matrix of C's shape beside C; throws ShapeError otherwise.
template <ExecutionSpace Exec, TensorLike View>
GemmOperand gemm_companion(char const* operation, char const* name, View const& view,
                           GemmOperands const& given) {
  check_tensor<Exec, View>();
  static_assert(is_wide_real<element_t<View>>,
                "attikos::gemm: a matrix beside C must be double, float, float16 or bfloat16");
  auto const x = operand_of(to_const_ref(view));
  if (x.rank != given.c.rank || x.batch != given.c.batch || x.rows != given.c.rows ||
      x.cols != given.c.cols)
    raise<ShapeError>(operation, ": ", name, " is ", x.text(), "; expected the extents of ",
                      given.c_name, ".", given.text());
  return x;
}

/// The address of one float on the device.
template <ExecutionSpace Exec, TensorLike View>
float const* gemm_number(char const* operation, char const* name, View const& view) {
  check_tensor<Exec, View>();
  static_assert(rank_of<View> == 1 && std::is_same_v<element_t<View>, float>,
                "attikos::gemm: a single number on the device is a rank-1 tensor of float");
  auto const ref = to_const_ref(view);
  if (ref.extent[0] != 1)
    raise<ShapeError>(operation, ": ", name, " has ", ref.extent[0], " elements; expected 1");
  return ref.data;
}

template <ExecutionSpace Exec, TensorLike View>
void gemm_zero_point(char const* operation, char const* name, View const& view, std::int64_t extent,
                     char const* what, std::int32_t const*& data, std::int64_t& stride) {
  check_tensor<Exec, View>();
  static_assert(rank_of<View> == 1 && std::is_same_v<element_t<View>, std::int32_t>,
                "attikos::gemm: zero points are a rank-1 tensor of int32_t");
  auto const ref = to_const_ref(view);
  if (ref.extent[0] != 1 && ref.extent[0] != extent)
    raise<ShapeError>(operation, ": ", name, " has ", ref.extent[0], " elements; expected 1, or ",
                      extent, ", one per ", what);
  data = ref.data;
  stride = ref.extent[0] == 1 ? 0 : ref.stride[0];
}

/// The integer product that stays one has no epilogue.
inline void check_exact_gemm(char const* operation, abi::GemmArgs const& g,
                             GemmOptions const& options) {
  if (options.alpha == 1 && (options.beta == 0 || options.beta == 1) && options.scale == 1 &&
      options.activation == Activation::none && g.bias == nullptr && g.residual == nullptr &&
      g.scale_a.data == nullptr && g.scale_b.data == nullptr && g.device_scale == nullptr &&
      g.pre_activation == nullptr && !g.custom_epilogue)
    return;
  auto const named = [](bool there, char const* text) { return there ? text : ""; };
  raise<UnsupportedError>(
      operation,
      ": int8 x int8 -> int32 is exact and takes alpha = 1, beta = 0 or 1 and no scale, "
      "bias, activation or residual; got alpha = ",
      options.alpha, ", beta = ", options.beta, ", scale = ", options.scale,
      ", activation = ", activation_name(options.activation), named(g.bias != nullptr, ", a bias"),
      named(g.residual != nullptr, ", a residual"), named(g.scale_a.data != nullptr, ", scale_a"),
      named(g.scale_b.data != nullptr, ", scale_b"),
      named(g.device_scale != nullptr, ", device_scale"),
      named(g.pre_activation != nullptr, ", pre_activation"),
      named(g.custom_epilogue, ", an epilogue function"), ".");
}

/// A batch whose matrices share B is one product of all their rows, as kernels know it best: each
/// would read B once for every matrix. Joined where one stride leads from row to row through the
/// whole batch and nothing else depends on where a matrix begins.
inline void join_batch(abi::GemmArgs& g) {
  constexpr std::int64_t most_rows = std::int64_t{1} << 30;  // that the compiled kernels take
  if (g.batch <= 1 || g.m <= 0 || g.b_batch != 0 || g.batch > most_rows / g.m) return;
  if (g.a_pointers != nullptr || g.b_pointers != nullptr || g.c_pointers != nullptr ||
      g.offsets != nullptr || g.counts != nullptr || g.outer != 1 || g.custom_epilogue)
    return;
  if (g.bias != nullptr && g.bias_along == BiasAlong::m && g.bias_stride != 0) return;
  if (g.zero_point_a_stride != 0 || g.scale_a.row_shift != 0 || g.scale_b.batch != 0) return;
  auto const joins = [&](std::int64_t from_matrix, std::int64_t from_row) {
    return g.m == 1 || from_matrix == g.m * from_row;
  };
  if (g.a_batch == 0 || !joins(g.a_batch, g.a_m) || !joins(g.c_batch, g.c_m) ||
      !joins(g.residual_batch, g.residual_m) ||
      !joins(g.pre_activation_batch, g.pre_activation_m) || !joins(g.scale_a.batch, g.scale_a.row))
    return;
  if (g.m == 1) {
    g.a_m = g.a_batch;
    g.c_m = g.c_batch;
    g.residual_m = g.residual_batch;
    g.pre_activation_m = g.pre_activation_batch;
    g.scale_a.row = g.scale_a.batch;
  }
  g.m *= g.batch;
  g.batch = 1;
  g.a_batch = g.c_batch = g.residual_batch = g.pre_activation_batch = g.scale_a.batch = 0;
}

/// Checks everything the host can see and fills the arguments. Nothing is launched or written when
/// this throws.
template <ExecutionSpace Exec, GemmMatrix A, GemmMatrix B, GemmMatrix C, class... Extras>
abi::GemmArgs gemm_arguments(A const& a, B const& b, C const& c, GemmOptions const& options,
                             Extras const&... extras) {
  using TA = gemm_element_t<A>;
  using TB = gemm_element_t<B>;
  using TC = gemm_element_t<C>;
  using Scalar = GemmScalar<TA, TB, TC>;
  char const* const op = "gemm";
  auto const offsets = find_extra<Grouped>(extras...);
  auto const counts = find_extra<Masked>(extras...);
  constexpr bool is_grouped = is_present<decltype(offsets)>;
  static_assert(gemm_rank<A> == 2 || gemm_rank<A> == 3, "attikos::gemm: A has rank 2 or 3");
  static_assert(gemm_rank<B> == 2 || gemm_rank<B> == 3, "attikos::gemm: B has rank 2 or 3");
  static_assert(gemm_rank<C> == 2 || gemm_rank<C> == 3, "attikos::gemm: C has rank 2 or 3");
  static_assert(is_grouped || gemm_rank<C> == 3 || (gemm_rank<A> == 2 && gemm_rank<B> == 2),
                "attikos::gemm: a batch in A or B needs one in C");
  static_assert(!is_grouped || (gemm_rank<A> == 2 && gemm_rank<B> == 3 && gemm_rank<C> == 2),
                "attikos::gemm: with grouped(), A and C have rank 2 and B has rank 3");
  static_assert(gemm_types_supported<TA, TB, TC>(),
                "attikos::gemm: element types must be double, float, float16, bfloat16 or float8 "
                "in any mix (C may be int8 too), or int8 x int8 -> int32, int8, float, float16, "
                "bfloat16");
  GemmOperands const given{checked_operand<Exec>(op, "A", a), checked_operand<Exec>(op, "B", b),
                           checked_output_operand<Exec>(op, "C", c)};
  abi::GemmArgs g = gemm_matrices(op, given, options, is_grouped);
  g.tile = {options.tile_m, options.tile_n, options.tile_k};
  g.alpha = checked_factor<Scalar>(op, "alpha", options.alpha);
  g.beta = checked_factor<Scalar>(op, "beta", options.beta);
  g.scale = checked_factor<Scalar>(op, "scale", options.scale);
  if (is_quantized<TC> && options.beta != 0)
    raise<UnsupportedError>(op, ": beta is ", options.beta, "; expected 0 where C is quantized.",
                            given.text());

  if constexpr (is_grouped) {
    using View = decltype(offsets.offsets);
    static_assert(!is_present<decltype(counts)>, "attikos::gemm: grouped() excludes masked()");
    static_assert(rank_of<View> == 1 && (std::is_same_v<element_t<View>, std::int32_t> ||
                                         std::is_same_v<element_t<View>, std::int64_t>),
                  "attikos::gemm: offsets of groups are a rank-1 tensor of int32_t or int64_t");
    check_tensor<Exec, View>();
    auto const ref = to_const_ref(offsets.offsets);
    g.groups = given.b.batch;
    if (ref.extent[0] != g.groups + 1)
      raise<ShapeError>(op, ": grouped() has ", ref.extent[0], " offsets; expected ", g.groups + 1,
                        ", one more than B has matrices.", given.text());
    g.offsets = ref.data;
    g.type_offsets = dtype_of<element_t<View>>;
    g.offsets_stride = ref.stride[0];
  }
  if constexpr (is_present<decltype(counts)>) {
    using View = decltype(counts.counts);
    static_assert(gemm_rank<C> == 3, "attikos::gemm: with masked(), C has rank 3");
    static_assert(rank_of<View> == 1 && std::is_same_v<element_t<View>, std::int32_t>,
                  "attikos::gemm: counts of rows are a rank-1 tensor of int32_t");
    check_tensor<Exec, View>();
    auto const ref = to_const_ref(counts.counts);
    if (ref.extent[0] != g.batch)
      raise<ShapeError>(op, ": masked() has ", ref.extent[0], " counts; expected ", g.batch,
                        ", one for each matrix of C.", given.text());
    g.counts = ref.data;
    g.counts_stride = ref.stride[0];
  }

  auto const extra_bias = find_extra<Bias>(extras...);
  if constexpr (is_present<decltype(extra_bias)>) {
    using View = decltype(extra_bias.view);
    check_tensor<Exec, View>();
    static_assert(rank_of<View> == 1, "attikos::gemm: bias has rank 1");
    static_assert(is_wide_real<element_t<View>>,
                  "attikos::gemm: bias must be double, float, float16 or bfloat16");
    auto const ref = to_const_ref(extra_bias.view);
    std::int64_t const expected = options.bias_along == BiasAlong::n ? g.n : g.m;
    if (ref.extent[0] != expected)
      raise<ShapeError>(op, ": bias has ", ref.extent[0], " elements; expected ", expected,
                        ", one per ", options.bias_along == BiasAlong::n ? "column" : "row",
                        " of C.", given.text());
    g.bias = ref.data;
    g.type_bias = dtype_of<element_t<View>>;
    g.bias_stride = ref.stride[0];
  }
  auto const extra_residual = find_extra<Residual>(extras...);
  if constexpr (is_present<decltype(extra_residual)>) {
    static_assert(rank_of<decltype(extra_residual.view)> == gemm_rank<C>,
                  "attikos::gemm: residual has the rank of C");
    auto const x = gemm_companion<Exec>(op, "residual", extra_residual.view, given);
    g.residual = x.data;
    g.type_residual = x.type;
    g.residual_batch = x.batch_stride;
    g.residual_m = x.row_stride;
    g.residual_n = x.col_stride;
  }
  auto const extra_pre = find_extra<PreActivation>(extras...);
  if constexpr (is_present<decltype(extra_pre)>) {
    static_assert(rank_of<decltype(extra_pre.view)> == gemm_rank<C>,
                  "attikos::gemm: pre_activation has the rank of C");
    auto const x = gemm_companion<Exec>(op, "pre_activation", extra_pre.view, given);
    check_output<Exec>(op, "pre_activation", extra_pre.view);
    g.pre_activation = const_cast<void*>(x.data);
    g.type_pre_activation = x.type;
    g.pre_activation_batch = x.batch_stride;
    g.pre_activation_m = x.row_stride;
    g.pre_activation_n = x.col_stride;
  }

  auto const extra_scale_a = find_extra<ScaleA>(extras...);
  if constexpr (is_present<decltype(extra_scale_a)>)
    g.scale_a = gemm_scale(op, "scale_a", scale_tensor<Exec>(extra_scale_a.view), given.a,
                           options.trans_a, true, given);
  auto const extra_scale_b = find_extra<ScaleB>(extras...);
  if constexpr (is_present<decltype(extra_scale_b)>)
    g.scale_b = gemm_scale(op, "scale_b", scale_tensor<Exec>(extra_scale_b.view), given.b,
                           options.trans_b, false, given);
  auto const zero_a = find_extra<ZeroPointA>(extras...);
  if constexpr (is_present<decltype(zero_a)>) {
    static_assert(std::is_integral_v<TA>, "attikos::gemm: zero points belong to int8 operands");
    gemm_zero_point<Exec>(op, "zero_point_a", zero_a.view, g.m, "row of op(A)", g.zero_point_a,
                          g.zero_point_a_stride);
  }
  auto const zero_b = find_extra<ZeroPointB>(extras...);
  if constexpr (is_present<decltype(zero_b)>) {
    static_assert(std::is_integral_v<TB>, "attikos::gemm: zero points belong to int8 operands");
    gemm_zero_point<Exec>(op, "zero_point_b", zero_b.view, g.n, "column of op(B)", g.zero_point_b,
                          g.zero_point_b_stride);
  }
  auto const extra_device_scale = find_extra<DeviceScale>(extras...);
  if constexpr (is_present<decltype(extra_device_scale)>)
    g.device_scale = gemm_number<Exec>(op, "device_scale", extra_device_scale.view);
  auto const extra_scale_out = find_extra<ScaleOut>(extras...);
  if constexpr (is_present<decltype(extra_scale_out)>) {
    static_assert(is_quantized<TC>,
                  "attikos::gemm: scale_out() needs C to be float8_e4m3, float8_e5m2 or int8_t");
    g.scale_out = gemm_number<Exec>(op, "scale_out", extra_scale_out.view);
  }
  if constexpr (is_present<decltype(find_extra<Epilogue>(extras...))>) {
    g.custom_epilogue = true;
    if (options.activation != Activation::none)
      raise<UnsupportedError>(op, ": epilogue(function) stands in place of the activation; got ",
                              activation_name(options.activation), " as well");
  }
  if constexpr (std::is_same_v<TC, std::int32_t>) check_exact_gemm(op, g, options);
  join_batch(g);
  return g;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
