// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// attention/sm80_mma_e4m3: what it accepts, and which shape of kernel it takes.
#include <cassert>

#include "attention/shared/mma_launch.cuh"
#include "common/limits.cuh"
#include "kernel.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// From <H200 700 W, CUDA 13.0, 16384 tokens, heads × head_dim 2048, length 4096>, TFLOP/s, beside
/// those of float16: 64 286, 321; 128 352, 393; 256 258, 310. Shapes that are not plain 264 and 339
/// of 64 and 128.
template <bool Plain>
using Bytes64 = Sm80AttentionBytesConfig<64, 2, 4, 64, 2, true, Plain>;
template <bool Plain>
using Bytes128 = Sm80AttentionBytesConfig<128, 2, 4, 64, 2, false, Plain>;
using Bytes256 = Sm80AttentionBytesConfig<256, 1, 8, 64, 1, false>;
/// For cards whose blocks cannot have that much shared memory: 223.
using SmallBytes256 = Sm80AttentionBytesConfig<256, 1, 4, 32, 2, false>;
/// What every card from sm_80 on has.
static_assert(std::max({Bytes64<true>::shared_bytes, Bytes128<true>::shared_bytes,
                        SmallBytes256::shared_bytes}) <= sm80_shared_bytes);

/// First reason not to take a call; null if there is none.
inline char const* refuse_f8_attention(abi::AttentionArgs const& g, abi::Device const& device) {
  if (g.type != DType::float8_e4m3) return "it takes other element types";
  if (g.type_out != DType::float16 && g.type_out != DType::bfloat16)
    return "its out is float16 or bfloat16";
  if (char const* reason = refuse_any_attention(g, device, abi::AttentionSm80MmaE4m3::takes))
    return reason;
  return refuse_head_dims(g);
}

}  // namespace
}  // namespace cuda

namespace abi {

Verdict AttentionSm80MmaE4m3::accepts(AttentionArgs const& args, Device const& device) noexcept {
  char const* const reason = cuda::refuse_f8_attention(args, device);
  return reason == nullptr ? accepted() : refused(reason);
}

int AttentionSm80MmaE4m3::launch(AttentionArgs const& args, Device const& device,
                                 CUstream_st* stream) noexcept {
  assert(cuda::refuse_f8_attention(args, device) == nullptr);
  if (cuda::is_empty(args)) return cudaSuccess;
  cuda::ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  auto const launch = [&](auto config, AttentionArgs const& part) {
    using Config = decltype(config);
    return cuda::launch_tiles<Config>(cuda::sm80_attention_kernel<Config>, part, device, stream);
  };
  auto const launch_either = [&](auto plain, auto general, AttentionArgs const& part) {
    if (cuda::is_plain<decltype(plain)>(part)) return launch(plain, part);
    return launch(general, part);
  };
  return cuda::launch_by_features<std::uint8_t, std::uint16_t>(
      args, 256, [&](AttentionArgs const& part) {
        std::int64_t const d = std::max(part.head_dim, part.head_dim_v);
        if (d <= 64) return launch_either(cuda::Bytes64<true>{}, cuda::Bytes64<false>{}, part);
        if (d <= 128) return launch_either(cuda::Bytes128<true>{}, cuda::Bytes128<false>{}, part);
        if (cuda::Bytes256::shared_bytes <= device.shared_memory_per_block_optin)
          return launch(cuda::Bytes256{}, part);
        return launch(cuda::SmallBytes256{}, part);
      });
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
