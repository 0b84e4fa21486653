// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// validate_gemm(): a user's matrix product against the float64 oracle.
#pragma once

#include <attikos/core/dtypes.hpp>
#include <attikos/reference/gemm_reference.hpp>
#include <attikos/testing/bounds.hpp>
#include <attikos/testing/validation.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace testing {

/// What the callable of validate_gemm() is to compute, and on which data.
struct GemmValidation {
  double alpha = 1;
  double beta = 0;  ///< with 0, C comes full of NaN
  bool trans_a = false;
  bool trans_b = false;
  std::int64_t rows = 64;  ///< rows of C that are compared, evenly spread; the rest must be written
  std::uint64_t seed = 1;
};

/// Runs the user's C = alpha·op(A)·op(B) + beta·C on random-normal data and compares with the
/// float64 product of the stored inputs, element by element, within gemm_bound(), to
/// which float8 matrices on a device add float8_tensor_core_error() of one sum over all k.
///
/// \tparam A, B, C  element types; int8, int8, int32 is compared exactly
/// \param exec      where the Views lie
/// \param callable  `callable(exec, a, b, c)` or `callable(a, b, c)` with row-major Views: A [m, k]
///                  ([k, m] with `trans_a`) and B [k, n] ([n, k] with `trans_b`), read-only, C [m,
///                  n]. It may return before it is done: the device is fenced before C is read.
/// \param m, n, k   0 or more; ShapeError otherwise
///
/// What the callable throws passes through. Example:
/// `validate_gemm<bfloat16>(exec, [](auto exec, auto a, auto b, auto c) { gemm(exec, a, b, c); },
/// 128, 96, 512).ok`.
template <class A = float, class B = A, class C = A, ExecutionSpace Exec, class Callable>
ValidationResult validate_gemm(Exec const& exec, Callable&& callable, std::int64_t m,
                               std::int64_t n, std::int64_t k, GemmValidation const& options = {}) {
  using namespace detail;
  check_extent("validate_gemm", "m", m);
  check_extent("validate_gemm", "n", n);
  check_extent("validate_gemm", "k", k);
  check_extent("validate_gemm", "rows", options.rows, 1);
  using Device = Kokkos::Device<Exec, typename Exec::memory_space>;
  using Layout = Kokkos::LayoutRight;
  auto const rows_of = [](bool transposed, std::int64_t rows, std::int64_t cols) {
    return size(transposed ? cols : rows);
  };
  Kokkos::View<A**, Layout, Device> const a("attikos::testing::A", rows_of(options.trans_a, m, k),
                                            rows_of(options.trans_a, k, m));
  Kokkos::View<B**, Layout, Device> const b("attikos::testing::B", rows_of(options.trans_b, k, n),
                                            rows_of(options.trans_b, n, k));
  Kokkos::View<C**, Layout, Device> const c("attikos::testing::C", size(m), size(n));
  Random random(options.seed);
  auto const value_a = fill_normal(a, random);
  auto const value_b = fill_normal(b, random);
  std::vector<double> value_c;
  if (options.beta != 0)
    value_c = fill_normal(c, random);
  else
    fill_unwritten(c);
  Kokkos::fence("attikos::testing::validate_gemm: before");

  Kokkos::View<A const**, Layout, Device> const const_a = a;
  Kokkos::View<B const**, Layout, Device> const const_b = b;
  if constexpr (std::is_invocable_v<Callable&, Exec const&, decltype(const_a), decltype(const_b),
                                    decltype(c)>) {
    callable(exec, const_a, const_b, c);
  } else {
    callable(const_a, const_b, c);
  }
  Kokkos::fence("attikos::testing::validate_gemm: after");

  auto const host = host_copy(c);
  std::ostringstream what;
  what << "gemm m " << m << " n " << n << " k " << k << " of " << dtype_name(dtype_of<A>) << ", "
       << dtype_name(dtype_of<B>) << ", " << dtype_name(dtype_of<C>);
  Judge judge(what.str());
  auto const at_a = [&](std::int64_t i, std::int64_t l) {
    return value_a[size(options.trans_a ? l * m + i : i * k + l)];
  };
  auto const at_b = [&](std::int64_t l, std::int64_t j) {
    return value_b[size(options.trans_b ? j * k + l : l * n + j)];
  };
  auto const rows = sampled(m, options.rows);
  auto next = rows.begin();
  for (std::int64_t i = 0; i < m; ++i) {
    bool const compared = next != rows.end() && *next == i;
    if (compared) ++next;
    for (std::int64_t j = 0; j < n; ++j) {
      auto const place = size(i * n + j);
      double const got = to_double(host.data()[place]);
      double const before = options.beta != 0 ? value_c[place] : 0.0;
      if (!compared) {
        judge.add_unsampled("C", got, {i, j});
      } else if constexpr (std::is_integral_v<A>) {
        static_assert(std::is_integral_v<B> && std::is_integral_v<C>,
                      "attikos::testing::validate_gemm: integers are multiplied with integers");
        double exact = options.beta * before;
        for (std::int64_t l = 0; l < k; ++l) exact += options.alpha * at_a(i, l) * at_b(l, j);
        judge.add("C", got, exact, 0, {i, j});
      } else {
        reference::GemmTerms terms;
        terms.alpha = options.alpha;
        terms.beta = options.beta;
        terms.c = before;
        auto const want = reference::gemm_element(
            k, [&](std::int64_t l) { return at_a(i, l); },
            [&](std::int64_t l) { return at_b(l, j); }, terms);
        double bound = gemm_bound<Accumulator<A, B, C>, C>(k, want, terms);
        if constexpr (sizeof(A) == 1 && sizeof(B) == 1 && !is_host_space<Exec>)
          bound += 1.01 * std::abs(options.alpha) *
                   float8_tensor_core_error(
                       k, false, [&](std::int64_t l) { return at_a(i, l) * at_b(l, j); });
        judge.add("C", got, want.value, bound, {i, j});
      }
    }
  }
  return judge.result();
}

/// The same on an instance of the default execution space.
template <class A = float, class B = A, class C = A, class Callable>
requires(!ExecutionSpace<Callable>) ValidationResult
    validate_gemm(Callable&& callable, std::int64_t m, std::int64_t n, std::int64_t k,
                  GemmValidation const& options = {}) {
  return validate_gemm<A, B, C>(Kokkos::DefaultExecutionSpace{}, callable, m, n, k, options);
}

}  // namespace testing
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
