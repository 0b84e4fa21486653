// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of float8 operands with one factor a matrix (/tensor) or one for every row of A and of B
// (/rows), which is how quantized weights and activations come, beside cuBLASLt with the same.
//
// Case names: gemm_scaled/<kernel>/<execution space>/<types of A, B, C>/m.._n.._k.._nt/<tensor or
// rows>/cold, with /fast after the shape where sums are left to the tensor cores.
#include <support/gemm_operands.hpp>

namespace attikos::measure {
namespace {

using Factors = Kokkos::View<float*, Memory>;

/// As many as `count`.
Factors factors(int count, unsigned seed) {
  Factors const result(Kokkos::view_alloc("factors", Kokkos::WithoutInitializing),
                       static_cast<std::size_t>(count));
  fill_factors(result, seed);
  return result;
}

void check_scaled(std::string const& side, Shape const& s, Float8Operands const& x,
                  Factors const& scale_a, Factors const& scale_b) {
  auto const a = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.a);
  auto const b = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.b);
  auto const c = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.c);
  auto const of_a = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, scale_a);
  auto const of_b = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, scale_b);
  require_written(side, c);
  for (std::int64_t i : sample(s.m, 16)) {
    for (std::int64_t j : sample(s.n, 16)) {
      auto const row = [&](std::int64_t l) { return to_double(a(i, l)); };
      auto const column = [&](std::int64_t l) { return to_double(b(j, l)); };
      double const factor = static_cast<double>(of_a(of_a.size() == 1 ? 0 : i)) *
                            static_cast<double>(of_b(of_b.size() == 1 ? 0 : j));
      reference::GemmTerms terms;
      terms.alpha = factor;
      auto const element = reference::gemm_element(s.k, row, column, terms);
      double const bound =
          test::gemm_bound<float, bfloat16>(s.k, element, terms) +
          factor * test::float8_tensor_core_error(
                       s.k, !s.fast, [&](std::int64_t l) { return row(l) * column(l); });
      require_close(side, text("[", i, ", ", j, "]"), to_double(c(i, j)), element.value, bound);
    }
  }
}

void run_scaled(benchmark::State& state, Settings const& settings, Shape const& s, bool rows) {
  Exec const exec;
  double const bytes = 1.0 * s.m * s.k + 1.0 * s.n * s.k + 2.0 * s.m * s.n;
  std::vector<Float8Operands> sets;
  for (std::size_t i = count_sets(static_cast<std::size_t>(bytes), false); i > 0; --i)
    sets.emplace_back(s);
  Factors const a = factors(rows ? s.m : 1, 1), b = factors(rows ? s.n : 1, 2);
  GemmOptions const options = options_of(s, "");
  std::vector<Side> sides = {{"attikos", [&](std::size_t i) {
                                gemm(exec, sets[i].a, sets[i].b, sets[i].c, options, scale_a(a),
                                     scale_b(b));
                              }}};
  CublasLtCall<Float8Operands> call{
      std::make_shared<CublasLt>(exec, CUDA_R_8F_E4M3, CUDA_R_16BF, s.m, s.n, s.k, s.trans_a,
                                 s.trans_b, s.fast, false,
                                 CublasLtScales{a.data(), b.data(), rows}),
      &sets, 0};
  if (call.peer->candidates() > 0 && settings.wants("cublaslt")) {
    sides.push_back({"cublaslt", call});
    call.which = fastest(exec, call.peer->candidates(), sets.size(),
                         [&](std::size_t which, std::size_t set) { call.run(which, set); });
    sides.push_back({"cublaslt_best", call});
  }
  for (Side const& side : sides) {
    poison(sets[0].c);
    side.run(0);
    exec.fence();
    check_scaled(side.name, s, sets[0], a, b);
  }
  alternate(state, exec, sides, sets.size(), {s.flop(), "GFLOP/s"});
}

void add_scaled(Settings const& settings, Shape const& s, bool rows) {
  auto const extent = Float8Operands::extent;
  auto const somewhere = [](int terabyte) { return std::uintptr_t{1} << (40 + terabyte); };
  Matrix<float8_e4m3> const a(reinterpret_cast<float8_e4m3*>(somewhere(0)), extent(s.m),
                              extent(s.k));
  Matrix<float8_e4m3> const b(reinterpret_cast<float8_e4m3*>(somewhere(1)), extent(s.n),
                              extent(s.k));
  Matrix<bfloat16> const c(reinterpret_cast<bfloat16*>(somewhere(2)), extent(s.m), extent(s.n));
  Factors const of_a(reinterpret_cast<float*>(somewhere(3)), extent(rows ? s.m : 1));
  Factors const of_b(reinterpret_cast<float*>(somewhere(4)), extent(rows ? s.n : 1));
  std::string const kernel =
      explain(op::gemm, Exec(), a, b, c, options_of(s, ""), scale_a(of_a), scale_b(of_b)).kernel;
  add_case(settings,
           text("gemm_scaled/", kernel_part(kernel, "gemm"), "/", Exec::name(),
                "/float8_e4m3_float8_e4m3_bfloat16/m", s.m, "_n", s.n, "_k", s.k, "_nt",
                s.fast ? "/fast" : "", rows ? "/rows" : "/tensor", "/cold"),
           [&settings, s, rows](benchmark::State& state) { run_scaled(state, settings, s, rows); });
}

}  // namespace

void register_gemm_scaled(Settings const& settings) {
  for (Shape s : large) {
    s.trans_b = true;
    for (bool fast : {false, true})
      for (bool rows : {false, true}) {
        s.fast = fast;
        add_scaled(settings, s, rows);
      }
  }
}

}  // namespace attikos::measure
