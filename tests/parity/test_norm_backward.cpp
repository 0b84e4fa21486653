// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// rms_norm_backward, layer_norm_backward and l2_normalize_backward against the float64 oracle, and
// the oracle against finite differences.
#include <attikos/reference/reduce_reference.hpp>

#include "../support/finite_differences.hpp"
#include "../support/tolerance_norms.hpp"
#include "row_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class NormBackward : public testing::Test {};
TYPED_TEST_SUITE(NormBackward, FloatingCases, CaseName);

enum class Kind { rms, layer, l2 };

/// Operands of one call and their oracle. `alias` says what dx is: 0 apart, 1 x, 2 dout, 3 the
/// residual, which is given if `adds`.
template <class C>
struct Problem {
  using T = typename C::T;
  using Exec = typename C::Exec;
  RowCase p;
  double eps;
  bool adds;
  Tensor<T, 3, Exec> x, dout, dx, residual;
  Tensor<T, 1, Exec> weight, dweight, dbias;
  std::vector<double> added;  ///< what the residual holds

  Problem(RowCase const& row_case, double shift, double largest, double epsilon, int alias = 0,
          bool with_residual = false)
      : p(row_case),
        eps(epsilon),
        adds(with_residual),
        x({p.batch, p.rows, p.hidden}, p.x),
        dout({p.batch, p.rows, p.hidden}, p.out),
        dx({p.batch, p.rows, p.hidden}, p.out),
        residual({p.batch, p.rows, p.hidden}, alias == 3 ? p.out : p.x),
        weight({p.hidden}, vector_layout(p)),
        dweight({p.hidden}, Layout::strided),
        dbias({p.hidden}) {
    Random random(static_cast<std::uint64_t>(p.hidden + 11));
    x.fill_uniform(random, shift - largest, shift + largest);
    dout.fill_uniform(random);
    weight.fill_uniform(random);
    if (alias == 1) dx = x;
    if (alias == 2) dx = dout;
    if (adds) {
      residual.fill_uniform(random);
      residual.for_each([&](auto const& i) { added.push_back(residual.value(i[0], i[1], i[2])); });
    }
    if (alias == 3) dx = residual;
  }

  template <class... Extras>
  void run(Kind kind, Extras const&... extras) {
    auto const run_with = [&](auto const& in, auto const& g, auto const& to,
                              auto const&... extras) {
      if (kind == Kind::rms) {
        rms_norm_backward(Exec(), in, weight.const_view(), g, to, dweight.view(),
                          RmsNormOptions{.eps = eps}, extras...);
      } else if (kind == Kind::layer) {
        layer_norm_backward(Exec(), in, weight.const_view(), g, to, dweight.view(), dbias.view(),
                            LayerNormOptions{.eps = eps}, extras...);
      } else {
        l2_normalize_backward(Exec(), in, g, to, L2NormalizeOptions{.eps = eps});
      }
    };
    auto const call = [&](auto const& in, auto const& g, auto const& to, auto const& more) {
      if (adds)
        run_with(in, g, to, attikos::residual(more), extras...);
      else
        run_with(in, g, to, extras...);
    };
    if (p.flat) {
      call(x.const_front(), dout.const_front(), dx.front(), residual.const_front());
    } else {
      call(x.const_view(), dout.const_view(), dx.view(), residual.const_view());
    }
    dx.download();
    dweight.download();
    dbias.download();
    EXPECT_EQ(dx.writes_outside() + dweight.writes_outside(), 0u) << describe(p);
  }

