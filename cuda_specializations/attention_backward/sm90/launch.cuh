// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// attention_backward/sm90_wgmma_*: what they accept, the memory they need and their launches.
#pragma once

#include <algorithm>
#include <attikos/abi/attention_backward_cuda.hpp>
#include <cassert>
#include <cmath>

#include "attention_backward/shared/finish.cuh"
#include "attention_backward/shared/parts.cuh"
#include "attention_backward/shared/plan.cuh"
#include "kernel.cuh"
#include "sequences/operand_maps.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

template <class T, class Shape>
using Sm90BackwardConfigOf = std::conditional_t<(Shape::d > 128), Sm90WideBackwardConfig<T, Shape>,
                                                Sm90BackwardConfig<T, Shape>>;

/// In how many parts the query heads of a key head are divided, each with tiles of keys of its own:
/// where few key heads have fewer tiles than there are blocks, or some more under a causal mask,
/// where they differ in length. Times are in units of what a tile of keys takes for 64 queries of a
/// head, 2.3 to 2.6 µs on one H200; constants fit eight problems there within 7 %, causal, of 128
/// to 512 tiles, each with up to eight parts. `of_sums`: to bring the sums of a tile to memory and
/// back. For 132 multiprocessors, whatever the device has, so that bits follow from the call alone.
/// Not for packed sequences, whose lengths the device alone knows.
inline std::int64_t parts_of_heads(abi::AttentionArgs const& g, std::int64_t tile_kv) {
  constexpr int blocks = 132;
  if (g.cu_seqlens_q.data != nullptr || g.cu_seqlens_kv.data != nullptr || g.heads_kv == 0)
    return 1;
  std::int64_t const heads = g.heads_q / g.heads_kv;
  std::int64_t const tiles = (g.seqlen_kv + tile_kv - 1) / tile_kv * g.batch * g.heads_kv;
  bool const skips = g.causal || g.window_left >= 0 || g.window_right >= 0;
  constexpr double of_sums = 9;
  std::int64_t best = 1;
  double least = 0;
  for (std::int64_t parts = 1; parts <= heads; ++parts) {
    if (heads % parts != 0) continue;
    double const longest = static_cast<double>((g.seqlen_q + 63) / 64 * (heads / parts));
    double const rounds = static_cast<double>(tiles * parts) / static_cast<double>(blocks);
    // Tiles that skip queries take half as long as the longest on average, which come first. Blocks
    // wait for each other at the end as long as one takes.
    double const time =
        (skips ? std::max(longest, longest / 2 * (rounds + 1)) : longest * std::ceil(rounds)) +
        (parts > 1 ? of_sums * rounds : 0);
    if (parts == 1 || time < 0.97 * least) best = parts, least = time;
  }
  return best;
}

inline BackwardSizes sm90_backward_sizes(abi::AttentionArgs const& g) {
  return with_sm90_backward_shape(g, [&](auto shape) {
    using Config = Sm90BackwardConfigOf<__half, decltype(shape)>;
    return backward_sizes(g, Config::tile_q, Config::tile_kv, Config::dq_d,
                          parts_of_heads(g, Config::tile_kv));
  });
}

/// First reason not to take a call, wherever its tensors lie; null if there is none. The workspace
/// depends on nothing else, so that it can be asked for before there are any.
template <class T>
char const* refuse_backward_sm90_problem(abi::AttentionBackwardArgs const& a,
                                         abi::Device const& device) {
  abi::AttentionArgs const& g = a.forward;
  if (g.type != TensorMapElement<T>::dtype) return "it takes other element types";
  if (char const* reason = refuse_other_than_sm90(device)) return reason;
  if (char const* reason = refuse_any_backward(a, abi::sm90_backward_options)) return reason;
  if (!(g.softmax_scale > 0)) return "its scale is positive";
  if (std::max(g.head_dim, g.head_dim_v) > 256) return "head_dim is above 256";
  return refuse_backward_tiles(sm90_backward_sizes(g));
}

/// First reason not to take a call; null if there is none.
template <class T>
char const* refuse_backward_sm90(abi::AttentionBackwardArgs const& a, abi::Device const& device) {
  if (char const* reason = refuse_backward_sm90_problem<T>(a, device)) return reason;
  abi::AttentionArgs const& g = a.forward;
  if (g.lse == nullptr) return "lse is a null pointer";
  StoredExtents const extents(g);
  std::int64_t const dout[4] = {extents.q[0], g.heads_q, g.seqlen_q, g.head_dim_v};
  if (char const* reason = refuse_queries(g, extents, refuse_operand<T>)) return reason;
  if (char const* reason = refuse_operand<T>(a.dout, dout, a.dout_stride,
                                             "dout's address is not a multiple of 16 bytes",
                                             "a stride of dout is not a multiple of 16 bytes",
                                             "dout has no unit stride along head_dim"))
    return reason;
  return refuse_keys_and_values(g, extents, refuse_operand<T>);
}

