// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rows of queries, keys and values on their way to shared memory, whatever their strides, straight
/// or through pages; and what becomes of values that are no numbers.
///
/// Row r of a tile begins r·`pitch` bytes behind the first. Where a shape is `turned`, it has its
/// 16 bytes number c in place c ^ row_turn(r), so that neither copies nor loads of fragments meet
/// in a bank.
#pragma once

#include "mma_params.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/thread_index.cuh"
#include "sequences/score_math.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// What the places of a row's chunks are turned by. 16-bit types load matrices of 8 rows of 16
/// bytes. Of float64 eight lanes load two chunks each of four rows an even number apart, or four
/// chunks each of two neighbours.
template <class T>
__device__ __forceinline__ int row_turn(int r) {
  return sizeof(T) == 2 ? r & 7 : ((r ^ r >> 1) & 1) << 2 | (r >> 1 & 2);
}

/// Whether query i does not attend to key j at all, which its weight alone, 0, does not tell.
__device__ __forceinline__ bool is_excluded(abi::AttentionArgs const& g, AttentionTile const& t,
                                            int i, int j) {
  if (i >= t.len_q || j < t.seen_from(i) || j >= t.seen_end(i)) return true;
  auto const at = [&](std::int64_t const(&stride)[4]) {
    return t.batch * stride[0] + t.head * stride[1] + i * stride[2] + j * stride[3];
  };
  if (g.mask != nullptr && g.mask[at(g.mask_stride)] == 0) return true;
  return g.bias != nullptr &&
         load_float(g.bias, g.type_bias, at(g.bias_stride)) == minus_infinity();
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
    to = static_cast<std::uint32_t>(row * pitch + (chunk ^ turn(row)) * 16);
  }

  __device__ __forceinline__ static int turn(int r) { return Config::turned ? row_turn<T>(r) : 0; }

  /// Where the chunk of the row r behind the first lies in a tile.
  __device__ __forceinline__ std::uint32_t place(int r, int panel) const {
    return (to ^ (turn(r) * 16u)) + r * pitch + panel * chunks * 16;
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

/// A number that is the same in all lanes, as the compiler may know then.
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(0xffffffff, x, 0); }

/// Brings the keys and values of one tile of queries, blocks from the last to the first, each
/// block's keys first.
template <class Config>
struct KeyLoader {
  using T = typename Config::Element;
  using Copier = RowCopier<Config>;
  static constexpr int lanes = Config::tile_n / Copier::at_once * Copier::per_warp;  ///< with a key
  static_assert(lanes <= 32);

  MmaAttentionParams const& p;
  MmaAttentionTile const& t;
  int const first;  ///< block that comes last
  int entry;        ///< of a page table, for this lane's key of the next step

  __device__ __forceinline__ KeyLoader(MmaAttentionParams const& params,
                                       MmaAttentionTile const& tile)
      : p(params), t(tile), first(uniform(tile.first)) {
    if (paged()) entry = page_of(t.end - 1);
  }

  __device__ __forceinline__ bool paged() const {
    return !Config::plain && p.args.page_table != nullptr;
  }

  /// This lane's key of block n.
  __device__ __forceinline__ unsigned key_of(int n) const {
    auto const thread = static_cast<unsigned>(fresh_thread());
    unsigned const lane = thread % 32,
                   in_block = lane % lanes / Copier::per_warp * Copier::at_once +
                              thread / 32 * Copier::per_warp + lane % Copier::per_warp;
    int const key = n * Config::tile_n + static_cast<int>(in_block);
    return static_cast<unsigned>(max(0, min(key, t.len_kv - 1)));
  }

  /// What the table says of this lane's key of block n.
  __device__ __forceinline__ int page_of(int n) const {
    abi::AttentionArgs const& g = p.args;
    unsigned const at = key_of(n) / static_cast<unsigned>(g.page_size);
    return g.page_table[t.batch * g.page_table_stride[0] + at * g.page_table_stride[1]];
  }

  /// Starts the copies of the keys or values of block n, if there is one, to `slot`. Blocks come in
  /// descending order, the keys of each before its values.
  template <bool Values>
  __device__ __forceinline__ void issue(int n, std::uint32_t slot) {
    abi::AttentionArgs const& g = p.args;
    if (n >= first) {
      std::int64_t const(&strides)[4] = Values ? g.v_stride : g.k_stride;
      auto const* const base = static_cast<T const*>(Values ? t.v : t.k);
      auto const features = static_cast<int>(Values ? g.head_dim_v : g.head_dim);
      bool const wide = Config::plain || (Values ? p.wide_v : p.wide_k);
      int const j0 = n * Config::tile_n, left = t.len_kv - j0;
      Copier const copier;
      if constexpr (Config::plain) {
        copier.template copy_whole<Config::tile_n>(slot, base, j0, Values ? p.apart_v : p.apart_k,
                                                   left);
      } else if (!paged()) {
        copier.template copy<Config::tile_n>(slot, base + j0 * strides[2], strides[2], strides[3],
                                             features, left, wide);
      } else {
        int const page = max(0, min(entry, static_cast<int>(g.num_pages) - 1));
        unsigned const row = key_of(n) % static_cast<unsigned>(g.page_size);
        std::int64_t const offset = page * strides[0] + row * strides[2];
        entry = page_of(Values ? n - 1 : n);  // first touched a step later
        copier.template gather<Config::tile_n>(slot, base, offset, strides[3], features, left,
                                               wide);
      }
    }
  }

  /// Whether what this thread itself has copied to `slot` holds an infinity or NaN.
  __device__ __forceinline__ bool no_numbers(std::uint32_t slot) const {
    constexpr std::uint32_t exponents = std::is_same_v<T, __half>          ? 0x7c007c00u
                                        : std::is_same_v<T, __nv_bfloat16> ? 0x7f807f80u
                                                                           : 0x7ff00000u;
    // An exponent of ones runs over into the sign's place when its lowest bit is added.
    constexpr std::uint32_t lowest = exponents & -exponents;
    constexpr std::uint32_t add = sizeof(T) == 2 ? lowest * 0x10001u : lowest;
    constexpr std::uint32_t tops = sizeof(T) == 2 ? 0x80008000u : 0x80000000u;
    constexpr int step = sizeof(T) == 2 ? 1 : 2;  // exponents are in the upper halves of float64
    std::uint32_t found = 0;
    Copier const copier;
#pragma unroll
    for (int r = 0; r < Config::tile_n; r += Copier::at_once)
#pragma unroll
      for (int panel = 0; panel < Copier::panels; ++panel) {
        std::uint32_t words[4];
        load_shared_16(words, slot + copier.place(r, panel));
#pragma unroll
        for (int e = step - 1; e < 4; e += step) found |= (words[e] & exponents) + add;
      }
    return (found & tops) != 0;
  }
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
