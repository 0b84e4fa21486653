// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Arguments of an attention kernel: pointers, extents, 64-bit strides in elements.
#pragma once

#include <attikos/abi/compute.hpp>
#include <attikos/abi/dtype.hpp>
#include <attikos/abi/option_members.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Which corner of the score matrix the causal diagonal runs into when query and key lengths
/// differ.
enum class CausalAlignment : std::uint8_t {
  bottom_right,  ///< j ≤ i + len_kv − len_q: the last query sees every key
  top_left       ///< j ≤ i: the first query sees one key
};

namespace abi {

/// A rank-1 array of 32- or 64-bit integers on the device, such as the row map of a CSR graph.
struct Offsets {
  void const* data = nullptr;
  bool wide = false;  ///< 64-bit entries
  std::int64_t stride = 1;

  ATTIKOS_HD std::int64_t operator[](std::int64_t i) const {
    return wide ? static_cast<std::int64_t const*>(data)[i * stride]
                : static_cast<std::int32_t const*>(data)[i * stride];
  }
};

/// One attention problem. Strides are ordered batch, head, position, feature; 0 where a dimension
/// is broadcast or does not exist. Pointers below "optional" are null where the call did not ask.
struct AttentionArgs {
  void const* q = nullptr;
  void const* k = nullptr;
  void const* v = nullptr;
  void* out = nullptr;
  void* lse = nullptr;          ///< null: not wanted
  DType type = DType::float32;  ///< of q, k and v
  DType type_out = DType::float32;
  std::int64_t batch = 0, heads_q = 0, heads_kv = 0, seqlen_q = 0, seqlen_kv = 0, head_dim = 0,
               head_dim_v = 0;
  std::int64_t q_stride[4] = {}, k_stride[4] = {}, v_stride[4] = {}, out_stride[4] = {};
  std::int64_t lse_stride[3] = {};
  double softmax_scale = 1;  ///< no longer 0
  ATTIKOS_OPTION_SOFTCAP(ATTIKOS_CXX_OPTION_MEMBER)
  ATTIKOS_OPTION_CAUSAL(ATTIKOS_CXX_OPTION_MEMBER)
  CausalAlignment causal_alignment = CausalAlignment::bottom_right;
  ATTIKOS_OPTION_WINDOW(ATTIKOS_CXX_OPTION_MEMBER)
  /// What the caller allows; a kernel may be more precise than that.
  ATTIKOS_OPTION_COMPUTE(ATTIKOS_CXX_OPTION_MEMBER)
  /// Multiprocessors that other kernels use meanwhile: a hint on how to deal tiles. It has no row
  /// below, since a kernel that does not look at it gives the same result.
  std::int32_t sm_margin = 0;

  // Optional from here on.

  /// Lengths per sequence. Entry (b, h) lies at b·stride[0] + h·stride[1]; kernels clamp to the
  /// allocation.
  std::int32_t const* lengths_q = nullptr;
  std::int32_t const* lengths_kv = nullptr;
  std::int64_t lengths_q_stride[2] = {}, lengths_kv_stride[2] = {};
  /// Packed sequences: batch + 1 offsets, sequence b is positions [cu[b], cu[b + 1]); then seqlen
  /// is the number of positions in all and the batch stride of the tensor 0. Kernels clamp to it.
  Offsets cu_seqlens_q = {}, cu_seqlens_kv = {};
  /// Paged keys and values: dimension 0 of k and v counts pages, seqlen_kv = max_pages·page_size.
  std::int32_t const* page_table = nullptr;
  std::int64_t page_table_stride[2] = {};
  std::int64_t page_size = 0, num_pages = 0;

  void const* bias = nullptr;  ///< added to the scores, [batch, heads_q, seqlen_q, seqlen_kv]
  DType type_bias = DType::float32;
  std::int64_t bias_stride[4] = {};
  std::uint8_t const* mask = nullptr;  ///< 0 excludes the pair; extents as bias
  std::int64_t mask_stride[4] = {};
  /// What a predicate says of tiles of pairs: 0 of none of them, 1 of all, anything else of some.
  /// [batch, heads_q, block_mask_tiles]; the predicate decides of pairs past block_mask_extent.
  std::int8_t const* block_mask = nullptr;
  std::int64_t block_mask_stride[4] = {};
  std::int64_t block_mask_extent[2] = {};  ///< queries, keys that the tiles tell of
  std::int64_t block_mask_tiles[2] = {};   ///< along queries, along keys
  std::int64_t block_size[2] = {};         ///< queries, keys of a tile
  float const* alibi = nullptr;            ///< slope per (batch, head)
  std::int64_t alibi_stride[2] = {};
  void const* sinks = nullptr;  ///< one logit per query head, in the denominator only
  DType type_sinks = DType::float32;
  std::int64_t sinks_stride = 0;
  /// Factors that float8 elements are multiplied by, per (batch, heads_kv).
  float const* descale_q = nullptr;
  float const* descale_k = nullptr;
  float const* descale_v = nullptr;
  std::int64_t descale_q_stride[2] = {}, descale_k_stride[2] = {}, descale_v_stride[2] = {};

