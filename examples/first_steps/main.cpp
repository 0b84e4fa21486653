#include <attikos/attikos.hpp>
#include <cstdio>

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  // Two sequences of at most 100 tokens, four heads of 64 features, keys and values of two shared
  // heads.
  Kokkos::View<float****> q("q", 2, 4, 100, 64), k("k", 2, 2, 100, 64), v("v", 2, 2, 100, 64),
      out("out", 2, 4, 100, 64);
  Kokkos::View<float***> lse("lse", 2, 4, 100);
  Kokkos::View<int*> lengths("lengths", 2);
  Kokkos::deep_copy(k, 0.5f);
  Kokkos::deep_copy(v, 3.0f);
  Kokkos::deep_copy(lengths, 90);
  Kokkos::DefaultExecutionSpace const exec;  // any instance; calls are asynchronous on it

  attikos::attention(exec, q, k, v, out, lse, {.causal = true}, attikos::lengths(lengths));
  Kokkos::View<float**> w("w", 32, 64), y("y", 100, 32);
  attikos::gemm(exec, Kokkos::subview(out, 0, 0, Kokkos::ALL, Kokkos::ALL), w, y,
                {.trans_b = true});
  exec.fence();

  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), out);
  std::printf("valid row %g, padded row %g\n", double(host(0, 0, 89, 0)),
              double(host(0, 0, 90, 0)));
}
