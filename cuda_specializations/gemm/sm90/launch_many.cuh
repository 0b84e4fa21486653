// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// gemm/sm90_wgmma_*: the tiles of products that have many.
#pragma once

#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Chooses and launches for one pair of element types and one pair of layouts. The lists of
/// configurations are those that pay somewhere; sm90_cost() picks among them.
///
/// From <H200 700 W, CUDA 13.0>, times as fast as the best of the others: 128 × 192 in turns at
/// 8192 × 8192 × 512 bfloat16 1.12 (TN) and 1.09 (NT), × 4096 1.07; widths of 48 … 224 at 512 ×
/// 14336 × 4096 1.05 (bfloat16), 1.07 (float8), at 512 × 6144 × 4096 1.04 and 1.24, at 256 × 6144 ×
/// 4096 1.11 (float8). Pairs of 128 × 256 brought large 16-bit products from 0.91 … 0.94 of
/// cuBLASLt's best of ten to 0.96 and more.
template <class A, class B, bool MnA, bool MnB, bool Promoted>
cudaError_t launch_many(abi::GemmArgs const& g, abi::Device const& device, Destination const& to) {
  if constexpr (!MnA && !MnB && !Promoted && many_shapes<A, B>) {
    if (takes_parts(g, device))
      return launch_cheapest<Sm90Config<A, B, false, false, 128, 144, 1, 5, Schedule::cooperative,
                                        false, false, 2, 4>>(g, device, to);
  }
  constexpr auto turns = Schedule::ping_pong;
  using Alone = Sm90Config<A, B, MnA, MnB, 128, 128, 1, 5, turns, false, false, 4>;
  using Wide = Sm90Config<A, B, MnA, MnB, 128, 256, 2, 4>;
  using Broad = Sm90Config<A, B, MnA, MnB, 128, 192, 1, 4, turns, false, false, 4>;
  if constexpr (Promoted) {
    constexpr auto together = Schedule::cooperative;
    using Narrow = Sm90Config<A, B, false, false, 128, 64, 1, 7, together, true>;
    using Single = Sm90Config<A, B, false, false, 128, 128, 1, 5, together, true>;
    if (along_blocks(g.scale_b, false) && factors_by_column(g.scale_b))
      return launch_cheapest<Narrow>(g, device, to);
    // Pairs are slower with factors: 0.85 against 0.90 of the rate without at 4096 x 4096 x 7168.
    if (along_blocks(g.scale_a, true) || along_blocks(g.scale_b, false))
      return launch_cheapest<Single, Narrow>(g, device, to);
    return launch_cheapest<Single, Sm90Config<A, B, false, false, 128, 128, 2, 5, together, true>,
                           Narrow>(g, device, to);
  } else if constexpr (sizeof(A) == 1 && many_shapes<A, B>) {
    return launch_cheapest<Sm90Config<A, B, MnA, MnB, 128, 128, 1, 6, turns>,
                           Sm90Config<A, B, MnA, MnB, 128, 128, 2, 6, turns>, Broad,
                           Sm90Config<A, B, MnA, MnB, 128, 64, 1, 8>,
                           Sm90Config<A, B, false, false, 128, 48, 1, 8>,
                           Sm90Config<A, B, false, false, 128, 96, 1, 6>,
                           Sm90Config<A, B, false, false, 128, 112, 1, 6>,
                           Sm90Config<A, B, false, false, 128, 192, 1, 4>,
                           Sm90Config<A, B, false, false, 128, 224, 1, 4>>(g, device, to);
  } else if constexpr (sizeof(A) == 1) {
    return launch_cheapest<Sm90Config<A, B, MnA, MnB, 128, 128, 1, 6, turns>,
                           Sm90Config<A, B, MnA, MnB, 128, 128, 2, 6, turns>,
                           Sm90Config<A, B, MnA, MnB, 128, 64, 1, 8>>(g, device, to);
  } else if constexpr (!MnA && !MnB) {
    // Widths that come out even where 128, 256 or 512 rows meet the multiprocessors of the device.
    return launch_cheapest<Alone, Wide, Broad, Sm90Config<A, B, false, false, 128, 64, 1, 8>,
                           Sm90Config<A, B, false, false, 128, 48, 1, 8>,
                           Sm90Config<A, B, false, false, 128, 96, 1, 6>,
                           Sm90Config<A, B, false, false, 128, 112, 1, 6>,
                           Sm90Config<A, B, false, false, 128, 192, 1, 4>,
                           Sm90Config<A, B, false, false, 128, 224, 1, 4>>(g, device, to);
  } else {
    return launch_cheapest<Alone, Wide, Broad, Sm90Config<A, B, MnA, MnB, 128, 64, 1, 8>>(g, device,
                                                                                          to);
  }
}

/// The same for an 8-bit A whose unit stride is along M.
template <class A, class B, bool Promoted>
cudaError_t launch_registers(abi::GemmArgs const& g, abi::Device const& device,
                             Destination const& to) {
  constexpr auto together = Schedule::cooperative;
  using Square = Sm90Config<A, B, true, false, 128, 128, 1, Promoted ? 5 : 6, together, Promoted>;
  if constexpr (std::is_same_v<A, std::int8_t>) {
    // The wide tile has to finish 8-bit elements from shared memory; along M both have to. It does
    // not store the argument of act.
    if ((has_8_bits(g.type_c) && g.c_n == 1) || g.pre_activation != nullptr)
      return launch_cheapest<Square>(g, device, to);
    return launch_cheapest<Square, Sm90Config<A, B, true, false, 128, 256, 2, 4, together>>(
        g, device, to);
  } else {  // wider tiles of float32 sums would not leave enough registers
    return launch_cheapest<Square>(g, device, to);
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
