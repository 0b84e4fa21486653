// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// gemm_backward(): gradients of a matrix product and its epilogue.
#pragma once

#include <Kokkos_Profiling_ScopedRegion.hpp>
#include <attikos/core/workspace.hpp>
#include <attikos/gemm/gemm.hpp>
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

/// What gemm() takes and a gradient cannot: it is taken to be refused.
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

/// Whether an output is there to be written: `none` and null data are not.
template <class T>
bool is_given(T const& view) {
  if constexpr (is_present<T>) {
    return data_of(view) != nullptr;
  } else {
    return false;
  }
}

/// A matrix operand as rows.
template <class T>
Rows<T> operand_rows(GemmOperand const& x) {
  return {static_cast<T*>(const_cast<void*>(x.data)),
          x.batch,
          x.rows,
          x.cols,
          x.batch_stride,
          x.row_stride,
          x.col_stride};
}

/// Which index of a gradient's product runs over counted rows: none, that of its rows, or that
/// which is summed over.
enum class CountedIndex : std::uint8_t { none, row, sum };

/// out = factor·left·right, summed over the batch where `out` has none. `left` is [batch, m, k],
/// `right` [batch, k, n]. With `log`, only finds out whether a kernel can do it.
template <class L, class R, class Out, class Exec>
void gradient_product(Exec const& exec, std::int64_t batch, GemmOperand left, GemmOperand right,
                      GemmOperand out, GemmOptions const& options, float const* device_scale,
                      CountedRows const& counted, CountedIndex index, Explanation* log) {
  if (counted.all()) index = CountedIndex::none;
  if constexpr (std::is_same_v<L, R>) {
    // Rows are what the kernels write best: outᵀ = rightᵀ·leftᵀ.
    if (index == CountedIndex::none && out.col_stride != 1 && out.row_stride == 1) {
      std::swap(left, right);
      left = left.transposed(true);
      right = right.transposed(true);
      out = out.transposed(true);
    }
  }
  abi::GemmArgs g{};
  auto const step = [](GemmOperand const& x) { return x.batch == 1 ? 0 : x.batch_stride; };
  bool const sum = out.batch == 1 && batch != 1;
  g.a = left.data;
  g.b = right.data;
  g.c = const_cast<void*>(out.data);
  g.type_a = left.type;
  g.type_b = right.type;
  g.type_c = out.type;
  g.batch = out.batch;
  g.m = out.rows;
  g.n = out.cols;
  g.k = left.cols;
  g.a_batch = sum ? 0 : step(left);
  g.b_batch = sum ? 0 : step(right);
  g.outer = sum ? batch : 1;
  g.a_outer = sum ? step(left) : 0;
  g.b_outer = sum ? step(right) : 0;
  g.a_m = left.row_stride;
  g.a_k = left.col_stride;
  g.b_k = right.row_stride;
  g.b_n = right.col_stride;
  g.c_batch = out.batch_stride;
  g.c_m = out.row_stride;
  g.c_n = out.col_stride;
  g.alpha = options.alpha;
  g.scale = options.scale;
  g.device_scale = device_scale;
  g.compute = options.compute;
  if (index == CountedIndex::sum) {
    g.a_batch = step(left);
    g.b_batch = step(right);
    choose_kernel("gemm_backward", KernelList<>{}, options.kernel, g, exec, log,
                  []<class Kernel>(std::type_identity<Kernel>) {});
    if (log == nullptr) gemm_group_sum<L, R, Out>(exec, g, counted, sum ? batch : 1);
    return;
  }
  if (g.outer > 1 && g.k > 0 &&
      (g.k == 1 || (g.a_outer == g.k * g.a_k && g.b_outer == g.k * g.b_k))) {
    // One stride leads through the terms of all matrices: one longer sum, which every kernel takes.
    if (g.k == 1) {
      g.a_k = g.a_outer;
      g.b_k = g.b_outer;
    }
    g.k *= g.outer;
    g.outer = 1;
    g.a_outer = g.b_outer = 0;
  }
  if (index == CountedIndex::row) {
    g.offsets = counted.offsets;
    g.type_offsets = counted.type_offsets;
    g.offsets_stride = counted.offsets_stride;
    g.groups = counted.groups;
    g.counts = counted.counts;
    g.counts_stride = counted.counts_stride;
  } else {
    join_batch(g);
  }
  gemm_run<L, R, Out>("gemm_backward", exec, g, options.kernel, log);
}

