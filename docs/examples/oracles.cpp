// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What reference/cxx-testing.md shows of oracles of
// products, attention and caches, part by part; a test
// runs it.
#include <attikos/attikos.hpp>
#include <attikos/reference/append_kv_reference.hpp>
#include <attikos/reference/attention_backward_reference.hpp>
#include <attikos/reference/gated_mlp_reference.hpp>
#include <attikos/reference/merge_states_reference.hpp>
#include <attikos/reference/quantize_reference.hpp>
#include <attikos/testing/testing.hpp>
#include <complex>
#include <optional>
#include <vector>

#include "common.hpp"

namespace reference = attikos::reference;
namespace testing = attikos::testing;

using View4 = Kokkos::View<float****>;
using View3 = Kokkos::View<float***>;
using Matrix = Kokkos::View<float**>;
using Vector = Kokkos::View<float*>;

void products(Space const& exec) {
  auto const a = random<Matrix>(20, 300),
             b = random<Matrix>(300, 30);
  auto const bias = random<Vector>(30);
  Matrix c("c", 20, 30);
  attikos::gemm(exec, a, b, c,
                {.alpha = 3,
                 .activation = attikos::Activation::silu},
                attikos::bias(bias));
  auto const ha = on_host(a), hb = on_host(b),
             hc = on_host(c);
  auto const hbias = on_host(bias);
  // [gemm]
  // c = silu(3·a·b + bias), computed in float: what each
  // element should be, and what it may be off by. The
  // bound goes by Σ|a||b| of that element.
  reference::GemmTerms terms{
      .alpha = 3, .activation = reference::silu};
  for (int i = 0; i < 20; ++i)
    for (int j = 0; j < 30; ++j) {
      terms.bias = hbias(j);
      reference::GemmElement const exact =
          reference::gemm_element(
              300, [&](auto l) { return ha(i, l); },
              [&](auto l) { return hb(l, j); }, terms);
      double const bound =
          testing::gemm_bound<float, float>(300, exact,
                                            terms);
      expect(std::abs(hc(i, j) - exact.value) <= bound,
             "an element is within its bound");
    }
  // [gemm]

  Kokkos::View<std::int8_t**> a8("a8", 4, 32),
      b8("b8", 32, 8);
  for (int i = 0; i < 128; ++i)
    a8.data()[i] = std::int8_t(i % 19 - 9);
  for (int i = 0; i < 256; ++i)
    b8.data()[i] = std::int8_t(i % 23 - 9);
  Kokkos::View<std::int32_t**> c8("c8", 4, 8);
  attikos::gemm(exec, a8, b8, c8);
  exec.fence();
  // [gemm-int8]
  // Integers are exact, modulo 2³² as the library's are.
  std::int32_t const integer =
      reference::gemm_element_int8(
          32, [&](auto l) { return a8(2, l); },
          [&](auto l) { return b8(l, 5); }, 0);
  expect(c8(2, 5) == integer, "an integer");
  // [gemm-int8]
}

void attention(Space const& exec) {
  constexpr int n = 40, d = 16;
  auto const q = random<View3>(1, n, d),
             k = random<View3>(1, n, d),
             v = random<View3>(1, n, d);
  View3 out("out", 1, n, d);
  Matrix lse("lse", 1, n);
  attikos::attention(exec, q, k, v, out, lse,
                     {.causal = true});
  auto const hq = on_host(q), hk = on_host(k),
             hv = on_host(v), ho = on_host(out);
  auto const hl = on_host(lse);
  // [attention]
  // Row by row: how many keys query i sees, what it
  // should give, and a bound that goes by its own scores.
  // Weights tell which keys a difference may come from.
  for (int i = 0; i < n; ++i) {
    std::int64_t const seen = reference::visible_keys(
        i, n, n, /*causal=*/true, /*top_left=*/false);
    reference::AttentionRow const exact =
        reference::attention_row(
            seen, d, d, 1 / std::sqrt(double(d)),
            [&](auto c) { return hq(0, i, c); },
            [&](auto j, auto c) { return hk(0, j, c); },
            [&](auto j, auto c) { return hv(0, j, c); });
    testing::AttentionBound<float> const bound(exact, d);
    expect(std::abs(hl(0, i) - exact.lse) <= bound.lse(),
           "a log-sum-exp");
    for (std::size_t c = 0; c < d; ++c)
      expect(
          std::abs(ho(0, i, c) - exact.out[c]) <=
              bound.out(
                  c, [&](auto j) { return hv(0, j, c); }),
          "an element of out");
  }
  // [attention]

  attikos::attention(
      exec, q, k, v, out, lse,
      {.softcap = 20, .attention_chunk = 8});
  auto const ho2 = on_host(out);
  // [attention-terms]
  // Softcap, masks and biases as functions of the key;
  // here for query 21, of chunks of 8 positions.
  reference::AttentionTerms terms;
  terms.scale = 1 / std::sqrt(double(d));
  terms.softcap = 20;
  terms.sees = [](std::int64_t j) {
    return reference::in_one_chunk(21, j, 8);
  };
  auto const exact = reference::attention_row(
      n, d, d, terms,
      [&](auto c) { return hq(0, 21, c); },
      [&](auto j, auto c) { return hk(0, j, c); },
      [&](auto j, auto c) { return hv(0, j, c); });
  // [attention-terms]
  expect_near(ho2(0, 21, 3), exact.out[3], 1e-5,
              "attention within a chunk");
}

