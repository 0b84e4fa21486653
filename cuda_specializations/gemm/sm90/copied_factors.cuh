// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Factors of blocks of float8 operands that the copy engine brings, four stages' at a time, beside
/// the operands: warps that fetch them cost a fifth of the rate, whichever way they do it.
#pragma once

#include "common/ring.cuh"
#include "common/tensor_map.cuh"
#include "gemm/shared/product.cuh"
#include "mainloop_promoted.cuh"
#include "ptx/tma.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// The ring of copied factors, those of four stages of a tile in each place. There is one place
/// more than stages, so that factors of a stage that may be loaded never fall on some still in use.
template <class Config>
class Sm90FactorRing {
 public:
  /// Whether stage `k` of a tile is the first of four.
  static __device__ __forceinline__ bool begins(int k) { return k % Config::copied_stages == 0; }

  /// Bytes that load() brings.
  static __device__ __forceinline__ int bytes(Sm90Params const& p) {
    return bytes_of(p.copied_a, Config::copied_a_bytes) + bytes_of(p.copied_b, 0);
  }

  /// Starts the copies for stages `k` ... `k` + 3 of the tile at row `m`, column `n`.
  __device__ __forceinline__ void load(Sm90Params const& p, unsigned char* places,
                                       std::uint64_t* full, int z, int m, int n, int k) {
    unsigned char* const place = places + next() * Config::copied_bytes;
    load_operand(p.copied_a, place, full, z, m, k);
    load_operand(p.copied_b, place + Config::copied_a_bytes, full, z, n, k);
  }
  /// The place that follows, from the first one on.
  __device__ __forceinline__ int next() {
    int const place = place_;
    place_ = next_in_ring<Config::copied_places>(place);
    return place;
  }

  /// Where row `row` of a tile that begins at row `first` of an operand finds its factor in a
  /// place, and how far that of the next stage lies.
  static __device__ __forceinline__ int offset(CopiedFactors const& f, int first, int row) {
    if (!f.exist) return 0;
    if (f.of_rows) return row * (f.along_k ? 16 : 4);
    return f.along_k ? 0 : (first >> f.tile_shift) % 4 * 4;
  }
  static __device__ __forceinline__ int step(CopiedFactors const& f) {
    return f.along_k ? 4 : f.of_rows ? 4 * Config::tile_m : 16;
  }

  /// Puts factors of 1 into all places for operands without any; all threads.
  static __device__ __forceinline__ void clear(Sm90Params const& p, std::uint32_t places) {
    int const thread = static_cast<int>(threadIdx.x);
    if (thread >= 16 * Config::copied_places) return;
    std::uint32_t const at = places + thread / 16 * Config::copied_bytes + thread % 16 * 4;
    if (!p.copied_a.exist) store_shared(at, 1.0f);
    if (!p.copied_b.exist) store_shared(at + Config::copied_a_bytes, 1.0f);
  }

 private:
  static __device__ __forceinline__ int bytes_of(CopiedFactors const& f, int rows) {
    return !f.exist ? 0 : f.of_rows ? rows : 16 * Config::copied_stages;
  }
  static __device__ __forceinline__ void load_operand(CopiedFactors const& f, unsigned char* to,
                                                      std::uint64_t* full, int z, int first,
                                                      int k) {
    if (!f.exist) return;
    if (!f.of_rows) first >>= f.tile_shift;
    int const from = f.along_k ? first : first / 4 * 4;  // boxes begin at multiples of 16 bytes
    tma_load(to, &f.map, full, Keep::normal, f.along_k ? k : from, f.along_k ? from : k,
             z * f.batch_step);
  }
  int place_ = 0;
};

/// The copied factors of a thread's sums of a tile: of two rows, and of all columns. They are read
/// stage by stage, in order.
template <class Config>
class Sm90CopiedScales {
  using Ring = Sm90FactorRing<Config>;

 public:
  static constexpr bool reads_late = false;

