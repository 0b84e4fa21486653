// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// float8_e4m3 on its way to the products of the sm_80 attention kernels, which take float16: every
/// number of the one is a number of the other.
///
/// Bytes come by cp.async to a place of their own, where each thread widens what it has copied
/// itself, which needs no barrier; the 16-bit tiles are then what they are of float16.
#pragma once

#include <cuda_fp8.h>

#include "attention/shared/ring.cuh"
#include "params.cuh"
#include "ptx/convert.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// A kernel for float8_e4m3 in one of the shapes of shapes.cuh. A block has one 16-bit tile of keys
/// and one of values, and bytes of the next of each are under way.
template <class Shape>
struct Sm80AttentionBytesConfig : Sm80AttentionConfig<__half, Shape> {
  using Base = Sm80AttentionConfig<__half, Shape>;
  using Source = __nv_fp8_e4m3;
  using Tile = MmaAttentionScaledTile;
  static constexpr bool scaled = true;

  /// What copies take it for.
  struct Copied {
    using Element = Source;
    using Source = Element;
    static constexpr int d = Shape::d, tile_n = Shape::keys, warps = Shape::warps;
    static constexpr int tile_m = Base::tile_m, row_bytes = d, pitch = d;
    static constexpr bool asynchronous = true, turned = false, plain = Shape::plain;
  };
  static constexpr int copied_bytes = Shape::d * Shape::keys;  ///< of a block of keys
  static constexpr int shared_bytes = Base::q_bytes + Base::ring_bytes + 2 * copied_bytes + 128;
  static_assert(!Base::q_through_ring && Base::tile_m <= 2 * Shape::keys);
};

namespace {

/// Widens what this thread has copied of `Rows` rows of bytes at `from` to a tile at `to`.
template <class Config, int Rows>
__device__ __forceinline__ void widen_own(std::uint32_t from, std::uint32_t to) {
  using Copier = RowCopier<typename Config::Copied>;
  constexpr int d = Config::d, count = Rows / Copier::at_once;
  Copier const copier;
  // Which half of its 16 bytes a thread takes first, so that neither loads nor stores meet in a
  // bank.
  unsigned const late = (copier.thread >> 3 ^ (d > 64 ? copier.thread >> 2 : 0)) & 1;
  auto const row = static_cast<unsigned>(copier.row), chunk = static_cast<unsigned>(copier.chunk);
  from += copier.to + late * 8;
  to += row * d * 2 + ((2 * chunk + late) ^ (row % 8)) * 16;
  constexpr int together = count % 2 == 0 ? 2 : 1;  // loads under way, as registers allow
#pragma unroll
  for (int first = 0; first < count; first += together) {
    float2 x[together][2];
#pragma unroll
    for (int r = 0; r < together; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        x[r][half] = load_shared_two((from ^ half * 8u) + (first + r) * Copier::at_once * d);
#pragma unroll
    for (int r = 0; r < together; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t words[4];
        widen_four(__float_as_uint(x[r][half].x), words[0], words[1]);
        widen_four(__float_as_uint(x[r][half].y), words[2], words[3]);
        store_shared_16((to ^ half * 16u) + (first + r) * Copier::at_once * d * 2, words);
      }
  }
}

/// KeyRing of float8_e4m3. A barrier before each step hands the tile of the step before the last
/// on to this thread's next numbers.
template <class Config>
struct ByteRing {
  KeyLoader<typename Config::Copied> loader;
  std::uint32_t const tiles;  ///< of keys, then of values; bytes of both lie behind

  __device__ __forceinline__ ByteRing(MmaAttentionParams const& p, MmaAttentionTile const& t,
                                      std::uint32_t at)
      : loader(p, t), tiles(at) {
    issue<false>(t.end - 1);
    issue<true>(t.end - 1);
  }

  static constexpr std::uint32_t bytes_at = Config::ring_bytes;

  template <bool Values>
  __device__ __forceinline__ void issue(int n) {
    loader.template issue<Values>(n, tiles + bytes_at + (Values ? Config::copied_bytes : 0));
    copy_async_commit();
  }

  __device__ __forceinline__ std::uint32_t wait_for_keys() {
    copy_async_wait<1>();
    widen_own<Config, Config::tile_n>(tiles + bytes_at, tiles);
    __syncthreads();
    return tiles;
  }

  /// Tells, if asked to `look`, whether one of them is NaN.
  __device__ __forceinline__ std::uint32_t wait_for_values(bool look, bool& no_numbers) {
    copy_async_wait<1>();
    std::uint32_t const bytes = tiles + bytes_at + Config::copied_bytes;
    std::uint32_t const here = tiles + Config::slot_bytes;
    widen_own<Config, Config::tile_n>(bytes, here);
    no_numbers = false;
    if (look)
      no_numbers = __syncthreads_or(holds_nan(bytes)) != 0;
    else
      __syncthreads();
    return here;
  }

  /// Whether what this thread has copied to `bytes` holds a NaN.
  __device__ __forceinline__ static bool holds_nan(std::uint32_t bytes) {
    using Copier = RowCopier<typename Config::Copied>;
    std::uint32_t found = 0;
    Copier const copier;
#pragma unroll
    for (int r = 0; r < Config::tile_n; r += Copier::at_once) {
      std::uint32_t words[4];
      load_shared_16(words, bytes + copier.place(r, 0));
#pragma unroll
      for (std::uint32_t const word : words) found |= (word & 0x7f7f7f7fu) + 0x01010101u;
    }
    return (found & 0x80808080u) != 0;
  }

  /// Brings the next block's keys, or values.
  template <bool AtValues>
  __device__ __forceinline__ void fill(int n) {
    issue<AtValues>(n - 1);
  }
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
