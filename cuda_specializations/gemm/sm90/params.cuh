// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the sm_90a kernels are told, and the shapes that they come in.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <type_traits>

#include "common/limits.cuh"
#include "common/quotient.cuh"
#include "common/schedule.cuh"
#include "gemm/shared/epilogue.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// How the tiles of C are numbered: clusters of `cluster` tiles along M, in groups of `group`
/// clusters along M, so that what runs at one time shares rows of A and columns of B in L2. The
/// same order as Sm80Tiles', but for blocks that go through many tiles: the host prepares divisors,
/// for which those of one tile would read more parameters than they save divisions.
struct Sm90Tiles {
  int clusters_m = 0, tiles_n = 0, batch = 0, group = 1;
  Quotient by_batch, by_width, by_group, by_rest;  ///< tiles of each; of a last, smaller group

  Sm90Tiles() = default;
  Sm90Tiles(std::int64_t clusters, std::int64_t columns, std::int64_t matrices, int in_group)
      : clusters_m(static_cast<int>(clusters)),
        tiles_n(static_cast<int>(columns)),
        batch(static_cast<int>(matrices)),
        group(std::min(in_group, std::max(clusters_m, 1))),
        by_batch(clusters_m * tiles_n),
        by_width(group * tiles_n),
        by_group(group),
        by_rest(clusters_m % group) {}

  /// At most 2^30.
  __device__ __forceinline__ int count() const { return clusters_m * tiles_n * batch; }
  __device__ __forceinline__ void locate(int tile, int& z, int& m, int& n) const {
    z = by_batch.of(tile);
    int const in_batch = tile - z * clusters_m * tiles_n;
    int const before = by_width.of(in_batch);
    int const in_group = in_batch - before * group * tiles_n;
    int const rows = min(clusters_m - before * group, group);
    n = rows == group ? by_group.of(in_group) : by_rest.of(in_group);
    m = before * group + in_group - n * rows;
  }
};

/// How C is stored: 8-bit or 16-bit elements by the copy engine where they are finished in
/// registers, 32-bit ones where alpha is all there is to do, otherwise four at a time along its
/// unit stride, or one by one. The copy engine stores along N, or, but for 8-bit elements, along M
/// where A comes from registers and C's unit stride is there.
enum class Sm90Store : std::uint8_t { bytes, halves, words, vectors, elements };

/// Who brings factors that change along K: there are none; the copy engine, those of four stages at
/// a time (`copied`); or warps of their own, whatever they are (`fetched`).
enum class BlockFactors : std::uint8_t { none, copied, fetched };

/// An operand's copied factors: one for each of its rows (B's columns), or one for all of a tile.
struct CopiedFactors {
  CUtensorMap map;
  bool exist, along_k;     ///< those of consecutive stages lie together, or those of rows
  bool of_rows;            ///< one for each
  std::int8_t tile_shift;  ///< of one for all: how rows are counted
  int batch_step;          ///< 0 where they are the same in every batch
};

/// The beginnings of a K-major A's rows, which blocks bring into L2 while they wait for the launch
/// before theirs.
struct Sm90Lead {
  unsigned char const* rows;
  std::int64_t row_bytes, batch_bytes;
  int lines;  ///< of 128 bytes in each row; 0: none
};

struct Sm90Params {
  CUtensorMap a, b, c;
  CUtensorMap up;  ///< of a gated product, the second weight; b (a where operands are transposed)
                   ///< is the first
  Sm90Tiles tiles;
  int k_blocks;      ///< 128-byte steps of K
  int a_batch_step;  ///< 0 where A is the same in every batch
  int b_batch_step;
  int splits;     ///< blocks that share out K
  int wave_rows;  ///< rows that a product of 64 rows really has; the rest of its tile is not loaded
  int m, n;
  Sm90Lead lead;
  Sm90Store store;
  Activation gate;  ///< of a gated product
  /// Factors that change along K, of blocks a multiple of 128 long there; no data: none.
  abi::ScaleGrid block_a, block_b;
  BlockFactors block_factors;
  CopiedFactors copied_a, copied_b;
  Epilogue epilogue;
};

/// Whether blocks of B's factors are so narrow that columns of one tile have different ones.
constexpr __host__ __device__ bool factors_by_column(abi::ScaleGrid const& b) {
  return b.data != nullptr && b.col != 0 && b.col_shift < 7;
}

/// Shared memory for the fetched factors of a stage: of so many rows, one for all columns beside
/// each two of them, and of `columns`.
constexpr int factor_slot_bytes(int rows, int columns) { return 8 * rows + 4 * columns; }

/// What a block stores of a tile whose K is shared out: its part of the columns of the sums.
template <class Shape>
struct StoredPart : Shape {
  static constexpr int columns = (Shape::columns / Shape::splits + 15) / 16 * 16, splits = 1;
};

