// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the float32 attention kernels are told, and how queries, keys and values come to shared
/// memory.
#pragma once

#include <attikos/ptx/cp_async.hpp>

#include "common/ring.cuh"
#include "ptx/mbarrier.cuh"
#include "tile.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

struct F32AttentionParams : AttentionParams {
  bool terms;                      ///< scores are more than scale·q·k with a positive scale
  bool excludes;                   ///< a bias or mask may exclude any pair
  bool whole_q, whole_k, whole_v;  ///< copies may be of 16 bytes
  bool dense_k, dense_v;           ///< rows lie one stride apart and fill whole chunks of features
};

namespace {

/// Blocks of a multiprocessor, for the launch bounds: cards other than Hopper have shared memory
/// for two at most, so that theirs may use the registers of a third.
constexpr int resident_blocks(int blocks) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
  return blocks < 2 ? blocks : 2;
#else
  return blocks;
#endif
}

/// Works out this block's tile, by one thread, and puts it to `place` in shared memory. False if
/// there is nothing to do. Tiles of the last queries come first: under a causal mask they are the
/// longest.
template <class Config>
__device__ __forceinline__ bool locate_for_block(F32AttentionParams const& p,
                                                 AttentionTile* place) {
  if (threadIdx.x == 0) {
    int const index = static_cast<int>(blockIdx.x);
    AttentionTile t;
    if (!locate_tile<Config>(p, index % p.heads, p.tiles_m - 1 - index / p.heads, t)) t.row0 = -1;
    *place = t;
  }
  __syncthreads();
  return place->row0 >= 0;
}

/// Where a row of keys or values lies, in elements from its head's first.
struct F32Rows {
  abi::AttentionArgs const& g;
  AttentionTile const& t;
  std::int64_t const (&stride)[4];  ///< of the tensor

  __device__ __forceinline__ std::int64_t offset(int j) const {
    std::int64_t const batch = max(t.batch, 0);
    std::int64_t page = batch, row = std::int64_t{t.begin_kv} + j;
    if (g.page_table != nullptr) {
      auto const size = static_cast<unsigned>(g.page_size), at = static_cast<unsigned>(j) / size;
      row = static_cast<int>(static_cast<unsigned>(j) - at * size);
      page = clamped(
          g.page_table[batch * g.page_table_stride[0] + std::int64_t{at} * g.page_table_stride[1]],
          0, static_cast<int>(g.num_pages) - 1);
    }
    return page * stride[0] + row * stride[2];
  }
};

/// Copies `left` of four elements to shared address `to`, and zeros for the rest.
__device__ __forceinline__ void copy_four(std::uint32_t to, float const* from, std::int64_t stride,
                                          int left, bool whole) {
  if (whole) {
    copy_async<16>(to, from, max(0, min(4, left)) * 4);
  } else {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      copy_async<4>(to + 4 * e, left > e ? from + e * stride : from, left > e ? 4 : 0);
  }
}

/// Queries as rows: panels of 32 features, of which row r has its 16 bytes number c in place
/// c ^ swizzle_k(r). Rows past the last, and features, are zeros.
template <class Config>
__device__ __forceinline__ void copy_queries(std::uint32_t to, F32AttentionParams const& p,
                                             AttentionTile const& t) {
  abi::AttentionArgs const& g = p.args;
  int const d = static_cast<int>(g.head_dim), panels = (d + 31) / 32;
  int const c = static_cast<int>(threadIdx.x) % 8;
  float const* const from =
      static_cast<float const*>(g.q) + max(t.batch, 0) * g.q_stride[0] + t.head * g.q_stride[1];
  for (int panel = 0; panel < panels; ++panel)
#pragma unroll 1
    for (int r = static_cast<int>(threadIdx.x) / 8; r < Config::tile_m; r += Config::threads / 8) {
      int const feature = panel * 32 + c * 4;
      bool const exists = t.row0 + r < t.len_q;
      copy_four(to + panel * (Config::tile_m * 128) + r * 128 + (c ^ Config::swizzle_k(r)) * 16,
                from + (exists ? (std::int64_t{t.begin_q} + t.row0 + r) * g.q_stride[2] : 0) +
                    feature * g.q_stride[3],
                g.q_stride[3], exists ? d - feature : 0, p.whole_q);
    }
}

