// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// validate_attention(): a user's attention against the float64 oracle.
#pragma once

#include <attikos/core/dtypes.hpp>
#include <attikos/reference/attention_reference.hpp>
#include <attikos/testing/bounds.hpp>
#include <attikos/testing/validation.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace testing {

/// Extents of one problem.
struct AttentionProblem {
  std::int64_t batch = 1;
  std::int64_t heads_q = 1;
  std::int64_t heads_kv = 1;  ///< divides heads_q
  std::int64_t seqlen_q = 1;
  std::int64_t seqlen_kv = 1;
  std::int64_t head_dim = 64;
  std::int64_t head_dim_v = 0;  ///< 0 means head_dim
};

/// What the callable of validate_attention() is to compute, and on which data.
struct AttentionValidation {
  double softmax_scale = 0;  ///< 0 means 1/√head_dim
  bool causal = false;       ///< key j is seen by query i if j ≤ i + seqlen_kv − seqlen_q
  bool top_left = false;     ///< causal with j ≤ i instead
  std::int64_t rows = 16;    ///< queries of each head that are compared, evenly spread
  std::uint64_t seed = 1;
};

/// Runs the user's out = softmax(scale·q·kᵀ + mask)·v on random-normal data and compares with the
/// float64 result of the stored inputs, element by element, within AttentionBound,
/// which allows for weights rounded to a 16-bit T.
///
/// \tparam T        element type of q, k, v and out
/// \param exec      where the Views lie
/// \param callable  `callable(exec, q, k, v, out, lse)`, `callable(exec, q, k, v, out)` or
///                  `callable(q, k, v, out)` with row-major Views: q [batch, heads_q, seqlen_q, d],
///                  k [batch, heads_kv, seqlen_kv, d], v [batch, heads_kv, seqlen_kv, dv],
///                  read-only, out [batch, heads_q, seqlen_q, dv] and lse [batch, heads_q,
///                  seqlen_q] of float (double for double), which is compared too. It may return
///                  before it is done: the device is fenced before its result is read.
/// \param problem   extents of 0 or more, heads_q a multiple of heads_kv; ShapeError otherwise
///
/// What the callable throws passes through. Time grows with rows·seqlen_kv, not with seqlen_q.
template <class T = float, ExecutionSpace Exec, class Callable>
ValidationResult validate_attention(Exec const& exec, Callable&& callable,
                                    AttentionProblem const& problem,
                                    AttentionValidation const& options = {}) {
  using namespace detail;
  constexpr char const* name = "validate_attention";
  auto const& p = problem;
  std::int64_t const dv = p.head_dim_v == 0 ? p.head_dim : p.head_dim_v;
  check_extent(name, "batch", p.batch);
  check_extent(name, "heads_q", p.heads_q);
  check_extent(name, "heads_kv", p.heads_kv);
  check_extent(name, "seqlen_q", p.seqlen_q);
  check_extent(name, "seqlen_kv", p.seqlen_kv);
  check_extent(name, "head_dim", p.head_dim);
  check_extent(name, "head_dim_v", dv);
  check_extent(name, "rows", options.rows, 1);
  if (p.heads_kv == 0 ? p.heads_q != 0 : p.heads_q % p.heads_kv != 0)
    attikos::detail::raise<ShapeError>("testing::validate_attention: heads_q is ", p.heads_q,
                                       "; expected a multiple of heads_kv, which is ", p.heads_kv);
  double const scale = options.softmax_scale != 0
                           ? options.softmax_scale
                           : 1 / std::sqrt(std::max(1.0, static_cast<double>(p.head_dim)));

  using Device = Kokkos::Device<Exec, typename Exec::memory_space>;
  using Layout = Kokkos::LayoutRight;
  using Lse = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Kokkos::View<T****, Layout, Device> const q("attikos::testing::q", size(p.batch), size(p.heads_q),
                                              size(p.seqlen_q), size(p.head_dim));
  Kokkos::View<T****, Layout, Device> const k(
      "attikos::testing::k", size(p.batch), size(p.heads_kv), size(p.seqlen_kv), size(p.head_dim));
  Kokkos::View<T****, Layout, Device> const v("attikos::testing::v", size(p.batch),
                                              size(p.heads_kv), size(p.seqlen_kv), size(dv));
  Kokkos::View<T****, Layout, Device> const out("attikos::testing::out", size(p.batch),
                                                size(p.heads_q), size(p.seqlen_q), size(dv));
  Kokkos::View<Lse***, Layout, Device> const lse("attikos::testing::lse", size(p.batch),
                                                 size(p.heads_q), size(p.seqlen_q));
  Random random(options.seed);
  auto const value_q = fill_normal(q, random);
  auto const value_k = fill_normal(k, random);
  auto const value_v = fill_normal(v, random);
  fill_unwritten(out);
  fill_unwritten(lse);
  Kokkos::fence("attikos::testing::validate_attention: before");

  using In = Kokkos::View<T const****, Layout, Device>;
  constexpr bool with_lse =
      std::is_invocable_v<Callable&, Exec const&, In, In, In, decltype(out), decltype(lse)>;
  if constexpr (with_lse) {
    callable(exec, In(q), In(k), In(v), out, lse);
  } else if constexpr (std::is_invocable_v<Callable&, Exec const&, In, In, In, decltype(out)>) {
    callable(exec, In(q), In(k), In(v), out);
  } else {
    callable(In(q), In(k), In(v), out);
  }
  Kokkos::fence("attikos::testing::validate_attention: after");

  auto const host_out = host_copy(out);
  auto const host_lse = host_copy(lse);
  std::ostringstream what;
  what << "attention batch " << p.batch << " heads " << p.heads_q << "/" << p.heads_kv << " seqlen "
       << p.seqlen_q << "/" << p.seqlen_kv << " head_dim " << p.head_dim << "/" << dv
       << (options.causal ? (options.top_left ? " causal top-left" : " causal") : "") << " of "
       << dtype_name(dtype_of<T>);
  Judge judge(what.str());
  auto const rows = sampled(p.seqlen_q, options.rows);
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.heads_q; ++h) {
      std::int64_t const head = b * p.heads_q + h;
      std::int64_t const head_kv = b * p.heads_kv + h / (p.heads_q / p.heads_kv);
      auto const at_k = [&](std::int64_t j, std::int64_t c) {
        return value_k[size((head_kv * p.seqlen_kv + j) * p.head_dim + c)];
      };
      auto const at_v = [&](std::int64_t j, std::int64_t c) {
        return value_v[size((head_kv * p.seqlen_kv + j) * dv + c)];
      };
      for (std::int64_t i = 0; i < p.seqlen_q; ++i)
        for (std::int64_t c = 0; c < dv; ++c)
          judge.add_unsampled("out",
                              to_double(host_out.data()[size((head * p.seqlen_q + i) * dv + c)]),
                              {b, h, i, c});
      for (std::int64_t i : rows) {
        auto const row = reference::attention_row(
            reference::visible_keys(i, p.seqlen_q, p.seqlen_kv, options.causal, options.top_left),
            p.head_dim, dv, scale,
            [&](std::int64_t c) { return value_q[size((head * p.seqlen_q + i) * p.head_dim + c)]; },
            at_k, at_v);
        AttentionBound<T> const bound(row, p.head_dim, true);
        for (std::int64_t c = 0; c < dv; ++c)
          judge.add("out", to_double(host_out.data()[size((head * p.seqlen_q + i) * dv + c)]),
                    row.out[size(c)],
                    bound.out(size(c), [&](std::int64_t j) { return at_v(j, c); }), {b, h, i, c});
        if constexpr (with_lse)
          judge.add("lse", to_double(host_lse.data()[size(head * p.seqlen_q + i)]), row.lse,
                    bound.lse(), {b, h, i});
      }
    }
  }
  return judge.result();
}

/// The same on an instance of the default execution space.
template <class T = float, class Callable>
requires(!ExecutionSpace<Callable>) ValidationResult
    validate_attention(Callable&& callable, AttentionProblem const& problem,
                       AttentionValidation const& options = {}) {
  return validate_attention<T>(Kokkos::DefaultExecutionSpace{}, callable, problem, options);
}

}  // namespace testing
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
