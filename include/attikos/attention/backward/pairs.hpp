// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The part of attention's gradients that is done pair by pair: from q·k and dout·v to the weight P
/// and the gradient of the score.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/abi/attention_backward.hpp>
#include <attikos/attention/attention_head.hpp>
#include <attikos/attention/attention_scores.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// A sequence's queries: all rows, or the packed ones of sequence `batch`.
KOKKOS_INLINE_FUNCTION QueryRows query_rows(abi::AttentionArgs const& g, std::int64_t batch) {
  if (g.cu_seqlens_q.data == nullptr) return {batch, 0, g.seqlen_q};
  return packed_rows(packed_queries(g), batch + 1);
}

/// One (sequence, query head) with what the way back needs besides.
template <class T>
struct BackwardHead : AttentionHead<T> {
  using Acc = AttentionAccumulator<T>;
  Block<T const> dout;
  Acc const* lse;  ///< of row 0 of the sequence
  std::int64_t lse_stride;
  std::int64_t delta_row;  ///< index of row 0 among the sums dout·out

  KOKKOS_INLINE_FUNCTION BackwardHead(abi::AttentionBackwardArgs const& a,
                                      QueryRows const& sequence, std::int64_t h)
      : AttentionHead<T>(a.forward, sequence, h) {
    abi::AttentionArgs const& g = a.forward;
    std::int64_t const b = this->batch < 0 ? 0 : this->batch;
    dout = {static_cast<T const*>(a.dout) + b * a.dout_stride[0] + h * a.dout_stride[1] +
                this->begin_q * a.dout_stride[2],
            a.dout_stride[2], a.dout_stride[3]};
    lse = static_cast<Acc const*>(g.lse) + b * g.lse_stride[0] + h * g.lse_stride[1] +
          this->begin_q * g.lse_stride[2];
    lse_stride = g.lse_stride[2];
    std::int64_t const group = (g.cu_seqlens_q.data == nullptr ? b : 0) * g.heads_q + h;
    delta_row = group * g.seqlen_q + this->begin_q;
  }
};

/// Weight of a pair and gradient of its dot product (or, `to_bias`, of what was added to its
/// score). Both are exactly 0 for a pair that does not take part, whatever its numbers are.
template <class Acc>
struct PairGradient {
  Acc weight, slope;
};

/// Whether a score functor wants to hear of the gradient of its result; see score().
template <class Functors, class Acc>
KOKKOS_INLINE_FUNCTION constexpr bool accumulates() {
  return requires(Functors const& f, Acc x, std::int64_t n) {
    f.score.accumulate(x, x, n, n, n, n);
  };
}

/// `Tell`: the score functor hears of the pair, once on the way back.
/// \param dot    q·k
/// \param dprob  dout·v
/// \param lse    log-sum-exp of the row
/// \param delta  dout·out of the row
template <bool Tell, class Functors, class Head, class Acc = typename Head::Acc>
KOKKOS_INLINE_FUNCTION PairGradient<Acc> pair_gradient(abi::AttentionArgs const& g,
                                                       Functors const& functors, Head const& head,
                                                       bool to_bias, std::int64_t i, std::int64_t j,
                                                       Acc dot, Acc dprob, Acc lse, Acc delta) {
  if (lse == negative_infinity<Acc>() || !is_pair(g, functors, head, i, j) ||
      !sees_in_blocks(g, functors, head, i, j))
    return {0, 0};
  Acc capped = 0;
  Acc s = built_in_score(g, head, i, j, dot, capped);
  Acc slope = 1;
  [[maybe_unused]] Acc const before = s;
  if constexpr (Functors::has_score) {
    slope = static_cast<Acc>(functors.score.derivative(s, head.batch, head.head, i, j));
    s = static_cast<Acc>(functors.score(s, head.batch, head.head, i, j));
  }
  Acc p = Kokkos::exp(s - lse);
  if constexpr (Functors::has_weight)
    if (p != Acc(0)) p *= static_cast<Acc>(functors.weight(head.batch, head.head, i, j));
  if (p == Acc(0)) return {0, 0};
  Acc const change = p * (dprob - delta);
  slope *= change;
  if (!to_bias) {
    if constexpr (Tell && accumulates<Functors, Acc>())
      functors.score.accumulate(change, before, head.batch, head.head, i, j);
    if (g.softcap > 0) slope *= Acc(1) - capped * capped;
    slope *= head.scale;
  }
  return {p, slope};
}

