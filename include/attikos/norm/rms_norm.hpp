// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// rms_norm() and l2_normalize(): scaling of each row by a norm of itself.
#pragma once

#include <attikos/core/extras.hpp>
#include <attikos/core/rows/rows.hpp>
#include <attikos/norm/norm_device.hpp>
#include <attikos/norm/residual_norm.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of rms_norm().
struct RmsNormOptions {
  double eps = 1e-6;  ///< added to the mean square
};

/// Options of l2_normalize().
struct L2NormalizeOptions {
  double eps = 1e-12;  ///< lower bound of the norm that a row is divided by
};

namespace detail {

/// Factor of a row from its sum of squares: 1/√(sum/n + eps).
template <class Acc>
struct RmsFactor {
  Acc eps;
  KOKKOS_INLINE_FUNCTION Acc operator()(Acc sum, std::int64_t n) const {
    return Kokkos::rsqrt(sum / static_cast<Acc>(n) + eps);
  }
};

/// Factor of a row from its sum of squares: 1/max(√sum, eps).
template <class Acc>
struct L2Factor {
  Acc eps;
  KOKKOS_INLINE_FUNCTION Acc operator()(Acc sum, std::int64_t) const {
    if (sum == Acc(0)) return Acc(0);
    Acc const norm = Kokkos::sqrt(sum);
    return Acc(1) / (norm < eps ? eps : norm);
  }
};

/// out = x·factor(Σx²)·weight on a host. `Weight` is a rank-1 tensor or Absent.
template <class Acc, class X, class Weight, class Out, class Factor>
struct ScaledRow {
  Rows<X const> x;
  Weight weight;
  Rows<Out> out;
  Factor factor;

  void host_row(std::int64_t index) const {
    Row<X const> const from = x(index);
    Row<Out> const to = out(index);
    bool const past = out.past_caches(x.data);
    host::with_dense(from.stride == 1 && to.stride == 1 && unit_stride(weight), [&](auto dense) {
      host::RowReader<Acc, dense(), X> const read{from.data, from.stride};
      auto const squares = host::sum_row<Acc, 1>(
          from.size, [&](std::int64_t j, int count, auto& sum) __attribute__((always_inline)) {
            host::Vec<Acc> const v = read(j, count);
            sum[0] = host::multiply_add<Acc, host::lanes<Acc>>(v, v, sum[0]);
          });
      Acc const scale = factor(host::reduce_sum<Acc, host::lanes<Acc>>(squares.of[0]), from.size);
      host::write_row<Acc, dense()>(
          to.data, to.stride, from.size, past,
          ahead_of(index, x), [&](std::int64_t j, int count) __attribute__((always_inline)) {
            host::Vec<Acc> v = read(j, count) * scale;
            if constexpr (is_present<Weight>) v *= row_reader<Acc, dense()>(weight)(j, count);
            return v;
          });
    });
  }
};

template <class Acc, class Factor, class Exec, class X, class Weight, class Out>
void scale_rows(Exec const& exec, char const* operation, X const& x, Weight const& weight,
                Out const& out, Factor const& factor) {
  auto const rx = to_const_ref(x);
  auto const ro = to_ref(out);
  check_same_extents(operation, rx, ro);
  if constexpr (is_present<Weight>) check_row_vector(operation, "weight", rx, weight);
  check_outputs(operation, {{"out", any_tensor(ro)}},
                {{"x", any_tensor(rx), 0}, {"weight", any_tensor(weight)}});
  auto const rows = rows_of(rx);
  if constexpr (is_host_space<Exec>) {
    launch_rows(exec, operation,
                ScaledRow<Acc, element_t<X>, Weight, element_t<Out>, Factor>{rows, weight,
                                                                             rows_of(ro), factor},
                rows.count(), rows.size);
  } else {
    launch_scaled_rows(exec, operation,
                       ScaledDeviceRow<Acc, element_t<X>, Weight, element_t<Out>, Factor>{
                           rows, weight, rows_of(ro), factor});
  }
}

/// rms_norm() of x + residual.
template <ExecutionSpace Exec, class X, class W, class Out, int Rank, class... Extras>
void residual_rms_norm(Exec const& exec, TensorRef<X const, Rank> const& x,
                       TensorRef<W const, 1> const& weight, TensorRef<Out, Rank> const& out,
                       double eps, Extras const&... extras) {
  char const* const name = "rms_norm";
  auto const given = residual_arguments<Exec>(name, x, extras...);
  using R = std::remove_const_t<std::remove_pointer_t<decltype(given.residual.data)>>;
  using S = std::remove_pointer_t<decltype(given.sum.data)>;
  using Acc = RowAccumulator<RowAccumulator<X, Out>, RowAccumulator<R, S>>;
  check_same_extents(name, x, out);
  check_row_vector(name, "weight", x, weight);
  check_outputs(name, {{"residual_sum", any_tensor(given.sum)}, {"out", any_tensor(out)}},
                {{"x", any_tensor(x), 0},
                 {"residual", any_tensor(given.residual), 0},
                 {"weight", any_tensor(weight)}});
  RmsFactor<Acc> const factor{static_cast<Acc>(eps)};
  auto const rows = rows_of(x);
  auto const sum = rows_of(given.sum);
  if constexpr (is_host_space<Exec>) {
    using Sum = ResidualSumRow<Acc, X, R, S>;
    using Norm = ScaledRow<Acc, S, TensorRef<W const, 1>, Out, RmsFactor<Acc>>;
    launch_rows(exec, name,
                ResidualNormRow<Sum, Norm>{
                    Sum{rows, rows_of(given.residual), sum},
                    Norm{rows_of(as_const(given.sum)), weight, rows_of(out), factor}},
                rows.count(), rows.size);
  } else {
    launch_residual_norm(exec, name,
                         ResidualRmsNormDeviceRow<Acc, X, R, S, W, Out, RmsFactor<Acc>>{
                             {rows, rows_of(given.residual), sum, rows_of(out)}, weight, factor},
                         weight);
  }
}

}  // namespace detail

