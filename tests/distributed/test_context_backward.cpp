// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gradients of context-parallel attention: strategies × masks × shards against float64.
#include <attikos/distributed/attention_backward.hpp>
#include <optional>

#include "distributed/context_checks.hpp"
#include "support/tolerance_attention_backward.hpp"

namespace attikos::test {
namespace {

/// The whole on every rank, with what a forward pass in float64 would have stored; this rank's rows
/// of it; and gradients.
template <class T>
struct GradientRun : ContextRun<T> {
  using Exec = Kokkos::DefaultExecutionSpace;
  using Base = ContextRun<T>;
  using Base::p;
  using typename Base::Acc;
  Tensor<T, 4, Exec> all_out, all_dout, dout, dq, dk, dv;
  Tensor<Acc, 3, Exec> all_lse;
  Tensor<Acc, 1, Exec> d_sinks;

  explicit GradientRun(ContextCase const& problem)
      : Base(problem),
        all_out({p.batch, p.heads_q, p.shards.q.total(), p.dv}),
        all_dout({p.batch, p.heads_q, p.shards.q.total(), p.dv}),
        dout(this->out.extents(), p.layout),
        dq(this->q.extents(), p.layout),
        dk(this->k.extents(), p.layout),
        dv(this->v.extents(), p.layout),
        all_lse({p.batch, p.heads_q, p.shards.q.total()}),
        d_sinks({p.heads_q}, Layout::strided) {
    Random random(5);
    all_dout.fill_uniform(random);
    for_each_head([&](std::int64_t b, std::int64_t h, std::int64_t s) {
      Head const x = head(b, h, s);
      reference::Matrix result(x.q.rows, p.dv);
      std::vector<double> sums(sz(x.q.rows));
      reference::Matrix const bias(x.q.rows, x.k.rows);
      reference::attention_forward(
          x.model, x.q, x.k, x.v, bias, sink(h), [](double v, auto, auto) { return v; }, result,
          sums);
      for (std::int64_t i = 0; i < p.shards.q.length(s); ++i) {
        std::int64_t const at = p.shards.q.offset(s) + i;
        bool const valid = i < x.q.rows;
        all_lse.set(valid ? sums[sz(i)] : poison<double>(), b, h, at);
        for (std::int64_t c = 0; c < p.dv; ++c)
          all_out.set(valid ? result(i, c) : poison<double>(), b, h, at, c);
      }
    });
    Base::take_shard(all_out, this->out, p.shards.q, p.lengths_q);
    Base::take_shard(all_dout, dout, p.shards.q, p.lengths_q);
    for_each_row(p.shards.q, ranks().rank(),
                 [&](std::int64_t row, std::int64_t, std::int64_t, std::int64_t at) {
                   for (std::int64_t b = 0; b < p.batch; ++b)
                     for (std::int64_t h = 0; h < p.heads_q; ++h)
                       this->lse(b, h, row) = all_lse(b, h, at);
                 });
    this->lse.upload();
  }

  double sink(std::int64_t h) const {
    return p.sinks ? this->sinks.value(h) : -std::numeric_limits<double>::infinity();
  }

  struct Head {
    reference::Matrix q, k, v, out, dout;
    std::vector<double> lse;
    reference::AttentionModel model;
  };
  /// Positions that count of one sequence and query head.
  Head head(std::int64_t b, std::int64_t h, std::int64_t s) const {
    std::int64_t const nq = p.lengths_q.empty() ? p.shards.q.length(s) : p.lengths_q[sz(b)];
    std::int64_t const nk = p.lengths_kv.empty() ? p.shards.kv.length(s) : p.lengths_kv[sz(b)];
    std::int64_t const first_q = p.shards.q.offset(s), first_k = p.shards.kv.offset(s);
    std::int64_t const g = h / (p.heads_q / p.heads_kv);
    auto const rows = [&](auto const& x, std::int64_t of, std::int64_t first, std::int64_t count) {
      reference::Matrix m(count, x.extent(3));
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t c = 0; c < m.cols; ++c) m(i, c) = x.value(b, of, first + i, c);
      return m;
    };
    Head x{rows(this->all_q, h, first_q, nq),
           rows(this->all_k, g, first_k, nk),
           rows(this->all_v, g, first_k, nk),
           rows(all_out, h, first_q, nq),
           rows(all_dout, h, first_q, nq),
           {},
           {}};
    for (std::int64_t i = 0; i < nq; ++i) x.lse.push_back(all_lse.value(b, h, first_q + i));
    auto const& o = p.options;
    std::int64_t const off = o.causal_alignment == CausalAlignment::top_left ? 0 : nk - nq;
    x.model.scale = o.softmax_scale != 0 ? o.softmax_scale : 1 / std::sqrt(double(p.d));
    x.model.softcap = o.softcap;
    x.model.sees = [=](std::int64_t i, std::int64_t j) {
      std::int64_t const ahead = j - i - off;
      return !(o.causal && ahead > 0) && !(o.window_left >= 0 && ahead < -o.window_left) &&
             !(o.window_right >= 0 && ahead > o.window_right);
    };
    return x;
  }
  template <class F>
  void for_each_head(F const& f) const {
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t s = 0; s < p.shards.q.sequences(); ++s)
        for (std::int64_t h = 0; h < p.heads_q; ++h) f(b, h, s);
  }

