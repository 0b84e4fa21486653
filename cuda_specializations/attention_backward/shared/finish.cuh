// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Last launches of attention's gradients: from float32 sums to dq, and the gradients of sinks.
#pragma once

#include "prepare.cuh"
#include "scale.cuh"
#include "sums.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Zeros in the positions of `heads` heads that belong to no packed sequence, by all blocks from
/// `first` on.
template <class T>
__device__ void clear_gaps(void* data, std::int64_t const (&stride)[4], abi::Offsets const& offsets,
                           std::int64_t batch, std::int64_t total_rows, std::int64_t heads,
                           std::int64_t width, unsigned first) {
  if (offsets.data == nullptr) return;
  int const total = static_cast<int>(total_rows);
  int const before = packed_begin(offsets, 0, total), after = packed_begin(offsets, batch, total);
  std::int64_t const rows = before + (total - max(before, after));
  std::int64_t const step = std::int64_t{gridDim.x - first} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x - first} * blockDim.x + threadIdx.x;
       i < rows * heads * width; i += step) {
    std::int64_t const c = i % width, h = i / width % heads, r = i / width / heads;
    std::int64_t const row = r < before ? r : r - before + max(before, after);
    static_cast<T*>(data)[h * stride[1] + row * stride[2] + c * stride[3]] = static_cast<T>(0.0f);
  }
}

/// A block of 256 threads takes a tile of queries. Blocks behind those of all tiles clear what
/// belongs to no packed sequence. `Sums`: how sums lie.
template <class T, int D, int TileQ, class Sums = SumsOfFragments>
__global__ void __launch_bounds__(256)
    attention_backward_finish(__grid_constant__ AttentionBackwardParams const p) {
  constexpr int elements = 16 / static_cast<int>(sizeof(T));  // of a chunk
  constexpr int tile_q = TileQ, pitch = D + elements, chunks = D / elements;
  __shared__ alignas(16) T staged[tile_q * pitch];
  abi::AttentionArgs const& g = p.args.forward;
  int const thread = static_cast<int>(threadIdx.x);
  auto const tiles = static_cast<unsigned>(
      p.tiles_q * (g.cu_seqlens_q.data != nullptr ? g.heads_q : g.batch * g.heads_q));
  allow_launch_behind();
  wait_for_launch_before();
  if (blockIdx.x >= tiles) {
    clear_gaps<T>(p.args.dq, p.args.dq_stride, g.cu_seqlens_q, g.batch, g.seqlen_q, g.heads_q,
                  g.head_dim, tiles);
    clear_gaps<T>(p.args.dk, p.args.dk_stride, g.cu_seqlens_kv, g.batch, g.seqlen_kv, g.heads_kv,
                  g.head_dim, tiles);
    clear_gaps<T>(p.args.dv, p.args.dv_stride, g.cu_seqlens_kv, g.batch, g.seqlen_kv, g.heads_kv,
                  g.head_dim_v, tiles);
    return;
  }
  QueryTile const q = locate_queries<tile_q>(p, static_cast<int>(blockIdx.x));
  if (q.batch < 0) return;
  KeyTileHead t{};  // all keys of the sequence
  t.batch = q.batch;
  t.head_kv = q.head / (p.group_of_heads * p.parts);
  t.rows_kv = sequence_span(g.cu_seqlens_kv, t.batch, static_cast<int>(g.seqlen_kv)).length;
  meet_head<tile_q, 1>(p, q.head, t);
  int const last = min(q.row0 + tile_q, t.len_q) - 1;
  bool const added = last >= q.row0 && max(0, q.row0 + t.offset - t.window_left) < t.seen_end(last);
  if (added) {
    Sums::template stage<T, D, TileQ>(
        staged, pitch,
        numbers_of<T>(p.dq_sums) + static_cast<std::int64_t>(blockIdx.x) * (tile_q * D),
        scale_of<NumberOf<T>>(p));
  }
  __syncthreads();
  std::int64_t const b = g.cu_seqlens_q.data != nullptr ? 0 : q.batch;
  T* const dq = static_cast<T*>(p.args.dq) + b * p.args.dq_stride[0] +
                q.head * p.args.dq_stride[1] +
                (std::int64_t{q.begin_q} + q.row0) * p.args.dq_stride[2];
  int const rows = min(tile_q, q.rows_q - q.row0), live = added ? t.len_q - q.row0 : 0;
  int const d = static_cast<int>(g.head_dim);
  if (p.vectors_dq) {
    for (int i = thread; i < rows * chunks; i += 256) {
      int const r = i / chunks, c = i % chunks * elements;
      if (c >= d) continue;
      *reinterpret_cast<uint4*>(dq + r * p.args.dq_stride[2] + c) =
          r < live ? *reinterpret_cast<uint4 const*>(staged + r * pitch + c)
                   : make_uint4(0, 0, 0, 0);
    }
  } else {
    for (int i = thread; i < rows * D; i += 256) {
      int const r = i / D, c = i % D;
      if (c < d)
        dq[r * p.args.dq_stride[2] + c * p.args.dq_stride[3]] =
            r < live ? staged[r * pitch + c] : static_cast<T>(0.0f);
    }
  }
}

/// d_sinks of a head: minus the sum of what its sink took from the weights of all queries times the
/// row sums. A block of 256 threads takes a head, in a fixed order.
template <int TileQ, class Number = float>
__global__ void __launch_bounds__(256)
    attention_backward_sinks(__grid_constant__ AttentionBackwardParams const p) {
  __shared__ Number parts[8];
  wait_for_launch_before();
  abi::AttentionArgs const& g = p.args.forward;
  int const head = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  bool const packed = g.cu_seqlens_q.data != nullptr;
  Number sink;
  if constexpr (std::is_same_v<Number, double>)
    sink = load_double(g.sinks, g.type_sinks, head * g.sinks_stride) * log2_e_64;
  else
    sink = load_float(g.sinks, g.type_sinks, head * g.sinks_stride) * log2_e;
  Number sum = 0;
  for (std::int64_t b = 0; b < (packed ? 1 : g.batch); ++b) {
    Number const* const rows = numbers_of<Number>(p.rows) + ((packed ? 0 : b * g.heads_q) + head) *
                                                                p.tiles_q * std::int64_t{2 * TileQ};
    for (int i = thread; i < p.tiles_q * TileQ; i += 256) {
      Number const* const at = rows + std::int64_t{i / TileQ} * (2 * TileQ) + i % TileQ;
      sum = fma(power_of_2(fma(at[0], static_cast<Number>(p.lse_unit), sink)), at[TileQ], sum);
    }
  }
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffff, sum, apart);
  if (thread % 32 == 0) parts[thread / 32] = sum;
  __syncthreads();
  if (thread != 0) return;
  for (int w = 1; w < 8; ++w) sum += parts[w];
  store_number(p.args.d_sinks, p.args.type_d_sinks, head * p.args.d_sinks_stride, sum);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
