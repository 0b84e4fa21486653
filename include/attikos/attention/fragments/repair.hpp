// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rows of out whose product of weights and values cannot be trusted.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/attention/attention_scores.hpp>
#include <attikos/attention/online_softmax.hpp>
#include <attikos/core/rows/device_elements.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// How many of a row's columns are numbers, as the lanes of a thread count them.
template <class Team, class Acc>
KOKKOS_INLINE_FUNCTION int count_numbers(Team const& team, Acc const* row, int cols) {
  int count = 0;
  Kokkos::parallel_reduce(
      Kokkos::ThreadVectorRange(team, cols), [&](int c, int& n) { n += row[c] == row[c]; }, count);
  return count;
}

/// x·y of `size` elements that lie so far apart, as the lanes of a thread sum it.
template <class Acc, class Team, class T>
KOKKOS_INLINE_FUNCTION Acc dot_by_lanes(Team const& team, T const* x, std::int64_t stride_x,
                                        T const* y, std::int64_t stride_y, std::int64_t size) {
  Acc result = Acc(0);
  Kokkos::parallel_reduce(
      Kokkos::ThreadVectorRange(team, static_cast<int>(size)),
      [&](int c, Acc& sum) {
        sum += element_value<Acc>(x[c * stride_x]) * element_value<Acc>(y[c * stride_y]);
      },
      result);
  return result;
}

/// A row to repair: its head, its query, and the keys that it may see.
template <class Head>
struct RepairedRow {
  Head head;
  std::int64_t query, first, last;
};

/// Sums rows of out that hold a NaN again, key by key: a product of matrices multiplies the value
/// of an excluded key by 0, and so makes a NaN of one that is infinite or NaN itself. A NaN among
/// the scores is the row's own. Row i is `row_of(i)`; columns [col0, col0 + cols) of out are
/// `state.out`'s.
///
/// A thread has a row, its lanes have the features. A row whose columns are all NaN is done: a
/// value that it sees is one.
template <class Team, class Functors, class Acc, class RowOf>
KOKKOS_INLINE_FUNCTION void repair_rows(Team const& team, abi::AttentionArgs const& g,
                                        Functors const& functors, int rows,
                                        SoftmaxState<Acc> const& state, std::int64_t col0, int cols,
                                        RowOf const& row_of) {
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
    Acc* const out = state.out + i * state.ldo;
    if (state.sum[i] != state.sum[i] || count_numbers(team, out, cols) == cols) return;
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, cols), [&](int c) { out[c] = Acc(0); });
    auto const row = row_of(i);
    auto const& head = row.head;
    auto const* const query = head.q.at(row.query, 0);
    for (std::int64_t j = row.first; j < row.last; ++j) {
      Acc const dot = dot_by_lanes<Acc>(team, query, head.q.col_stride, head.key(j),
                                        head.k.col_stride, g.head_dim);
      Acc const score = pair_score(g, functors, head, row.query, j, dot);
      if (score == negative_infinity<Acc>()) continue;
      Acc weight = quick_exp(score - state.maximum[i]);
      if constexpr (Functors::has_weight)
        weight *= static_cast<Acc>(functors.weight(head.batch, head.head, row.query, j));
      if (weight == Acc(0)) continue;
      auto const* const value = head.value(j) + col0 * head.v.col_stride;
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, cols), [&](int c) {
        out[c] += weight * element_value<Acc>(value[c * head.v.col_stride]);
      });
      if (count_numbers(team, out, cols) == 0) return;
    }
  });
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
