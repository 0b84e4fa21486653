// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of ragged groups of rows, each with an expert's weights, beside one product of as many
// rows with one expert's: bfloat16, and float8 with one factor for A and one for B (/tensor) or one
// for every row of A and of every expert (/rows).
//
// Case names: gemm_grouped/<kernel>/<execution space>/<types of A, B, C>/m.._n.._k.._nt_b..[/tensor
// or /rows]/cold, where m counts the rows of all groups and b the groups.
#include <numeric>
#include <random>
#include <support/gemm_operands.hpp>

namespace attikos::measure {
namespace {

template <class T>
using Experts = Kokkos::View<T***, Kokkos::LayoutRight, Memory>;
using Starts = Kokkos::View<std::int32_t*, Memory>;
using Factors = Kokkos::View<float*, Memory>;
using ExpertFactors = Kokkos::View<float***, Kokkos::LayoutRight, Memory>;

enum class Scaling { none, tensor, rows };

/// Where groups begin that have between a quarter and seven quarters of the mean number of rows.
std::vector<std::int32_t> ragged(int rows, int groups) {
  std::mt19937 generator(7);
  std::vector<double> share(static_cast<std::size_t>(groups));
  for (double& x : share) x = 0.25 + 1.5 * static_cast<double>(generator() % 1000) / 1000;
  double const all = std::accumulate(share.begin(), share.end(), 0.0);
  std::vector<std::int32_t> starts{0};
  double sum = 0;
  for (double x : share) starts.push_back(static_cast<std::int32_t>(rows * ((sum += x) / all)));
  starts.back() = rows;
  return starts;
}

template <class T>
struct GroupedOperands {
  // Experts take turns with three matrices' numbers: drawing their own would take minutes.
  std::vector<typename Matrix<T>::HostMirror> kinds;
  Matrix<T> a;
  Matrix<bfloat16> c;
  Experts<T> b;
  Starts starts;
  std::vector<std::int32_t> host_starts;
  Factors factors_a;
  ExpertFactors factors_b;

  GroupedOperands(Shape const& s, int groups, bool rows)
      : a(Kokkos::view_alloc("a", Kokkos::WithoutInitializing), extent(s.m), extent(s.k)),
        c(Kokkos::view_alloc("c", Kokkos::WithoutInitializing), extent(s.m), extent(s.n)),
        b(Kokkos::view_alloc("b", Kokkos::WithoutInitializing), extent(groups), extent(s.n),
          extent(s.k)),
        starts("starts", extent(groups) + 1),
        host_starts(ragged(s.m, groups)),
        factors_a("factors of A", rows ? extent(s.m) : 1),
        factors_b("factors of B", rows ? extent(groups) : 1, rows ? extent(s.n) : 1, 1) {
    fill_factors(factors_a, 1);
    fill_factors(factors_b, 2);
    fill_normal(a);
    for (std::size_t g = 0; g < extent(groups); ++g) {
      Matrix<T> const expert(b.data() + g * extent(s.n) * extent(s.k), extent(s.n), extent(s.k));
      if (g < 3) {
        fill_normal(expert);
        kinds.push_back(Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, expert));
      } else {
        Kokkos::deep_copy(expert, kinds[g % 3]);
      }
    }
    auto const mirror = Kokkos::create_mirror_view(starts);
    std::copy(host_starts.begin(), host_starts.end(), mirror.data());
    Kokkos::deep_copy(starts, mirror);
  }
  /// All factors of B, or one expert's.
  Factors factors_of(std::size_t expert) const {
    std::size_t const rows = factors_b.extent(1);
    return Factors(factors_b.data() + (rows > 1 ? expert * rows : 0), rows);
  }
  static std::size_t extent(int value) { return static_cast<std::size_t>(value); }
};

/// Calls gemm, of all experts or of one.
template <class T, class B, class... Extras>
void multiply(Exec const& exec, Scaling scaling, GroupedOperands<T> const& x, B const& b,
              std::size_t expert, Extras const&... extras) {
  GemmOptions const options{.trans_b = true};
  if constexpr (sizeof(T) == 1) {
    if constexpr (B::rank == 3) {
      if (scaling == Scaling::rows)
        return gemm(exec, x.a, b, x.c, options, extras..., scale_a(x.factors_a),
                    scale_b(x.factors_b));
    }
    gemm(exec, x.a, b, x.c, options, extras..., scale_a(x.factors_a),
         scale_b(x.factors_of(expert)));
  } else {
    gemm(exec, x.a, b, x.c, options, extras...);
  }
}

template <class T>
void check_grouped(Shape const& s, Scaling scaling, GroupedOperands<T> const& x) {
  auto const of_a = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.factors_a);
  auto const of_b = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.factors_b);
  bool const rows = scaling == Scaling::rows;
  auto const a = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.a);
  auto const c = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.c);
  require_written("attikos", c);
  for (std::int64_t i : sample(s.m, 64)) {
    auto const group =
        std::upper_bound(x.host_starts.begin(), x.host_starts.end(), i) - x.host_starts.begin() - 1;
    auto const& b = x.kinds[static_cast<std::size_t>(group) % 3];
    for (std::int64_t j : sample(s.n, 16)) {
      auto const row = [&](std::int64_t l) { return to_double(a(i, l)); };
      auto const column = [&](std::int64_t l) { return to_double(b(j, l)); };
      reference::GemmTerms terms;
      if (scaling != Scaling::none)
        terms.alpha = static_cast<double>(of_a(rows ? i : 0)) *
                      static_cast<double>(of_b(rows ? group : 0, rows ? j : 0, 0));
      auto const element = reference::gemm_element(s.k, row, column, terms);
      double bound = test::gemm_bound<float, bfloat16>(s.k, element, terms);
      if constexpr (sizeof(T) == 1)
        bound += terms.alpha * test::float8_tensor_core_error(
                                   s.k, true, [&](std::int64_t l) { return row(l) * column(l); });
      require_close("attikos", text("[", i, ", ", j, "]"), to_double(c(i, j)), element.value,
                    bound);
    }
  }
}

