// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// gemm/sm90_wgmma_*: the tiles of products that have many.
#pragma once

#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Chooses among shapes and launches. The lists are of those that pay somewhere; sm90_cost() picks
/// among them.
template <class A, class B, class Layout, class... Shapes>
cudaError_t launch_shapes(abi::GemmArgs const& g, abi::Device const& device,
                          Destination const& to) {
  return launch_cheapest<Sm90Config<A, B, Layout, Shapes>...>(g, device, to);
}

/// The same for one pair of element types and one pair of layouts.
template <class A, class B, class Layout>
cudaError_t launch_many(abi::GemmArgs const& g, abi::Device const& device, Destination const& to) {
  using namespace sm90_gemm_shapes;
  constexpr bool along_k = !Layout::mn_a && !Layout::mn_b;
  if constexpr (along_k && many_shapes<A, B>) {
    if (takes_parts(g, device)) return launch_shapes<A, B, Layout, N144Split4>(g, device, to);
  }
  if constexpr (sizeof(A) == 1 && many_shapes<A, B>) {
    return launch_shapes<A, B, Layout, N128Bytes, N128PairBytes, N192Turns, N64, N48, N96, N112,
                         N192, N224>(g, device, to);
  } else if constexpr (sizeof(A) == 1) {
    return launch_shapes<A, B, Layout, N128Bytes, N128PairBytes, N64>(g, device, to);
  } else if constexpr (along_k) {
    // Widths that come out even where 128, 256 or 512 rows meet the multiprocessors of the device.
    return launch_shapes<A, B, Layout, N128, N256Pair, N192Turns, N64, N48, N96, N112, N192, N224>(
        g, device, to);
  } else {
    return launch_shapes<A, B, Layout, N128, N256Pair, N192Turns, N64>(g, device, to);
  }
}

/// The same of promoted sums, whose operands have their unit strides along K.
template <class A, class B>
cudaError_t launch_many_promoted(abi::GemmArgs const& g, abi::Device const& device,
                                 Destination const& to) {
  using namespace sm90_gemm_shapes;
  if (along_blocks(g.scale_b, false) && factors_by_column(g.scale_b))
    return launch_shapes<A, B, layouts::TN, N64Promoted>(g, device, to);
  if (along_blocks(g.scale_a, true) || along_blocks(g.scale_b, false))
    return launch_shapes<A, B, layouts::TN, N128Promoted, N64Promoted>(g, device, to);
  return launch_shapes<A, B, layouts::TN, N128Promoted, N128PairPromoted, N64Promoted>(g, device,
                                                                                       to);
}

/// The same for an 8-bit A whose unit stride is along M.
template <class A, class B, sm90_gemm_shapes::Kind Of>
cudaError_t launch_registers(abi::GemmArgs const& g, abi::Device const& device,
                             Destination const& to) {
  using namespace sm90_gemm_shapes;
  using Square = std::conditional_t<Of == Kind::promoted, N128Promoted, N128Registers>;
  if constexpr (std::is_same_v<A, std::int8_t>) {
    // The wide tile has to finish 8-bit elements from shared memory; along M both have to. It does
    // not store the argument of act.
    if ((has_8_bits(g.type_c) && g.c_n == 1) || g.pre_activation != nullptr)
      return launch_shapes<A, B, layouts::NN, Square>(g, device, to);
    return launch_shapes<A, B, layouts::NN, Square, N256Pair>(g, device, to);
  } else {  // wider tiles of float32 sums would not leave enough registers
    return launch_shapes<A, B, layouts::NN, Square>(g, device, to);
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
