// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From global to shared memory and on to registers, for operands of any layout and stride.
///
/// A stage holds an operand as it lies in global memory, in rows of K (128 bytes) or of M or N. The
/// 16-byte chunks of a row are permuted by an XOR with a number that the row gives, so that neither
/// the copies nor the loads of fragments meet in a bank:
/// - K-major: row mod 8; float64: 2 (row mod 4);
/// - MN-major, 16 bits: k mod 8; 32 and 64 bits: 2 (k mod 4); 8 bits: k mod 2 + 2 (k / 4 mod 4), or
///   k / 4 mod 4 where a row has 64 bytes.
#pragma once

#include <attikos/ptx/cp_async.hpp>
#include <attikos/ptx/ldmatrix.hpp>

#include "params.cuh"
#include "ptx/shared_memory.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// What chunk 0 of a row becomes. `Extent`: rows of A or columns of B in a tile.
template <int Size, int Extent, bool MnMajor>
__device__ __forceinline__ int permutation(int row) {
  if constexpr (Size == 8 || (MnMajor && Size == 4)) return row % 4 * 2;
  if constexpr (MnMajor && Size == 1)
    return Extent >= 128 ? (row & 1) | (row >> 1 & 6) : row >> 2 & 3;
  return row % 8;
}

/// One thread's share of the copies of an operand: chunks of one column, `pass` rows apart.
template <int Size, int Extent, int Threads, bool MnMajor>
struct Share {
  static constexpr int chunks = MnMajor ? Extent * Size / 16 : 8;  ///< of a row
  static constexpr int pass = Threads / chunks;
  static constexpr int count = Extent * 8 / Threads;
  static constexpr int k = 128 / Size;

  /// Copies the tile that begins at row or column `mn0` of `extent`, and at k0 of `k_extent`, from
  /// rows `stride` bytes apart of which `unit` bytes may be copied at a time.
  __device__ static __forceinline__ void copy(std::uint32_t stage, char const* data,
                                              std::int64_t stride, int unit, int mn0, int extent,
                                              int k0, int k_extent) {
    int const thread = static_cast<int>(threadIdx.x);
    int const row = thread / chunks, chunk = thread % chunks;
    int const first = MnMajor ? mn0 : k0;  // of the row's unit dimension
    int const left = (MnMajor ? extent : k_extent) - first - chunk * (16 / Size);  // elements
    int const bytes = max(0, min(16 / Size, left)) * Size;
    int const rows = (MnMajor ? k_extent - k0 : extent - mn0) - row;
    char const* from = data + ((MnMajor ? k0 : mn0) + row) * stride +
                       (static_cast<std::int64_t>(first) * Size + chunk * 16);
    std::int64_t const step = stride * pass;
    std::uint32_t const to =
        stage + row * (chunks * 16) + (chunk ^ permutation<Size, Extent, MnMajor>(row)) * 16;
    if (unit == 16 && mn0 + Extent <= extent && k0 + k <= k_extent) {
#pragma unroll
      for (int i = 0; i < count; ++i, from += step) copy_async_whole(place(to, i), from);
    } else if (unit == 16) {
#pragma unroll
      for (int i = 0; i < count; ++i, from += step)
        copy_async<16>(place(to, i), from, i * pass < rows ? bytes : 0);
    } else if (Size != 2 || unit >= 4) {
      copy_narrow(to, from, step, rows, bytes, unit);
    } else {
      copy_shifted(to, from, step, rows, left);
    }
  }

 private:
  /// The chunk `i` passes below `to`. Rows of one pass are as many as the permutation's period, or
  /// half (float64).
  __device__ static __forceinline__ std::uint32_t place(std::uint32_t to, int i) {
    int const swizzle = MnMajor && Size == 8 && pass == 2 ? i % 2 * 64 : 0;
    return (to ^ swizzle) + i * Threads * 16;
  }
  __device__ static __forceinline__ void copy_narrow(std::uint32_t to, char const* from,
                                                     std::int64_t step, int rows, int bytes,
                                                     int unit) {
#pragma unroll 1
    for (int i = 0; i < count; ++i, from += step) {
      std::uint32_t const at = place(to, i);
      int const here = i * pass < rows ? bytes : 0;
      if (unit == 8) {
#pragma unroll
        for (int j = 0; j < 16; j += 8) copy_async<8>(at + j, from + j, max(0, min(8, here - j)));
      } else if (Size > 1 || unit == 4) {
#pragma unroll
        for (int j = 0; j < 16; j += 4) copy_async<4>(at + j, from + j, max(0, min(4, here - j)));
      } else if constexpr (Size == 1) {
        std::uint32_t words[4] = {};
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          std::uint32_t value = 0;
          if (j < here) value = *reinterpret_cast<std::uint8_t const*>(from + j);
          words[j / 4] |= value << (j % 4 * 8);
        }
        store_shared_16(at, words);
      }
    }
  }

  /// Chunks of 16-bit elements from any address, with `left` of them in their rows from their first
  /// on: through registers, from the words around them, of which those of several chunks are on
  /// their way at a time. Words end in the row: where a chunk is the row's last, it is read by
  /// elements.
  __device__ static __forceinline__ void copy_shifted(std::uint32_t to, char const* from,
                                                      std::int64_t step, int rows, int left) {
    if constexpr (Size == 2) {
      constexpr int together = Extent <= 64 && count >= 4 ? 4 : 2;
      static_assert(count % together == 0);
      bool const inside = left > 8;
#pragma unroll 1
      for (int i = 0; i < count; i += together, from += together * step) {
        std::uint32_t words[together][5];
#pragma unroll
        for (int t = 0; t < together; ++t) {
          char const* const at = from + t * step;
          int const past = static_cast<int>(reinterpret_cast<std::uintptr_t>(at) & 3);
          auto const* const word = reinterpret_cast<std::uint32_t const*>(at - past);
          bool const present = inside && (i + t) * pass < rows;
#pragma unroll
          for (int j = 0; j < 4; ++j) words[t][j] = present ? word[j] : 0;
          words[t][4] = present && past != 0 ? word[4] : 0;
        }
#pragma unroll
        for (int t = 0; t < together; ++t) {
          char const* const at = from + t * step;
          unsigned const past = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(at) & 3);
          std::uint32_t chunk[4];
#pragma unroll
          for (int j = 0; j < 4; ++j)
            chunk[j] = __funnelshift_r(words[t][j], words[t][j + 1], 8 * past);
          if (!inside && (i + t) * pass < rows) {
            auto const* const elements = reinterpret_cast<std::uint16_t const*>(at);
#pragma unroll
            for (int j = 0; j < 8; ++j)
              if (j < left) chunk[j / 2] |= std::uint32_t{elements[j]} << j % 2 * 16;
          }
          store_shared_16(place(to, i + t), chunk);
        }
      }
    }
  }
};

