// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Step 3: a mask and a term of the scores that no option has, compiled into the kernel.
#include <attikos/attikos.hpp>
#include <cstdint>
#include <cstdio>

/// Keys of the query's own document count, the nearer the more. Batch, query head, positions of
/// query and key come as 64-bit integers.
struct SameDocument {
  Kokkos::View<int const*> document;  // of every position
  float slope;

  KOKKOS_FUNCTION float operator()(float score, std::int64_t, std::int64_t, std::int64_t i,
                                   std::int64_t j) const {
    if (document(i) != document(j)) return -Kokkos::Experimental::infinity_v<float>;
    return score - slope * static_cast<float>(i > j ? i - j : j - i);
  }
};

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Kokkos::DefaultExecutionSpace const exec;
  constexpr int heads = 4, seqlen = 96, head_dim = 32, length = 32;  // three documents
  using Tensor = Kokkos::View<float****>;
  Tensor q("q", 1, heads, seqlen, head_dim), k("k", 1, heads, seqlen, head_dim),
      v("v", 1, heads, seqlen, head_dim), out("out", 1, heads, seqlen, head_dim);
  Kokkos::View<float***> lse("lse", 1, heads, seqlen);
  Kokkos::View<int*> document("document", seqlen);
  Kokkos::parallel_for(
      "documents", Kokkos::RangePolicy(exec, 0, seqlen), KOKKOS_LAMBDA(int s) {
        document(s) = s / length;
        for (int h = 0; h < heads; ++h)
          for (int c = 0; c < head_dim; ++c) v(0, h, s, c) = static_cast<float>(document(s));
      });

  attikos::attention(exec, q, k, v, out, lse, {}, attikos::score(SameDocument{document, 0.5f}));
  exec.fence();

  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), out);
  std::printf("documents of positions 0, 40, 95: %g, %g, %g\n", double(host(0, 0, 0, 0)),
              double(host(0, 1, 40, 0)), double(host(0, 3, 95, 0)));
}