  void call() {
    for (auto* x : {&dq, &dk, &dv}) x->upload();
    d_sinks.upload();
    Exec const exec;
    auto const run = [&](auto const&... extras) {
      distributed::attention_backward(
          exec, ranks(), p.shards, this->q.const_view(), this->k.const_view(), this->v.const_view(),
          this->out.const_view(), this->lse.const_view(), dout.const_view(), dq.view(), dk.view(),
          dv.view(), p.options, extras...);
    };
    auto const some_lengths =
        attikos::lengths(this->lengths_q.const_view(), this->lengths_kv.const_view());
    auto const some_sinks = attikos::sinks(this->sinks.const_view());
    auto const their_gradient = attikos::d_sinks(d_sinks.view());
    if (p.sinks && !p.lengths_kv.empty())
      run(some_sinks, their_gradient, some_lengths);
    else if (p.sinks)
      run(their_gradient, some_sinks);
    else if (!p.lengths_kv.empty())
      run(some_lengths);
    else
      run();
    for (auto* x : {&dq, &dk, &dv}) x->download();
    d_sinks.download();
  }

  /// Bounds are those of attention_backward(); every rank and piece adds a term to the sums.
  /// Devices multiply 16-bit tensors in fragments, which round weights and gradients of scores, and
  /// round the gradients of each product before these are added.
  void compare() {
    using Sum = InexactSum<Acc>;
    bool constexpr in_fragments = !is_host_space<Exec> && sizeof(T) == 2;
    PairRounding const rounded = in_fragments ? PairRounding::to<T>() : PairRounding{};
    auto const grid = [](auto const& x) {
      return std::vector<Sum>(sz(x.extent(0) * x.extent(1) * x.extent(2) * x.extent(3)));
    };
    auto const at = [](auto const& x, std::int64_t b, std::int64_t h, std::int64_t i,
                       std::int64_t c) {
      return sz(((b * x.extent(1) + h) * x.extent(2) + i) * x.extent(3) + c);
    };
    std::vector<Sum> want_q = grid(this->all_q), want_k = grid(this->all_k),
                     want_v = grid(this->all_v);
    std::vector<Sum> want_sinks(sz(p.heads_q));
    for_each_head([&](std::int64_t b, std::int64_t h, std::int64_t s) {
      Head const x = head(b, h, s);
      std::int64_t const g = h / (p.heads_q / p.heads_kv);
      std::int64_t const first_q = p.shards.q.offset(s), first_k = p.shards.kv.offset(s);
      reference::Matrix const bias(x.q.rows, x.k.rows);
      auto const r = reference::attention_gradients(x.model, x.q, x.k, x.v, bias, sink(h), x.out,
                                                    x.lse, x.dout);
      for (std::int64_t i = 0; i < x.q.rows; ++i)
        if (p.sinks && !std::isinf(x.lse[sz(i)]))
          want_sinks[sz(h)].add(Approximate<Acc>{-1, 0} * sink_bound<Acc>(sink(h), x.lse[sz(i)]) *
                                delta_bound<Acc>(r.delta[sz(i)], r.delta_magnitude[sz(i)], p.dv));
      for (std::int64_t i = 0; i < x.q.rows; ++i)
        for (std::int64_t j = 0; j < x.k.rows; ++j) {
          auto const& e = r.pairs(i, j);
          if (!e.seen) continue;
          PairBound<Acc> const bound(
              x.model, e, 0, 0, x.lse[sz(i)],
              delta_bound<Acc>(r.delta[sz(i)], r.delta_magnitude[sz(i)], p.dv), p.d, p.dv, 0,
              rounded);
          for (std::int64_t c = 0; c < p.d; ++c) {
            want_q[at(this->all_q, b, h, first_q + i, c)].add(bound.d_dot, x.k(j, c));
            want_k[at(this->all_k, b, g, first_k + j, c)].add(bound.d_dot, x.q(i, c));
          }
          for (std::int64_t c = 0; c < p.dv; ++c)
            want_v[at(this->all_v, b, g, first_k + j, c)].add(bound.p, x.dout(i, c));
        }
    });
    std::string const name = std::string("distributed/backward/") + type_name<T>();
    auto const check = [&](char const* what, auto const& got, auto const& all, Shards const& shards,
                           std::vector<Sum>& want) {
      Comparison comparison(name + what, describe(p));
      for_each_row(
          shards, ranks().rank(),
          [&](std::int64_t row, std::int64_t, std::int64_t, std::int64_t place) {
            for (std::int64_t b = 0; b < p.batch; ++b)
              for (std::int64_t h = 0; h < got.extent(1); ++h)
                for (std::int64_t c = 0; c < got.extent(3); ++c) {
                  Sum sum = want[at(all, b, h, place, c)];
                  if (sum.terms > 0) sum.terms += 2 * this->joins() + 2;
                  double const of_products = rounded.roundoff * (sum.magnitude + sum.inherited);
                  comparison.add(got.value(b, h, row, c), sum.value,
                                 sum.template bound<T>(rounded) + of_products, {b, h, place, c});
                }
          });
      EXPECT_EQ(got.writes_outside(), 0u) << describe(p);
    };
    check("/dq", dq, this->all_q, p.shards.q, want_q);
    check("/dk", dk, this->all_k, p.shards.kv, want_k);
    check("/dv", dv, this->all_v, p.shards.kv, want_v);
    if (!p.sinks) return;
    Comparison comparison(name + "/dsinks", describe(p));
    for (std::int64_t h = 0; h < p.heads_q; ++h) {
      Sum sum = want_sinks[sz(h)];
      sum.terms += ranks().size();
      comparison.add(d_sinks.value(h), sum.value, sum.template bound<Acc>(), {h});
    }
    EXPECT_EQ(d_sinks.writes_outside(), 0u) << describe(p);
  }
};

