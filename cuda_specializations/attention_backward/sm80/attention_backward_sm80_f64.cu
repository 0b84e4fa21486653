// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention_backward/sm80/kernel_wide.cuh"
#include "attention_backward/sm80/launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// See with_backward_shape.
struct BackwardFamilyF64 {
  static constexpr DType type = DType::float64;
  static constexpr int most_features = 128;

  template <bool Terms>
  using Tiles64 = WideBackwardConfig<double, 64, 4, 1, 1, 32, 16, 1, 1, 2, Terms>;
  template <bool Terms>
  using Tiles128 = WideBackwardConfig<double, 128, 4, 1, 2, 32, 16, 1, 1, 1, Terms>;
  /// For cards whose blocks cannot have that much shared memory.
  using SmallTiles64 = WideBackwardConfig<double, 64, 4, 1, 1, 16, 16, 1, 1, 1, true>;
  using SmallTiles128 = WideBackwardConfig<double, 128, 2, 1, 2, 32, 16, 1, 1, 1, true>;

  template <bool Terms, class F>
  static auto with_shape(abi::AttentionArgs const& g, abi::Device const& device, F const& f) {
    auto const call = [&]<class Config>(Config) {
      return f(std::type_identity<WideBackwardBlock<Config>>());
    };
    if (std::max(g.head_dim, g.head_dim_v) <= 64)
      return fits_in_block<Tiles64<Terms>>(device) ? call(Tiles64<Terms>()) : call(SmallTiles64());
    return fits_in_block<Tiles128<Terms>>(device) ? call(Tiles128<Terms>()) : call(SmallTiles128());
  }
};

}  // namespace
}  // namespace cuda

namespace abi {

Verdict AttentionBackwardSm80MmaF64::accepts(AttentionBackwardArgs const& args,
                                             Device const& device) noexcept {
  return cuda::accepts_backward_sm80<cuda::BackwardFamilyF64>(args, device);
}

std::size_t AttentionBackwardSm80MmaF64::workspace_bytes(AttentionBackwardArgs const& args,
                                                         Device const& device) noexcept {
  return cuda::backward_sm80_bytes<cuda::BackwardFamilyF64>(args, device);
}

int AttentionBackwardSm80MmaF64::launch(AttentionBackwardArgs const& args, Device const& device,
                                        CUstream_st* stream) noexcept {
  return cuda::run_backward_sm80<cuda::BackwardFamilyF64>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
