// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes that the kernels of 16-bit elements come in.
#pragma once

#include "common/limits.cuh"
#include "kernel.cuh"
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

template <class T, bool Terms>
using BackwardTiles64 = Sm80BackwardConfig<T, 64, 4, 2, 1, 64, 32, 2, 1, 2, Terms>;
template <class T, bool Terms>
using BackwardTiles128 = Sm80BackwardConfig<T, 128, 8, 1, 1, 64, Terms ? 32 : 64, 2, 2, 1, Terms>;
template <class T, bool Terms>
using BackwardTiles256 = Sm80BackwardConfig<T, 256, 4, 1, 2, 64, 32, 1, 1, 1, Terms>;
/// For cards whose blocks cannot have that much shared memory.
template <class T, bool Terms>
using SmallBackwardTiles128 = Sm80BackwardConfig<T, 128, 8, 1, 1, 32, 32, 2, 1, 1, Terms>;
template <class T, bool Terms>
using SmallBackwardTiles256 = Sm80BackwardConfig<T, 256, 2, 1, 2, 32, 16, 2, 1, 1, Terms>;

static_assert(BackwardTiles64<__half, true>::shared_bytes <= sm80_shared_bytes &&
              SmallBackwardTiles128<__half, true>::shared_bytes <= sm80_shared_bytes &&
              SmallBackwardTiles256<__half, true>::shared_bytes <= sm80_shared_bytes &&
              BackwardTiles128<__half, true>::shared_bytes <= a100_shared_bytes &&
              BackwardTiles256<__half, true>::shared_bytes <= a100_shared_bytes);

/// See with_backward_shape.
template <class T>
struct BackwardFamily16 {
  static constexpr DType type = std::is_same_v<T, __half> ? DType::float16 : DType::bfloat16;
  static constexpr int most_features = 256;

  template <bool Terms, class F>
  static auto with_shape(abi::AttentionArgs const& g, abi::Device const& device, F const& f) {
    std::int64_t const d = std::max(g.head_dim, g.head_dim_v);
    auto const call = [&]<class Config>(Config) {
      return f(std::type_identity<Sm80BackwardBlock<Config>>());
    };
    if (d <= 64) return call(BackwardTiles64<T, Terms>());
    if (d <= 128)
      return fits_in_block<BackwardTiles128<T, Terms>>(device)
                 ? call(BackwardTiles128<T, Terms>())
                 : call(SmallBackwardTiles128<T, Terms>());
    return fits_in_block<BackwardTiles256<T, Terms>>(device)
               ? call(BackwardTiles256<T, Terms>())
               : call(SmallBackwardTiles256<T, Terms>());
  }
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
