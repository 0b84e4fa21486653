// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// mean_pool(): average over the valid positions of each sequence.
#pragma once

#include <attikos/core/lengths.hpp>
#include <attikos/core/rows.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of mean_pool(): none yet.
struct MeanPoolOptions {};

namespace detail {

template <class T>
concept MeanPoolExtra = is_any_wrapper<T, Lengths>;

/// One "row" of this operation is a stretch of features of one sequence.
template <class Acc, class X, class Out>
struct MeanPoolRow {
  static constexpr int stretch = 64;
  TensorRef<X const, 3> x;
  TensorRef<Out, 2> out;
  std::int32_t const* lengths;
  std::int64_t lengths_stride, stretches;

  KOKKOS_INLINE_FUNCTION std::int64_t length(std::int64_t b) const {
    if (lengths == nullptr) return x.extent[1];
    std::int64_t const n = lengths[b * lengths_stride];
    return n < 0 ? 0 : (n > x.extent[1] ? x.extent[1] : n);
  }
  KOKKOS_INLINE_FUNCTION static Acc factor(std::int64_t n) {
    return n == 0 ? Acc(0) : Acc(1) / static_cast<Acc>(n);
  }

  void host_row(std::int64_t index) const {
    constexpr int V = host::lanes<Acc>;
    std::int64_t const b = index / stretches;
    std::int64_t const first = index % stretches * stretch;
    std::int64_t const last = first + stretch < x.extent[2] ? first + stretch : x.extent[2];
    std::int64_t const n = length(b);
    for (std::int64_t j = first; j < last; j += V) {
      int const count = last - j < V ? static_cast<int>(last - j) : V;
      host::Vec<Acc> sum{};
      for (std::int64_t s = 0; s < n; ++s)
        sum += host::load_row<Acc>(x.ptr(b, s, j), x.stride[2], count);
      host::put<Acc>(out.ptr(b, j), out.stride[1], count, sum * factor(n));
    }
  }

  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    std::int64_t const b = index / stretches;
    std::int64_t const first = index % stretches * stretch;
    std::int64_t const last = first + stretch < x.extent[2] ? first + stretch : x.extent[2];
    std::int64_t const n = length(b);
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, first, last), [&](std::int64_t j) {
      Acc sum = 0;
      for (std::int64_t s = 0; s < n; ++s) sum += static_cast<Acc>(x(b, s, j));
      out(b, j) = static_cast<Out>(sum * factor(n));
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
/// Throws ShapeError, StrideError before launching.
template <ExecutionSpace Exec, TensorLike X, TensorLike Out, detail::MeanPoolExtra... Extras>
void mean_pool(Exec const& exec, X const& x, Out const& out, MeanPoolOptions const& = {},
               Extras const&... extras) {
  using Acc = detail::RowAccumulator<element_t<X>, element_t<Out>>;
  using Op = detail::MeanPoolRow<Acc, element_t<X>, element_t<Out>>;
  detail::check_tensor<Exec, X>();
  detail::check_output<Exec>("mean_pool", "out", out);
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
  Op op{rx, ro, nullptr, 0, (rx.extent[2] + Op::stretch - 1) / Op::stretch};
  auto const given = detail::find_extra<Lengths>(extras...);
  if constexpr (detail::is_present<decltype(given)>) {
    auto const ref = detail::lengths_ref<Exec>("mean_pool", "lengths", given.q, rx.extent[0],
                                               "sequence of the batch");
    op.lengths = ref.data;
    op.lengths_stride = ref.stride[0];
  }
  detail::launch_rows(exec, "mean_pool", op, rx.extent[0] * op.stretches);
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike Out, detail::MeanPoolExtra... Extras>
void mean_pool(X const& x, Out const& out, MeanPoolOptions const& options = {},
               Extras const&... extras) {
  mean_pool(Kokkos::DefaultExecutionSpace{}, x, out, options, extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
