// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Step 9: a learned bias for each distance, compiled into the kernels, and its gradient.
#include <attikos/attikos.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

constexpr int heads = 2, seqlen = 40, head_dim = 16, reach = 8;
using Tensor = Kokkos::View<double****>;
using Table = Kokkos::View<double**>;

struct RelativeBias {
  Table bias, d_bias;  // [heads, 2·reach + 1], the gradient where it is wanted

  KOKKOS_FUNCTION static int entry(std::int64_t i, std::int64_t j) {
    std::int64_t const ahead = j - i;
    return static_cast<int>(reach + (ahead < -reach ? -reach : ahead > reach ? reach : ahead));
  }
  KOKKOS_FUNCTION double operator()(double score, std::int64_t, std::int64_t h, std::int64_t i,
                                    std::int64_t j) const {
    return score + bias(h, entry(i, j));
  }
  /// d result/d score, which attention_backward() asks for.
  KOKKOS_FUNCTION double derivative(double, std::int64_t, std::int64_t, std::int64_t,
                                    std::int64_t) const {
    return 1;
  }
  /// Gets d loss/d result once for each pair: several threads may add to one entry.
  KOKKOS_FUNCTION void accumulate(double gradient, double, std::int64_t, std::int64_t h,
                                  std::int64_t i, std::int64_t j) const {
    Kokkos::atomic_add(&d_bias(h, entry(i, j)), gradient);
  }
};

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Kokkos::DefaultExecutionSpace const exec;
  auto const tensor = [](std::string const& name) {
    return Tensor(name, 1, heads, seqlen, head_dim);
  };
  Tensor const x = tensor("x"), out = tensor("out"), dout = tensor("dout"), dq = tensor("dq"),
               dk = tensor("dk"), dv = tensor("dv");
  Kokkos::View<double***> lse("lse", 1, heads, seqlen);
  RelativeBias const relative{Table("bias", heads, 2 * reach + 1),
                              Table("d_bias", heads, 2 * reach + 1)};
  Kokkos::deep_copy(exec, dout, 1.0);  // the loss is the sum of out
  Kokkos::parallel_for(
      "numbers", Kokkos::RangePolicy(exec, 0, seqlen), KOKKOS_LAMBDA(int s) {
        for (int h = 0; h < heads; ++h)
          for (int c = 0; c < head_dim; ++c) x(0, h, s, c) = Kokkos::sin(1.0 + 7 * s + 3 * c + h);
      });
  auto const loss = [&] {
    attikos::attention(exec, x, x, x, out, lse, {.causal = true}, attikos::score(relative));
    auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), out);
    double sum = 0;
    for (std::size_t i = 0; i < host.size(); ++i) sum += host.data()[i];
    return sum;
  };

  loss();
  attikos::attention_backward(exec, x, x, x, out, lse, dout, dq, dk, dv, {.causal = true},
                              attikos::score(relative));
  double const step = 1e-5;
  double slope = 0;
  Kokkos::deep_copy(slope, Kokkos::subview(relative.d_bias, 1, reach - 3));
  auto const one = Kokkos::subview(relative.bias, 1, reach - 3);
  Kokkos::deep_copy(one, step);
  double const above = loss();
  Kokkos::deep_copy(one, -step);
  double const difference = (above - loss()) / (2 * step);
  std::printf("gradient of a bias and difference agree: %s\n",
              std::abs(slope - difference) < 1e-7 * (1 + std::abs(slope)) ? "yes" : "no");
}
