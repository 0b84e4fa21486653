// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention with windows, softcap, bias, mask, ALiBi, sinks and functors, singly and together.
#include "attention_term_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class AttentionTerms : public testing::Test {};
TYPED_TEST_SUITE(AttentionTerms, FloatingCases, CaseName);

struct TermCase {
  AttentionShape shape;
  AttentionOptions options = {};
  Terms terms = {};
  unsigned bias_broadcast = 0, mask_broadcast = 0;
  Layout layout = Layout::right;
};

std::string describe(TermCase const& p) {
  std::ostringstream text;
  text << describe(AttentionCase{.shape = p.shape, .options = p.options, .layout = p.layout})
       << " window " << p.options.window_left << ' ' << p.options.window_right << " chunk "
       << p.options.attention_chunk << " softcap " << p.options.softcap << " bias " << p.terms.bias
       << '/' << p.bias_broadcast << " mask " << p.terms.mask << '/' << p.mask_broadcast
       << " alibi " << p.terms.alibi << " sinks " << p.terms.sinks << " score " << p.terms.score
       << " weight " << p.terms.weight;
  return text.str();
}

/// `Functors` says whether the call is compiled with functors: they are types.
template <class C, bool Functors = false>
void check_terms(TermCase const& p) {
  using T = typename C::T;
  using Exec = typename C::Exec;
  AttentionOperands<Exec, T> o(
      AttentionCase{.shape = p.shape, .options = p.options, .layout = p.layout});
  Random random(static_cast<std::uint64_t>(p.shape.seqlen_q * 31 + p.shape.seqlen_kv));
  o.fill(AttentionCase{.shape = p.shape}, random);
  TermOperands<Exec, T> const x(p.shape, p.bias_broadcast, p.mask_broadcast, random);
  bool rounded = false;
  auto const call = [&](auto const&... extras) {
    rounded = rounds_weights<Exec>(explain(op::attention, Exec(), o.q.const_view(),
                                           o.k.const_view(), o.v.const_view(), o.out.view(),
                                           o.lse.view(), p.options, extras...));
    attention(Exec(), o.q.const_view(), o.k.const_view(), o.v.const_view(), o.out.view(),
              o.lse.view(), p.options, extras...);
  };
  auto const& t = p.terms;
  if constexpr (Functors) {
    if (t.score && t.weight) {
      call(score(TestScore{}), weight(TestWeight{}));
    } else if (t.score) {
      call(score(TestScore{}));
    } else {
      call(weight(TestWeight{}));
    }
  } else if (t.bias && t.mask) {
    call(sinks(x.sinks.const_view()), mask(x.mask.const_view()), bias(x.bias.const_view()),
         alibi(x.slopes.const_view()));
  } else if (t.bias) {
    call(bias(x.bias.const_view()));
  } else if (t.mask) {
    call(mask(x.mask.const_view()));
  } else if (t.alibi) {
    call(alibi(x.slopes.const_view()));
  } else if (t.sinks) {
    call(sinks(x.sinks.const_view()));
  } else {
    call();
  }
  o.download();
  EXPECT_EQ(o.out.writes_outside(), 0u) << describe(p);
  EXPECT_EQ(o.lse.writes_outside(), 0u) << describe(p);
  std::string const name = std::string("attention/terms/") + type_name<T>() + "/" + Exec::name();
  Comparison out(name, describe(p), stored_as<T>()), lse(name + "/lse", describe(p));
  SequenceCheck compare{out, lse, p.shape, p.options, t};
  compare.rounded_weights = rounded;
  for (std::int64_t b = 0; b < p.shape.batch; ++b)
    compare.template operator()<T>(
        x, b, p.shape.seqlen_q, p.shape.seqlen_q, p.shape.seqlen_kv,
        [&](auto h, auto i, auto c) { return o.q.value(b, h, i, c); },
        [&](auto h, auto j, auto c) { return o.k.value(b, h, j, c); },
        [&](auto h, auto j, auto c) { return o.v.value(b, h, j, c); },
        [&](auto h, auto i, auto c) { return o.out.value(b, h, i, c); },
        [&](auto h, auto i) { return o.lse.value(b, h, i); });
}

constexpr AttentionShape square{2, 4, 2, 70, 70, 16, 24};
constexpr AttentionShape wide{1, 2, 1, 21, 300, 20, 20};
constexpr AttentionShape tall{1, 2, 2, 150, 40, 8, 8};

TYPED_TEST(AttentionTerms, Windows) {
  for (auto const& shape : {square, wide, tall})
    for (auto [left, right] : {std::pair<int, int>{0, 0}, {5, -1}, {-1, 3}, {17, 9}, {400, 400}})
      for (bool causal : {false, true})
        for (auto algorithm : all_algorithms) {
          if (algorithm != AttentionAlgorithm::flash && causal) continue;
          check_terms<TypeParam>(
              {.shape = shape,
               .options = {.causal = causal,
                           .causal_alignment = left == 5 ? CausalAlignment::top_left
                                                         : CausalAlignment::bottom_right,
                           .algorithm = algorithm,
                           .window_left = left,
                           .window_right = right}});
        }
}