void attention_gradients(Space const& exec) {
  constexpr int n = 12, d = 4;
  using View = Kokkos::View<double***>;
  auto const q = random<View>(1, n, d),
             k = random<View>(1, n, d),
             v = random<View>(1, n, d),
             dout = random<View>(1, n, d);
  View out("out", 1, n, d), dq("dq", 1, n, d),
      dk("dk", 1, n, d), dv("dv", 1, n, d);
  Kokkos::View<double**> lse("lse", 1, n);
  attikos::attention(exec, q, k, v, out, lse,
                     {.causal = true});
  attikos::attention_backward(exec, q, k, v, out, lse,
                              dout, dq, dk, dv,
                              {.causal = true});
  auto const matrix = [](auto const& x) {
    auto const host = on_host(x);
    reference::Matrix m(n, d);
    m.x.assign(host.data(), host.data() + host.span());
    return m;
  };
  // [attention-gradients]
  // One head: how its scores come about, forward, then
  // the gradients. No bias; a sink of −∞ is none.
  reference::AttentionModel model;
  model.scale = 1 / std::sqrt(double(d));
  model.sees = [](auto i, auto j) { return j <= i; };
  double const none = -INFINITY;
  reference::Matrix const no_bias(n, n);
  reference::Matrix result(n, d);
  Row result_lse(n);
  auto const as_it_is = [](auto s, auto, auto) {
    return s;
  };
  reference::attention_forward(
      model, matrix(q), matrix(k), matrix(v), no_bias,
      none, as_it_is, result, result_lse);
  reference::AttentionGradients const exact =
      reference::attention_gradients(
          model, matrix(q), matrix(k), matrix(v), no_bias,
          none, result, result_lse, matrix(dout));
  // What pair (7, 3) had to do with it.
  reference::AttentionPair const& pair =
      exact.pairs(7, 3);
  std::printf("weight %g, gradient of its score %g\n",
              pair.p, pair.d_bias);
  // [attention-gradients]
  expect(!exact.pairs(3, 7).seen,
         "a pair that is masked");
  expect_near(on_host(dq)(0, 7, 2), exact.dq(7, 2), 1e-12,
              "dq");
  expect_near(on_host(dk)(0, 3, 2), exact.dk(3, 2), 1e-12,
              "dk");

  // [complex-step]
  // A gradient to all digits without a formula: the
  // forward oracle in complex numbers, one of which has a
  // small imaginary part.
  using Number = std::complex<double>;
  auto const complex = [](reference::Matrix const& m) {
    reference::MatrixOf<Number> c(m.rows, m.cols);
    c.x.assign(m.x.begin(), m.x.end());
    return c;
  };
  auto moved = complex(matrix(k));
  moved(3, 2) += Number(0, 1e-100);
  auto moved_out = complex(result);
  std::vector<Number> moved_lse(n);
  reference::attention_forward(
      model, complex(matrix(q)), moved,
      complex(matrix(v)), complex(no_bias), Number(none),
      as_it_is, moved_out, moved_lse);
  double slope = 0;
  for (int i = 0; i < n; ++i)
    for (int c = 0; c < d; ++c)
      slope += matrix(dout)(i, c) *
               moved_out(i, c).imag() / 1e-100;
  // [complex-step]
  expect_near(slope, exact.dk(3, 2), 1e-12,
              "a complex step");
}

void gated(Space const& exec) {
  auto const x = random<Matrix>(3, 16),
             gate = random<Matrix>(8, 16),
             up = random<Matrix>(8, 16);
  Matrix out("out", 3, 8);
  auto const hx = on_host(x), hg = on_host(gate),
             hu = on_host(up);
  // [gated-mlp]
  // Feature 5 of token 2, and what its gradient g makes
  // of those of gate and up, for all activations: each is
  // a function here, and so is its slope.
  using attikos::Activation;
  struct Variant {
    Activation option;
    double (*value)(double);
    double (*slope)(double);
  };
  double const g = 0.75;
  for (auto const& act :
       {Variant{Activation::silu, reference::silu,
                reference::silu_slope},
        Variant{Activation::gelu, reference::gelu,
                reference::gelu_slope},
        Variant{Activation::gelu_tanh,
                reference::gelu_tanh,
                reference::gelu_tanh_slope}}) {
    attikos::gated_mlp(exec, x, gate, up, out,
                       {.activation = act.option});
    reference::GatedMlpElement const element =
        reference::gated_mlp_element(
            16, [&](auto l) { return hx(2, l); },
            [&](auto l) { return hg(5, l); },
            [&](auto l) { return hu(5, l); }, act.value);
    reference::GatedMlpSlopes const slopes =
        reference::gated_mlp_slopes(element, g, act.value,
                                    act.slope);
    expect_near(on_host(out)(2, 5), element.value, 1e-5,
                "a gated feature");
    double const step = 1e-5, at = element.gate;
    double const difference =
        act.value(at + step) - act.value(at - step);
    expect_near(slopes.dgate,
                g * element.up * difference / (2 * step),
                1e-7, "the gate's gradient");
  }
  // [gated-mlp]
}

