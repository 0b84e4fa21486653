// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// How the kernels for groups of rows finish and store a tile: 64 columns of C and up to 256 rows,
/// as many as exist, for a warpgroup.
#pragma once

#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "scheduler.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Finishes 64 columns of C of up to 32 rows, which lie as floats in lines of 65, or as integers
/// for an int32 C.
__device__ __noinline__ void finish_grouped(GroupedParams const& p, float const* sums, int z,
                                            int row, int rows, int n) {
  Epilogue const& e = p.epilogue;
  if (e.pre_activation.data != nullptr) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) % 128; i < 64 * rows; i += 128) {
      int const line = e.along_m ? i % rows : i / 64, column = e.along_m ? i / rows : i % 64;
      if (n + column < p.n) keep_argument(e, sums[line * 65 + column], z, row + line, n + column);
    }
  }
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 128; i < 64 * rows; i += 128) {
    int const line = e.along_m ? i % rows : i / 64, column = e.along_m ? i / rows : i % 64;
    if (n + column >= p.n) continue;
    float const sum = sums[line * 65 + column];
    if (e.type_c == DType::int32)
      finish_element(e, __float_as_int(sum), z, row + line, n + column);
    else
      finish_element(e, sum, z, row + line, n + column);
  }
}

template <class Config>
class GroupedStorer {
  using Acc = typename Config::Acc;

 public:
  /// `panels`: Config::store_bytes of shared memory; `barrier`: one of the warpgroup's own.
  __device__ __forceinline__ GroupedStorer(GroupedParams const& p, unsigned char* panels,
                                           int barrier)
      : p_(p), panels_(panels), barrier_(barrier) {}

