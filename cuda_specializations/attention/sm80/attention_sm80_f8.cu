// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// attention/sm80_mma_e4m3: what it accepts, and which shape of kernel it takes.
#include <cassert>

#include "attention/shared/mma_launch.cuh"
#include "common/limits.cuh"
#include "kernel.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

template <class Shape>
using BytesConfig = Sm80AttentionBytesConfig<Shape>;
using namespace sm80_attention_shapes;
/// What every card from sm_80 on has.
static_assert(std::max({BytesConfig<Plain<D64Bytes>>::shared_bytes,
                        BytesConfig<Plain<D128Bytes>>::shared_bytes,
                        BytesConfig<D256SmallBytes>::shared_bytes}) <= sm80_shared_bytes);

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
  using namespace cuda;
  auto const launch = [&]<class Shape>(Shape, AttentionArgs const& part) {
    using Config = BytesConfig<Shape>;
    return launch_tiles<Config>(sm80_attention_kernel<Config>, part, device, stream);
  };
  auto const launch_either = [&]<class Shape>(Shape general, AttentionArgs const& part) {
    return is_plain<BytesConfig<Plain<Shape>>>(part) ? launch(Plain<Shape>{}, part)
                                                     : launch(general, part);
  };
  return launch_by_features<std::uint8_t, std::uint16_t>(args, 256, [&](AttentionArgs const& part) {
    std::int64_t const d = std::max(part.head_dim, part.head_dim_v);
    if (d <= 64) return launch_either(D64Bytes{}, part);
    if (d <= 128) return launch_either(D128Bytes{}, part);
    if (BytesConfig<D256Bytes>::shared_bytes <= device.shared_memory_per_block_optin)
      return launch(D256Bytes{}, part);
    return launch(D256SmallBytes{}, part);
  });
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
