// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Step 7: products and attention of many small problems inside a kernel of your own, a team each.
#include <attikos/attikos.hpp>
#include <cstdio>

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Kokkos::DefaultExecutionSpace const exec;
  constexpr int cells = 1000, particles = 12, features = 16;
  using Tensor = Kokkos::View<float***>;
  Tensor x("x", cells, particles, features), out("out", cells, particles, features);
  Kokkos::View<float**> weight("weight", features, features);
  Kokkos::View<float*> energy("energy", cells);
  Kokkos::deep_copy(exec, x, 1.0f);
  Kokkos::deep_copy(exec, weight, 1.0f / features);

  using Scratch = Kokkos::View<float**, Kokkos::DefaultExecutionSpace::scratch_memory_space,
                               Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  auto policy = Kokkos::TeamPolicy(exec, cells, Kokkos::AUTO);
  policy.set_scratch_size(0, Kokkos::PerTeam(Scratch::shmem_size(particles, features)));
  Kokkos::parallel_for(
      "cells", policy, KOKKOS_LAMBDA(Kokkos::TeamPolicy<>::member_type const& team) {
        int const cell = team.league_rank();
        auto const all = Kokkos::ALL;
        auto const mine = Kokkos::subview(x, cell, all, all);
        Scratch const projected(team.team_scratch(0), particles, features);
        // All threads of the team make these calls; each ends with a barrier of the team.
        attikos::team_gemm(team, mine, weight, projected);
        attikos::team_attention(team, projected, projected, mine,
                                Kokkos::subview(out, cell, all, all));
        float sum = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, particles * features),
            [&](int i, float& part) { part += out(cell, i / features, i % features); }, sum);
        Kokkos::single(Kokkos::PerTeam(team), [&] { energy(cell) = sum; });
      });
  exec.fence();

  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), energy);
  std::printf("energy of the last cell: %g\n", double(host(cells - 1)));
}