/// Queries as columns: of each feature all rows side by side, 16 bytes of them number c in place
/// c ^ swizzle_q(feature). The features go up to a multiple of `k_features`.
template <class Config>
__device__ __forceinline__ void copy_queries_across(std::uint32_t to, F32AttentionParams const& p,
                                                    AttentionTile const& t) {
  abi::AttentionArgs const& g = p.args;
  int const d = static_cast<int>(g.head_dim), thread = static_cast<int>(threadIdx.x);
  int const end = (d + Config::k_features - 1) / Config::k_features * Config::k_features;
  float const* const from =
      static_cast<float const*>(g.q) + max(t.batch, 0) * g.q_stride[0] + t.head * g.q_stride[1];
#pragma unroll 1
  for (int r = thread / 8; r < Config::tile_m; r += Config::threads / 8) {
    bool const exists = t.row0 + r < t.len_q;
    std::int64_t const row = (std::int64_t{t.begin_q} + t.row0 + r) * g.q_stride[2];
#pragma unroll 4
    for (int f = thread % 8; f < end; f += 8) {
      bool const copied = exists && f < d;
      copy_async<4>(
          to + f * (Config::tile_m * 4) + ((r / 4) ^ Config::swizzle_q(f)) * 16 + r % 4 * 4,
          from + (copied ? row + f * g.q_stride[3] : 0), copied ? 4 : 0);
    }
  }
}

/// Brings keys and values, block by block, in chunks through a ring of shared memory: first a
/// block's keys, `k_features` of their features at a time, then its values, `v_keys` of them or
/// `v_features` of their features at a time. A row has its 16 bytes number c in place c ^ swizzle_k
/// or swizzle_v of its number; `across`: keys lie as columns, of each feature all keys side by
/// side.
template <class Config>
struct F32Loader {
  static constexpr int k_pass =
      Config::across ? Config::threads / 8 : Config::threads / (Config::k_features / 4);
  static constexpr int v_per_row = Config::v_features / 4;  ///< 16 bytes
  static constexpr int v_pass = Config::threads / v_per_row;
  static constexpr bool by_features = Config::v_features < Config::d;

  F32AttentionParams const& p;
  AttentionTile const& t;
  std::uint32_t ring;
  float const *k_at, *v_at;  ///< the thread's first row of the block, at its first feature
  int block;                 ///< the one that the next chunk belongs to
  int chunk = 0;             ///< and its number there
  int write = 0;             ///< its slot

  __device__ __forceinline__ F32Loader(F32AttentionParams const& params, AttentionTile const& tile,
                                       std::uint32_t ring_address)
      : p(params), t(tile), ring(ring_address), block(tile.first) {
    k_at = v_at = nullptr;
    if (p.dense_k) k_at = k_row(block * Config::tile_n + k_first_row()) + k_first_feature();
    if (p.dense_v) v_at = v_row(block * Config::tile_n + v_first_row()) + v_first_feature();
  }

  /// Chunks of a block's keys.
  __device__ __forceinline__ int k_chunks() const {
    return (static_cast<int>(p.args.head_dim) + Config::k_features - 1) / Config::k_features;
  }

  /// Starts the copies of the next chunk, if there is one, and closes their group.
  __device__ __forceinline__ void issue() {
    if (block < t.end) {
      std::uint32_t const slot = ring + write * Config::slot_bytes;
      bool const inside = (block + 1) * Config::tile_n <= t.len_kv;
      int const v_chunk = chunk - k_chunks();
      if (v_chunk < 0) {
        if (p.dense_k && inside)
          copy_k(slot, k_at + chunk * Config::k_features);
        else
          copy_odd_k(slot, chunk * Config::k_features);
      } else {
        if (p.dense_v && inside &&
            (!by_features || (v_chunk + 1) * Config::v_features <= p.args.head_dim_v))
          copy_v(slot, by_features ? v_at + v_chunk * Config::v_features
                                   : v_at + v_chunk * Config::v_keys * p.args.v_stride[2]);
        else
          copy_odd_v(slot, v_chunk);
      }
      ++chunk;
      if (v_chunk == Config::v_chunks - 1) {
        chunk = 0, ++block;
        k_at += Config::tile_n * p.args.k_stride[2];
        v_at += Config::tile_n * p.args.v_stride[2];
      }
      write = next_in_ring<Config::stages>(write);
    }
    copy_async_commit();
  }

 private:
  __device__ __forceinline__ static int thread() { return static_cast<int>(threadIdx.x); }
  /// The thread's first row and feature of a chunk.
  __device__ __forceinline__ static int k_first_row() {
    return thread() / (Config::threads / k_pass);
  }
  __device__ __forceinline__ static int k_first_feature() {
    return Config::across ? thread() % 8 : thread() % (Config::k_features / 4) * 4;
  }
  __device__ __forceinline__ static int v_first_row() { return thread() / v_per_row; }
  __device__ __forceinline__ static int v_first_feature() { return thread() % v_per_row * 4; }

