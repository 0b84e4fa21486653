// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// attention/sm80_mma_f16 and _bf16: what they accept, and which shape of kernel they take. Each
/// element type has a translation unit of its own, which includes this.
#pragma once

#include <cassert>
#include <type_traits>

#include "attention/shared/mma_launch.cuh"
#include "common/limits.cuh"
#include "kernel.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// From <H200 700 W, CUDA 13.0, bfloat16, 16384 tokens, heads × head_dim 2048, length 4096>,
/// TFLOP/s of plain shapes: blocks of 64 keys 321, of 96 315, of 128 285, of 32 279.
template <class T, bool Plain = false>
using Tiles64 = Sm80AttentionConfig<T, 64, 2, 4, 64, 3, 2, true, Plain>;
/// Likewise: blocks of 64 keys 388, of 32 336; tiles of 64 queries before 8 % less.
template <class T, bool Plain = false>
using Tiles128 = Sm80AttentionConfig<T, 128, 2, 4, 64, 3, 2, false, Plain>;
/// Likewise: blocks of 128 keys 307, of 96 304, of 64 286, of 32 244; causal, of 128 269, of 96
/// 262. sm_80 has room for 64.
template <class T>
using Tiles256 = Sm80AttentionConfig<T, 256, 1, 8, 64, 3, 1, false>;
template <class T>
using PlainTiles256 = Sm80AttentionConfig<T, 256, 1, 8, 128, 2, 1, false, true>;
/// For cards whose blocks cannot have that much shared memory.
template <class T>
using SmallTiles256 = Sm80AttentionConfig<T, 256, 1, 4, 32, 3, 1, false>;

static_assert(Tiles64<__half>::shared_bytes <= sm80_shared_bytes &&
              Tiles128<__half>::shared_bytes <= sm80_shared_bytes &&
              SmallTiles256<__half>::shared_bytes <= sm80_shared_bytes);

/// First reason not to take a call; null if there is none.
template <class T>
char const* refuse_sm80_attention(abi::AttentionArgs const& g, abi::Device const& device) {
  constexpr DType type = std::is_same_v<T, __half> ? DType::float16 : DType::bfloat16;
  if (g.type != type || g.type_out != type) return "it takes other element types";
  if (char const* reason = refuse_any_attention(g, device, abi::tile_attention_options))
    return reason;
  return refuse_head_dims(g);
}

template <class T>
abi::Verdict accepts_sm80_attention(abi::AttentionArgs const& g,
                                    abi::Device const& device) noexcept {
  char const* const reason = refuse_sm80_attention<T>(g, device);
  return reason == nullptr ? abi::accepted() : abi::refused(reason);
}

/// `Plain`: what takes calls that are plain, if the device has that much shared memory.
template <class Config, class Plain = Config>
cudaError_t launch_sm80_attention(abi::AttentionArgs const& g, abi::Device const& device,
                                  CUstream_st* stream) {
  if (is_plain<Plain>(g) && Plain::shared_bytes <= device.shared_memory_per_block_optin)
    return launch_tiles<Plain>(sm80_attention_kernel<Plain>, g, device, stream);
  return launch_tiles<Config>(sm80_attention_kernel<Config>, g, device, stream);
}

template <class T>
int run_sm80_attention(abi::AttentionArgs const& g, abi::Device const& device,
                       CUstream_st* stream) noexcept {
  assert(refuse_sm80_attention<T>(g, device) == nullptr);
  if (is_empty(g)) return cudaSuccess;
  ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  return launch_by_features<T>(g, 256, [&](abi::AttentionArgs const& part) {
    std::int64_t const d = std::max(part.head_dim, part.head_dim_v);
    if (d <= 64) return launch_sm80_attention<Tiles64<T>, Tiles64<T, true>>(part, device, stream);
    if (d <= 128)
      return launch_sm80_attention<Tiles128<T>, Tiles128<T, true>>(part, device, stream);
    if (Tiles256<T>::shared_bytes <= device.shared_memory_per_block_optin)
      return launch_sm80_attention<Tiles256<T>, PlainTiles256<T>>(part, device, stream);
    return launch_sm80_attention<SmallTiles256<T>>(part, device, stream);
  });
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
