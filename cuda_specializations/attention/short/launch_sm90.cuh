// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// attention/sm90_short_*: what they accept, how they cut a call into blocks, and their launch.
/// Each element type has a translation unit of its own, which includes this.
#pragma once

#include <cassert>

#include "common/limits.cuh"
#include "kernel_sm90.cuh"
#include "plan.cuh"
#include "sequences/operand_maps.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// How a call is cut up; depends on extents alone.
struct Sm90ShortPlan {
  int warpgroups, teams, keys;

  explicit Sm90ShortPlan(abi::AttentionArgs const& g) {
    ShortLengths const lengths(g);
    int const d = short_head_dim(g);
    int const most =
        d == 128 ? sm90_short_shapes::D128::warpgroups : sm90_short_shapes::D64::warpgroups;
    std::int64_t const rows = std::max<std::int64_t>(lengths.queries, 1), tile = 64 * most;
    std::int64_t const tiles = (rows + tile - 1) / tile;
    warpgroups = static_cast<int>((rows + 64 * tiles - 1) / (64 * tiles));
    // Half as many again as packed sequences have on average.
    std::int64_t const wanted =
        g.cu_seqlens_kv.data != nullptr ? lengths.keys + lengths.keys / 2 : lengths.keys;
    keys = static_cast<int>(std::clamp<std::int64_t>((wanted + 63) / 64 * 64, 64, 64 * most));
    teams =
        std::max(1, std::min(most / warpgroups, (sm90_shared_bytes - 1024) / (2 * stage_bytes(d))));
  }
  int stage_bytes(int d) const { return (warpgroups + 2 * keys / 64) * 64 * 128 * ((d + 63) / 64); }
};

/// Why another kernel is faster; null if none is.
///
/// shapes.cuh has times by length. Others from <H200 700 W, CUDA 13.0, bfloat16>, microseconds by
/// this kernel and sm90_wgmma: head_dim 128, length 64, 71 and 107, 128, 73 and 78; 16384 tokens of
/// 16 heads, 256, 104 and 90. 16384 tokens of 32 heads, head_dim 64: length 512, 174 and 184,
/// causal 166 and 140; 1024, 330 and 334. Packed, 2048 sequences of 1 to 128, by this kernel,
/// sm80_short and sm90_wgmma: 330, 355 and 651.
inline char const* refuse_lengths(abi::AttentionArgs const& g, abi::Device const& device) {
  ShortLengths const lengths(g);
  if (lengths.queries <= 32 && lengths.keys <= 64)
    return "sequences of up to 32 are faster by attention/sm80_short_*";
  int const d = short_head_dim(g);
  std::int64_t const longest = std::max(lengths.queries, lengths.keys);
  if (d == 128) return longest > 128 ? "sequences are longer than 128" : nullptr;
  if (longest <= 256) return nullptr;
  bool const packed = g.cu_seqlens_q.data != nullptr || g.cu_seqlens_kv.data != nullptr;
  if (longest > 512 || d != 64 || packed || g.causal || g.window_left >= 0 || g.window_right >= 0)
    return "sequences are longer than 256";
  if (g.batch * g.heads_q * ((g.seqlen_q + 255) / 256) < device.sm_count)
    return "there are too few tiles of 256 queries";
  return nullptr;
}

/// First reason not to take a call; null if there is none.
template <class T>
char const* refuse_sm90_short(abi::AttentionArgs const& g, abi::Device const& device) {
  if (char const* reason = refuse_other_than_sm90(device)) return reason;
  if (char const* reason = refuse_short<T>(g)) return reason;
  if (is_empty(g)) return nullptr;
  if (char const* reason = refuse_lengths(g, device)) return reason;
  if (g.q == nullptr) return "q, k, v or out is a null pointer";
  StoredExtents const extents(g);
  if (char const* reason = refuse_queries(g, extents, refuse_operand<T>)) return reason;
  if (g.seqlen_kv == 0) return nullptr;
  if (g.k == nullptr || g.v == nullptr) return "q, k, v or out is a null pointer";
  return refuse_keys_and_values(g, extents, refuse_operand<T>);
}

template <class T>
abi::Verdict accepts_short(abi::AttentionArgs const& g, abi::Device const& device) noexcept {
  char const* const reason = refuse_sm90_short<T>(g, device);
  return reason == nullptr ? abi::accepted() : abi::refused(reason);
}

template <class T>
int run_short(abi::AttentionArgs const& g, abi::Device const& device,
              CUstream_st* stream) noexcept {
  assert(refuse_sm90_short<T>(g, device) == nullptr);
  if (is_empty(g)) return cudaSuccess;
  ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  Sm90ShortPlan const plan(g);
  int const d = short_head_dim(g);
  Sm90ShortParams p{};
  p.s = short_params(g, 4 * plan.warpgroups, plan.keys);
  p.stage_bytes = plan.stage_bytes(d);
  StoredExtents const extents(g);
  cudaError_t status = make_operand_map<T>(&p.q, g.q, extents.q, g.q_stride, 64, p.q_steps);
  if (status == cudaSuccess && g.seqlen_kv != 0) {
    status = make_operand_map<T>(&p.k, g.k, extents.k, g.k_stride, 64, p.k_steps);
    if (status == cudaSuccess)
      status = make_operand_map<T>(&p.v, g.v, extents.v, g.v_stride, 64, p.v_steps);
  }
  if (status != cudaSuccess) return status;
  // Where there are few tiles, each has a multiprocessor to itself.
  std::int64_t const multiprocessors = std::max(1, device.sm_count);
  p.teams = static_cast<int>(
      std::min<std::int64_t>(plan.teams, (p.s.units + multiprocessors - 1) / multiprocessors));
  p.warpgroups = plan.warpgroups;
  auto const blocks = static_cast<int>(
      std::min<std::int64_t>((std::int64_t{p.s.units} + p.teams - 1) / p.teams, multiprocessors));
  auto const launch = [&]<class Config>(Config) {
    return launch_clusters(sm90_short_kernel<Config>, blocks, 1, Config::threads,
                           2 * p.teams * p.stage_bytes + Config::signal_bytes, stream, p);
  };
  using namespace sm90_short_shapes;
  return d == 32   ? launch(Sm90ShortConfig<T, D32>{})
         : d == 64 ? launch(Sm90ShortConfig<T, D64>{})
                   : launch(Sm90ShortConfig<T, D128>{});
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
