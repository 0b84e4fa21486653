// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention_backward/sm80/kernel_simt.cuh"
#include "attention_backward/sm80/launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// See with_backward_shape.
struct BackwardFamilyF32 {
  static constexpr DType type = DType::float32;
  static constexpr int most_features = 256;

  template <int Rows, int Columns>
  using Of = ThreadTile<Rows, Columns>;
  template <bool Terms>
  using Tiles64 = SimtBackwardConfig<64, 64, 64, 4, Of<8, 4>, Of<8, 4>, Of<4, 8>, 2, 2, Terms>;
  template <bool Terms>
  using Tiles128 = SimtBackwardConfig<128, 128, 64, 8, Of<8, 4>, Of<8, 8>, Of<4, 8>, 1, 1, Terms>;
  /// For cards whose blocks cannot have that much shared memory.
  using SmallTiles128 =
      SimtBackwardConfig<128, 32, 32, 4, Of<4, 2>, Of<8, 4>, Of<4, 8>, 1, 2, true>;
  using Tiles256 = SimtBackwardConfig<256, 32, 32, 4, Of<4, 2>, Of<8, 8>, Of<4, 8>, 1, 1, true>;

  template <bool Terms, class F>
  static auto with_shape(abi::AttentionArgs const& g, abi::Device const& device, F const& f) {
    auto const call = [&]<class Config>(Config) {
      return f(std::type_identity<SimtBackwardBlock<Config>>());
    };
    std::int64_t const d = std::max(g.head_dim, g.head_dim_v);
    if (d <= 64) return call(Tiles64<Terms>());
    if (d > 128) return call(Tiles256());
    return fits_in_block<Tiles128<Terms>>(device) ? call(Tiles128<Terms>()) : call(SmallTiles128());
  }
};

}  // namespace
}  // namespace cuda

namespace abi {

Verdict AttentionBackwardSm80SimtF32::accepts(AttentionBackwardArgs const& args,
                                              Device const& device) noexcept {
  return cuda::accepts_backward_sm80<cuda::BackwardFamilyF32>(args, device);
}

std::size_t AttentionBackwardSm80SimtF32::workspace_bytes(AttentionBackwardArgs const& args,
                                                          Device const& device) noexcept {
  return cuda::backward_sm80_bytes<cuda::BackwardFamilyF32>(args, device);
}

int AttentionBackwardSm80SimtF32::launch(AttentionBackwardArgs const& args, Device const& device,
                                         CUstream_st* stream) noexcept {
  return cuda::run_backward_sm80<cuda::BackwardFamilyF32>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
