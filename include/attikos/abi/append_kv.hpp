// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Arguments of a kernel that appends keys and values to a cache.
#pragma once

#include <attikos/abi/attention.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

/// New keys and values, the cache they go to, and queries that are rotated with them. Strides count
/// elements and are ordered batch, head, position, feature; pointers below "optional" are null
/// where the call did not ask.
struct AppendKvArgs {
  void const* k_new = nullptr;  ///< [batch, heads, seqlen_new, head_dim]; packed: batch is 1
  void const* v_new = nullptr;  ///< the same with head_dim_v
  void* k_cache = nullptr;      ///< [batch, heads, capacity, head_dim]; paged: see below
  void* v_cache = nullptr;      ///< the same with head_dim_v
  DType type_new = DType::float32, type_cache = DType::float32;
  std::int64_t batch = 0;  ///< number of sequences
  std::int64_t heads = 0, seqlen_new = 0, head_dim = 0, head_dim_v = 0;
  std::int64_t capacity = 0;  ///< positions of a sequence in the cache
  std::int64_t k_new_stride[4] = {}, v_new_stride[4] = {};
  std::int64_t k_cache_stride[4] = {}, v_cache_stride[4] = {};

  // Optional. Lengths are read on the device.
  Offsets cu_seqlens_new = {};                ///< of packed k_new and v_new, batch + 1 entries
  std::int32_t const* new_lengths = nullptr;  ///< of padded ones: tokens that are new, per sequence
  std::int64_t new_lengths_stride = 0;
  std::int32_t const* cache_lengths = nullptr;  ///< positions in use; null: none are
  std::int64_t cache_lengths_stride = 0;
  /// Dimension 0 of the caches counts pages, dimension 2 positions of a page; capacity is
  /// max_pages·page_size.
  std::int32_t const* page_table = nullptr;
  std::int64_t page_table_stride[2] = {};
  std::int64_t page_size = 0, num_pages = 0;

  /// Tables [table_rows, rotary_dim], or half that width: the position's row rotates k_new and q.
  void const* cos = nullptr;
  void const* sin = nullptr;
  DType type_table = DType::float32;
  std::int64_t table_rows = 0, rotary_dim = 0;
  std::int64_t cos_stride[2] = {}, sin_stride[2] = {};
  bool interleaved = false;  ///< pairs are neighbors; else features i and i + rotary_dim/2
  bool half_width = false;   ///< both features of a pair have one entry

  /// Queries [batch, heads_q, seqlen_q, head_dim] (packed: batch is 1) and where they go rotated,
  /// which may be where they are. Packed ones of no sequence become 0.
  void const* q = nullptr;
  void* q_out = nullptr;
  DType type_q = DType::float32, type_q_out = DType::float32;
  std::int64_t heads_q = 0, seqlen_q = 0;
  std::int64_t q_stride[4] = {}, q_out_stride[4] = {};
  Offsets cu_seqlens_q = {};
  ATTIKOS_OPTION_QUERIES_SHARE_POSITION(ATTIKOS_CXX_OPTION_MEMBER)
};

/// What a call may ask for beyond new keys and values at the beginning of a cache. See options.hpp.
#define ATTIKOS_APPEND_KV_ARGUMENTS(X)                            \
  X(cu_seqlens_new, "it takes no packed tokens")                  \
  X(new_lengths, "it does not count the tokens of each sequence") \
  X(cache_lengths, "it appends to empty caches only")             \
  X(page_table, "it writes no pages")                             \
  X(cos, "it does not rotate")                                    \
  X(sin, "it does not rotate")                                    \
  X(interleaved, "it does not rotate neighboring features")       \
  X(half_width, "it reads no tables of half width")               \
  X(q, "it takes no queries")                                     \
  X(q_out, "it takes no queries")                                 \
  X(cu_seqlens_q, "it takes no packed queries")                   \
  X(queries_share_position, "it rotates each query by a position of its own")

enum class AppendKvOption : std::uint8_t {
  ATTIKOS_APPEND_KV_ARGUMENTS(ATTIKOS_ARGUMENT_ENUMERATOR)
};
using AppendKvOptionSet = OptionSet<AppendKvOption>;

/// The options that a call uses. Types, extents and strides are not options: every kernel checks
/// those itself.
constexpr AppendKvOptionSet options_of(AppendKvArgs const& args) noexcept {
  // Every member is named here. A new one is an option and gets a row above, unless all kernels
  // work without looking at it.
  [[maybe_unused]] auto const& [k_new, v_new, k_cache, v_cache, type_new, type_cache, batch, heads,
                                seqlen_new, head_dim, head_dim_v, capacity, k_new_stride,
                                v_new_stride, k_cache_stride, v_cache_stride, cu_seqlens_new,
                                new_lengths, new_lengths_stride, cache_lengths,
                                cache_lengths_stride, page_table, page_table_stride, page_size,
                                num_pages, cos, sin, type_table, table_rows, rotary_dim, cos_stride,
                                sin_stride, interleaved, half_width, q, q_out, type_q, type_q_out,
                                heads_q, seqlen_q, q_stride, q_out_stride, cu_seqlens_q,
                                queries_share_position] = args;
  using Option = AppendKvOption;
  constexpr AppendKvArgs unasked{};
  return AppendKvOptionSet() ATTIKOS_APPEND_KV_ARGUMENTS(ATTIKOS_ARGUMENT_ASKED);
}

/// Why a kernel that takes these options alone refuses a call: the reason of the first option that
/// the call uses and the kernel does not take; null if there is none.
constexpr char const* beyond(AppendKvArgs const& args, AppendKvOptionSet takes) noexcept {
  using Option = AppendKvOption;
  constexpr OptionReason<Option> reasons[] = {ATTIKOS_APPEND_KV_ARGUMENTS(ATTIKOS_ARGUMENT_REASON)};
  return first_unknown(reasons, options_of(args), takes);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
