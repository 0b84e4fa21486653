// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file Copies of rows of queries, keys and values to shared memory, whatever their strides, dense
/// or paged; and how values that are NaN or infinite are dealt with.
///
/// sequences/row_copier.cuh says what a tile looks like.
#pragma once

#include <attikos/ptx/ldmatrix.hpp>

#include "common/uniform.cuh"
#include "mma_params.cuh"
#include "ptx/shared_memory.cuh"
#include "sequences/row_copier.cuh"
#include "sequences/score_math.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Whether query i does not attend to key j at all. A weight of 0 does not tell: it may have
/// underflowed.
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
    // Adding the exponent's lowest bit to an exponent of all ones carries into the sign's place.
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
