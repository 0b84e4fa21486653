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

/// A factor as the kernels use it: rounded to float where they compute in it. Throws Error unless
/// it is finite there.
inline double checked_factor(char const* operation, char const* name, double value, bool in_float) {
  double const rounded = in_float ? static_cast<double>(static_cast<float>(value)) : value;
  if (!std::isfinite(rounded))
    raise<Error>(operation, ": ", name, " is ", value, "; expected a number that is finite in ",
                 in_float ? "float32" : "float64");
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
  PackedLayout const* const packed = given.b.packed;
  if (packed != nullptr && packed->trans_b != options.trans_b)
    raise<UnsupportedError>(operation, ": trans_b is ", options.trans_b ? "true" : "false",
                            "; expected ", packed->trans_b ? "true" : "false",
                            ", as in the call of pack_b() that packed B.", given.text());
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
  if (packed != nullptr && packed->form != PackedForm::plain) g.packed_b = b.data;
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
  auto& to = g;
  auto const& from = options;
  ATTIKOS_GEMM_KERNEL_OPTIONS(ATTIKOS_CXX_OPTION_COPY)
  g.bias_along = options.bias_along;
  return g;
}

/// Scale of A or B, turned from the stored matrix to op(A) or op(B).
inline abi::ScaleGrid gemm_scale(char const* operation, char const* name, AnyTensor const& s,
                                 GemmOperand const& x, bool transposed, bool is_a,
                                 GemmOperands const& given) {
  // Along k one factor stands for 128 elements at least.
  bool const k_in_cols = is_a != transposed;
  ScaledMatrix const matrix{x.rank,    x.batch,   x.rows, x.cols, k_in_cols ? 0 : 1,
                            k_in_cols, !k_in_cols};
  auto const text = [&] {
    std::string text = is_a ? "A" : "B";
    return text += " as it is stored." + given.text();
  };
  auto grid = scale_grid(operation, name, s, matrix, text);
  if (transposed) {
    std::swap(grid.row, grid.col);
    std::swap(grid.row_shift, grid.col_shift);
  }
  return grid;
}

/// A matrix of C's shape beside C; throws ShapeError otherwise.
inline GemmOperand gemm_companion(char const* operation, char const* name, AnyTensor const& view,
                                  GemmOperands const& given) {
  auto const x = operand_of(view);
  if (x.rank != given.c.rank || x.batch != given.c.batch || x.rows != given.c.rows ||
      x.cols != given.c.cols)
    raise<ShapeError>(operation, ": ", name, " is ", x.text(), "; expected the extents of ",
                      given.c_name, ".", given.text());
  return x;
}

/// The address of one float on the device.
inline float const* gemm_number(char const* operation, char const* name, AnyTensor const& view) {
  if (view.extent[0] != 1)
    raise<ShapeError>(operation, ": ", name, " has ", view.extent[0], " elements; expected 1");
  return view.as<float>();
}