  /// Reads the factors of a tile's rows and columns ahead, this thread's share.
  __device__ __forceinline__ void prepare(GroupedTile const& t) {
    if constexpr (Config::has_factors) {
      GroupedFactors const &of_rows = p_.row_factors, &of_columns = p_.column_factors;
      int const thread = static_cast<int>(threadIdx.x) % 128;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        int const column = t.n + 16 * (thread / 32) + thread % 32 / 4 + 8 * i;
        columns_[i] =
            of_columns.data == nullptr
                ? 1
                : of_columns
                      .data[t.group * of_columns.batch + min(column, p_.n - 1) * of_columns.stride];
      }
#pragma unroll
      for (int i = 0; i < Config::most_rows / 128; ++i) {
        int const row = t.row + min(thread + 128 * i, t.rows - 1);
        rows_[i] =
            of_rows.data == nullptr
                ? 1
                : of_rows.data[t.group * p_.rows_step * of_rows.batch + row * of_rows.stride];
      }
    }
  }

  /// Stores the sums of a tile, of which as many rows as it has have been summed.
  __device__ __forceinline__ void store(Acc const (&v)[Config::most_rows / 2],
                                        GroupedTile const& t) const {
    int const z = t.group * p_.rows_step;
    named_barrier_sync(barrier_, 128);  // nobody reads what shared memory held
    if (t.n >= p_.n) return;
    if constexpr (Config::has_factors) {
      int const thread = static_cast<int>(threadIdx.x) % 128;
#pragma unroll
      for (int i = 0; i < Config::most_rows / 128; ++i)
        store_shared(row_factors() + 4 * (thread + 128 * i), rows_[i]);
      named_barrier_sync(barrier_, 128);
    }
    if (p_.whole)
      store_whole(v, z, t);
    else
      finish(v, z, t);
  }

 private:
  __device__ __forceinline__ std::uint32_t row_factors() const {
    return shared_address(panels_ + 2 * Config::panel_bytes);
  }

  /// The sums of 8 rows from `row` of the tile on times the factors of their rows and columns;
  /// those for an int32 C as they are.
  __device__ __forceinline__ void scale(Acc const (&v)[Config::most_rows / 2], int row,
                                        float (&scaled)[4]) const {
    float2 const two = Config::has_factors
                           ? load_shared_two(row_factors() + 4 * row + threadIdx.x % 4 * 8)
                           : float2{1, 1};
    bool const exact = std::is_same_v<Acc, int> && p_.epilogue.type_c == DType::int32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scaled[i] = static_cast<float>(v[row / 2 + i]);
      if constexpr (Config::has_factors)
        scaled[i] = scaled[i] * columns_[i / 2] * (i % 2 == 0 ? two.x : two.y);
      if constexpr (std::is_same_v<Acc, int>)
        if (exact) scaled[i] = __int_as_float(v[row / 2 + i]);
    }
  }

  /// Through two panels in turns, of 64 rows of 64 16-bit elements, swizzled like those of
  /// operands.
  __device__ __forceinline__ void store_whole(Acc const (&v)[Config::most_rows / 2], int z,
                                              GroupedTile const& t) const {
    Epilogue const& e = p_.epilogue;
    constexpr int step = Config::panel_rows;
    int const thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
    int const chunk = 2 * (thread / 32) + lane / 8 % 2, column = thread % 8;
    auto* to =
        static_cast<__half*>(e.c) + z * e.c_batch + (t.row + thread / 8) * e.c_m + t.n + 8 * column;
    bool const exists = t.n + 8 * column < p_.n;
#pragma unroll
    for (int part = 0; part < Config::most_rows; part += step) {
      if (part < t.rows) {
        unsigned char* const panel = panels_ + part / step % 2 * Config::panel_bytes;
        std::uint32_t const base = shared_address(panel);
#pragma unroll
        for (int b = 0; b < step / 8; b += 2) {
          int const line = 8 * (b + lane / 16) + lane % 8;
          float x[4], y[4];
          scale(v, part + 8 * b, x), scale(v, part + 8 * b + 8, y);
          store_matrices_transposed(base + line * 128 + ((chunk ^ (line % 8)) * 16),
                                    pack_pair(e.type_c, e.alpha * x[0], e.alpha * x[1]),
                                    pack_pair(e.type_c, e.alpha * x[2], e.alpha * x[3]),
                                    pack_pair(e.type_c, e.alpha * y[0], e.alpha * y[1]),
                                    pack_pair(e.type_c, e.alpha * y[2], e.alpha * y[3]));
        }
        named_barrier_sync(barrier_, 128);
        if (exists) {
#pragma unroll
          for (int line = thread / 8; line < step; line += 16) {
            if (part + line < t.rows)
              *reinterpret_cast<uint4*>(to) = *reinterpret_cast<uint4 const*>(
                  panel + line * 128 + ((column ^ (line % 8)) * 16));
            to += 16 * e.c_m;
          }
        }
      }
    }
  }

  /// Element by element, from 32 rows of sums at a time.
  __device__ __forceinline__ void finish(Acc const (&v)[Config::most_rows / 2], int z,
                                         GroupedTile const& t) const {
    int const thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
    auto* const sums = reinterpret_cast<float*>(panels_);
#pragma unroll
    for (int part = 0; part < Config::most_rows; part += 32) {
      if (part < t.rows) {
        if (part != 0) named_barrier_sync(barrier_, 128);
#pragma unroll
        for (int b = 0; b < 4; ++b) {
          float x[4];
          scale(v, part + 8 * b, x);
#pragma unroll
          for (int i = 0; i < 4; ++i)
            sums[(8 * b + lane % 4 * 2 + i % 2) * 65 + 16 * (thread / 32) + lane / 4 + i / 2 * 8] =
                x[i];
        }
        named_barrier_sync(barrier_, 128);
        finish_grouped(p_, sums, z, t.row + part, min(t.rows - part, 32), t.n);
      }
    }
  }

  GroupedParams const& p_;
  unsigned char* const panels_;
  int const barrier_;
  float columns_[2], rows_[Config::most_rows / 128];
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
