// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Which lane of its thread, and of its warp, this is.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// The number of this lane among the `lanes` of its thread, the policy's vector length. On a device
/// a lane has variables of its own, and keeps what it is told.
template <class Team>
KOKKOS_INLINE_FUNCTION int lane_of([[maybe_unused]] Team const& team, [[maybe_unused]] int lanes) {
#if defined(__CUDA_ARCH__)
  return static_cast<int>(threadIdx.x);  // the loop below takes a hundred instructions
#else
  int lane = 0;
  Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, lanes), [&](int l) { lane = l; });
  return lane;
#endif
}

/// The whole warps of a team, where this lane is among them, and its number there.
struct TeamWarp {
  int count, rank, lane;
};

/// Whatever the policy's vector length: lanes of a team's threads follow one another. Where there
/// are no warps, each thread counts as one.
template <class Team>
KOKKOS_INLINE_FUNCTION TeamWarp warp_of([[maybe_unused]] Team const& team) {
#if defined(__CUDA_ARCH__)
  int const index = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  return {static_cast<int>(blockDim.x * blockDim.y) / 32, index / 32, index % 32};
#else
  return {team.team_size(), team.team_rank(), 0};
#endif
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