namespace host {

/// One row of pairs: x holds dot products and y holds dout·v; they become weights and gradients.
/// `ByKey`: the row is key `row` and its columns are queries from m0 on, `lse` and `delta` an entry
/// for each; otherwise the row is query `row`, its columns are keys, and there is one of each.
template <bool ByKey, class Acc, class Functors, class Head>
inline void gradient_row(abi::AttentionArgs const& g, Functors const& functors, Head const& head,
                         bool to_bias, std::int64_t row, std::int64_t m0, Acc* x, Acc* y, int cols,
                         Acc const* lse, Acc const* delta) {
  constexpr int W = lanes<Acc>;
  constexpr Acc low = negative_infinity<Acc>();
  std::int64_t const from = ByKey ? head.first_query(row) : head.first(row);
  std::int64_t const to = ByKey ? head.last_query(row) : head.last(row);
  int const first = static_cast<int>(clamp_index(from - m0, 0, cols));
  int const last = static_cast<int>(clamp_index(to - m0, first, cols));
  auto const exclude = [&](int begin, int end) {
    for (int m = begin; m < end; ++m) x[m] = y[m] = Acc(0);
  };
  exclude(0, first);
  exclude(last, cols);
  Vec<Acc> iota;
  for (int l = 0; l < W; ++l) iota[l] = static_cast<Acc>(ByKey ? l : -l);
  Acc const cap = static_cast<Acc>(g.softcap);
  std::int64_t const bias_step = g.bias_stride[ByKey ? 2 : 3];
  auto const differentiate = [&](std::int64_t begin, std::int64_t end, [[maybe_unused]] bool ask) {
    std::int64_t const i0 = ByKey ? begin : row;
    std::int64_t const j0 = ByKey ? row : begin;
    std::int64_t const bias = head.batch * g.bias_stride[0] + head.head * g.bias_stride[1] +
                              i0 * g.bias_stride[2] + j0 * g.bias_stride[3];
    Acc const distance = static_cast<Acc>(i0 + head.offset - j0);
    for_each_vector<Acc>(
        x + (begin - m0), 1, end - begin, Acc(0), [&](std::int64_t m, Vec<Acc> s, int count) {
          std::int64_t const at = begin - m0 + m;
          Vec<Acc> const sums = ByKey ? load_row<Acc>(lse + at, 1, count) : broadcast<Acc, W>(*lse);
          Vec<Acc> const means =
              ByKey ? load_row<Acc>(delta + at, 1, count) : broadcast<Acc, W>(*delta);
          Vec<Acc> capped{};
          s *= head.scale;
          if (g.softcap > 0) {
            capped = tanh_vector(s / cap);
            s = cap * capped;
          }
          if (g.bias != nullptr)
            s += load_vector_any<Acc>(g.type_bias, g.bias, bias + m * bias_step, bias_step, count);
          if (g.alibi != nullptr) {
            Vec<Acc> const ahead = (distance + static_cast<Acc>(ByKey ? m : -m)) + iota;
            s -= head.slope * (ahead < Acc(0) ? -ahead : ahead);
          }
          Vec<Acc> slope = broadcast<Acc, W>(Acc(1));
          [[maybe_unused]] Vec<Acc> const before = s;
          if (g.mask != nullptr || Functors::has_score || Functors::has_weight || ask) {
            for (int l = 0; l < count; ++l) {
              std::int64_t const i = ByKey ? i0 + m + l : i0;
              std::int64_t const j = ByKey ? j0 : j0 + m + l;
              bool seen = is_pair(g, functors, head, i, j);
              if constexpr (Functors::has_block_mask)
                seen = seen && (!ask || functors.predicate(head.batch, head.head, i, j));
              if (!seen) {
                s[l] = low;
              } else if constexpr (Functors::has_score) {
                slope[l] =
                    static_cast<Acc>(functors.score.derivative(s[l], head.batch, head.head, i, j));
                s[l] = static_cast<Acc>(functors.score(s[l], head.batch, head.head, i, j));
              }
            }
          }
          Vec<Acc> p = exp<Acc, W>(s - sums);
          p = sums == low ? Vec<Acc>{} : p;
          if constexpr (Functors::has_weight) {
            for (int l = 0; l < count; ++l)
              if (p[l] != Acc(0))
                p[l] *= static_cast<Acc>(functors.weight(
                    head.batch, head.head, ByKey ? i0 + m + l : i0, ByKey ? j0 : j0 + m + l));
          }
          Vec<Acc> const change = p * (load_row<Acc>(y + at, 1, count) - means);
          slope *= change;
          if (!to_bias) {
            if constexpr (!ByKey && accumulates<Functors, Acc>())
              for (int l = 0; l < count; ++l)
                if (p[l] != Acc(0))
                  functors.score.accumulate(Acc(change[l]), Acc(before[l]), head.batch, head.head,
                                            i0, j0 + m + l);
            if (g.softcap > 0) slope *= Acc(1) - capped * capped;
            slope *= head.scale;
          }
          slope = p == Acc(0) ? Vec<Acc>{} : slope;
          put<Acc>(x + at, 1, count, p);
          put<Acc>(y + at, 1, count, slope);
        });
  };
  for_each_block<ByKey, Functors>(g, head, row, m0 + first, m0 + last, differentiate,
                                  [&](std::int64_t begin, std::int64_t end) {
                                    exclude(static_cast<int>(begin - m0),
                                            static_cast<int>(end - m0));
                                  });
}

}  // namespace host

/// All pairs of a tile whose rows start at row0 and columns at m0; see host::gradient_row(). `lse`
/// and `delta` hold an entry for each query of the tile.
template <class Traits, bool ByKey, class Team, class Acc, class Functors, class Head>
KOKKOS_INLINE_FUNCTION void gradient_tile(Team const& team, abi::AttentionArgs const& g,
                                          Functors const& functors, Head const& head, bool to_bias,
                                          std::int64_t row0, int rows, std::int64_t m0, int cols,
                                          Acc* x, Acc* y, int ld, Acc const* lse,
                                          Acc const* delta) {
  if constexpr (Traits::host) {
    KOKKOS_IF_ON_HOST(
        (for (int r = 0; r < rows; ++r) host::gradient_row<ByKey, Acc>(
             g, functors, head, to_bias, row0 + r, m0, x + static_cast<std::int64_t>(r) * ld,
             y + static_cast<std::int64_t>(r) * ld, cols, lse + (ByKey ? 0 : r),
             delta + (ByKey ? 0 : r));))
  } else {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * cols), [&](int index) {
      int const r = index / cols, m = index % cols;
      int const query = ByKey ? m : r;
      std::int64_t const i = ByKey ? m0 + m : row0 + r;
      std::int64_t const j = ByKey ? row0 + r : m0 + m;
      Acc& weight = x[r * ld + m];
      Acc& slope = y[r * ld + m];
      auto const pair = pair_gradient<!ByKey>(g, functors, head, to_bias, i, j, weight, slope,
                                              lse[query], delta[query]);
      weight = pair.weight;
      slope = pair.slope;
    });
  }
  (void)team;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
