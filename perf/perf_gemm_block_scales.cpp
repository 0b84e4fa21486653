// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of float8 operands with a factor for every 128 along K of a row of A and for every block
// of 128 x 128 of B, beside the same kernel with one factor a matrix: what blocks cost.
//
// Case names: gemm_block_scales/<kernel>/<execution space>/<types of A, B, C>/m.._n.._k.._nt/<rows
// or columns>/cold: how A's factors [m, k/128] lie.
#include <support/gemm_operands.hpp>

namespace attikos::measure {
namespace {

using Factors = Kokkos::View<float*, Memory>;
template <class Layout>
using Blocks = Kokkos::View<float**, Layout, Memory>;

std::size_t blocks_of(int extent) { return static_cast<std::size_t>((extent + 127) / 128); }

template <class Layout>
struct BlockFactors {
  Blocks<Layout> a;
  Blocks<Kokkos::LayoutRight> b;

  explicit BlockFactors(Shape const& s)
      : a(Kokkos::view_alloc("factors of a", Kokkos::WithoutInitializing),
          Float8Operands::extent(s.m), blocks_of(s.k)),
        b(Kokkos::view_alloc("factors of b", Kokkos::WithoutInitializing), blocks_of(s.n),
          blocks_of(s.k)) {
    fill_factors(a, 1);
    fill_factors(b, 2);
  }
};

template <class Layout>
void check_blocks(Shape const& s, Float8Operands const& x, BlockFactors<Layout> const& factors) {
  auto const a = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.a);
  auto const b = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.b);
  auto const c = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.c);
  auto const of_a = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, factors.a);
  auto const of_b = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, factors.b);
  require_written("attikos", c);
  for (std::int64_t i : sample(s.m, 16)) {
    for (std::int64_t j : sample(s.n, 16)) {
      auto const row = [&](std::int64_t l) {
        return to_double(a(i, l)) * static_cast<double>(of_a(i, l / 128));
      };
      auto const column = [&](std::int64_t l) {
        return to_double(b(j, l)) * static_cast<double>(of_b(j / 128, l / 128));
      };
      auto const element = reference::gemm_element(s.k, row, column, {});
      // Each block's factors round, and its sum once more than a product's.
      double const bound = test::gemm_bound<float, bfloat16>(s.k + s.k / 128 + 4, element, {}) +
                           test::float8_tensor_core_error(
                               s.k, true, [&](std::int64_t l) { return row(l) * column(l); });
      require_close("attikos", text("[", i, ", ", j, "]"), to_double(c(i, j)), element.value,
                    bound);
    }
  }
}

template <class Layout>
void run_blocks(benchmark::State& state, Settings const& settings, Shape const& s) {
  Exec const exec;
  double const bytes = 1.0 * s.m * s.k + 1.0 * s.n * s.k + 2.0 * s.m * s.n;
  std::vector<Float8Operands> sets;
  for (std::size_t i = count_sets(static_cast<std::size_t>(bytes), false); i > 0; --i)
    sets.emplace_back(s);
  BlockFactors<Layout> const factors(s);
  Factors const one_a("one of a", 1), one_b("one of b", 1);
  fill_factors(one_a, 3);
  fill_factors(one_b, 4);
  GemmOptions const options = options_of(s, "");
  std::vector<Side> sides = {{"attikos", [&](std::size_t i) {
                                gemm(exec, sets[i].a, sets[i].b, sets[i].c, options,
                                     scale_a(factors.a), scale_b(factors.b));
                              }}};
  poison(sets[0].c);
  sides[0].run(0);
  exec.fence();
  check_blocks(s, sets[0], factors);
  if (settings.wants("tensor"))
    sides.push_back({"tensor", [&](std::size_t i) {
                       gemm(exec, sets[i].a, sets[i].b, sets[i].c, options, scale_a(one_a),
                            scale_b(one_b));
                     }});
  alternate(state, exec, sides, sets.size(), {s.flop(), "GFLOP/s"});
}

template <class Layout>
void add_blocks(Settings const& settings, Shape const& s) {
  auto const extent = Float8Operands::extent;
  auto const somewhere = [](int terabyte) { return std::uintptr_t{1} << (40 + terabyte); };
  auto const numbers = [&](int terabyte) { return reinterpret_cast<float*>(somewhere(terabyte)); };
  Matrix<float8_e4m3> const a(reinterpret_cast<float8_e4m3*>(somewhere(0)), extent(s.m),
                              extent(s.k));
  Matrix<float8_e4m3> const b(reinterpret_cast<float8_e4m3*>(somewhere(1)), extent(s.n),
                              extent(s.k));
  Matrix<bfloat16> const c(reinterpret_cast<bfloat16*>(somewhere(2)), extent(s.m), extent(s.n));
  Blocks<Layout> const of_a(numbers(3), extent(s.m), blocks_of(s.k));
  Blocks<Kokkos::LayoutRight> const of_b(numbers(4), blocks_of(s.n), blocks_of(s.k));
  std::string const kernel =
      explain(op::gemm, Exec(), a, b, c, options_of(s, ""), scale_a(of_a), scale_b(of_b)).kernel;
  add_case(settings,
           text("gemm_block_scales/", kernel_part(kernel, "gemm"), "/", Exec::name(),
                "/float8_e4m3_float8_e4m3_bfloat16/m", s.m, "_n", s.n, "_k", s.k, "_nt",
                std::is_same_v<Layout, Kokkos::LayoutRight> ? "/rows" : "/columns", "/cold"),
           [&settings, s](benchmark::State& state) { run_blocks<Layout>(state, settings, s); });
}

void add_both(Settings const& settings, Shape s) {
  s.trans_b = true;
  add_blocks<Kokkos::LayoutRight>(settings, s);
  add_blocks<Kokkos::LayoutLeft>(settings, s);
}

}  // namespace

void register_gemm_block_scales(Settings const& settings) {
  // Layers of DeepSeek-V3, of which block scales are; and few tokens.
  for (Shape const& s : {Shape{4096, 4096, 7168}, Shape{4096, 24576, 1536},
                         Shape{4096, 7168, 16384}, Shape{8192, 8192, 8192}})
    add_both(settings, s);
  for (int m : {1, 16, 64, 128, 256, 512})
    for (Shape s : weights) {
      s.m = m;
      add_both(settings, s);
    }
}

}  // namespace attikos::measure
