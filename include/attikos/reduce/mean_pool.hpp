// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// mean_pool() and mean_pool_backward(): average over the valid positions of each sequence.
#pragma once

#include <attikos/core/lengths.hpp>
#include <attikos/core/rows/rows.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of mean_pool(): none yet.
struct MeanPoolOptions {};

namespace detail {

template <class T>
concept MeanPoolExtra = is_any_wrapper<T, Lengths>;

/// Valid positions per sequence, clamped; without an array all `seqlen` are.
struct PoolLengths {
  std::int32_t const* data = nullptr;
  std::int64_t stride = 0, seqlen = 0;

  KOKKOS_INLINE_FUNCTION std::int64_t operator()(std::int64_t b) const {
    if (data == nullptr) return seqlen;
    std::int64_t const n = data[b * stride];
    return n < 0 ? 0 : (n > seqlen ? seqlen : n);
  }
};

/// lengths(view) among the extras without its static type, absent where there is none.
template <ExecutionSpace Exec, class... Extras>
AnyTensor any_pool_lengths(Extras const&... extras) {
  auto const given = find_extra<Lengths>(extras...);
  if constexpr (is_present<decltype(given)>) {
    return any_lengths<Exec>(given.q);
  } else {
    return {};
  }
}

/// Checked lengths; throws ShapeError if they do not fit.
inline PoolLengths pool_lengths(char const* operation, AnyTensor const& x, std::int64_t batch,
                                std::int64_t seqlen) {
  PoolLengths result{nullptr, 0, seqlen};
  if (!x.given()) return result;
  auto const ref = lengths_ref(operation, "lengths", x, batch, "sequence of the batch");
  result.data = ref.data;
  result.stride = ref.stride[0];
  return result;
}

template <class Acc>
KOKKOS_INLINE_FUNCTION Acc mean_factor(std::int64_t n) {
  return n == 0 ? Acc(0) : Acc(1) / static_cast<Acc>(n);
}

/// One "row" of this operation is a stretch of features of one sequence.
template <class Acc, class X, class Out>
struct MeanPoolRow {
  static constexpr int stretch = 64;
  TensorRef<X const, 3> x;
  TensorRef<Out, 2> out;
  PoolLengths lengths;
  std::int64_t stretches;

  void host_row(std::int64_t index) const {
    constexpr int V = host::lanes<Acc>;
    std::int64_t const b = index / stretches;
    std::int64_t const first = index % stretches * stretch;
    std::int64_t const last = first + stretch < x.extent[2] ? first + stretch : x.extent[2];
    std::int64_t const n = lengths(b);
    for (std::int64_t j = first; j < last; j += V) {
      int const count = last - j < V ? static_cast<int>(last - j) : V;
      host::Vec<Acc> sum{};
      for (std::int64_t s = 0; s < n; ++s)
        sum += host::load_row<Acc>(x.ptr(b, s, j), x.stride[2], count);
      host::put<Acc>(out.ptr(b, j), out.stride[1], count, sum * mean_factor<Acc>(n));
    }
  }

  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    std::int64_t const b = index / stretches;
    std::int64_t const first = index % stretches * stretch;
    std::int64_t const last = first + stretch < x.extent[2] ? first + stretch : x.extent[2];
    std::int64_t const n = lengths(b);
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, first, last), [&](std::int64_t j) {
      Acc sum = 0;
      for (std::int64_t s = 0; s < n; ++s) sum += static_cast<Acc>(x(b, s, j));
      out(b, j) = static_cast<Out>(sum * mean_factor<Acc>(n));
    });
  }
};

}  // namespace detail

