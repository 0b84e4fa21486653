// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes that decode/sm80_mma_* come in. Kernels' symbols carry their names, and so does
/// ptxas_allowances.txt.
#pragma once

#include <attikos/config.hpp>

#include "common/limits.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

namespace sm80_decode_shapes {

/// Head dimensions up to `D` and tiles of `Rows` rows. Four warps share a block's part of the keys:
/// of 16 rows each has keys of its own, of 64 each has 16 rows and all keys. `Less`: for cards
/// whose blocks have no more than 99 KiB.
template <int D, int Rows, bool Less = false>
struct Shape {
  static constexpr int d = D, warps_m = Rows / 16;
  static constexpr bool less = Less;
};
struct D64Rows16 : Shape<64, 16> {};
struct D64Rows64 : Shape<64, 64> {};
struct D128Rows16 : Shape<128, 16> {};
struct D128Rows64 : Shape<128, 64> {};
struct D256Rows16 : Shape<256, 16> {};
struct D256Rows64 : Shape<256, 64> {};
struct D256Rows16Less : Shape<256, 16, true> {};
struct D256Rows64Less : Shape<256, 64, true> {};

}  // namespace sm80_decode_shapes

/// A kernel for elements of type T in one of these shapes. Keys and values pass through a ring of
/// `stages` slots for each team of `warps_m` warps, which read the same keys.
template <class T, class Shape>
struct Sm80DecodeConfig {
  using Element = T;  ///< of q, k and v
  using Factor = T;   ///< of products
  using Out = T;
  static constexpr bool bytes = false;  ///< elements are float8, see Sm80DecodeBytesConfig
  static constexpr int d = Shape::d, warps_m = Shape::warps_m, warps = 4, threads = 128;
  static constexpr int teams = warps / warps_m;  ///< of warps that read the same keys
  static constexpr int tile_m = 16 * warps_m;
  static constexpr int keys = warps_m == 1 ? 16 : d == 256 ? 32 : 64;  ///< of one step of a team
  static constexpr int row_bytes = d * 2, chunks = row_bytes / 16;     ///< of a key
  static constexpr int slot_bytes = keys * row_bytes;
  /// Keys and values take slots in turn, 80 to 112 KiB for a block: two blocks fit on an H100. The
  /// memory of cards with less asks for fewer bytes under way: for sm_86 and sm_89, 32 or 48 KiB.
  static constexpr int stages = (d == 64                    ? 10
                                 : d == 128 || warps_m == 4 ? 5
                                                            : 3) -
                                (Shape::less ? 1 : 0);
  static constexpr int ring_bytes = stages * slot_bytes * teams;
  /// Sums of a warp's rows on their way to the merge; the padding spreads rows over the banks.
  static constexpr int sum_width = d + 8;
  static constexpr int sum_bytes = warps * 16 * sum_width * 4;
  static constexpr int body_bytes = ring_bytes > sum_bytes ? ring_bytes : sum_bytes;
  /// Queries stay in registers where those suffice.
  static constexpr bool shared_queries = d > 128;
  static constexpr int queries_at = body_bytes;
  static constexpr int shared_bytes = body_bytes + (shared_queries ? tile_m * d * 2 : 0) + 128;
  /// Which place of row r a chunk takes.
  static constexpr __host__ __device__ int place(int chunk, int r) { return chunk ^ (r & 7); }
  static_assert(d % 64 == 0 && warps % warps_m == 0);
  static_assert(shared_bytes + warps * 16 * 8 <=
                (d < 256 || Shape::less ? sm80_shared_bytes : sm90_share_of_shared(2)));
};

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
