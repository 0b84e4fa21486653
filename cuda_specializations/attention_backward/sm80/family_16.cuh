// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Which shape of the kernels of 16-bit elements a call takes.
#pragma once

#include "common/limits.cuh"
#include "kernel.cuh"
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// See with_backward_shape.
template <class T>
struct BackwardFamily16 {
  static constexpr DType type = std::is_same_v<T, __half> ? DType::float16 : DType::bfloat16;
  static constexpr int most_features = 256;

  template <class Shape>
  using Block = Sm80BackwardBlock<Sm80BackwardConfig<T, Shape>>;

  template <bool WithTerms, class F>
  static auto with_shape(abi::AttentionArgs const& g, abi::Device const& device, F const& f) {
    using namespace sm80_backward_shapes;
    std::int64_t const d = std::max(g.head_dim, g.head_dim_v);
    using Of64 = Either<WithTerms, D64>;
    using Of128 = Either<WithTerms, D128, D128Chunks>;
    using Of256 = Either<WithTerms, D256>;
    using Small128 = Either<WithTerms, D128Small>;
    using Small256 = Either<WithTerms, D256Small>;
    static_assert(Block<Of64>::Shape::shared_bytes <= sm80_shared_bytes &&
                  Block<Small128>::Shape::shared_bytes <= sm80_shared_bytes &&
                  Block<Small256>::Shape::shared_bytes <= sm80_shared_bytes &&
                  Block<Of128>::Shape::shared_bytes <= a100_shared_bytes &&
                  Block<Of256>::Shape::shared_bytes <= a100_shared_bytes);
    if (d <= 64) return f(std::type_identity<Block<Of64>>());
    if (d <= 128) return with_fitting<Block<Of128>, Block<Small128>>(device, f);
    return with_fitting<Block<Of256>, Block<Small256>>(device, f);
  }
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
