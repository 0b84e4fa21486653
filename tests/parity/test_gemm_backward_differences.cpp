// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm_backward and mean_pool_backward in float64 against central differences of gemm and
// mean_pool.
#include "../support/backends.hpp"
#include "../support/finite_differences.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance.hpp"

namespace attikos::test {
namespace {

using Exec = Kokkos::DefaultExecutionSpace;

template <class TensorType>
void assign(TensorType& tensor, std::vector<double> const& values) {
  std::size_t n = 0;
  tensor.for_each([&](auto const& i) { tensor.at(i) = values[n++]; });
  tensor.upload();
}

// The magnitude bounds what is added up inside as well: sum |g| (sum |a||b| + |bias|), of which an
// activation makes no more; `terms` counts its roundings.
TEST(GemmBackwardGradient, AgreesWithDifferencesOfGemm) {
  constexpr std::int64_t m = 5, n = 4, k = 7;
  Tensor<double, 2, Exec> a({m, k}), b({k, n}), out({m, n}), dout({m, n}), pre({m, n}), da({m, k}),
      db({k, n});
  Tensor<double, 1, Exec> add({n}), dadd({n});
  auto const xa = random_values(1, m * k), xb = random_values(2, k * n), xadd = random_values(3, n),
             g = random_values(4, m * n);
  assign(dout, g);
  char const* const names[] = {"none", "relu", "gelu", "gelu_tanh", "silu"};
  for (auto activation : {Activation::none, Activation::relu, Activation::gelu,
                          Activation::gelu_tanh, Activation::silu}) {
    GemmOptions const options{.alpha = 1.5, .activation = activation, .scale = 0.5};
    auto const forward = [&](std::vector<double> const& va, std::vector<double> const& vb,
                             std::vector<double> const& vadd) {
      assign(a, va);
      assign(b, vb);
      assign(add, vadd);
      gemm(Exec(), a.view(), b.view(), out.view(), options, bias(add.view()),
           pre_activation(pre.view()));
      out.download();
      return dot(g, out.elements());
    };
    forward(xa, xb, xadd);
    gemm_backward(Exec(), a.view(), b.view(), dout.view(), da.view(), db.view(), options,
                  pre_activation(pre.view()), bias_gradient(dadd.view()));
    da.download();
    db.download();
    dadd.download();
    double magnitude = 0;
    for (double value : g) magnitude += std::abs(value) * (k + 1);
    double const terms = m * n + k + 2 * math_ulps + 16;
    std::string const name =
        std::string("gemm_backward ") + names[static_cast<int>(activation)] + " ";
    expect_gradient(name + "da", xa, da.elements(), terms, magnitude,
                    [&](auto const& x) { return forward(x, xb, xadd); });
    expect_gradient(name + "db", xb, db.elements(), terms, magnitude,
                    [&](auto const& x) { return forward(xa, x, xadd); });
    expect_gradient(name + "bias", xadd, dadd.elements(), terms, magnitude,
                    [&](auto const& x) { return forward(xa, xb, x); });
  }
}

TEST(MeanPoolGradient, AgreesWithDifferencesOfMeanPool) {
  constexpr std::int64_t batch = 2, seqlen = 5, hidden = 3;
  Tensor<double, 3, Exec> x({batch, seqlen, hidden}), dx({batch, seqlen, hidden});
  Tensor<double, 2, Exec> out({batch, hidden}), dout({batch, hidden});
  auto const values = random_values(5, batch * seqlen * hidden),
             g = random_values(6, batch * hidden);
  assign(dout, g);
  mean_pool_backward(Exec(), dout.view(), dx.view());
  dx.download();
  double magnitude = 0;
  for (double value : g) magnitude += std::abs(value);
  expect_gradient("mean_pool dx", values, dx.elements(), batch * hidden + seqlen + 2, magnitude,
                  [&](auto const& moved) {
                    assign(x, moved);
                    mean_pool(Exec(), x.view(), out.view());
                    out.download();
                    return dot(g, out.elements());
                  });
}

}  // namespace
}  // namespace attikos::test
