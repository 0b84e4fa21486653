// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What an attention call may ask for besides its tensors.
#pragma once

#include <attikos/abi/attention.hpp>
#include <attikos/attention/block_mask.hpp>
#include <attikos/attention/paged.hpp>
#include <attikos/core/bias.hpp>
#include <attikos/core/determinism.hpp>
#include <attikos/core/lengths.hpp>
#include <attikos/core/workspace.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// How attention is computed. All three give the same values up to rounding.
enum class AttentionAlgorithm : std::uint8_t {
  flash,  ///< online softmax, no storage that grows with seqlen_q·seqlen_kv; the default
  tiled,  ///< scores stored in the workspace, products through tiles
  naive   ///< scores stored in the workspace, one dot product per element; for checking
};

/// Name of the portable kernel of an algorithm, as explain(), labels and `.kernel` spell it.
constexpr char const* portable_name(AttentionAlgorithm algorithm) noexcept {
  switch (algorithm) {
    case AttentionAlgorithm::tiled:
      return "portable/tiled";
    case AttentionAlgorithm::naive:
      return "portable/naive";
    case AttentionAlgorithm::flash:
      break;
  }
  return "portable/flash";
}

/// Options of attention() and attention_backward(). All are run-time values. Members that decode()
/// and C have by the same name are rows of abi/option_tables.h: softmax_scale, causal, window_left,
/// window_right, softcap and what is last.
struct AttentionOptions {
  ATTIKOS_OPTION_SOFTMAX_SCALE(ATTIKOS_CXX_OPTION_MEMBER)
  ATTIKOS_OPTION_CAUSAL(ATTIKOS_CXX_OPTION_MEMBER)
  CausalAlignment causal_alignment =
      CausalAlignment::bottom_right;  ///< offset len_kv − len_q, or 0
  AttentionAlgorithm algorithm = AttentionAlgorithm::flash;
  char const* kernel = "";  ///< "" chooses; a name demands it and never falls back
  ATTIKOS_OPTION_WINDOW(ATTIKOS_CXX_OPTION_MEMBER)
  ATTIKOS_OPTION_SOFTCAP(ATTIKOS_CXX_OPTION_MEMBER)
  double dropout_p = 0;  ///< anything but 0 is refused
  /// compute: least precision of float products. The portable kernels always compute in IEEE
  /// float32, which every choice allows; `attention/sm80_mma_tf32x3` and its gradients use the
  /// choice.
  ATTIKOS_OPTION_COMPUTE(ATTIKOS_CXX_OPTION_MEMBER)
  ATTIKOS_LATER_SCORE_OPTIONS(ATTIKOS_CXX_OPTION_MEMBER)
  /// `unordered` leaves attention_backward() the order of its sums, which is faster on some
  /// devices; attention() repeats its bits from run to run whatever this says. `batch_invariant` is
  /// refused.
  Determinism determinism = Determinism::run_to_run;
  /// Multiprocessors of a device that other kernels use meanwhile, such as transfers between GPUs:
  /// > 0 deals tiles to multiprocessors as they get free, 0 gives each its share at once, which is
  /// faster where nothing else runs. A hint to attention(), which has the same bits either way.
  int sm_margin = 0;
};

/// Offsets of packed sequences. See cu_seqlens().
template <class Q, class Kv>
struct CuSeqlens {
  Q q;
  Kv kv;
};

/// Packed sequences: q is [heads_q, total_q, d], k and v [heads_kv, total_kv, …], and sequence b
/// occupies positions [q(b), q(b + 1)) and [kv(b), kv(b + 1)). Both arrays have batch + 1 entries
/// of int32, int64 or an unsigned type of that size (the row map of a CSR graph as it is),
/// ascending; kernels read them on the device and clamp them to the allocation. Positions outside
/// every sequence get out 0.
template <TensorLike Q, TensorLike Kv>
CuSeqlens<Q, Kv> cu_seqlens(Q const& q, Kv const& kv) {
  return {q, kv};
}

/// The same offsets for queries and keys.
template <TensorLike Q>
CuSeqlens<Q, Q> cu_seqlens(Q const& both) {
  return {both, both};
}

/// Packed queries against keys that are padded ([batch, heads_kv, seqlen_kv, …]) or paged.
template <TensorLike Q>
CuSeqlens<Q, detail::Absent> cu_seqlens(Q const& q, detail::Absent) {
  return {q, {}};
}

/// A boolean mask. See mask().
template <TensorLike T>
struct Mask {
  T view;
};

/// Pairs where the mask is 0 (false) are excluded. bool or uint8; broadcasts like bias().
template <TensorLike T>
Mask<T> mask(T const& view) {
  return {view};
}

/// Slopes of ALiBi. See alibi().
template <TensorLike T>
struct Alibi {
  T slopes;
};

/// Attention with linear biases: −slope·|i + offset − j| is added to the scores. float, [heads_q]
/// or [batch, heads_q]. Source: O. Press et al., arXiv:2108.12409.
template <TensorLike T>
Alibi<T> alibi(T const& slopes) {
  return {slopes};
}

/// Attention sinks. See sinks().
template <TensorLike T>
struct Sinks {
  T view;
};

/// One logit per query head ([heads_q], any floating-point type) that takes part in the softmax's
/// denominator and has no value. Source: G. Xiao et al., arXiv:2309.17453.
template <TensorLike T>
Sinks<T> sinks(T const& view) {
  return {view};
}

/// Factors of float8 tensors. See descale().
template <TensorLike Q, TensorLike K, TensorLike V>
struct Descale {
  Q q;
  K k;
  V v;
};

/// What the float8 elements of q, k and v are multiplied by: float, each [1] or [batch, heads_kv].
template <TensorLike Q, TensorLike K, TensorLike V>
Descale<Q, K, V> descale(Q const& q, K const& k, V const& v) {
  return {q, k, v};
}

/// A score functor. See score().
template <class F>
struct Score {
  F functor;
};

/// A function of the user's own, compiled into the portable kernel: `functor(s, b, h, i, j)` takes
/// the score after scale, softcap, bias and ALiBi, with batch, query head and the positions of
/// query and key within their sequences (std::int64_t), and returns the score that goes into the
/// softmax; −∞ excludes the pair. It is a KOKKOS_FUNCTION of the accumulator type (float; double
/// for double), cheap to copy, and must not depend on when or how often it is called. Where
/// positions stay below 2³¹, a functor may take them as int: a GPU turns those into
/// floating-point numbers four times as fast.
/// attention_backward() asks it for `derivative(s, b, h, i, j)`, d result/d s. A functor with
/// parameters of its own, a table of biases for example, gets their gradients if it has
/// `accumulate(r, s, b, h, i, j)`: attention_backward() calls it once for each pair that takes
/// part, with r = d loss/d result and the score s that went into the functor. It adds what that
/// comes to to an accumulator that the user gave it, atomically: threads call it at once, in any
/// order, so that sums of floating-point numbers need not repeat their bits from run to run.
template <class F>
Score<F> score(F const& functor) {
  return {functor};
}

/// A weight functor. See weight().
template <class F>
struct Weight {
  F functor;
};

/// A multiplicative weight w ≥ 0, such as a smooth cutoff: p = w·e^s/Σ w·e^s with
/// `functor(b, h, i, j)` (arguments as score()). 0 excludes the pair exactly: not even a NaN of its
/// key or value gets through. Gradients of its parameters are not offered; attention_backward()
/// does not compile with one that has `accumulate`.
template <class F>
Weight<F> weight(F const& functor) {
  return {functor};
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
