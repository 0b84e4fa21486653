// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// How keys and values come to the registers of the decode kernels on CUDA cores.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "sequences/row_params.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Partial states are of the kernel's Acc, whatever the type of their pointers; see parts_of().
struct SimtDecodeParams : DecodeParams {};

namespace {

template <class Acc>
__device__ __forceinline__ Acc* parts_of(SimtDecodeParams const& p) {
  return reinterpret_cast<Acc*>(p.partial_out);
}
template <class Acc>
__device__ __forceinline__ Acc* sums_of_parts(SimtDecodeParams const& p) {
  return reinterpret_cast<Acc*>(p.partial_lse);
}

/// Copies numbers that lie side by side, as many bytes at a time as there are up to 16; `from` or
/// `to` is an array of a thread, the other is aligned to what it copies.
template <int Count, class Acc>
__device__ __forceinline__ void copy_group(Acc (&to)[Count], Acc const* from) {
  constexpr int most = 16 / static_cast<int>(sizeof(Acc)), group = Count < most ? Count : most;
  struct alignas(group * sizeof(Acc)) Group {
    Acc x[group];
  };
#pragma unroll
  for (int n = 0; n < Count; n += group) {
    Group const y = *reinterpret_cast<Group const*>(from + n);
#pragma unroll
    for (int e = 0; e < group; ++e) to[n + e] = y.x[e];
  }
}
template <int Count, class Acc>
__device__ __forceinline__ void store_group(Acc* to, Acc const (&from)[Count]) {
  constexpr int most = 16 / static_cast<int>(sizeof(Acc)), group = Count < most ? Count : most;
  struct alignas(group * sizeof(Acc)) Group {
    Acc x[group];
  };
#pragma unroll
  for (int n = 0; n < Count; n += group) {
    Group y;
#pragma unroll
    for (int e = 0; e < group; ++e) y.x[e] = from[n + e];
    *reinterpret_cast<Group*>(to + n) = y;
  }
}

/// A lane's share of one row of keys or values. What was loaded in one piece stays so until it is
/// used, or the use would wait for memory.
template <class Config, bool Whole = Config::whole>
struct SimtRow {
  using T = typename Config::Element;
  T x[Config::each];

  // Past L1 and coherent: a launch that overlaps the one ahead must not see what that has since
  // overwritten.
  /// `from` is the lane's first element, `step` the way over 32 elements, `left` how many elements
  /// there are from the lane's first on.
  template <class Step>
  __device__ __forceinline__ void load(T const* from, Step step, int left) {
#pragma unroll
    for (int e = 0; e < Config::each; ++e) x[e] = 32 * e < left ? __ldcg(from + e * step) : T(0.0f);
  }
  __device__ __forceinline__ typename Config::Acc get(int e) const {
    return static_cast<typename Config::Acc>(x[e]);
  }
};
template <class Config>
struct SimtRow<Config, true> {
  using T = typename Config::Element;
  static constexpr int bytes = Config::vector * static_cast<int>(sizeof(T)), words = bytes / 4;
  using Piece =
      std::conditional_t<words == 4, uint4, std::conditional_t<words == 2, uint2, std::uint32_t>>;
  std::uint32_t x[Config::chunks * words];

  template <class Step>
  __device__ __forceinline__ void load(T const* from, Step, int left) {
#pragma unroll
    for (int c = 0; c < Config::chunks; ++c) {
      Piece y{};
      if (32 * c * Config::vector < left)
        y = __ldcg(reinterpret_cast<Piece const*>(from + 32 * c * Config::vector));
      if constexpr (words == 1)
        x[c] = y;
      else
        x[c * words] = y.x, x[c * words + 1] = y.y;
      if constexpr (words > 2) x[c * words + 2] = y.z, x[c * words + 3] = y.w;
    }
  }
  __device__ __forceinline__ typename Config::Acc get(int e) const {
    if constexpr (sizeof(T) == 8) {
      return __hiloint2double(static_cast<int>(x[2 * e + 1]), static_cast<int>(x[2 * e]));
    } else if constexpr (sizeof(T) == 4) {
      return __uint_as_float(x[e]);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      return __uint_as_float(e % 2 == 0 ? x[e / 2] << 16 : x[e / 2] & 0xffff0000u);
    } else {
      __half2 const pair = *reinterpret_cast<__half2 const*>(&x[e / 2]);
      return e % 2 == 0 ? __low2float(pair) : __high2float(pair);
    }
  }
};

/// Where the keys of a warp's steps lie. In which page a key lies is looked up some steps ahead, by
/// as many lanes as there are keys.
template <class Config>
struct SimtKeyPlaces {
  using T = typename Config::Element;
  static constexpr int keys = Config::keys;
  static constexpr int lookup_steps = 32 / keys;  ///< steps that one look-up serves
  static constexpr int stride = Config::warps * keys;

