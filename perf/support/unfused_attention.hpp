// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Attention as one writes it without a fused kernel: OpenBLAS for the two products of each head, a
/// softmax of the rows between them, all scores of a head in memory. A peer.
///
/// The heads are shared out to Kokkos's threads and OpenBLAS runs on the calling thread alone. Two
/// thread pools that take turns would spin in each other's way, and one pool over whole heads is
/// the better program anyway. The exponential is one that the compiler vectorizes; std::exp would
/// make the softmax cost more than the products.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <support/openblas.hpp>
#include <vector>

namespace attikos::measure {

/// e^x for x ≤ 0 after Cephes' expf, within 2 ulp; 0 where the result would be subnormal.
inline float exp_of_nonpositive(float x) {
  float const clipped = x < -87.0f ? -87.0f : x;
  // Adding and taking away 1.5·2^23 rounds to an integer.
  float const n = (clipped * 1.44269504f + 12582912.0f) - 12582912.0f;
  float const r = (clipped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  float const power = std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
  return x < -87.0f ? 0.0f : p * power;
}

/// Softmax in place of the first `visible` entries; the others become 0.
inline void softmax_in_place(float* row, std::int64_t size, std::int64_t visible) {
  constexpr int lanes =
      16;  // several partial results, so that the compiler may vectorize the reductions
  float largest[lanes];
  float sum[lanes] = {};
  std::fill(largest, largest + lanes, row[0]);
  std::int64_t const whole = visible / lanes * lanes;
  for (std::int64_t j = 0; j < whole; j += lanes)
    for (int l = 0; l < lanes; ++l) largest[l] = row[j + l] > largest[l] ? row[j + l] : largest[l];
  for (std::int64_t j = whole; j < visible; ++j) largest[0] = std::max(largest[0], row[j]);
  float const maximum = *std::max_element(largest, largest + lanes);
  for (std::int64_t j = 0; j < whole; j += lanes)
    for (int l = 0; l < lanes; ++l) sum[l] += row[j + l] = exp_of_nonpositive(row[j + l] - maximum);
  for (std::int64_t j = whole; j < visible; ++j)
    sum[0] += row[j] = exp_of_nonpositive(row[j] - maximum);
  float total = 0;
  for (float part : sum) total += part;
  float const inverse = 1 / total;
  for (std::int64_t j = 0; j < visible; ++j) row[j] *= inverse;
  std::fill(row + visible, row + size, 0.0f);
}

class UnfusedAttention {
 public:
  UnfusedAttention(int heads, int seqlen, int head_dim, bool causal)
      : heads_(heads),
        seqlen_(seqlen),
        head_dim_(head_dim),
        causal_(causal),
        workers_(std::min(heads, Exec().concurrency())),
        scores_(static_cast<std::size_t>(workers_) * static_cast<std::size_t>(seqlen) *
                static_cast<std::size_t>(seqlen)) {}

  /// All tensors are [heads, seqlen, head_dim], contiguous.
  void operator()(Exec const& exec, float const* q, float const* k, float const* v, float* out) {
    Kokkos::parallel_for("unfused attention", Kokkos::RangePolicy<Exec>(exec, 0, workers_),
                         [=, this](int worker) {
                           for (int head = worker; head < heads_; head += workers_) {
                             std::int64_t const offset = std::int64_t{head} * seqlen_ * head_dim_;
                             one_head(q + offset, k + offset, v + offset, out + offset,
                                      scores_.data() + std::int64_t{worker} * seqlen_ * seqlen_);
                           }
                         });
  }

 private:
  void one_head(float const* q, float const* k, float const* v, float* out, float* scores) const {
    float const scale = 1 / std::sqrt(static_cast<float>(head_dim_));
    openblas_gemm<float>(seqlen_, seqlen_, head_dim_, false, true, scale, q, k, scores);
    for (std::int64_t i = 0; i < seqlen_; ++i)
      softmax_in_place(scores + i * seqlen_, seqlen_, causal_ ? i + 1 : seqlen_);
    openblas_gemm<float>(seqlen_, head_dim_, seqlen_, false, false, 1, scores, v, out);
  }

  int heads_, seqlen_, head_dim_;
  bool causal_;
  int workers_;
  std::vector<float> scores_;
};

}  // namespace attikos::measure
