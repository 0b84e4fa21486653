// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From q·k to the score that goes into the softmax: scale, softcap, bias, ALiBi, score functor,
/// and −∞ for pairs that masks, windows, lengths or a weight of 0 exclude.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/attention/attention_blocks.hpp>
#include <attikos/attention/attention_head.hpp>
#include <attikos/core/simd_exp.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// The user's functors of one call, each Absent where there is none.
template <class ScoreFunctor, class WeightFunctor, class Predicate = Absent>
struct PairFunctors {
  static constexpr bool has_score = is_present<ScoreFunctor>;
  static constexpr bool has_weight = is_present<WeightFunctor>;
  static constexpr bool has_block_mask = is_present<Predicate>;
  ScoreFunctor score;
  WeightFunctor weight;
  Predicate predicate = {};  ///< of the block mask
};
using NoFunctors = PairFunctors<Absent, Absent>;

/// Whether scores are more than scale·q·k within a range of keys.
template <class Functors>
KOKKOS_INLINE_FUNCTION bool has_terms(abi::AttentionArgs const& g) {
  return Functors::has_score || Functors::has_weight || Functors::has_block_mask || g.softcap > 0 ||
         g.bias != nullptr || g.mask != nullptr || g.alibi != nullptr;
}

/// Whether the pair takes part at all, as far as the block mask leaves it.
template <class Functors, class Head>
KOKKOS_INLINE_FUNCTION bool is_pair(abi::AttentionArgs const& g, Functors const& functors,
                                    Head const& head, std::int64_t i, std::int64_t j) {
  if (j >= head.last(i) || j < head.first(i)) return false;
  if (g.mask != nullptr && g.mask[head.batch * g.mask_stride[0] + head.head * g.mask_stride[1] +
                                  i * g.mask_stride[2] + j * g.mask_stride[3]] == 0)
    return false;
  if constexpr (Functors::has_weight) return functors.weight(head.batch, head.head, i, j) != 0;
  (void)functors;
  return true;
}

/// The score before the functor, and softcap's tanh in `capped` (for its derivative).
template <class Head, class Acc = typename Head::Acc>
KOKKOS_INLINE_FUNCTION Acc built_in_score(abi::AttentionArgs const& g, Head const& head,
                                          std::int64_t i, std::int64_t j, Acc dot, Acc& capped) {
  Acc s = dot * head.scale;
  if (g.softcap > 0) {
    Acc const cap = static_cast<Acc>(g.softcap);
    capped = Kokkos::tanh(s / cap);
    s = cap * capped;
  }
  if (g.bias != nullptr)
    s += load_any<Acc>(g.type_bias, g.bias,
                       head.batch * g.bias_stride[0] + head.head * g.bias_stride[1] +
                           i * g.bias_stride[2] + j * g.bias_stride[3]);
  if (g.alibi != nullptr) {
    std::int64_t const distance = i + head.offset - j;
    s -= head.slope * static_cast<Acc>(distance < 0 ? -distance : distance);
  }
  return s;
}

/// The score of one pair, −∞ if it is excluded.
template <class Functors, class Head, class Acc = typename Head::Acc>
KOKKOS_INLINE_FUNCTION Acc pair_score(abi::AttentionArgs const& g, Functors const& functors,
                                      Head const& head, std::int64_t i, std::int64_t j, Acc dot) {
  if (!is_pair(g, functors, head, i, j) || !sees_in_blocks(g, functors, head, i, j))
    return negative_infinity<Acc>();
  Acc capped = 0;
  Acc s = built_in_score(g, head, i, j, dot, capped);
  if constexpr (Functors::has_score) s = functors.score(s, head.batch, head.head, i, j);
  return s;
}

