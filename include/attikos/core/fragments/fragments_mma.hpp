// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Which lane holds what of CUDA's matrix fragments (mma.sync, sm_80), and from where it loads. No
/// instruction stands here: those are in fragments_cuda.hpp, and tests run the maps on hosts.
///
/// Source: PTX ISA 9.0, "Matrix multiply-accumulate operation using mma instruction".
#pragma once

#include <attikos/core/dtypes.hpp>
#include <attikos/core/fragments/factor.hpp>
#include <attikos/core/fragments/unroll.hpp>
#include <attikos/core/rows/device_elements.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

// What these have beyond fragments.hpp, for lanes that load factors from memory themselves:
//
//     OfLane                 one lane's part of all this; eights: groups of eight columns
//     run                    neighbors of k that a lane has of each of its rows of A and columns of
//                            B, from run · (lane % 4) on; rows and columns are number lane / 4 of
//                            each eight. Within `depth`, k is summed in another order then
//     set_run(factor, n, x)  makes x the run of row or column n of a lane
//     sum(sums, row, n, eight)  the sum of row `row` of a lane, column 2 · (lane % 4) + n of eight
//     each_lane(lane, each), of_lane(share, lane)  each(lane), and what that lane has of a factor
//                            or sums. Tests run all lanes one after the other

/// 16 rows by 16 columns and 32 bytes of K, of float16, bfloat16 or int8: two instructions. Lane
/// 4 g + q holds what ptx/mma_sync.hpp says. int8 lies K-major alone: no instruction turns single
/// bytes.
template <class T>
struct MmaFragments {
  using Element = T;
  using Sum = std::conditional_t<std::is_integral_v<T>, int, float>;
  static constexpr char const* name = "mma.sync";
  static constexpr int lanes = 32;
  static constexpr int rows = 16, cols = 16, depth = 32 / static_cast<int>(sizeof(T));
  static constexpr bool reads_k_major = true, reads_k_major_alone = sizeof(T) == 1;
  static constexpr int pad_k = 16 / static_cast<int>(sizeof(T)), pad_mn = pad_k;
  static constexpr bool loads_ahead = false;

  struct Left {
    std::uint32_t word[4];
  };
  struct Right {
    std::uint32_t word[4];  // columns 0 ... 7 in the first two
  };
  struct Sums {
    Sum value[2][4];
  };

  /// Where the row of 16 bytes begins that this lane gives to the load (ptx/ldmatrix.hpp).
  KOKKOS_INLINE_FUNCTION static int left_offset(FactorPlace place, int lane) {
    return place.k == 1 ? lane % 16 * place.mn + lane / 16 * half
                        : (lane % 8 + lane / 16 * 8) * place.k + lane / 8 % 2 * 8;
  }
  KOKKOS_INLINE_FUNCTION static int right_offset(FactorPlace place, int lane) {
    return place.k == 1 ? (lane % 8 + lane / 16 * 8) * place.mn + lane / 8 % 2 * half
                        : lane % 16 * place.k + lane / 16 * 8;
  }

  static constexpr int held_rows = 2;
  KOKKOS_INLINE_FUNCTION static int row_of(int lane, int held) { return lane / 4 + 8 * held; }
  static constexpr int held_sums = 8;
  KOKKOS_INLINE_FUNCTION static SumPosition position_of(int lane, int n) {
    return {row_of(lane, n / 2 % 2), n / 4 * 8 + lane % 4 * 2 + n % 2, n / 2 % 2};
  }
  template <class SumsOfLane>
  KOKKOS_INLINE_FUNCTION static auto& at(SumsOfLane& sums, int n) {
    return sums.value[n / 4][n % 4];
  }
  template <class Join>
  KOKKOS_INLINE_FUNCTION static void join_rows(Sum (&numbers)[held_rows]) {
    join_neighbors<Join, 4>(numbers);
  }
  KOKKOS_INLINE_FUNCTION static void store_left(Sums const& sums, T* p, FactorPlace place,
                                                int lane) requires(sizeof(T) == 2) {
    for (int j = 0; j < 2; ++j)
      for (int h = 0; h < 2; ++h)
        *reinterpret_cast<std::uint32_t*>(p + row_of(lane, h) * place.mn + 8 * j + lane % 4 * 2) =
            pair_of<T>(sums.value[j][2 * h], sums.value[j][2 * h + 1]);
  }

