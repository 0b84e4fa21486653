// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The scale of scores as float32 and float64 kernels of attention's gradients take it.
#pragma once

#include "params.cuh"
#include "sequences/score_math_f64.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// The scale of scores, and the same in units of the base-2 exponent.
template <class Number>
__device__ __forceinline__ Number scale_of(AttentionBackwardParams const& p) {
  if constexpr (std::is_same_v<Number, double>)
    return p.args.forward.softmax_scale;
  else
    return p.scale;
}
template <class Number>
__device__ __forceinline__ Number scale_log2_of(AttentionBackwardParams const& p) {
  if constexpr (std::is_same_v<Number, double>)
    return p.args.forward.softmax_scale * log2_e_64;
  else
    return p.scale_log2;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
