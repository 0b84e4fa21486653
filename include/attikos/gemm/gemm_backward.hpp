// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// gemm_backward(): gradients of a matrix product and its epilogue.
#pragma once

#include <Kokkos_Profiling_ScopedRegion.hpp>
#include <attikos/gemm/gemm.hpp>
#include <attikos/gemm/gemm_backward_arguments.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

namespace detail {

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
template <class T, class Out, class Exec>
void sum_bias_gradient(Exec const& exec, GemmOperand const& dx, GemmOptions const& options,
                       CountedRows const& counted, AnyTensor const& out, void* memory) {
  using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;
  bool const by_column = options.bias_along == BiasAlong::m;
  auto const rows = operand_rows<T const>(dx.transposed(by_column));
  RowChunks const chunks = partition_rows(is_host_space<Exec>, rows.count(), rows.size);
  Acc* const partial = static_cast<Acc*>(memory);
  launch_chunks(exec, "gemm_backward",
                RowChunkSum<Acc, T>{rows, chunks, partial, counted, by_column}, chunks.count());
  std::int64_t count = chunks.count();
  Acc const* const sums = sum_partials(exec, "gemm_backward", partial, count, rows.size);
  TensorRef<Out, 1> const to{static_cast<Out*>(out.output()), {out.extent[0]}, {out.stride[0]}};
  finish_sums(exec, "gemm_backward", sums, count, rows.size, to);
}

/// Calls f with the type of pre_activation(view).
template <class F>
void visit_pre_activation(DType type, F const& f) {
  switch (type) {
    case DType::float64:
      return f(std::type_identity<double>{});
    case DType::float32:
      return f(std::type_identity<float>{});
    case DType::float16:
      return f(std::type_identity<float16>{});
    default:  // no other is checked
      return f(std::type_identity<bfloat16>{});
  }
}

/// The element types of a call; void for outputs that are not asked for.
template <class A, class B, class Dout, class Da, class Db, class Dc, class Dbias>
struct GemmBackwardTypes {};

/// A call whose tensors hold numbers that have gradients. `more`: workspace(view), if any.
template <class A, class B, class T, class Da, class Db, class Dc, class Dbias, ExecutionSpace Exec,
          class... Workspaces>
void gemm_backward_run(GemmBackwardTypes<A, B, T, Da, Db, Dc, Dbias>, Exec const& exec,
                       GemmBackwardTensors const& t, GemmOptions const& options,
                       Workspaces const&... more) {
  char const* const op = "gemm_backward";
  GemmBackwardPlan p =
      gemm_backward_plan(t, options, !std::is_same_v<GemmAccumulator<A, B, T>, double>);
  auto const bytes = gemm_backward_bytes<T>(t.matrices.c, options, p.own_dx, p.has_bias);
  auto const lease = get_workspace(op, exec, bytes.total(), more...);
  Kokkos::Profiling::ScopedRegion const region(label_if_heard(op, "portable"));
  GemmOperand& dx = p.dx;
  if (p.own_dx && p.activated) {
    dx.data = lease.data;
    dx.batch_stride = dx.rows * dx.cols;
    dx.row_stride = dx.cols;
    dx.col_stride = 1;
  }
  auto const products = [&](Explanation* log) {
    if constexpr (!std::is_void_v<Da>) {
      if (is_wanted(t.da))
        gradient_product<T, B, Da>(exec, dx.batch, dx, p.b.transposed(true), p.da, p.factors,
                                   p.device_scale, p.counted, CountedIndex::row, log);
    }
    if constexpr (!std::is_void_v<Db>) {
      if (is_wanted(t.db))
        gradient_product<A, T, Db>(exec, dx.batch, p.a.transposed(true), dx, p.db, p.factors,
                                   p.device_scale, p.counted, CountedIndex::sum, log);
    }
  };
  // A kernel that was demanded and cannot run is found out before anything is written.
  Explanation unused;
  if (*wanted_kernel(options.kernel) != '\0') products(&unused);

  std::int64_t const rows = dx.batch * dx.rows;
  auto const scaled = [&]<class From, class To>(Rows<From const> const& from, Rows<To> const& to,
                                                double factor, float const* device_scale) {
    using Gradient = ScaledGradient<From, To>;
    launch_pointwise(
        exec, op,
        Gradient{from, to, static_cast<typename Gradient::Acc>(factor), device_scale, p.counted},
        rows, dx.cols);
  };
  if (p.activated)
    visit_pre_activation(p.x.type, [&]<class X>(std::type_identity<X>) {
      launch_pointwise(
          exec, op,
          ActivationGradient<T, X>{operand_rows<T const>(t.matrices.c), operand_rows<T>(dx),
                                   operand_rows<X const>(p.x), options.activation, p.counted},
          rows, dx.cols);
    });
  else if (!p.own_dx)
    scaled(operand_rows<T const>(t.matrices.c), operand_rows<T>(dx), 1, nullptr);
  if constexpr (!std::is_void_v<Dc>) {
    if (is_wanted(t.c_gradient))
      scaled(operand_rows<T const>(dx), operand_rows<Dc>(p.dc), p.factor_c, p.device_scale);
  }
  if constexpr (!std::is_void_v<Dbias>) {
    if (p.has_bias)
      sum_bias_gradient<T, Dbias>(exec, dx, options, p.counted, t.bias_gradient,
                                  static_cast<std::byte*>(lease.data) + bytes.gradient);
  }
  products(nullptr);
}

}  // namespace detail

