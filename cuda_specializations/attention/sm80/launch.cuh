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
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

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

/// Launches a shape, or that for calls which are plain if the device has that much shared memory.
template <class T, class Shape, class PlainShape = Shape>
cudaError_t launch_sm80_attention(abi::AttentionArgs const& g, abi::Device const& device,
                                  CUstream_st* stream) {
  using Config = Sm80AttentionConfig<T, Shape>;
  using Plain = Sm80AttentionConfig<T, PlainShape>;
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
  using namespace sm80_attention_shapes;
  static_assert(Sm80AttentionConfig<T, D64>::shared_bytes <= sm80_shared_bytes &&
                Sm80AttentionConfig<T, D128>::shared_bytes <= sm80_shared_bytes);
  return launch_by_features<T>(g, 256, [&](abi::AttentionArgs const& part) {
    std::int64_t const d = std::max(part.head_dim, part.head_dim_v);
    if (d <= 64) return launch_sm80_attention<T, D64, Plain<D64>>(part, device, stream);
    if (d <= 128) return launch_sm80_attention<T, D128, Plain<D128>>(part, device, stream);
    if (Sm80AttentionConfig<T, D256>::shared_bytes <= device.shared_memory_per_block_optin)
      return launch_sm80_attention<T, D256, Plain<D256Wide>>(part, device, stream);
    static_assert(Sm80AttentionConfig<T, D256Small>::shared_bytes <= sm80_shared_bytes);
    return launch_sm80_attention<T, D256Small>(part, device, stream);
  });
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
