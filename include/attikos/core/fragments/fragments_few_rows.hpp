// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Fragments of few rows, in arithmetic that all devices have.
#pragma once

#include <attikos/core/fragments/fragments.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// A lane has one column of C, all `Rows` rows of it, and takes 16 bytes of K at a time. Sums run
/// over k in ascending order, with fused operations where the compiler has them. PlainFragments
/// have more rows than decoding has queries, and would multiply zeros in most of them.
template <class T, int Lanes, int Rows>
struct FewRowFragments {
  static_assert(Lanes > 0 && (Lanes & (Lanes - 1)) == 0);
  using Element = T;
  using Sum = T;
  static constexpr char const* name = "";
  static constexpr int lanes = Lanes;
  static constexpr int rows = Rows, cols = Lanes, depth = 16 / static_cast<int>(sizeof(T));
  static constexpr bool reads_k_major = true, reads_k_major_alone = false;
  static constexpr int pad_k = depth, pad_mn = depth;
  static constexpr bool loads_ahead = false;

  struct alignas(16) Run {
    T value[depth];
  };
  struct Left {
    Run row[Rows];
  };
  struct Right {
    Run run;
  };
  struct Sums {
    T value[Rows];
  };

  KOKKOS_INLINE_FUNCTION static int left_offset(FactorPlace, int) { return 0; }
  KOKKOS_INLINE_FUNCTION static int right_offset(FactorPlace place, int lane) {
    return lane * place.mn;
  }
  KOKKOS_INLINE_FUNCTION static void load_left(Left& left, T const* p, FactorPlace place) {
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Rows; ++i) load(left.row[i], p + i * place.mn, place);
  }
  KOKKOS_INLINE_FUNCTION static void load_right(Right& right, T const* p, FactorPlace place) {
    load(right.run, p, place);
  }
  KOKKOS_INLINE_FUNCTION static void multiply_add(Sums& sums, Left const& left,
                                                  Right const& right) {
    ATTIKOS_UNROLL_DEVICE
    for (int k = 0; k < depth; ++k) ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Rows; ++i) sums.value[i] += left.row[i].value[k] * right.run.value[k];
  }
  static constexpr int held_rows = Rows;
  KOKKOS_INLINE_FUNCTION static int row_of(int, int held) { return held; }
  static constexpr int held_sums = Rows;
  KOKKOS_INLINE_FUNCTION static SumPosition position_of(int lane, int n) { return {n, lane, n}; }
  template <class SumsOfLane>
  KOKKOS_INLINE_FUNCTION static auto& at(SumsOfLane& sums, int n) {
    return sums.value[n];
  }
  template <class Join>
  KOKKOS_INLINE_FUNCTION static void join_rows(T (&numbers)[held_rows]) {
    join_neighbors<Join, Lanes>(numbers);
  }
  KOKKOS_INLINE_FUNCTION static void store_left(Sums const& sums, T* p, FactorPlace place,
                                                int lane) {
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Rows; ++i) p[i * place.mn + lane * place.k] = sums.value[i];
  }
  static constexpr bool sums_make_left = false;

 private:
  KOKKOS_INLINE_FUNCTION static void load(Run& run, T const* p, FactorPlace place) {
    if (place.k == 1) {
      run = *reinterpret_cast<Run const*>(p);
    } else {
      ATTIKOS_UNROLL_DEVICE
      for (int k = 0; k < depth; ++k) run.value[k] = p[k * place.k];
    }
  }
};

template <class Exec, class T, int Rows>
struct ChooseFewRowFragments {
  using type = FewRowFragments<T, is_host_space<Exec> ? 1 : fragment_lanes, Rows>;
};
/// The fragments of few rows of T on `Exec`.
template <class Exec, class T, int Rows>
using FewRowFragmentsFor = typename ChooseFewRowFragments<Exec, T, Rows>::type;

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
