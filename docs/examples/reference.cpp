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
  testing(exec);
  std::printf("all parts ran\n");
}
