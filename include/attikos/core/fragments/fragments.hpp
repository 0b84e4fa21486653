// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Matrix fragments: the vocabulary in which portable kernels multiply on a device.
///
/// The lanes of one thread of a team multiply a small block together. Which lane holds what is the
/// business of a class like those below; a kernel sees only
///
///     Element, Sum          type of the factors in scratch, and of the sums
///     name                  of its instructions; "": arithmetic that all have
///     lanes                 lanes of the thread: the policy's vector length
///     rows, cols, depth     of the block C [rows, cols] += A [rows, depth] · B [depth, cols]
///     reads_k_major         whether factors may lie K-major in scratch; MN-major they always may,
///                           if not `reads_k_major_alone`
///     pad_k, pad_mn         elements by which to lengthen a row of K-major, MN-major scratch, so
///                           that lanes meet in no bank of it
///     loads_ahead           whether registers suffice to load fragments one step ahead of what
///                           multiplies them
///     Left, Right, Sums     a lane's share of A, B, C in registers; `Sums{}` is zero
///     left_offset(place, lane), right_offset(place, lane)
///     load_left(left, p, place), load_right(right, p, place)
///     multiply_add(sums, left, right)
///     held_rows, row_of(lane, held)   rows of C of which a lane holds elements
///     held_sums                 elements of C that a lane holds
///     position_of(lane, n)      SumPosition of element n of those; for_each_sum() visits all
///     at(sums, n)               the element itself
///     join_rows<Join>(numbers)  numbers[held] of all lanes that hold the row, joined; all get it
///     store_left(sums, p, place, lane)   C into scratch as a left factor, rounded to Element:
///                               K-major where fragments read that. Not of integers
///     sums_make_left            whether left_of(left, sums) makes a left factor of the depth /
///                               cols blocks of C that lie beside one another, rounded to Element
///
/// Element (i, k) of A lies at i · place.mn + k · place.k, element (k, j) of B at j · place.mn +
/// k · place.k; one of the two is 1, the other a multiple of 16 bytes, and so is where a block
/// begins. Loads take that address plus the lane's offset, which stays the same for all blocks. All
/// lanes of a thread make every call, with equal arguments but `lane` = lane_of(team, lanes).
///
/// PlainFragments are arithmetic that every device and host has; fragments_cuda.hpp has those of
/// CUDA's matrix instructions. FragmentsFor<Exec, T> chooses.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/concepts.hpp>
#include <attikos/core/fragments/factor.hpp>
#include <attikos/core/fragments/unroll.hpp>
#include <attikos/core/lane.hpp>
#include <cstdint>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Fragments of multiplications and additions: a lane has four rows by four columns of C. Sums run
/// over k in ascending order, with fused operations where the compiler has them.
template <class T, int Lanes>
struct PlainFragments {
  static_assert(Lanes > 0 && (Lanes & (Lanes - 1)) == 0);
  using Element = T;
  using Sum = T;
  static constexpr char const* name = "";
  static constexpr int lanes = Lanes;
  static constexpr int lane_rows = Lanes >= 64 ? 8 : Lanes >= 16 ? 4 : Lanes >= 4 ? 2 : 1;
  static constexpr int lane_cols = Lanes / lane_rows;
  static constexpr int rows = 4 * lane_rows, cols = 4 * lane_cols, depth = 1;
  static constexpr bool reads_k_major = false, reads_k_major_alone = false;
  static constexpr int pad_k = 0, pad_mn = 4;
  static constexpr bool loads_ahead = true;

  struct alignas(16) Four {
    T value[4];
  };
  struct Left {
    Four four;
  };
  struct Right {
    Four four;
  };
  struct Sums {
    T value[4][4];
  };

  KOKKOS_INLINE_FUNCTION static int left_offset(FactorPlace, int lane) {
    return lane / lane_cols * 4;
  }
  KOKKOS_INLINE_FUNCTION static int right_offset(FactorPlace, int lane) {
    return lane % lane_cols * 4;
  }
  KOKKOS_INLINE_FUNCTION static void load_left(Left& left, T const* p, FactorPlace) {
    left.four = *reinterpret_cast<Four const*>(p);
  }
  KOKKOS_INLINE_FUNCTION static void load_right(Right& right, T const* p, FactorPlace) {
    right.four = *reinterpret_cast<Four const*>(p);
  }
  KOKKOS_INLINE_FUNCTION static void multiply_add(Sums& sums, Left const& left,
                                                  Right const& right) {
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < 4; ++i) ATTIKOS_UNROLL_DEVICE
    for (int j = 0; j < 4; ++j) sums.value[i][j] += left.four.value[i] * right.four.value[j];
  }
  static constexpr int held_rows = 4;
  KOKKOS_INLINE_FUNCTION static int row_of(int lane, int held) {
    return lane / lane_cols * 4 + held;
  }
  static constexpr int held_sums = 16;
  KOKKOS_INLINE_FUNCTION static SumPosition position_of(int lane, int n) {
    return {row_of(lane, n / 4), lane % lane_cols * 4 + n % 4, n / 4};
  }
  template <class SumsOfLane>
  KOKKOS_INLINE_FUNCTION static auto& at(SumsOfLane& sums, int n) {
    return sums.value[n / 4][n % 4];
  }
  template <class Join>
  KOKKOS_INLINE_FUNCTION static void join_rows(T (&numbers)[held_rows]) {
    join_neighbors<Join, lane_cols>(numbers);
  }
  KOKKOS_INLINE_FUNCTION static void store_left(Sums const& sums, T* p, FactorPlace place,
                                                int lane) {
    T* const to = p + row_of(lane, 0) + lane % lane_cols * 4 * place.k;
    ATTIKOS_UNROLL_DEVICE
    for (int j = 0; j < 4; ++j)
      *reinterpret_cast<Four*>(to + j * place.k) = {
          {sums.value[0][j], sums.value[1][j], sums.value[2][j], sums.value[3][j]}};
  }
  static constexpr bool sums_make_left = false;
};

/// Whether products on `Exec` are fragments'. Tests say so of hosts, too.
template <class Exec>
inline constexpr bool multiplies_in_fragments = !is_host_space<Exec>;

/// Whether `Exec` multiplies blocks of T by instructions of its own.
template <class Exec, class T>
inline constexpr bool has_matrix_instructions = false;

/// Lanes of the plain fragments of a device. No back end has fewer to a thread.
inline constexpr int fragment_lanes = 32;

template <class Exec, class T>
struct ChooseFragments {
  using type = PlainFragments<T, is_host_space<Exec> ? 1 : fragment_lanes>;
};
/// The fragments of T on `Exec`.
template <class Exec, class T>
using FragmentsFor = typename ChooseFragments<Exec, T>::type;

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos

#include <attikos/core/fragments/fragments_cuda.hpp>
