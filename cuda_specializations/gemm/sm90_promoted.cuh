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
  /// Columns whose own factors are fetched ahead: those of narrow tiles, whose sums leave
  /// registers.
  static constexpr int ahead = Config::tile_n <= 64 ? Config::tile_n / 4 : 1;

  /// Those of one stage: of two rows, of B's block, or of each column.
  struct Stage {
    float row[2], b[ahead];
  };

  /// `stages` of K from number `first` on.
  __device__ __forceinline__ Sm90BlockScales(Sm90Params const& p, int z, int m, int n, int first,
                                             int stages)
      : p_(p),
        on_(p.block_a.data != nullptr || p.block_b.data != nullptr),
        by_column_(p.block_b.data != nullptr && p.block_b.col != 0 && p.block_b.col_shift < 7),
        z_(z),
        n_(n),
        first_(first),
        last_(first + stages - 1) {
    // Rows and columns outside the matrix have no factors; what they get does not matter.
#pragma unroll
    for (int i = 0; i < 2; ++i) row_[i] = min(m + line_of_sum<Config>(i), p.m - 1);
  }

  /// Fetches the factors of stage `k`, or of the last one.
  __device__ __forceinline__ void load(Stage& stage, int k) const {
    if (!on_) return;
    std::int64_t const at = std::int64_t{min(first_ + k, last_)} * 128;
#pragma unroll
    for (int i = 0; i < 2; ++i) stage.row[i] = p_.block_a.at(z_, row_[i], at);
    if (!by_column_) {
      stage.b[0] = p_.block_b.at(z_, at, n_);
    } else if constexpr (ahead > 1) {
#pragma unroll
      for (int c = 0; c < ahead; ++c) stage.b[c] = p_.block_b.at(z_, at, column(c));
    }
  }

  /// Adds the sums of stage `k`, whose products have been waited for.
  template <int Size>
  __device__ __forceinline__ void add(float (&acc)[Size], float (&part)[Size], Stage const& stage,
                                      int k) const {
    pin(part);
    if (!on_) {
#pragma unroll
      for (int r = 0; r < Size; ++r) acc[r] += part[r];
    } else if (!by_column_) {
      float const upper = stage.row[0] * stage.b[0], lower = stage.row[1] * stage.b[0];
#pragma unroll
      for (int r = 0; r < Size; ++r)
        acc[r] = __fmaf_rn((r & 2) != 0 ? lower : upper, part[r], acc[r]);
    } else {
      std::int64_t const at = std::int64_t{first_ + k} * 128;
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
  bool on_, by_column_;
  int z_, n_, first_, last_, row_[2];
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
  typename Sm90BlockScales<Config>::Stage of_even, of_odd;  // fetched two stages ahead of their use
  scales.load(of_even, 0);
  scales.load(of_odd, 1);
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
    scales.add(acc, even, of_even, k - 1);
    scales.load(of_even, k + 1);
    held = take(a, b);
    start_part<Config>(even, a, b);
    wgmma_wait<1>();
    release(second);
    scales.add(acc, odd, of_odd, k);
    scales.load(of_odd, k + 2);
  }
  if (k < k_blocks) {
    int const second = take(a, b);
    start_part<Config>(odd, a, b);
    wgmma_wait<1>();
    release(held);
    scales.add(acc, even, of_even, k - 1);
    wgmma_wait<0>();
    release(second);
    scales.add(acc, odd, of_odd, k);
  } else {
    wgmma_wait<0>();
    release(held);
    scales.add(acc, even, of_even, k - 1);
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
