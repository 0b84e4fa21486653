// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Factors of grouped float8 products that change along K, as gemm/sm90/mainloop_promoted.cuh has
/// them for plain ones. The product is transposed: factors of rows of A belong to the columns of
/// wgmma, one factor of 128 columns of B to all its rows.
#pragma once

#include "gemm/sm90/mainloop_promoted.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Threads behind the first warp that bring factors which change along K, those of two rows each.
constexpr int factor_threads = 64;

/// The factors of a tile, of which each thread has its share: see Sm90FactorLoader.
class GroupedFactorLoader {
 public:
  /// Of `rows` from row `row` of matrix `z` on, of which `last` is the last, and of `columns` from
  /// `n` on of matrix `group`.
  __device__ __forceinline__ GroupedFactorLoader(abi::ScaleGrid const& rows,
                                                 abi::ScaleGrid const& columns, int z, int group,
                                                 int row, int last, int n)
      : rows_(rows), columns_(columns), thread_(static_cast<int>(threadIdx.x) - 32) {
    // Rows outside have no factors; what they get does not matter.
#pragma unroll
    for (int i = 0; i < 2; ++i)
      of_rows_[i] = rows.data + rows.offset(z, min(row + thread_ + i * factor_threads, last), 0);
    of_columns_ = columns.data + columns.offset(group, 0, n);
  }

  /// Starts the copies for stage number `k` along K.
  __device__ __forceinline__ void load(std::uint32_t slot, std::uint64_t* full, int k) const {
    abi::ScaleGrid const &a = rows_, &b = columns_;
    if (a.data != nullptr) {
      std::int64_t const step = (k >> max(a.col_shift - 7, 0)) * a.col;
#pragma unroll
      for (int i = 0; i < 2; ++i)
        copy_async_four(slot + 4 * (thread_ + i * factor_threads), of_rows_[i] + step);
    }
    if (b.data != nullptr && thread_ == 0)
      copy_async_four(slot + 8 * factor_threads,
                      of_columns_ + (k >> max(b.row_shift - 7, 0)) * b.row);
    copy_async_arrive(full);
  }

 private:
  abi::ScaleGrid const &rows_, &columns_;
  int const thread_;
  float const *of_rows_[2], *of_columns_;
};

/// What multiply_promoted() has to know of products with `Width` rows of A.
template <class Config, int Width>
struct GroupedPart {
  using A = typename Config::Weights;
  using B = typename Config::Rows;
  static constexpr int waves = 1, tile_n = Width;
};

/// The factors of a stage's sums for multiply_promoted().
class GroupedScales {
 public:
  static constexpr bool reads_late = true;
  /// `slots`: factors of the stages, each `bytes` long.
  __device__ __forceinline__ GroupedScales(std::uint32_t slots, int bytes)
      : slots_(slots), bytes_(bytes) {}

  __device__ __forceinline__ float4 read(int place, bool) const {
    return {load_shared_word(slots_ + place * bytes_ + 8 * factor_threads), 0, 0, 0};
  }

  template <int Size>
  __device__ __forceinline__ void add(float (&acc)[Size], float (&part)[Size], float4 of_columns,
                                      int place) const {
    pin(part);
    std::uint32_t const of_rows = slots_ + place * bytes_ + threadIdx.x % 4 * 8;
#pragma unroll
    for (int r = 0; r < Size; r += 4) {
      float2 const two = load_shared_two(of_rows + r * 8);
      float const x = two.x * of_columns.x, y = two.y * of_columns.x;
      acc[r] = __fmaf_rn(x, part[r], acc[r]);
      acc[r + 1] = __fmaf_rn(y, part[r + 1], acc[r + 1]);
      acc[r + 2] = __fmaf_rn(x, part[r + 2], acc[r + 2]);
      acc[r + 3] = __fmaf_rn(y, part[r + 3], acc[r + 3]);
    }
    pin(acc);
  }

 private:
  std::uint32_t const slots_;
  int const bytes_;
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
