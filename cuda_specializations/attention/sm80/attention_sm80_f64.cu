// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// attention/sm80_mma_f64: what it accepts, and which shape of kernel it takes.
#include <cassert>

#include "attention/shared/mma_launch.cuh"
#include "kernel_f64.cuh"
#include "params.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

using Narrow = Sm80AttentionConfig<double, sm80_attention_shapes::D64Double>;
using Wide = Sm80AttentionConfig<double, sm80_attention_shapes::D128Double>;
/// Where a block may have that much shared memory.
using WideOfMany = Sm80AttentionConfig<double, sm80_attention_shapes::D128DoubleWide>;

/// Features of values that one launch takes.
inline constexpr std::int64_t most_features = 128;

inline bool is_narrow(abi::AttentionArgs const& g) {
  return g.head_dim <= 64 && std::min(g.head_dim_v, most_features) <= 64;
}

/// First reason not to take a call; null if there is none.
inline char const* refuse_f64_attention(abi::AttentionArgs const& g, abi::Device const& device) {
  if (g.type != DType::float64 || g.type_out != DType::float64)
    return "it takes other element types";
  if (char const* reason = refuse_any_attention(g, device, abi::tile_attention_options))
    return reason;
  if (is_empty(g)) return nullptr;
  if (g.head_dim > 128) return "head_dim is above 128";
  if (g.head_dim_v > 512) return "head_dim of v is above 512";
  if ((is_narrow(g) ? Narrow::shared_bytes : Wide::shared_bytes) >
      device.shared_memory_per_block_optin)
    return "a block needs more shared memory than the device has";
  return nullptr;
}

template <class Config>
cudaError_t launch_f64_attention(abi::AttentionArgs const& g, abi::Device const& device,
                                 CUstream_st* stream) {
  return launch_tiles<Config>(sm80_attention_f64_kernel<Config>, g, device, stream);
}

}  // namespace
}  // namespace cuda

namespace abi {

Verdict AttentionSm80MmaF64::accepts(AttentionArgs const& args, Device const& device) noexcept {
  char const* const reason = cuda::refuse_f64_attention(args, device);
  return reason == nullptr ? accepted() : refused(reason);
}

int AttentionSm80MmaF64::launch(AttentionArgs const& args, Device const& device,
                                CUstream_st* stream) noexcept {
  assert(cuda::refuse_f64_attention(args, device) == nullptr);
  if (cuda::is_empty(args)) return cudaSuccess;
  cuda::ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  return cuda::launch_by_features<double>(
      args, cuda::most_features, [&](AttentionArgs const& part) {
        if (cuda::is_narrow(part))
          return cuda::launch_f64_attention<cuda::Narrow>(part, device, stream);
        if (cuda::WideOfMany::shared_bytes <= device.shared_memory_per_block_optin)
          return cuda::launch_f64_attention<cuda::WideOfMany>(part, device, stream);
        return cuda::launch_f64_attention<cuda::Wide>(part, device, stream);
      });
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
