// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of ragged groups of rows, each with an expert's weights, beside one product of as many
// rows with one expert's.
//
// Case names: gemm_grouped/<kernel>/<execution space>/<types of A, B, C>/m.._n.._k.._nt_b../cold,
// where m counts the rows of all groups and b the groups.
#include <numeric>
#include <random>
#include <support/gemm_operands.hpp>

namespace attikos::measure {
namespace {

template <class T>
using Experts = Kokkos::View<T***, Kokkos::LayoutRight, Memory>;
using Starts = Kokkos::View<std::int32_t*, Memory>;

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
  Matrix<T> a, c;
  Experts<T> b;
  Starts starts;
  std::vector<std::int32_t> host_starts;

  GroupedOperands(Shape const& s, int groups)
      : a(Kokkos::view_alloc("a", Kokkos::WithoutInitializing), extent(s.m), extent(s.k)),
        c(Kokkos::view_alloc("c", Kokkos::WithoutInitializing), extent(s.m), extent(s.n)),
        b(Kokkos::view_alloc("b", Kokkos::WithoutInitializing), extent(groups), extent(s.n),
          extent(s.k)),
        starts("starts", extent(groups) + 1),
        host_starts(ragged(s.m, groups)) {
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
  static std::size_t extent(int value) { return static_cast<std::size_t>(value); }
};

template <class T>
void check_grouped(Shape const& s, GroupedOperands<T> const& x) {
  auto const a = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.a);
  auto const c = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.c);
  require_written("attikos", c);
  for (std::int64_t i : sample(s.m, 64)) {
    auto const group =
        std::upper_bound(x.host_starts.begin(), x.host_starts.end(), i) - x.host_starts.begin() - 1;
    auto const& b = x.kinds[static_cast<std::size_t>(group) % 3];
    for (std::int64_t j : sample(s.n, 16)) {
      auto const element = reference::gemm_element(
          s.k, [&](std::int64_t l) { return to_double(a(i, l)); },
          [&](std::int64_t l) { return to_double(b(j, l)); }, {});
      require_close("attikos", text("[", i, ", ", j, "]"), to_double(c(i, j)), element.value,
                    test::gemm_bound<float, T>(s.k, element, {}));
    }
  }
}

template <class T>
void run_grouped(benchmark::State& state, Settings const& settings, Shape const& s, int groups) {
  Exec const exec;
  GroupedOperands<T> const x(s, groups);
  GemmOptions const options{.trans_b = true};
  std::vector<Side> sides = {
      {"attikos", [&](std::size_t) { gemm(exec, x.a, x.b, x.c, options, grouped(x.starts)); }}};
  poison(x.c);
  sides[0].run(0);
  exec.fence();
  check_grouped(s, x);
  if (settings.wants("one"))
    sides.push_back({"one", [&](std::size_t set) {
                       auto const n = static_cast<std::size_t>(s.n),
                                  k = static_cast<std::size_t>(s.k);
                       Matrix<T> const expert(x.b.data() + set * n * k, n, k);
                       gemm(exec, x.a, expert, x.c, options);
                     }});
  state.counters["groups"] = groups;
  alternate(state, exec, sides, static_cast<std::size_t>(groups), {s.flop(), "GFLOP/s"});
}

template <class T>
void add_grouped(Settings const& settings, Shape const& s, int groups) {
  auto const extent = GroupedOperands<T>::extent;
  auto const somewhere = [](int terabyte) { return std::uintptr_t{1} << (40 + terabyte); };
  Matrix<T> const a(reinterpret_cast<T*>(somewhere(0)), extent(s.m), extent(s.k));
  Experts<T> const b(reinterpret_cast<T*>(somewhere(1)), extent(groups), extent(s.n), extent(s.k));
  Matrix<T> const c(reinterpret_cast<T*>(somewhere(2)), extent(s.m), extent(s.n));
  Starts const starts(reinterpret_cast<std::int32_t*>(somewhere(3)), extent(groups) + 1);
  std::string const name =
      explain(op::gemm, Exec(), a, b, c, {.trans_b = true}, grouped(starts)).kernel;
  char const* const type = dtype_name(dtype_of<T>);
  add_case(settings,
           text("gemm_grouped/", kernel_part(name, "gemm"), "/", Exec::name(), "/", type, "_", type,
                "_", type, "/m", s.m, "_n", s.n, "_k", s.k, "_nt_b", groups, "/cold"),
           [&settings, s, groups](benchmark::State& state) {
             run_grouped<T>(state, settings, s, groups);
           });
}

}  // namespace

void register_gemm_grouped(Settings const& settings) {
  for (int groups : {8, 64})
    for (int rows : {16384, groups == 8 ? 8192 : 32768})
      for (Shape s : {Shape{0, 14336, 4096, false, true}, Shape{0, 4096, 7168, false, true}}) {
        s.m = rows;
        add_grouped<bfloat16>(settings, s, groups);
      }
}

}  // namespace attikos::measure
