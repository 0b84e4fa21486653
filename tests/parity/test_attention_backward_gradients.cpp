// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention_backward: the oracle against complex steps, gradients against differences of
// attention(), and the same bits for any number of threads.
#include <complex>
#include <cstdio>
#include <filesystem>

#include "attention_backward_checks.hpp"

namespace attikos::test {
namespace {

using Host = Kokkos::DefaultHostExecutionSpace;
using Default = Kokkos::DefaultExecutionSpace;

/// One problem for each way in which a score may depend on things, and two with everything.
std::vector<BackwardCase> gradient_cases() {
  BackwardCase const plain{.shape = {1, 4, 2, 5, 6, 4, 3}, .call = BackwardCall::functors};
  std::vector<BackwardCase> list(13, plain);
  list[1].options.causal = true;
  list[2].options = {.causal = true, .causal_alignment = CausalAlignment::top_left};
  list[3].options = {.window_left = 1, .window_right = 2};
  list[4].options = {.softmax_scale = 1.5, .softcap = 1.25};
  list[5].bias = true;
  list[6].mask = true;
  list[7].alibi = true;
  list[8].sinks = true;
  list[9].score = true;
  list[10].weight = true;
  for (std::size_t n : {11u, 12u}) {
    auto& all = list[n];
    all.shape = {2, 4, 2, 7, 9, 4, 3};
    all.options = {.causal = true, .window_left = 4, .softcap = 2};
    all.bias = all.mask = all.alibi = all.sinks = all.score = all.weight = true;
    all.bias_broadcast = n == 12 ? 5 : 0;
    all.lengths_q = {7, 5};
    all.lengths_kv = {6, 9};
  }
  list[12].call = BackwardCall::packed;
  list[12].shape.seqlen_q = 16;
  list[12].shape.seqlen_kv = 17;
  list[12].lengths_q = list[12].lengths_kv = {};
  list[12].cu_q = {1, 8, 14};
  list[12].cu_kv = {0, 9, 16};
  return list;
}

// d/dx f(x) = Im f(x + ih)/h up to h²: with h = 1e-100 there is nothing to cancel or cut off.
// W. Squire, G. Trapp, SIAM Rev. 40(1), 1998.
TEST(AttentionBackwardOracle, AgreesWithComplexSteps) {
  using Complex = std::complex<double>;
  using ComplexMatrix = reference::MatrixOf<Complex>;
  constexpr double h = 1e-100;
  for (auto const& p : gradient_cases()) {
    BackwardOperands<Host, double> o(p);
    Random random(11);
    o.fill(random);
    o.for_heads([&](std::int64_t b, std::int64_t head) {
      auto const x = o.head(b, head);
      auto const model = o.model(b, head);
      auto const promote = [](reference::Matrix const& m) {
        ComplexMatrix result(m.rows, m.cols);
        for (std::size_t n = 0; n < m.x.size(); ++n) result.x[n] = m.x[n];
        return result;
      };
      ComplexMatrix q = promote(x.q), k = promote(x.k), v = promote(x.v), bias = promote(x.bias),
                    out(x.q.rows, x.v.cols);
      Complex sink = o.sink(head);
      std::vector<Complex> lse(sz(x.q.rows));
      auto const forward = [&] {
        reference::attention_forward(
            model, q, k, v, bias, sink,
            [&](Complex s, std::int64_t i, std::int64_t j) -> Complex {
              if (!p.score) return s;
              if (std::isinf(BendScore{true}(0.0, b, head, i, j)))
                return -std::numeric_limits<double>::infinity();
              return s * BendScore::factor<double>(b, head, i, j) + 0.0625 * s * s;
            },
            out, lse);
      };
      auto const slope = [&](Complex& parameter) {
        parameter += Complex(0, h);
        forward();
        parameter -= Complex(0, h);
        double sum = 0;
        for (std::size_t n = 0; n < out.x.size(); ++n) sum += x.dout.x[n] * out.x[n].imag() / h;
        return sum;
      };
      forward();
      reference::Matrix real_out(out.rows, out.cols);
      std::vector<double> real_lse;
      for (std::size_t n = 0; n < out.x.size(); ++n) real_out.x[n] = out.x[n].real();
      for (auto const& sum : lse) real_lse.push_back(sum.real());
      auto const r = reference::attention_gradients(model, x.q, x.k, x.v, x.bias, o.sink(head),
                                                    real_out, real_lse, x.dout);
      // The oracle's own errors are those of a kernel that computes in double.
      reference::MatrixOf<InexactSum<double>> dq(q.rows, q.cols), dk(k.rows, k.cols),
          dv(v.rows, v.cols), db(bias.rows, bias.cols);
      InexactSum<double> ds;
      for (std::int64_t i = 0; i < q.rows; ++i) {
        double const row_lse = real_lse[sz(i)];
        if (std::isinf(row_lse)) continue;
        auto const delta = delta_bound<double>(r.delta[sz(i)], r.delta_magnitude[sz(i)], v.cols);
        ds.add(Approximate<double>{-1, 0} * sink_bound<double>(o.sink(head), row_lse) * delta);
        for (std::int64_t j = 0; j < k.rows; ++j) {
          auto const& e = r.pairs(i, j);
          if (!e.seen) continue;
          PairBound<double> const bound(model, e, x.bias(i, j), model.alibi(i, j), row_lse, delta,
                                        q.cols, v.cols, BendScore::curvature);
          for (std::int64_t c = 0; c < q.cols; ++c) {
            dq(i, c).add(bound.d_dot, x.k(j, c));
            dk(j, c).add(bound.d_dot, x.q(i, c));
          }
          for (std::int64_t c = 0; c < v.cols; ++c) dv(j, c).add(bound.p, x.dout(i, c));
          db(i, j).add(bound.d_bias);
        }
      }
      Comparison comparison("attention_backward/oracle, complex step", describe(p));
      auto const compare = [&](ComplexMatrix& parameter, auto const& want) {
        for (std::int64_t i = 0; i < parameter.rows; ++i)
          for (std::int64_t c = 0; c < parameter.cols; ++c)
            comparison.add(slope(parameter(i, c)), want(i, c).value,
                           want(i, c).template bound<double>(), {b, head, i, c});
      };
      compare(q, dq);
      compare(k, dk);
      compare(v, dv);
      compare(bias, db);
      if (p.sinks) comparison.add(slope(sink), ds.value, ds.bound<double>(), {b, head});
      EXPECT_NEAR(r.d_sink, ds.value, ds.bound<double>());
      auto const same = [&](reference::Matrix const& got, auto const& want) {
        for (std::int64_t i = 0; i < got.rows; ++i)
          for (std::int64_t c = 0; c < got.cols; ++c)
            EXPECT_NEAR(got(i, c), want(i, c).value, want(i, c).template bound<double>());
      };
      same(r.dq, dq);
      same(r.dk, dk);
      same(r.dv, dv);
    });
  }
}

/// attention() with the tensors of `o`, as the case says.
void call_forward(BackwardOperands<Default, double>& o) {
  auto const& p = o.p;
  auto const run = [&](auto const& q, auto const& k, auto const& v, auto const& out,
                       auto const& lse, auto const& sequences) {
    attention(Default(), q, k, v, out, lse, p.options, sequences, bias(o.bias.const_view()),
              mask(o.mask.const_view()), alibi(o.slopes.const_view()), sinks(o.sinks.const_view()),
              score(BendScore{p.score}), weight(CutoffWeight{p.weight}));
  };
  if (p.call == BackwardCall::packed)
    run(o.q.const_front(), o.k.const_front(), o.v.const_front(), o.out.front(), o.lse.front(),
        cu_seqlens(o.cu_q.const_view(), o.cu_kv.const_view()));
  else
    run(o.q.const_view(), o.k.const_view(), o.v.const_view(), o.out.view(), o.lse.view(),
        lengths(o.lengths_q.const_view(), o.lengths_kv.const_view()));
  o.out.download();
  o.lse.download();
}

// Along a random direction, L = sum dout·attention(…) changes as the gradients say. A central
// difference with step h has an error of h² L'''/6 and more: that of half the step is a third of
// the two differences' distance, up to h⁴; the bound leaves a factor of three. The values of L
// are rounded, with an error of (growth(n) + 64) u sum|dout| largest|v| here.
TEST(AttentionBackwardGradient, AgreesWithDifferencesOfAttention) {
  for (auto const& p : gradient_cases()) {
    BackwardOperands<Default, double> o(p);
    Random random(12);
    o.fill(random);
    call_forward(o);
    call_attention_backward(Default(), o);
    o.download();
    compare_attention_backward(o);

    auto const start = o;
    auto direction = o;
    double derivative = 0;
    auto const aim = [&](auto& x, auto& gradient) {
      x.for_each([&](auto const& i) {
        double const step = random.uniform(-1, 1);
        double const slope = to_double(gradient.at(i));
        x.at(i) = step;
        derivative += slope * step;
        EXPECT_TRUE(std::isfinite(slope)) << describe(p);
      });
    };
    aim(direction.q, o.dq);
    aim(direction.k, o.dk);
    aim(direction.v, o.dv);
    if (p.bias) aim(direction.bias, o.d_bias);
    if (p.sinks) aim(direction.sinks, o.d_sinks);
    double rounding_error = 0;
    auto const loss = [&](double t) {
      o = start;
      auto const move = [&](auto& x, auto& step) {
        x.for_each([&](auto const& i) { x.at(i) += t * step.at(i); });
        x.upload();
      };
      move(o.q, direction.q);
      move(o.k, direction.k);
      move(o.v, direction.v);
      if (p.bias) move(o.bias, direction.bias);
      if (p.sinks) move(o.sinks, direction.sinks);
      call_forward(o);
      double sum = 0, magnitude = 0;
      o.out.for_each([&](auto const& i) {
        double const d = to_double(o.dout.at(i));
        if (std::isnan(d)) return;
        sum += d * o.out.at(i);
        magnitude += std::abs(d);
      });
      rounding_error =
          (growth(static_cast<double>(o.out.elements().size())) + 64) * 0x1p-53 * magnitude * 1.1;
      return sum;
    };
    double const h = 1e-4;
    double const wide = (loss(h) - loss(-h)) / (2 * h);
    double const narrow = (loss(h / 2) - loss(-h / 2)) / h;
    Comparison comparison("attention_backward/central difference", describe(p));
    comparison.add(narrow, derivative, std::abs(wide - narrow) + 2 * rounding_error / h, {});
  }
}

std::uint64_t checksum(BackwardOperands<Host, float>& o) {
  call_attention_backward(Host(), o);
  o.download();
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  o.for_gradients([&](auto& x) {
    for (float value : x.elements()) {
      std::uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      hash = (hash ^ bits) * 1099511628211u;
    }
  });
  return hash;
}

// Also what the child processes of the test below run.
TEST(AttentionBackwardThreads, PrintChecksums) {
  std::printf("concurrency %d\n", Host().concurrency());
  auto const cases = gradient_cases();
  for (std::size_t n : {0u, 1u, 11u, 12u}) {
    for (unsigned broadcast : {3u, 12u}) {
      BackwardCase p = cases[n];
      p.bias = true;
      p.bias_broadcast = broadcast;
      if (p.call != BackwardCall::packed) {  // several tiles of either kind
        p.shape.seqlen_q = 203;
        p.shape.seqlen_kv = 270;
        p.lengths_q.assign(p.lengths_q.size(), 201);
        p.lengths_kv.assign(p.lengths_kv.size(), 260);
      }
      BackwardOperands<Host, float> o(p);
      Random random(15);
      o.fill(random);
      o.lse.fill(1);
      o.out.fill_uniform(random);
      auto const first = checksum(o);
      std::printf("checksum %016llx\n", static_cast<unsigned long long>(first));
      EXPECT_EQ(first, checksum(o)) << "a second run gives other bits";
    }
  }
}

std::string run_with_threads(int threads) {
  std::string const self = std::filesystem::read_symlink("/proc/self/exe").string();
  // The one case has to run in whatever share of the suite this is.
  std::string const command = "unset GTEST_TOTAL_SHARDS GTEST_SHARD_INDEX; '" + self +
                              "' --gtest_filter=AttentionBackwardThreads.PrintChecksums"
                              " --gtest_output= --kokkos-num-threads=" +
                              std::to_string(threads) + " 2>/dev/null";
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string result;
  char line[256];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    std::string const text = line;
    if (text.rfind("checksum", 0) == 0) result += text;
    if (text.rfind("concurrency", 0) == 0 && !std::is_same_v<Host, Kokkos::Serial>) {
      EXPECT_EQ(text, "concurrency " + std::to_string(threads) + "\n");
    }
  }
  EXPECT_EQ(pclose(pipe), 0) << command;
  return result;
}

TEST(AttentionBackwardThreads, DoNotChangeTheBits) {
  std::string const one = run_with_threads(1);
  ASSERT_FALSE(one.empty());
  for (int threads : {2, 3, 5}) EXPECT_EQ(run_with_threads(threads), one) << threads << " threads";
}

}  // namespace
}  // namespace attikos::test