/// Bytes of the two parts of the workspace: the gradient of the pre-activation, sums for the bias.
struct GemmBackwardBytes {
  std::size_t gradient, sums;
  std::size_t total() const { return gradient + sums; }
};

template <class T>
GemmBackwardBytes gemm_backward_bytes(GemmOperand const& dout, GemmOptions const& options,
                                      bool own_gradient, bool has_bias) {
  using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;
  auto const elements = static_cast<std::size_t>(dout.batch * dout.rows * dout.cols);
  std::size_t const gradient =
      own_gradient && options.activation != Activation::none ? elements * sizeof(T) : 0;
  bool const along_n = options.bias_along == BiasAlong::n;
  std::int64_t const width = along_n ? dout.cols : dout.rows;
  std::int64_t const rows = dout.batch * (along_n ? dout.rows : dout.cols);
  return {(gradient + 63) / 64 * 64, has_bias ? row_sums_bytes(rows, width, sizeof(Acc)) : 0};
}

/// bias_gradient = Σ dx over everything but the dimension the bias runs along.
template <class T, class Exec, TensorLike View>
void sum_bias_gradient(Exec const& exec, GemmOperand const& dx, GemmOptions const& options,
                       CountedRows const& counted, View const& view, void* memory) {
  using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;
  bool const by_column = options.bias_along == BiasAlong::m;
  auto const rows = operand_rows<T const>(dx.transposed(by_column));
  RowChunks const chunks = partition_rows(is_host_space<Exec>, rows.count(), rows.size);
  Acc* const partial = static_cast<Acc*>(memory);
  launch_chunks(exec, "gemm_backward",
                RowChunkSum<Acc, T>{rows, chunks, partial, counted, by_column}, chunks.count());
  std::int64_t count = chunks.count();
  Acc const* const sums = sum_partials(exec, "gemm_backward", partial, count, rows.size);
  finish_sums(exec, "gemm_backward", sums, count, rows.size, to_ref(view));
}

