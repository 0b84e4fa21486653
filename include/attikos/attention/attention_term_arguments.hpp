// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The parts of an attention call that shape its scores, checked: options, bias, mask, ALiBi,
/// sinks, factors of float8, offsets of packed sequences.
#pragma once

#include <attikos/attention/attention_options.hpp>
#include <attikos/core/dispatch/to_abi.hpp>
#include <cmath>
#include <string>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Offsets of packed sequences without their static type, or Absent.
template <ExecutionSpace Exec, class T>
AnyTensor any_offsets([[maybe_unused]] T const& view) {
  if constexpr (is_present<T>) {
    using Storage = std::remove_cv_t<typename StorageOf<T>::type>;
    static_assert(std::is_integral_v<Storage> && (sizeof(Storage) == 4 || sizeof(Storage) == 8),
                  "attikos: offsets are 32- or 64-bit integers");
    static_assert(rank_of<T> == 1, "attikos: offsets have rank 1");
    static_assert(
        is_accessible<Exec, T>(),
        "attikos: the offsets cannot be reached from the execution space; copy them first");
    DType const type = sizeof(Storage) == 8 ? DType::int64 : DType::int32;
    return {data_of(view), type, 1, {extent_of(view, 0)}, {stride_of(view, 0)}};
  } else {
    return {};
  }
}

/// Checked offsets of packed sequences.
inline abi::Offsets offsets_ref(char const* operation, char const* name, AnyTensor const& x) {
  if (x.extent[0] < 1)
    raise<ShapeError>(operation, ": ", name, " has ", x.extent[0],
                      " entries; expected one more than there are sequences");
  return {x.data, x.type == DType::int64, x.stride[0]};
}

/// Strides of a tensor that broadcasts to `target`, aligned at the last dimension; throws
/// ShapeError if it does not. `shapes()` describes the tensors of the call.
template <class Shapes>
void broadcast_strides(char const* operation, char const* name, AnyTensor const& x,
                       std::int64_t const (&target)[4], std::int64_t (&stride)[4],
                       Shapes const& shapes) {
  for (int r = 0; r < 4; ++r) stride[r] = 0;
  for (int r = 0; r < x.rank; ++r) {
    int const t = r + 4 - x.rank;
    if (x.extent[r] == target[t]) {
      stride[t] = target[t] == 1 ? 0 : x.stride[r];
    } else if (x.extent[r] != 1) {
      raise<ShapeError>(operation, ": ", name, " has extents ", describe_extents(x),
                        "; expected each to be 1 or as in [", target[0], ", ", target[1], ", ",
                        target[2], ", ", target[3], "], aligned at the last.", shapes());
    }
  }
}

/// Options that enter the score, checked and copied.
inline void score_option_arguments(char const* operation, abi::AttentionArgs& to,
                                   AttentionOptions const& from) {
  if (!std::isfinite(from.softmax_scale))
    raise<Error>(operation, ": softmax_scale is ", from.softmax_scale,
                 "; expected a finite number, 0 for 1/sqrt(d)");
  if (!std::isfinite(from.softcap) || from.softcap < 0)
    raise<Error>(operation, ": softcap is ", from.softcap,
                 "; expected a finite positive number, 0 for none");
  auto const check_window = [&](char const* name, std::int64_t value) {
    if (value < -1)
      raise<Error>(operation, ": ", name, " is ", value, "; expected a number of keys, -1 for all");
  };
  check_window("window_left", from.window_left);
  check_window("window_right", from.window_right);
  if (from.attention_chunk < 0)
    raise<Error>(operation, ": attention_chunk is ", from.attention_chunk,
                 "; expected a number of positions, 0 for all");
  if (from.sm_margin < 0)
    raise<Error>(operation, ": sm_margin is ", from.sm_margin,
                 "; expected a number of multiprocessors, 0 for none");
  if (from.determinism == Determinism::batch_invariant)
    raise<UnsupportedError>(operation,
                            ": determinism is batch_invariant; expected run_to_run or unordered");
  ATTIKOS_SCORE_OPTIONS(ATTIKOS_CXX_OPTION_COPY)
  ATTIKOS_OPTION_COMPUTE(ATTIKOS_CXX_OPTION_COPY)
  if (to.softmax_scale == 0)
    to.softmax_scale = to.head_dim > 0 ? 1.0 / std::sqrt(static_cast<double>(to.head_dim)) : 1.0;
  to.causal_alignment = from.causal_alignment;
  to.sm_margin = from.sm_margin;
}

