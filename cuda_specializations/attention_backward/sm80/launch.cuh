// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// attention_backward/sm80_mma_*: what they accept, the memory they need and their launches. Each
/// element type has a translation unit of its own, which includes this.
#pragma once

#include <attikos/abi/attention_backward_cuda.hpp>
#include <cassert>
#include <type_traits>

#include "attention_backward/shared/finish.cuh"
#include "attention_backward/shared/plan.cuh"
#include "common/check.cuh"
#include "common/limits.cuh"
#include "kernel.cuh"
#include "sequences/launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

template <class T, bool Terms>
using BackwardTiles64 = Sm80BackwardConfig<T, 64, 4, 2, 1, 64, 32, 2, 1, 2, Terms>;
template <class T, bool Terms>
using BackwardTiles128 = Sm80BackwardConfig<T, 128, 8, 1, 1, 64, Terms ? 32 : 64, 2, 2, 1, Terms>;
template <class T, bool Terms>
using BackwardTiles256 = Sm80BackwardConfig<T, 256, 4, 1, 2, 64, 32, 1, 1, 1, Terms>;
/// For cards whose blocks cannot have that much shared memory.
template <class T, bool Terms>
using SmallBackwardTiles128 = Sm80BackwardConfig<T, 128, 8, 1, 1, 32, 32, 2, 1, 1, Terms>;
template <class T, bool Terms>
using SmallBackwardTiles256 = Sm80BackwardConfig<T, 256, 2, 1, 2, 32, 16, 2, 1, 1, Terms>;

/// The least that a block may have on a card from sm_80 on, of sm_86 and sm_89, and of sm_80.
constexpr int least_backward_bytes = sm80_shared_bytes, sm80_backward_bytes = 163 * 1024;
static_assert(BackwardTiles64<__half, true>::shared_bytes <= least_backward_bytes &&
              SmallBackwardTiles128<__half, true>::shared_bytes <= least_backward_bytes &&
              SmallBackwardTiles256<__half, true>::shared_bytes <= least_backward_bytes &&
              BackwardTiles128<__half, true>::shared_bytes <= sm80_backward_bytes &&
              BackwardTiles256<__half, true>::shared_bytes <= sm80_backward_bytes);

/// Calls `f` with the shape of kernel that a call takes.
template <class T, bool Terms, class F>
auto with_backward_tiles_of(abi::AttentionArgs const& g, abi::Device const& device, F const& f) {
  std::int64_t const d = std::max(g.head_dim, g.head_dim_v);
  auto const fits = [&](auto shape) {
    return decltype(shape)::shared_bytes <= device.shared_memory_per_block_optin;
  };
  if (d <= 64) return f(BackwardTiles64<T, Terms>());
  if (d <= 128)
    return fits(BackwardTiles128<T, Terms>()) ? f(BackwardTiles128<T, Terms>())
                                              : f(SmallBackwardTiles128<T, Terms>());
  return fits(BackwardTiles256<T, Terms>()) ? f(BackwardTiles256<T, Terms>())
                                            : f(SmallBackwardTiles256<T, Terms>());
}
template <class T, class F>
auto with_backward_tiles(abi::AttentionArgs const& g, abi::Device const& device, F const& f) {
  // The scale's sign does not matter here.
  bool const terms = g.softcap > 0 || g.bias != nullptr || g.mask != nullptr || g.alibi != nullptr;
  return terms ? with_backward_tiles_of<T, true>(g, device, f)
               : with_backward_tiles_of<T, false>(g, device, f);
}

template <class T>
BackwardSizes sm80_backward_sizes(abi::AttentionArgs const& g, abi::Device const& device) {
  return with_backward_tiles<T>(g, device, [&](auto shape) {
    using Config = decltype(shape);
    return backward_sizes(g, Config::tile_q, Config::tile_kv, Config::d);
  });
}