/// Where a gradient goes, checked against what it is the gradient of.
template <ExecutionSpace Exec, class View>
GemmOperand gradient_operand(char const* name, char const* of, View const& view,
                             GemmOperand const& x) {
  check_output<Exec>("gemm_backward", name, view);
  static_assert(is_wide_real<element_t<View>>,
                "attikos::gemm_backward: gradients are double, float, float16 or bfloat16");
  auto const d = operand_of(to_const_ref(view));
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

/// Rows that take part in the call, checked as gemm() does.
template <ExecutionSpace Exec, class... Extras>
CountedRows counted_rows(GemmOperands const& given, Extras const&... extras) {
  CountedRows counted;
  counted.rows = given.c.rows;
  auto const offsets = find_extra<Grouped>(extras...);
  auto const counts = find_extra<Masked>(extras...);
  if constexpr (is_present<decltype(offsets)>) {
    using View = decltype(offsets.offsets);
    static_assert(!is_present<decltype(counts)>,
                  "attikos::gemm_backward: grouped() excludes masked()");
    static_assert(rank_of<View> == 1 && (std::is_same_v<element_t<View>, std::int32_t> ||
                                         std::is_same_v<element_t<View>, std::int64_t>),
                  "attikos::gemm_backward: offsets of groups are a rank-1 tensor of int32_t or "
                  "int64_t");
    check_tensor<Exec, View>();
    auto const ref = to_const_ref(offsets.offsets);
    counted.groups = given.b.batch;
    if (ref.extent[0] != counted.groups + 1)
      raise<ShapeError>("gemm_backward: grouped() has ", ref.extent[0], " offsets; expected ",
                        counted.groups + 1, ", one more than B has matrices.", given.text());
    counted.offsets = ref.data;
    counted.type_offsets = dtype_of<element_t<View>>;
    counted.offsets_stride = ref.stride[0];
  }
  if constexpr (is_present<decltype(counts)>) {
    using View = decltype(counts.counts);
    static_assert(rank_of<View> == 1 && std::is_same_v<element_t<View>, std::int32_t>,
                  "attikos::gemm_backward: counts of rows are a rank-1 tensor of int32_t");
    check_tensor<Exec, View>();
    auto const ref = to_const_ref(counts.counts);
    if (ref.extent[0] != given.c.batch)
      raise<ShapeError>("gemm_backward: masked() has ", ref.extent[0], " counts; expected ",
                        given.c.batch, ", one for each matrix of dout.", given.text());
    counted.counts = ref.data;
    counted.counts_stride = ref.stride[0];
  }
  return counted;
}

/// A call whose matrices are checked one by one and hold numbers that have gradients.
template <class A, class B, class T, ExecutionSpace Exec, GradientOutput DA, GradientOutput DB,
          class... Extras>
void gemm_backward_run(Exec const& exec, GemmOperands const& given, DA const& da, DB const& db,
                       GemmOptions const& options, Extras const&... extras) {
  constexpr bool wants_a = is_present<DA>, wants_b = is_present<DB>;
  char const* const op = "gemm_backward";
  gemm_matrices(op, given, options, is_present<decltype(find_extra<Grouped>(extras...))>);
  if (options.tile_m != 0 || options.tile_n != 0 || options.tile_k != 0)
    raise<UnsupportedError>(op, ": tile_m, tile_n, tile_k are ", options.tile_m, ", ",
                            options.tile_n, ", ", options.tile_k,
                            "; expected 0, since its products have other extents");
  CountedRows const counted = counted_rows<Exec>(given, extras...);
  if (is_given(da) && counted.counts != nullptr && given.a.batch == 1 && given.c.batch != 1)
    raise<UnsupportedError>(op, ": matrices of counted rows share one A; expected none for da, or ",
                            "an A for each of them.", given.text());
  GemmOptions factors = options;
  using Acc = GemmAccumulator<A, B, T>;
  factors.alpha = checked_factor<Acc>(op, "alpha", options.alpha);
  factors.scale = checked_factor<Acc>(op, "scale", options.scale);
  GemmOperand out_a, out_b;
  if constexpr (wants_a) out_a = gradient_operand<Exec>("da", "A", da, given.a);
  if constexpr (wants_b) out_b = gradient_operand<Exec>("db", "B", db, given.b);

  auto const saved = find_extra<PreActivation>(extras...);
  auto const wanted_dx = find_extra<PreActivationGradient>(extras...);
  auto const wanted_sum = find_extra<BiasGradient>(extras...);
  float const* factor = nullptr;
  auto const extra_scale = find_extra<DeviceScale>(extras...);
  if constexpr (is_present<decltype(extra_scale)>)
    factor = gemm_number<Exec>(op, "device_scale", extra_scale.view);

  GemmOperand dx = given.c, x;
  if constexpr (is_present<decltype(saved)>)
    x = gemm_companion<Exec>(op, "pre_activation", saved.view, given);
  bool const activated = options.activation != Activation::none;
  bool const missing = x.data == nullptr && dx.batch * dx.rows * dx.cols != 0;
  if (activated && (missing || !is_present<decltype(saved)>))
    raise<UnsupportedError>(op, ": activation is ", activation_name(options.activation),
                            " but there is no pre_activation(view); expected what gemm() saved");
  if constexpr (is_present<decltype(wanted_dx)>) {
    static_assert(std::is_same_v<element_t<decltype(wanted_dx.view)>, T>,
                  "attikos::gemm_backward: pre_activation_gradient has the element type of dout");
    dx = gradient_operand<Exec>("pre_activation_gradient", "dout", wanted_dx.view, given.c);
  }
  bool has_bias = false;
  if constexpr (is_present<decltype(wanted_sum)>) {
    has_bias = is_given(wanted_sum.view);
    check_output<Exec>(op, "bias_gradient", wanted_sum.view);
    static_assert(rank_of<decltype(wanted_sum.view)> == 1 &&
                      is_wide_real<element_t<decltype(wanted_sum.view)>>,
                  "attikos::gemm_backward: bias_gradient has rank 1 and a floating-point type");
    bool const along_n = options.bias_along == BiasAlong::n;
    std::int64_t const expected = along_n ? given.c.cols : given.c.rows;
    if (extent_of(wanted_sum.view, 0) != expected)
      raise<ShapeError>(op, ": bias_gradient has ", extent_of(wanted_sum.view, 0),
                        " elements; expected ", expected, ", one per ", along_n ? "column" : "row",
                        " of dout.", given.text());
  }

  auto const wanted_c = find_extra<CGradient>(extras...);
  GemmOperand dc;
  double factor_c = 0;
  if constexpr (is_present<decltype(wanted_c)>) {
    dc = gradient_operand<Exec>("c_gradient", "dout", wanted_c.view, given.c);
    factor_c = factors.scale * checked_factor<Acc>(op, "beta", options.beta);
  }

  constexpr bool own_dx = !is_present<decltype(wanted_dx)>;
  auto const bytes = gemm_backward_bytes<T>(given.c, options, own_dx, has_bias);
  auto const lease = get_workspace(op, exec, bytes.total(), extras...);
  Kokkos::Profiling::ScopedRegion const region(label(op, "portable"));
  if (own_dx && activated) {
    dx.data = lease.data;
    dx.batch_stride = dx.rows * dx.cols;
    dx.row_stride = dx.cols;
    dx.col_stride = 1;
  }
  GemmOperand const op_a = given.a.transposed(options.trans_a);
  GemmOperand const op_b = given.b.transposed(options.trans_b);
  auto const products = [&](Explanation* log) {
    if constexpr (wants_a) {
      if (is_given(da))
        gradient_product<T, B, element_t<DA>>(exec, dx.batch, dx, op_b.transposed(true),
                                              out_a.transposed(options.trans_a), factors, factor,
                                              counted, CountedIndex::row, log);
    }
    if constexpr (wants_b) {
      if (is_given(db))
        gradient_product<A, T, element_t<DB>>(exec, dx.batch, op_a.transposed(true), dx,
                                              out_b.transposed(options.trans_b), factors, factor,
                                              counted, CountedIndex::sum, log);
    }
  };
  // A kernel that was demanded and cannot run is found out before anything is written.
  Explanation unused;
  if (*wanted_kernel(options.kernel) != '\0') products(&unused);

  // Without activation the gradient is copied where it is wanted.
  if (activated || !own_dx) {
    launch_rows(exec, op,
                ActivationGradientRow<T>{operand_rows<T const>(given.c), operand_rows<T>(dx),
                                         x.type, x.data, x.batch_stride, x.row_stride, x.col_stride,
                                         options.activation, counted},
                dx.batch * dx.rows);
  }
  if constexpr (is_present<decltype(wanted_c)>) {
    using Out = element_t<decltype(wanted_c.view)>;
    using Row = ScaledGradientRow<T, Out>;
    if (is_given(wanted_c.view))
      launch_rows(exec, op,
                  Row{operand_rows<T const>(dx), operand_rows<Out>(dc),
                      static_cast<typename Row::Acc>(factor_c), factor, counted},
                  dx.batch * dx.rows);
  }
  if constexpr (is_present<decltype(wanted_sum)>) {
    if (has_bias)
      sum_bias_gradient<T>(exec, dx, options, counted, wanted_sum.view,
                           static_cast<std::byte*>(lease.data) + bytes.gradient);
  }
  products(nullptr);
}

}  // namespace detail