/// A kernel for elements of types A and B, their layouts, and one of the shapes of shapes.cuh.
template <class A_, class B_, class Layout, class Shape>
struct Sm90Config {
  using A = A_;
  using B = B_;
  static constexpr bool integer = std::is_same_v<A, std::int8_t>;
  using Acc = std::conditional_t<integer, int, float>;
  static constexpr bool mn_a = Layout::mn_a, mn_b = Layout::mn_b;
  /// 8-bit operands go to the tensor cores from shared memory along K only, otherwise from
  /// registers.
  static constexpr bool registers_a = mn_a && sizeof(A) == 1;
  static constexpr bool promoted = Shape::promoted, gated = Shape::gated;
  static constexpr int tile_m = Shape::rows, tile_n = Shape::columns;
  static constexpr int cluster = Shape::cluster, stages = Shape::stages;
  /// Columns of a block's share of the sums; the last of a cluster may have none.
  static constexpr int stored_n = StoredPart<Shape>::columns;
  static constexpr int splits = Shape::splits, blocks = cluster * splits;  ///< of a cluster
  using Stored =
      std::conditional_t<splits == 1, Sm90Config, Sm90Config<A_, B_, Layout, StoredPart<Shape>>>;
  static constexpr int tile_k = 128 / static_cast<int>(sizeof(A));
  static constexpr int out_n = gated ? tile_n / 2 : tile_n;  ///< columns of C
  static constexpr int consumers = 2;
  static constexpr bool ping_pong = Shape::schedule == Schedule::ping_pong;
  static constexpr int sharers = ping_pong ? 1 : consumers;  ///< warpgroups at work on one tile
  static constexpr int waves = tile_m / (64 * sharers);      ///< 64-row products of a warpgroup
  /// The sums leave no registers to finish them with: only where factors are all there is to do.
  static constexpr bool factors_alone = waves * tile_n > 256;
  static constexpr int threads = 128 * (1 + consumers);
  static constexpr int a_bytes = tile_m * 128, b_bytes = tile_n * 128;
  static constexpr int stage_bytes = a_bytes + b_bytes;
  static constexpr int panel_bytes = 64 * 128;        ///< 64 rows × 128 bytes of C
  static constexpr int group_panels = Shape::panels;  ///< of a warpgroup, which it fills in turns
  static constexpr int panels = group_panels * consumers;
  /// Panels of 16-bit elements that a warpgroup fills before it hands them to the copy engine. With
  /// 8-bit operands, whose products are over soon: all of its sums' or half of its panels, so that
  /// it waits for few barriers.
  static constexpr int own_panels = waves * out_n / 64;
  static constexpr int panels_together = sizeof(A) != 1 || out_n % 64 != 0 ? 1
                                         : group_panels >= own_panels
                                             ? own_panels
                                             : std::max(1, group_panels / 2);
  /// Whether factors of rows and columns are fetched while sums are computed, and place for those
  /// of a warpgroup. Beside an A in registers there are none for it.
  static constexpr bool reads_ahead = sizeof(A) == 1 && !registers_a && !gated;
  static constexpr int row_column_bytes = reads_ahead ? 4 * (tile_n + 64 * waves) : 0;
  /// Whether it finishes 8-bit elements in registers, 32 columns at a time: 16-bit operands, and
  /// wide tiles beside an A in registers, have none left for that.
  static constexpr bool writes_bytes = sizeof(A) == 1 && !gated && !factors_alone &&
                                       tile_n % 32 == 0 && !(registers_a && tile_n > 128);
  /// Whether B's factors of blocks may change from column to column: wide tiles have no registers
  /// for it.
  static constexpr bool column_factors = tile_n <= 64 || registers_a;
  /// The producer's and a consumer's; finding factors of columns takes some.
  static constexpr int producer_registers = (promoted && column_factors) || splits > 1 ? 40 : 24;
  static constexpr int consumer_registers = (504 - producer_registers) / 2;
  static constexpr int factor_warps = promoted ? tile_m / 64 : 0, first_factor_thread = 32;
  /// stages whose factors are copied at a time, where those of A and of B lie, how many places
  /// there are.
  static constexpr int copied_stages = 4, copied_a_bytes = 4 * tile_m * copied_stages,
                       copied_bytes = copied_a_bytes + 128,
                       copied_places = promoted && !registers_a ? stages + 1 : 0;
  static constexpr int fetched_bytes =
      promoted ? stages * factor_slot_bytes(tile_m, column_factors ? tile_n : 0) : 0;
  static constexpr int factor_bytes = std::max(copied_places * copied_bytes, fetched_bytes);
  static constexpr int barrier_bytes = (2 * 8 * stages + 127) / 128 * 128;
  static constexpr int shared_bytes = stages * stage_bytes + panels * panel_bytes + factor_bytes +
                                      barrier_bytes + consumers * row_column_bytes;
  static_assert(shared_bytes <= sm90_shared_bytes);
  static_assert(sizeof(A) != 1 || !mn_b);
  static_assert(tile_m % 128 == 0 && tile_n % 16 == 0 && (cluster == 1 || tile_n % 128 == 0));
  static_assert(tile_n % stored_n == 0);
  static_assert(splits == 1 || (cluster == 1 && Shape::schedule == Schedule::cooperative &&
                                !integer && !registers_a && !promoted && !gated));
  static_assert(!mn_b || tile_n % 64 == 0);
  static_assert(!registers_a || (tile_m == 128 && tile_n % 64 == 0));
};

namespace {

/// The line of a wave's 64 that sums d[2 i], d[2 i + 1] of a thread belong to; see
/// wgmma_a_registers.cuh for an A from registers.
template <class Config>
constexpr __device__ __forceinline__ int line_of_sum(int i, int thread) {
  int const group = thread % 32 / 4;
  return 16 * (thread / 32) + (Config::registers_a ? 2 * group + i : group + 8 * i);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