  /// The warpgroup's sums begin at row `row` of the tile at row `m`, column `n`.
  __device__ __forceinline__ Sm90CopiedScales(Sm90Params const& p, std::uint32_t places, Ring& ring,
                                              int m, int n, int row)
      : ring_(ring),
        a_(places + Ring::offset(p.copied_a, m, row + line_of_sum<Config>(0, threadIdx.x % 128))),
        second_(a_ + Ring::offset(p.copied_a, 0, 8)),
        b_(places + Config::copied_a_bytes + Ring::offset(p.copied_b, n, 0)),
        step_a_(Ring::step(p.copied_a)),
        step_b_(Ring::step(p.copied_b)) {}

  /// `even`: whether the stage's number is, as that of the first of four.
  __device__ __forceinline__ float4 read(int, bool even) {
    if (even && Ring::begins(k_)) at_a_ = at_b_ = ring_.next() * Config::copied_bytes;
    float4 const factors{load_shared_word(a_ + at_a_), load_shared_word(second_ + at_a_),
                         load_shared_word(b_ + at_b_), 1};
    ++k_, at_a_ += step_a_, at_b_ += step_b_;
    return factors;
  }

  template <int Size>
  __device__ __forceinline__ void add(float (&acc)[Size], float (&part)[Size],
                                      float4 const& factors, int) const {
    add_rows(acc, part, factors);
  }

 private:
  Ring& ring_;
  std::uint32_t const a_, second_, b_;
  int const step_a_, step_b_;
  int k_ = 0, at_a_ = 0, at_b_ = 0;
};

/// Describes an operand's factors, of `extent` rows, to the copy engine: each row's, or one for all
/// `tile` rows of a tile, which never has rows of two blocks. Returns whether it can bring them.
inline bool describe_factors(abi::ScaleGrid const& s, std::int64_t extent, std::int64_t k,
                             std::int64_t batch, int tile, CopiedFactors& f,
                             TensorMapSource& source) {
  f.exist = s.data != nullptr;
  if (!f.exist) return true;
  bool const one = s.row == 0;
  f.of_rows = !one && s.row_shift == 0 && tile > 0;
  f.tile_shift = static_cast<std::int8_t>(one ? 31 : s.row_shift);
  if ((!f.of_rows && !one && s.row_shift < 7) || s.col == 0 || s.col_shift != 7) return false;
  std::int64_t const rows = one ? 1 : ((extent - 1) >> s.row_shift) + 1, blocks = blocks_of(k, 128);
  f.along_k = s.row != 1;
  if (f.along_k && blocks > 1 && s.col != 1) return false;
  f.batch_step = s.batch != 0;
  source = {s.data,
            CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            4,
            f.along_k ? blocks : rows,
            f.along_k ? rows : blocks,
            s.batch == 0 ? 1 : batch,
            (f.along_k ? s.row : s.col) * 4,
            s.batch * 4};
  return refuse_tensor_map(source, "", "", "") == nullptr;
}

/// Leaves a product's factors to the copy engine if it can bring all of them.
template <class Config>
cudaError_t copy_factors(abi::GemmArgs const& g, Sm90Params& p) {
  if (p.block_factors == BlockFactors::none) return cudaSuccess;
  abi::ScaleGrid const& b = p.block_b;
  abi::ScaleGrid const columns{b.data, b.batch, b.col, b.row, b.col_shift, b.row_shift};
  TensorMapSource of_a{}, of_b{};
  if (!describe_factors(p.block_a, g.m, g.k, g.batch, Config::tile_m, p.copied_a, of_a) ||
      !describe_factors(columns, g.n, g.k, g.batch, 0, p.copied_b, of_b))
    return cudaSuccess;
  p.block_factors = BlockFactors::copied;
  auto const make = [](CopiedFactors& f, TensorMapSource const& source) {
    int const rows = f.of_rows ? Config::tile_m : 4, stages = Config::copied_stages;
    return !f.exist ? cudaSuccess
                    : make_tensor_map(&f.map, source, f.along_k ? stages : rows,
                                      f.along_k ? rows : stages, CU_TENSOR_MAP_SWIZZLE_NONE);
  };
  cudaError_t const status = make(p.copied_a, of_a);
  return status == cudaSuccess ? make(p.copied_b, of_b) : status;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
