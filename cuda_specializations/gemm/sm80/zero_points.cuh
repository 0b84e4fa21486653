// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Zero points of int8 products: Σ(a - x)(b - y) = Σab - x·(Σb - k·y) - y·Σa, modulo 2^32.
///
/// The sums of A's rows and B's columns come from the fragments, four bytes an instruction, while
/// the matrix unit multiplies; every warp has those of its own rows and columns.
#pragma once

#include "load.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Sums along K of the rows and columns whose fragments a thread has, of its own bytes alone.
template <class Config>
class Sm80RowColumnSums {
  static_assert(std::is_same_v<typename Config::Acc, int>);

 public:
  __device__ __forceinline__ void add_rows(int i, Words const& a) {
#pragma unroll
    for (int h = 0; h < 2; ++h) rows_[i][h] = add(add(rows_[i][h], a.w[h]), a.w[h + 2]);
  }
  template <int Steps>
  __device__ __forceinline__ void add_columns(Words const (&b)[Config::fragments_n][Steps]) {
    static_assert(Steps == 1);
#pragma unroll
    for (int j = 0; j < Config::fragments_n; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        columns_[j][h] = add(add(columns_[j][h], b[j][0].w[2 * h]), b[j][0].w[2 * h + 1]);
  }

  /// Takes the zero points out of the sums of a warp's tile, which begins at (m0, n0).
  __device__ __forceinline__ void apply(Sm80Params const& p,
                                        int (&acc)[Config::fragments_m][2 * Config::fragments_n][4],
                                        int m0, int n0) {
    int const lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, q = lane % 4;
    auto const point = [](std::int32_t const* of, std::int64_t stride, int index, int count) {
      return of != nullptr && index < count ? static_cast<unsigned>(of[index * stride]) : 0u;
    };
    unsigned zero_a[Config::fragments_m][2];
#pragma unroll
    for (int i = 0; i < Config::fragments_m; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        int const row = m0 + 16 * i + fragment_row<1, Config::mn_a>(g + 8 * h);
        zero_a[i][h] = point(p.zero_a, p.zero_a_stride, row, p.m);
        rows_[i][h] = over_quad(rows_[i][h]);
      }
#pragma unroll
    for (int j = 0; j < 2 * Config::fragments_n; ++j) {
      int const sum = over_quad(columns_[j / 2][j % 2]);  // of column g
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        int const column =
            n0 + 16 * (j / 2) + fragment_row<1, Config::mn_b>(8 * (j % 2) + 2 * q + r);
        unsigned const zero_b = point(p.zero_b, p.zero_b_stride, column, p.n);
        unsigned const left = static_cast<unsigned>(__shfl_sync(0xffffffff, sum, 4 * (2 * q + r))) -
                              static_cast<unsigned>(p.k) * zero_b;
#pragma unroll
        for (int i = 0; i < Config::fragments_m; ++i)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            int& to = acc[i][j][2 * h + r];
            to = static_cast<int>(static_cast<unsigned>(to) - zero_a[i][h] * left -
                                  zero_b * static_cast<unsigned>(rows_[i][h]));
          }
      }
    }
  }

 private:
  __device__ static __forceinline__ int add(int sum, std::uint32_t bytes) {
    return __dp4a(static_cast<int>(bytes), 0x01010101, sum);
  }
  __device__ static __forceinline__ int over_quad(int x) {
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
  }

  int rows_[Config::fragments_m][2] = {}, columns_[Config::fragments_n][2] = {};
};

/// Of products without zero points.
struct NoRowColumnSums {};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