// Chunks of 1, of no multiple of a tile, of more than there are keys; queries before the first key
// (tall) are in chunks of their own. The last shape is one of those that threads take whole heads
// of.
TYPED_TEST(AttentionTerms, Chunks) {
  for (auto const& shape : {square, wide, tall, AttentionShape{2, 4, 2, 17, 31, 8, 8}})
    for (std::int64_t chunk : {1, 7, 48, 1000})
      for (auto alignment : {CausalAlignment::bottom_right, CausalAlignment::top_left})
        for (auto algorithm : all_algorithms)
          check_terms<TypeParam>({.shape = shape,
                                  .options = {.causal = chunk == 48,
                                              .causal_alignment = alignment,
                                              .algorithm = algorithm,
                                              .window_left = chunk == 1000 ? 30 : -1,
                                              .attention_chunk = chunk},
                                  .terms = {.sinks = chunk == 7}});
}

TYPED_TEST(AttentionTerms, Softcap) {
  for (auto algorithm : all_algorithms)
    for (double cap : {0.25, 30.0})
      check_terms<TypeParam>(
          {.shape = wide, .options = {.softmax_scale = 1, .algorithm = algorithm, .softcap = cap}});
}

TYPED_TEST(AttentionTerms, BiasWithEveryBroadcast) {
  for (unsigned broadcast = 0; broadcast < 16; ++broadcast)
    check_terms<TypeParam>(
        {.shape = {2, 4, 2, 19, 37, 8, 8}, .terms = {.bias = true}, .bias_broadcast = broadcast});
  for (auto algorithm : all_algorithms)
    check_terms<TypeParam>({.shape = wide,
                            .options = {.causal = true, .algorithm = algorithm},
                            .terms = {.bias = true},
                            .layout = Layout::strided});
}

TYPED_TEST(AttentionTerms, MaskWithEveryBroadcast) {
  for (unsigned broadcast = 0; broadcast < 16; ++broadcast)
    check_terms<TypeParam>(
        {.shape = {2, 4, 2, 19, 37, 8, 8}, .terms = {.mask = true}, .mask_broadcast = broadcast});
  for (auto algorithm : all_algorithms)
    check_terms<TypeParam>({.shape = tall,
                            .options = {.causal = true, .algorithm = algorithm},
                            .terms = {.mask = true}});
}

TYPED_TEST(AttentionTerms, AlibiAndSinks) {
  for (auto const& shape : {square, wide, tall})
    for (auto algorithm : all_algorithms) {
      check_terms<TypeParam>(
          {.shape = shape, .options = {.algorithm = algorithm}, .terms = {.alibi = true}});
      check_terms<TypeParam>({.shape = shape,
                              .options = {.causal = true, .algorithm = algorithm},
                              .terms = {.sinks = true}});
    }
}

TYPED_TEST(AttentionTerms, EverythingAtOnce) {
  for (auto const& shape : {square, wide, tall})
    for (auto algorithm : all_algorithms)
      check_terms<TypeParam>({.shape = shape,
                              .options = {.softmax_scale = 0.5,
                                          .causal = true,
                                          .algorithm = algorithm,
                                          .window_left = 30,
                                          .softcap = 5},
                              .terms = {.bias = true, .mask = true, .alibi = true, .sinks = true},
                              .bias_broadcast = 1,
                              .mask_broadcast = 2});
}

TYPED_TEST(AttentionTerms, EmptyExtents) {
  for (auto const& shape : empty_attention_shapes)
    check_terms<TypeParam>({.shape = shape,
                            .options = {.window_left = 1},
                            .terms = {.bias = true, .mask = true, .alibi = true, .sinks = true}});
}

template <class C>
class AttentionFunctors : public testing::Test {};
using FunctorCases = Cases<TypesOfWays<List<double, float>>>;
TYPED_TEST_SUITE(AttentionFunctors, FunctorCases, CaseName);

TYPED_TEST(AttentionFunctors, ScoreAndWeight) {
  for (auto const& shape : {square, wide, tall})
    for (bool causal : {false, true})
      for (auto algorithm : all_algorithms)
        for (int which = 1; which < 4; ++which)
          check_terms<TypeParam, true>(
              {.shape = shape,
               .options = {.causal = causal, .algorithm = algorithm},
               .terms = {.score = (which & 1) != 0, .weight = (which & 2) != 0}});
}