namespace host {

/// Lane-wise tanh to a few units in the last place: an odd polynomial, fitted by weighted least
/// squares, below 0.625, and 1 − 2/(e^{2x} + 1) above.
inline Vec<float> tanh_vector(Vec<float> x) {
  constexpr int W = lanes<float>;
  Vec<float> const magnitude = x < 0.0f ? -x : x;
  Vec<float> const z = x * x;
  Vec<float> p = z * -0.0057054488f + 0.020639492f;
  p = p * z + -0.053739835f;
  p = p * z + 0.13331443f;
  p = p * z + -0.33333281f;
  Vec<float> const near = x + x * z * p;
  Vec<float> const m = magnitude > 10.0f ? broadcast<float, W>(10.0f) : magnitude;
  Vec<float> const far = 1.0f - 2.0f / (exp<float, W>(2.0f * m) + 1.0f);
  Vec<float> const result = magnitude < 0.625f ? near : (x < 0.0f ? -far : far);
  return x == x ? result : x;
}
inline Vec<double> tanh_vector(Vec<double> x) {
  for (int l = 0; l < lanes<double>; ++l) x[l] = Kokkos::tanh(x[l]);
  return x;
}

/// Row i of a tile of scores that starts at key j0: x becomes final scores, −∞ where excluded.
template <class Acc, class Functors, class Head>
inline void score_row(abi::AttentionArgs const& g, Functors const& functors, Head const& head,
                      std::int64_t i, std::int64_t j0, Acc* x, int cols) {
  constexpr int W = lanes<Acc>;
  constexpr Acc low = negative_infinity<Acc>();
  int const first = static_cast<int>(clamp_index(head.first(i) - j0, 0, cols));
  int const last = static_cast<int>(clamp_index(head.last(i) - j0, first, cols));
  for (int j = 0; j < first; ++j) x[j] = low;
  for (int j = last; j < cols; ++j) x[j] = low;
  Vec<Acc> iota;
  for (int l = 0; l < W; ++l) iota[l] = static_cast<Acc>(l);
  Acc const cap = static_cast<Acc>(g.softcap);
  std::int64_t const bias = head.batch * g.bias_stride[0] + head.head * g.bias_stride[1] +
                            i * g.bias_stride[2] + (j0 + first) * g.bias_stride[3];
  Acc const distance = static_cast<Acc>(i + head.offset - j0 - first);
  for_each_vector<Acc>(
      x + first, 1, last - first, Acc(0), [&](std::int64_t j, Vec<Acc> v, int count) {
        v *= head.scale;
        if (g.softcap > 0) v = cap * tanh_vector(v / cap);
        if (g.bias != nullptr)
          v += load_vector_any<Acc>(g.type_bias, g.bias, bias + j * g.bias_stride[3],
                                    g.bias_stride[3], count);
        if (g.alibi != nullptr) {
          Vec<Acc> const ahead = (distance - static_cast<Acc>(j)) - iota;
          v -= head.slope * (ahead < Acc(0) ? -ahead : ahead);
        }
        put<Acc>(x + first + j, 1, count, v);
      });
  auto const finish = [&](std::int64_t from, std::int64_t to, [[maybe_unused]] bool ask) {
    for (std::int64_t j = from; j < to; ++j) {
      bool seen = is_pair(g, functors, head, i, j);
      if constexpr (Functors::has_block_mask)
        seen = seen && (!ask || functors.predicate(head.batch, head.head, i, j));
      if (!seen) {
        x[j - j0] = low;
      } else if constexpr (Functors::has_score) {
        x[j - j0] = functors.score(x[j - j0], head.batch, head.head, i, j);
      }
    }
  };
  bool const by_pair = g.mask != nullptr || Functors::has_score || Functors::has_weight;
  if (by_pair || Functors::has_block_mask)
    for_each_block<false, Functors>(
        g, head, i, j0 + first, j0 + last,
        [&](std::int64_t from, std::int64_t to, bool ask) {
          if (by_pair || ask) finish(from, to, ask);
        },
        [&](std::int64_t from, std::int64_t to) {
          for (std::int64_t j = from; j < to; ++j) x[j - j0] = low;
        });
}

}  // namespace host

/// A tile of dot products, rows from row0 and keys from j0, becomes scores.
template <class Traits, class Team, class Acc, class Functors, class Head>
KOKKOS_INLINE_FUNCTION void score_tile(Team const& team, abi::AttentionArgs const& g,
                                       Functors const& functors, Head const& head,
                                       std::int64_t row0, std::int64_t j0, Acc* scores, int lds,
                                       int rows, int cols) {
  if constexpr (Traits::host) {
    KOKKOS_IF_ON_HOST(
        (for (int i = 0; i < rows; ++i) host::score_row<Acc>(
             g, functors, head, row0 + i, j0, scores + static_cast<std::int64_t>(i) * lds, cols);))
  } else {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * cols), [&](int index) {
      int const i = index / cols, j = index % cols;
      Acc& x = scores[i * lds + j];
      x = pair_score(g, functors, head, row0 + i, j0 + j, x);
    });
  }
  (void)team;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
