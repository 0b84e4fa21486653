// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rows on their way to tiles in shared memory, whatever their strides, by the threads of a block.
///
/// Row r of a tile begins r·`pitch` bytes behind the first. Where a shape is `turned`, it has its
/// 16 bytes number c in place c ^ row_swizzle(r), so that neither copies nor loads of fragments
/// meet in a bank.
#pragma once

#include <attikos/ptx/cp_async.hpp>
#include <cstdint>

#include "ptx/shared_memory.cuh"
#include "ptx/thread_index.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// What the places of a row's chunks are swizzled by. 16-bit types load matrices of 8 rows of 16
/// bytes. Of float32 and float64 eight lanes load two chunks each of four rows an even number
/// apart, or four chunks each of two neighbours.
template <class T>
__device__ __forceinline__ int row_swizzle(int r) {
  return sizeof(T) == 2 ? r & 7 : ((r ^ r >> 1) & 1) << 2 | (r >> 1 & 2);
}

/// A thread's part in copies of rows: the same 16 bytes, of each `panel` of a row where it has more
/// than a warp copies at once, of every row that is its turn.
template <class Config>
struct RowCopier {
  using T = typename Config::Element;
  static constexpr int elements = 16 / static_cast<int>(sizeof(T));  ///< of a chunk
  static constexpr int row_bytes = Config::row_bytes, pitch = Config::pitch;
  static constexpr int chunks = row_bytes >= 512 ? 32 : row_bytes / 16;
  static constexpr int panels = row_bytes / 16 / chunks;
  static constexpr int per_warp = 32 / chunks;  ///< rows that a warp copies at once
  static constexpr int at_once = Config::warps * per_warp;
  static_assert(at_once % 8 == 0 || at_once == 4);

  unsigned thread;
  int chunk, row;    ///< the first of the thread's
  std::uint32_t to;  ///< of both, in a tile

  /// Worked out where it is needed: registers are scarce.
  __device__ __forceinline__ RowCopier() {
    thread = static_cast<unsigned>(fresh_thread());
    chunk = static_cast<int>(thread % chunks), row = static_cast<int>(thread / chunks);
    to = static_cast<std::uint32_t>(row * pitch + (chunk ^ swizzle(row)) * 16);
  }

  __device__ __forceinline__ static int swizzle(int r) {
    if constexpr (requires { Config::swizzle(r); })
      return Config::swizzle(r);
    else
      return Config::turned ? row_swizzle<T>(r) : 0;
  }

  /// Where the chunk of the row r behind the first lies in a tile.
  __device__ __forceinline__ std::uint32_t place(int r, int panel) const {
    return (to ^ (swizzle(r) * 16u)) + r * pitch + panel * chunks * 16;
  }

  /// Bytes of this chunk that rows of `features` elements have.
  __device__ __forceinline__ int bytes(int features, int panel) const {
    int const left = features - elements * (chunk + panel * chunks);
    return max(0, min(16, static_cast<int>(sizeof(T)) * left));
  }