  void check(Kind kind, char const* op) {
    auto const w = kind == Kind::l2 ? std::vector<double>(sz(p.hidden), 1.0) : values_of(weight);
    std::vector<double> sum(sz(p.hidden)), size(sz(p.hidden)), error(sz(p.hidden));
    std::vector<double> bias_sum(sz(p.hidden)), bias_size(sz(p.hidden));
    Comparison comparison(name_of<C>(op), describe(p), stored_as<T>());
    for (std::int64_t n = 0; n < p.batch; ++n) {
      for (std::int64_t i = 0; i < p.rows; ++i) {
        auto const in = row_of(x, n, i), g = row_of(dout, n, i);
        auto const each = [&](reference::NormGradientRow const& row, auto const& bound) {
          for (std::size_t c = 0; c < g.size(); ++c) {
            std::optional<double> more;
            if (adds) more = added[sz((n * p.rows + i) * p.hidden) + c];
            comparison.add(dx.value(n, i, c), row.dx[c] + more.value_or(0), bound.dx(c, more),
                           {n, i, static_cast<std::int64_t>(c)});
            sum[c] += g[c] * row.normalized[c];
            size[c] += std::abs(g[c] * row.normalized[c]);
            error[c] += bound.weight_term(c);
            bias_sum[c] += g[c];
            bias_size[c] += std::abs(g[c]);
          }
        };
        if (kind == Kind::layer) {
          auto const row = reference::layer_norm_gradient_row(in, w, g, eps);
          auto const forward = reference::layer_norm_row(in, w, w, eps);
          each(row, LayerNormGradientBound<T>(row, forward, w, g, eps));
        } else {
          auto const row = kind == Kind::rms ? reference::rms_norm_gradient_row(in, w, g, eps)
                                             : reference::l2_normalize_gradient_row(in, g, eps);
          std::vector<double> sizes = g;
          for (double& value : sizes) value = std::abs(value);
          double const per_mean = kind == Kind::rms ? 1 : static_cast<double>(p.hidden);
          each(row, ScaledGradientBound<T>(row, w, sizes, per_mean));
        }
      }
    }
    double const rows = static_cast<double>(p.batch * p.rows);
    for (std::int64_t c = 0; c < p.hidden; ++c) {
      auto const k = sz(c);
      if (kind != Kind::l2)
        comparison.add(dweight.value(c), sum[k], row_sum_bound<T>(rows, error[k], size[k], sum[k]),
                       {-1, c});
      if (kind == Kind::layer)
        comparison.add(dbias.value(c), bias_sum[k],
                       row_sum_bound<T>(rows, 0, bias_size[k], bias_sum[k]), {-2, c});
    }
  }
};

template <class C>
void check_backward(Kind kind, RowCase const& p, double shift, double largest, double eps,
                    int alias = 0) {
  Problem<C> problem(p, shift, largest, eps, alias);
  problem.run(kind);
  constexpr char const* names[] = {"rms_norm_backward", "layer_norm_backward",
                                   "l2_normalize_backward"};
  problem.check(kind, names[static_cast<int>(kind)]);
}

/// The cases of all row operations; those in place take dx for x and for dout in turn.
template <class C>
void check_row_cases(Kind kind, double eps) {
  int turn = 0;
  for_row_cases([&](RowCase const& p) {
    RowCase q = p;
    int const alias = p.in_place ? 1 + turn++ % 2 : 0;
    if (alias != 0) q.out = p.x;
    check_backward<C>(kind, q, 0, 1, eps, alias);
  });
}

TYPED_TEST(NormBackward, RmsNorm) { check_row_cases<TypeParam>(Kind::rms, 1e-6); }
TYPED_TEST(NormBackward, LayerNorm) { check_row_cases<TypeParam>(Kind::layer, 1e-5); }
TYPED_TEST(NormBackward, L2Normalize) { check_row_cases<TypeParam>(Kind::l2, 1e-12); }

// One operand alone whose elements lie apart.
TYPED_TEST(NormBackward, OneOperandInGaps) {
  using Vector = Tensor<typename TypeParam::T, 1, typename TypeParam::Exec>;
  for (int apart = 0; apart < 4; ++apart)
    for (Kind kind : {Kind::rms, Kind::layer}) {
      RowCase const p{2, 3, 37, apart == 0 ? Layout::strided : Layout::right, Layout::right};
      Problem<TypeParam> problem(p, 0, 1, 1e-5);
      problem.weight = Vector({p.hidden}, apart == 3 ? Layout::strided : Layout::right);
      Random random(3);
      problem.weight.fill_uniform(random);
      for (auto [which, tensor] : {std::pair{1, &problem.dout}, {2, &problem.dx}}) {
        if (which != apart) continue;
        *tensor = std::decay_t<decltype(*tensor)>({p.batch, p.rows, p.hidden}, Layout::strided);
        tensor->fill_uniform(random);
      }
      problem.run(kind);
      problem.check(kind, kind == Kind::rms ? "rms_norm_backward" : "layer_norm_backward");
    }
}

