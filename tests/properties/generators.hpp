// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random problems for RapidCheck.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "../parity/attention_checks.hpp"
#include "../support/random.hpp"

namespace attikos::test {

using Exec = Kokkos::DefaultExecutionSpace;

/// The same problems on every run; RC_PARAMS="seed=..." in the environment asks for others.
inline int const seeded = setenv("RC_PARAMS", "seed=20250607 max_success=60", 0);

/// Up to `largest`: anything, or one of the numbers around which kernels change their ways.
inline std::int64_t any_extent(std::int64_t smallest, std::int64_t largest) {
  auto const chosen = *rc::gen::weightedOneOf<std::int64_t>(
      {{2, rc::gen::inRange<std::int64_t>(smallest, largest + 1)},
       {1, rc::gen::element<std::int64_t>(1, 2, 7, 8, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65)}});
  return std::clamp(chosen, smallest, largest);
}

inline Layout any_layout() {
  return *rc::gen::element(Layout::right, Layout::left, Layout::padded, Layout::strided,
                           Layout::permuted);
}

inline std::uint64_t any_seed() { return *rc::gen::arbitrary<std::uint32_t>(); }

/// A random order of 0, 1, ... n - 1.
inline std::vector<std::int64_t> any_permutation(std::int64_t n) {
  std::vector<std::int64_t> order(sz(n));
  std::iota(order.begin(), order.end(), 0);
  Random random(any_seed());
  for (std::int64_t i = n - 1; i > 0; --i) std::swap(order[sz(i)], order[sz(random.integer(0, i))]);
  return order;
}

/// Sometimes more keys than any tile holds, so that running maxima and sums get corrected.
inline std::int64_t any_seqlen_kv() {
  return *rc::gen::arbitrary<bool>()
             ? any_extent(1, 140)
             : *rc::gen::element<std::int64_t>(255, 256, 257, 300, 511, 513, 600);
}

inline AttentionShape any_attention_shape() {
  std::int64_t const heads_kv = any_extent(1, 2);
  return {any_extent(1, 2), heads_kv * any_extent(1, 3), heads_kv,         any_extent(1, 40),
          any_seqlen_kv(),  any_extent(1, 70),           any_extent(1, 70)};
}

inline AttentionOptions any_attention_options() {
  AttentionOptions options;
  options.causal = *rc::gen::arbitrary<bool>();
  options.causal_alignment =
      *rc::gen::element(CausalAlignment::bottom_right, CausalAlignment::top_left);
  options.algorithm = *rc::gen::element(AttentionAlgorithm::flash, AttentionAlgorithm::tiled,
                                        AttentionAlgorithm::naive);
  return options;
}

/// Any problem without lengths.
inline AttentionCase any_attention_case() {
  AttentionCase p{
      .shape = any_attention_shape(), .options = any_attention_options(), .layout = any_layout()};
  RC_LOG() << describe(p) << '\n';
  return p;
}

/// Adds lengths, among them 0 and full ones.
inline void add_lengths(AttentionCase& p) {
  for (std::int64_t b = 0; b < p.shape.batch; ++b) {
    p.lengths_q.push_back(static_cast<int>(any_extent(0, p.shape.seqlen_q)));
    p.lengths_kv.push_back(static_cast<int>(any_extent(0, p.shape.seqlen_kv)));
  }
  RC_LOG() << describe(p) << '\n';
}

/// Bits of the elements; where NaN means NaN, as any NaN.
template <class TensorType>
bool same_elements(TensorType& a, TensorType& b) {
  return same_bits(a.elements(), b.elements());
}

}  // namespace attikos::test
