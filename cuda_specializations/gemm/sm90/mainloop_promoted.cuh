// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Products of float8 operands of which the tensor cores sum those of one stage alone, 128 along K:
/// they keep as few as 14 bits of a long sum. The rest are float32 additions, each with the factors
/// of its stage where operands are scaled by blocks.
///
/// Source of the block scales: DeepSeek-V3 Technical Report (arXiv:2412.19437), section 3.3.
#pragma once

#include <attikos/ptx/cp_async.hpp>

#include "common/ring.cuh"
#include "common/uniform.cuh"
#include "params.cuh"
#include "ptx/thread_index.cuh"
#include "ptx/wgmma.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Takes the next stage of a ring: descriptors of its operands, from those of stage 0. Returns its
/// number, for the caller to release.
template <class Config>
__device__ __forceinline__ int take_operands(Ring<Config::stages> const& ring,
                                             RingPosition<Config::stages>& at, std::uint64_t a0,
                                             std::uint64_t b0, std::uint64_t& a, std::uint64_t& b) {
  int const taken = at.stage;
  ring.wait(at);
  a = advance(a0, taken * Config::stage_bytes);
  b = advance(b0, taken * Config::stage_bytes);
  at.next();
  return taken;
}

/// Where a stage's fetched factors lie in shared memory: for each two rows whose sums a thread
/// holds their two, then one for all columns and a place left free, so that one load brings them
/// all; then one for each column where a tile may have several.
template <class Config>
struct Sm90FactorSlot {
  static constexpr int rows = Config::tile_m, columns = Config::column_factors ? Config::tile_n : 0;
  static constexpr int all = 8, column = 8 * rows;  // bytes into two rows' and into the slot
  static constexpr int bytes = factor_slot_bytes(rows, columns);

  /// Bytes to the factor of row `row` of the tile; 16 rows on lies 128 further.
  static __device__ __forceinline__ std::uint32_t of_row(std::uint32_t row) {
    return Config::registers_a ? row / 2 * 16 + row % 2 * 4
                               : (row / 16 * 8 + row % 8) * 16 + row / 8 % 2 * 4;
  }

  /// Makes the factors of all stages 1, which those of an operand without any stay; all threads.
  static __device__ __forceinline__ void clear(std::uint32_t slots) {
    for (int i = static_cast<int>(threadIdx.x); i < Config::factor_bytes / 4; i += Config::threads)
      store_shared(slots + 4 * i, 1.0f);
  }
};

/// Brings the factors of a tile to shared memory, stage by stage: a warp for each 64 rows, beside
/// the one that brings the operands.
template <class Config>
class Sm90FactorLoader {
  using Slot = Sm90FactorSlot<Config>;
  static constexpr int warps = Config::factor_warps;
  static constexpr int columns = (Slot::columns + 32 * warps - 1) / (32 * warps);  ///< of a lane
  static_assert(Slot::rows == 64 * warps);

 public:
  /// For the tile that begins at row `m` and column `n`.
  __device__ __forceinline__ Sm90FactorLoader(Sm90Params const& p, int z, int m, int n) : p_(p) {
    abi::ScaleGrid const &a = p.block_a, &b = p.block_b;
    // Rows and columns outside the matrix have no factors; what they get does not matter.
    int const row = min(m + line(), p.m - 1), next = min(row + 32 * warps, p.m - 1);
    of_row_ = a.data + a.offset(z, row, 0);
    to_next_ = ((next >> a.row_shift) - (row >> a.row_shift)) * static_cast<int>(a.row);
    of_all_ = b.data + b.offset(z, 0, min(n, p.n - 1));
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      int const column = min(n + line() + i * 32 * warps, p.n - 1);
      to_columns_[i] =
          ((column >> b.col_shift) - (min(n, p.n - 1) >> b.col_shift)) * static_cast<int>(b.col);
    }
  }

  /// Starts the copies for stage number `k` along K to `slot`; `full` counts each lane of the
  /// warps. Blocks are a multiple of a stage long.
  __device__ __forceinline__ void load(std::uint32_t slot, std::uint64_t* full, int k) const {
    abi::ScaleGrid const &a = p_.block_a, &b = p_.block_b;
    auto const step = [&](std::int64_t stride, int shift) {
      return (k >> max(shift - 7, 0)) * static_cast<int>(stride);
    };
    if (a.data != nullptr) {
      int const of_a = step(a.col, a.col_shift);
      std::uint32_t const at = slot + Slot::of_row(line());
      copy_async_four(at, of_row_ + of_a);
      copy_async_four(at + 32 * warps * 8, of_row_ + of_a + to_next_);
    }
    if (b.data != nullptr) {
      int const of_b = step(b.row, b.row_shift);
      if (Config::column_factors && factors_by_column(b)) {
#pragma unroll
        for (int i = 0; i < columns; ++i) {
          int const column = line() + i * 32 * warps;
          if (column < Config::tile_n)
            copy_async_four(slot + Slot::column + 4 * column, of_all_ + to_columns_[i] + of_b);
        }
      } else {
        copy_async_four(slot + line() * 16 + Slot::all, of_all_ + of_b);
      }
    }
    copy_async_arrive(full);
  }

 private:
  /// This lane's first row. Read afresh: there are few registers.
  static __device__ __forceinline__ int line() {
    return fresh_thread() - Config::first_factor_thread;
  }

  Sm90Params const& p_;
  float const *of_row_, *of_all_;               ///< this lane's, for the beginning of K
  int to_next_;                                 ///< to that of its second row
  int to_columns_[columns == 0 ? 1 : columns];  ///< from of_all_ to those of its columns
};

