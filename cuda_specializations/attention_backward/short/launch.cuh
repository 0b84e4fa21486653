// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// attention_backward/sm80_short_*: what they accept, and their launch. Each element type has a
/// translation unit of its own, which includes this.
#pragma once

#include <attikos/abi/attention_backward_cuda.hpp>
#include <cassert>

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
  return longest <= 64 ? f(ShortBackwardConfig<T, S64>()) : f(ShortBackwardConfig<T, S128>());
}

/// First reason not to take a call; null if there is none.
template <class T>
char const* refuse_backward_short(abi::AttentionBackwardArgs const& a, abi::Device const& device) {
  abi::AttentionArgs const& g = a.forward;
  if (g.type != (std::is_same_v<T, __half> ? DType::float16 : DType::bfloat16))
    return "it takes other element types";
  if (device.compute_major < 8)
    return device.compute_major == 0 ? "no CUDA device" : "it needs compute capability 8.0";
  if (char const* reason = refuse_any_backward(a, abi::short_backward_options)) return reason;
  if (g.head_dim > 64 || g.head_dim_v > 64) return "head_dim is above 64";
  if (g.seqlen_q > 128 || g.seqlen_kv > 128) return "sequences are longer than 128";
  if (with_short_shape<T>(g, [](auto config) { return config.shared_bytes; }) >
      device.shared_memory_per_block_optin)
    return "a block needs more shared memory than the device has";
  if (g.batch * g.heads_kv >= std::int64_t{1} << 30)
    return "there are too many sequences for one launch";
  if (g.lse == nullptr) return "lse is a null pointer";
  for (void const* data :
       {g.q, g.k, g.v, static_cast<void const*>(g.out), a.dout, static_cast<void const*>(a.dq),
        static_cast<void const*>(a.dk), static_cast<void const*>(a.dv)})
    if (data == nullptr) return "a tensor is a null pointer";
  return nullptr;
}

template <class T>
abi::Verdict accepts_backward_short(abi::AttentionBackwardArgs const& a,
                                    abi::Device const& device) noexcept {
  char const* const reason = refuse_backward_short<T>(a, device);
  return reason == nullptr ? abi::accepted() : abi::refused(reason);
}

template <class T>
int run_backward_short(abi::AttentionBackwardArgs const& a, abi::Device const& device,
                       CUstream_st* stream) noexcept {
  assert(refuse_backward_short<T>(a, device) == nullptr);
  ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  abi::AttentionArgs const& g = a.forward;
  return with_short_shape<T>(g, [&]<class Config>(Config) -> int {
    Sm80BackwardParams p{};
    plan_backward(a, backward_sizes(g, Config::tile_q, Config::tile_kv, Config::d), device.sm_count,
                  p);
    StoredExtents const extents(g);
    std::int64_t const dout[4] = {g.batch, g.heads_q, g.seqlen_q, g.head_dim_v};
    p.wide_q = rows_in_groups<T>(g.q, extents.q, g.q_stride);
    p.wide_dout = rows_in_groups<T>(a.dout, dout, a.dout_stride);
    p.wide_k = rows_in_groups<T>(g.k, extents.k, g.k_stride);
    p.wide_v = rows_in_groups<T>(g.v, extents.v, g.v_stride);
    return launch_behind(attention_backward_short<ShortBackwardBlock<Config>>, g.batch * g.heads_kv,
                         Config::threads, Config::shared_bytes, device, stream, p);
  });
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