/// Where a lane finds its part of the fragments of a warp, whose rows begin at `first` of the tile.
/// In A's fragments the words of both halves of the rows come first, in B's those of both halves of
/// K, as the instructions take them.
template <int Size, int Extent, bool MnMajor, bool OfB>
__device__ __forceinline__ std::uint32_t lane_offset(int first) {
  int const lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, q = lane % 4, r = lane % 8;
  int const low = lane / 8 % 2, high = lane / 16;  // of the number of ldmatrix's matrix
  int const row_half = OfB ? high : low, k_half = OfB ? low : high;
  constexpr int row_bytes = Extent * Size;
  if constexpr (!MnMajor) {
    if constexpr (Size == 8) return (first + g) * 128 + g % 4 * 32 + q * 8;
    return (first + r + 8 * row_half) * 128 + (k_half ^ r) * 16;
  }
  int const chunk = first * Size / 16;
  if constexpr (Size >= 4)
    return q * row_bytes + ((chunk + g * Size / 16) ^ (q * 2)) * 16 + g * Size % 16;
  if constexpr (Size == 2) return (r + 8 * k_half) * row_bytes + ((chunk + row_half) ^ r) * 16;
  // k mod 4 of 0 and 1 in one matrix, of 2 and 3 in the other.
  int const k = 16 * k_half + 4 * (r / 2) + 2 * row_half + r % 2;
  return k * row_bytes + (chunk ^ permutation<1, Extent, true>(k)) * 16;
}

/// Loads fragment `i` of a warp's, 16 rows and 32 bytes of K, number `step` of the stage.
///
/// 8-bit MN-major operands: ldmatrix moves pairs of neighbouring rows, so row g of a fragment is
/// row 2 g of the operand's sixteen, row g + 8 is row 2 g + 1: see fragment_row().
template <int Size, int Extent, bool MnMajor, bool OfB>
__device__ __forceinline__ void load_fragment(Fragment<Size>& f, std::uint32_t stage,
                                              std::uint32_t lane, int step, int i) {
  constexpr int row_bytes = Extent * Size;
  std::uint32_t const at =
      MnMajor ? stage + step * (32 / Size) * row_bytes + lane : stage + (lane ^ (step * 32));
  auto& w = f.w;
  if constexpr (Size == 8) {
    w[0] = load_shared_8(MnMajor ? at ^ (i * 128) : at + i * 2048);
    w[1] = load_shared_8(MnMajor ? at ^ (i * 128 + 64) : at + i * 2048 + 1024);
  } else if constexpr (!MnMajor) {
    load_matrices(w, at + i * 2048);
  } else if constexpr (Size == 4) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      int const row_half = OfB ? j / 2 : j % 2, k_half = OfB ? j % 2 : j / 2;
      w[j] = load_shared_4((at ^ (i * 64 + row_half * 32)) + k_half * 4 * row_bytes);
    }
  } else if constexpr (Size == 2) {
    load_matrices<true>(w, at ^ (i * 32));
  } else {
    std::uint32_t v[4];
    load_matrices<true>(v, at ^ (i * 16));
    constexpr int next = OfB ? 2 : 1;  // matrix of the same k's other pairs
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      int const low = j * (3 - next);
      w[low] = __byte_perm(v[low], v[low + next], 0x6420);
      w[low + next] = __byte_perm(v[low], v[low + next], 0x7531);
    }
  }
}

/// The operand's row, of sixteen, that row `i` of a fragment is.
template <int Size, bool MnMajor>
__device__ __forceinline__ int fragment_row(int i) {
  return Size == 1 && MnMajor ? i % 8 * 2 + i / 8 : i;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
