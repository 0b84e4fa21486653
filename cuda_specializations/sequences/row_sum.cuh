// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The end of a row of attention: `sum` of weights 2^(score - top), which a sink may join, the
/// factor that the row's sums of values then have, and the log-sum-exp.
#pragma once

#include <attikos/abi/attention.hpp>

#include "score_math.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// A head's sink as a score, in units of the base-2 exponent.
__device__ __forceinline__ float sink_of(abi::AttentionArgs const& g, std::int64_t head) {
  return load_float(g.sinks, g.type_sinks, head * g.sinks_stride) * log2_e;
}

/// A sink joins a sum. `factor` is what the row's sums of values are multiplied by since `top` may
/// have risen; `power` is 2^x, or e^x where scores are natural.
template <class Acc, class Power>
__device__ __forceinline__ void join_sink(Acc sink, Acc& top, Acc& sum, Acc& factor,
                                          Power const& power) {
  Acc const before = top;
  top = max(before, sink);
  factor = power(before - top);
  sum = fma(sum, factor, power(sink - top));
}
__device__ __forceinline__ void join_sink(float sink, float& top, float& sum, float& factor) {
  join_sink(sink, top, sum, factor, [](float x) { return power_of_2(x); });
}

/// The log-sum-exp; the fast one of a sum that is no denormal number.
__device__ __forceinline__ float log_sum_exp(float top, float sum) {
  return (top + log2f(sum)) * ln_2;
}
__device__ __forceinline__ float fast_log_sum_exp(float top, float sum) {
  return (top + __log2f(sum)) * ln_2;
}

/// Arithmetic of float32 rows whose scores are in units of the base-2 exponent. `quick`: quotients
/// may be off by 2 units in the last place.
template <bool Quick = false>
struct Base2Rows {
  static constexpr bool quick = Quick;
  __device__ __forceinline__ static float power(float x) { return power_of_2(x); }
  __device__ __forceinline__ static float log_sum_exp(float top, float sum) {
    return cuda::log_sum_exp(top, sum);
  }
};

/// What a row's sums of values are multiplied by, and its log-sum-exp.
template <class Acc>
struct RowEnd {
  Acc factor, lse;
};

/// Ends a row: one that sees nothing gives 0 and -inf; a sink, which `sink()` loads, joins others.
template <class Arithmetic, class Acc, class Sink>
__device__ __forceinline__ RowEnd<Acc> finish_row(bool empty, Acc& top, Acc& sum, bool has_sink,
                                                  Sink const& sink) {
  if (empty) return {0, -static_cast<Acc>(__builtin_huge_val())};
  Acc factor = 1;
  if (has_sink) join_sink(sink(), top, sum, factor, [](Acc x) { return Arithmetic::power(x); });
  if constexpr (Arithmetic::quick)
    factor = __fdividef(factor, sum);
  else
    factor /= sum;
  return {factor, Arithmetic::log_sum_exp(top, sum)};
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