  ATTIKOS_LATER_SCORE_OPTIONS(ATTIKOS_CXX_OPTION_MEMBER)
};

/// What an attention call may ask for beyond out, and ATTIKOS_LATER_SCORE_OPTIONS. See options.hpp.
#define ATTIKOS_ATTENTION_ARGUMENTS(X)                                             \
  X(lse, "it does not write the log-sum-exp")                                      \
  X(softcap, "it has no softcap")                                                  \
  X(causal, "it has no causal mask")                                               \
  X(causal_alignment, "its causal diagonal does not begin in the top left corner") \
  X(window_left, "it has no window")                                               \
  X(window_right, "it has no window")                                              \
  X(lengths_q, "it reads no lengths of q")                                         \
  X(lengths_kv, "it reads no lengths of k and v")                                  \
  X(cu_seqlens_q, "it takes no packed sequences")                                  \
  X(cu_seqlens_kv, "it takes no packed sequences")                                 \
  X(page_table, "it reads no pages")                                               \
  X(bias, "it has no bias")                                                        \
  X(mask, "it has no boolean mask")                                                \
  X(block_mask, "it has no block mask")                                            \
  X(alibi, "it has no ALiBi")                                                      \
  X(sinks, "it has no sinks")                                                      \
  X(descale_q, "it has no factors of float8 tensors")                              \
  X(descale_k, "it has no factors of float8 tensors")                              \
  X(descale_v, "it has no factors of float8 tensors")

enum class AttentionOption : std::uint8_t {
  ATTIKOS_ATTENTION_ARGUMENTS(ATTIKOS_ARGUMENT_ENUMERATOR)
      ATTIKOS_LATER_SCORE_OPTIONS(ATTIKOS_CXX_OPTION_ENUMERATOR)
};
using AttentionOptionSet = OptionSet<AttentionOption>;

constexpr bool is_asked(Offsets const& given, Offsets const&) noexcept {
  return given.data != nullptr;
}

/// The options that a call uses. Types, extents, strides, the scale and what `compute` allows are
/// not options: every kernel checks those itself.
constexpr AttentionOptionSet options_of(AttentionArgs const& args) noexcept {
  // Every member is named here. A new one is an option and gets a row above, unless all kernels
  // work without looking at it.
  [[maybe_unused]] auto const& [q, k, v, out, lse, type, type_out, batch, heads_q, heads_kv,
                                seqlen_q, seqlen_kv, head_dim, head_dim_v, q_stride, k_stride,
                                v_stride, out_stride, lse_stride, softmax_scale, softcap, causal,
                                causal_alignment, window_left, window_right, compute, sm_margin,
                                lengths_q, lengths_kv, lengths_q_stride, lengths_kv_stride,
                                cu_seqlens_q, cu_seqlens_kv, page_table, page_table_stride,
                                page_size, num_pages, bias, type_bias, bias_stride, mask,
                                mask_stride, block_mask, block_mask_stride, block_mask_extent,
                                block_mask_tiles, block_size, alibi, alibi_stride, sinks,
                                type_sinks, sinks_stride, descale_q, descale_k, descale_v,
                                descale_q_stride, descale_k_stride,
                                descale_v_stride ATTIKOS_LATER_SCORE_OPTIONS(
                                    ATTIKOS_CXX_OPTION_NAME)] = args;
  using Option = AttentionOption;
  constexpr AttentionArgs unasked{};
  return AttentionOptionSet() ATTIKOS_ATTENTION_ARGUMENTS(ATTIKOS_ARGUMENT_ASKED)
      ATTIKOS_LATER_SCORE_OPTIONS(ATTIKOS_CXX_OPTION_ASKED);
}

/// Why a kernel that takes these options alone refuses a call: the reason of the first option that
/// the call uses and the kernel does not take; null if there is none.
constexpr char const* beyond(AttentionArgs const& args, AttentionOptionSet takes) noexcept {
  using Option = AttentionOption;
  constexpr OptionReason<Option> reasons[] = {ATTIKOS_ATTENTION_ARGUMENTS(
      ATTIKOS_ARGUMENT_REASON) ATTIKOS_LATER_SCORE_OPTIONS(ATTIKOS_CXX_OPTION_REASON)};
  return first_unknown(reasons, options_of(args), takes);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