/// First reason not to take a call, wherever its tensors lie; null if there is none. The workspace
/// depends on nothing else, so that it can be asked for before there are any.
template <class T>
char const* refuse_backward_sm80_problem(abi::AttentionBackwardArgs const& a,
                                         abi::Device const& device) {
  constexpr DType type = std::is_same_v<T, __half> ? DType::float16 : DType::bfloat16;
  abi::AttentionArgs const& g = a.forward;
  if (g.type != type) return "it takes other element types";
  if (device.compute_major < 8)
    return device.compute_major == 0 ? "no CUDA device" : "it needs compute capability 8.0";
  if (char const* reason = refuse_any_backward(a, abi::sm80_backward_options)) return reason;
  if (std::max(g.head_dim, g.head_dim_v) > 256) return "head_dim is above 256";
  if (g.bias != nullptr && g.type_bias != DType::float32 && g.type_bias != DType::float16 &&
      g.type_bias != DType::bfloat16)
    return "it does not read the bias's element type";
  if (a.d_bias != nullptr) {
    std::int64_t const extent[4] = {g.batch, g.heads_q, g.seqlen_q, g.seqlen_kv};
    for (int r = 0; r < 4; ++r)
      if (a.d_bias_extent[r] != extent[r])
        return "the bias is broadcast, and its gradient a sum of many";
  }
  BackwardSizes const s = sm80_backward_sizes<T>(g, device);
  if (s.tiles_q * s.groups_q >= std::int64_t{1} << 30 || s.tiles_kv * s.groups_kv >= std::int64_t{1}
                                                                                         << 30)
    return "there are too many tiles for one launch";
  return nullptr;
}

/// First reason not to take a call; null if there is none.
template <class T>
char const* refuse_backward_sm80(abi::AttentionBackwardArgs const& a, abi::Device const& device) {
  if (char const* reason = refuse_backward_sm80_problem<T>(a, device)) return reason;
  abi::AttentionArgs const& g = a.forward;
  if (g.lse == nullptr) return "lse is a null pointer";
  for (void const* data :
       {g.q, g.k, g.v, static_cast<void const*>(g.out), a.dout, static_cast<void const*>(a.dq),
        static_cast<void const*>(a.dk), static_cast<void const*>(a.dv)})
    if (data == nullptr) return "a tensor is a null pointer";
  return nullptr;
}

template <class T, class Config>
cudaError_t launch_backward_sm80(abi::AttentionBackwardArgs const& a, abi::Device const& device,
                                 CUstream_st* stream) {
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
  cudaError_t status = launch_behind(attention_backward_prepare<T, Config::tile_q, Config::tile_kv>,
                                     tiles, 128, 0, device, stream, shared);
  if (status == cudaSuccess && a.d_bias != nullptr)
    status = launch_behind(
        attention_backward_clear_bias,
        std::min<std::int64_t>(g.batch * g.heads_q * g.seqlen_q, 8 * std::int64_t{device.sm_count}),
        256, 0, device, stream, shared);
  if (status == cudaSuccess)
    status = launch_behind(attention_backward_sm80<Config>, s.tiles_kv * s.groups_kv,
                           Config::threads, Config::shared_bytes, device, stream, p);
  if (status == cudaSuccess)
    status =
        launch_behind(attention_backward_finish<T, Config::d, Config::tile_q>,
                      tiles + (packed_q || packed_kv ? 32 : 0), 256, 0, device, stream, shared);
  if (status == cudaSuccess && a.d_sinks != nullptr)
    status = launch_behind(attention_backward_sinks<Config::tile_q>, g.heads_q, 256, 0, device,
                           stream, shared);
  return status;
}

template <class T>
abi::Verdict accepts_backward_sm80(abi::AttentionBackwardArgs const& a,
                                   abi::Device const& device) noexcept {
  char const* const reason = refuse_backward_sm80<T>(a, device);
  return reason == nullptr ? abi::accepted() : abi::refused(reason);
}

template <class T>
std::size_t backward_sm80_bytes(abi::AttentionBackwardArgs const& a,
                                abi::Device const& device) noexcept {
  if (refuse_backward_sm80_problem<T>(a, device) != nullptr) return 0;
  return static_cast<std::size_t>(sm80_backward_sizes<T>(a.forward, device).bytes);
}

template <class T>
int run_backward_sm80(abi::AttentionBackwardArgs const& a, abi::Device const& device,
                      CUstream_st* stream) noexcept {
  assert(refuse_backward_sm80<T>(a, device) == nullptr);
  if (a.workspace == nullptr) return cudaErrorInvalidValue;
  ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  return with_backward_tiles<T>(a.forward, device, [&](auto shape) {
    return launch_backward_sm80<T, decltype(shape)>(a, device, stream);
  });
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
