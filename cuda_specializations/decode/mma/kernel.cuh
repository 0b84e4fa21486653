// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Few rows of queries against one part of a long cache: keys and values stream through rings of
/// shared memory by cp.async, rows are the 16-row operand of mma.sync.
///
/// A step of a team of warps takes 16 to 64 keys: products with the rows, weights, which stay in
/// registers as the left operand of the product with the values. Teams go through the part in turns
/// and meet only at its end. Row r of a slot has its 16 bytes number c in place c ^ (r % 8), so
/// that neither copies nor loads of matrices meet in a bank.
///
/// Source: T. Dao et al., "Flash-Decoding for long-context inference", 2023; PTX ISA, "mma",
/// "ldmatrix", "cp.async".
#pragma once

#include <attikos/ptx/cp_async.hpp>
#include <attikos/ptx/ldmatrix.hpp>

#include "common/ring.cuh"
#include "float8.cuh"
#include "ptx/global_memory.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "sequences/mma_tiles.cuh"
#include "sequences/row_epilogue.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Brings keys and values of one team of warps, each warp `rows` keys of every step. Which page a
/// key lies in is looked up some steps ahead, by as many lanes as there are keys.
template <class Config>
struct DecodeLoader {
  using T = typename Config::Element;
  static constexpr int rows = Config::keys / Config::warps_m;
  static constexpr int per_chunk = 16 / static_cast<int>(sizeof(T));  ///< elements
  static constexpr int rows_at_once = 32 / Config::chunks;     ///< by one instruction of the warp
  static constexpr int lookup_steps = 32 / rows;               ///< steps that one look-up serves
  static constexpr int stride = Config::teams * Config::keys;  ///< from step to step
  static_assert(Config::chunks <= 32 && rows % rows_at_once == 0);

  abi::AttentionArgs const& g;
  std::int32_t const* table;  ///< of this sequence; null: not paged
  T const *k, *v;             ///< of this head; the lane's chunk
  std::uint32_t to;           ///< the lane's chunk of the warp's first row of slot 0
  int end;                    ///< of the part
  int key, in_step;           ///< the warp's first key of the next step, and that within the step
  int batch, begin_kv;
  int lookup_step = 0;
  int page, row;        ///< of key lane % rows of step lane / rows of the look-up
  int entry, next_row;  ///< and of the next one: the page as the table has it

  __device__ __forceinline__ DecodeLoader(DecodeParams const& p, DecodeTile const& t,
                                          DecodeKeys const& part, std::uint32_t ring, int team,
                                          int warp_m, int lane)
      : g(p.args), end(part.end) {
    int const h = t.head / p.group, chunk = lane % Config::chunks, r0 = lane / Config::chunks;
    table = g.page_table == nullptr ? nullptr : g.page_table + t.batch * g.page_table_stride[0];
    k = static_cast<T const*>(g.k) + h * g.k_stride[1] + per_chunk * chunk;
    v = static_cast<T const*>(g.v) + h * g.v_stride[1] + per_chunk * chunk;
    to = ring + (warp_m * rows + r0) * Config::row_bytes + Config::place(chunk, r0) * 16;
    in_step = warp_m * rows;
    key = part.begin + team * Config::keys + in_step;
    batch = t.batch, begin_kv = t.begin_kv;
    look_up(key, lane);
  }

  /// Finds the keys of the steps from key `from` on. What the table says is first touched when
  /// their copies start, when it has long been there.
  __device__ __forceinline__ void look_up(int from, int lane) {
    int const j = min(from + lane / rows % lookup_steps * stride + lane % rows, end - 1);
    if (table == nullptr) {
      entry = batch, next_row = begin_kv + j;
    } else {
      auto const size = static_cast<unsigned>(g.page_size);
      unsigned const at = static_cast<unsigned>(j) / size;
      next_row = static_cast<int>(static_cast<unsigned>(j) - at * size);
      entry = table[at * g.page_table_stride[1]];
    }
  }

