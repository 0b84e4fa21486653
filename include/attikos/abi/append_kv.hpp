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
  bool queries_share_position = false;  ///< all are rotated as the first
};

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
