// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention/sm75_wmma_f16: what it accepts, and which shape of kernel it takes.
#include <cassert>

#include "attention/shared/mma_launch.cuh"
#include "kernel.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// First reason not to take a call; null if there is none.
char const* refuse_wmma_attention(abi::AttentionArgs const& g, abi::Device const& device) {
  if (g.type != DType::float16 || g.type_out != DType::float16)
    return "it takes other element types";
  if (!device.at_least(7, 5))
    return device.compute_major == 0 ? "no CUDA device" : "it needs compute capability 7.5";
  if (char const* reason = refuse_any_attention(g, abi::tile_attention_options)) return reason;
  return refuse_head_dims(g);
}

}  // namespace
}  // namespace cuda

namespace abi {

Verdict AttentionSm75WmmaF16::accepts(AttentionArgs const& args, Device const& device) noexcept {
  char const* const reason = cuda::refuse_wmma_attention(args, device);
  return reason == nullptr ? accepted() : refused(reason);
}

int AttentionSm75WmmaF16::launch(AttentionArgs const& args, Device const& device,
                                 CUstream_st* stream) noexcept {
  assert(cuda::refuse_wmma_attention(args, device) == nullptr);
  if (cuda::is_empty(args)) return cudaSuccess;
  cuda::ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  return cuda::launch_by_features<__half>(args, 256, [&](AttentionArgs const& part) {
    using namespace cuda::sm75_attention_shapes;
    auto const launch = [&]<class Shape>(Shape) {
      using Config = cuda::WmmaAttentionConfig<Shape>;
      return cuda::launch_tiles<Config>(cuda::wmma_attention_kernel<Config>, part, device, stream);
    };
    std::int64_t const d = std::max(part.head_dim, part.head_dim_v);
    if (d <= 64) return launch(D64{});
    if (d <= 128) return launch(D128{});
    return launch(D256{});
  });
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