// What a pair without a part in the row holds never gets through: not its key, not its value.
TYPED_TEST(AttentionFunctors, NanOfExcludedPairsReachesNoRow) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  AttentionShape const shape{1, 2, 1, 40, 90, 16, 24};
  for (auto algorithm : all_algorithms) {
    AttentionOptions const options{.algorithm = algorithm};
    AttentionOperands<Exec, T> o(AttentionCase{.shape = shape});
    Random random(3);
    o.fill(AttentionCase{.shape = shape}, random);
    std::int64_t const bad = 33;
    for (std::int64_t c = 0; c < shape.d; ++c) o.k(0, 0, bad, c) = poison<T>();
    for (std::int64_t c = 0; c < shape.dv; ++c) o.v(0, 0, bad, c) = poison<T>();
    o.k.upload();
    o.v.upload();
    Tensor<std::uint8_t, 4, Exec> visible({1, 1, 1, 90});
    visible.fill(1);
    visible(0, 0, 0, bad) = 0;
    visible.upload();
    attention(Exec(), o.q.const_view(), o.k.const_view(), o.v.const_view(), o.out.view(),
              o.lse.view(), options, mask(visible.const_view()));
    o.download();
    o.out.for_each([&](auto const& i) { ASSERT_TRUE(std::isfinite(to_double(o.out.at(i)))); });
    attention(Exec(), o.q.const_view(), o.k.const_view(), o.v.const_view(), o.out.view(),
              o.lse.view(), options, weight(TestWeight{}));
    o.download();
    o.out.for_each([&](auto const& i) {
      bool const excluded = TestWeight{}(0, i[1], i[2], bad) == 0;
      ASSERT_EQ(std::isfinite(to_double(o.out.at(i))), excluded) << i[2];
    });
  }
}

template <class C>
class AttentionFloat8 : public testing::Test {};
using Float8Cases = Cases<List<float16, bfloat16>>;
TYPED_TEST_SUITE(AttentionFloat8, Float8Cases, CaseName);

/// q, k, v in E4M3 with a factor per batch and key head, out in 16 bits. The last shape lies as the
/// copy engine of a device takes it.
TYPED_TEST(AttentionFloat8, Descale) {
  using Out = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  for (auto const& shape : {square, wide, AttentionShape{1, 2, 1, 130, 70, 32, 48}})
    for (auto algorithm : all_algorithms)
      for (bool per_head : {false, true}) {
        Tensor<float8_e4m3, 4, Exec> q({shape.batch, shape.heads_q, shape.seqlen_q, shape.d}),
            k({shape.batch, shape.heads_kv, shape.seqlen_kv, shape.d}, Layout::permuted),
            v({shape.batch, shape.heads_kv, shape.seqlen_kv, shape.dv},
              shape.d % 16 == 0 && shape.dv % 16 == 0 ? Layout::right : Layout::padded);
        Tensor<Out, 4, Exec> out({shape.batch, shape.heads_q, shape.seqlen_q, shape.dv});
        Tensor<float, 3, Exec> lse({shape.batch, shape.heads_q, shape.seqlen_q});
        Tensor<float, 2, Exec> factors({shape.batch, shape.heads_kv}, Layout::padded);
        Tensor<float, 1, Exec> one({1});
        Random random(11);
        q.fill_uniform(random, -4, 4);
        k.fill_uniform(random, -4, 4);
        v.fill_uniform(random, -200, 200);
        factors.fill_uniform(random, 0.1, 0.3);
        one.fill(0.25);
        AttentionOptions const options{.causal = true, .algorithm = algorithm};
        if (per_head) {
          attention(Exec(), q.const_view(), k.const_view(), v.const_view(), out.view(), lse.view(),
                    options, descale(one.const_view(), factors.const_view(), factors.const_view()));
        } else {
          attention(Exec(), q.const_view(), k.const_view(), v.const_view(), out.view(), lse.view(),
                    options, descale(one.const_view(), one.const_view(), one.const_view()));
        }
        bool const rounded = rounds_weights<Exec>(explain(
            op::attention, Exec(), q.const_view(), k.const_view(), v.const_view(), out.view(),
            options, descale(one.const_view(), one.const_view(), one.const_view())));
        out.download();
        lse.download();
        std::string const name =
            std::string("attention/float8_e4m3/") + type_name<Out>() + "/" + Exec::name();
        Comparison out_check(name, "descale", stored_as<Out>()),
            lse_check(name + "/lse", "descale");
        TermOperands<Exec, float> const none_given({1, 1, 1, 1, 1, 1, 1}, 0, 0, random);
        for (std::int64_t b = 0; b < shape.batch; ++b)
          for (std::int64_t g = 0; g < shape.heads_kv; ++g) {
            double const factor = per_head ? factors.value(b, g) : 0.25;
            std::int64_t const ratio = shape.heads_q / shape.heads_kv;
            AttentionShape one_group = shape;
            one_group.heads_q = ratio;
            one_group.heads_kv = 1;
            SequenceCheck compare{out_check, lse_check, one_group,     options,
                                  Terms{},   factor,    0.25 * factor, rounded};
            compare.template operator()<Out, float8_e4m3>(
                none_given, b, shape.seqlen_q, shape.seqlen_q, shape.seqlen_kv,
                [&](auto h, auto i, auto c) { return q.value(b, g * ratio + h, i, c); },
                [&](auto, auto j, auto c) { return k.value(b, g, j, c); },
                [&](auto, auto j, auto c) { return v.value(b, g, j, c); },
                [&](auto h, auto i, auto c) { return out.value(b, g * ratio + h, i, c); },
                [&](auto h, auto i) { return lse.value(b, g * ratio + h, i); });
          }
      }
}

}  // namespace
}  // namespace attikos::test
