// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gradients of a score functor's own parameters: what the functor adds up against the oracle's sums
// over pairs. They are sums of floats, without norms: tolerance_attention_backward.hpp says why.
#include "block_mask_backward_checks.hpp"

namespace attikos::test {
namespace {

/// factor·s plus a number for each head and distance up to `reach`, both learned.
template <class Exec, class Acc>
struct RelativeBias {
  static constexpr std::int64_t reach = 9, entries = 2 * reach + 1;
  using Table = Kokkos::View<Acc**, typename Exec::memory_space>;
  Acc factor;
  Table table, d_table;                                     // [heads, entries]
  Kokkos::View<Acc, typename Exec::memory_space> d_factor;  // Σ r·s

  KOKKOS_INLINE_FUNCTION static std::int64_t entry(std::int64_t i, std::int64_t j) {
    std::int64_t const ahead = j - i;
    return reach + (ahead < -reach ? -reach : ahead > reach ? reach : ahead);
  }
  KOKKOS_INLINE_FUNCTION Acc operator()(Acc s, std::int64_t, std::int64_t h, std::int64_t i,
                                        std::int64_t j) const {
    return factor * s + table(h, entry(i, j));
  }
  KOKKOS_INLINE_FUNCTION Acc derivative(Acc, std::int64_t, std::int64_t, std::int64_t,
                                        std::int64_t) const {
    return factor;
  }
  KOKKOS_INLINE_FUNCTION void accumulate(Acc r, Acc s, std::int64_t, std::int64_t h, std::int64_t i,
                                         std::int64_t j) const {
    Kokkos::atomic_add(&d_table(h, entry(i, j)), r);
    Kokkos::atomic_add(&d_factor(), r * s);
  }
};

template <class C>
class ScoreParameters : public testing::Test {};
TYPED_TEST_SUITE(ScoreParameters, FloatingCases, CaseName);

/// `blocks`: beside a block mask.
template <class C>
void check_parameters(AttentionShape const& shape, AttentionOptions const& options, bool blocks) {
  using T = typename C::T;
  using Exec = typename C::Exec;
  using Acc = Accumulator<T>;
  using Space = TensorSpace<Exec>;
  using Functor = RelativeBias<Space, Acc>;
  auto const heads = sz(shape.heads_q);
  Functor f{Acc(0.5),
            typename Functor::Table("table", heads, Functor::entries),
            typename Functor::Table("d_table", heads, Functor::entries),
            {}};
  f.d_factor = decltype(f.d_factor)("d_factor");
  Random random(77);
  auto const table = Kokkos::create_mirror_view(f.table);
  for (std::size_t h = 0; h < heads; ++h)
    for (std::int64_t e = 0; e < Functor::entries; ++e)
      table(h, sz(e)) = static_cast<Acc>(random.uniform(-1, 1));
  Kokkos::deep_copy(f.table, table);

  BackwardCase const p{.shape = shape, .options = options, .mask = true};
  BackwardOperands<Exec, T> o(p);
  o.fill(random);
  o.mask.fill(1);
  TestPredicate const predicate{blocks ? Pattern::mosaic : Pattern::all};
  keep_seen(o.mask, predicate);
  auto const model_of = [&](std::int64_t b, std::int64_t h) {
    auto model = o.model(b, h);
    model.score = [&, h](double s, std::int64_t i, std::int64_t j) {
      return 0.5 * s + static_cast<double>(table(sz(h), sz(Functor::entry(i, j))));
    };
    model.score_slope = [](double, auto, auto) { return 0.5; };
    return model;
  };
  o.for_heads([&](std::int64_t b, std::int64_t h) {  // the forward pass
    auto const x = o.head(b, h);
    reference::Matrix out(x.s.len_q, shape.dv);
    std::vector<double> lse(sz(x.s.len_q));
    auto const model = model_of(b, h);
    reference::attention_forward(
        model, x.q, x.k, x.v, x.bias, o.sink(h),
        [&](double s, std::int64_t i, std::int64_t j) { return model.score(s, i, j); }, out, lse);
    for (std::int64_t i = 0; i < x.s.len_q; ++i) {
      o.lse.set(lse[sz(i)], b, h, i);
      for (std::int64_t c = 0; c < shape.dv; ++c) o.out.set(out(i, c), b, h, i, c);
    }
  });
  o.out.upload();
  o.lse.upload();
  auto const run = [&](auto const&... extras) {
    run_attention_backward(o, Exec(), o.q.view(), o.k.view(), o.v.view(), o.out.view(),
                           o.lse.view(), o.dout.view(), o.dq.view(), o.dk.view(), o.dv.view(),
                           options, score(f), extras...);
  };
  BlockMaskShape const tiles{shape.seqlen_q, shape.seqlen_kv, 12, 20};
  auto const view = block_tiles<Space>(shape.batch, shape.heads_q, tiles);
  if (blocks)
    run(make_block_mask(Exec(), predicate, view.view(), tiles));
  else
    run();
  Kokkos::fence("attikos_test");
  auto const d_table = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), f.d_table);
  auto const d_factor = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), f.d_factor);

  using Sum = InexactSum<Acc>;
  std::vector<Sum> sums(heads * sz(Functor::entries));
  Sum factor;
  o.for_heads([&](std::int64_t b, std::int64_t h) {
    auto const x = o.head(b, h);
    auto const model = model_of(b, h);
    std::vector<double> lse;
    for (std::int64_t i = 0; i < x.s.len_q; ++i) lse.push_back(o.lse.value(b, h, i));
    auto const r = reference::attention_gradients(model, x.q, x.k, x.v, x.bias, o.sink(h),
                                                  o.rows(o.out, b, h, 0, x.s.len_q), lse, x.dout);
    for (std::int64_t i = 0; i < x.s.len_q; ++i) {
      if (std::isinf(lse[sz(i)])) continue;
      auto const delta = delta_bound<Acc>(r.delta[sz(i)], r.delta_magnitude[sz(i)], shape.dv);
      for (std::int64_t j = 0; j < x.s.len_kv; ++j) {
        auto const& e = r.pairs(i, j);
        if (!e.seen) continue;
        std::int64_t const entry = Functor::entry(i, j);
        // What the functor adds is rounded as a bias twice as large before it would be.
        PairBound<Acc> const bound(model, e, 2 * static_cast<double>(table(sz(h), sz(entry))), 0,
                                   lse[sz(i)], delta, shape.d, shape.dv, 0, o.rounded);
        // d_bias is the gradient of the score that goes into the functor: r/2.
        Approximate<Acc> const change = Approximate<Acc>{2, 0} * bound.d_bias;
        Approximate<Acc> const before{e.before,
                                      (o.rounded.growth(static_cast<double>(shape.d)) + 3) *
                                              precision<Acc>().roundoff * e.magnitude +
                                          static_cast<double>(shape.d) * precision<Acc>().smallest};
        sums[sz(h * Functor::entries + entry)].add(change);
        factor.add(change * before);
      }
    }
  });
  std::string const name = std::string("score_parameters/") + type_name<T>() + "/" + Exec::name();
  Comparison comparison(name, describe(p));
  for (std::int64_t h = 0; h < shape.heads_q; ++h)
    for (std::int64_t e = 0; e < Functor::entries; ++e) {
      Sum const& sum = sums[sz(h * Functor::entries + e)];
      comparison.add(static_cast<double>(d_table(sz(h), sz(e))), sum.value,
                     sum.template bound<Acc>(o.rounded), {h, e});
    }
  comparison.add(static_cast<double>(d_factor()), factor.value,
                 factor.template bound<Acc>(o.rounded), {0});
}

TYPED_TEST(ScoreParameters, AreAddedUpOnceForEachPair) {
  for (auto const& shape :
       {AttentionShape{2, 4, 2, 70, 70, 16, 24}, AttentionShape{1, 2, 1, 21, 300, 20, 20},
        AttentionShape{1, 2, 2, 150, 40, 8, 8}})
    for (bool blocks : {false, true})
      check_parameters<TypeParam>(shape, {.causal = blocks, .window_left = blocks ? -1 : 50},
                                  blocks);
}

}  // namespace
}  // namespace attikos::test