  /// Starts the copies of a step's keys, or, after them, of its values, to slot `place`, and closes
  /// their group.
  template <bool Values>
  __device__ __forceinline__ void issue(int place, int lane) {
    int const left = end - key;  // keys past it become zeros
    if (left + in_step > 0) {
      if (!Values && lookup_step == 0) {
        page = table == nullptr ? entry : max(0, min(entry, static_cast<int>(g.num_pages) - 1));
        row = next_row;
        if (left + in_step > lookup_steps * stride) look_up(key + lookup_steps * stride, lane);
      }
      std::int64_t const* const strides = Values ? g.v_stride : g.k_stride;
      T const* const base = Values ? v : k;
      std::uint32_t const slot = to + place * Config::slot_bytes;
      int const r0 = lane / Config::chunks;
      int const row_bytes = static_cast<int>((Values ? g.head_dim_v : g.head_dim) * sizeof(T));
      int const chunk = lane % Config::chunks * 16;
      std::int64_t const offset = page * strides[0] + row * strides[2];
      auto const source = [&](int r) {
        return base + __shfl_sync(0xffffffff, offset, lookup_step * rows + r + r0);
      };
      auto const target = [&](int r) {
        return (slot ^ (Config::place(0, r) * 16)) + r * Config::row_bytes;
      };
      if (sizeof(T) == 1 && row_bytes % 16 != 0) {  // a chunk has 8 bytes
#pragma unroll 1
        for (int r = 0; r < rows; r += rows_at_once)
          copy_async<16>(target(r), source(r),
                         r + r0 < left ? max(0, min(row_bytes - chunk, 16)) : 0);
      } else {
        int const bytes = chunk < row_bytes ? 16 : 0;
#pragma unroll
        for (int r = 0; r < rows; r += rows_at_once)
          copy_async<16>(target(r), source(r), r + r0 < left ? bytes : 0);
      }
    }
    copy_async_commit();
    if constexpr (Values) {
      key += stride;
      if (++lookup_step == lookup_steps) lookup_step = 0;
    }
  }
};

/// A warp's 16 rows of queries as the left operand, features from head_dim on as zeros.
template <class Config>
__device__ __forceinline__ void load_queries(std::uint32_t (&a)[Config::d / 16][4],
                                             abi::AttentionArgs const& g, DecodeTile const& t,
                                             int r, int lane) {
  using T = typename Config::Element;
  int const d = static_cast<int>(g.head_dim), q = lane % 4;
  std::int64_t const b = g.cu_seqlens_q.data == nullptr ? t.batch : 0;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    bool const exists = r + 8 * h < t.rows;
    int const row = exists ? r + 8 * h : 0;
    T const* const from = static_cast<T const*>(g.q) + b * g.q_stride[0] +
                          t.head_of(row) * g.q_stride[1] +
                          (std::int64_t{t.begin_q} + t.query_of(row)) * g.q_stride[2] + 2 * q;
#pragma unroll
    for (int s = 0; s < Config::d / 16; ++s)
#pragma unroll
      for (int l = 0; l < 2; ++l)
        a[s][h + 2 * l] = exists && 16 * s + 8 * l + 2 * q < d
                              ? *reinterpret_cast<std::uint32_t const*>(from + 16 * s + 8 * l)
                              : 0u;
  }
}

/// The same rows of a whole tile in shared memory, each as a row of a slot, by all threads.
template <class Config>
__device__ __forceinline__ void share_queries(unsigned char* to, abi::AttentionArgs const& g,
                                              DecodeTile const& t) {
  using T = typename Config::Element;
  std::int64_t const b = g.cu_seqlens_q.data == nullptr ? t.batch : 0;
  int const c = static_cast<int>(threadIdx.x) % Config::chunks;
  for (int r = static_cast<int>(threadIdx.x) / Config::chunks; r < Config::tile_m;
       r += Config::threads / Config::chunks) {
    uint4 x = make_uint4(0, 0, 0, 0);
    if (r < t.rows && 8 * c < g.head_dim)
      x = *reinterpret_cast<uint4 const*>(
          static_cast<T const*>(g.q) + b * g.q_stride[0] + t.head_of(r) * g.q_stride[1] +
          (std::int64_t{t.begin_q} + t.query_of(r)) * g.q_stride[2] + 8 * c);
    *reinterpret_cast<uint4*>(to + r * Config::d * 2 + (c ^ (r & 7)) * 16) = x;
  }
  __syncthreads();
}

