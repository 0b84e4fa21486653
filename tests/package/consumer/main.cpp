// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <Kokkos_Core.hpp>
#include <attikos/attikos.hpp>
#include <cstdio>

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  int const m = 3, n = 2, k = 4;
  Kokkos::View<float**> a("a", m, k), b("b", k, n), c("c", m, n);
  auto const host_a = Kokkos::create_mirror_view(a);
  auto const host_b = Kokkos::create_mirror_view(b);
  for (int i = 0; i < m; ++i)
    for (int p = 0; p < k; ++p) host_a(i, p) = static_cast<float>(i + 2 * p);
  for (int p = 0; p < k; ++p)
    for (int j = 0; j < n; ++j) host_b(p, j) = static_cast<float>(p - 3 * j);
  Kokkos::deep_copy(a, host_a);
  Kokkos::deep_copy(b, host_b);

  attikos::gemm(a, b, c, {.alpha = 0.5});
  Kokkos::fence();

  auto const host_c = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), c);
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      float expected = 0;  // small integers: exact in any order
      for (int p = 0; p < k; ++p)
        expected += 0.5f * static_cast<float>(i + 2 * p) * static_cast<float>(p - 3 * j);
      if (host_c(i, j) != expected) {
        std::printf("c(%d, %d) is %g, expected %g\n", i, j, static_cast<double>(host_c(i, j)),
                    static_cast<double>(expected));
        return 1;
      }
    }
  }
  std::printf("Attikos %s: gemm is right\n", ATTIKOS_VERSION_STRING);
  return 0;
}