// A gradient that goes past the norm, wherever it lies.
TYPED_TEST(NormBackward, Residual) {
  int turn = 0;
  auto const check = [&](RowCase const& p) {
    for (Kind kind : {Kind::rms, Kind::layer}) {
      Problem<TypeParam> problem(p, 0, 1, 1e-5, turn++ % 2 == 0 ? 0 : 3, true);
      problem.run(kind);
      problem.check(kind, kind == Kind::rms ? "rms_norm_backward" : "layer_norm_backward");
    }
  };
  for_row_cases(check);
  for_long_gradient_cases<typename TypeParam::Exec>(check);
}

TYPED_TEST(NormBackward, LongRows) {
  for_long_gradient_cases<typename TypeParam::Exec>([](RowCase const& p) {
    check_backward<TypeParam>(Kind::rms, p, 0, 1, 1e-6);
    check_backward<TypeParam>(Kind::layer, p, 0, 1, 1e-5, p.x == Layout::right ? 1 : 0);
    check_backward<TypeParam>(Kind::l2, p, 0, 1, 1e-12, p.x == Layout::right ? 2 : 0);
  });
}

TYPED_TEST(NormBackward, TinyHugeAndShiftedRows) {
  for (std::int64_t hidden : {1, 33, 257}) {
    for (double largest : {0.0, 1e-3, 1e3}) {
      check_backward<TypeParam>(Kind::rms, {1, 3, hidden}, 0, largest, 1e-6);
    }
    check_backward<TypeParam>(Kind::layer, {1, 5, hidden}, 100, 1, 1e-5);
    check_backward<TypeParam>(Kind::layer, {1, 5, hidden}, -1000, 1, 1e-3);
  }
}

// Below eps l2_normalize divides by eps, and so does its gradient; with eps = 0 a row of zeros has
// none.
TYPED_TEST(NormBackward, L2NormalizeBelowEps) {
  check_backward<TypeParam>(Kind::l2, {1, 3, 33}, 0, 1e-3, 0.5);
  check_backward<TypeParam>(Kind::l2, {1, 3, 33}, 0, 0, 0.25);
  check_backward<TypeParam>(Kind::l2, {1, 3, 33}, 0, 0, 0);
}

// More rows than chunks, more chunks than one step of the tree adds, on a host and on a device.
TYPED_TEST(NormBackward, SumsOverManyRows) {
  for (std::int64_t rows : {15, 16, 17, 511, 513, 5003}) {
    check_backward<TypeParam>(Kind::rms, {1, rows, 3}, 0, 1, 1e-6);
    check_backward<TypeParam>(Kind::layer, {2, rows, 3}, 0, 1, 1e-5);
  }
  check_backward<TypeParam>(Kind::layer, {1, 601, 131}, 0, 1, 1e-5);
}

TYPED_TEST(NormBackward, GradientsOfWeightsWithoutRowsAreZero) {
  for (auto [batch, rows] : {std::pair{0, 3}, {2, 0}}) {
    Problem<TypeParam> problem({batch, rows, 37}, 0, 1, 1e-5);
    for (Kind kind : {Kind::rms, Kind::layer}) {
      problem.dweight.fill(3);
      problem.run(kind);
      for (std::int64_t c = 0; c < 37; ++c) EXPECT_EQ(problem.dweight.value(c), 0) << c;
    }
    for (std::int64_t c = 0; c < 37; ++c) EXPECT_EQ(problem.dbias.value(c), 0) << c;
  }
}