/// Adds products of a warp's rows, in registers or at `q_lane`, and the keys of a slot.
template <class Config, int Blocks, int Kept>
__device__ __forceinline__ void multiply_keys(float (&s)[Blocks][4], std::uint32_t (&a)[Kept][4],
                                              std::uint32_t q_lane, std::uint32_t slot,
                                              std::uint32_t k_lane) {
  using T = typename Config::Element;
#pragma unroll
  for (int step = 0; step < Config::d / 16; ++step) {
    int const kept = Config::shared_queries ? 0 : step;
    if constexpr (Config::shared_queries) load_matrices(a[0], chunk_at(q_lane, step * 32));
#pragma unroll
    for (int b = 0; b < Blocks; b += 2) {
      std::uint32_t x[4];
      load_matrices(x, slot + 8 * b * Config::row_bytes + chunk_at(k_lane, step * 32));
      multiply_16<T>(s[b], a[kept], x[0], x[1]);
      multiply_16<T>(s[b + 1], a[kept], x[2], x[3]);
    }
  }
}

/// Adds products of weights and the values of a slot.
template <class Config, int Pairs>
__device__ __forceinline__ void multiply_values(float (&o)[Config::d / 8][4],
                                                std::uint32_t const (&weights)[Pairs][4],
                                                std::uint32_t slot, std::uint32_t v_lane) {
  using T = typename Config::Element;
#pragma unroll
  for (int b = 0; b < Pairs; ++b)
#pragma unroll
    for (int c = 0; c < Config::d / 8; c += 2) {
      std::uint32_t x[4];
      load_matrices<true>(x, slot + 16 * b * Config::row_bytes + chunk_at(v_lane, c * 16));
      multiply_16<T>(o[c], weights[b], x[0], x[1]);
      multiply_16<T>(o[c + 1], weights[b], x[2], x[3]);
    }
}

