// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Products of float8 operands of which the tensor cores sum those of one stage alone, 128 along K:
/// they keep as few as 14 bits of a long sum. The rest are float32 additions, each with the factors
/// of its stage where operands are scaled by blocks.
///
/// Source of the block scales: DeepSeek-V3 Technical Report (arXiv:2412.19437), section 3.3.
#pragma once

#include "../ptx/cp_async.cuh"
#include "../ptx/wgmma.cuh"
#include "sm90_params.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// The factors that a warp's sums of a tile take on from stage to stage. Each warp brings its own
/// to shared memory, some stages ahead of their use: loaded into registers, they would be waited
/// for.
template <class Config>
class Sm90BlockScales {
 public:
  /// `at`: room for all warps' factors; the tile begins at row `m` for this warpgroup and column
  /// `n`, and takes `count` stages of K from number `first` on.
  __device__ __forceinline__ Sm90BlockScales(Sm90Params const& p, std::uint32_t at, int z, int m,
                                             int n, int first, int count)
      : p_(p),
        on_(p.block_a.data != nullptr || p.block_b.data != nullptr),
        by_column_(Config::column_factors && factors_by_column(p.block_b)),
        first_(first),
        end_(first + count) {
    if (!on_) return;
    at_ = at + warp() * (slots * slot_bytes);
    // Rows and columns outside the matrix have no factors; what they get does not matter.
    abi::ScaleGrid const &a = p.block_a, &b = p.block_b;
    bool const of_row = lane() < rows;
    from_ = of_row ? a.data + a.offset(z, min(m + warp() % 4 * rows + lane(), p.m - 1), 0)
                   : b.data + b.offset(z, 0, min(n, p.n - 1));
    loads_ = of_row ? a.data != nullptr : lane() == rows && b.data != nullptr && !by_column_;
    if constexpr (Config::column_factors) z_ = z, n_ = n;
    __syncwarp();  // the last tile's have been read
    for (int k = first; k < first + slots - 1; ++k) fetch(k);
  }

  /// Makes this warp's factors 1, which those of an operand without any stay; once, before all
  /// tiles.
  static __device__ __forceinline__ void clear(std::uint32_t at) {
    constexpr int words = slots * slot_bytes / 4;
    for (int i = lane(); i < words; i += 32) store_shared(at + (warp() * words + i) * 4, 1.0f);
    __syncwarp();
  }

  /// Waits for the factors of the next stage, number `k`, and reads those that are few.
  __device__ __forceinline__ void load(int k) {
    if (!on_) return;
    k += first_;
    copy_async_wait<slots - 2>();
    __syncwarp();
    std::uint32_t const at = slot(k);
    float const all = load_shared_word(at + rows * 4);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      row_[i] = load_shared_word(at + line_of_sum<Config>(i, lane()) * 4);
      if (!Config::column_factors || !by_column_) row_[i] *= all;
    }
    if (!Config::column_factors) fetch(k + slots - 1);
  }

  /// Adds the sums of stage `k`, whose products have been waited for.
  template <int Size>
  __device__ __forceinline__ void add(float (&acc)[Size], float (&part)[Size], int k) const {
    pin(part);
    if (!Config::column_factors || !by_column_) {
#pragma unroll
      for (int r = 0; r < Size; ++r) acc[r] = __fmaf_rn(row_[r / 2 % 2], part[r], acc[r]);
    } else {
      std::uint32_t const at = slot(first_ + k) + (rows + 4) * 4 + lane() % 4 * 8;
#pragma unroll
      for (int r = 0; r < Size; r += 4) {
        float2 const b = load_shared_two(at + r * 8);
        acc[r] = __fmaf_rn(b.x * row_[0], part[r], acc[r]);
        acc[r + 1] = __fmaf_rn(b.y * row_[0], part[r + 1], acc[r + 1]);
        acc[r + 2] = __fmaf_rn(b.x * row_[1], part[r + 2], acc[r + 2]);
        acc[r + 3] = __fmaf_rn(b.y * row_[1], part[r + 3], acc[r + 3]);
      }
    }
    if (Config::column_factors && on_) {
      __syncwarp();
      fetch(first_ + k + slots - 1);
    }
  }

 private:
  static constexpr int columns = Config::column_factors ? Config::tile_n : 0;
  static constexpr int slots = factor_slots(columns), slot_bytes = factor_slot_bytes(columns);
  static constexpr int rows = 16;

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ int warp() {
    return static_cast<int>(threadIdx.x) / 32 - Config::first_consumer_warp;
  }
  __device__ __forceinline__ std::uint32_t slot(int k) const {
    return at_ + k % slots * slot_bytes;
  }

  /// Starts the copies of the factors of stage `k`: of the warp's 16 rows, then of all columns
  /// where they have the same, then of each column. Blocks are a multiple of a stage long.
  __device__ __forceinline__ void fetch(int k) const {
    auto const step = [&](std::int64_t stride, int shift) {
      return (k >> max(shift - 7, 0)) * static_cast<int>(stride);
    };
    abi::ScaleGrid const &a = p_.block_a, &b = p_.block_b;
    std::uint32_t const to = slot(k);
    if (k < end_) {
      int const of_a = step(a.col, a.col_shift), of_b = step(b.row, b.row_shift);
      if (loads_) copy_async_four(to + lane() * 4, from_ + (lane() < rows ? of_a : of_b));
      if constexpr (Config::column_factors) {
        if (by_column_) {
#pragma unroll
          for (int c = 0; c < Config::tile_n; c += 32)
            if (Config::tile_n % 32 == 0 || lane() < Config::tile_n)
              copy_async_four(to + (rows + 4 + c + lane()) * 4,
                              b.data + (b.offset(z_, 0, min(n_ + c + lane(), p_.n - 1)) + of_b));
        }
      }
    }
    copy_async_commit();
  }

  Sm90Params const& p_;
  bool const on_, by_column_;
  bool loads_;  ///< whether this lane brings one of the few
  int const first_, end_;
  int z_, n_;
  std::uint32_t at_;
  float const* from_;      ///< where what this lane brings lies for the beginning of K
  float row_[2] = {1, 1};  ///< factors of this thread's rows, times B's where all columns have one
};

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
template <class Config, int Size, class Take, class Release>
__device__ __forceinline__ void multiply_promoted(float (&acc)[Size],
                                                  Sm90BlockScales<Config> scales, int k_blocks,
                                                  Take take, Release release) {
  static_assert(Config::waves == 1);
  float even[Size], odd[Size];
#pragma unroll
  for (int r = 0; r < Size; ++r) acc[r] = 0;
  std::uint64_t a, b;
  int held = take(a, b);
  start_part<Config>(even, a, b);
  int k = 1;
  for (; k + 1 < k_blocks; k += 2) {
    int const second = take(a, b);
    start_part<Config>(odd, a, b);
    scales.load(k - 1);
    wgmma_wait<1>();
    release(held);
    scales.add(acc, even, k - 1);
    held = take(a, b);
    start_part<Config>(even, a, b);
    scales.load(k);
    wgmma_wait<1>();
    release(second);
    scales.add(acc, odd, k);
  }
  if (k < k_blocks) {
    int const second = take(a, b);
    start_part<Config>(odd, a, b);
    scales.load(k - 1);
    wgmma_wait<1>();
    release(held);
    scales.add(acc, even, k - 1);
    scales.load(k);
    wgmma_wait<0>();
    release(second);
    scales.add(acc, odd, k);
  } else {
    scales.load(k - 1);
    wgmma_wait<0>();
    release(held);
    scales.add(acc, even, k - 1);
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