inline void gemm_zero_point(char const* operation, char const* name, AnyTensor const& view,
                            std::int64_t extent, char const* what, std::int32_t const*& data,
                            std::int64_t& stride) {
  if (view.extent[0] != 1 && view.extent[0] != extent)
    raise<ShapeError>(operation, ": ", name, " has ", view.extent[0], " elements; expected 1, or ",
                      extent, ", one per ", what);
  data = view.as<std::int32_t>();
  stride = view.extent[0] == 1 ? 0 : view.stride[0];
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

/// What a call of gemm() was given.
struct GemmTensors {
  GemmOperands matrices;
  /// Groups or counts of rows, numbers beside the product; those not given are absent.
  AnyTensor offsets, counts, bias, residual, pre_activation, scale_a, scale_b, zero_point_a,
      zero_point_b, device_scale, scale_out;
  bool custom_epilogue = false;

  bool has(DType type) const {
    return matrices.a.type == type || matrices.b.type == type || matrices.c.type == type;
  }
  /// Whether factors are floats in the kernels: not beside doubles, nor in the integer product that
  /// stays one.
  bool computes_in_float() const { return !has(DType::float64) && matrices.c.type != DType::int32; }
};

/// Groups and counts of rows, checked against the matrices; nothing where none are given.
struct GemmRows {
  void const* offsets = nullptr;
  DType type_offsets = DType::int32;
  std::int64_t offsets_stride = 1, groups = 0;
  std::int32_t const* counts = nullptr;
  std::int64_t counts_stride = 1;
};

inline GemmRows gemm_rows(char const* operation, AnyTensor const& offsets, AnyTensor const& counts,
                          GemmOperands const& given) {
  GemmRows rows;
  if (offsets.given()) {
    rows.groups = given.b.batch;
    if (offsets.extent[0] != rows.groups + 1)
      raise<ShapeError>(operation, ": grouped() has ", offsets.extent[0], " offsets; expected ",
                        rows.groups + 1, ", one more than B has matrices.", given.text());
    rows.offsets = offsets.data;
    rows.type_offsets = offsets.type;
    rows.offsets_stride = offsets.stride[0];
  }
  if (counts.given()) {
    if (counts.extent[0] != given.c.batch)
      raise<ShapeError>(operation, ": masked() has ", counts.extent[0], " counts; expected ",
                        given.c.batch, ", one for each matrix of ", given.c_name, ".",
                        given.text());
    rows.counts = counts.as<std::int32_t>();
    rows.counts_stride = counts.stride[0];
  }
  return rows;
}

/// Checks everything the host can see and fills the arguments. Nothing is launched or written when
/// this throws.
inline abi::GemmArgs gemm_arguments(GemmTensors const& t, GemmOptions const& options) {
  char const* const op = "gemm";
  GemmOperands const& given = t.matrices;
  bool const quantizes = given.c.type == DType::float8_e4m3 || given.c.type == DType::float8_e5m2 ||
                         given.c.type == DType::int8;
  abi::GemmArgs g = gemm_matrices(op, given, options, t.offsets.given());
  g.tile = {options.tile_m, options.tile_n, options.tile_k};
  g.alpha = checked_factor(op, "alpha", options.alpha, t.computes_in_float());
  g.beta = checked_factor(op, "beta", options.beta, t.computes_in_float());
  g.scale = checked_factor(op, "scale", options.scale, t.computes_in_float());
  if (quantizes && options.beta != 0)
    raise<UnsupportedError>(op, ": beta is ", options.beta, "; expected 0 where C is quantized.",
                            given.text());
  GemmRows const rows = gemm_rows(op, t.offsets, t.counts, given);
  g.offsets = rows.offsets;
  g.type_offsets = rows.type_offsets;
  g.offsets_stride = rows.offsets_stride;
  g.groups = rows.groups;
  g.counts = rows.counts;
  g.counts_stride = rows.counts_stride;

  if (t.bias.given()) {
    bool const along_n = options.bias_along == BiasAlong::n;
    std::int64_t const expected = along_n ? g.n : g.m;
    if (t.bias.extent[0] != expected)
      raise<ShapeError>(op, ": bias has ", t.bias.extent[0], " elements; expected ", expected,
                        ", one per ", along_n ? "column" : "row", " of C.", given.text());
    g.bias = t.bias.data;
    g.type_bias = t.bias.type;
    g.bias_stride = t.bias.stride[0];
  }
  if (t.residual.given()) {
    auto const x = gemm_companion(op, "residual", t.residual, given);
    g.residual = x.data;
    g.type_residual = x.type;
    g.residual_batch = x.batch_stride;
    g.residual_m = x.row_stride;
    g.residual_n = x.col_stride;
  }
  if (t.pre_activation.given()) {
    auto const x = gemm_companion(op, "pre_activation", t.pre_activation, given);
    g.pre_activation = const_cast<void*>(x.data);
    g.type_pre_activation = x.type;
    g.pre_activation_batch = x.batch_stride;
    g.pre_activation_m = x.row_stride;
    g.pre_activation_n = x.col_stride;
  }
  if (t.scale_a.given())
    g.scale_a = gemm_scale(op, "scale_a", t.scale_a, given.a, options.trans_a, true, given);
  if (t.scale_b.given())
    g.scale_b = gemm_scale(op, "scale_b", t.scale_b, given.b, options.trans_b, false, given);
  if (t.zero_point_a.given())
    gemm_zero_point(op, "zero_point_a", t.zero_point_a, g.m, "row of op(A)", g.zero_point_a,
                    g.zero_point_a_stride);
  if (t.zero_point_b.given())
    gemm_zero_point(op, "zero_point_b", t.zero_point_b, g.n, "column of op(B)", g.zero_point_b,
                    g.zero_point_b_stride);
  if (t.device_scale.given()) g.device_scale = gemm_number(op, "device_scale", t.device_scale);
  if (t.scale_out.given()) g.scale_out = gemm_number(op, "scale_out", t.scale_out);
  if (t.custom_epilogue) {
    g.custom_epilogue = true;
    if (options.activation != Activation::none)
      raise<UnsupportedError>(op, ": epilogue(function) stands in place of the activation; got ",
                              activation_name(options.activation), " as well");
  }
  if (given.c.type == DType::int32) check_exact_gemm(op, g, options);
  check_outputs(op, {{given.c_name, given.c.any()}, {"pre_activation", t.pre_activation}},
                {{"A", given.a.any()},
                 {"B", given.b.any()},
                 {"residual", t.residual, 0},
                 {"bias", t.bias},
                 {"scale_a", t.scale_a},
                 {"scale_b", t.scale_b},
                 {"zero_point_a", t.zero_point_a},
                 {"zero_point_b", t.zero_point_b},
                 {"device_scale", t.device_scale},
                 {"scale_out", t.scale_out},
                 {"grouped()", t.offsets},
                 {"masked()", t.counts}});
  join_batch(g);
  return g;
}

/// A rank-1 tensor of one element type beside the matrices, or Absent.
template <ExecutionSpace Exec, class T, class View>
AnyTensor gemm_vector(View const& view) {
  if constexpr (is_present<View>) {
    check_tensor<Exec, View>();
    static_assert(rank_of<View> == 1 && std::is_same_v<element_t<View>, T>,
                  "attikos::gemm: counts of rows and zero points are rank-1 tensors of int32_t, "
                  "single numbers on the device of float");
  }
  return any_tensor(view);
}

/// Offsets of groups, or Absent.
template <ExecutionSpace Exec, class View>
AnyTensor gemm_offsets(View const& view) {
  if constexpr (is_present<View>) {
    check_tensor<Exec, View>();
    static_assert(rank_of<View> == 1 && (std::is_same_v<element_t<View>, std::int32_t> ||
                                         std::is_same_v<element_t<View>, std::int64_t>),
                  "attikos::gemm: offsets of groups are a rank-1 tensor of int32_t or int64_t");
  }
  return any_tensor(view);
}

/// A floating-point tensor of `Rank` dimensions, or Absent.
template <ExecutionSpace Exec, int Rank, class View>
AnyTensor gemm_addend(View const& view) {
  if constexpr (is_present<View>) {
    check_tensor<Exec, View>();
    static_assert(rank_of<View> == Rank,
                  "attikos::gemm: bias has rank 1, residual and pre_activation the rank of C");
    static_assert(is_wide_real<element_t<View>>,
                  "attikos::gemm: bias and matrices beside C must be double, float, float16 or "
                  "bfloat16");
  }
  return any_tensor(view);
}

/// A scale of A or B, or Absent.
template <ExecutionSpace Exec, class View>
AnyTensor gemm_scale_tensor(View const& view) {
  if constexpr (is_present<View>) {
    return scale_tensor<Exec>(view);
  } else {
    return {};
  }
}

/// The tensors of a call without their static types, which are checked here.
template <ExecutionSpace Exec, GemmMatrix A, GemmRight B, GemmMatrix C, class... Extras>
GemmTensors gemm_tensors(A const& a, B const& b, C const& c, Extras const&... extras) {
  using TA = gemm_element_t<A>;
  using TB = gemm_element_t<B>;
  using TC = gemm_element_t<C>;
  char const* const op = "gemm";
  constexpr bool is_grouped = is_present<decltype(find_extra<Grouped>(extras...))>;
  constexpr bool is_masked = is_present<decltype(find_extra<Masked>(extras...))>;
  static_assert(gemm_rank<A> == 2 || gemm_rank<A> == 3, "attikos::gemm: A has rank 2 or 3");
  static_assert(gemm_rank<B> == 2 || gemm_rank<B> == 3, "attikos::gemm: B has rank 2 or 3");
  static_assert(gemm_rank<C> == 2 || gemm_rank<C> == 3, "attikos::gemm: C has rank 2 or 3");
  static_assert(is_grouped || gemm_rank<C> == 3 || (gemm_rank<A> == 2 && gemm_rank<B> == 2),
                "attikos::gemm: a batch in A or B needs one in C");
  static_assert(!is_grouped || (gemm_rank<A> == 2 && gemm_rank<B> == 3 && gemm_rank<C> == 2),
                "attikos::gemm: with grouped(), A and C have rank 2 and B has rank 3");
  static_assert(!(is_grouped && is_masked), "attikos::gemm: grouped() excludes masked()");
  static_assert(!is_masked || gemm_rank<C> == 3, "attikos::gemm: with masked(), C has rank 3");
  static_assert(gemm_types_supported<TA, TB, TC>(),
                "attikos::gemm: element types must be double, float, float16, bfloat16 or float8 "
                "in any mix (C may be int8 too), or int8 x int8 -> int32, int8, float, float16, "
                "bfloat16");
  if constexpr (is_packed_b<B>)
    static_assert(std::is_same_v<TA, TB> &&
                      std::is_same_v<GemmAccumulator<TA, TB, TC>, typename PackedKind<TB>::Acc>,
                  "attikos::gemm: a packed B is for an A of its own element type, and for a C that "
                  "is not double unless they are");
  // What a wrapper of the given kind holds, or Absent.
  auto const view = [](auto const& wrapper) {
    if constexpr (is_present<decltype(wrapper)>) {
      return wrapper.view;
    } else {
      return Absent{};
    }
  };
  GemmTensors t;
  t.matrices = {checked_operand<Exec>(op, "A", a), checked_operand<Exec>(op, "B", b),
                checked_output_operand<Exec>(op, "C", c)};
  if constexpr (is_grouped) t.offsets = gemm_offsets<Exec>(find_extra<Grouped>(extras...).offsets);
  if constexpr (is_masked)
    t.counts = gemm_vector<Exec, std::int32_t>(find_extra<Masked>(extras...).counts);
  t.bias = gemm_addend<Exec, 1>(view(find_extra<Bias>(extras...)));
  t.residual = gemm_addend<Exec, gemm_rank<C>>(view(find_extra<Residual>(extras...)));
  auto const pre_activation = view(find_extra<PreActivation>(extras...));
  t.pre_activation = gemm_addend<Exec, gemm_rank<C>>(pre_activation);
  if constexpr (is_present<decltype(pre_activation)>) check_writable(pre_activation);
  t.scale_a = gemm_scale_tensor<Exec>(view(find_extra<ScaleA>(extras...)));
  t.scale_b = gemm_scale_tensor<Exec>(view(find_extra<ScaleB>(extras...)));
  auto const zero_a = view(find_extra<ZeroPointA>(extras...));
  auto const zero_b = view(find_extra<ZeroPointB>(extras...));
  static_assert(!is_present<decltype(zero_a)> || std::is_integral_v<TA>,
                "attikos::gemm: zero points belong to int8 operands");
  static_assert(!is_present<decltype(zero_b)> || std::is_integral_v<TB>,
                "attikos::gemm: zero points belong to int8 operands");
  t.zero_point_a = gemm_vector<Exec, std::int32_t>(zero_a);
  t.zero_point_b = gemm_vector<Exec, std::int32_t>(zero_b);
  t.device_scale = gemm_vector<Exec, float>(view(find_extra<DeviceScale>(extras...)));
  auto const scale_out = view(find_extra<ScaleOut>(extras...));
  static_assert(!is_present<decltype(scale_out)> || is_quantized<TC>,
                "attikos::gemm: scale_out() needs C to be float8_e4m3, float8_e5m2 or int8_t");
  t.scale_out = gemm_vector<Exec, float>(scale_out);
  t.custom_epilogue = is_present<decltype(find_extra<Epilogue>(extras...))>;
  return t;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