/// Root-mean-square normalization: out = x/√(mean(x²) + eps)·weight over the last dimension.
///
/// \param exec    execution space instance; the call is asynchronous on it and never fences
/// \param x       rank 1 to 3, [..., hidden]
/// \param weight  [hidden]
/// \param out     the extents of x; may be x itself
/// \param extras  residual(r) and residual_sum(s), together: s = x + r is stored, and normalized as
///                it was stored. r and s have the extents of x; s may be x or r, out neither then
///
/// Types: any floating-point element for each argument; summed in float, in double if x or out is
/// double. A row whose sum of squares exceeds that type's range becomes 0. Determinism: run to run,
/// and for any number of host threads. Throws ShapeError, StrideError, Error before launching.
/// Source: B. Zhang, R. Sennrich, "Root Mean Square Layer Normalization", arXiv:1910.07467.
template <ExecutionSpace Exec, TensorLike X, TensorLike W, TensorLike Out,
          detail::NormExtra... Extras>
void rms_norm(Exec const& exec, X const& x, W const& weight, Out const& out,
              RmsNormOptions const& options = {}, Extras const&... extras) {
  using Acc = detail::RowAccumulator<element_t<X>, element_t<Out>>;
  detail::check_row_operation<Exec>("rms_norm", x, out);
  detail::check_tensor<Exec, W>();
  if constexpr (sizeof...(Extras) > 0)
    detail::residual_rms_norm(exec, detail::to_const_ref(x), detail::to_const_ref(weight),
                              detail::to_ref(out), options.eps, extras...);
  else
    detail::scale_rows<Acc>(exec, "rms_norm", x, detail::to_const_ref(weight), out,
                            detail::RmsFactor<Acc>{static_cast<Acc>(options.eps)});
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike W, TensorLike Out, detail::NormExtra... Extras>
void rms_norm(X const& x, W const& weight, Out const& out, RmsNormOptions const& options = {},
              Extras const&... extras) {
  rms_norm(Kokkos::DefaultExecutionSpace{}, x, weight, out, options, extras...);
}

/// Scaling to unit length: out = x/max(‖x‖₂, eps) over the last dimension.
///
/// \param exec  execution space instance; the call is asynchronous on it and never fences
/// \param x     rank 1 to 3, [..., size]
/// \param out   the extents of x; may be x itself
///
/// Types, determinism and errors as for rms_norm(). A row of zeros stays 0, and one whose sum of
/// squares exceeds the range of its type, in float elements of about 1e19, becomes 0.
template <ExecutionSpace Exec, TensorLike X, TensorLike Out>
void l2_normalize(Exec const& exec, X const& x, Out const& out,
                  L2NormalizeOptions const& options = {}) {
  using Acc = detail::RowAccumulator<element_t<X>, element_t<Out>>;
  detail::check_row_operation<Exec>("l2_normalize", x, out);
  detail::scale_rows<Acc>(exec, "l2_normalize", x, detail::Absent{}, out,
                          detail::L2Factor<Acc>{static_cast<Acc>(options.eps)});
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike Out>
void l2_normalize(X const& x, Out const& out, L2NormalizeOptions const& options = {}) {
  l2_normalize(Kokkos::DefaultExecutionSpace{}, x, out, options);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
