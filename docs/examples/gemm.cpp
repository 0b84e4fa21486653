// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What reference/cxx-gemm.md shows of products, part by
// part; a test runs it.
#include <attikos/attikos.hpp>

#include "common.hpp"

using View3 = Kokkos::View<double***>;
using Matrix = Kokkos::View<double**>;
using Vector = Kokkos::View<double*>;
using Indices = Kokkos::View<int*>;

/// Row i of a times column j of b.
template <class A, class B>
double plainly(A const& a, int i, B const& b, int j) {
  double sum = 0;
  for (int l = 0; l < int(a.extent(1)); ++l)
    sum += a(i, l) * b(l, j);
  return sum;
}

void gemm(Space const& exec) {
  // [gemm]
  // D = relu(A·Bᵀ + bias) + residual, then a function of
  // one's own in place of relu, by value, batch, row and
  // column.
  auto const a = random<Matrix>(64, 96),
             b = random<Matrix>(80, 96),
             r = random<Matrix>(64, 80);
  auto const bias = random<Vector>(80);
  Matrix c("c", 64, 80), d("d", 64, 80);
  attikos::gemm(exec, a, b, d,
                {.trans_b = true,
                 .activation = attikos::Activation::relu},
                attikos::bias(bias),
                attikos::residual(r));
  attikos::gemm(
      exec, a, b, c, {.trans_b = true},
      attikos::epilogue(KOKKOS_LAMBDA(
          double x, std::int64_t, std::int64_t,
          std::int64_t) { return x > 1 ? 1 : x; }));
  // [gemm]
  auto const ha = on_host(a), hb = on_host(b);
  double x = 0;
  for (int l = 0; l < 96; ++l) x += ha(5, l) * hb(7, l);
  expect_near(on_host(c)(5, 7), std::min(x, 1.0), 1e-12,
              "the epilogue");
  x += on_host(bias)(7);
  expect_near(on_host(d)(5, 7),
              std::max(x, 0.0) + on_host(r)(5, 7), 1e-12,
              "the product");
}

void gradients(Space const& exec) {
  auto const a = random<Matrix>(12, 20),
             b = random<Matrix>(16, 20),
             start = random<Matrix>(12, 16),
             dd = random<Matrix>(12, 16);
  auto const bias = random<Vector>(16);
  Matrix d("d", 12, 16);
  Kokkos::deep_copy(d, start);
  // [gradients]
  // The forward call keeps what goes into the activation.
  // Backward every gradient is an output that may be left
  // out; `none` stands for da or db.
  attikos::GemmOptions const options{
      .beta = 0.5,
      .trans_b = true,
      .activation = attikos::Activation::gelu};
  Matrix kept("kept", 12, 16);
  attikos::gemm(exec, a, b, d, options,
                attikos::bias(bias),
                attikos::pre_activation(kept));

  Matrix da("da", 12, 20), db("db", 16, 20),
      dc("dc", 12, 16), dx("dx", 12, 16);
  Vector dbias("dbias", 16);
  Kokkos::View<char*> memory(
      "memory",
      attikos::gemm_backward_workspace_size(dd, options));
  attikos::gemm_backward(
      exec, a, b, dd, da, db, options,
      attikos::pre_activation(kept),
      attikos::bias_gradient(dbias),
      attikos::c_gradient(dc),
      attikos::pre_activation_gradient(dx),
      attikos::workspace(memory));
  // [gradients]
  auto const loss = [&] {
    Kokkos::deep_copy(d, start);
    attikos::gemm(exec, a, b, d, options,
                  attikos::bias(bias));
    return dot(d, dd);
  };
  expect_gradient(a, da, loss, "da");
  expect_gradient(b, db, loss, "db");
  expect_gradient(bias, dbias, loss,
                  "the bias's gradient");
  expect_gradient(start, dc, loss, "the gradient of C");
  expect_near(on_host(dx)(3, 4), on_host(dc)(3, 4) / 0.5,
              1e-12, "the pre-activation's gradient");
}

void groups(Space const& exec) {
  constexpr int experts = 3, tokens = 10;
  auto const x = random<Matrix>(tokens, 20),
             dy = random<Matrix>(tokens, 8);
  auto const w = random<View3>(experts, 20, 8);
  // [grouped]
  // Tokens sorted by expert: rows 0–3 are the first
  // one's, the second has none, rows 4–9 are the third's.
  // Kernels read the offsets, so that no host waits for a
  // router.
  auto const offsets = list<Indices>({0, 4, 4, 10});
  Matrix y("y", tokens, 8), dx("dx", tokens, 20);
  attikos::gemm(exec, x, w, y, {},
                attikos::grouped(offsets));
  View3 dw("dw", experts, 20, 8);
  attikos::gemm_backward(exec, x, w, dy, dx, dw, {},
                         attikos::grouped(offsets));
  // [grouped]
  auto const all = Kokkos::ALL;
  expect_near(
      on_host(y)(6, 5),
      plainly(on_host(x), 6,
              on_host(Kokkos::subview(w, 2, all, all)),
              5),
      1e-12, "a token of the third expert");
  expect_gradient(
      w, dw,
      [&] {
        attikos::gemm(exec, x, w, y, {},
                      attikos::grouped(offsets));
        return dot(y, dy);
      },
      "the gradient of experts");

  // [masked]
  // The same with room for 6 tokens of each expert, of
  // which some are there: other rows are left as they
  // are.
  auto const room = random<View3>(experts, 6, 20);
  auto const counts = list<Indices>({4, 0, 6});
  View3 out("out", experts, 6, 8);
  attikos::gemm(exec, room, w, out, {},
                attikos::masked(counts));
  // [masked]
  expect_near(
      on_host(out)(0, 3, 5),
      plainly(on_host(Kokkos::subview(room, 0, all, all)),
              3, on_host(Kokkos::subview(w, 0, all, all)),
              5),
      1e-12, "a row that counts");
  expect(on_host(out)(0, 4, 5) == 0, "a row beyond");
}

void pointers(Space const& exec) {
  // [pointers]
  // Matrices of one shape anywhere in memory. Kokkos
  // takes T** for rank 2, so addresses are kept as
  // integers.
  using Addresses = Kokkos::View<std::uintptr_t*>;
  auto const first = random<Matrix>(24, 32),
             second = random<Matrix>(24, 32),
             b = random<Matrix>(32, 16);
  Addresses addresses("addresses", 2);
  auto const host = Kokkos::create_mirror_view(addresses);
  host(0) =
      reinterpret_cast<std::uintptr_t>(first.data());
  host(1) =
      reinterpret_cast<std::uintptr_t>(second.data());
  Kokkos::deep_copy(exec, addresses, host);

  auto const* const data =
      reinterpret_cast<double const* const*>(
          addresses.data());
  View3 c("c", 2, 24, 16);
  attikos::gemm(exec,
                attikos::matrix_pointers(data, 2, 24, 32),
                b, c);
  // [pointers]
  expect_near(on_host(c)(1, 7, 9),
              plainly(on_host(second), 7, on_host(b), 9),
              1e-12, "a product behind a pointer");
}

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Space const exec;
  gemm(exec);
  gradients(exec);
  groups(exec);
  pointers(exec);
  std::printf("all parts ran\n");
}
