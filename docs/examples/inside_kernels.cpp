// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products and attention inside kernels of one's own, as
// the pages of the reference show them; a test runs it.
#include <attikos/attikos.hpp>

#include "common.hpp"

using View3 = Kokkos::View<double***>;
using Matrix = Kokkos::View<double**>;
using Team = Kokkos::TeamPolicy<Space>::member_type;

void products(Space const& exec) {
  constexpr int cells = 50, n = 12;
  // [team-gemm]
  // xᵀ·S·x for each cell, whose matrices are too small
  // for a call: two products by one team, the first one's
  // result in scratch memory that no other team sees.
  auto const s = random<View3>(cells, n, n),
             x = random<View3>(cells, n, 4);
  View3 out("out", cells, 4, 4);
  using Scratch =
      Kokkos::View<double**, Space::scratch_memory_space,
                   Kokkos::MemoryUnmanaged>;
  Kokkos::TeamPolicy<Space> policy(exec, cells,
                                   Kokkos::AUTO);
  policy.set_scratch_size(
      0, Kokkos::PerTeam(Scratch::shmem_size(n, 4)));
  Kokkos::parallel_for(
      policy, KOKKOS_LAMBDA(Team const& team) {
        int const cell = team.league_rank();
        auto const all = Kokkos::ALL;
        auto const mine =
            Kokkos::subview(x, cell, all, all);
        Scratch const sx(team.team_scratch(0), n, 4);
        attikos::team_gemm(
            team, Kokkos::subview(s, cell, all, all),
            mine, sx);
        attikos::TeamGemmOptions options;
        options.trans_a = true;
        attikos::team_gemm(
            team, mine, sx,
            Kokkos::subview(out, cell, all, all),
            options);
      });
  // [team-gemm]
  auto const hx = on_host(x), hs = on_host(s);
  double sum = 0;
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      sum += hx(30, i, 1) * hs(30, i, j) * hx(30, j, 2);
  expect_near(on_host(out)(30, 1, 2), sum, 1e-12,
              "a product by a team");
}

void attention(Space const& exec) {
  constexpr int cells = 20, particles = 12, features = 16;
  auto const x =
      random<View3>(cells, particles, features);
  View3 out("out", cells, particles, features);
  // [team-attention]
  // Particles of a cell attend to those two places before
  // and behind at most, a team to each cell; also the
  // log-sum-exp of the scores, which gradients want.
  Matrix lse("lse", cells, particles);
  Kokkos::parallel_for(
      Kokkos::TeamPolicy<Space>(exec, cells,
                                Kokkos::AUTO),
      KOKKOS_LAMBDA(Team const& team) {
        int const cell = team.league_rank();
        auto const all = Kokkos::ALL;
        auto const mine =
            Kokkos::subview(x, cell, all, all);
        attikos::TeamAttentionOptions options;
        options.softmax_scale = 1;
        options.window_left = 2;
        options.window_right = 2;
        attikos::team_attention(
            team, mine, mine, mine,
            Kokkos::subview(out, cell, all, all),
            Kokkos::subview(lse, cell, all), options);
      });
  // [team-attention]
  auto const hx = on_host(x);
  double sum = 0, total = 0;
  for (int j = 5; j <= 9; ++j) {
    double s = 0;
    for (int c = 0; c < features; ++c)
      s += hx(9, 7, c) * hx(9, j, c);
    sum += std::exp(s) * hx(9, j, 3);
    total += std::exp(s);
  }
  expect_near(on_host(out)(9, 7, 3), sum / total, 1e-12,
              "attention by a team");
  expect_near(on_host(lse)(9, 7), std::log(total), 1e-12,
              "its log-sum-exp");
}

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Space const exec;
  products(exec);
  attention(exec);
  std::printf("all parts ran\n");
}