/// Adds to two rows' sums those of a stage times their factors.
template <int Size>
__device__ __forceinline__ void add_rows(float (&acc)[Size], float (&part)[Size],
                                         float4 const& factors) {
  pin(part);
  float const row[2] = {factors.x * factors.z, factors.y * factors.z};
#pragma unroll
  for (int r = 0; r < Size; ++r) acc[r] = __fmaf_rn(row[r / 2 % 2], part[r], acc[r]);
}

/// Which fetched factors sums take on from stage to stage: none, those of rows and one for all
/// columns, or those of rows and of columns.
enum class Factors : std::uint8_t { none, rows, columns };

/// The fetched factors of a thread's sums of a tile.
template <class Config, Factors Kind>
class Sm90BlockScales {
  using Slot = Sm90FactorSlot<Config>;

 public:
  /// Whether add() reads factors, so that the stage has to be kept until then.
  static constexpr bool reads_late = Kind == Factors::columns;

  /// `slots`: factors of the stages; the warpgroup's sums begin at row `row` of the tile.
  __device__ __forceinline__ Sm90BlockScales(std::uint32_t slots, int row)
      : rows_(slots + Slot::of_row(row + line_of_sum<Config>(0, threadIdx.x % 128))),
        columns_(slots + Slot::column + threadIdx.x % 4 * 8) {}

  /// Reads those of the stage at `place` that are few: of two rows, and of all columns.
  __device__ __forceinline__ float4 read(int place, bool = true) const {
    return Kind != Factors::none ? load_shared(rows_ + place * Slot::bytes) : float4{1, 1, 1, 1};
  }

  /// Adds the sums of that stage, whose products have been waited for.
  template <int Size>
  __device__ __forceinline__ void add(float (&acc)[Size], float (&part)[Size], float4 factors,
                                      int place) const {
    if constexpr (Kind == Factors::none) {
      pin(part);
#pragma unroll
      for (int r = 0; r < Size; ++r) acc[r] += part[r];
    } else if constexpr (Kind == Factors::rows) {
      add_rows(acc, part, factors);
    } else {
      pin(part);
      float const row[2] = {factors.x * factors.z, factors.y * factors.z};
#pragma unroll
      for (int r = 0; r < Size; r += 4) {
        float2 const b = load_shared_two(columns_ + place * Slot::bytes + r * 8);
        acc[r] = __fmaf_rn(b.x * row[0], part[r], acc[r]);
        acc[r + 1] = __fmaf_rn(b.y * row[0], part[r + 1], acc[r + 1]);
        acc[r + 2] = __fmaf_rn(b.x * row[1], part[r + 2], acc[r + 2]);
        acc[r + 3] = __fmaf_rn(b.y * row[1], part[r + 3], acc[r + 3]);
      }
      pin(acc);
    }
  }

 private:
  std::uint32_t const rows_, columns_;
};

/// Calls `multiply` with the factors of a tile.
template <class Config, class Multiply>
__device__ __forceinline__ void with_block_scales(Sm90Params const& p, std::uint32_t slots, int row,
                                                  Multiply multiply) {
  if (p.block_factors == BlockFactors::none)
    return multiply(Sm90BlockScales<Config, Factors::none>(slots, row));
  if constexpr (Config::column_factors) {
    if (factors_by_column(p.block_b))
      return multiply(Sm90BlockScales<Config, Factors::columns>(slots, row));
  }
  multiply(Sm90BlockScales<Config, Factors::rows>(slots, row));
}

/// Starts the products of one stage of float8 operands into `part`.
template <class Config, int Size>
__device__ __forceinline__ void start_part(float (&part)[Size], std::uint64_t a, std::uint64_t b) {
  using Product = Wgmma<typename Config::A, typename Config::B, Config::tile_n, 0, 0>;
  pin(part);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step)
    Product::multiply(part, advance(a, step * 32), advance(b, step * 32), step != 0);
  wgmma_commit();
}

/// Sums the products of a tile into `acc`: while one stage's sums are added in float32, the next
/// stage is multiplied. `take(a, b)` waits for a stage and gives its place and the descriptors of
/// its operands; `release(place)` gives it back.
template <class Config, int Size, class Scales, class Take, class Release>
__device__ __forceinline__ void multiply_promoted(float (&acc)[Size], Scales scales, int k_blocks,
                                                  Take take, Release release) {
  static_assert(Config::waves == 1);
  float even[Size], odd[Size];
  float4 even_factors, odd_factors;
#pragma unroll
  for (int r = 0; r < Size; ++r) acc[r] = 0;
  auto const start = [&](float(&part)[Size], float4& factors, bool even_stage) {
    std::uint64_t a, b;
    int const place = take(a, b);
    start_part<Config>(part, a, b);
    factors = scales.read(place, even_stage);  // nobody waits for them yet
    return place;
  };
  auto const finish = [&](float(&part)[Size], float4 const& factors, int place) {
    if (!Scales::reads_late) release(place);
    scales.add(acc, part, factors, place);
    if (Scales::reads_late) release(place);
  };
  int held = start(even, even_factors, true);
  int k = 1;
  for (; k + 1 < k_blocks; k += 2) {
    int const second = start(odd, odd_factors, false);
    wgmma_wait<1>();
    finish(even, even_factors, held);
    held = start(even, even_factors, true);
    wgmma_wait<1>();
    finish(odd, odd_factors, second);
  }
  if (k < k_blocks) {
    int const second = start(odd, odd_factors, false);
    wgmma_wait<1>();
    finish(even, even_factors, held);
    wgmma_wait<0>();
    finish(odd, odd_factors, second);
  } else {
    wgmma_wait<0>();
    finish(even, even_factors, held);
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
