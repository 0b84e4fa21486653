// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Tiles of attention in fragments (core/fragments/): what a team of a kernel has in registers and
/// in scratch, and its launch.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/core/fragments/fragments.hpp>
#include <attikos/core/fragments/unroll.hpp>
#include <attikos/core/launch.hpp>
#include <attikos/core/tile.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// A team's part: threads, fragments of each along its rows, columns at a time, and features of a
/// head, rounded up. Rows are queries and columns keys, or the other way round. Registers are to
/// suffice for so many teams on a multiprocessor.
template <class F, int Threads, int FragmentsM, int Keys, int Features, int TeamsAtOnce>
struct AttentionShape {
  using Fragments = F;
  using Element = typename F::Element;
  using Sum = typename F::Sum;
  static constexpr int threads = Threads, fragments_m = FragmentsM;
  static constexpr int keys = Keys, features = Features, teams_at_once = TeamsAtOnce;
  static constexpr int rows_of_thread = FragmentsM * F::rows;
  static constexpr int rows = Threads * rows_of_thread, lanes = Threads * F::lanes;
  static constexpr int pitch = Features + F::pad_k;  ///< of rows in scratch
  static_assert(Keys % F::cols == 0 && Keys % F::depth == 0);
  static_assert(Features % F::cols == 0 && Features % F::depth == 0);

  /// Sums of pairs, rows by columns, and of features, as a thread has them.
  using Pairs = typename F::Sums[FragmentsM][Keys / F::cols];
  using Outputs = typename F::Sums[FragmentsM][Features / F::cols];

  /// What pairs have, in scratch as the left factor of the product that sums over columns.
  static constexpr FactorPlace pairs_place =
      F::reads_k_major ? FactorPlace{Keys + F::pad_k, 1} : FactorPlace{1, rows + F::pad_mn};
  static constexpr int pairs_size = F::reads_k_major ? rows * pairs_place.mn : Keys * pairs_place.k;
  /// Rows of the right factor of that product.
  static constexpr FactorPlace summed_place{1, Features + F::pad_mn};

  KOKKOS_INLINE_FUNCTION static void store_pairs(Pairs const& pairs, Element* to, int lane) {
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < FragmentsM; ++i) ATTIKOS_UNROLL_DEVICE
    for (int j = 0; j < Keys / F::cols; ++j)
      F::store_left(pairs[i][j], to + i * F::rows * pairs_place.mn + j * F::cols * pairs_place.k,
                    pairs_place, lane);
  }

  /// Rows are finished in scratch, so many of their features at a time.
  static constexpr int finish_features = std::min(Features, 64);
  static constexpr int finish_pitch = finish_features + 4;
  static constexpr int finish_size = rows * finish_pitch;
  static_assert(Features % finish_features == 0 && finish_features % F::cols == 0);

  /// Puts features from `first` on of a thread's rows where those begin in scratch.
  KOKKOS_INLINE_FUNCTION static void put_outputs(Outputs const& out, int first, Sum* to, int lane) {
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < FragmentsM; ++i) ATTIKOS_UNROLL_DEVICE
    for (int j = 0; j < Features / F::cols; ++j) {
      if (j * F::cols / finish_features * finish_features != first) continue;
      for_each_sum<F>(out[i][j], lane, [&](SumPosition at, Sum x) {
        to[(i * F::rows + at.row) * finish_pitch + j * F::cols % finish_features + at.col] = x;
      });
    }
  }
};

/// The policy of so many teams of a kernel body that has Shape, Policy and scratch_size. Throws
/// what cannot be launched.
template <class Kernel, class Exec>
typename Kernel::Policy tile_policy(char const* operation, Exec const& exec, std::int64_t teams) {
  using Shape = typename Kernel::Shape;
  typename Kernel::Policy policy(exec, checked_league(operation, teams), Shape::threads,
                                 Shape::Fragments::lanes);
  policy.set_scratch_size(
      0, Kokkos::PerTeam(static_cast<int>(scratch_bytes<char>(Kernel::scratch_size))));
  return policy;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