template <class T>
void run_grouped(benchmark::State& state, Settings const& settings, Shape const& s, int groups,
                 Scaling scaling) {
  Exec const exec;
  GroupedOperands<T> const x(s, groups, scaling == Scaling::rows);
  std::vector<Side> sides = {
      {"attikos", [&](std::size_t) { multiply(exec, scaling, x, x.b, 0, grouped(x.starts)); }}};
  poison(x.c);
  sides[0].run(0);
  exec.fence();
  check_grouped(s, scaling, x);
  if (settings.wants("one"))
    sides.push_back({"one", [&](std::size_t set) {
                       auto const n = static_cast<std::size_t>(s.n),
                                  k = static_cast<std::size_t>(s.k);
                       Matrix<T> const expert(x.b.data() + set * n * k, n, k);
                       multiply(exec, scaling, x, expert, set);
                     }});
  state.counters["groups"] = groups;
  alternate(state, exec, sides, static_cast<std::size_t>(groups), {s.flop(), "GFLOP/s"});
}

template <class T>
void add_grouped(Settings const& settings, Shape const& s, int groups, Scaling scaling) {
  auto const extent = GroupedOperands<T>::extent;
  auto const somewhere = [](int terabyte) { return std::uintptr_t{1} << (40 + terabyte); };
  Matrix<T> const a(reinterpret_cast<T*>(somewhere(0)), extent(s.m), extent(s.k));
  Experts<T> const b(reinterpret_cast<T*>(somewhere(1)), extent(groups), extent(s.n), extent(s.k));
  Matrix<bfloat16> const c(reinterpret_cast<bfloat16*>(somewhere(2)), extent(s.m), extent(s.n));
  Starts const starts(reinterpret_cast<std::int32_t*>(somewhere(3)), extent(groups) + 1);
  // Of any scaling that the kernel takes.
  std::string const name =
      explain(op::gemm, Exec(), a, b, c, {.trans_b = true}, grouped(starts)).kernel;
  char const* const type = dtype_name(dtype_of<T>);
  char const* const scales = scaling == Scaling::rows     ? "/rows"
                             : scaling == Scaling::tensor ? "/tensor"
                                                          : "";
  add_case(settings,
           text("gemm_grouped/", kernel_part(name, "gemm"), "/", Exec::name(), "/", type, "_", type,
                "_bfloat16/m", s.m, "_n", s.n, "_k", s.k, "_nt_b", groups, scales, "/cold"),
           [&settings, s, groups, scaling](benchmark::State& state) {
             run_grouped<T>(state, settings, s, groups, scaling);
           });
}

}  // namespace

void register_gemm_grouped(Settings const& settings) {
  for (int groups : {8, 64})
    for (int rows : {16384, groups == 8 ? 8192 : 32768})
      for (Shape s : {Shape{0, 14336, 4096, false, true}, Shape{0, 4096, 7168, false, true}}) {
        s.m = rows;
        add_grouped<bfloat16>(settings, s, groups, Scaling::none);
        for (Scaling scaling : {Scaling::tensor, Scaling::rows})
          add_grouped<float8_e4m3>(settings, s, groups, scaling);
      }
}

}  // namespace attikos::measure