  abi::AttentionArgs const& g;
  std::int32_t const* table;  ///< of this sequence; null: not paged
  T const *k, *v;             ///< of this head, and of this sequence where not paged; the lane's
  int left_k, left_v;         ///< elements from the lane's first on
  int end;                    ///< of the part
  int lookup_step = 0;
  int page, row;        ///< of key lane % keys of step lane / keys of the look-up
  int entry, next_row;  ///< and of the next one: the page as the table has it

  __device__ __forceinline__ SimtKeyPlaces(SimtDecodeParams const& p, DecodeTile const& t,
                                           DecodeKeys const& part, int first, int lane)
      : g(p.args), end(part.end) {
    int const h = t.head / p.group;
    table = g.page_table == nullptr ? nullptr : g.page_table + t.batch * g.page_table_stride[0];
    k = static_cast<T const*>(g.k) + h * g.k_stride[1];
    v = static_cast<T const*>(g.v) + h * g.v_stride[1];
    if (table == nullptr) {
      std::int64_t const b = g.cu_seqlens_kv.data == nullptr ? t.batch : 0;
      k += b * g.k_stride[0] + t.begin_kv * g.k_stride[2];
      v += b * g.v_stride[0] + t.begin_kv * g.v_stride[2];
    } else {
      look_up(first, lane);
      take_looked_up();
      look_up(first + lookup_steps * stride, lane);
    }
    int const at = Config::whole ? lane * Config::vector : lane;
    k += at * g.k_stride[3], v += at * g.v_stride[3];
    left_k = static_cast<int>(g.head_dim) - at, left_v = static_cast<int>(g.head_dim_v) - at;
  }

  /// Goes on to the step that begins with key j0.
  __device__ __forceinline__ void advance(int j0, int lane) {
    if (table == nullptr || ++lookup_step < lookup_steps) return;
    lookup_step = 0;
    take_looked_up();
    look_up(j0 + lookup_steps * stride, lane);
  }
  __device__ __forceinline__ void load_keys(SimtRow<Config> (&to)[keys], int j0) const {
    load(to, k, g.k_stride, left_k, j0);
  }
  __device__ __forceinline__ void load_values(SimtRow<Config> (&to)[keys], int j0) const {
    load(to, v, g.v_stride, left_v, j0);
  }

 private:
  __device__ __forceinline__ void look_up(int from, int lane) {
    auto const size = static_cast<unsigned>(g.page_size);
    auto const j = static_cast<unsigned>(min(from + lane / keys * stride + lane % keys, end - 1));
    unsigned const at = j / size;
    next_row = static_cast<int>(j - at * size);
    entry = table[at * g.page_table_stride[1]];
  }
  __device__ __forceinline__ void take_looked_up() {
    page = max(0, min(entry, static_cast<int>(g.num_pages) - 1));
    row = next_row;
  }
  /// Keys past the part's end are its last once more.
  __device__ __forceinline__ void load(SimtRow<Config> (&to)[keys], T const* from,
                                       std::int64_t const (&strides)[4], int left, int j0) const {
    auto const load_rows = [&](auto step) {
#pragma unroll
      for (int n = 0; n < keys; ++n) {
        std::int64_t offset;
        if (table == nullptr)
          offset = min(j0 + n, end - 1) * strides[2];
        else
          offset = __shfl_sync(0xffffffff, page, lookup_step * keys + n) * strides[0] +
                   __shfl_sync(0xffffffff, row, lookup_step * keys + n) * strides[2];
        to[n].load(from + offset, step, left);
      }
    };
    if (Config::whole || strides[3] == 1)
      load_rows(32);
    else
      load_rows(32 * strides[3]);
  }
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