/// Upper bound of the bytes of temporary memory that gemm_backward() needs for a gradient `dout` of
/// this shape and type, whatever its outputs.
template <TensorLike DOut>
std::size_t gemm_backward_workspace_size(DOut const& dout, GemmOptions const& options = {}) {
  return detail::gemm_backward_bytes<element_t<DOut>>(
             detail::operand_of(detail::to_const_ref(dout)), options, true, true)
      .total();
}

/// Gradients of D = act(x) + residual, x = scale·alpha·op(A)·op(B) + bias, from dD:
///   dx = dD ⊙ act'(x),  d op(A) = scale·alpha·dx·op(B)ᵀ,  d op(B) = scale·alpha·op(A)ᵀ·dx,
///   d bias = Σ dx over batch and rows (or columns),  dC = scale·beta·dx where C stood behind beta.
/// The residual's gradient is dD itself.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param A, B     as given to gemm()
/// \param dout     dD, the shape of C
/// \param da, db   outputs of the shapes of A and B, or `none`. Where A or B is shared by the batch
///                 (rank 2 or batch 1), its gradient is summed over the batch
/// \param options  as given to gemm(); beta matters to c_gradient alone
/// \param extras   in any order: pre_activation(view), the x that gemm() saved, needed with an
///                 activation and not read without; device_scale(view), grouped(offsets) and
///                 masked(counts) as given to gemm(); outputs bias_gradient(view),
///                 c_gradient(view) and pre_activation_gradient(view); workspace(view)
///
/// With groups or counts of rows the gradient of a matrix of B sums over the rows of its group, and
/// that of the bias over all rows that count; no rows give 0. Rows that do not count are not read,
/// and keep what they hold in da, pre_activation_gradient and c_gradient. An A that matrices of
/// counted rows share has no da here (UnsupportedError).
///
/// Null data, like `none`, stand for an output, saved values or counts that are not there.
///
/// relu' is 0 at and below 0. dx is rounded to the type of dout, as where every step is a call of
/// its own. Without activation dout serves as dx. Any strides; all extents may be 0. Outputs
/// overlap nothing, but pre_activation_gradient may be dout.
///
/// Types: double, float, float16, bfloat16 in any mix; sums in double if one of them is double and
/// in float otherwise. What rounds has no gradient and is refused with UnsupportedError: 8-bit
/// elements, scale_a, scale_b, zero points, scale_out; so is a function as the epilogue. Workspace:
/// see gemm_backward_workspace_size(); none without activation and bias. The two products are those
/// of gemm() and carry its labels; `options.kernel` names the kernel of both.
///
/// Error: that of gemm(), where ε of dout's type is added for the rounded dx.
///
/// Determinism: run to run, and for any number of host threads.
///
/// Throws ShapeError, StrideError, UnsupportedError, ResourceError before anything is launched or
/// written.
template <ExecutionSpace Exec, TensorLike A, TensorLike B, TensorLike DOut,
          detail::GradientOutput DA, detail::GradientOutput DB, detail::GemmBackwardExtra... Extras>
