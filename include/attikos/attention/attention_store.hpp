// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The end of flash attention: what a team has summed up of its rows becomes output and
/// log-sum-exp.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/attention/attention_head.hpp>
#include <attikos/attention/online_softmax.hpp>
#include <attikos/core/rows/row.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Writes out = accumulated/sum and the log-sum-exp of one finished tile of rows. A row that saw no
/// key gets 0 and −∞. A sink joins the denominator only. `state.out` has columns [col0, col0 +
/// cols) of out; the log-sum-exp is written with the first.
template <class Traits, class Team, class T, class Out, class Acc>
KOKKOS_INLINE_FUNCTION void store_attention_rows(Team const& team, abi::AttentionArgs const& g,
                                                 AttentionHead<T, Out> const& head,
                                                 std::int64_t row0, int rows,
                                                 SoftmaxState<Acc> const& state, std::int64_t col0,
                                                 int cols) {
  Block<Out> const& out = head.out;
  Acc* const lse = g.lse == nullptr || col0 != 0
                       ? nullptr
                       : static_cast<Acc*>(g.lse) +
                             (head.batch < 0 ? 0 : head.batch) * g.lse_stride[0] +
                             head.head * g.lse_stride[1] + head.begin_q * g.lse_stride[2];
  bool const has_sink = g.sinks != nullptr;
  Acc const sink =
      has_sink ? load_any<Acc>(g.type_sinks, g.sinks, head.head * g.sinks_stride) : Acc(0);
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
    Acc sum = state.sum[i];
    Acc maximum = state.maximum[i];
    bool const empty = sum == Acc(0);
    Acc factor = head.value_scale;
    if (has_sink && !empty) {
      Acc const top = sink > maximum ? sink : maximum;
      Acc const correction = Kokkos::exp(maximum - top);
      sum = sum * correction + Kokkos::exp(sink - top);
      factor *= correction;
      maximum = top;
    }
    factor = empty ? Acc(0) : factor / sum;
    Acc const* const from = state.out + i * state.ldo;
    if constexpr (Traits::host) {
      KOKKOS_IF_ON_HOST(
          (host::for_each_vector<Acc>(
               from, 1, cols, Acc(0), [&](std::int64_t j, host::Vec<Acc> x, int count) {
                 if (empty) x = host::Vec<Acc>{};
                 host::put<Acc>(out.at(row0 + i, col0 + j), out.col_stride, count, x * factor);
               });))
    } else {
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, cols), [&](int j) {
        *out.at(row0 + i, col0 + j) = static_cast<Out>(empty ? Acc(0) : from[j] * factor);
      });
    }
    if (lse != nullptr)
      Kokkos::single(Kokkos::PerThread(team), [&] {
        lse[(row0 + i) * g.lse_stride[2]] =
            empty ? negative_infinity<Acc>() : maximum + Kokkos::log(sum);
      });
  });
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
