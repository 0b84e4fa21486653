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

  template <class Shape>
  using Block = WideBackwardBlock<WideBackwardConfig<double, Shape>>;

  template <bool WithTerms, class F>
  static auto with_shape(abi::AttentionArgs const& g, abi::Device const& device, F const& f) {
    using namespace sm80_backward_shapes;
    if (std::max(g.head_dim, g.head_dim_v) <= 64)
      return with_fitting<Block<Either<WithTerms, D64Double>>, Block<Terms<D64DoubleSmall>>>(device,
                                                                                             f);
    return with_fitting<Block<Either<WithTerms, D128Double>>, Block<Terms<D128DoubleSmall>>>(device,
                                                                                             f);
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