TYPED_TEST(NormBackward, NanStaysInItsRow) {
  for (Kind kind : {Kind::rms, Kind::layer, Kind::l2}) {
    Problem<TypeParam> problem({1, 5, 35}, 0, 1, 1e-5);
    problem.x.at({0, 2, 34}) = poison<typename TypeParam::T>();
    problem.x.upload();
    problem.run(kind);
    problem.dx.for_each([&](auto const& i) {
      EXPECT_EQ(std::isnan(to_double(problem.dx.at(i))), i[1] == 2) << i[1];
    });
  }
}

// What is handed in may hold NaN and need be no larger than the call asks for.
TYPED_TEST(NormBackward, WorkspaceOfTheCaller) {
  using Exec = typename TypeParam::Exec;
  for (std::int64_t rows : {1, 5003}) {
    Problem<TypeParam> problem({1, rows, 5}, 0, 1, 1e-5);
    auto const bytes_of = [&](Kind kind) {
      return kind == Kind::rms ? rms_norm_backward_workspace_size(
                                     problem.x.view(), problem.weight.view(), problem.dout.view())
                               : layer_norm_backward_workspace_size(
                                     problem.x.view(), problem.weight.view(), problem.dout.view());
    };
    for (Kind kind : {Kind::rms, Kind::layer}) {
      Tensor<double, 1, Exec> memory(
          {static_cast<std::int64_t>((bytes_of(kind) + sizeof(double) - 1) / sizeof(double))});
      problem.run(kind, workspace(memory.view()));
      problem.check(kind, kind == Kind::rms ? "rms_norm_backward" : "layer_norm_backward");
    }
  }
}

// Every argument may have a type of its own, and rank 1 is one row.
TYPED_TEST(NormBackward, RankOneAndMixedTypes) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, float>) {
    Tensor<T, 1, Exec> x({37});
    Tensor<float, 1, Exec> weight({37}), dout({37}), dbias({37});
    Tensor<T, 1, Exec> dx({37});
    Tensor<double, 1, Exec> dweight({37});
    Random random(9);
    x.fill_uniform(random);
    weight.fill_uniform(random);
    dout.fill_uniform(random);
    layer_norm_backward(Exec(), x.view(), weight.view(), dout.view(), dx.view(), dweight.view(),
                        dbias.view());
    dx.download();
    dweight.download();
    dbias.download();
    auto const w = values_of(weight), g = values_of(dout);
    auto const row = reference::layer_norm_gradient_row(values_of(x), w, g, 1e-5);
    auto const forward = reference::layer_norm_row(values_of(x), w, w, 1e-5);
    LayerNormGradientBound<T> const bound(row, forward, w, g, 1e-5);
    Comparison comparison(name_of<TypeParam>("layer_norm_backward/mixed"), "rank 1");
    for (std::int64_t c = 0; c < 37; ++c) {
      auto const k = sz(c);
      double const want = g[k] * row.normalized[k];
      comparison.add(dx.value(c), row.dx[k], bound.dx(k), {c});
      comparison.add(dweight.value(c), want,
                     row_sum_bound<T, double>(1, bound.weight_term(k), std::abs(want), want), {c});
      comparison.add(dbias.value(c), g[k], 0, {c});
    }
  }
}

#if !defined(KOKKOS_ENABLE_CUDA) && defined(KOKKOS_ENABLE_SERIAL) && defined(KOKKOS_ENABLE_OPENMP)
// One thread and many give the same bits.
TEST(NormBackwardDeterminism, ThreadsDoNotMatter) {
  for (Kind kind : {Kind::rms, Kind::layer}) {
    Problem<Case<Kokkos::Serial, float>> one({3, 701, 77}, 0, 1, 1e-5);
    Problem<Case<Kokkos::OpenMP, float>> many({3, 701, 77}, 0, 1, 1e-5);
    one.run(kind);
    many.run(kind);
    EXPECT_TRUE(same_bits(one.dx.elements(), many.dx.elements()));
    EXPECT_TRUE(same_bits(one.dweight.elements(), many.dweight.elements()));
    if (kind == Kind::layer) {
      EXPECT_TRUE(same_bits(one.dbias.elements(), many.dbias.elements()));
    }
  }
}
#endif

