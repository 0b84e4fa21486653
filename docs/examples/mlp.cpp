// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What reference/cxx-gemm.md shows of gated MLPs and of
// activations, part by part; a test runs it.
#include <attikos/attikos.hpp>

#include "common.hpp"

using Matrix = Kokkos::View<double**>;
using Vector = Kokkos::View<double*>;

void gated_mlp(Space const& exec) {
  auto const x = random<Matrix>(10, 16),
             gate = random<Matrix>(24, 16),
             up = random<Matrix>(24, 16),
             dout = random<Matrix>(10, 24);
  // [gated-mlp]
  // SwiGLU: silu(x·gateᵀ) ⊙ (x·upᵀ); with gelu, GEGLU.
  // The backward call computes both products again, so
  // that nothing but x is kept for it.
  attikos::GatedMlpOptions const options{
      .activation = attikos::Activation::silu};
  Matrix out("out", 10, 24);
  attikos::gated_mlp(exec, x, gate, up, out, options);

  Matrix dx("dx", 10, 16), dgate("dgate", 24, 16),
      dup("dup", 24, 16);
  Kokkos::View<char*> memory(
      "memory",
      attikos::gated_mlp_backward_workspace_size(x, gate,
                                                 dout));
  attikos::gated_mlp_backward(exec, x, gate, up, dout, dx,
                              dgate, dup, options,
                              attikos::workspace(memory));
  // [gated-mlp]
  auto const hx = on_host(x), hg = on_host(gate),
             hu = on_host(up);
  double g = 0, u = 0;
  for (int l = 0; l < 16; ++l) {
    g += hx(3, l) * hg(20, l);
    u += hx(3, l) * hu(20, l);
  }
  expect_near(on_host(out)(3, 20),
              g / (1 + std::exp(-g)) * u, 1e-12,
              "a gated feature");
  auto const loss = [&] {
    attikos::gated_mlp(exec, x, gate, up, out, options);
    return dot(out, dout);
  };
  expect_gradient(x, dx, loss, "dx");
  expect_gradient(gate, dgate, loss, "dgate");
  expect_gradient(up, dup, loss, "dup");
}

void kept_projections(Space const& exec) {
  auto const x = random<Matrix>(10, 16),
             gate = random<Matrix>(24, 16),
             up = random<Matrix>(24, 16),
             dout = random<Matrix>(10, 24);
  Matrix out("out", 10, 24), dx("dx", 10, 16),
      dgate("dgate", 24, 16), dup("dup", 24, 16);
  // [kept-projections]
  // Training keeps both products where there is memory
  // for two more tensors of out's extents; the backward
  // call then has four products to compute, and not six.
  Matrix gates("gates", 10, 24), ups("ups", 10, 24);
  auto const kept = attikos::projections(gates, ups);
  attikos::gated_mlp(exec, x, gate, up, out, {}, kept);
  attikos::gated_mlp_backward(exec, x, gate, up, dout, dx,
                              dgate, dup, {}, kept);
  // [kept-projections]
  auto const hx = on_host(x), hu = on_host(up);
  double u = 0;
  for (int l = 0; l < 16; ++l) u += hx(3, l) * hu(20, l);
  expect_near(on_host(ups)(3, 20), u, 1e-12, "up");
  auto const loss = [&] {
    attikos::gated_mlp(exec, x, gate, up, out);
    return dot(out, dout);
  };
  expect_gradient(x, dx, loss, "dx");
  expect_gradient(gate, dgate, loss, "dgate");
  expect_gradient(up, dup, loss, "dup");
}

void activations(Space const& exec) {
  auto const x = random<Vector>(1000),
             g = random<Vector>(1000);
  Vector y("y", 1000), dx("dx", 1000);
  // [activations]
  // What epilogues apply, for kernels of your own, where
  // the function is an option at run time …
  auto const act = attikos::Activation::gelu_tanh;
  Kokkos::parallel_for(
      attikos::activation_name(act),
      Kokkos::RangePolicy(exec, 0, 1000),
      KOKKOS_LAMBDA(int i) {
        y(i) = attikos::apply_activation(act, x(i));
        dx(i) = g(i) * attikos::apply_activation_gradient(
                           act, x(i));
      });
  // [activations]
  auto const hx = on_host(x);
  double const t = hx(7),
               cubic = t + 0.044715 * t * t * t;
  double const inner = std::sqrt(2 / M_PI) * cubic;
  expect_near(on_host(y)(7),
              t / 2 * (1 + std::tanh(inner)), 1e-12,
              "gelu_tanh");
  auto const loss = [&] {
    double sum = 0;
    for (int i = 0; i < 1000; ++i)
      sum += g(i) * attikos::apply_activation(act, x(i));
    return sum;
  };
  expect_gradient(x, dx, loss, "its slope");
}

