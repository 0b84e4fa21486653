// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gated_mlp beside two products by cuBLASLt (its first heuristic, and the best of its first ten)
// and one elementwise kernel for what is between them.
//
// Case names: gated_mlp/<kernel>/<execution space>/<type>/m.._n.._k../cold; m tokens, n
// intermediate, k hidden.
#include <memory>
#include <support/gemm_operands.hpp>
#include <tolerance_gated_mlp.hpp>

namespace attikos::measure {
namespace {

template <class T>
struct MlpOperands {
  Matrix<T> x, gate_weight, up_weight, gate, up, out;

  MlpOperands(int m, int n, int k)
      : x(make("x", m, k)),
        gate_weight(make("gate_weight", n, k)),
        up_weight(make("up_weight", n, k)),
        gate(make("gate", m, n)),
        up(make("up", m, n)),
        out(make("out", m, n)) {
    fill(x, 1);
    fill(gate_weight, 0.02f);
    fill(up_weight, 0.02f);
  }
  static Matrix<T> make(std::string const& name, int rows, int columns) {
    return Matrix<T>(Kokkos::view_alloc(name, Kokkos::WithoutInitializing),
                     static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
  }
  static void fill(Matrix<T> const& view, float size) {
    auto const host = Kokkos::create_mirror_view(view);
    for (std::size_t i = 0; i < host.span(); ++i)
      host.data()[i] = from_float<T>(size * normal().next());
    Kokkos::deep_copy(view, host);
  }
};

/// silu(gate)·up, 16 bytes of each at a time.
template <class T>
struct SiluProduct {
  struct alignas(16) Vector {
    T values[16 / sizeof(T)];
  };
  Vector const* gate;
  Vector const* up;
  Vector* out;

  KOKKOS_INLINE_FUNCTION void operator()(std::size_t i) const {
    Vector const g = gate[i], u = up[i];
    Vector result;
    for (std::size_t j = 0; j < 16 / sizeof(T); ++j)
      result.values[j] =
          static_cast<T>(apply_activation(Activation::silu, static_cast<float>(g.values[j])) *
                         static_cast<float>(u.values[j]));
    out[i] = result;
  }
};

template <class T>
void separate_mlp(Exec const& exec, CublasLt const& product, std::size_t which,
                  MlpOperands<T> const& s) {
  using Vector = typename SiluProduct<T>::Vector;
  product.run(which, s.x.data(), s.gate_weight.data(), s.gate.data());
  product.run(which, s.x.data(), s.up_weight.data(), s.up.data());
  Kokkos::parallel_for("silu_product",
                       Kokkos::RangePolicy<Exec>(exec, 0, s.out.span() * sizeof(T) / 16),
                       SiluProduct<T>{reinterpret_cast<Vector const*>(s.gate.data()),
                                      reinterpret_cast<Vector const*>(s.up.data()),
                                      reinterpret_cast<Vector*>(s.out.data())});
}

/// Sampled entries against float64. `stored`: gate and up were rounded to T on the way.
template <class T>
void check_mlp(std::string const& side, MlpOperands<T> const& s, bool stored) {
  auto const x = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, s.x);
  auto const wg = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, s.gate_weight);
  auto const wu = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, s.up_weight);
  auto const out = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, s.out);
  require_written(side, out);
  auto const k = static_cast<std::int64_t>(x.extent(1));
  auto const silu = [](double t) { return t / (1 + std::exp(-t)); };
  for (std::int64_t i : sample(static_cast<std::int64_t>(out.extent(0)), 8)) {
    for (std::int64_t j : sample(static_cast<std::int64_t>(out.extent(1)), 8)) {
      auto const e = reference::gated_mlp_element(
          k, [&](std::int64_t l) { return to_double(x(i, l)); },
          [&](std::int64_t l) { return to_double(wg(j, l)); },
          [&](std::int64_t l) { return to_double(wu(j, l)); }, +silu);
      double bound = test::gated_mlp_bound<float, T>(k, e, silu(e.gate));
      if (stored)
        bound += 1.01 * test::precision<T>().roundoff *
                 (test::act_first * std::abs(e.gate * e.up) + std::abs(e.value));
      require_close(side, text("[", i, ", ", j, "]"), to_double(out(i, j)), e.value, bound);
    }
  }
}

template <class T>
void run_mlp(benchmark::State& state, Settings const& settings, int m, int n, int k) {
  Exec const exec;
  std::size_t const bytes =
      sizeof(T) * (static_cast<std::size_t>(m) * static_cast<std::size_t>(k + n) +
                   2 * static_cast<std::size_t>(n) * static_cast<std::size_t>(k));
  std::vector<MlpOperands<T>> sets;
  for (std::size_t i = count_sets(bytes, false); i > 0; --i) sets.emplace_back(m, n, k);

  std::vector<Side> sides = {{"attikos", [&](std::size_t i) {
                                gated_mlp(exec, sets[i].x, sets[i].gate_weight, sets[i].up_weight,
                                          sets[i].out);
                              }}};
  auto const product = std::make_shared<CublasLt>(
      exec, CublasLt::type_of<T>(), CublasLt::type_of<T>(), m, n, k, false, true, false);
  auto const separate = [&, product](std::size_t which, std::size_t i) {
    separate_mlp(exec, *product, which, sets[i]);
  };
  if (product->candidates() > 0) {
    std::size_t const best = fastest(exec, product->candidates(), sets.size(), separate);
    for (auto const& [name, which] :
         {std::pair{"cublaslt", std::size_t{0}}, {"cublaslt_best", best}})
      if (settings.wants(name))
        sides.push_back({name, [separate, which = which](std::size_t i) { separate(which, i); }});
  }
  for (Side const& side : sides) {
    poison(sets[0].out);
    side.run(0);
    exec.fence();
    check_mlp(side.name, sets[0], side.name != "attikos");
  }
  alternate(state, exec, sides, sets.size(),
            {4.0 * m * static_cast<double>(n) * static_cast<double>(k), "GFLOP/s"});
}

template <class T>
void add_mlp(Settings const& settings, int m, int n, int k) {
  auto const matrix = [](int terabyte, int rows, int columns) {
    return Matrix<T>(reinterpret_cast<T*>(std::uintptr_t{1} << (40 + terabyte)),
                     static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
  };
  std::string const name = explain(op::gated_mlp, Exec(), matrix(0, m, k), matrix(1, n, k),
                                   matrix(2, n, k), matrix(3, m, n))
                               .kernel;
  add_case(settings,
           text("gated_mlp/", kernel_part(name, "gated_mlp"), "/", Exec::name(), "/",
                dtype_name(dtype_of<T>), "/m", m, "_n", n, "_k", k, "/cold"),
           [&settings, m, n, k](benchmark::State& state) { run_mlp<T>(state, settings, m, n, k); });
}

}  // namespace

void register_gated_mlp(Settings const& settings) {
  for (int m : {16, 512, 4096}) {
    add_mlp<bfloat16>(settings, m, 14336, 4096);
    add_mlp<float16>(settings, m, 14336, 4096);
  }
}

}  // namespace attikos::measure
