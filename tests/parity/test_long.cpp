// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums of 16384 terms: attention forward and backward, decode, gemm and the operations on rows
// against the oracle, on sampled rows where all of them would take minutes. On the default space
// alone: the other suites hold host spaces to the same bits, and these calls are long.
#include <attikos/reference/reduce_reference.hpp>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance_attention.hpp"
#include "../support/tolerance_attention_backward.hpp"
#include "../support/tolerance_decode.hpp"
#include "../support/tolerance_norms.hpp"

namespace attikos::test {
namespace {

using Exec = Kokkos::DefaultExecutionSpace;
constexpr std::int64_t length = 16384;
/// The ends, the edges of tiles and two in between.
constexpr std::array<std::int64_t, 8> sampled{0, 1, 63, 64, 5000, 8191, 12345, length - 1};

template <class C>
class Long : public testing::Test {};
TYPED_TEST_SUITE(Long, OneSpaceCases, CaseName);

std::string name_of_case(char const* operation, char const* type) {
  return std::string("long/") + operation + "/" + type + "/" + Exec::name();
}

/// One head with its gradients; q and k such that some keys count and most do not.
template <class T>
struct Head {
  static constexpr std::int64_t d = 16;
  std::int64_t queries;
  bool causal;
  double scale = 1 / std::sqrt(static_cast<double>(d));
  Tensor<T, 4, Exec> q, k, v, out, dout, dq, dk, dv;
  Tensor<Accumulator<T>, 3, Exec> lse;
  PairRounding rounded = {};     ///< by the kernel of the gradients
  bool rounded_weights = false;  ///< by that of forward()

  Head(std::int64_t n, bool is_causal)
      : queries(n),
        causal(is_causal),
        q({1, 1, n, d}),
        k({1, 1, length, d}),
        v({1, 1, length, d}),
        out({1, 1, n, d}),
        dout({1, 1, n, d}),
        dq({1, 1, n, d}),
        dk({1, 1, length, d}),
        dv({1, 1, length, d}),
        lse({1, 1, n}) {
    Random random(static_cast<std::uint64_t>(n));
    q.fill_uniform(random, -3, 3);
    k.fill_uniform(random, -3, 3);
    v.fill_uniform(random);
    dout.fill_uniform(random);
  }

  void forward(AttentionAlgorithm algorithm) {
    attention(Exec(), q.view(), k.view(), v.view(), out.view(), lse.view(),
              AttentionOptions{.causal = causal, .algorithm = algorithm});
    rounded_weights = rounds_weights<Exec>(
        explain(op::attention, Exec(), q.view(), k.view(), v.view(), out.view(), lse.view(),
                AttentionOptions{.causal = causal, .algorithm = algorithm}));
    out.download();
    lse.download();
  }

  void compare_forward(std::string const& name, std::int64_t i) const {
    Comparison values(name, "row " + std::to_string(i), stored_as<T>()),
        sums(name + "/lse", std::to_string(i));
    auto const row = reference::attention_row(
        reference::visible_keys(i, queries, length, causal, false), d, d, scale,
        [&](std::int64_t c) { return q.value(0, 0, i, c); },
        [&](std::int64_t j, std::int64_t c) { return k.value(0, 0, j, c); },
        [&](std::int64_t j, std::int64_t c) { return v.value(0, 0, j, c); });
    AttentionBound<T> const bound(row, d, rounded_weights);
    for (std::int64_t c = 0; c < d; ++c)
      values.add(out.value(0, 0, i, c), row.out[sz(c)],
                 bound.out(sz(c), [&](std::int64_t j) { return v.value(0, 0, j, c); }), {i, c});
    sums.add(lse.value(0, 0, i), row.lse, bound.lse(), {i});
  }

  static reference::Matrix rows(Tensor<T, 4, Exec> const& x, std::int64_t first, std::int64_t n) {
    reference::Matrix m(n, d);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t c = 0; c < d; ++c) m(i, c) = x.value(0, 0, first + i, c);
    return m;
  }