// [activation-functions]
// … and where it is known at compile time. Gate and up
// lie side by side, as one product gives them.
struct Swish {
  KOKKOS_FUNCTION static double value(double x) {
    return attikos::silu(x);
  }
  KOKKOS_FUNCTION static double slope(double x) {
    return attikos::silu_gradient(x);
  }
};
struct Gelu {
  KOKKOS_FUNCTION static double value(double x) {
    return attikos::gelu(x);
  }
  KOKKOS_FUNCTION static double slope(double x) {
    return attikos::gelu_gradient(x);
  }
};

template <class Act>
void fused_gate(Space const& exec, Matrix const& h,
                Matrix const& dy, Matrix const& y,
                Matrix const& dh) {
  int const tokens = int(y.extent(0)),
            n = int(y.extent(1));
  Kokkos::parallel_for(
      Kokkos::MDRangePolicy(exec, {0, 0}, {tokens, n}),
      KOKKOS_LAMBDA(int t, int j) {
        double const gate = h(t, j), up = h(t, n + j);
        y(t, j) = Act::value(gate) * up;
        dh(t, j) = dy(t, j) * up * Act::slope(gate);
        dh(t, n + j) = dy(t, j) * Act::value(gate);
      });
}
// [activation-functions]

void fused_gates(Space const& exec) {
  auto const h = random<Matrix>(10, 48),
             dy = random<Matrix>(10, 24);
  Matrix y("y", 10, 24), dh("dh", 10, 48),
      other("other", 10, 48);
  fused_gate<Swish>(exec, h, dy, y, dh);
  exec.fence();
  double const x = on_host(h)(3, 20);
  expect_near(on_host(y)(3, 20),
              x / (1 + std::exp(-x)) * on_host(h)(3, 44),
              1e-12, "SwiGLU");
  expect_gradient(
      h, dh,
      [&] {
        fused_gate<Swish>(exec, h, dy, y, other);
        return dot(y, dy);
      },
      "the gradient of SwiGLU");
  fused_gate<Gelu>(exec, h, dy, y, dh);
  exec.fence();
  expect_near(on_host(y)(3, 20),
              x / 2 * std::erfc(-x / std::sqrt(2.0)) *
                  on_host(h)(3, 44),
              1e-12, "GEGLU");
  expect_gradient(
      h, dh,
      [&] {
        fused_gate<Gelu>(exec, h, dy, y, other);
        return dot(y, dy);
      },
      "the gradient of GEGLU");
}

void squared_relu(Space const& exec) {
  auto const x = random<Matrix>(10, 16),
             w = random<Matrix>(16, 24),
             dy = random<Matrix>(10, 24);
  Matrix y("y", 10, 24), kept("kept", 10, 24),
      dx("dx", 10, 16), dw("dw", 16, 24);
  // [own-epilogue]
  // relu(x)², which no option has, behind a product. What
  // went into it is kept; its slope is a line of one's
  // own, and the rest the gradients of a plain product.
  attikos::gemm(exec, x, w, y, {},
                attikos::epilogue(KOKKOS_LAMBDA(
                    double a, std::int64_t, std::int64_t,
                    std::int64_t) {
                  return attikos::relu(a) *
                         attikos::relu(a);
                }),
                attikos::pre_activation(kept));
  Kokkos::parallel_for(
      Kokkos::MDRangePolicy(exec, {0, 0}, {10, 24}),
      KOKKOS_LAMBDA(int i, int j) {
        double const a = attikos::relu(kept(i, j));
        kept(i, j) = 2 * a * dy(i, j);
      });
  attikos::gemm_backward(exec, x, w, kept, dx, dw);
  // [own-epilogue]
  auto const loss = [&] {
    attikos::gemm(
        exec, x, w, y, {},
        attikos::epilogue(KOKKOS_LAMBDA(
            double a, std::int64_t, std::int64_t,
            std::int64_t) { return a > 0 ? a * a : 0; }));
    return dot(y, dy);
  };
  expect_gradient(x, dx, loss, "dx");
  expect_gradient(w, dw, loss, "dw");
}

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Space const exec;
  gated_mlp(exec);
  kept_projections(exec);
  activations(exec);
  fused_gates(exec);
  squared_relu(exec);
  std::printf("all parts ran\n");
}
