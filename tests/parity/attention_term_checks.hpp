// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One attention problem with terms in its scores, in any storage: build it, run it, compare every
// element with the oracle.
#pragma once

#include <optional>

#include "attention_checks.hpp"

namespace attikos::test {

/// A smooth function of everything that a score functor gets, with a slope below 1.
struct TestScore {
  template <class Acc>
  KOKKOS_INLINE_FUNCTION Acc operator()(Acc s, std::int64_t b, std::int64_t h, std::int64_t i,
                                        std::int64_t j) const {
    if ((i + 2 * j + h) % 7 == 3) return -Kokkos::Experimental::infinity_v<Acc>;
    return Acc(0.75) * s + Acc(0.125) * static_cast<Acc>((b + 3 * h + 5 * i + 7 * j) % 8);
  }
};

/// A cutoff: exactly 0 for distant pairs.
struct TestWeight {
  KOKKOS_INLINE_FUNCTION double operator()(std::int64_t b, std::int64_t h, std::int64_t i,
                                           std::int64_t j) const {
    std::int64_t const distance = (i + j + b + h) % 9;
    return distance >= 6 ? 0 : 1 - static_cast<double>(distance) / 8;
  }
};

/// Which terms a call has.
struct Terms {
  bool bias = false, mask = false, alibi = false, sinks = false, score = false, weight = false;
};

/// Extents with those named by `broadcast` (bit r for dimension r) set to 1.
inline std::array<std::int64_t, 4> broadcast_extents(AttentionShape const& s, unsigned broadcast) {
  std::array<std::int64_t, 4> extents{s.batch, s.heads_q, s.seqlen_q, s.seqlen_kv};
  for (unsigned r = 0; r < 4; ++r)
    if (broadcast >> r & 1u) extents[r] = 1;
  return extents;
}

/// The tensors of the terms, as large as the shape wants them.
template <class Exec, class Element>
struct TermOperands {
  static constexpr bool on_device = !is_host_space<Exec>;
  Tensor<Element, 4, Exec> bias;
  Tensor<std::uint8_t, 4, Exec> mask;
  Tensor<float, 2, Exec> slopes;
  Tensor<Element, 1, Exec> sinks;

  TermOperands(AttentionShape const& s, unsigned bias_broadcast, unsigned mask_broadcast,
               Random& random)
      : bias(broadcast_extents(s, bias_broadcast), Layout::padded),
        mask(broadcast_extents(s, mask_broadcast), Layout::padded),
        slopes({s.batch, s.heads_q}, Layout::padded),
        sinks({s.heads_q}, Layout::strided) {
    bias.fill_uniform(random, -2, 2);
    mask.fill_integers(random, 0, 2);
    slopes.fill_uniform(random, 0, 1);
    sinks.fill_uniform(random, -1, 3);
  }

  template <class Tensor4>
  static double pick(Tensor4 const& x, std::array<std::int64_t, 4> index) {
    for (std::size_t r = 0; r < 4; ++r)
      if (x.extents()[r] == 1) index[r] = 0;
    return x.value(index[0], index[1], index[2], index[3]);
  }

  /// Terms of row i, for the oracle. `off` is len_kv − len_q, or 0.
  reference::AttentionTerms row(Terms const& t, AttentionOptions const& o, double scale,
                                std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t len_q,
                                std::int64_t len_kv) const {
    std::int64_t const off = o.causal_alignment == CausalAlignment::top_left ? 0 : len_kv - len_q;
    reference::AttentionTerms terms;
    terms.scale = scale;
    terms.softcap = o.softcap;
    terms.sees = [=, this](std::int64_t j) {
      std::int64_t const ahead = j - i - off;
      return i < len_q && !(o.causal && ahead > 0) &&
             !(o.window_left >= 0 && ahead < -o.window_left) &&
             !(o.window_right >= 0 && ahead > o.window_right) &&
             reference::in_one_chunk(i + off, j, o.attention_chunk) &&
             !(t.mask && pick(mask, {b, h, i, j}) == 0);
    };
    terms.bias = [=, this](std::int64_t j) {
      return (t.bias ? pick(bias, {b, h, i, j}) : 0.0) -
             (t.alibi ? slopes.value(b, h) * static_cast<double>(std::abs(i + off - j)) : 0.0);
    };
    if (t.score) terms.score = [=](double s, std::int64_t j) { return TestScore{}(s, b, h, i, j); };
    if (t.weight) terms.weight = [=](std::int64_t j) { return TestWeight{}(b, h, i, j); };
    if (t.sinks) terms.sink = sinks.value(h);
    return terms;
  }
};

/// Compares rows [0, rows) of a sequence with the oracle; tensors are read through callables.
struct SequenceCheck {
  Comparison& out;
  Comparison& lse;
  AttentionShape shape;
  AttentionOptions options;
  Terms terms;
  double value_scale = 1;
  double score_scale = 1;        ///< of float8 factors
  bool rounded_weights = false;  ///< rounds_weights() of the call

  template <class Out, class In = Out, class Operands, class Q, class K, class V, class O, class L>
  void operator()(Operands const& operands, std::int64_t b, std::int64_t rows, std::int64_t len_q,
                  std::int64_t len_kv, Q const& q, K const& k, V const& v, O const& o, L const& l) {
    double const scale =
        score_scale *
        (options.softmax_scale != 0
             ? options.softmax_scale
             : 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(shape.d, 1))));
    for (std::int64_t h = 0; h < shape.heads_q; ++h) {
      std::int64_t const g = h / (shape.heads_q / shape.heads_kv);
      for (std::int64_t i = 0; i < rows; ++i) {
        if (!is_compared(i)) continue;
        auto const row = reference::attention_row(
            i < len_q ? len_kv : 0, shape.d, shape.dv,
            operands.row(terms, options, scale, b, h, i, len_q, len_kv),
            [&](std::int64_t c) { return q(h, i, c); },
            [&](std::int64_t j, std::int64_t c) { return k(g, j, c); },
            [&](std::int64_t j, std::int64_t c) { return value_scale * v(g, j, c); });
        auto const compare = [&](auto const& bound) {
          for (std::int64_t c = 0; c < shape.dv; ++c)
            out.add(o(h, i, c), row.out[sz(c)],
                    bound.out(sz(c), [&](std::int64_t j) { return value_scale * v(g, j, c); }),
                    {b, h, i, c});
          lse.add(l(h, i), row.lse, bound.lse(), {b, h, i});
        };
        // Factors of weights are not in what the maximum is taken of.
        if (Operands::on_device || terms.weight || !std::is_same_v<Out, In>)
          compare(AttentionBound<Out, In>(row, shape.d, Operands::on_device || rounded_weights));
        else
          compare(HostAttentionBound<Out>(row, shape.d, rounded_weights));
      }
    }
  }
};

}  // namespace attikos::test
