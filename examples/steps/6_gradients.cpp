// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Step 6: gradients of a normalized row, a product and attention, checked by a difference.
#include <attikos/attikos.hpp>
#include <cmath>
#include <cstdio>

using Matrix = Kokkos::View<double**>;
using Tensor = Kokkos::View<double****>;
constexpr int tokens = 24, hidden = 32;

/// Seen as one head of attention.
Tensor head(Matrix const& x) { return Tensor(x.data(), 1, 1, tokens, hidden); }

struct Layer {
  Kokkos::DefaultExecutionSpace exec;
  Kokkos::View<double*> scale{"scale", hidden};
  Matrix weight{"weight", hidden, hidden}, normed{"normed", tokens, hidden},
      projected{"projected", tokens, hidden}, out{"out", tokens, hidden};
  Kokkos::View<double***> lse{"lse", 1, 1, tokens};

  /// The sum of what attention over the projected rows gives.
  double forward(Matrix const& x) const {
    attikos::rms_norm(exec, x, scale, normed);
    attikos::gemm(exec, normed, weight, projected, {.trans_b = true});
    Tensor const p = head(projected);
    attikos::attention(exec, p, p, p, head(out), lse, {.causal = true});
    double sum = 0;
    Matrix const result = out;
    Kokkos::parallel_reduce(
        "sum", Kokkos::MDRangePolicy(exec, {0, 0}, {tokens, hidden}),
        KOKKOS_LAMBDA(int i, int c, double& part) { part += result(i, c); }, sum);
    return sum;
  }

  /// d forward/dx, after forward(x).
  void backward(Matrix const& x, Matrix const& dx) const {
    Matrix dout("dout", tokens, hidden), dq("dq", tokens, hidden), dk("dk", tokens, hidden),
        dv("dv", tokens, hidden), d_normed("d_normed", tokens, hidden);
    Kokkos::View<double*> d_scale("d_scale", hidden);
    Kokkos::deep_copy(exec, dout, 1.0);
    Tensor const p = head(projected);
    attikos::attention_backward(exec, p, p, p, head(out), lse, head(dout), head(dq), head(dk),
                                head(dv), {.causal = true});
    Kokkos::parallel_for(
        "all three are one", Kokkos::MDRangePolicy(exec, {0, 0}, {tokens, hidden}),
        KOKKOS_LAMBDA(int i, int c) { dq(i, c) += dk(i, c) + dv(i, c); });
    // Gradients that are not wanted are `none`: here that of the weight.
    attikos::gemm_backward(exec, normed, weight, dq, d_normed, attikos::none, {.trans_b = true});
    attikos::rms_norm_backward(exec, x, scale, d_normed, dx, d_scale);
  }
};

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Layer const layer;
  Matrix x("x", tokens, hidden), dx("dx", tokens, hidden);
  Kokkos::deep_copy(layer.scale, 1.0);
  Matrix const weight = layer.weight;
  Kokkos::parallel_for(
      "numbers", Kokkos::MDRangePolicy(layer.exec, {0, 0}, {hidden, hidden}),
      KOKKOS_LAMBDA(int i, int c) {
        weight(i, c) = Kokkos::sin(1.0 + 7 * i + 3 * c) / 4;
        if (i < tokens) x(i, c) = Kokkos::cos(2.0 + 5 * i + 11 * c);
      });

  layer.forward(x);
  layer.backward(x, dx);
  auto const one = Kokkos::subview(x, 5, 7);
  double at = 0, slope = 0;
  Kokkos::deep_copy(at, one);
  Kokkos::deep_copy(slope, Kokkos::subview(dx, 5, 7));
  double const step = 1e-5;
  Kokkos::deep_copy(one, at + step);
  double const above = layer.forward(x);
  Kokkos::deep_copy(one, at - step);
  double const difference = (above - layer.forward(x)) / (2 * step);
  std::printf("gradient and difference agree: %s\n",
              std::abs(slope - difference) < 1e-7 * (1 + std::abs(slope)) ? "yes" : "no");
}
