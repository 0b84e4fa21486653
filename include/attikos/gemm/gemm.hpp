// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// gemm(): general matrix product with an epilogue.
#pragma once

#include <attikos/core/dispatch.hpp>
#include <attikos/core/explain.hpp>
#include <attikos/gemm/gemm_arguments.hpp>
#include <attikos/gemm/gemm_cuda.hpp>
#include <attikos/gemm/gemm_kokkos_kernels.hpp>
#include <attikos/gemm/gemm_portable.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
concept GemmExtra = is_any_wrapper<T, Bias, Residual>;

/// Checks, then explains (log given) or runs (log null).
template <ExecutionSpace Exec, TensorLike A, TensorLike B, TensorLike C, class... Extras>
void gemm_dispatch(Exec const& exec, A const& a, B const& b, C const& c, GemmOptions const& options,
                   Explanation* log, Extras const&... extras) {
  abi::GemmArgs const args = gemm_arguments<Exec>(a, b, c, options, extras...);
  using Kernels =
      typename Specializations<op::Gemm, Exec, element_t<A>, element_t<B>, element_t<C>>::kernels;
  bool const done = choose_kernel("gemm", Kernels{}, options.kernel, args, exec, log,
                                  [&]<class Kernel>(std::type_identity<Kernel>) {
                                    if (log == nullptr) Kernel::run(args, exec);
                                  });
  if (!done && log == nullptr) gemm_portable<element_t<A>, element_t<B>, element_t<C>>(exec, args);
}

}  // namespace detail

/// General matrix product: C = act(scale·(alpha·op(A)·op(B) + beta·C) + bias) + residual.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param A        [m, k] or [batch, m, k] ([k, m] with `trans_a`)
/// \param B        [k, n] or [batch, k, n] ([n, k] with `trans_b`)
/// \param C        [m, n] or [batch, m, n]; read only where beta ≠ 0
/// \param options  factors, transposition, activation, kernel (see GemmOptions)
/// \param extras   bias(view) with n (or m) elements, residual(view) of C's shape, in any order
///
/// A or B of rank 2, or with batch 1, is shared by the whole batch. Any strides; all extents may be
/// 0, and k = 0 gives the epilogue of 0. C must not overlap A or B; the residual may be C itself.
///
/// Types: double, float, float16, bfloat16 in any mix, summed in double if one of them is double
/// and in float otherwise; int8 × int8 → int32 is exact modulo 2³² and takes alpha = 1, beta ∈ {0,
/// 1} and no epilogue. float means IEEE float32 throughout. Host sums run over k in ascending order
/// in blocks of 256, whatever the number of threads. Built with Kokkos Kernels and a BLAS, plain
/// float and double products go there, where neither holds: `.kernel = "portable"` keeps both.
///
/// Error: |computed − exact| ≤ (k + 8)·ε_acc·|alpha·scale|·Σ|a||b| + ε_C·|exact|, times 1.13 behind
/// an activation.
///
/// Determinism: run to run, and for any number of host threads.
///
/// Throws ShapeError, StrideError, UnsupportedError before anything is launched or written.
///
/// Source: K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS
/// 34(3), 2008.
template <ExecutionSpace Exec, TensorLike A, TensorLike B, TensorLike C,
          detail::GemmExtra... Extras>
void gemm(Exec const& exec, A const& a, B const& b, C const& c, GemmOptions const& options = {},
          Extras const&... extras) {
  detail::gemm_dispatch(exec, a, b, c, options, nullptr, extras...);
}

/// The same on an instance of the default execution space.
template <TensorLike A, TensorLike B, TensorLike C, detail::GemmExtra... Extras>
void gemm(A const& a, B const& b, C const& c, GemmOptions const& options = {},
          Extras const&... extras) {
  gemm(Kokkos::DefaultExecutionSpace{}, a, b, c, options, extras...);
}

/// Which kernel gemm() would run for these arguments, and why not the others. Throws what gemm()
/// would throw.
template <ExecutionSpace Exec, TensorLike A, TensorLike B, TensorLike C,
          detail::GemmExtra... Extras>
Explanation explain(op::Gemm, Exec const& exec, A const& a, B const& b, C const& c,
                    GemmOptions const& options = {}, Extras const&... extras) {
  Explanation result;
  detail::gemm_dispatch(exec, a, b, c, options, &result, extras...);
  return result;
}

/// The same for an instance of the default execution space.
template <TensorLike A, TensorLike B, TensorLike C, detail::GemmExtra... Extras>
Explanation explain(op::Gemm tag, A const& a, B const& b, C const& c,
                    GemmOptions const& options = {}, Extras const&... extras) {
  return explain(tag, Kokkos::DefaultExecutionSpace{}, a, b, c, options, extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
