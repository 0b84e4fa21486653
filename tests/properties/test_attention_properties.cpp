// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Properties of attention on random shapes, layouts, masks and lengths.
#include "generators.hpp"

namespace attikos::test {
namespace {

using Operands = AttentionOperands<Exec, float>;

Operands run(AttentionCase const& p, std::uint64_t seed) {
  Operands o(p);
  Random random(seed);
  o.fill(p, random);
  call_attention(Exec(), p, o);
  o.download();
  return o;
}

/// The oracle's row for query (b, h, i) of a problem without lengths.
reference::AttentionRow oracle_row(AttentionCase const& p, Operands const& o, std::int64_t b,
                                   std::int64_t h, std::int64_t i, double scale) {
  std::int64_t const g = h / (p.shape.heads_q / p.shape.heads_kv);
  return reference::attention_row(
      reference::visible_keys(i, p.shape.seqlen_q, p.shape.seqlen_kv, p.options.causal,
                              p.options.causal_alignment == CausalAlignment::top_left),
      p.shape.d, p.shape.dv, scale, [&](std::int64_t c) { return o.q.value(b, h, i, c); },
      [&](std::int64_t j, std::int64_t c) { return o.k.value(b, g, j, c); },
      [&](std::int64_t j, std::int64_t c) { return o.v.value(b, g, j, c); });
}

double scale_of(AttentionCase const& p) {
  return p.options.softmax_scale != 0 ? p.options.softmax_scale
                                      : 1 / std::sqrt(static_cast<double>(p.shape.d));
}

/// Two computed results of problems whose exact results agree: apart by no more than both bounds.
/// `lse_shift` is what the second lse has more.
void assert_agree(AttentionCase const& p, Operands const& o, AttentionCase const& p2,
                  Operands const& o2, std::int64_t rows, double lse_shift = 0) {
  for (std::int64_t b = 0; b < p.shape.batch; ++b) {
    for (std::int64_t h = 0; h < p.shape.heads_q; ++h) {
      std::int64_t const g = h / (p.shape.heads_q / p.shape.heads_kv);
      for (std::int64_t i = 0; i < rows; ++i) {
        auto const row = oracle_row(p, o, b, h, i, scale_of(p)),
                   row2 = oracle_row(p2, o2, b, h, i, scale_of(p2));
        AttentionBound<float> const bound(row, p.shape.d), bound2(row2, p2.shape.d);
        for (std::int64_t c = 0; c < p.shape.dv; ++c) {
          auto const v = [&](std::int64_t j) { return o.v.value(b, g, j, c); };
          RC_ASSERT(std::abs(o.out.value(b, h, i, c) - o2.out.value(b, h, i, c)) <=
                    bound.out(sz(c), v) + bound2.out(sz(c), v));
        }
        double const first = o.lse.value(b, h, i), second = o2.lse.value(b, h, i);
        RC_ASSERT(first == second ||
                  std::abs(first + lse_shift - second) <= bound.lse() + bound2.lse());
      }
    }
  }
}

RC_GTEST_PROP(AttentionProperties, AnyProblemMatchesTheOracle, ()) {
  AttentionCase p = any_attention_case();
  if (*rc::gen::arbitrary<bool>()) add_lengths(p);
  Operands const o = run(p, any_seed());
  RC_ASSERT(o.out.writes_outside() == 0u);
  compare_attention(p, o);
  RC_ASSERT(!testing::Test::HasFailure());
}

RC_GTEST_PROP(AttentionProperties, PermutingBatchAndHeadsPermutesOutputs, ()) {
  AttentionCase p = any_attention_case();
  std::int64_t const group = p.shape.heads_q / p.shape.heads_kv;
  Operands o = run(p, any_seed());
  auto const batches = any_permutation(p.shape.batch), heads = any_permutation(p.shape.heads_kv);
  Operands permuted(p);
  auto const head_of = [&](std::int64_t h) { return heads[sz(h / group)] * group + h % group; };
  permuted.q.for_each([&](auto const& i) {
    permuted.q.at(i) = o.q.at({batches[sz(i[0])], head_of(i[1]), i[2], i[3]});
  });
  permuted.k.for_each([&](auto const& i) {
    permuted.k.at(i) = o.k.at({batches[sz(i[0])], heads[sz(i[1])], i[2], i[3]});
  });
  permuted.v.for_each([&](auto const& i) {
    permuted.v.at(i) = o.v.at({batches[sz(i[0])], heads[sz(i[1])], i[2], i[3]});
  });
  permuted.q.upload();
  permuted.k.upload();
  permuted.v.upload();
  call_attention(Exec(), p, permuted);
  permuted.download();
  permuted.out.for_each([&](auto const& i) {
    auto const there = o.out.at({batches[sz(i[0])], head_of(i[1]), i[2], i[3]});
    RC_ASSERT(std::bit_cast<std::uint32_t>(permuted.out.at(i)) ==
              std::bit_cast<std::uint32_t>(there));
  });
  permuted.lse.for_each([&](auto const& i) {
    auto const there = o.lse.at({batches[sz(i[0])], head_of(i[1]), i[2]});
    RC_ASSERT(std::bit_cast<std::uint32_t>(permuted.lse.at(i)) ==
              std::bit_cast<std::uint32_t>(there));
  });
}

RC_GTEST_PROP(AttentionProperties, PoisonInPaddingIsNeverSeen, ()) {
  AttentionCase p = any_attention_case();
  add_lengths(p);
  auto const seed = any_seed();
  Operands poisoned = run(p, seed);
  Operands clean(p);
  Random random(seed);
  clean.fill(p, random);
  for (auto* tensor : {&clean.q, &clean.k, &clean.v}) {
    tensor->for_each([&](auto const& i) {
      if (std::isnan(tensor->at(i))) tensor->at(i) = 1;
    });
    tensor->upload();
  }
  call_attention(Exec(), p, clean);
  clean.download();
  RC_ASSERT(same_elements(poisoned.out, clean.out));
  RC_ASSERT(same_elements(poisoned.lse, clean.lse));
}

RC_GTEST_PROP(AttentionProperties, FullLengthsAreNoLengths, ()) {
  AttentionCase p = any_attention_case();
  auto const seed = any_seed();
  Operands without = run(p, seed);
  p.lengths_q.assign(sz(p.shape.batch), static_cast<int>(p.shape.seqlen_q));
  p.lengths_kv.assign(sz(p.shape.batch), static_cast<int>(p.shape.seqlen_kv));
  Operands with = run(p, seed);
  assert_agree(p, without, p, with, p.shape.seqlen_q);
}

RC_GTEST_PROP(AttentionProperties, ScoresShiftedByAConstantChangeOnlyLse, ()) {
  AttentionCase p = any_attention_case();
  p.options.softmax_scale = 0.25;
  Operands o = run(p, any_seed());
  // One more column: 1 in q, t in k adds scale t to every score.
  float const t = static_cast<float>(*rc::gen::inRange(-40, 40));
  AttentionCase shifted_case = p;
  shifted_case.shape.d += 1;
  Operands shifted(shifted_case);
  shifted.q.for_each([&](auto const& i) { shifted.q.at(i) = i[3] < p.shape.d ? o.q.at(i) : 1; });
  shifted.k.for_each([&](auto const& i) { shifted.k.at(i) = i[3] < p.shape.d ? o.k.at(i) : t; });
  shifted.v.for_each([&](auto const& i) { shifted.v.at(i) = o.v.at(i); });
  shifted.q.upload();
  shifted.k.upload();
  shifted.v.upload();
  call_attention(Exec(), shifted_case, shifted);
  shifted.download();
  assert_agree(p, o, shifted_case, shifted, p.shape.seqlen_q, 0.25 * static_cast<double>(t));
}

RC_GTEST_PROP(AttentionProperties, CausalRowsDependOnTheirPrefixOnly, ()) {
  AttentionCase p = any_attention_case();
  p.options.causal = true;
  p.options.causal_alignment = CausalAlignment::top_left;
  Operands o = run(p, any_seed());
  std::int64_t const rows =
      *rc::gen::inRange<std::int64_t>(1, std::min(p.shape.seqlen_q, p.shape.seqlen_kv) + 1);
  AttentionCase prefix_case = p;
  prefix_case.shape.seqlen_q = prefix_case.shape.seqlen_kv = rows;
  Operands prefix(prefix_case);
  prefix.q.for_each([&](auto const& i) { prefix.q.at(i) = o.q.at(i); });
  prefix.k.for_each([&](auto const& i) { prefix.k.at(i) = o.k.at(i); });
  prefix.v.for_each([&](auto const& i) { prefix.v.at(i) = o.v.at(i); });
  prefix.q.upload();
  prefix.k.upload();
  prefix.v.upload();
  call_attention(Exec(), prefix_case, prefix);
  prefix.download();
  assert_agree(p, o, prefix_case, prefix, rows);
}

// Attention over all keys is the mean of attention over two parts, weighted by exp(lse).
RC_GTEST_PROP(AttentionProperties, PartsMergeThroughLse, ()) {
  AttentionCase p = any_attention_case();
  p.options.causal = false;
  Operands o = run(p, any_seed());
  std::int64_t const cut = *rc::gen::inRange<std::int64_t>(0, p.shape.seqlen_kv + 1);
  auto const part = [&](std::int64_t begin, std::int64_t end) {
    AttentionCase piece = p;
    piece.shape.seqlen_kv = end - begin;
    Operands x(piece);
    x.q.for_each([&](auto const& i) { x.q.at(i) = o.q.at(i); });
    x.k.for_each([&](auto const& i) { x.k.at(i) = o.k.at({i[0], i[1], i[2] + begin, i[3]}); });
    x.v.for_each([&](auto const& i) { x.v.at(i) = o.v.at({i[0], i[1], i[2] + begin, i[3]}); });
    x.q.upload();
    x.k.upload();
    x.v.upload();
    call_attention(Exec(), piece, x);
    x.download();
    return x;
  };
  Operands const first = part(0, cut), second = part(cut, p.shape.seqlen_kv);
  std::int64_t const group = p.shape.heads_q / p.shape.heads_kv;
  o.lse.for_each([&](auto const& i) {
    auto const row = oracle_row(p, o, i[0], i[1], i[2], scale_of(p));
    AttentionBound<float> const bound(row, p.shape.d);
    double const lse1 = first.lse.value(i[0], i[1], i[2]),
                 lse2 = second.lse.value(i[0], i[1], i[2]);
    double const larger = std::max(lse1, lse2);
    double const lse = larger + std::log(std::exp(lse1 - larger) + std::exp(lse2 - larger));
    // The parts' errors are bounded as the whole's is: they have fewer keys. An error e of an lse
    // is a relative error expm1(2 e) of a weight.
    RC_ASSERT(std::abs(lse - static_cast<double>(o.lse.at(i))) <= 2 * bound.lse());
    double const weight_error = std::expm1(4 * bound.lse());
    for (std::int64_t c = 0; c < p.shape.dv; ++c) {
      auto const v = [&](std::int64_t j) { return o.v.value(i[0], i[1] / group, j, c); };
      double largest = 0;
      for (std::int64_t j = 0; j < p.shape.seqlen_kv; ++j)
        largest = std::max(largest, std::abs(v(j)));
      double const merged = std::exp(lse1 - lse) * first.out.value(i[0], i[1], i[2], c) +
                            std::exp(lse2 - lse) * second.out.value(i[0], i[1], i[2], c);
      RC_ASSERT(std::abs(merged - o.out.value(i[0], i[1], i[2], c)) <=
                2 * bound.out(sz(c), v) + 2 * weight_error * largest);
    }
  });
}

RC_GTEST_PROP(AttentionProperties, AlgorithmsAgree, ()) {
  AttentionCase p = any_attention_case();
  auto const seed = any_seed();
  p.options.algorithm = AttentionAlgorithm::flash;
  Operands const flash = run(p, seed);
  for (auto algorithm : {AttentionAlgorithm::tiled, AttentionAlgorithm::naive}) {
    p.options.algorithm = algorithm;
    Operands const other = run(p, seed);
    assert_agree(p, flash, p, other, p.shape.seqlen_q);
  }
}

// With all values equal, weights that sum to one return them.
RC_GTEST_PROP(AttentionProperties, EqualValuesComeBack, ()) {
  AttentionCase p = any_attention_case();
  p.options.causal = false;
  Operands o(p);
  Random random(any_seed());
  o.fill(p, random);
  o.v.fill(0.75);
  call_attention(Exec(), p, o);
  o.download();
  o.lse.for_each([&](auto const& i) {
    auto const row = oracle_row(p, o, i[0], i[1], i[2], scale_of(p));
    AttentionBound<float> const bound(row, p.shape.d);
    for (std::int64_t c = 0; c < p.shape.dv; ++c)
      RC_ASSERT(std::abs(o.out.value(i[0], i[1], i[2], c) - 0.75) <=
                bound.out(sz(c), [](std::int64_t) { return 0.75; }));
  });
}

}  // namespace
}  // namespace attikos::test
