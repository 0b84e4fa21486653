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

  template <class Shape>
  using Block = SimtBackwardBlock<SimtBackwardConfig<Shape>>;

  template <bool WithTerms, class F>
  static auto with_shape(abi::AttentionArgs const& g, abi::Device const& device, F const& f) {
    using namespace sm80_backward_shapes;
    std::int64_t const d = std::max(g.head_dim, g.head_dim_v);
    if (d <= 64) return f(std::type_identity<Block<Either<WithTerms, D64Simt>>>());
    if (d > 128) return f(std::type_identity<Block<Terms<D256Simt>>>());
    return with_fitting<Block<Either<WithTerms, D128Simt>>, Block<Terms<D128SimtSmall>>>(device, f);
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