void eight_bits(Space const& exec) {
  auto const x = random<Matrix>(1, 40);
  auto const one = list<Vector>({1.0f / 100});
  Kokkos::View<attikos::float8_e4m3**> f8("f8", 1, 40);
  Kokkos::View<attikos::float8_e5m2**> f8b("f8b", 1, 40);
  Kokkos::View<std::int8_t**> i8("i8", 1, 40);
  attikos::quantize_with_scale(exec, x, one, f8);
  attikos::quantize_with_scale(exec, x, one, f8b);
  attikos::quantize_with_scale(exec, x, one, i8);
  auto const h8 = on_host(f8);
  auto const h8b = on_host(f8b);
  auto const hi = on_host(i8);
  Row const in = row(x, 0);
  // [quantize]
  // Rounding by a search through all values of a format,
  // which has 3 mantissa bits (e4m3) or 2 (e5m2).
  for (int j = 0; j < 40; ++j) {
    float const scaled = float(in[j]) / (1.0f / 100);
    expect(float(h8(0, j)) ==
               reference::nearest_float8(scaled, 3),
           "a number in e4m3");
    expect(float(h8b(0, j)) ==
               reference::nearest_float8(scaled, 2),
           "a number in e5m2");
    expect(hi(0, j) == reference::nearest_int8(scaled),
           "an int8");
  }
  // The largest of e4m3, and what comes behind it: NaN.
  double const largest = reference::float8_value(0x7e, 3);
  double const nan = reference::float8_value(0x7f, 3);
  // [quantize]
  expect(largest == 448 && std::isnan(nan), "a limit");

  // [float8-sums]
  // What Hopper's tensor cores may drop of a sum of
  // float8 products, to be added to the bound of the sum:
  // less where sums start anew every 128 (`promoted`).
  auto const product = [](std::int64_t l) {
    return l % 2 == 0 ? 1.0 : -0.5;
  };
  double const promoted =
      testing::float8_tensor_core_error(1024, true,
                                        product);
  double const fast = testing::float8_tensor_core_error(
      1024, false, product);
  // [float8-sums]
  expect(promoted < fast, "shorter sums drop less");
}

void caches(Space const& exec) {
  constexpr int d = 8;
  auto const outs =
      random<Kokkos::View<float*****>>(3, 1, 1, 1, d);
  auto const lses = random<View4>(3, 1, 1, 1);
  View4 out("out", 1, 1, 1, d);
  attikos::merge_states(exec, outs, lses, out);
  auto const ho = on_host(outs);
  auto const hl = on_host(lses);
  // [merge-states]
  // One row from three parts, and what each part weighs.
  reference::MergedRow const merged =
      reference::merge_states_row(
          {hl(0, 0, 0, 0), hl(1, 0, 0, 0),
           hl(2, 0, 0, 0)},
          d, [&](auto part, auto c) {
            return ho(part, 0, 0, 0, c);
          });
  double const total = merged.weight[0] +
                       merged.weight[1] +
                       merged.weight[2];
  // [merge-states]
  expect_near(total, 1, 1e-12, "the weights' sum");
  expect_near(on_host(out)(0, 0, 0, 5), merged.out[5],
              1e-6, "a merged row");

  // [cache-slots]
  // Where a position lies: entry of the batch, or page,
  // and row. There is none past the end, or on a page
  // that is none.
  using Slot = std::optional<reference::CacheSlot>;
  Slot const plain = reference::plain_slot(
      /*b=*/2, /*position=*/37, /*seqlen_max=*/64);
  Slot const paged = reference::paged_slot(
      /*pages=*/{5, 0, 3}, 37, /*page_size=*/16,
      /*num_pages=*/8);
  Slot const beyond =
      reference::paged_slot({5, 0, 3}, 48, 16, 8);
  // [cache-slots]
  expect(plain->outer == 2 && plain->row == 37, "plain");
  expect(paged->outer == 3 && paged->row == 5, "paged");
  expect(!beyond, "there is no fourth page");
}

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Space const exec;
  products(exec);
  attention(exec);
  attention_gradients(exec);
  gated(exec);
  eight_bits(exec);
  caches(exec);
  std::printf("all parts ran\n");
}
