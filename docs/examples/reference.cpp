// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A short example of each operation for the reference
// pages; a test runs it.
#include <attikos/attikos.hpp>
#include <attikos/testing/testing.hpp>
#include <cstdio>
#include <cstdlib>

using Space = Kokkos::DefaultExecutionSpace;
using View4 = Kokkos::View<float****>;
using Matrix = Kokkos::View<float**>;
using Vector = Kokkos::View<float*>;
using Indices = Kokkos::View<int*>;

void gemm(Space const& exec) {
  // [gemm]
  // D = gelu(A·Bᵀ + bias) + residual, then the same with
  // a function of one's own.
  Matrix a("a", 64, 96), b("b", 80, 96), d("d", 64, 80),
      r("r", 64, 80);
  Vector bias("bias", 80);
  attikos::gemm(exec, a, b, d,
                {.trans_b = true,
                 .activation = attikos::Activation::gelu},
                attikos::bias(bias),
                attikos::residual(r));
  attikos::gemm(
      exec, a, b, d, {.trans_b = true},
      attikos::epilogue(KOKKOS_LAMBDA(
          float x, std::int64_t, std::int64_t,
          std::int64_t) { return x > 6 ? 6 : x; }));

  Matrix da("da", 64, 96), db("db", 80, 96);
  attikos::gemm_backward(exec, a, b, d, da, db,
                         {.trans_b = true});
  // [gemm]
  exec.fence();
}

void pack_b() {
  // [pack_b]
  // Weights of a layer, packed once for all its calls on
  // a host; memory of your own works as well.
  using Host = Kokkos::DefaultHostExecutionSpace;
  using HostMatrix = Kokkos::View<attikos::bfloat16**,
                                  Kokkos::LayoutRight,
                                  Kokkos::HostSpace>;
  HostMatrix weights("weights", 768, 512), x("x", 8, 512),
      y("y", 8, 768);
  auto const packed =
      attikos::pack_b(Host(), weights, {.trans_b = true});
  attikos::gemm(Host(), x, packed, y, {.trans_b = true});

  Kokkos::View<std::byte*, Kokkos::HostSpace> memory(
      "memory",
      attikos::pack_b_size(weights, {.trans_b = true}));
  auto const again = attikos::pack_b(
      Host(), weights, memory, {.trans_b = true});
  // [pack_b]
  attikos::gemm(Host(), x, again, y, {.trans_b = true});
  Host().fence();
}

void quantize(Space const& exec) {
  // [quantize]
  Matrix x("x", 256, 512),
      scale("scale", 256,
            4);  // a factor for 1 × 128 elements
  Kokkos::View<attikos::float8_e4m3**> codes("codes", 256,
                                             512);
  attikos::quantize(exec, x, codes, scale);
  attikos::dequantize(exec, codes, scale, x);
  // [quantize]
  exec.fence();
}

void testing(Space const& exec) {
  // [testing]
  // Compares any kernel with the float64 oracle, within
  // the derived bound.
  auto const product = [](auto const& on, auto const& a,
                          auto const& b, auto const& c) {
    attikos::gemm(on, a, b, c);
  };
  auto const found =
      attikos::testing::validate_gemm<float>(
          exec, product, 33, 17, 65);
  std::printf("%s\n", found.message.c_str());
  // [testing]
  if (!found) std::abort();
}

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Space const exec;
  gemm(exec);
  pack_b();
  quantize(exec);
  testing(exec);
  std::printf("all parts ran\n");
}
