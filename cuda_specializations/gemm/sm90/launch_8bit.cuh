// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// gemm/sm90_wgmma_f8 and _s8: the launches of one pair of element types.
#pragma once

#include "launch_few.cuh"
#include "launch_many.cuh"
#include "launch_product.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Launches a product of 8-bit types, A's with its unit stride along K.
template <class A, class B, sm90_gemm_shapes::Kind Of>
cudaError_t launch_bytes_along_k(abi::GemmArgs const& g, abi::Device const& device,
                                 Destination const& to) {
  using layouts::TN;
  constexpr bool promoted = Of == sm90_gemm_shapes::Kind::promoted;
  bool const parts = !promoted && many_shapes<A, B> && takes_parts(g, device);
  int const width = parts ? 0 : width_of_few<Of>(g, device);
  if constexpr (promoted)
    return width != 0 ? launch_few_promoted<A, B>(width, g, device, to)
                      : launch_many_promoted<A, B>(g, device, to);
  else
    return width != 0 ? launch_few<A, B, TN>(width, g, device, to)
                      : launch_many<A, B, TN>(g, device, to);
}

/// The same with either.
template <class A, class B>
cudaError_t launch_8bit(abi::GemmArgs const& g, abi::Device const& device, Destination const& to) {
  using sm90_gemm_shapes::Kind;
  bool const along_m = major_a(g) == Major::mn;
  if constexpr (!std::is_same_v<A, std::int8_t>) {
    if (g.accumulate == abi::Accumulate::promoted || along_blocks(g.scale_a, true) ||
        along_blocks(g.scale_b, false))
      return along_m ? launch_registers<A, B, Kind::promoted>(g, device, to)
                     : launch_bytes_along_k<A, B, Kind::promoted>(g, device, to);
  }
  return along_m ? launch_registers<A, B, Kind::plain>(g, device, to)
                 : launch_bytes_along_k<A, B, Kind::plain>(g, device, to);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
