// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes that the kernels of gemm/sm90_wgmma_*, gated_mlp/sm90_wgmma_* and gemm/sm90_simt_f32
/// come in.
/// launch_many.cuh and launch_few.cuh say which calls have the choice of which, params.cuh and
/// kernel_split_k.cuh what follows from a shape. Kernels' symbols carry the shapes' names, and so
/// does ptxas_allowances.txt.
#pragma once

#include "common/schedule.cuh"
#include "gemm/shared/layouts.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace sm90_gemm_shapes {

/// What the sums of products go through before the epilogue: nothing, float32 additions of those of
/// 128 along K (see mainloop_promoted.cuh), or act(x·gate) · (x·up), C being half as wide.
enum class Kind { plain, promoted, gated };

/// Tiles of 128 rows and `Columns` columns of C. `Cluster`: tiles side by side along M that share
/// B's. Two consumer warpgroups share the rows of a tile, or take tiles in turns, so that one
/// multiplies while the other stores. `Panels`: those through which a warpgroup stores C; where all
/// of its tile fits, it never waits for them. `Splits`: blocks of a cluster that share out K of one
/// tile and sum their parts through distributed shared memory.
template <int Columns, int Cluster, int Stages, Schedule Order, int Panels = 2,
          Kind Of = Kind::plain, int Splits = 1>
struct Shape {
  static constexpr int rows = 128, columns = Columns, cluster = Cluster, stages = Stages;
  static constexpr Schedule schedule = Order;
  static constexpr int panels = Panels, splits = Splits;
  static constexpr bool promoted = Of == Kind::promoted, gated = Of == Kind::gated;
};

constexpr Schedule turns = Schedule::ping_pong, together = Schedule::cooperative;

// Figures from <H200 700 W, CUDA 13.0>: times as fast as the best of the other shapes.

// clang-format off
//                            columns cluster stages order  panels kind
struct N48             : Shape<  48, 1, 8, together>                       {}; // (1)
struct N64             : Shape<  64, 1, 8, together>                       {};
struct N96             : Shape<  96, 1, 6, together>                       {}; // (1)
struct N112            : Shape< 112, 1, 6, together>                       {}; // (1)
struct N128            : Shape< 128, 1, 5, turns,    4>                    {}; // of 16 bits
struct N192            : Shape< 192, 1, 4, together>                       {}; // (1)
struct N192Turns       : Shape< 192, 1, 4, turns,    4>                    {}; // (2)
struct N224            : Shape< 224, 1, 4, together>                       {}; // (1)
struct N256Pair        : Shape< 256, 2, 4, together>                       {}; // (3)
struct N144Split4      : Shape< 144, 1, 5, together, 2, Kind::plain, 4>    {}; // (4)
// of 8 bits
struct N128Bytes       : Shape< 128, 1, 6, turns>                          {};
struct N128PairBytes   : Shape< 128, 2, 6, turns>                          {};
struct N128Registers   : Shape< 128, 1, 6, together>                       {}; // A from registers
struct N64Promoted     : Shape<  64, 1, 7, together, 2, Kind::promoted>    {}; // factors by column
struct N128Promoted    : Shape< 128, 1, 5, together, 2, Kind::promoted>    {};
struct N128PairPromoted: Shape< 128, 2, 5, together, 2, Kind::promoted>    {}; // (5)
// of the gated MLP
struct N128Gated       : Shape< 128, 1, 6, turns,    2, Kind::gated>       {};
struct N128PairGated   : Shape< 128, 2, 6, turns,    2, Kind::gated>       {};
// (1) 512 × 14336 × 4096, 1.05 (bfloat16) and 1.07 (float8); 512 × 6144 × 4096, 1.04 and 1.24;
//     256 × 6144 × 4096, 1.11 (float8).
// (2) 8192 × 8192 × 512 bfloat16, 1.12 (TN) and 1.09 (NT); × 4096, 1.07.
// (3) Brought large 16-bit products from 0.91 … 0.94 of cuBLASLt's best of ten to 0.96 and more.
// (4) 128 × 4096 × 14336, 1.14 (bfloat16) and 1.18 (float8) of tiles of 64 × 128 by two blocks.
// (5) Slower with factors: 0.85 against 0.90 of the rate without at 4096 × 4096 × 7168.
// clang-format on

/// Tiles of 64 rows for each of `Waves`, of products with few tiles. As many stages as fit where
/// `Blocks` blocks share a multiprocessor; each of `Steps` · 128 bytes of K.
template <int Columns, int Blocks, int Steps = 1, int Waves = 1, Kind Of = Kind::plain>
struct FewShape {
  static constexpr int columns = Columns, blocks = Blocks, steps = Steps, waves = Waves;
  static constexpr bool promoted = false, gated = Of == Kind::gated;
};
/// The same with promoted sums.
template <class Of>
struct Promoted : Of {
  static constexpr bool promoted = true;
  static constexpr int steps = 1;
};

// clang-format off
//                            columns blocks steps waves
struct Few16           : FewShape<  16, 2>             {};
struct Few32           : FewShape<  32, 2>             {};
struct Few64           : FewShape<  64, 2>             {};
struct Few128          : FewShape< 128, 2>             {};
struct Few16Deep       : FewShape<  16, 1, 2>          {};
struct Few32Deep       : FewShape<  32, 1>             {};
struct Few64Deep       : FewShape<  64, 1>             {};
struct Few128Deep      : FewShape< 128, 1>             {};
struct Few16Gated      : FewShape<  16, 2, 1, 2, Kind::gated> {};
struct Few32Gated      : FewShape<  32, 2, 1, 2, Kind::gated> {};
struct Few64Gated      : FewShape<  64, 2, 1, 2, Kind::gated> {};
// clang-format on

/// Tiles of gemm/sm90_simt_f32, whose eight warps have 64 × 64 elements each and share out k where
/// a tile is smaller. `Cycles`: what a k costs a tile. `Splits`: the most blocks of a cluster that
/// share out K of one tile; 0: blocks go through tiles.
template <int Rows, int Columns, int Stages, int Cycles, int Splits>
struct SimtShape {
  static constexpr int rows = Rows, columns = Columns, stages = Stages, cycles = Cycles;
  static constexpr int most_splits = Splits;
};

// clang-format off
// Cycles from <H200 700 W, CUDA 13.0, 256³ ... 8192³, 512 × 512 × 8192, 2048 × 2048 × 256, 1024 ×
// 1024 × 64>, up to 15 % more where an operand is transposed.
//                            rows columns stages cycles splits
struct M128N256Simt    : SimtShape<128, 256, 4, 307, 0> {};
struct M128N128Simt    : SimtShape<128, 128, 6, 168, 4> {};
struct M64N128Simt     : SimtShape< 64, 128, 8,  86, 8> {};
// clang-format on

}  // namespace sm90_gemm_shapes
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
