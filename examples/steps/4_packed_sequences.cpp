// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Step 4: sequences of different lengths, one behind the other without padding.
#include <attikos/attikos.hpp>
#include <cstdio>

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Kokkos::DefaultExecutionSpace const exec;
  constexpr int heads = 4, head_dim = 32, sequences = 3, total = 3 + 50 + 11;
  // Rows of all sequences together: [heads, total, head_dim]; offsets say where each begins. They
  // are read on the device, so that one graph serves any lengths.
  Kokkos::View<float***> x("x", heads, total, head_dim), out("out", heads, total, head_dim);
  Kokkos::View<float**> lse("lse", heads, total);
  Kokkos::View<int*> offsets("offsets", sequences + 1);
  auto const host_offsets = Kokkos::create_mirror_view(offsets);
  int const starts[] = {0, 3, 53, total};
  for (int i = 0; i <= sequences; ++i) host_offsets(i) = starts[i];
  Kokkos::deep_copy(exec, offsets, host_offsets);
  Kokkos::parallel_for(
      "rows", Kokkos::RangePolicy(exec, 0, total), KOKKOS_LAMBDA(int s) {
        int sequence = 0;
        while (s >= offsets(sequence + 1)) ++sequence;
        for (int h = 0; h < heads; ++h)
          for (int c = 0; c < head_dim; ++c) x(h, s, c) = static_cast<float>(sequence + 1);
      });

  attikos::attention(exec, x, x, x, out, lse, {.causal = true},
                     attikos::cu_seqlens(offsets, offsets));
  exec.fence();

  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), out);
  std::printf("last rows of the sequences: %g, %g, %g\n", double(host(0, 2, 0)),
              double(host(1, 52, 0)), double(host(3, 63, 31)));
}
