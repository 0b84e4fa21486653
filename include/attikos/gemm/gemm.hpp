// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// gemm(): general matrix product with an epilogue.
#pragma once

#include <attikos/core/dispatch/dispatch.hpp>
#include <attikos/core/explain.hpp>
#include <attikos/gemm/gemm_arguments.hpp>
#include <attikos/gemm/gemm_cuda.hpp>
#include <attikos/gemm/gemm_kokkos_kernels.hpp>
#include <attikos/gemm/gemm_portable.hpp>
#include <attikos/gemm/pack_b.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
concept GemmExtra = is_any_wrapper<T, Bias, Residual, ScaleA, ScaleB, ZeroPointA, ZeroPointB,
                                   DeviceScale, ScaleOut, PreActivation, Epilogue, Grouped, Masked>;

/// Explains (log given) or runs (log null) checked arguments.
template <class A, class B, class C, ExecutionSpace Exec, class Function = Absent>
void gemm_run(char const* operation, Exec const& exec, abi::GemmArgs const& args,
              char const* kernel, Explanation* log, Function const& function = {}) {
  using Kernels = typename Specializations<op::Gemm, Exec, A, B, C>::kernels;
  bool const done = choose_kernel(operation, Kernels{}, kernel, args, exec, log,
                                  [&]<class Kernel>(std::type_identity<Kernel>) {
                                    if (log == nullptr) Kernel::run(args, exec);
                                  });
  if (done) return;
  if (log == nullptr) {
    gemm_portable<A, B, C>(exec, args, function);
  } else {
    gemm_portable_tile<A, B, C>(exec, args);  // throws what the call would throw
    log->instructions = gemm_portable_instructions<A, B, C>(exec, args);
  }
}

/// Checks, then explains or runs.
template <ExecutionSpace Exec, GemmMatrix A, GemmRight B, GemmMatrix C, class... Extras>
void gemm_dispatch(Exec const& exec, A const& a, B const& b, C const& c, GemmOptions const& options,
                   Explanation* log, Extras const&... extras) {
  using TA = gemm_element_t<A>;
  using TB = gemm_element_t<B>;
  using TC = gemm_element_t<C>;
  abi::GemmArgs const args = gemm_arguments(gemm_tensors<Exec>(a, b, c, extras...), options);
  if constexpr (is_packed_b<B>) {
    if (log != nullptr) log->packed_b = b.layout.to_string();
  }
  auto const custom = find_extra<Epilogue>(extras...);
  if constexpr (is_present<decltype(custom)>) {
    using Scalar = GemmScalar<TA, TB, TC>;
    static_assert(std::is_invocable_r_v<Scalar, decltype(custom.function) const&, Scalar,
                                        std::int64_t, std::int64_t, std::int64_t>,
                  "attikos::gemm: epilogue(function) is called as function(value, batch, row, col) "
                  "with a value of float (double where an operand is double) and int64_t indices");
    gemm_run<TA, TB, TC>("gemm", exec, args, options.kernel, log, custom.function);
  } else {
    gemm_run<TA, TB, TC>("gemm", exec, args, options.kernel, log);
  }
}

}  // namespace detail

