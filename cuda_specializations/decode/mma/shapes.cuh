// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes that decode/sm80_mma_* of 16-bit types come in.
#pragma once

#include <attikos/config.hpp>

#include "common/limits.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// A kernel's shape. Four warps share a block's part of the keys. Either each has keys of its own
/// and all 16 rows of the tile (`WarpsM` 1), or each has 16 of 64 rows and all keys (`WarpsM` 4).
/// Keys and values pass through a ring of `stages` slots for each team of `WarpsM` warps. Three
/// head dimensions and two WarpsM, of the largest head dimension also for cards whose blocks have
/// no more than 99 KiB (`Less`): eight instantiations for an element type.
template <class T, int D, int WarpsM, bool Less = false>
struct Sm80DecodeConfig {
  using Element = T;  ///< of q, k and v
  using Factor = T;   ///< of products
  using Out = T;
  static constexpr bool bytes = false;  ///< elements are float8, see Sm80DecodeBytesConfig
  static constexpr int d = D, warps_m = WarpsM, warps = 4, threads = 128;
  static constexpr int teams = warps / WarpsM;  ///< of warps that read the same keys
  static constexpr int tile_m = 16 * WarpsM;
  static constexpr int keys = WarpsM == 1 ? 16 : D == 256 ? 32 : 64;  ///< of one step of a team
  static constexpr int row_bytes = D * 2, chunks = row_bytes / 16;    ///< of a key
  static constexpr int slot_bytes = keys * row_bytes;
  /// Keys and values take slots in turn, 80 to 112 KiB for a block: two blocks fit on an H100. The
  /// memory of cards with less asks for fewer bytes under way: for sm_86 and sm_89, 32 or 48 KiB.
  static constexpr int stages = (D == 64 ? 10 : D == 128 || WarpsM == 4 ? 5 : 3) - (Less ? 1 : 0);
  static constexpr int ring_bytes = stages * slot_bytes * teams;
  /// Sums of a warp's rows on their way to the merge; the padding spreads rows over the banks.
  static constexpr int sum_width = D + 8;
  static constexpr int sum_bytes = warps * 16 * sum_width * 4;
  static constexpr int body_bytes = ring_bytes > sum_bytes ? ring_bytes : sum_bytes;
  /// Queries stay in registers where those suffice.
  static constexpr bool shared_queries = D > 128;
  static constexpr int queries_at = body_bytes;
  static constexpr int shared_bytes = body_bytes + (shared_queries ? tile_m * D * 2 : 0) + 128;
  /// Which place of row r a chunk takes.
  static constexpr __host__ __device__ int place(int chunk, int r) { return chunk ^ (r & 7); }
  static_assert(D % 64 == 0 && warps % WarpsM == 0);
  static_assert(shared_bytes + warps * 16 * 8 <=
                (D < 256 || Less ? sm80_shared_bytes : sm90_share_of_shared(2)));
};

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
