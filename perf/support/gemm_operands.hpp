// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Operands of a product, and its result against float64: what the families of perf_gemm share.
#pragma once

#include <support/alternate.hpp>
#include <support/check.hpp>
#include <support/data.hpp>

#if defined(ATTIKOS_PERF_CUBLASLT)
#include <support/cublaslt.hpp>
#endif

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace attikos::measure {

template <class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, Memory>;

struct Shape {
  int m, n, k;
  bool trans_a = false, trans_b = false;
  bool warm = false;
  bool fast = false;  ///< float8 sums left to the tensor cores
  Compute compute = Compute::ieee;

  std::string name() const {
    return text("m", m, "_n", n, "_k", k, "_", trans_a ? "t" : "n", trans_b ? "t" : "n",
                fast ? "/fast" : "",
                compute == Compute::tf32     ? "/tf32"
                : compute == Compute::tf32x3 ? "/tf32x3"
                                             : "",
                warm ? "/warm" : "/cold");
  }
  double flop() const { return 2.0 * m * n * k; }
};

inline GemmOptions options_of(Shape const& s, char const* kernel) {
  return {.trans_a = s.trans_a,
          .trans_b = s.trans_b,
          .compute = s.compute,
          .accumulate = s.fast ? Accumulate::fast : Accumulate::promoted,
          .kernel = kernel};
}

constexpr Shape square(int size, bool trans_b, bool warm = false) {
  return {size, size, size, false, trans_b, warm};
}

/// Squares and rectangles that keep the whole device busy.
inline constexpr Shape large[] = {{1024, 1024, 1024},  {2048, 2048, 2048},    {4096, 4096, 4096},
                                  {8192, 8192, 8192},  {16384, 16384, 16384}, {4096, 14336, 4096},
                                  {4096, 4096, 14336}, {8192, 8192, 512},     {8192, 28672, 8192}};

/// A layer's weights [n, k], for few tokens m.
inline constexpr Shape weights[] = {
    {0, 14336, 4096, false, true}, {0, 4096, 14336, false, true}, {0, 6144, 4096, false, true}};

template <class A, class B, class C>
struct Operands {
  Matrix<A> a;
  Matrix<B> b;
  Matrix<C> c;
  std::vector<float> a32, b32, c32;  ///< for a peer that has float32 only; else empty

  explicit Operands(Shape const& s)
      : a(Kokkos::view_alloc("a", Kokkos::WithoutInitializing), extent(s.trans_a ? s.k : s.m),
          extent(s.trans_a ? s.m : s.k)),
        b(Kokkos::view_alloc("b", Kokkos::WithoutInitializing), extent(s.trans_b ? s.n : s.k),
          extent(s.trans_b ? s.k : s.n)),
        c(Kokkos::view_alloc("c", Kokkos::WithoutInitializing), extent(s.m), extent(s.n)) {
    fill_normal(a);
    fill_normal(b);
  }
  static std::size_t extent(int value) { return static_cast<std::size_t>(value); }
};

/// What rounding float operands to tf32, of 11 bits, may add to a sum with Σ|a||b| = `magnitude`;
/// 1.5·2^-10 would do, and three products leave the square of a rounding, 2^-22, and what is
/// dropped from the smaller terms.
constexpr double tf32_error(Compute compute, double magnitude) {
  return compute == Compute::tf32     ? 0x1p-9 * magnitude
         : compute == Compute::tf32x3 ? 0x1p-19 * magnitude
                                      : 0;
}

/// Sampled entries of C against float64; the ends of both dimensions are among them. Returns the
/// largest error, of entries times Σ|a||b|.
template <class A, class B, class C>
double check_result(std::string const& side, Shape const& s, Operands<A, B, C> const& x) {
  double worst = 0;
  auto const a = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.a);
  auto const b = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.b);
  auto const c = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.c);
  require_written(side, c);
  for (std::int64_t i : sample(s.m, 16)) {
    for (std::int64_t j : sample(s.n, 16)) {
      auto const row = [&](std::int64_t l) { return s.trans_a ? a(l, i) : a(i, l); };
      auto const column = [&](std::int64_t l) { return s.trans_b ? b(j, l) : b(l, j); };
      std::string const where = text("[", i, ", ", j, "]");
      if constexpr (std::is_integral_v<A>) {
        require_close(side, where, c(i, j), reference::gemm_element_int8(s.k, row, column, 0), 0);
      } else {
        auto const wide_row = [&](std::int64_t l) { return to_double(row(l)); };
        auto const wide_column = [&](std::int64_t l) { return to_double(column(l)); };
        auto const element = reference::gemm_element(s.k, wide_row, wide_column, {});
        double bound = test::gemm_bound<test::Accumulator<A, B, C>, C>(s.k, element, {});
        if constexpr (!on_host && sizeof(A) == 1)
          bound += test::float8_tensor_core_error(
              s.k, !s.fast, [&](std::int64_t l) { return wide_row(l) * wide_column(l); });
        if constexpr (std::is_same_v<A, float>) bound += tf32_error(s.compute, element.magnitude);
        double const computed = to_double(c(i, j));
        require_close(side, where, computed, element.value, bound);
        if (element.magnitude > 0)
          worst = std::max(worst, std::abs(computed - element.value) / element.magnitude);
      }
    }
  }
  return worst;
}

#if defined(ATTIKOS_PERF_CUBLASLT)
using Float8Operands = Operands<float8_e4m3, float8_e4m3, bfloat16>;

/// Factors between 1/4 and 4.
template <class View>
void fill_factors(View const& view, unsigned seed) {
  auto const host = Kokkos::create_mirror_view(view);
  std::mt19937 generator(seed);
  for (std::size_t i = 0; i < host.span(); ++i)
    host.data()[i] = std::exp2(static_cast<float>(generator() % 4096) / 1024 - 2);
  Kokkos::deep_copy(view, host);
}

/// Number of the heuristic with the least time of three blocks; `run(heuristic, set)`.
template <class Run>
std::size_t fastest(Exec const& exec, std::size_t candidates, std::size_t sets, Run const& run) {
  Timer timer(exec);
  std::size_t best = 0, set = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t which = 0; which < candidates; ++which) {
    auto const block = [&](std::size_t calls) {
      return timer.seconds(calls, [&] { run(which, set = (set + 1) % sets); }).back();
    };
    try {
      block(1);  // wakes the kernel up
      auto const calls = static_cast<std::size_t>(std::clamp(0.02 / block(1), 1.0, 10.0));
      for (int i = 0; i < 3; ++i) {
        double const seconds = block(calls);
        if (seconds < least) {
          least = seconds;
          best = which;
        }
      }
    } catch (std::runtime_error const&) {
      // a heuristic that cannot run
    }
  }
  return best;
}

/// The families with a file of their own.
void register_gemm_bandwidth(Settings const& settings);
void register_gemm_batched(Settings const& settings);
void register_gemm_grouped(Settings const& settings);
void register_gemm_scaled(Settings const& settings);
void register_gemm_block_scales(Settings const& settings);
void register_gated_mlp(Settings const& settings);
#endif

}  // namespace attikos::measure
