// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Products of float8 operands of which the tensor cores sum those of one stage alone, 128 along K:
/// they keep as few as 14 bits of a long sum. The rest are float32 additions, each with the factors
/// of its stage where operands are scaled by blocks.
///
/// Source of the block scales: DeepSeek-V3 Technical Report (arXiv:2412.19437), section 3.3.
#pragma once

#include "../ptx/wgmma.cuh"
#include "sm90_params.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// The factors that this thread's sums of a tile take on from stage to stage.
template <class Config>
class Sm90BlockScales {
 public:
  /// Whether B's factors may change from column to column. Those of narrow tiles, whose sums leave
  /// registers, are fetched ahead.
  static constexpr bool columns = Config::tile_n <= 64 || Config::registers_a;
  static constexpr int ahead = Config::tile_n <= 64 ? Config::tile_n / 4 : 1;

  /// Those of one stage: of two rows, of B's block, or of each column.
  struct Stage {
    float row[2], b[ahead];
  };

  /// Stages of K from number `first` on.
  __device__ __forceinline__ Sm90BlockScales(Sm90Params const& p, int z, int m, int n, int first)
      : p_(p),
        on_(p.block_a.data != nullptr || p.block_b.data != nullptr),
        by_column_(columns && factors_by_column(p.block_b)),
        z_(z),
        n_(n),
        first_(first) {
    int const thread = static_cast<int>(threadIdx.x) % 128;
    // Rows and columns outside the matrix have no factors; what they get does not matter.
#pragma unroll
    for (int i = 0; i < 2; ++i)
      row_[i] = static_cast<int>(
          p.block_a.offset(z, min(m + line_of_sum<Config>(i, thread), p.m - 1), 0));
    // Of the thread's first column, though it is the same for all: a factor that the compiler knows
    // to be uniform goes to a uniform register, and is waited for where it is loaded.
    b_ = static_cast<int>(p.block_b.offset(z, 0, column(0)));
  }

  /// Fetches the factors of stage `k`.
  __device__ __forceinline__ void load(Stage& stage, int k) const {
    if (!on_) return;
    int const at = first_ + k;
    // Blocks are a multiple of a stage long.
    auto const step = [&](std::int64_t stride, int shift) {
      return (at >> max(shift - 7, 0)) * static_cast<int>(stride);
    };
    stage.row[0] = stage.row[1] = 1;
    if (p_.block_a.data != nullptr) {
      int const to = step(p_.block_a.col, p_.block_a.col_shift);
#pragma unroll
      for (int i = 0; i < 2; ++i) stage.row[i] = p_.block_a.data[row_[i] + to];
    }
    if (!by_column_) {
      stage.b[0] = 1;
      if (p_.block_b.data != nullptr)
        stage.b[0] = p_.block_b.data[b_ + step(p_.block_b.row, p_.block_b.row_shift)];
    } else if constexpr (ahead > 1) {
#pragma unroll
      for (int c = 0; c < ahead; ++c) stage.b[c] = p_.block_b.at(z_, at * 128, column(c));
    }
  }

  /// Adds the sums of stage `k`, whose products have been waited for.
  template <int Size>
  __device__ __forceinline__ void add(float (&acc)[Size], float (&part)[Size], Stage const& stage,
                                      int k) const {
    pin(part);
    if (!columns || !by_column_) {
      float const b = on_ ? stage.b[0] : 1;
      float const upper = on_ ? stage.row[0] * b : 1, lower = on_ ? stage.row[1] * b : 1;
#pragma unroll
      for (int r = 0; r < Size; ++r)
        acc[r] = __fmaf_rn((r & 2) != 0 ? lower : upper, part[r], acc[r]);
    } else {
      int const at = (first_ + k) * 128;
#pragma unroll
      for (int c = 0; c < Size / 2; ++c) {
        float const b = ahead > 1 ? stage.b[c] : p_.block_b.at(z_, at, column(c));
        int const r = 4 * (c / 2) + c % 2;
        acc[r] = __fmaf_rn(b * stage.row[0], part[r], acc[r]);
        acc[r + 2] = __fmaf_rn(b * stage.row[1], part[r + 2], acc[r + 2]);
      }
    }
  }

 private:
  /// The column of this thread's sum number `c` of a row.
  __device__ __forceinline__ int column(int c) const {
    return min(n_ + 8 * (c / 2) + static_cast<int>(threadIdx.x) % 4 * 2 + c % 2, p_.n - 1);
  }

  Sm90Params const& p_;
  bool const on_, by_column_;
  int const z_, n_, first_;
  int row_[2], b_;  ///< where the factors of K's beginning lie
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
/// stage is multiplied. `take(stage)` waits for a stage and gives the descriptors of its operands;
/// `release(stage)` gives it back.
template <class Config, int Size, class Take, class Release>
__device__ __forceinline__ void multiply_promoted(float (&acc)[Size],
                                                  Sm90BlockScales<Config> const& scales,
                                                  int k_blocks, Take take, Release release) {
  static_assert(Config::waves == 1);
  float even[Size], odd[Size];
  typename Sm90BlockScales<Config>::Stage factors;  // fetched one stage ahead of their use
  scales.load(factors, 0);
#pragma unroll
  for (int r = 0; r < Size; ++r) acc[r] = 0;
  std::uint64_t a, b;
  int held = take(a, b);
  start_part<Config>(even, a, b);
  int k = 1;
  for (; k + 1 < k_blocks; k += 2) {
    int const second = take(a, b);
    start_part<Config>(odd, a, b);
    wgmma_wait<1>();
    release(held);
    scales.add(acc, even, factors, k - 1);
    scales.load(factors, k);
    held = take(a, b);
    start_part<Config>(even, a, b);
    wgmma_wait<1>();
    release(second);
    scales.add(acc, odd, factors, k);
    scales.load(factors, k + 1);
  }
  if (k < k_blocks) {
    int const second = take(a, b);
    start_part<Config>(odd, a, b);
    wgmma_wait<1>();
    release(held);
    scales.add(acc, even, factors, k - 1);
    scales.load(factors, k);
    wgmma_wait<0>();
    release(second);
    scales.add(acc, odd, factors, k);
  } else {
    wgmma_wait<0>();
    release(held);
    scales.add(acc, even, factors, k - 1);
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