/// Attention of one tile of rows over one part of the keys.
template <class Config, class Tile>
__device__ __forceinline__ void decode_part(DecodeParams const& p, Tile const& t,
                                            DecodeKeys const& keys, int split,
                                            unsigned char* shared) {
  constexpr int d = Config::d, stages = Config::stages, blocks = Config::keys / 8;
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int const team = warp / Config::warps_m, warp_m = warp % Config::warps_m;
  std::uint32_t const ring =
      shared_address(shared) + team * stages * static_cast<std::uint32_t>(Config::slot_bytes);
  DecodeLoader<Config> loader(p, t, keys, ring, team, warp_m, lane);
#pragma unroll
  for (int s = 0; s < stages - 1; ++s) {
    if (s % 2 == 0)
      loader.template issue<false>(s, lane);
    else
      loader.template issue<true>(s, lane);
  }

  int const r = 16 * warp_m + lane / 4;
  bool const has_rows = 16 * warp_m < t.rows;
  DecodeRowPair const rows{r};
  constexpr bool shared_queries = Config::shared_queries;
  std::uint32_t a[shared_queries ? 1 : d / 16][4];
  if constexpr (shared_queries && Config::bytes)
    share_byte_queries<Config>(shared + Config::queries_at, p.args, t);
  else if constexpr (shared_queries)
    share_queries<Config>(shared + Config::queries_at, p.args, t);
  else if constexpr (Config::bytes)
    load_byte_queries<Config>(a, p.args, t, r, lane);
  else
    load_queries<Config>(a, p.args, t, r, lane);
  // Keys that all rows see.
  bool const one_head = t.head_of(0) == t.head_of(t.rows - 1);
  int const low = one_head ? t.query_of(0) : 0;
  int const high = one_head ? t.query_of(t.rows - 1) : t.length - 1;
  int const whole_from = t.seen_from(high);
  int const whole_end = high >= t.len_q ? 0 : min(keys.end, t.seen_end(low));
  float const scale = product_factor(p, t);

  // Lane 8 i + l gives row l of matrix i: of keys, blocks of 8 keys and of 16 bytes, bytes first;
  // of values and queries, rows first.
  int const i = lane / 8, l = lane % 8;
  std::uint32_t const k_lane = (i / 2 * 8 + l) * Config::row_bytes + Config::place(i % 2, l) * 16;
  std::uint32_t const v_lane = (i % 2 * 8 + l) * Config::row_bytes + Config::place(i / 2, l) * 16;
  [[maybe_unused]] std::uint32_t const q_lane = shared_address(shared + Config::queries_at) +
                                                (16 * warp_m + i % 2 * 8 + l) * d * 2 +
                                                ((i / 2) ^ l) * 16;
  DecodeSoftmax softmax;
  float o[d / 8][4] = {};
  int read = 0;  // slot; the one before it is free
  auto const next_slot = [&](auto values) {
    copy_async_wait<stages - 2>();
    if constexpr (Config::warps_m == 1)
      __syncwarp();
    else
      __syncthreads();
    loader.template issue<decltype(values)::value>(previous_in_ring<stages>(read), lane);
    std::uint32_t const slot = ring + read * Config::slot_bytes;
    read = next_in_ring<stages>(read);
    return slot;
  };
  // Which of keys and values the place just left is for.
  using AtKeys = std::bool_constant<(stages - 1) % 2 == 1>;
  using AtValues = std::bool_constant<(stages - 1) % 2 == 0>;

#pragma unroll 1
  for (int j0 = keys.begin + team * Config::keys; j0 < keys.end;
       j0 += Config::teams * Config::keys) {
    std::uint32_t const k_slot = next_slot(AtKeys{});
    float s[blocks][4] = {};
    std::uint32_t weights[blocks / 2][4];
    if (has_rows) {
      if constexpr (Config::bytes)
        multiply_byte_keys<Config>(s, a, q_lane, k_slot, k_lane);
      else
        multiply_keys<Config>(s, a, q_lane, k_slot, k_lane);
#pragma unroll
      for (int b = 0; b < blocks; ++b)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[b][e] *= scale;
      int const j = j0 + lane % 4 * 2;
      if (p.terms) apply_decode_terms(p, t, keys, rows, s, j);
      if (j0 < whole_from || j0 + Config::keys > whole_end)
        mask_keys(s, {rows.seen(t, keys, 0), rows.seen(t, keys, 1)}, j);
      float factor[2];
      if (weigh_keys(s, softmax, factor)) {
#pragma unroll
        for (int c = 0; c < d / 8; ++c)
#pragma unroll
          for (int e = 0; e < 4; ++e) o[c][e] *= factor[e / 2];
      }
#pragma unroll
      for (int b = 0; b < blocks; ++b)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          weights[b / 2][h + b % 2 * 2] =
              pack_pair<typename Config::Factor>(s[b][2 * h], s[b][2 * h + 1]);
    }
    std::uint32_t const v_slot = next_slot(AtValues{});
    if (has_rows) {
      if constexpr (Config::bytes)
        multiply_byte_values<Config>(o, weights, v_slot, v_lane);
      else
        multiply_values<Config>(o, weights, v_slot, v_lane);
    }
  }
  copy_async_wait<0>();
  merge_and_store<Config>(p, t, keys, split, shared, softmax, o);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
/// Before the launch ahead has ended: begins to bring a part's first keys and values to L2, where
/// what that launch still writes to them arrives too. Where they lie is a guess from a length and
/// pages that it may be about to change: nothing is read here but to prefetch, nor through L1,
/// which would keep it.
template <class Config>
__device__ __forceinline__ void fetch_ahead(DecodeParams const& p, int batch, int h_kv, int split) {
  using T = typename Config::Element;
  abi::AttentionArgs const& g = p.args;
  DecodeTile t{};
  t.batch = batch, t.head = h_kv * p.group;
  t.len_q = t.length = static_cast<int>(g.seqlen_q);
  t.rows = p.group * t.length;
  t.len_kv = static_cast<int>(g.seqlen_kv);
  if (g.lengths_kv != nullptr)
    t.len_kv = clamped(
        __ldcg(g.lengths_kv + batch * g.lengths_kv_stride[0] + h_kv * g.lengths_kv_stride[1]), 0,
        t.len_kv);
  place_window(p, t);
  DecodeKeys const keys = part_of_keys(t, p.splits, split);
  int const end = min(keys.begin + p.keys_ahead, keys.end);
  for (int j = keys.begin + static_cast<int>(threadIdx.x); j < end; j += Config::threads) {
    std::int64_t page = batch, row = j;
    if (g.page_table != nullptr) {
      auto const size = static_cast<unsigned>(g.page_size);
      unsigned const at = static_cast<unsigned>(j) / size;
      int const entry =
          __ldcg(g.page_table + batch * g.page_table_stride[0] + at * g.page_table_stride[1]);
      page = max(0, min(entry, static_cast<int>(g.num_pages) - 1));
      row = static_cast<unsigned>(j) - at * size;
    }
    // Faster than the copy engine's prefetch (cp.async.bulk.prefetch) of rows, let alone of pages.
    auto const bring = [&](void const* base, std::int64_t const(&stride)[4],
                           std::int64_t features) {
      constexpr int line = 128 / static_cast<int>(sizeof(T));
      T const* const from =
          static_cast<T const*>(base) + page * stride[0] + h_kv * stride[1] + row * stride[2];
      for (int c = 0; c < features; c += line) prefetch_l2(from + c);
    };
    bring(g.k, g.k_stride, g.head_dim), bring(g.v, g.v_stride, g.head_dim_v);
  }
}
#endif

/// Brings this part's share of the page table to L2 while the sequence's length is on its way.
__device__ __forceinline__ void fetch_table(DecodeParams const& p, int batch, int split) {
  abi::AttentionArgs const& g = p.args;
  for (int n = 32 * static_cast<int>(threadIdx.x); n < p.table_share; n += 32 * 128) {
    std::int64_t const at = std::int64_t{split} * p.table_share + n;
    if (at * g.page_size < g.seqlen_kv)
      prefetch_l2(g.page_table + batch * g.page_table_stride[0] + at * g.page_table_stride[1]);
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::threads, 2)
    sm80_decode_kernel(__grid_constant__ DecodeParams const p) {
  extern __shared__ unsigned char raw_shared[];
  unsigned char* const shared =
      raw_shared + (-shared_address(raw_shared) & 127u);  // banks follow from the address
  auto const heads_kv = static_cast<unsigned>(p.args.heads_kv);
  // Tiles that read the same keys are neighbours, and so are heads, which may lie side by side.
  unsigned unit = blockIdx.x;
  int const slot = static_cast<int>(unit % static_cast<unsigned>(p.tiles));
  unit /= static_cast<unsigned>(p.tiles);
  int const h_kv = static_cast<int>(unit % heads_kv);
  unit /= heads_kv;
  int const split = static_cast<int>(unit % static_cast<unsigned>(p.splits));
  int const batch = static_cast<int>(unit / static_cast<unsigned>(p.splits));
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (slot == 0 && static_cast<int>(blockIdx.x) < p.blocks_ahead)
    fetch_ahead<Config>(p, batch, h_kv, split);
#endif
  wait_for_launch_before();
  if (p.early) allow_launch_behind();
  fetch_table(p, batch, split);
  auto const t = with_factors<Config>(p, locate_rows(p, batch, h_kv, slot, Config::tile_m), h_kv);
  if (t.rows == 0) return;
  DecodeKeys const keys = part_of_keys(t, p.splits, split);
  if (keys.begin >= keys.end) {
    store_nothing<Config>(p, t, split);
    return;
  }
  decode_part<Config>(p, t, keys, split, shared);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
