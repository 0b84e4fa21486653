// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The right columns of the migration pages in C++, part
// by part; a test runs it.
#include <attikos/attikos.hpp>
#include <attikos/compat/cuflash.hpp>
#include <cstdio>
#include <vector>

using Space = Kokkos::DefaultExecutionSpace;
using Matrix = Kokkos::View<float**>;

void cublas(Space const& exec) {
  constexpr int m = 96, n = 64, k = 80, batch = 3;
  // [cublas-sgemm]
  // C = alpha·A·Bᵀ + beta·C, row-major: no swapping of
  // operands, no leading dimensions.
  Matrix a("a", m, k), b("b", n, k), c("c", m, n);
  attikos::gemm(
      exec, a, b, c,
      {.alpha = 2.0, .beta = 1.0, .trans_b = true});
  // [cublas-sgemm]

  // [cublas-columns]
  // Column-major operands keep their storage.
  using Columns =
      Kokkos::View<float**, Kokkos::LayoutLeft>;
  Columns at("at", m, k), bt("bt", k, n), ct("ct", m, n);
  attikos::gemm(exec, at, bt, ct);
  // [cublas-columns]

  // [cublas-batched]
  Kokkos::View<float***> a3("a3", batch, m, k),
      b3("b3", batch, k, n), c3("c3", batch, m, n);
  attikos::gemm(exec, a3, b3, c3);
  // [cublas-batched]

  // [cublaslt-epilogue]
  Kokkos::View<float*> bias("bias", n);
  attikos::gemm(
      exec, a, b, c,
      {.trans_b = true,
       .activation = attikos::Activation::gelu_tanh},
      attikos::bias(bias));
  // [cublaslt-epilogue]
  exec.fence();
}

void kokkos_kernels(Space const& exec) {
  Matrix a("a", 40, 30), b("b", 30, 20), c("c", 40, 20);
  // [kokkos-kernels-gemm]
  attikos::gemm(exec, a, b, c,
                {.alpha = 1.0, .beta = 0.0});
  attikos::gemm(exec, a, a, Matrix("d", 40, 40),
                {.trans_b = true});
  // [kokkos-kernels-gemm]

  // [kokkos-kernels-team]
  using Batch = Kokkos::View<double***>;
  Batch as("as", 100, 8, 8), bs("bs", 100, 8, 8),
      cs("cs", 100, 8, 8);
  using Policy = Kokkos::TeamPolicy<Space>;
  Kokkos::parallel_for(
      "small products", Policy(exec, 100, Kokkos::AUTO),
      KOKKOS_LAMBDA(Policy::member_type const& team) {
        auto const matrix = [&](Batch const& of) {
          return Kokkos::subview(of, team.league_rank(),
                                 Kokkos::ALL,
                                 Kokkos::ALL);
        };
        attikos::team_gemm(team, matrix(as), matrix(bs),
                           matrix(cs));
      });
  // [kokkos-kernels-team]
  exec.fence();
}

void onednn(Space const& exec) {
  // [onednn-matmul]
  Kokkos::View<attikos::bfloat16**> src("src", 64, 128),
      weights("weights", 128, 256), dst("dst", 64, 256);
  Kokkos::View<float*> bias("bias", 256);
  attikos::gemm(exec, src, weights, dst,
                {.activation = attikos::Activation::relu},
                attikos::bias(bias));
  exec.fence();
  // [onednn-matmul]

  // [onednn-int8]
  Kokkos::View<std::int8_t**> s("s", 64, 128),
      w("w", 128, 256);
  Kokkos::View<std::int32_t**> sum("sum", 64, 256);
  Kokkos::View<std::int32_t*> zero("zero", 1);
  attikos::gemm(exec, s, w, sum, {},
                attikos::zero_point_a(zero));
  exec.fence();
  // [onednn-int8]

  // [onednn-norm]
  Matrix x("x", 32, 512), y("y", 32, 512);
  Kokkos::View<float*> gamma("gamma", 512),
      beta("beta", 512);
  attikos::layer_norm(exec, x, gamma, beta, y,
                      {.eps = 1e-5});
  attikos::softmax(exec, x, y);
  exec.fence();
  // [onednn-norm]
}

void deepgemm(Space const& exec) {
  constexpr int m = 64, n = 128, k = 256, groups = 2;
  // [deepgemm-scaled]
  // A scale for every 128 of K of each row of A, and for
  // each 128 × 128 of B.
  Kokkos::View<attikos::float8_e4m3**> a("a", m, k),
      b("b", n, k);
  Matrix scale_a("scale_a", m, k / 128),
      scale_b("scale_b", n / 128, k / 128);
  Kokkos::View<attikos::bfloat16**> d("d", m, n);
  attikos::gemm(exec, a, b, d, {.trans_b = true},
                attikos::scale_a(scale_a),
                attikos::scale_b(scale_b));
  // [deepgemm-scaled]

  // [deepgemm-grouped]
  // Rows [offsets[g], offsets[g + 1]) of A meet matrix g
  // of B; offsets stay on the device.
  Kokkos::View<attikos::bfloat16**> x("x", m, k),
      y("y", m, n);
  Kokkos::View<attikos::bfloat16***> experts(
      "experts", groups, n, k);
  Kokkos::View<int*> offsets("offsets", groups + 1);
  attikos::gemm(exec, x, experts, y, {.trans_b = true},
                attikos::grouped(offsets));
  // [deepgemm-grouped]
  exec.fence();
}

void raw_pointers() {
  constexpr int batch = 1, heads = 2, length = 16,
                features = 32;
  std::vector<float> q(batch * heads * length * features,
                       0.5f),
      o(q.size()), l(batch * heads * length);
  // [cuflash]
  auto const error = cuflash::flash_attention_forward(
      q.data(), q.data(), q.data(), o.data(), l.data(),
      batch, heads, length, features, 0.0f, true,
      nullptr);
  std::printf("%s\n", cuflash::get_error_string(error));
  // [cuflash]
}

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Space const exec;
  cublas(exec);
  kokkos_kernels(exec);
  onednn(exec);
  deepgemm(exec);
  raw_pointers();
  std::printf("all parts ran\n");
}