void gemm_backward(Exec const& exec, A const& a, B const& b, DOut const& dout, DA const& da,
                   DB const& db, GemmOptions const& options = {}, Extras const&... extras) {
  using namespace detail;
  using TA = element_t<A>;
  using TB = element_t<B>;
  using T = element_t<DOut>;
  constexpr bool is_grouped = is_present<decltype(find_extra<Grouped>(extras...))>;
  constexpr bool is_masked = is_present<decltype(find_extra<Masked>(extras...))>;
  static_assert(is_grouped || rank_of<DOut> == 3 || (rank_of<A> == 2 && rank_of<B> == 2),
                "attikos::gemm_backward: a batch in A or B needs one in dout");
  static_assert(!is_grouped || (rank_of<A> == 2 && rank_of<B> == 3 && rank_of<DOut> == 2),
                "attikos::gemm_backward: with grouped(), A and dout have rank 2 and B has rank 3");
  static_assert(!is_masked || rank_of<DOut> == 3,
                "attikos::gemm_backward: with masked(), dout has rank 3");
  char const* const op = "gemm_backward";
  GemmOperands const given{checked_operand<Exec>(op, "A", a), checked_operand<Exec>(op, "B", b),
                           checked_operand<Exec>(op, "dout", dout), "dout"};
  (refuse_without_gradient(extras), ...);
  if constexpr (is_wide_real<TA> && is_wide_real<TB> && is_wide_real<T>) {
    gemm_backward_run<TA, TB, T>(exec, given, da, db, options, extras...);
  } else {
    raise<UnsupportedError>(op, ": quantized numbers have no gradient; expected A, B and dout of ",
                            "double, float, float16 or bfloat16.", given.text());
  }
}

/// The same on an instance of the default execution space.
template <TensorLike A, TensorLike B, TensorLike DOut, detail::GradientOutput DA,
          detail::GradientOutput DB, detail::GemmBackwardExtra... Extras>
void gemm_backward(A const& a, B const& b, DOut const& dout, DA const& da, DB const& db,
                   GemmOptions const& options = {}, Extras const&... extras) {
  gemm_backward(Kokkos::DefaultExecutionSpace{}, a, b, dout, da, db, options, extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