  __device__ __forceinline__ float const* k_row(int j) const {
    abi::AttentionArgs const& g = p.args;
    return static_cast<float const*>(g.k) + t.head / p.group_of_heads * g.k_stride[1] +
           F32Rows{g, t, g.k_stride}.offset(j);
  }
  __device__ __forceinline__ float const* v_row(int j) const {
    abi::AttentionArgs const& g = p.args;
    return static_cast<float const*>(g.v) + t.head / p.group_of_heads * g.v_stride[1] +
           F32Rows{g, t, g.v_stride}.offset(j);
  }
  /// Where the thread's first row of a chunk goes.
  __device__ __forceinline__ static std::uint32_t k_place() {
    int const r = k_first_row(), f = k_first_feature();
    if (Config::across) return f * Config::k_pitch + r * 4;
    return r * Config::k_pitch + (f / 4 ^ Config::swizzle_k(r)) * 16;
  }
  __device__ __forceinline__ static std::uint32_t v_place() {
    int const r = v_first_row();
    return r * (Config::v_features * 4) + (v_first_feature() / 4 ^ Config::swizzle_v(r)) * 16;
  }

  __device__ __forceinline__ void copy_k(std::uint32_t slot, float const* from) const {
    std::int64_t const step = p.args.k_stride[2] * k_pass;
    std::uint32_t const to = slot + k_place();
#pragma unroll
    for (int r = 0; r < Config::tile_n; r += k_pass, from += step) {
      if constexpr (Config::across) {
#pragma unroll
        for (int f = 0; f < Config::k_features; f += 8)
          copy_async_four(to + f * Config::k_pitch + r * 4, from + f);
      } else {
        copy_async_whole(to + r * Config::k_pitch, from);
      }
    }
  }
  __device__ __forceinline__ void copy_v(std::uint32_t slot, float const* from) const {
    std::int64_t const step = p.args.v_stride[2] * v_pass;
    std::uint32_t const to = slot + v_place();
#pragma unroll
    for (int r = 0; r < Config::v_keys; r += v_pass, from += step)
      copy_async_whole(to + r * (Config::v_features * 4), from);
  }

  /// The same where rows end, lie in pages, or cannot be copied 16 bytes at a time.
  __device__ __forceinline__ void copy_odd_k(std::uint32_t slot, int feature) const {
    std::int64_t const stride = p.args.k_stride[3];
    std::uint32_t const to = slot + k_place();
    int const j0 = block * Config::tile_n + k_first_row();
    int const left = static_cast<int>(p.args.head_dim) - feature - k_first_feature();
#pragma unroll 1
    for (int r = 0; r < Config::tile_n; r += k_pass) {
      bool const exists = j0 + r < t.len_kv && left > 0;
      float const* const from = exists ? k_row(j0 + r) + (feature + k_first_feature()) * stride
                                       : static_cast<float const*>(p.args.k);
      if constexpr (Config::across) {
#pragma unroll 1
        for (int f = 0; f < Config::k_features; f += 8) {
          bool const copied = exists && f < left;
          copy_async<4>(to + f * Config::k_pitch + r * 4, copied ? from + f * stride : from,
                        copied ? 4 : 0);
        }
      } else {
        copy_four(to + r * Config::k_pitch, from, stride, exists ? left : 0, p.whole_k);
      }
    }
  }
  __device__ __forceinline__ void copy_odd_v(std::uint32_t slot, int v_chunk) const {
    std::int64_t const stride = p.args.v_stride[3];
    std::uint32_t const to = slot + v_place();
    int const j0 =
        block * Config::tile_n + (by_features ? 0 : v_chunk * Config::v_keys) + v_first_row();
    int const feature = (by_features ? v_chunk * Config::v_features : 0) + v_first_feature();
    int const left = static_cast<int>(p.args.head_dim_v) - feature;
#pragma unroll 1
    for (int r = 0; r < Config::v_keys; r += v_pass) {
      bool const exists = j0 + r < t.len_kv && left > 0;
      float const* const from =
          exists ? v_row(j0 + r) + feature * stride : static_cast<float const*>(p.args.v);
      copy_four(to + r * (Config::v_features * 4), from, stride, exists ? left : 0, p.whole_v);
    }
  }
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