/// What enters the scores besides options; absent where it was not given.
struct ScoreTerms {
  AnyTensor bias, mask, alibi, sinks, descale_q, descale_k, descale_v;
  AnyTensor block_mask;
  BlockMaskShape block_shape = {};
};

/// Pointer and strides of a float array that is one number or [batch, heads].
inline float const* per_head_ref(char const* operation, char const* name, AnyTensor const& x,
                                 std::int64_t batch, std::int64_t heads,
                                 std::int64_t (&stride)[2]) {
  if (!x.given()) return nullptr;
  stride[0] = stride[1] = 0;
  if (x.rank == 2) {
    if (x.extent[0] != batch || x.extent[1] != heads)
      raise<ShapeError>(operation, ": ", name, " is ", describe(x), "; expected [", batch, ", ",
                        heads, "]");
    stride[0] = x.stride[0];
    stride[1] = x.stride[1];
  } else {
    if (x.extent[0] != heads && x.extent[0] != 1)
      raise<ShapeError>(operation, ": ", name, " is ", describe(x), "; expected [1], [", heads,
                        "] or [", batch, ", ", heads, "]");
    stride[1] = x.extent[0] == 1 ? 0 : x.stride[0];
  }
  return x.as<float>();
}

/// A block mask, checked and copied.
template <class Shapes>
void block_mask_arguments(char const* operation, abi::AttentionArgs& g, Shapes const& shapes,
                          ScoreTerms const& t) {
  if (!t.block_mask.given()) return;
  BlockMaskShape const& shape = t.block_shape;
  check_block_mask(operation, t.block_mask, shape);
  auto const expect = [&](char const* name, std::int64_t got, std::int64_t wanted) {
    if (got != wanted)
      raise<ShapeError>(operation, ": block mask is made for ", name, " ", got, "; expected ",
                        wanted, ".", shapes());
  };
  if (g.cu_seqlens_q.data == nullptr) expect("seqlen_q", shape.seqlen_q, g.seqlen_q);
  if (g.cu_seqlens_kv.data == nullptr) expect("seqlen_kv", shape.seqlen_kv, g.seqlen_kv);
  g.block_mask_extent[0] = shape.seqlen_q;
  g.block_mask_extent[1] = shape.seqlen_kv;
  g.block_mask_tiles[0] = shape.tiles_q();
  g.block_mask_tiles[1] = shape.tiles_kv();
  g.block_size[0] = shape.block_q;
  g.block_size[1] = shape.block_kv;
  std::int64_t const target[4] = {g.batch, g.heads_q, shape.tiles_q(), shape.tiles_kv()};
  broadcast_strides(operation, "block mask", t.block_mask, target, g.block_mask_stride, shapes);
  // A mask without tiles has no address, which would be that of no mask.
  static constexpr std::int8_t no_tiles = 0;
  g.block_mask = t.block_mask.data == nullptr ? &no_tiles : t.block_mask.as<std::int8_t>();
}