/// Sm90BackwardParams::near_end of a call that is planned otherwise.
///
/// The tiles of keys that blocks work on at a time go through the same queries side by side: of
/// queries, dout and sums of dq the first of them brings to L2 what the others find there. Nothing
/// keeps the blocks together, though. One that is held up stays behind, and so do all that take
/// turns after it, while one that is done goes on with a tile of keys of the next round. In time
/// blocks are all over the queries. If L2 does not hold these, a block finds nothing there any
/// more: for 10.5 Mflop, 64 queries and 128 keys of 128 features, 98 KB from and to memory, which
/// at 590 TFLOP/s are 5.5 TB/s. (Under a causal mask tiles of keys become shorter, down to nothing
/// at the end of a set of heads, where blocks meet again.)
///
/// So a round, as many tiles of keys as there are blocks, begins when all of the round before are
/// near their end. How far apart blocks may be then takes half of L2, since those that wait for
/// less lose more time than they save; the rest is for how far they come apart in a round. Rounds
/// do not wait where a head has no more queries than that, further than which blocks cannot come
/// apart, nor where the device alone knows how many queries a sequence has: a round that goes from
/// short sequences to long ones would wait for a long one that has only begun. Under a causal mask
/// the tiles of keys of a round differ, too, by 128 queries from one of a head to the next, but
/// less than they may be apart: of 132 blocks, the first and the last of a head by 264 tiles of 64
/// queries over the heads at a time, beside 480 over these in half of the L2 of 60 MB.
template <class Config>
int near_end_of(Sm90BackwardParams const& p, abi::Device const& device) {
  constexpr std::int64_t bytes = 128 * (Config::panels + Config::v_panels) + 4 * Config::dq_d;
  abi::AttentionArgs const& g = p.args.forward;
  if (device.l2_bytes == 0 || g.cu_seqlens_q.data != nullptr || g.lengths_q != nullptr) return 0;
  std::int64_t rows = g.seqlen_q;  // that see some of the keys of a tile
  if (p.window_left >= 0 && p.reach >= 0)
    rows = std::min<std::int64_t>(rows, std::int64_t{p.window_left} + p.reach + Config::tile_kv);
  std::int64_t const tiles =
      std::max<std::int64_t>(1, device.l2_bytes / 2 / (p.interleaved * bytes * Config::tile_q));
  return rows > tiles * Config::tile_q ? static_cast<int>(tiles) : 0;
}

template <class Config>
cudaError_t launch_backward_sm90(abi::AttentionBackwardArgs const& a, abi::Device const& device,
                                 CUstream_st* stream) {
  using T = typename Config::Element;
  abi::AttentionArgs const& g = a.forward;
  BackwardSizes const s = sm90_backward_sizes(g);
  Sm90BackwardParams p{};
  plan_backward(a, s, device.sm_count, p);
  p.lse_unit = p.scale_log2;  // scores begin there, and are scaled with the rest
  StoredExtents const extents(g);
  std::int64_t const dout[4] = {extents.q[0], g.heads_q, g.seqlen_q, g.head_dim_v};
  cudaError_t status =
      make_operand_map<T>(&p.q, g.q, extents.q, g.q_stride, Config::tile_q, p.q_steps);
  if (status == cudaSuccess)
    status =
        make_operand_map<T>(&p.dout, a.dout, dout, a.dout_stride, Config::tile_q, p.dout_steps);
  if (status == cudaSuccess)
    status = make_operand_map<T>(&p.k, g.k, extents.k, g.k_stride, Config::tile_kv, p.k_steps);
  if (status == cudaSuccess)
    status = make_operand_map<T>(&p.v, g.v, extents.v, g.v_stride, Config::tile_kv, p.v_steps);
  if (status != cudaSuccess) return status;
  p.works = static_cast<int>(s.tiles_kv * s.groups_kv);
  p.near_end = near_end_of<Config>(p, device);
  int const tiles = static_cast<int>(s.tiles_q * s.groups_q);
  AttentionBackwardParams const& shared = p;
  status = launch_clusters(attention_backward_prepare<T, Config::tile_q, Config::tile_kv>,
                           static_cast<int>(blocks_that_prepare<Config::tile_q>(tiles)), 1, 128, 0,
                           stream, shared);
  if (status != cudaSuccess) return status;
  status = launch_clusters(attention_backward_sm90<Config>, std::min(p.works, device.sm_count), 1,
                           Config::threads, sm90_backward_shared_bytes<Config>(), stream, p);
  if (status != cudaSuccess) return status;
  bool const packed = g.cu_seqlens_q.data != nullptr || g.cu_seqlens_kv.data != nullptr;
  int const clearing = packed ? 32 : 0;
  status = launch_clusters(attention_backward_finish<T, Config::dq_d, Config::tile_q>,
                           tiles + clearing, 1, 256, 0, stream, shared);
  if (status == cudaSuccess && s.parts > 1)
    status = launch_clusters(attention_backward_parts<T, Config::dq_d>, 4 * device.sm_count, 1, 256,
                             0, stream, shared);
  if (status != cudaSuccess || a.d_sinks == nullptr) return status;
  return launch_clusters(attention_backward_sinks<Config::tile_q>, static_cast<int>(g.heads_q), 1,
                         256, 0, stream, shared);
}

template <class T>
std::size_t backward_sm90_bytes(abi::AttentionBackwardArgs const& a,
                                abi::Device const& device) noexcept {
  if (refuse_backward_sm90_problem<T>(a, device) != nullptr) return 0;
  return static_cast<std::size_t>(sm90_backward_sizes(a.forward).bytes);
}

template <class T>
int run_backward_sm90(abi::AttentionBackwardArgs const& a, abi::Device const& device,
                      CUstream_st* stream) noexcept {
  assert(refuse_backward_sm90<T>(a, device) == nullptr);
  if (a.workspace == nullptr) return cudaErrorInvalidValue;
  ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  return with_sm90_backward_shape(a.forward, [&](auto shape) {
    return launch_backward_sm90<Sm90BackwardConfigOf<T, decltype(shape)>>(a, device, stream);
  });
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