/// General matrix product: C = act(scale·(alpha·op(A)·op(B) + beta·C) + bias) + residual, then
/// rounded to C's type, divided by the scale of the output first where there is one.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param a        [m, k] or [batch, m, k] ([k, m] with `trans_a`)
/// \param b        [k, n] or [batch, k, n] ([n, k] with `trans_b`), or on hosts what pack_b() made
///                 of a matrix of A's type
/// \param c        [m, n] or [batch, m, n]; read only where beta ≠ 0
/// \param options  factors, transposition, activation, precision, kernel, tile (see GemmOptions)
/// \param extras   in any order:
///   - bias(view), n (or m) elements; residual(view), C's shape
///   - pre_activation(view), output of the argument of act, C's shape
///   - epilogue(function), a function in place of act
///   - scale_a(view), scale_b(view), factors of A and B per tensor, row or column, or block
///   - zero_point_a(view), zero_point_b(view), subtracted from int8 elements
///   - device_scale(view), a factor of `scale` that the device holds
///   - scale_out(view), divides the result before it is rounded to an 8-bit C
///   - grouped(offsets) or masked(counts), groups of rows that the device knows; C has batch 1
///     (groups) or one matrix for each count
///
/// A or B of rank 2, or with batch 1, is shared by the whole batch. Where B is, and strides allow
/// it, the batch becomes one product of batch·m rows, to which kernels, tiles and explain() refer;
/// its bits may then depend on the batch. matrix_pointers() may stand for
/// any of the three. Any strides; all extents may be 0, and k = 0 gives the epilogue of 0. Outputs
/// overlap nothing, but the residual may be C itself; what lies behind pointers is not looked at.
///
/// A packed B changes neither bits nor options, `trans_b` included: scales are those of the matrix
/// that was packed. It was packed for host_isa() of this process, else UnsupportedError names both.
/// A tile's columns are then whole panels. No BLAS takes the call, only the portable kernel.
///
/// Types: A and B are double, float, float16, bfloat16, float8_e4m3 or float8_e5m2 in any mix, C is
/// one of them or int8, summed in double if one of the three is double and in float otherwise. A C
/// of 8 bits takes beta = 0; finite results saturate, infinities and NaN become what quantize()
/// makes of them. int8 × int8 is summed exactly modulo 2³²; with C int32 it stays so and takes
/// alpha = 1, beta ∈ {0, 1}, zero points but no epilogue; with C int8, float, float16 or bfloat16
/// the sum, which below 2³¹ is exact, goes on in float. float means IEEE float32 throughout:
/// `compute` and `accumulate` only allow less.
///
/// Host sums run over k in ascending order in blocks of 256, or of 128 where scales change along k,
/// whatever the number of threads; instructions that host_isa() chose may take pairs at a time and
/// other blocks. In a build with Kokkos Kernels and a BLAS, plain float and
/// double products go to that BLAS, which promises neither order nor independence of threads;
/// `.kernel = "portable"` keeps them. Of batches whose products have no extent above 32, several
/// are computed at a time.
///
/// On a device the portable kernel cuts k into up to 16 parts where there are few tiles. Their
/// number follows from extents, strides, types and device; they are added in order, and wait in
/// memory that is kept for the instance, at most 16 times C in the type of sums.
///
/// Error: |computed − exact| ≤ (k + 8)·ε_acc·|alpha·scale|·Σ|a||b| + ε_C·|exact|, times 1.13 behind
/// an activation. Products of float8 numbers are exact; with scales, a and b are the scaled ones
/// and k + 8 becomes k + k/128 + 12. Behind scale_out, ε_C·|exact| is half the spacing of C's
/// format.
///
/// Determinism: run to run, and for any number of host threads.
///
/// Throws ShapeError, StrideError, Error, UnsupportedError, and ResourceError for a tile that does
/// not fit a team's memory, before anything is launched or written. The bits are the same for every
/// tile; on a device with matrix instructions small products, which have no tile, may differ from
/// those that are given one.
///
/// Source: K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS
/// 34(3), 2008; scales in blocks after DeepSeek-AI, "DeepSeek-V3 Technical Report",
/// arXiv:2412.19437.
template <ExecutionSpace Exec, detail::GemmMatrix A, detail::GemmRight B, detail::GemmMatrix C,
          detail::GemmExtra... Extras>
void gemm(Exec const& exec, A const& a, B const& b, C const& c, GemmOptions const& options = {},
          Extras const&... extras) {
  detail::gemm_dispatch(exec, a, b, c, options, nullptr, extras...);
}

/// The same on an instance of the default execution space.
template <detail::GemmMatrix A, detail::GemmRight B, detail::GemmMatrix C,
          detail::GemmExtra... Extras>
void gemm(A const& a, B const& b, C const& c, GemmOptions const& options = {},
          Extras const&... extras) {
  gemm(Kokkos::DefaultExecutionSpace{}, a, b, c, options, extras...);
}

/// Which kernel gemm() would run for these arguments, and why not the others. Throws what gemm()
/// would throw.
template <ExecutionSpace Exec, detail::GemmMatrix A, detail::GemmRight B, detail::GemmMatrix C,
          detail::GemmExtra... Extras>
Explanation explain(op::Gemm, Exec const& exec, A const& a, B const& b, C const& c,
                    GemmOptions const& options = {}, Extras const&... extras) {
  Explanation result;
  detail::gemm_dispatch(exec, a, b, c, options, &result, extras...);
  return result;
}

/// The same for an instance of the default execution space.
template <detail::GemmMatrix A, detail::GemmRight B, detail::GemmMatrix C,
          detail::GemmExtra... Extras>
Explanation explain(op::Gemm tag, A const& a, B const& b, C const& c,
                    GemmOptions const& options = {}, Extras const&... extras) {
  return explain(tag, Kokkos::DefaultExecutionSpace{}, a, b, c, options, extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