/// Mean over positions: out[b, :] = (1/len_b)·Σ_{s < len_b} x[b, s, :].
///
/// \param exec    execution space instance; the call is asynchronous on it and never fences
/// \param x       [batch, seqlen, hidden]
/// \param out     [batch, hidden]; its element type may differ from x's; must not overlap x
/// \param extras  lengths(view): int32 [batch]; without it every position counts
///
/// A sequence of length 0 gives 0; padding is never read. Summed in position order in float, in
/// double if x or out is double. Determinism: run to run, and for any number of host threads.
/// Throws ShapeError, StrideError, Error before launching.
template <ExecutionSpace Exec, TensorLike X, TensorLike Out, detail::MeanPoolExtra... Extras>
void mean_pool(Exec const& exec, X const& x, Out const& out, MeanPoolOptions const& = {},
               Extras const&... extras) {
  using Acc = detail::RowAccumulator<element_t<X>, element_t<Out>>;
  using Op = detail::MeanPoolRow<Acc, element_t<X>, element_t<Out>>;
  detail::check_tensor<Exec, X>();
  detail::check_output<Exec>(out);
  detail::check_extents("mean_pool", "x", x);
  detail::check_extents("mean_pool", "out", out);
  static_assert(rank_of<X> == 3 && rank_of<Out> == 2,
                "attikos::mean_pool: x is [batch, seqlen, hidden] and out is [batch, hidden]");
  auto const rx = detail::to_const_ref(x);
  auto const ro = detail::to_ref(out);
  if (ro.extent[0] != rx.extent[0] || ro.extent[1] != rx.extent[2])
    detail::raise<ShapeError>("mean_pool: out is ", detail::describe(ro), "; expected [",
                              rx.extent[0], ", ", rx.extent[2], "] for x, which is ",
                              detail::describe(rx));
  auto const given = detail::any_pool_lengths<Exec>(extras...);
  Op const op{rx, ro, detail::pool_lengths("mean_pool", given, rx.extent[0], rx.extent[1]),
              (rx.extent[2] + Op::stretch - 1) / Op::stretch};
  detail::check_outputs("mean_pool", {{"out", detail::any_tensor(out)}},
                        {{"x", detail::any_tensor(x)}, {"lengths", given}});
  detail::launch_rows(exec, "mean_pool", op, rx.extent[0] * op.stretches);
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike Out, detail::MeanPoolExtra... Extras>
void mean_pool(X const& x, Out const& out, MeanPoolOptions const& options = {},
               Extras const&... extras) {
  mean_pool(Kokkos::DefaultExecutionSpace{}, x, out, options, extras...);
}

namespace detail {

/// One "row" of this operation is one position of one sequence.
template <class Acc, class Dout, class Dx>
struct MeanPoolBackwardRow {
  TensorRef<Dout const, 2> dout;
  TensorRef<Dx, 3> dx;
  PoolLengths lengths;

  void host_row(std::int64_t index) const {
    constexpr int V = host::lanes<Acc>;
    std::int64_t const b = index / dx.extent[1], s = index % dx.extent[1];
    std::int64_t const n = lengths(b);
    for (std::int64_t j = 0; j < dx.extent[2]; j += V) {
      int const count = dx.extent[2] - j < V ? static_cast<int>(dx.extent[2] - j) : V;
      host::Vec<Acc> v{};
      if (s < n)
        v = host::load_row<Acc>(dout.ptr(b, j), dout.stride[1], count) * mean_factor<Acc>(n);
      host::put<Acc>(dx.ptr(b, s, j), dx.stride[2], count, v);
    }
  }

  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    std::int64_t const b = index / dx.extent[1], s = index % dx.extent[1];
    std::int64_t const n = lengths(b);
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, dx.extent[2]), [&](std::int64_t j) {
      Acc v = 0;
      if (s < n) v = static_cast<Acc>(dout(b, j)) * mean_factor<Acc>(n);
      dx(b, s, j) = static_cast<Dx>(v);
    });
  }
};

}  // namespace detail

/// Gradient of mean_pool(): dx[b, s, :] = dout[b, :]/len_b for s < len_b, 0 past it.
///
/// \param exec    execution space instance; the call is asynchronous on it and never fences
/// \param dout    [batch, hidden]
/// \param dx      [batch, seqlen, hidden]; must not overlap dout
/// \param extras  lengths(view): what mean_pool() had
///
/// Types: any floating-point element for each argument; computed in float, in double if dout or dx
/// is double. Determinism: run to run, and for any number of host threads. Throws ShapeError,
/// StrideError, Error before launching.
template <ExecutionSpace Exec, TensorLike Dout, TensorLike Dx, detail::MeanPoolExtra... Extras>
void mean_pool_backward(Exec const& exec, Dout const& dout, Dx const& dx,
                        MeanPoolOptions const& = {}, Extras const&... extras) {
  using Acc = detail::RowAccumulator<element_t<Dout>, element_t<Dx>>;
  char const* const name = "mean_pool_backward";
  detail::check_tensor<Exec, Dout>();
  detail::check_output<Exec>(dx);
  detail::check_extents(name, "dout", dout);
  detail::check_extents(name, "dx", dx);
  static_assert(
      rank_of<Dout> == 2 && rank_of<Dx> == 3,
      "attikos::mean_pool_backward: dout is [batch, hidden] and dx is [batch, seqlen, hidden]");
  static_assert(is_floating_element<element_t<Dout>> && is_floating_element<element_t<Dx>>,
                "attikos::mean_pool_backward: dout and dx hold floating-point elements");
  auto const rg = detail::to_const_ref(dout);
  auto const rx = detail::to_ref(dx);
  if (rg.extent[0] != rx.extent[0] || rg.extent[1] != rx.extent[2])
    detail::raise<ShapeError>(name, ": dout is ", detail::describe(rg), "; expected [",
                              rx.extent[0], ", ", rx.extent[2], "] for dx, which is ",
                              detail::describe(rx));
  auto const given = detail::any_pool_lengths<Exec>(extras...);
  auto const counted = detail::pool_lengths(name, given, rx.extent[0], rx.extent[1]);
  detail::check_outputs(name, {{"dx", detail::any_tensor(dx)}},
                        {{"dout", detail::any_tensor(dout)}, {"lengths", given}});
  detail::launch_rows(
      exec, name, detail::MeanPoolBackwardRow<Acc, element_t<Dout>, element_t<Dx>>{rg, rx, counted},
      rx.extent[0] * rx.extent[1]);
}

/// The same on an instance of the default execution space.
template <TensorLike Dout, TensorLike Dx, detail::MeanPoolExtra... Extras>
void mean_pool_backward(Dout const& dout, Dx const& dx, MeanPoolOptions const& options = {},
                        Extras const&... extras) {
  mean_pool_backward(Kokkos::DefaultExecutionSpace{}, dout, dx, options, extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