  using OfLane = MmaFragments;
  static constexpr int run = depth / 4, eights = 2;
  template <class Factor>
  KOKKOS_INLINE_FUNCTION static void set_run(Factor& factor, int n, T const (&x)[run]) {
    // Left factors have both rows' first halves first, right factors both halves of a column.
    constexpr bool left = std::is_same_v<Factor, Left>;
    ATTIKOS_UNROLL_DEVICE
    for (int half = 0; half < 2; ++half) {
      Pack<T, run / 2> word;
      ATTIKOS_UNROLL_DEVICE
      for (int e = 0; e < run / 2; ++e) word.element[e] = x[half * (run / 2) + e];
      factor.word[left ? n + 2 * half : 2 * n + half] = __builtin_bit_cast(std::uint32_t, word);
    }
  }
  KOKKOS_INLINE_FUNCTION static Sum sum(Sums const& sums, int row, int n, int col) {
    return sums.value[col][2 * row + n];
  }
  template <class Each>
  KOKKOS_INLINE_FUNCTION static void each_lane(int lane, Each const& each) {
    each(lane);
  }
  template <class Share>
  KOKKOS_INLINE_FUNCTION static Share& of_lane(Share& share, int) {
    return share;
  }

  /// What a lane has of a block of C is what it needs of one of A.
  static constexpr bool sums_make_left = sizeof(T) == 2;
  KOKKOS_INLINE_FUNCTION static void left_of(Left& left, Sums const (&sums)[1]) {
    static_assert(sums_make_left && depth == cols);
    for (int j = 0; j < 2; ++j)
      for (int h = 0; h < 2; ++h)
        left.word[h + 2 * j] = pair_of<T>(sums[0].value[j][2 * h], sums[0].value[j][2 * h + 1]);
  }

 private:
  static constexpr int half = depth / 2;  // 16 bytes
};

/// 16 rows, 8 columns and 8 of K in float64: two instructions.
template <>
struct MmaFragments<double> {
  using Element = double;
  using Sum = double;
  static constexpr char const* name = "mma.sync";
  static constexpr int lanes = 32;
  static constexpr int rows = 16, cols = 8, depth = 8;
  static constexpr bool reads_k_major = true, reads_k_major_alone = false;
  static constexpr int pad_k = 4, pad_mn = 4;
  static constexpr bool loads_ahead = true;

  struct Left {
    double value[4];
  };
  struct Right {
    double value[2];
  };
  struct Sums {
    double value[4];
  };

  KOKKOS_INLINE_FUNCTION static int left_offset(FactorPlace place, int lane) {
    return lane / 4 * place.mn + lane % 4 * place.k;
  }
  KOKKOS_INLINE_FUNCTION static int right_offset(FactorPlace place, int lane) {
    return left_offset(place, lane);
  }
  KOKKOS_INLINE_FUNCTION static void load_left(Left& left, double const* p, FactorPlace place) {
    for (int s = 0; s < 2; ++s)
      for (int h = 0; h < 2; ++h) left.value[2 * s + h] = p[8 * h * place.mn + 4 * s * place.k];
  }
  KOKKOS_INLINE_FUNCTION static void load_right(Right& right, double const* p, FactorPlace place) {
    for (int s = 0; s < 2; ++s) right.value[s] = p[4 * s * place.k];
  }

  static constexpr int held_rows = 2;
  KOKKOS_INLINE_FUNCTION static int row_of(int lane, int held) { return lane / 4 + 8 * held; }
  static constexpr int held_sums = 4;
  KOKKOS_INLINE_FUNCTION static SumPosition position_of(int lane, int n) {
    return {row_of(lane, n / 2), lane % 4 * 2 + n % 2, n / 2};
  }
  template <class SumsOfLane>
  KOKKOS_INLINE_FUNCTION static auto& at(SumsOfLane& sums, int n) {
    return sums.value[n];
  }
  template <class Join>
  KOKKOS_INLINE_FUNCTION static void join_rows(double (&numbers)[held_rows]) {
    join_neighbors<Join, 4>(numbers);
  }
  KOKKOS_INLINE_FUNCTION static void store_left(Sums const& sums, double* p, FactorPlace place,
                                                int lane) {
    for_each_sum<MmaFragments>(sums, lane, [&](SumPosition where, double x) {
      p[where.row * place.mn + where.col * place.k] = x;
    });
  }
  using OfLane = MmaFragments;
  static constexpr int run = depth / 4, eights = 1;
  template <class Factor>
  KOKKOS_INLINE_FUNCTION static void set_run(Factor& factor, int n, double const (&x)[run]) {
    constexpr int apart = std::is_same_v<Factor, Left> ? 2 : 1;
    for (int half = 0; half < 2; ++half) factor.value[n + apart * half] = x[half];
  }
  KOKKOS_INLINE_FUNCTION static double sum(Sums const& sums, int row, int n, int) {
    return sums.value[2 * row + n];
  }
  template <class Each>
  KOKKOS_INLINE_FUNCTION static void each_lane(int lane, Each const& each) {
    each(lane);
  }
  template <class Share>
  KOKKOS_INLINE_FUNCTION static Share& of_lane(Share& share, int) {
    return share;
  }
  static constexpr bool sums_make_left = false;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
