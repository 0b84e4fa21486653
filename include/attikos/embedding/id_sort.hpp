// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// A stable sort of (key, position) pairs: a radix sort from the lowest digit on (Knuth, TAOCP 3,
/// 5.2.5), blocks of pairs in order, so that the result is the same for any number of threads.
#pragma once

#include <attikos/core/launch.hpp>
#include <attikos/embedding/embedding_arguments.hpp>
#include <utility>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Keys in one array, where each came from in another.
struct IdPairs {
  std::uint32_t* keys;
  std::uint32_t* positions;
};

inline constexpr int id_digit_bits = 6, id_digits = 1 << id_digit_bits, ids_per_block = 1024;

inline std::int64_t id_blocks(std::int64_t count) {
  return (count + ids_per_block - 1) / ids_per_block;
}

/// Of a block of ids their keys and positions. What has no row has the key `rows`, the largest.
template <class Id>
struct IdKeys {
  Rows<Id const> ids;
  IdPairs to;
  std::int64_t rows, padding_index;

  KOKKOS_INLINE_FUNCTION void one(std::int64_t i) const {
    auto const id = static_cast<std::int64_t>(*ids(i).data);
    bool const counts = id >= 0 && id < rows && id != padding_index;
    to.keys[i] = static_cast<std::uint32_t>(counts ? id : rows);
    to.positions[i] = static_cast<std::uint32_t>(i);
  }
  KOKKOS_INLINE_FUNCTION std::int64_t last(std::int64_t block) const {
    std::int64_t const end = (block + 1) * ids_per_block;
    return end < ids.count() ? end : ids.count();
  }
  void host_row(std::int64_t block) const {
    for (std::int64_t i = block * ids_per_block; i < last(block); ++i) one(i);
  }
  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t block) const {
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, block * ids_per_block, last(block)),
                         [&](std::int64_t i) { one(i); });
  }
};

/// A team takes a block of pairs, a thread a run of them. `Moves`: each goes to its place, which
/// `counts` has for the first of each digit of each block; else they are counted there.
template <class Exec, bool Moves>
struct IdDigitKernel {
  using Policy = Kokkos::TeamPolicy<Exec>;
  using Team = typename Policy::member_type;
  static constexpr int threads = is_host_space<Exec> ? 1 : 128;
  static constexpr int pitch = threads + 2;  // so that digits lie in different banks
  static constexpr int scratch_bytes = id_digits * pitch * int{sizeof(std::uint16_t)};

  IdPairs from, to;
  std::int64_t count, blocks;
  std::uint32_t* counts;
  int shift;

  KOKKOS_INLINE_FUNCTION int digit(std::int64_t i) const {
    return static_cast<int>(from.keys[i] >> shift) & (id_digits - 1);
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    auto* const seen = static_cast<std::uint16_t*>(
        team.team_scratch(0).get_shmem(static_cast<std::size_t>(scratch_bytes)));
    int const me = team.team_rank();
    std::int64_t const block = team.league_rank();
    std::int64_t const first = block * ids_per_block + me * (ids_per_block / threads);
    std::int64_t const end = first + ids_per_block / threads;
    std::int64_t const last = end < count ? end : count;
    for (int d = 0; d < id_digits; ++d) seen[d * pitch + me] = 0;
    for (std::int64_t i = first; i < last; ++i) ++seen[digit(i) * pitch + me];
    team.team_barrier();
    for (int d = me; d < id_digits; d += threads) {
      std::uint32_t sum = 0;
      for (int t = 0; t < threads; ++t) {
        std::uint16_t const here = seen[d * pitch + t];
        if constexpr (Moves) seen[d * pitch + t] = static_cast<std::uint16_t>(sum);
        sum += here;
      }
      if constexpr (!Moves) counts[d * blocks + block] = sum;
    }
    if constexpr (Moves) {
      team.team_barrier();
      for (std::int64_t i = first; i < last; ++i) {
        int const d = digit(i);
        std::uint32_t const place = counts[d * blocks + block] + seen[d * pitch + me]++;
        to.keys[place] = from.keys[i];
        to.positions[place] = from.positions[i];
      }
    }
  }
};

/// Every count becomes the sum of those before it. One team.
template <class Exec>
struct IdOffsetKernel {
  using Policy = Kokkos::TeamPolicy<Exec>;
  using Team = typename Policy::member_type;
  static constexpr int threads = is_host_space<Exec> ? 1 : 256;
  static constexpr int scratch_bytes = threads * int{sizeof(std::uint32_t)};

  std::uint32_t* counts;
  std::int64_t size;

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    auto* const sums = static_cast<std::uint32_t*>(
        team.team_scratch(0).get_shmem(static_cast<std::size_t>(scratch_bytes)));
    int const me = team.team_rank();
    std::int64_t const share = (size + threads - 1) / threads, first = me * share;
    std::int64_t const last = first + share < size ? first + share : size;
    std::uint32_t sum = 0;
    for (std::int64_t i = first; i < last; ++i) sum += counts[i];
    sums[me] = sum;
    team.team_barrier();
    sum = 0;
    for (int t = 0; t < me; ++t) sum += sums[t];
    for (std::int64_t i = first; i < last; ++i) {
      std::uint32_t const here = counts[i];
      counts[i] = sum;
      sum += here;
    }
  }
};

template <class Exec, class Kernel>
void launch_id_kernel(Exec const& exec, char const* operation, Kernel const& kernel,
                      std::int64_t teams) {
  typename Kernel::Policy policy(exec, checked_league(operation, teams), Kernel::threads, 1);
  policy.set_scratch_size(0, Kokkos::PerTeam(Kernel::scratch_bytes));
  launch(operation, "portable", policy, kernel);
}

/// Sorts pairs by keys up to `largest`; returns which of both arrays they end in. `counts`:
/// id_digits numbers for each block.
template <class Exec>
IdPairs sort_ids(Exec const& exec, char const* operation, IdPairs pairs, IdPairs other,
                 std::uint32_t* counts, std::int64_t count, std::int64_t largest) {
  std::int64_t const blocks = id_blocks(count);
  for (int shift = 0; shift < 32 && (largest >> shift) > 0; shift += id_digit_bits) {
    launch_id_kernel(exec, operation,
                     IdDigitKernel<Exec, false>{pairs, other, count, blocks, counts, shift},
                     blocks);
    launch_id_kernel(exec, operation, IdOffsetKernel<Exec>{counts, blocks * id_digits}, 1);
    launch_id_kernel(exec, operation,
                     IdDigitKernel<Exec, true>{pairs, other, count, blocks, counts, shift}, blocks);
    std::swap(pairs, other);
  }
  return pairs;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
