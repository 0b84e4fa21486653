// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The product of two blocks in scratch, as one thread of a team computes its part of it.
#pragma once

#include <attikos/core/fragments/factor.hpp>
#include <attikos/core/fragments/unroll.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// sums[i][j] += A_i · B_j over `Depth` of k. A_i begins i fragments of rows behind `a`, B_j so
/// many of columns behind `b`, which are where this lane loads: offset included.
template <class F, int Depth, int FragmentsM, int FragmentsN>
KOKKOS_INLINE_FUNCTION void multiply_staged(typename F::Element const* a, FactorPlace place_a,
                                            typename F::Element const* b, FactorPlace place_b,
                                            typename F::Sums (&sums)[FragmentsM][FragmentsN]) {
  static_assert(Depth % F::depth == 0);
  constexpr int steps = Depth / F::depth;
  constexpr int slots = F::loads_ahead ? 2 : 1;
  typename F::Left left[slots][FragmentsM];
  typename F::Right right[slots][FragmentsN];
  auto const load = [&](int slot, int k) {
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < FragmentsM; ++i)
      F::load_left(left[slot][i], a + i * F::rows * place_a.mn + k * place_a.k, place_a);
    ATTIKOS_UNROLL_DEVICE
    for (int j = 0; j < FragmentsN; ++j)
      F::load_right(right[slot][j], b + j * F::cols * place_b.mn + k * place_b.k, place_b);
  };
  if (F::loads_ahead) load(0, 0);
  ATTIKOS_UNROLL_DEVICE
  for (int s = 0; s < steps; ++s) {
    if (!F::loads_ahead)
      load(0, s * F::depth);
    else if (s + 1 < steps)
      load((s + 1) % 2, (s + 1) * F::depth);
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < FragmentsM; ++i) ATTIKOS_UNROLL_DEVICE
    for (int j = 0; j < FragmentsN; ++j)
      F::multiply_add(sums[i][j], left[s % slots][i], right[s % slots][j]);
  }
}

/// Loads factors A, which begin i fragments of rows and s of k behind `a`, offset included.
template <class F, int FragmentsM, int Steps>
KOKKOS_INLINE_FUNCTION void load_held(typename F::Left (&left)[FragmentsM][Steps],
                                      typename F::Element const* a, FactorPlace place_a) {
  ATTIKOS_UNROLL_DEVICE
  for (int i = 0; i < FragmentsM; ++i) ATTIKOS_UNROLL_DEVICE
  for (int s = 0; s < Steps; ++s)
    F::load_left(left[i][s], a + i * F::rows * place_a.mn + s * F::depth * place_a.k, place_a);
}

/// sums[i][j] += A_i · B_j of factors A that a thread holds, `Steps` of them along k.
template <class F, int FragmentsM, int Steps, int FragmentsN>
KOKKOS_INLINE_FUNCTION void multiply_held(typename F::Left const (&left)[FragmentsM][Steps],
                                          typename F::Element const* b, FactorPlace place_b,
                                          typename F::Sums (&sums)[FragmentsM][FragmentsN]) {
  ATTIKOS_UNROLL_DEVICE
  for (int s = 0; s < Steps; ++s) ATTIKOS_UNROLL_DEVICE
  for (int j = 0; j < FragmentsN; ++j) {
    typename F::Right right;
    F::load_right(right, b + j * F::cols * place_b.mn + s * F::depth * place_b.k, place_b);
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < FragmentsM; ++i) F::multiply_add(sums[i][j], left[i][s], right);
  }
}

/// sums[i][j] += P_i · B_j of what is itself sums, `Blocks` of them along k, rounded as factors
/// are.
template <class F, int FragmentsM, int Blocks, int FragmentsN>
KOKKOS_INLINE_FUNCTION void multiply_sums(typename F::Sums const (&p)[FragmentsM][Blocks],
                                          typename F::Element const* b, FactorPlace place_b,
                                          typename F::Sums (&sums)[FragmentsM][FragmentsN]) {
  static_assert(F::sums_make_left && F::depth % F::cols == 0);
  constexpr int of_left = F::depth / F::cols;
  ATTIKOS_UNROLL_DEVICE
  for (int k = 0; k < Blocks / of_left; ++k) {
    typename F::Left left[FragmentsM];
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < FragmentsM; ++i) {
      typename F::Sums block[of_left];
      ATTIKOS_UNROLL_DEVICE
      for (int n = 0; n < of_left; ++n) block[n] = p[i][k * of_left + n];
      F::left_of(left[i], block);
    }
    ATTIKOS_UNROLL_DEVICE
    for (int j = 0; j < FragmentsN; ++j) {
      typename F::Right right;
      F::load_right(right, b + j * F::cols * place_b.mn + k * F::depth * place_b.k, place_b);
      ATTIKOS_UNROLL_DEVICE
      for (int i = 0; i < FragmentsM; ++i) F::multiply_add(sums[i][j], left[i], right);
    }
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