/// Terms of the score, checked and copied. `shapes()` describes the tensors in messages.
template <class Shapes>
void score_term_arguments(char const* operation, abi::AttentionArgs& g, Shapes const& shapes,
                          ScoreTerms const& t) {
  std::int64_t const target[4] = {g.batch, g.heads_q, g.seqlen_q, g.seqlen_kv};
  if (t.bias.given()) {
    broadcast_strides(operation, "bias", t.bias, target, g.bias_stride, shapes);
    g.bias = t.bias.data;
    g.type_bias = t.bias.type;
  }
  if (t.mask.given()) {
    broadcast_strides(operation, "mask", t.mask, target, g.mask_stride, shapes);
    g.mask = t.mask.as<std::uint8_t>();
  }
  block_mask_arguments(operation, g, shapes, t);
  g.alibi = per_head_ref(operation, "alibi", t.alibi, g.batch, g.heads_q, g.alibi_stride);
  if (t.sinks.given()) {
    if (t.sinks.extent[0] != g.heads_q)
      raise<ShapeError>(operation, ": sinks is ", describe(t.sinks),
                        "; expected one per query head, [", g.heads_q, "]");
    g.sinks = t.sinks.data;
    g.type_sinks = t.sinks.type;
    g.sinks_stride = t.sinks.stride[0];
  }
  g.descale_q =
      per_head_ref(operation, "descale of q", t.descale_q, g.batch, g.heads_kv, g.descale_q_stride);
  g.descale_k =
      per_head_ref(operation, "descale of k", t.descale_k, g.batch, g.heads_kv, g.descale_k_stride);
  g.descale_v =
      per_head_ref(operation, "descale of v", t.descale_v, g.batch, g.heads_kv, g.descale_v_stride);
}

/// A float array of one number for each head, or for each of a batch.
template <ExecutionSpace Exec, TensorLike T>
AnyTensor any_per_head(T const& view) {
  check_tensor<Exec, T>();
  static_assert(std::is_same_v<element_t<T>, float>,
                "attikos::attention: slopes and descale factors are float");
  static_assert(rank_of<T> == 1 || rank_of<T> == 2,
                "attikos::attention: slopes and descale factors have rank 1 or 2");
  return any_tensor(view);
}

/// A floating-point tensor that enters the scores.
template <ExecutionSpace Exec, TensorLike T>
AnyTensor any_term(T const& view) {
  check_tensor<Exec, T>();
  static_assert(is_floating_element<element_t<T>> && sizeof(element_t<T>) >= 2,
                "attikos::attention: bias and sinks are double, float, float16 or bfloat16");
  return any_tensor(view);
}

/// The terms among the extras of a call, whose static types are checked here.
template <ExecutionSpace Exec, class... Extras>
ScoreTerms score_terms(Extras const&... extras) {
  ScoreTerms t;
  auto const bias = find_extra<Bias>(extras...);
  if constexpr (is_present<decltype(bias)>) {
    constexpr int rank = rank_of<decltype(bias.view)>;
    static_assert(rank >= 2 && rank <= 4, "attikos::attention: bias and mask have rank 2, 3 or 4");
    t.bias = any_term<Exec>(bias.view);
  }
  auto const mask = find_extra<Mask>(extras...);
  if constexpr (is_present<decltype(mask)>) {
    using View = decltype(mask.view);
    static_assert(is_accessible<Exec, View>(),
                  "attikos::attention: the mask cannot be reached from the execution space");
    static_assert(
        std::is_same_v<element_t<View>, bool> || std::is_same_v<element_t<View>, std::uint8_t>,
        "attikos::attention: the mask is bool or uint8_t");
    static_assert(rank_of<View> >= 2 && rank_of<View> <= 4,
                  "attikos::attention: bias and mask have rank 2, 3 or 4");
    t.mask = any_tensor(mask.view);
  }
  auto const blocks = find_extra<BlockMask>(extras...);
  if constexpr (is_present<decltype(blocks)>) {
    t.block_mask = any_block_mask<Exec>(blocks.view);
    t.block_shape = blocks.shape;
  }
  auto const slopes = find_extra<Alibi>(extras...);
  if constexpr (is_present<decltype(slopes)>) t.alibi = any_per_head<Exec>(slopes.slopes);
  auto const sinks = find_extra<Sinks>(extras...);
  if constexpr (is_present<decltype(sinks)>) {
    static_assert(rank_of<decltype(sinks.view)> == 1, "attikos::attention: sinks have rank 1");
    t.sinks = any_term<Exec>(sinks.view);
  }
  auto const factors = find_extra<Descale>(extras...);
  if constexpr (is_present<decltype(factors)>) {
    t.descale_q = any_per_head<Exec>(factors.q);
    t.descale_k = any_per_head<Exec>(factors.k);
    t.descale_v = any_per_head<Exec>(factors.v);
  }
  return t;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
