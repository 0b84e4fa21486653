// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm beside OpenBLAS and Kokkos Kernels on the host and cuBLASLt on CUDA: its first heuristic,
// and the best of its first ten.
//
// Case names: gemm/<kernel>/<execution space>/<types of A, B, C>/m.._n.._k.._<op(A)><op(B)>/<cold
// or warm>, with /fast, /tf32 or /tf32x3 before the last part. On CUDA other families follow:
// gemm_bandwidth, gemm_batched, gemm_grouped, gemm_scaled, gemm_block_scales, gated_mlp, each with
// a file of its own. `--benchmark_filter=^gemm/` runs one of them; report_gemm.py prints the goals
// and what was reached from the JSON file.
#include <support/gemm_operands.hpp>
#if !defined(KOKKOS_ENABLE_CUDA)
#include <support/openblas.hpp>
#if defined(ATTIKOS_HAVE_KOKKOS_KERNELS)
#include <KokkosBlas3_gemm.hpp>
#endif
#endif

#include <memory>

namespace attikos::measure {
namespace {

/// The peers that can do this product. Those named `..._float32` do it on float32 copies of
/// narrower operands.
template <class A, class B, class C>
std::vector<Side> peers_of(Settings const& settings, Shape const& s,
                           std::vector<Operands<A, B, C>>& sets,
                           [[maybe_unused]] Exec const& exec) {
  std::vector<Side> sides;
  [[maybe_unused]] constexpr bool plain =
      std::is_same_v<A, B> && std::is_same_v<A, C> && std::is_floating_point_v<A>;
  [[maybe_unused]] auto const add = [&](char const* name, auto run) {
    if (settings.wants(name)) sides.push_back({name, run});
  };
#if !defined(KOKKOS_ENABLE_CUDA)
  if constexpr (plain) {
    add("openblas", [&sets, s](std::size_t i) {
      auto const& x = sets[i];
      openblas_gemm<A>(s.m, s.n, s.k, s.trans_a, s.trans_b, 1, x.a.data(), x.b.data(), x.c.data());
    });
#if defined(ATTIKOS_HAVE_KOKKOS_KERNELS)
    add("kokkos_kernels", [&sets, s, exec](std::size_t i) {
      auto const& x = sets[i];
      KokkosBlas::gemm(exec, s.trans_a ? "T" : "N", s.trans_b ? "T" : "N", A(1), x.a, x.b, A(0),
                       x.c);
    });
#endif
  } else if (settings.wants("openblas_float32")) {
    for (auto& x : sets) {
      x.a32 = float_copy(x.a);
      x.b32 = float_copy(x.b);
      x.c32.resize(x.c.span());
    }
    add("openblas_float32", [&sets, s](std::size_t i) {
      auto& x = sets[i];
      openblas_gemm<float>(s.m, s.n, s.k, s.trans_a, s.trans_b, 1, x.a32.data(), x.b32.data(),
                           x.c32.data());
    });
  }
#elif defined(ATTIKOS_PERF_CUBLASLT)
  if constexpr (std::is_same_v<A, B>) {
    auto const call_of = [&](bool tf32) {
      auto const peer =
          std::make_shared<CublasLt>(exec, CublasLt::type_of<A>(), CublasLt::type_of<C>(), s.m, s.n,
                                     s.k, s.trans_a, s.trans_b, s.fast, tf32);
      return CublasLtCall<Operands<A, B, C>>{peer, &sets, 0};
    };
    // The peer of tf32x3, as exact as it means to be, is float32; of tf32 it is tf32.
    auto call = call_of(s.compute == Compute::tf32);
    if (call.peer->candidates() > 0) {
      add(s.compute == Compute::tf32x3 ? "cublaslt_float32" : "cublaslt", call);
      call.which = fastest(exec, call.peer->candidates(), sets.size(),
                           [&](std::size_t which, std::size_t set) { call.run(which, set); });
      add(s.compute == Compute::tf32x3 ? "cublaslt_float32_best" : "cublaslt_best", call);
    }
    if (s.compute != Compute::ieee) {
      auto const other = call_of(s.compute == Compute::tf32x3);
      if (other.peer->candidates() > 0)
        add(s.compute == Compute::tf32x3 ? "cublaslt_tf32" : "cublaslt_float32", other);
    }
  }
#endif
  return sides;
}

template <class A, class B, class C>
void run_gemm(benchmark::State& state, Settings const& settings, Shape const& s,
              char const* kernel) {
  Exec const exec;
  std::size_t const bytes =
      static_cast<std::size_t>(s.m) * static_cast<std::size_t>(s.k) * sizeof(A) +
      static_cast<std::size_t>(s.n) * static_cast<std::size_t>(s.k) * sizeof(B) +
      static_cast<std::size_t>(s.m) * static_cast<std::size_t>(s.n) * sizeof(C);
  std::vector<Operands<A, B, C>> sets;
  for (std::size_t i = count_sets(bytes, s.warm); i > 0; --i) sets.emplace_back(s);

  GemmOptions const options = options_of(s, kernel);
  std::vector<Side> sides = {
      {"attikos", [&](std::size_t i) { gemm(exec, sets[i].a, sets[i].b, sets[i].c, options); }}};
  for (Side& peer : peers_of(settings, s, sets, exec)) sides.push_back(std::move(peer));

  for (Side const& side : sides) {
    poison(sets[0].c);
    side.run(0);
    exec.fence();
#if !defined(KOKKOS_ENABLE_CUDA)
    if (!sets[0].c32.empty() && side.name != "attikos") {
      auto& x = sets[0];
      Operands<float, float, float> wide(Shape{0, 0, 0});
      wide.a = Matrix<float>(x.a32.data(), x.a.extent(0), x.a.extent(1));
      wide.b = Matrix<float>(x.b32.data(), x.b.extent(0), x.b.extent(1));
      wide.c = Matrix<float>(x.c32.data(), x.c.extent(0), x.c.extent(1));
      check_result(side.name, s, wide);
      continue;
    }
#endif
    Shape stated = s;  // with the precision that this side states
    if (side.name.find("tf32") != std::string::npos) stated.compute = Compute::tf32;
    if (side.name.find("float32") != std::string::npos) stated.compute = Compute::ieee;
    double const error = check_result(side.name, stated, sets[0]);
    if (s.compute != Compute::ieee)
      state.counters[side.name == "attikos" ? "error" : text(side.name, ":error")] = error;
  }
  alternate(state, exec, sides, sets.size(), {s.flop(), "GFLOP/s"});
}

/// The kernel's name comes from explain(), so a case cannot say that one kernel ran while another
/// did.
template <class A, class B, class C>
void add(Settings const& settings, Shape const& s, char const* kernel = "portable") {
  // Never followed, but aligned as allocations are: kernels look at that.
  auto const somewhere = [](int terabyte) { return std::uintptr_t{1} << (40 + terabyte); };
  Matrix<A> const a(reinterpret_cast<A*>(somewhere(0)),
                    Operands<A, B, C>::extent(s.trans_a ? s.k : s.m),
                    Operands<A, B, C>::extent(s.trans_a ? s.m : s.k));
  Matrix<B> const b(reinterpret_cast<B*>(somewhere(1)),
                    Operands<A, B, C>::extent(s.trans_b ? s.n : s.k),
                    Operands<A, B, C>::extent(s.trans_b ? s.k : s.n));
  Matrix<C> const c(reinterpret_cast<C*>(somewhere(2)), Operands<A, B, C>::extent(s.m),
                    Operands<A, B, C>::extent(s.n));
  std::string name = kernel;
  try {
    name = explain(op::gemm, Exec(), a, b, c, options_of(s, kernel)).kernel;
  } catch (Error const&) {
    // The case itself reports why the kernel cannot run.
  }
  std::string const types =
      text(dtype_name(dtype_of<A>), "_", dtype_name(dtype_of<B>), "_", dtype_name(dtype_of<C>));
  add_case(settings,
           text("gemm/", kernel_part(name, "gemm"), "/", Exec::name(), "/", types, "/", s.name()),
           [&settings, s, kernel](benchmark::State& state) {
             run_gemm<A, B, C>(state, settings, s, kernel);
           });
}

#if defined(KOKKOS_ENABLE_CUDA)
constexpr char const* automatic = "";
#endif

}  // namespace

void register_cases(Settings const& settings) {
#if !defined(KOKKOS_ENABLE_CUDA)
  prepare_openblas(Exec().concurrency());
#if defined(ATTIKOS_HAVE_KOKKOS_KERNELS) && defined(KOKKOSKERNELS_VERSION)
  benchmark::AddCustomContext(
      "kokkos_kernels", text(KOKKOSKERNELS_VERSION / 10000, ".", KOKKOSKERNELS_VERSION / 100 % 100,
                             ".", KOKKOSKERNELS_VERSION % 100));
#endif
  for (int size : {512, 1024, 2048})
    for (bool trans_b : {false, true}) add<float, float, float>(settings, square(size, trans_b));
  add<float, float, float>(settings, square(512, true, true));
  add<float, float, float>(settings, square(1024, true, true));
  // The linear layers of a small transformer, 128 and 512 tokens: weights [n, k].
  add<float, float, float>(settings, {128, 384, 384, false, true});
  add<float, float, float>(settings, {128, 384, 384, false, true, true});
  add<float, float, float>(settings, {512, 1536, 384, false, true});
  add<float, float, float>(settings, {512, 384, 1536, false, true});
  add<double, double, double>(settings, square(1024, false));
  add<double, double, double>(settings, square(1024, true));
#if defined(ATTIKOS_HAVE_KOKKOS_KERNELS)
  add<float, float, float>(settings, square(1024, false), "kokkos_kernels");
  add<float, float, float>(settings, square(1024, true), "kokkos_kernels");
  add<double, double, double>(settings, square(1024, true), "kokkos_kernels");
#endif
#else
  for (int ops = 0; ops < 4; ++ops) {
    for (Shape s : large) {
      s.trans_a = (ops & 1) != 0, s.trans_b = (ops & 2) == 0;
      add<bfloat16, bfloat16, bfloat16>(settings, s, automatic);
      add<float16, float16, float16>(settings, s, automatic);
    }
  }
  for (Shape s : large) {
    add<std::int8_t, std::int8_t, std::int32_t>(settings, s, automatic);  // B [k, n]
    s.trans_b = true;
    add<std::int8_t, std::int8_t, std::int32_t>(settings, s, automatic);
    add<float8_e4m3, float8_e4m3, bfloat16>(settings, s, automatic);
    s.fast = true;
    add<float8_e4m3, float8_e4m3, bfloat16>(settings, s, automatic);
  }
  for (int m : {1, 4, 16, 32, 64, 128, 256, 512}) {
    for (Shape s : weights) {
      s.m = m;
      add<bfloat16, bfloat16, bfloat16>(settings, s, automatic);
      add<float16, float16, float16>(settings, s, automatic);
      s.fast = true;
      add<float8_e4m3, float8_e4m3, bfloat16>(settings, s, automatic);
    }
  }
  add<bfloat16, bfloat16, bfloat16>(settings, square(512, true), automatic);
  add<float16, float16, float16>(settings, square(512, true), automatic);
  add<float16, float16, float>(settings, square(1024, true), "gemm/sm75_wmma_f16");
  add<float16, float16, float>(settings, square(4096, true), "gemm/sm75_wmma_f16");
  add<float16, float16, float>(settings, square(4096, false), "gemm/sm75_wmma_f16");
  for (int size : {1024, 2048, 4096, 8192}) {
    for (int ops = 0; ops < 4; ++ops) {
      Shape const s{size, size, size, (ops & 1) != 0, (ops & 2) == 0};
      add<float, float, float>(settings, s, automatic);
      add<double, double, double>(settings, s, automatic);
    }
  }
  for (int size : {2048, 4096, 8192}) {
    for (bool trans_b : {false, true}) {
      Shape s = square(size, trans_b);
      for (Compute compute : {Compute::tf32, Compute::tf32x3}) {
        s.compute = compute;
        add<float, float, float>(settings, s, automatic);
      }
    }
  }
  add<double, double, double>(settings, square(1024, true));
#if defined(ATTIKOS_PERF_CUBLASLT)
  register_gemm_bandwidth(settings);
  register_gemm_batched(settings);
  register_gemm_grouped(settings);
  register_gemm_scaled(settings);
  register_gemm_block_scales(settings);
  register_gated_mlp(settings);
#endif
#endif
  add<float16, float16, float>(settings, square(1024, true));
  add<bfloat16, bfloat16, float>(settings, square(1024, true));
  add<bfloat16, bfloat16, bfloat16>(settings, square(1024, true));
  add<std::int8_t, std::int8_t, std::int32_t>(settings, square(1024, true));
}

}  // namespace attikos::measure
