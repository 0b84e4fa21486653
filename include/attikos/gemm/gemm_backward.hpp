// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// gemm_backward(): gradients of a matrix product and its epilogue.
#pragma once

#include <Kokkos_Profiling_ScopedRegion.hpp>
#include <attikos/core/row_sums.hpp>
#include <attikos/core/workspace.hpp>
#include <attikos/epilogue/activation_gradient.hpp>
#include <attikos/gemm/gemm.hpp>

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

namespace detail {

template <class T>
concept GemmBackwardExtra =
    is_any_wrapper<T, PreActivation, DeviceScale, BiasGradient, PreActivationGradient, Workspace>;

/// Where a gradient goes, or Absent.
template <class T>
concept GradientOutput = TensorLike<T> || std::is_same_v<std::remove_cvref_t<T>, Absent>;

/// dx = dout·act'(x), one row of one matrix.
template <class T>
struct ActivationGradientRow {
  using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;

  Rows<T const> dout;
  Rows<T> dx;
  DType type_x;
  void const* x;
  std::int64_t x_batch, x_row, x_col;
  Activation activation;

  KOKKOS_INLINE_FUNCTION T element(T d, std::int64_t offset) const {
    if (activation == Activation::none) return d;
    return static_cast<T>(static_cast<Acc>(d) *
                          apply_activation_gradient(activation, load_any<Acc>(type_x, x, offset)));
  }
  KOKKOS_INLINE_FUNCTION std::int64_t row_offset(std::int64_t index) const {
    return index / dout.inner * x_batch + index % dout.inner * x_row;
  }
  void host_row(std::int64_t index) const {
    Row<T const> const from = dout(index);
    Row<T> const to = dx(index);
    std::int64_t const offset = row_offset(index);
    for (std::int64_t j = 0; j < from.size; ++j) to[j] = element(from[j], offset + j * x_col);
  }
  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    Row<T const> const from = dout(index);
    Row<T> const to = dx(index);
    std::int64_t const offset = row_offset(index);
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, from.size),
                         [&](std::int64_t j) { to[j] = element(from[j], offset + j * x_col); });
  }
};

/// Partial sums of a chunk of rows.
template <class Acc, class T>
struct RowChunkSum {
  Rows<T const> rows;
  RowChunks chunks;
  Acc* partial;

  void host_chunk(std::int64_t chunk) const {
    constexpr int V = host::lanes<Acc>;
    Acc* const out = partial + chunk * rows.size;
    for (std::int64_t j = 0; j < rows.size; j += V) {
      int const count = rows.size - j < V ? static_cast<int>(rows.size - j) : V;
      host::Vec<Acc> sum{};
      for (std::int64_t r = chunks.first(chunk); r < chunks.last(chunk); ++r)
        sum += host::load_row<Acc>(rows(r).data + j * rows.stride, rows.stride, count);
      host::put<Acc>(out + j, 1, count, sum);
    }
  }
  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_chunk(Team const& team, std::int64_t chunk) const {
    Acc* const out = partial + chunk * rows.size;
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, rows.size), [&](std::int64_t j) {
      Acc sum = 0;
      for (std::int64_t r = chunks.first(chunk); r < chunks.last(chunk); ++r)
        sum += static_cast<Acc>(rows(r)[j]);
      out[j] = sum;
    });
  }
};

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