  /// The gradients that queries [i, i + m) and keys [j, j + n) have in common, from what the
  /// forward pass stored: `visit(query, key, pair, bound)` for each pair.
  template <class Visit>
  void pairs(std::int64_t i, std::int64_t m, std::int64_t j, std::int64_t n,
             Visit const& visit) const {
    reference::AttentionModel model;
    model.scale = scale;
    model.sees = [=, this](std::int64_t a, std::int64_t b) {
      return !causal || j + b <= i + a + length - queries;
    };
    std::vector<double> sums;
    for (std::int64_t a = 0; a < m; ++a) sums.push_back(lse.value(0, 0, i + a));
    auto const r = reference::attention_gradients(
        model, rows(q, i, m), rows(k, j, n), rows(v, j, n), reference::Matrix(m, n),
        -std::numeric_limits<double>::infinity(), rows(out, i, m), sums, rows(dout, i, m));
    for (std::int64_t a = 0; a < m; ++a) {
      auto const delta = delta_bound<Accumulator<T>>(r.delta[sz(a)], r.delta_magnitude[sz(a)], d);
      for (std::int64_t b = 0; b < n; ++b)
        if (r.pairs(a, b).seen)
          visit(i + a, j + b,
                PairBound<Accumulator<T>>(model, r.pairs(a, b), 0, 0, sums[sz(a)], delta, d, d, 0,
                                          rounded));
    }
  }
};

TYPED_TEST(Long, AttentionForward) {
  using T = typename TypeParam::T;
  for (auto algorithm :
       {AttentionAlgorithm::flash, AttentionAlgorithm::tiled, AttentionAlgorithm::naive}) {
    Head<T> few(65, false);  // tiled and naive store their scores
    few.forward(algorithm);
    for (std::int64_t i : {0, 31, 64})
      few.compare_forward(name_of_case("attention", type_name<T>()), i);
  }
  Head<T> all(length, true);
  all.forward(AttentionAlgorithm::flash);
  for (std::int64_t i : sampled) all.compare_forward(name_of_case("attention", type_name<T>()), i);
}

TYPED_TEST(Long, AttentionBackward) {
  using T = typename TypeParam::T;
  using Acc = Accumulator<T>;
  Head<T> x(length, true);
  x.forward(AttentionAlgorithm::flash);
  auto const run = [&](auto const&... arguments) {
    auto const call = explain(op::attention_backward, arguments...);
    if (call.kernel != "portable" || !call.instructions.empty()) x.rounded = PairRounding::to<T>();
    attention_backward(arguments...);
  };
  run(Exec(), x.q.view(), x.k.view(), x.v.view(), x.out.view(), x.lse.view(), x.dout.view(),
      x.dq.view(), x.dk.view(), x.dv.view(), AttentionOptions{.causal = true});
  x.dq.download();
  x.dk.download();
  x.dv.download();
  std::string const name = name_of_case("attention_backward", type_name<T>());
  for (std::int64_t row : sampled) {
    std::vector<InexactSum<Acc>> dq(sz(x.d)), dk(sz(x.d)), dv(sz(x.d));
    x.pairs(row, 1, 0, length, [&](std::int64_t, std::int64_t j, auto const& pair) {
      for (std::int64_t c = 0; c < x.d; ++c) dq[sz(c)].add(pair.d_dot, x.k.value(0, 0, j, c));
    });
    x.pairs(0, length, row, 1, [&](std::int64_t i, std::int64_t, auto const& pair) {
      for (std::int64_t c = 0; c < x.d; ++c) {
        dk[sz(c)].add(pair.d_dot, x.q.value(0, 0, i, c));
        dv[sz(c)].add(pair.p, x.dout.value(0, 0, i, c));
      }
    });
    auto const compare = [&](char const* what, auto const& got, auto const& want) {
      Comparison comparison(name + "/" + what, "row " + std::to_string(row), stored_as<T>());
      for (std::int64_t c = 0; c < x.d; ++c)
        comparison.add(got.value(0, 0, row, c), want[sz(c)].value,
                       want[sz(c)].template bound<T>(x.rounded), {row, c});
    };
    compare("dq", x.dq, dq);
    compare("dk", x.dk, dk);
    compare("dv", x.dv, dv);
  }
}

TYPED_TEST(Long, Decode) {
  using T = typename TypeParam::T;
  constexpr std::int64_t d = 16, heads = 4;
  Tensor<T, 4, Exec> q({1, heads, 1, d}), k({1, 2, length, d}), v({1, 2, length, d}),
      out({1, heads, 1, d});
  Tensor<Accumulator<T>, 3, Exec> lse({1, heads, 1});
  Random random(3);
  q.fill_uniform(random, -3, 3);
  k.fill_uniform(random, -3, 3);
  v.fill_uniform(random);
  std::string const name = name_of_case("decode", type_name<T>());
  for (std::int64_t splits : {0, 1, 7}) {
    decode(Exec(), q.view(), k.view(), v.view(), out.view(), lse.view(),
           DecodeOptions{.splits = splits});
    out.download();
    lse.download();
    Comparison values(name, "splits " + std::to_string(splits), stored_as<T>()),
        sums(name + "/lse", "splits " + std::to_string(splits));
    for (std::int64_t h = 0; h < heads; ++h) {
      auto const row = reference::attention_row(
          length, d, d, 1 / std::sqrt(static_cast<double>(d)),
          [&](std::int64_t c) { return q.value(0, h, 0, c); },
          [&](std::int64_t j, std::int64_t c) { return k.value(0, h / 2, j, c); },
          [&](std::int64_t j, std::int64_t c) { return v.value(0, h / 2, j, c); });
      DecodeBound<T> const bound(row, d, 128, !is_host_space<Exec>);
      for (std::int64_t c = 0; c < d; ++c)
        values.add(out.value(0, h, 0, c), row.out[sz(c)],
                   bound.out(sz(c), [&](std::int64_t j) { return v.value(0, h / 2, j, c); }),
                   {h, c});
      sums.add(lse.value(0, h, 0), row.lse, bound.lse(), {h});
    }
  }
}

TYPED_TEST(Long, Gemm) {
  using T = typename TypeParam::T;
  constexpr std::int64_t m = 37, n = 29;
  for (bool transposed : {false, true}) {
    Tensor<T, 2, Exec> a({transposed ? length : m, transposed ? m : length}),
        b({transposed ? n : length, transposed ? length : n}), c({m, n});
    Random random(4);
    a.fill_uniform(random);
    b.fill_uniform(random);
    gemm(Exec(), a.view(), b.view(), c.view(),
         GemmOptions{.trans_a = transposed, .trans_b = transposed});
    c.download();
    Comparison comparison(name_of_case("gemm", type_name<T>()), transposed ? "TT" : "NN",
                          stored_as<T>());
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        auto const want = reference::gemm_element(
            length, [&](std::int64_t l) { return transposed ? a.value(l, i) : a.value(i, l); },
            [&](std::int64_t l) { return transposed ? b.value(j, l) : b.value(l, j); }, {});
        comparison.add(c.value(i, j), want.value, gemm_bound<Accumulator<T>, T>(length, want, {}),
                       {i, j});
      }
  }
}