  /// Copies a chunk element by element, zeros where `bytes` end.
  __device__ __forceinline__ static void copy_elements(std::uint32_t at, T const* from,
                                                       std::int64_t stride, int bytes) {
    std::uint32_t words[4];
    if constexpr (sizeof(T) == 2) {
      auto const* const x = reinterpret_cast<std::uint16_t const*>(from);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        std::uint32_t const low = 4 * e < bytes ? x[2 * e * stride] : 0;
        std::uint32_t const high = 4 * e + 2 < bytes ? x[(2 * e + 1) * stride] : 0;
        words[e] = low | high << 16;
      }
    } else if constexpr (sizeof(T) == 1) {
      auto const* const x = reinterpret_cast<std::uint8_t const*>(from);
#pragma unroll
      for (int e = 0; e < 16; ++e) {
        std::uint32_t const byte = e < bytes ? x[e * stride] : 0;
        words[e / 4] = e % 4 == 0 ? byte : words[e / 4] | byte << e % 4 * 8;
      }
    } else if constexpr (sizeof(T) == 4) {
      auto const* const x = reinterpret_cast<std::uint32_t const*>(from);
#pragma unroll
      for (int e = 0; e < 4; ++e) words[e] = 4 * e < bytes ? x[e * stride] : 0;
    } else {
      auto const* const x = reinterpret_cast<uint2 const*>(from);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        uint2 const y = 8 * e < bytes ? x[e * stride] : make_uint2(0, 0);
        words[2 * e] = y.x, words[2 * e + 1] = y.y;
      }
    }
    store_shared_16(at, words);
  }

  /// Copies a chunk of which `bytes` exist, zeros for the rest. sm_75 copies through registers.
  __device__ __forceinline__ static void copy_chunk(std::uint32_t at, T const* from, int bytes) {
    if constexpr (Config::asynchronous)
      copy_async<16>(at, from, bytes);
    else if (bytes == 16)
      copy_whole_chunk(at, from);
    else
      copy_elements(at, from, 1, bytes);
  }
  __device__ __forceinline__ static void copy_whole_chunk(std::uint32_t at, T const* from) {
    if constexpr (Config::asynchronous) {
      copy_async_whole(at, from);
    } else {
      uint4 const x = __ldg(reinterpret_cast<uint4 const*>(from));
      store_shared_16(at, {x.x, x.y, x.z, x.w});
    }
  }

  /// Starts the copies of `Rows` rows `apart` from each other, the first at `from`, of which `left`
  /// exist; the others become zeros. `wide`: 16 bytes of a row lie side by side and aligned.
  template <int Rows>
  __device__ __forceinline__ void copy(std::uint32_t tile, T const* from, std::int64_t apart,
                                       std::int64_t stride, int features, int left,
                                       bool wide) const {
    static_assert(Rows % at_once == 0);
    from += row * apart + elements * chunk * stride;
    if (wide && left >= Rows && features == Config::d) {
#pragma unroll
      for (int r = 0; r < Rows; r += at_once) {
#pragma unroll
        for (int panel = 0; panel < panels; ++panel)
          copy_whole_chunk(tile + place(r, panel), from + panel * chunks * elements);
        from += at_once * apart;
      }
      return;
    }
    left -= row;
    if (wide) {
#pragma unroll
      for (int r = 0; r < Rows; r += at_once) {
#pragma unroll
        for (int panel = 0; panel < panels; ++panel)
          copy_chunk(tile + place(r, panel), from + panel * chunks * elements,
                     r < left ? bytes(features, panel) : 0);
        from += at_once * apart;
      }
    } else {
#pragma unroll 1
      for (int r = 0; r < Rows; r += at_once) {
        for (int panel = 0; panel < panels; ++panel)
          copy_elements(tile + place(r, panel), from + panel * chunks * elements * stride, stride,
                        r < left ? bytes(features, panel) : 0);
        from += at_once * apart;
      }
    }
  }

  /// The same of whole rows from number `first` on, `apart` bytes from each other.
  template <int Rows>
  __device__ __forceinline__ void copy_whole(std::uint32_t tile, void const* base, int first,
                                             int apart, int left) const {
    char const* const from =
        static_cast<char const*>(base) + chunk * 16 + std::int64_t{first + row} * apart;
    auto const at = [&](int r, int panel) {
      return reinterpret_cast<T const*>(from + std::int64_t{r} * apart + panel * chunks * 16);
    };
    if (left >= Rows) {
#pragma unroll
      for (int r = 0; r < Rows; r += at_once)
#pragma unroll
        for (int panel = 0; panel < panels; ++panel)
          copy_whole_chunk(tile + place(r, panel), at(r, panel));
    } else {
#pragma unroll 1
      for (int r = 0; r < Rows; r += at_once)
        for (int panel = 0; panel < panels; ++panel)
          copy_chunk(tile + place(r, panel), at(r, panel), row + r < left ? 16 : 0);
    }
  }

  /// The same where row r lies at `base` + offset, which the lane r % at_once % per_warp + r /
  /// at_once · per_warp of its warp knows.
  template <int Rows>
  __device__ __forceinline__ void gather(std::uint32_t tile, T const* base, std::int64_t offset,
                                         std::int64_t stride, int features, int left,
                                         bool wide) const {
    int const lane = static_cast<int>(thread % 32 / chunks);
    left -= row;
    base += elements * chunk * stride;
    if (wide) {
#pragma unroll
      for (int r = 0; r < Rows; r += at_once) {
        std::int64_t const from = __shfl_sync(0xffffffff, offset, r / at_once * per_warp + lane);
#pragma unroll
        for (int panel = 0; panel < panels; ++panel)
          copy_chunk(tile + place(r, panel), base + from + panel * chunks * elements,
                     r < left ? bytes(features, panel) : 0);
      }
    } else {
#pragma unroll 1
      for (int r = 0; r < Rows; r += at_once) {
        std::int64_t const from = __shfl_sync(0xffffffff, offset, r / at_once * per_warp + lane);
        for (int panel = 0; panel < panels; ++panel)
          copy_elements(tile + place(r, panel), base + from + panel * chunks * elements * stride,
                        stride, r < left ? bytes(features, panel) : 0);
      }
    }
  }
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