/// out = factor·left·right, summed over the batch where `out` has none. `left` is [batch, m, k],
/// `right` [batch, k, n]. With `log`, only finds out whether a kernel can do it.
template <class L, class R, class Out, class Exec>
void gradient_product(Exec const& exec, std::int64_t batch, GemmOperand left, GemmOperand right,
                      GemmOperand out, GemmOptions const& options, float const* device_scale,
                      Explanation* log) {
  if constexpr (std::is_same_v<L, R>) {
    // Rows are what the kernels write best: outᵀ = rightᵀ·leftᵀ.
    if (out.col_stride != 1 && out.row_stride == 1) {
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
                       View const& view, void* memory) {
  using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;
  auto const rows = operand_rows<T const>(dx.transposed(options.bias_along == BiasAlong::m));
  RowChunks const chunks = partition_rows(is_host_space<Exec>, rows.count(), rows.size);
  Acc* const partial = static_cast<Acc*>(memory);
  launch_chunks(exec, "gemm_backward", RowChunkSum<Acc, T>{rows, chunks, partial}, chunks.count());
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
///   d bias = Σ dx over batch and rows (or columns).
/// The residual's gradient is dD itself, that of a C behind beta is scale·beta·dx.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param A, B     as given to gemm()
/// \param dout     dD, the shape of C
/// \param da, db   outputs of the shapes of A and B, or `none`. Where A or B is shared by the batch
///                 (rank 2 or batch 1), its gradient is summed over the batch
/// \param options  as given to gemm(); beta is ignored
/// \param extras   in any order: pre_activation(view), the x that gemm() saved, needed with an
///                 activation and not read without; device_scale(view) as given to gemm(); outputs
///                 bias_gradient(view) and pre_activation_gradient(view); workspace(view)
///
/// relu' is 0 at and below 0. dx is rounded to the type of dout, as where every step is a call of
/// its own. Without activation dout serves as dx. Any strides; all extents may be 0. Outputs
/// overlap nothing, but pre_activation_gradient may be dout.
///
/// Types: double, float, float16, bfloat16 in any mix; sums in double if one of them is double and
/// in float otherwise. Workspace: see gemm_backward_workspace_size(); none without activation and
/// bias. The two products are those of gemm() and carry its labels; `options.kernel` names the
/// kernel of both.
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
  using T = element_t<DOut>;
  constexpr bool wants_a = is_present<DA>, wants_b = is_present<DB>;
  char const* const op = "gemm_backward";
  static_assert(is_wide_real<element_t<A>> && is_wide_real<element_t<B>> && is_wide_real<T>,
                "attikos::gemm_backward: A, B and dout are double, float, float16 or bfloat16");
  static_assert(rank_of<DOut> == 3 || (rank_of<A> == 2 && rank_of<B> == 2),
                "attikos::gemm_backward: a batch in A or B needs one in dout");
  GemmOperands const given{checked_operand<Exec>(op, "A", a), checked_operand<Exec>(op, "B", b),
                           checked_operand<Exec>(op, "dout", dout), "dout"};
  gemm_matrices(op, given, options, false);
  GemmOptions factors = options;
  using Acc = GemmAccumulator<element_t<A>, element_t<B>, T>;
  factors.alpha = checked_factor<Acc>(op, "alpha", options.alpha);
  factors.scale = checked_factor<Acc>(op, "scale", options.scale);
  GemmOperand out_a, out_b;
  if constexpr (wants_a) out_a = gradient_operand<Exec>("da", "A", da, given.a);
  if constexpr (wants_b) out_b = gradient_operand<Exec>("db", "B", db, given.b);

  auto const saved = find_extra<PreActivation>(extras...);
  auto const wanted_dx = find_extra<PreActivationGradient>(extras...);
  auto const wanted_sum = find_extra<BiasGradient>(extras...);
  constexpr bool has_bias = is_present<decltype(wanted_sum)>;
  float const* factor = nullptr;
  auto const extra_scale = find_extra<DeviceScale>(extras...);
  if constexpr (is_present<decltype(extra_scale)>)
    factor = gemm_number<Exec>(op, "device_scale", extra_scale.view);

  GemmOperand dx = given.c, x;
  if constexpr (is_present<decltype(saved)>)
    x = gemm_companion<Exec>(op, "pre_activation", saved.view, given);
  bool const activated = options.activation != Activation::none;
  if (activated && !is_present<decltype(saved)>)
    raise<UnsupportedError>(op, ": activation is ", activation_name(options.activation),
                            " but there is no pre_activation(view); expected what gemm() saved");
  if constexpr (is_present<decltype(wanted_dx)>) {
    static_assert(std::is_same_v<element_t<decltype(wanted_dx.view)>, T>,
                  "attikos::gemm_backward: pre_activation_gradient has the element type of dout");
    dx = gradient_operand<Exec>("pre_activation_gradient", "dout", wanted_dx.view, given.c);
  }
  if constexpr (has_bias) {
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
    if constexpr (wants_a)
      gradient_product<T, element_t<B>, element_t<DA>>(exec, dx.batch, dx, op_b.transposed(true),
                                                       out_a.transposed(options.trans_a), factors,
                                                       factor, log);
    if constexpr (wants_b)
      gradient_product<element_t<A>, T, element_t<DB>>(exec, dx.batch, op_a.transposed(true), dx,
                                                       out_b.transposed(options.trans_b), factors,
                                                       factor, log);
  };
  // A kernel that was demanded and cannot run is found out before anything is written.
  Explanation unused;
  if (*wanted_kernel(options.kernel) != '\0') products(&unused);

  // Without activation the gradient is copied where it is wanted.
  if (activated || !own_dx) {
    launch_rows(exec, op,
                ActivationGradientRow<T>{operand_rows<T const>(given.c), operand_rows<T>(dx),
                                         x.type, x.data, x.batch_stride, x.row_stride, x.col_stride,
                                         options.activation},
                dx.batch * dx.rows);
  }
  if constexpr (has_bias)
    sum_bias_gradient<T>(exec, dx, options, wanted_sum.view,
                         static_cast<std::byte*>(lease.data) + bytes.gradient);
  products(nullptr);
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
