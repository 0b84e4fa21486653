// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention_backward/sm80/kernel_wide.cuh"
#include "attention_backward/sm80/launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// See with_backward_shape.
struct BackwardFamilyTf32x3 {
  static constexpr DType type = DType::float32;
  static constexpr int most_features = 128;

  template <class Shape>
  using Block = WideBackwardBlock<WideBackwardConfig<float, Shape>>;

  template <bool WithTerms, class F>
  static auto with_shape(abi::AttentionArgs const& g, abi::Device const& device, F const& f) {
    using namespace sm80_backward_shapes;
    if (std::max(g.head_dim, g.head_dim_v) > 64)
      return f(std::type_identity<Block<Either<WithTerms, D128Tf32x3>>>());
    return with_fitting<Block<Either<WithTerms, D64Tf32x3>>, Block<Terms<D64Tf32x3Small>>>(device,
                                                                                           f);
  }
};

}  // namespace
}  // namespace cuda

namespace abi {

Verdict AttentionBackwardSm80MmaTf32x3::accepts(AttentionBackwardArgs const& args,
                                                Device const& device) noexcept {
  if (args.forward.compute == Compute::ieee)
    return refused("it drops the lowest bits of products, which compute = tf32x3 allows");
  return cuda::accepts_backward_sm80<cuda::BackwardFamilyTf32x3>(args, device);
}

std::size_t AttentionBackwardSm80MmaTf32x3::workspace_bytes(AttentionBackwardArgs const& args,
                                                            Device const& device) noexcept {
  return cuda::backward_sm80_bytes<cuda::BackwardFamilyTf32x3>(args, device);
}

int AttentionBackwardSm80MmaTf32x3::launch(AttentionBackwardArgs const& args, Device const& device,
                                           CUstream_st* stream) noexcept {
  return cuda::run_backward_sm80<cuda::BackwardFamilyTf32x3>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
