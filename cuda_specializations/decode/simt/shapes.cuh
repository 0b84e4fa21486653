// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes that decode/sm80_simt_* come in. Kernels' symbols carry their names.
#pragma once

#include <attikos/config.hpp>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace sm80_simt_decode_shapes {

/// Head dimensions up to `D` and tiles of `Rows` rows. `Blocks`: that a multiprocessor holds, as
/// many as leave it the registers it needs. `Elements`: of keys, and of values, that a lane has on
/// their way; `Scalar`: where it reads them one by one.
template <int D, int Rows, int Blocks, int Elements, int Scalar = Elements>
struct Shape {
  static constexpr int d = D, rows = Rows, blocks = Blocks;
  static constexpr int elements = Elements, scalar_elements = Scalar;
  static constexpr bool whole = true;
};
/// The same of rows that do not lie in whole vectors: their elements are read one by one.
template <class Of>
struct ByElement : Of {
  static constexpr int elements = Of::scalar_elements;
  static constexpr bool whole = false;
};

// clang-format off
//                             d  rows blocks elements
struct D64Rows4       : Shape< 64, 4, 4, 32>     {};
struct D64Rows8       : Shape< 64, 8, 3, 16>     {};
struct D128Rows4      : Shape<128, 4, 3, 32>     {}; // (1)
struct D128Rows4Halves: Shape<128, 4, 3, 32, 16> {}; // of 16 bits: alone, each takes a register
struct D128Rows8      : Shape<128, 8, 3, 16>     {};
struct D256Rows4      : Shape<256, 4, 3, 16>     {};
struct D512Rows4      : Shape<512, 4, 2, 32>     {};
// of float64
struct D64Double      : Shape< 64, 4, 2, 16>     {};
struct D128Double     : Shape<128, 4, 2, 16>     {}; // (1)
struct D256Double     : Shape<256, 4, 2, 16>     {};
struct D512Double     : Shape<512, 2, 2, 16>     {};
// (1) Share of a copy from <H200 700 W, CUDA 13.0, 16 sequences of 8192 keys, 32 heads over 8>:
//     float32 with 32 elements and 3 blocks 1.01, with 16 and 3, 4, 5 blocks 0.93, 0.99, 0.96, with
//     8 and 6 blocks 0.95; float64 with 16 and 2 blocks 0.99, with 8 and 3 blocks 0.97, with 32 and
//     2 blocks 0.97.
// clang-format on

}  // namespace sm80_simt_decode_shapes

/// A kernel for elements of type T in one of these shapes. Four warps go through a block's part of
/// the keys in turns. A lane holds `each` elements of a row: `vector` neighbours at a time, in one
/// piece, or every 32nd of them, one by one, so that neighbouring lanes read neighbouring elements
/// whatever their address and stride.
template <class T, class Shape>
struct SimtDecodeConfig {
  using Element = T;
  using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;
  static constexpr int d = Shape::d, rows = Shape::rows, warps = 4, threads = 128;
  static constexpr int blocks = Shape::blocks;
  static constexpr bool whole = Shape::whole;
  static constexpr int each = d / 32;
  static constexpr int most_vector = sizeof(T) == 8 ? 2 : 4;
  static constexpr int vector = each < most_vector ? each : most_vector;
  static constexpr int chunks = each / vector;
  /// Of one step of a warp: `elements` for a lane, and no more pairs than lanes.
  static constexpr int most_keys = 32 / rows < 8 ? 32 / rows : 8;
  static constexpr int asked = each < Shape::elements ? Shape::elements / each : 1;
  static constexpr int keys = asked < most_keys ? asked : most_keys;
  static constexpr int pairs = rows * keys;
  static_assert(d % 64 == 0 && keys >= 1 && pairs <= 32 && 32 % pairs == 0);

  /// Which feature lies at place n of a row as lanes hold it: chunk by chunk, lane by lane.
  __device__ __forceinline__ static int feature_at(int n) {
    if (whole) return n;
    int const chunk = n / (32 * vector), lane = n / vector % 32;
    return lane + 32 * (chunk * vector + n % vector);
  }
};

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
