// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The row step of flash attention: a tile of scores becomes weights while running maximum and sum
/// are kept.
///
/// M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867; T. Dao
/// et al., "FlashAttention", arXiv:2205.14135.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/attention/attention_head.hpp>
#include <attikos/core/rows/row.hpp>
#include <attikos/core/simd_exp.hpp>
#include <attikos/core/tile.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// State of a team's query rows: maximum and sum so far, and the unnormalized output.
template <class Acc>
struct SoftmaxState {
  Acc* maximum;
  Acc* sum;
  Acc* out;
  int ldo;
};

namespace host {

/// One row: x becomes e^(scale·x − m), times `weight(j)` unless that is Absent, in the first
/// `valid` of `cols` entries and 0 in the rest.
template <class Acc, class Weight>
inline void softmax_row(Acc* x, int valid, int cols, Acc scale, Acc& maximum, Acc& sum, Acc* out,
                        int out_cols, Weight const& weight) {
  constexpr int W = lanes<Acc>;
  constexpr Acc low = negative_infinity<Acc>();
  if (valid <= 0) {
    for (int j = 0; j < cols; ++j) x[j] = Acc(0);
    return;
  }
  Vec<Acc> best = broadcast<Acc, W>(low);
  for_each_vector<Acc>(x, 1, valid, low, [&](std::int64_t j, Vec<Acc> v, int count) {
    v *= scale;
    for (int l = count; l < W; ++l) v[l] = low;
    put<Acc>(x + j, 1, count, v);
    best = max<Acc, W>(v, best);  // a NaN score never wins here and comes out of exp below
  });
  Acc const seen = reduce_max<Acc, W>(best);
  Acc const now = seen > maximum ? seen : maximum;
  Acc const shift = now == low ? Acc(0) : now;  // no finite score yet: every weight is e^(−∞) = 0
  Vec<Acc> total{};
  for_each_vector<Acc>(x, 1, valid, low, [&](std::int64_t j, Vec<Acc> v, int count) {
    v = exp<Acc, W>(v - shift);
    if constexpr (is_present<Weight>)
      for (int l = 0; l < count; ++l)
        if (v[l] != Acc(0)) v[l] *= weight(static_cast<int>(j) + l);
    put<Acc>(x + j, 1, count, v);
    total += v;
  });
  (void)weight;
  for (int j = valid; j < cols; ++j) x[j] = Acc(0);
  if (now != maximum) {
    Vec<Acc> const factor = exp<Acc, W>(broadcast<Acc, W>(maximum - shift));
    Acc const correction = factor[0];
    sum *= correction;
    for (int j = 0; j < out_cols; j += W)
      store<Acc, W>(out + j, load<Acc, W>(out + j) * correction);
  }
  sum += reduce_sum<Acc, W>(total);
  maximum = now;
}

/// `weight` with its row fixed.
template <class Weight>
inline auto weight_of_row(Weight const& weight, int i) {
  if constexpr (is_present<Weight>) {
    return [&weight, i](int j) { return weight(i, j); };
  } else {
    (void)i;
    return weight;
  }
}

}  // namespace host

/// All rows of a score tile. `valid(i)` is how many leading columns row i may attend to (0 or less:
/// none), `weight(i, j)` the factor of a pair or Absent. Rows are `lds` apart; `out_cols` is a
/// multiple of the register block.
template <class Traits, class Team, class Acc, class Valid, class Weight = Absent>
KOKKOS_INLINE_FUNCTION void online_softmax(Team const& team, Acc* scores, int lds, int rows,
                                           int cols, Acc scale, SoftmaxState<Acc> const& state,
                                           int out_cols, Valid const& valid,
                                           Weight const& weight = {}) {
  if constexpr (Traits::host) {
    KOKKOS_IF_ON_HOST((for (int i = 0; i < rows; ++i) {
      host::softmax_row<Acc>(scores + static_cast<std::int64_t>(i) * lds, valid(i), cols, scale,
                             state.maximum[i], state.sum[i],
                             state.out + static_cast<std::int64_t>(i) * state.ldo, out_cols,
                             host::weight_of_row(weight, i));
    }))
    (void)team;
  } else {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
      Acc* const x = scores + i * lds;
      int const limit = valid(i);
      Acc seen = negative_infinity<Acc>();
      Kokkos::parallel_reduce(
          Kokkos::ThreadVectorRange(team, limit > 0 ? limit : 0),
          [&](int j, Acc& best) {
            Acc const s = x[j] * scale;
            if (s > best) best = s;
          },
          Kokkos::Max<Acc>(seen));
      // One lane reads what that lane will write below; the others get it handed on.
      Acc before = 0;
      Kokkos::single(
          Kokkos::PerThread(team), [&](Acc& value) { value = state.maximum[i]; }, before);
      Acc const now = seen > before ? seen : before;
      Acc const shift = now == negative_infinity<Acc>() ? Acc(0) : now;
      Acc total = 0;
      Kokkos::parallel_reduce(
          Kokkos::ThreadVectorRange(team, cols),
          [&](int j, Acc& part) {
            Acc p = j < limit ? Kokkos::exp(x[j] * scale - shift) : Acc(0);
            if constexpr (is_present<Weight>)
              if (p != Acc(0)) p *= weight(i, j);
            x[j] = p;
            part += p;
          },
          total);
      Acc const correction = Kokkos::exp(before - shift);
      if (now != before)
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, out_cols),
                             [&](int j) { state.out[i * state.ldo + j] *= correction; });
      Kokkos::single(Kokkos::PerThread(team), [&] {
        if (now != before) state.sum[i] *= correction;
        state.sum[i] += total;
        state.maximum[i] = now;
      });
    });
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