/// Upper bound of the bytes of temporary memory that gemm_backward() needs for a gradient `dout` of
/// this shape and type, whatever its outputs.
template <TensorLike DOut>
std::size_t gemm_backward_workspace_size(DOut const& dout, GemmOptions const& options = {}) {
  return detail::gemm_backward_bytes<element_t<DOut>>(detail::operand_of(detail::any_tensor(dout)),
                                                      options, true, true)
      .total();
}

/// Gradients of D = act(x) + residual, x = scale·alpha·op(A)·op(B) + bias, from dD:
///   dx = dD ⊙ act'(x),  d op(A) = scale·alpha·dx·op(B)ᵀ,  d op(B) = scale·alpha·op(A)ᵀ·dx,
///   d bias = Σ dx over batch and rows (or columns),  dC = scale·beta·dx where C stood behind beta.
/// The residual's gradient is dD itself.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param a, b     as given to gemm()
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
/// Throws ShapeError, StrideError, Error, UnsupportedError, ResourceError before anything is
/// launched or written.
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
  auto const view = [](auto const& wrapper) {
    if constexpr (is_present<decltype(wrapper)>) {
      return wrapper.view;
    } else {
      return Absent{};
    }
  };
  GemmBackwardTensors t;
  t.matrices = {checked_operand<Exec>(op, "A", a), checked_operand<Exec>(op, "B", b),
                checked_operand<Exec>(op, "dout", dout), "dout"};
  (refuse_without_gradient(extras), ...);
  if constexpr (is_wide_real<TA> && is_wide_real<TB> && is_wide_real<T>) {
    t.da = gradient_tensor<Exec>(da);
    t.db = gradient_tensor<Exec>(db);
    if constexpr (is_grouped)
      t.offsets = gemm_offsets<Exec>(find_extra<Grouped>(extras...).offsets);
    if constexpr (is_masked)
      t.counts = gemm_vector<Exec, std::int32_t>(find_extra<Masked>(extras...).counts);
    t.pre_activation = gemm_addend<Exec, rank_of<DOut>>(view(find_extra<PreActivation>(extras...)));
    t.device_scale = gemm_vector<Exec, float>(view(find_extra<DeviceScale>(extras...)));
    auto const d_bias = view(find_extra<BiasGradient>(extras...));
    auto const d_c = view(find_extra<CGradient>(extras...));
    auto const d_x = view(find_extra<PreActivationGradient>(extras...));
    static_assert(
        !is_present<decltype(d_x)> || std::is_same_v<gradient_element_t<decltype(d_x)>, T>,
        "attikos::gemm_backward: pre_activation_gradient has the element type of dout");
    t.bias_gradient = gradient_tensor<Exec>(d_bias);
    t.c_gradient = gradient_tensor<Exec>(d_c);
    t.pre_activation_gradient = gradient_tensor<Exec>(d_x);
    t.workspace = any_workspace(extras...);
    using Types =
        GemmBackwardTypes<TA, TB, T, gradient_element_t<DA>, gradient_element_t<DB>,
                          gradient_element_t<decltype(d_c)>, gradient_element_t<decltype(d_bias)>>;
    with_workspace(
        [&](auto const&... memory) { gemm_backward_run(Types{}, exec, t, options, memory...); },
        extras...);
  } else {
    raise<UnsupportedError>(op, ": quantized numbers have no gradient; expected A, B and dout of ",
                            "double, float, float16 or bfloat16.", t.matrices.text());
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
