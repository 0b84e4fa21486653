// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// attention/sm80_short_*: what they accept, how they cut a call into teams, and their launch. Each
/// element type has a translation unit of its own, which includes this.
#pragma once

#include <cassert>

#include "kernel_sm80.cuh"
#include "plan.cuh"
#include "sequences/launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// How a call is cut up; depends on extents alone.
struct Sm80ShortPlan {
  int warps, teams, keys;

  explicit Sm80ShortPlan(abi::AttentionArgs const& g) {
    ShortLengths const lengths(g);
    std::int64_t const rows = std::max<std::int64_t>(lengths.queries, 1);
    std::int64_t const tiles = (rows + 127) / 128;
    warps = static_cast<int>((rows + 16 * tiles - 1) / (16 * tiles));
    // Of packed sequences, half as many again as they have on average. Longer ones come in parts,
    // which have to be whole steps of the kernel.
    if (g.cu_seqlens_kv.data != nullptr)
      keys = static_cast<int>(
          std::clamp<std::int64_t>((lengths.keys * 3 / 2 + 63) / 64 * 64, 64, 128));
    else
      keys = static_cast<int>(std::clamp<std::int64_t>((lengths.keys + 15) / 16 * 16, 16, 128));
    int const most = 96 * 1024 / team_bytes(short_head_dim(g));
    teams = std::max(1, std::min(most, 4 / warps));
  }
  /// Shared memory of a team and of a block for a kernel's head dimension.
  int team_bytes(int d) const { return (16 * warps + 2 * keys) * 2 * d; }
  int shared_bytes(int d) const {
    return Sm80ShortConfig<__half, sm80_short_shapes::D64>::tile_bytes + 128 +
           teams * team_bytes(d);
  }
};

/// First reason not to take a call; null if there is none.
template <class T>
char const* refuse_sm80_short(abi::AttentionArgs const& g, abi::Device const& device) {
  if (char const* reason = refuse_before_sm80(device)) return reason;
  if (char const* reason = refuse_short<T>(g)) return reason;
  if (is_empty(g)) return nullptr;
  ShortLengths const lengths(g);
  if (lengths.queries > 128 || lengths.keys > 128) return "sequences are longer than 128";
  if (Sm80ShortPlan(g).shared_bytes(short_head_dim(g)) > device.shared_memory_per_block_optin)
    return "a block needs more shared memory than the device has";
  for (std::int64_t const stride : {g.q_stride[2], g.k_stride[2], g.v_stride[2]})
    if (stride >= 1 << 28 || stride <= -(1 << 28)) return "a stride is too large";
  StoredExtents const extents(g);
  if (char const* reason = refuse_queries(g, extents, refuse_rows<T>)) return reason;
  return g.seqlen_kv == 0 ? nullptr : refuse_keys_and_values(g, extents, refuse_rows<T>);
}

template <class T>
abi::Verdict accepts_short(abi::AttentionArgs const& g, abi::Device const& device) noexcept {
  char const* const reason = refuse_sm80_short<T>(g, device);
  return reason == nullptr ? abi::accepted() : abi::refused(reason);
}

template <class T>
int run_short(abi::AttentionArgs const& g, abi::Device const& device,
              CUstream_st* stream) noexcept {
  assert(refuse_sm80_short<T>(g, device) == nullptr);
  if (is_empty(g)) return cudaSuccess;
  ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  Sm80ShortPlan const plan(g);
  int const d = short_head_dim(g);
  Sm80ShortParams p{short_params(g, plan.warps, plan.keys)};
  p.teams = plan.teams;
  p.team_bytes = plan.team_bytes(d);
  p.q_pitch = static_cast<int>(2 * g.q_stride[2]);
  p.k_pitch = static_cast<int>(2 * g.k_stride[2]);
  p.v_pitch = static_cast<int>(2 * g.v_stride[2]);
  auto const launch = [&](auto config) {
    return launch_behind(sm80_short_kernel<decltype(config)>,
                         (std::int64_t{p.units} + plan.teams - 1) / plan.teams,
                         32 * plan.warps * plan.teams, plan.shared_bytes(d), device, stream, p);
  };
  using namespace sm80_short_shapes;
  return d == 32   ? launch(Sm80ShortConfig<T, D32>{})
         : d == 64 ? launch(Sm80ShortConfig<T, D64>{})
                   : launch(Sm80ShortConfig<T, D128>{});
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
