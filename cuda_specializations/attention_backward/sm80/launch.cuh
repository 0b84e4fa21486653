// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// attention_backward/sm80_*: what they accept, the memory they need and their launches. Each
/// family has a translation unit of its own, which includes this.
#pragma once

#include <attikos/abi/attention_backward_cuda.hpp>
#include <cassert>
#include <type_traits>

#include "attention_backward/shared/finish.cuh"
#include "attention_backward/shared/plan.cuh"
#include "common/check.cuh"
#include "pairs.cuh"
#include "sequences/launch.cuh"
#include "walk.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Kernels are told apart by a `Family`: its elements, the head dimensions that it takes, and which
/// shape of kernel a call takes, which with_shape() calls `f` with, of those `WithTerms` or
/// without.
template <class Family, class F>
auto with_backward_shape(abi::AttentionArgs const& g, abi::Device const& device, F const& f) {
  // The scale's sign does not matter here.
  bool const terms = g.softcap > 0 || g.bias != nullptr || g.mask != nullptr || g.alibi != nullptr;
  return terms ? Family::template with_shape<true>(g, device, f)
               : Family::template with_shape<false>(g, device, f);
}

/// Whether a block may have what a shape needs.
template <class Config>
bool fits_in_block(abi::Device const& device) {
  return Config::shared_bytes <= device.shared_memory_per_block_optin;
}

/// f of a kernel if a block may have what it needs, else of one that needs less.
template <class Block, class SmallBlock, class F>
auto with_fitting(abi::Device const& device, F const& f) {
  return fits_in_block<typename Block::Shape>(device) ? f(std::type_identity<Block>())
                                                      : f(std::type_identity<SmallBlock>());
}

template <class Family>
BackwardSizes sm80_backward_sizes(abi::AttentionArgs const& g, abi::Device const& device) {
  return with_backward_shape<Family>(g, device, [&]<class Block>(std::type_identity<Block>) {
    using Config = typename Block::Shape;
    return backward_sizes(g, Config::tile_q, Config::tile_kv, Config::d);
  });
}

/// First reason not to take a call, wherever its tensors lie; null if there is none. The workspace
/// depends on nothing else, so that it can be asked for before there are any.
template <class Family>
char const* refuse_backward_sm80_problem(abi::AttentionBackwardArgs const& a,
                                         abi::Device const& device) {
  abi::AttentionArgs const& g = a.forward;
  if (g.type != Family::type) return "it takes other element types";
  if (char const* reason = refuse_before_sm80(device)) return reason;
  if (char const* reason = refuse_any_backward(a, abi::sm80_backward_options)) return reason;
  if (std::max(g.head_dim, g.head_dim_v) > Family::most_features)
    return Family::most_features == 128 ? "head_dim is above 128" : "head_dim is above 256";
  if (char const* reason = refuse_bias_type(g, g.type == DType::float64)) return reason;
  if (a.d_bias != nullptr) {
    std::int64_t const extent[4] = {g.batch, g.heads_q, g.seqlen_q, g.seqlen_kv};
    for (int r = 0; r < 4; ++r)
      if (a.d_bias_extent[r] != extent[r])
        return "the bias is broadcast, and its gradient a sum of many";
  }
  if (!with_backward_shape<Family>(g, device, [&]<class Block>(std::type_identity<Block>) {
        return fits_in_block<typename Block::Shape>(device);
      }))
    return "a block needs more shared memory than the device has";
  return refuse_backward_tiles(sm80_backward_sizes<Family>(g, device));
}

/// First reason not to take a call; null if there is none.
template <class Family>
char const* refuse_backward_sm80(abi::AttentionBackwardArgs const& a, abi::Device const& device) {
  if (char const* reason = refuse_backward_sm80_problem<Family>(a, device)) return reason;
  return refuse_missing_tensors(a);
}

template <class Block>
cudaError_t launch_backward_sm80(abi::AttentionBackwardArgs const& a, abi::Device const& device,
                                 CUstream_st* stream) {
  using Config = typename Block::Shape;
  using T = typename Config::Element;
  abi::AttentionArgs const& g = a.forward;
  BackwardSizes const s = backward_sizes(g, Config::tile_q, Config::tile_kv, Config::d);
  Sm80BackwardParams p{};
  plan_backward(a, s, 2 * std::int64_t{device.sm_count}, p);
  p.from_last = true;  // the way its blocks go through queries
  p.lse_unit = 1;
  bool const packed_q = g.cu_seqlens_q.data != nullptr, packed_kv = g.cu_seqlens_kv.data != nullptr;
  StoredExtents const extents(g);
  std::int64_t const dout[4] = {extents.q[0], g.heads_q, g.seqlen_q, g.head_dim_v};
  p.wide_q = rows_in_groups<T>(g.q, extents.q, g.q_stride);
  p.wide_dout = rows_in_groups<T>(a.dout, dout, a.dout_stride);
  p.wide_k = rows_in_groups<T>(g.k, extents.k, g.k_stride);
  p.wide_v = rows_in_groups<T>(g.v, extents.v, g.v_stride);
  std::int64_t const tiles = s.tiles_q * s.groups_q;
  AttentionBackwardParams const& shared = p;
  cudaError_t status =
      launch_behind(attention_backward_prepare<T, Config::tile_q, Config::tile_kv>,
                    blocks_that_prepare<Config::tile_q>(tiles), 128, 0, device, stream, shared);
  if (status == cudaSuccess && a.d_bias != nullptr)
    status = launch_behind(
        attention_backward_clear_bias,
        std::min<std::int64_t>(g.batch * g.heads_q * g.seqlen_q, 8 * std::int64_t{device.sm_count}),
        256, 0, device, stream, shared);
  if (status == cudaSuccess)
    status = launch_behind(attention_backward_sm80<Block>, s.tiles_kv * s.groups_kv,
                           Config::threads, Config::shared_bytes, device, stream, p);
  if (status == cudaSuccess)
    status = launch_behind(
        attention_backward_finish<T, Config::d, Config::tile_q, typename Block::SumsOfDq>,
        tiles + (packed_q || packed_kv ? 32 : 0), 256, 0, device, stream, shared);
  if (status == cudaSuccess && a.d_sinks != nullptr)
    status = launch_behind(attention_backward_sinks<Config::tile_q, NumberOf<T>>, g.heads_q, 256, 0,
                           device, stream, shared);
  return status;
}

template <class Family>
abi::Verdict accepts_backward_sm80(abi::AttentionBackwardArgs const& a,
                                   abi::Device const& device) noexcept {
  char const* const reason = refuse_backward_sm80<Family>(a, device);
  return reason == nullptr ? abi::accepted() : abi::refused(reason);
}

template <class Family>
std::size_t backward_sm80_bytes(abi::AttentionBackwardArgs const& a,
                                abi::Device const& device) noexcept {
  if (refuse_backward_sm80_problem<Family>(a, device) != nullptr) return 0;
  return static_cast<std::size_t>(sm80_backward_sizes<Family>(a.forward, device).bytes);
}

template <class Family>
int run_backward_sm80(abi::AttentionBackwardArgs const& a, abi::Device const& device,
                      CUstream_st* stream) noexcept {
  assert(refuse_backward_sm80<Family>(a, device) == nullptr);
  if (a.workspace == nullptr) return cudaErrorInvalidValue;
  ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  return with_backward_shape<Family>(a.forward, device,
                                     [&]<class Block>(std::type_identity<Block>) -> int {
                                       return launch_backward_sm80<Block>(a, device, stream);
                                     });
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