TEST(NormBackwardDefaultSpace, MayBeLeftOut) {
  Kokkos::View<float**> x("x", 3, 8), dx("dx", 3, 8);
  Kokkos::View<float*> weight("weight", 8), dweight("dweight", 8), dbias("dbias", 8);
  Kokkos::deep_copy(x, 2.0f);
  Kokkos::deep_copy(weight, 3.0f);
  auto const last = [](auto const& view) {
    Kokkos::fence("attikos_test");
    auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view);
    if constexpr (decltype(host)::rank() == 2) {
      return host(2, 7);
    } else {
      return host(7);
    }
  };
  rms_norm_backward(x, weight, x, dx, dweight, {.eps = 0});
  EXPECT_EQ(last(dweight), 6.0f);
  layer_norm_backward(x, weight, x, dx, dweight, dbias);
  EXPECT_EQ(last(dweight), 0.0f);
  EXPECT_EQ(last(dbias), 6.0f);
  l2_normalize_backward(x, x, dx);
  EXPECT_EQ(last(dx), 0.0f);
}

TEST(NormBackwardOracle, FiniteDifferences) {
  for (std::size_t n : {1u, 2u, 7u, 64u}) {
    auto const x = random_values(1, n), w = random_values(2, n), g = random_values(3, n);
    auto const times = [&](std::vector<double> const& h) {
      std::vector<double> result;
      for (std::size_t i = 0; i < n; ++i) result.push_back(g[i] * h[i]);
      return result;
    };
    auto const expect = [&](std::string const& name, auto const& forward,
                            reference::NormGradientRow const& row, bool has_weight) {
      double const terms = 4 * static_cast<double>(n);
      double const magnitude = dot_size(g, forward(x, w));
      expect_gradient(name + " dx", x, row.dx, terms, magnitude,
                      [&](auto const& at) { return dot(g, forward(at, w)); });
      if (has_weight)
        expect_gradient(name + " dweight", w, times(row.normalized), terms, magnitude,
                        [&](auto const& at) { return dot(g, forward(x, at)); });
    };
    expect(
        "rms_norm",
        [](auto const& at, auto const& weight) {
          return reference::rms_norm_row(at, weight, 1e-6);
        },
        reference::rms_norm_gradient_row(x, w, g, 1e-6), true);
    if (n > 2) {
      // With two features the variance may be as small as eps; differences then tell nothing.
      expect(
          "layer_norm",
          [](auto const& at, auto const& weight) {
            return reference::layer_norm_row(at, weight, weight, 1e-5).out;
          },
          reference::layer_norm_gradient_row(x, w, g, 1e-5), false);
      auto const row = reference::layer_norm_gradient_row(x, w, g, 1e-5);
      std::vector<double> const zero(n, 0.0);
      expect_gradient(
          "layer_norm dweight", w, times(row.normalized), 4 * double(n),
          dot_size(g, reference::layer_norm_row(x, w, zero, 1e-5).out),
          [&](auto const& at) { return dot(g, reference::layer_norm_row(x, at, zero, 1e-5).out); });
      expect_gradient(
          "layer_norm dbias", w, g, 4 * double(n),
          dot_size(g, reference::layer_norm_row(x, w, w, 1e-5).out) + dot_size(g, w),
          [&](auto const& at) { return dot(g, reference::layer_norm_row(x, w, at, 1e-5).out); });
    }
    auto const l2 = [](double eps) {
      return [eps](auto const& at, auto const&) { return reference::l2_normalize_row(at, eps); };
    };
    expect("l2_normalize", l2(1e-12), reference::l2_normalize_gradient_row(x, g, 1e-12), false);
    expect("l2_normalize below eps", l2(100), reference::l2_normalize_gradient_row(x, g, 100),
           false);
  }
}

}  // namespace
}  // namespace attikos::test
