// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// attention_backward/sm80_short_*: what they accept, and their launch. Each element type has a
/// translation unit of its own, which includes this.
#pragma once

#include <attikos/abi/attention_backward_cuda.hpp>
#include <cassert>

#include "attention_backward/shared/parts.cuh"
#include "attention_backward/shared/plan.cuh"
#include "common/check.cuh"
#include "kernel.cuh"
#include "sequences/launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Calls `f` with the shape that has room for a call's sequences.
template <class T, class F>
auto with_short_shape(abi::AttentionArgs const& g, F const& f) {
  std::int64_t const longest = std::max(g.seqlen_q, g.seqlen_kv);
  using namespace short_backward_shapes;
  if (std::max(g.head_dim, g.head_dim_v) > 64)
    return longest <= 64 ? f(ShortBackwardConfig<T, S64D128>())
                         : f(ShortBackwardConfig<T, S128D128>());
  return longest <= 64    ? f(ShortBackwardConfig<T, S64D64>())
         : longest <= 128 ? f(ShortBackwardConfig<T, S128D64>())
                          : f(ShortBackwardConfig<T, S256D64>());
}

/// In how many parts the query heads of a key head are divided: as a block takes one after the
/// other, a few key heads would leave a device idle. For 132 multiprocessors, whatever the device
/// has, so that bits follow from the call alone. To bring a block's sums to memory and back takes
/// half as long as a head does, and so does the second launch.
template <class Config>
std::int64_t parts_of_short(abi::AttentionArgs const& g) {
  std::int64_t const resident = 132 * Config::blocks, heads = g.heads_q / g.heads_kv;
  auto const halves = [&](std::int64_t parts) {  // of the time that a head takes
    std::int64_t const rounds = (g.batch * g.heads_kv * parts + resident - 1) / resident;
    return 2 * rounds * (heads / parts) + (parts > 1 ? rounds + 1 : 0);
  };
  std::int64_t best = 1;
  for (std::int64_t parts = 2; parts <= heads; ++parts)
    if (heads % parts == 0 && halves(parts) < halves(best)) best = parts;
  return best;
}

/// Of these, the kernel has only sums of parts in the workspace.
template <class Config>
BackwardSizes short_backward_sizes(abi::AttentionArgs const& g) {
  BackwardSizes s =
      backward_sizes(g, Config::tile_q, Config::tile_kv, Config::d, parts_of_short<Config>(g));
  std::int64_t const of_keys = s.dv_sums - s.dk_sums;
  s.dk_sums = 0, s.dv_sums = of_keys;
  s.bytes = s.parts > 1 ? 2 * of_keys + 256 : 0;
  return s;
}

/// First reason not to take a call, wherever its tensors lie; null if there is none. What is beyond
/// these lengths the kernels for long sequences do sooner: of head_dim 64, 197 positions, on one
/// H200, in 0.7 … 0.9 of the time; of head_dim 128, 128 positions of 1024 heads, in 0.9 of it, and
/// of 64 heads in 1.05 … 1.15.
template <class T>
char const* refuse_backward_short_problem(abi::AttentionBackwardArgs const& a,
                                          abi::Device const& device) {
  abi::AttentionArgs const& g = a.forward;
  if (g.type != (std::is_same_v<T, __half> ? DType::float16 : DType::bfloat16))
    return "it takes other element types";
  if (char const* reason = refuse_before_sm80(device)) return reason;
  if (char const* reason = refuse_any_backward(a, abi::short_backward_options)) return reason;
  std::int64_t const d = std::max(g.head_dim, g.head_dim_v);
  std::int64_t const longest = std::max(g.seqlen_q, g.seqlen_kv);
  if (d > 128) return "head_dim is above 128";
  if (longest > (d > 64 ? 128 : 192))
    return d > 64 ? "sequences are longer than 128" : "sequences are longer than 192";
  if (d > 64 && longest > 64 && g.batch * g.heads_q > 132)
    return "with a head_dim above 64, more than 132 heads have sequences longer than 64";
  if (with_short_shape<T>(g, [](auto config) { return config.shared_bytes; }) >
      device.shared_memory_per_block_optin)
    return "a block needs more shared memory than the device has";
  if (g.batch * g.heads_q >= std::int64_t{1} << 30)
    return "there are too many sequences for one launch";
  return nullptr;
}

/// First reason not to take a call; null if there is none.
template <class T>
char const* refuse_backward_short(abi::AttentionBackwardArgs const& a, abi::Device const& device) {
  if (char const* reason = refuse_backward_short_problem<T>(a, device)) return reason;
  return refuse_missing_tensors(a);
}

template <class T>
abi::Verdict accepts_backward_short(abi::AttentionBackwardArgs const& a,
                                    abi::Device const& device) noexcept {
  char const* const reason = refuse_backward_short<T>(a, device);
  return reason == nullptr ? abi::accepted() : abi::refused(reason);
}

/// Refusals that depend on where tensors lie are left out: the workspace is asked for before there
/// are any.
template <class T>
std::size_t backward_short_bytes(abi::AttentionBackwardArgs const& a,
                                 abi::Device const& device) noexcept {
  if (refuse_backward_short_problem<T>(a, device) != nullptr) return 0;
  return with_short_shape<T>(a.forward, [&]<class Config>(Config) {
    return static_cast<std::size_t>(short_backward_sizes<Config>(a.forward).bytes);
  });
}

template <class T>
int run_backward_short(abi::AttentionBackwardArgs const& a, abi::Device const& device,
                       CUstream_st* stream) noexcept {
  assert(refuse_backward_short<T>(a, device) == nullptr);
  ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  abi::AttentionArgs const& g = a.forward;
  return with_short_shape<T>(g, [&]<class Config>(Config) -> int {
    BackwardSizes const s = short_backward_sizes<Config>(g);
    if (s.bytes > 0 && a.workspace == nullptr) return cudaErrorInvalidValue;
    Sm80BackwardParams p{};
    plan_backward(a, s, device.sm_count, p);
    StoredExtents const extents(g);
    std::int64_t const dout[4] = {g.batch, g.heads_q, g.seqlen_q, g.head_dim_v};
    p.wide_q = rows_in_groups<T>(g.q, extents.q, g.q_stride);
    p.wide_dout = rows_in_groups<T>(a.dout, dout, a.dout_stride);
    p.wide_k = rows_in_groups<T>(g.k, extents.k, g.k_stride);
    p.wide_v = rows_in_groups<T>(g.v, extents.v, g.v_stride);
    cudaError_t const status = launch_behind(attention_backward_short<ShortBackwardBlock<Config>>,
                                             g.batch * g.heads_kv * s.parts, Config::threads,
                                             Config::shared_bytes, device, stream, p);
    if (status != cudaSuccess || s.parts == 1) return status;
    AttentionBackwardParams const& shared = p;
    return launch_behind(attention_backward_parts<T, Config::d>, 4 * std::int64_t{device.sm_count},
                         256, 0, device, stream, shared);
  });
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
