// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Which lane of its thread this is.
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

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