template <class T>
void check_gradients(ContextCase p) {
  for (Strategy strategy : all_strategies()) {
    p.options.strategy = strategy;
    GradientRun<T> run(p);
    run.call();
    run.compare();
  }
}

Shards zigzag(std::int64_t length) { return Shards::zigzag(length, ranks().size()); }

TEST(ContextBackward, OfAllKeysAndOfCausalOnes) {
  for (bool causal : {false, true})
    for (auto const& shards : {zigzag(40), uneven(37)})
      check_gradients<float>({2, 4, 2, 8, 12, shards, {.causal = causal}});
  check_gradients<float>({1, 4, 4, 8, 8, {zigzag(23), zigzag(40)}, {.causal = true}});
}

TEST(ContextBackward, KnowsOptions) {
  check_gradients<float>({1,
                          4,
                          2,
                          8,
                          8,
                          zigzag(40),
                          {.window_left = 6, .window_right = 2, .softcap = 2},
                          {},
                          {},
                          true,
                          Layout::permuted});
  check_gradients<float>({3, 4, 2, 8, 8, zigzag(32), {.causal = true}, {20, 32, 0}, {32, 30, 7}});
  check_gradients<float>(
      {3, 4, 2, 8, 8, uneven(32), {.causal = true}, {20, 32, 0}, {32, 30, 7}, true});
}

TEST(ContextBackward, TakesPackedSequencesAndUnevenHeads) {
  std::vector<std::int64_t> const q{0, 3, 3, 20, 21, 40}, kv{0, 9, 20, 27, 27, 40};
  ContextShards const shards(Shards::packed(q, ranks().size()), Shards::packed(kv, ranks().size()));
  check_gradients<float>({1, 4, 2, 8, 8, shards, {.causal = true}, {}, {}, true});
  check_gradients<float>(
      {1, 4, 2, 8, 8, Shards::balanced(q, ranks().size(), true), {.causal = true}});
  check_gradients<float>({1, 6, 3, 8, 8, zigzag(24), {.causal = true}});
  check_gradients<float>({1, 2, 1, 8, 8, uneven(30)});
}

TEST(ContextBackward, OtherTypes) {
  check_gradients<bfloat16>({1, 4, 2, 8, 8, zigzag(40), {.causal = true}, {}, {}, true});
  check_gradients<double>({1, 4, 2, 8, 8, zigzag(40), {.causal = true}, {}, {}, true});
}

TEST(ContextBackward, RepeatsItsBits) {
  for (Strategy strategy : all_strategies()) {
    GradientRun<float> run({1, 4, 2, 8, 8, zigzag(40), {.causal = true, .strategy = strategy}});
    run.call();
    auto const dq = run.dq.elements(), dk = run.dk.elements(), dv = run.dv.elements();
    run.call();
    EXPECT_TRUE(same_bits(run.dq.elements(), dq) && same_bits(run.dk.elements(), dk) &&
                same_bits(run.dv.elements(), dv));
  }
}

// A rank whose products fail still passes on what others wait for, and all of them throw; with the
// next call where this one returned before they could know.
TEST(ContextBackward, AllThrowWhereOneFailsInTheMiddle) {
  int const last = ranks().size() - 1;
  bool const asynchronous = ranks().transport().asynchronous();
  for (Strategy strategy : all_strategies()) {
    ContextCase p{1, 8, 8, 8, 8, zigzag(40), {.causal = true, .strategy = strategy}};
    GradientRun<float> run(p);
    {
      std::optional<NoWorkspace> none;
      if (ranks().rank() == last) none.emplace();
      if (asynchronous && ranks().rank() != last) {
        run.call();
      } else {
        EXPECT_THROW(run.call(), Error) << describe(p);
      }
    }
    if (asynchronous) {
      EXPECT_THROW(run.call(), Error) << describe(p);
    }
    run.call();
    run.compare();
  }
}

TEST(ContextBackward, SaysWhatItDoesNotDo) {
  GradientRun<float> run({1,
                          4,
                          2,
                          8,
                          8,
                          Shards::zigzag(64, ranks().size(), 4),
                          {.determinism = distributed::Determinism::rank_invariant, .block = 4}});
  EXPECT_THROW(run.call(), UnsupportedError);
}

}  // namespace
}  // namespace attikos::test