TEST(LongInt8, GemmIsExact) {
  Tensor<std::int8_t, 2, Exec> a({19, length}), b({length, 23});
  Tensor<std::int32_t, 2, Exec> c({19, 23});
  Random random(5);
  a.fill_integers(random, -128, 127);
  b.fill_integers(random, -128, 127);
  gemm(Exec(), a.view(), b.view(), c.view());
  c.download();
  for (std::int64_t i = 0; i < 19; ++i)
    for (std::int64_t j = 0; j < 23; ++j)
      ASSERT_EQ(c(i, j), reference::gemm_element_int8(
                             length, [&](std::int64_t l) { return a(i, l); },
                             [&](std::int64_t l) { return b(l, j); }, 0));
}

TYPED_TEST(Long, Rows) {
  using T = typename TypeParam::T;
  Tensor<T, 2, Exec> x({3, length}), g({3, length}), out({3, length});
  Tensor<T, 1, Exec> weight({length}), bias({length});
  Random random(6);
  x.fill_uniform(random, -1, 3);
  g.fill_uniform(random);
  weight.fill_uniform(random);
  bias.fill_uniform(random);
  std::vector<double> w, add;
  for (std::int64_t j = 0; j < length; ++j) {
    w.push_back(weight.value(j));
    add.push_back(bias.value(j));
  }
  auto const check = [&](char const* operation, auto const& want, auto const& bound) {
    out.download();
    Comparison comparison(name_of_case(operation, type_name<T>()), "rows", stored_as<T>());
    for (std::int64_t i = 0; i < 3; ++i) {
      std::vector<double> row, gradient;
      for (std::int64_t j = 0; j < length; ++j) {
        row.push_back(x.value(i, j));
        gradient.push_back(g.value(i, j));
      }
      auto const expected = want(row, gradient);
      for (std::int64_t j : sampled)
        comparison.add(out.value(i, j), expected[sz(j)], bound(row, gradient, expected, sz(j)),
                       {i, j});
    }
  };
  layer_norm(Exec(), x.view(), weight.view(), bias.view(), out.view());
  reference::LayerNormRow normed;
  check(
      "layer_norm",
      [&](auto const& row, auto const&) {
        normed = reference::layer_norm_row(row, w, add, LayerNormOptions{}.eps);
        return normed.out;
      },
      [&](auto const& row, auto const&, auto const&, std::size_t j) {
        return layer_norm_bound<T>(normed, j, row[j], w[j], add[j], LayerNormOptions{}.eps);
      });
  rms_norm(Exec(), x.view(), weight.view(), out.view());
  check(
      "rms_norm",
      [&](auto const& row, auto const&) {
        return reference::rms_norm_row(row, w, RmsNormOptions{}.eps);
      },
      [](auto const& row, auto const&, auto const& want, std::size_t j) {
        return scaled_row_bound<T>(row.size(), want[j]);
      });
  softmax(Exec(), x.view(), out.view());
  check(
      "softmax", [](auto const& row, auto const&) { return reference::softmax_row(row, 1); },
      [](auto const& row, auto const&, auto const& want, std::size_t j) {
        return softmax_bound<T>(row, 1, want[j]);
      });
  log_softmax(Exec(), x.view(), out.view());
  check(
      "log_softmax",
      [](auto const& row, auto const&) { return reference::log_softmax_row(row, 1); },
      [](auto const& row, auto const&, auto const& want, std::size_t j) {
        return log_softmax_bound<T>(row, 1, want[j]);
      });
  // x stands for the result of log_softmax, which it need not be.
  x.fill_uniform(random, -12, 0);
  log_softmax_backward(Exec(), x.view(), g.view(), out.view());
  check(
      "log_softmax_backward",
      [](auto const& row, auto const& gradient) {
        return reference::log_softmax_gradient_row(row, gradient, 1);
      },
      [](auto const& row, auto const& gradient, auto const& want, std::size_t j) {
        return log_softmax_gradient_bound<T>(row, gradient, 1, j, want[j]);
      });
}

}  // namespace
}  // namespace attikos::test
