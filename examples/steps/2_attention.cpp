// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Step 2: attention with fewer key heads than query heads, causal, over tensors in another order of
// memory.
#include <attikos/attikos.hpp>
#include <cmath>
#include <cstdio>

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Kokkos::DefaultExecutionSpace const exec;
  constexpr int batch = 2, seqlen = 100, heads = 8, heads_kv = 2, head_dim = 64;
  using Tensor = Kokkos::View<float****, Kokkos::LayoutRight>;
  using Strided = Kokkos::View<float****, Kokkos::LayoutStride>;

  // Many models keep [batch, seqlen, heads, head_dim]; attention asks for [batch, heads, seqlen,
  // head_dim]. A view with the strides of the one is the other.
  Tensor q_stored("q", batch, seqlen, heads, head_dim), out("out", batch, heads, seqlen, head_dim);
  Strided const q(q_stored.data(),
                  Kokkos::LayoutStride(batch, seqlen * heads * head_dim, heads, head_dim, seqlen,
                                       heads * head_dim, head_dim, 1));
  Tensor k("k", batch, heads_kv, seqlen, head_dim), v("v", batch, heads_kv, seqlen, head_dim);
  Kokkos::View<float***> lse("lse", batch, heads, seqlen);
  Kokkos::deep_copy(exec, q_stored, 1.0f);
  Kokkos::deep_copy(exec, k, 0.0f);  // all keys are alike, so that values are averaged
  Kokkos::parallel_for(
      "values", Kokkos::MDRangePolicy(exec, {0, 0, 0}, {batch, heads_kv, seqlen}),
      KOKKOS_LAMBDA(int b, int h, int s) {
        for (int c = 0; c < head_dim; ++c) v(b, h, s, c) = static_cast<float>(s);
      });

  attikos::attention(exec, q, k, v, out, lse, {.causal = true});
  exec.fence();

  // Query i sees keys 0 … i: their mean is i/2, the sum of exponentials i + 1.
  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), out);
  auto const host_lse = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), lse);
  std::printf("query 99 gives %.4f, e^lse %.4f\n", double(host(1, 7, 99, 0)),
              std::exp(double(host_lse(1, 7, 99))));
}
