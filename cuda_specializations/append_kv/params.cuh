// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What a launch of append_kv/sm80_simt is told, and how its threads share the rows.
#pragma once

#include <attikos/abi/append_kv.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Keys, values or queries: tensors [outer, heads, tokens, elements] that rows come from and go to.
/// Strides count bytes.
///
/// An item is a token and some of its heads. Its row is cut into groups of elements that are loaded
/// at once, and a thread has two of them, its slot, for all heads of the item: what the rotation
/// mixes, or two others.
struct AppendKvPart {
  unsigned char const* from;
  unsigned char* to;
  std::int64_t from_stride[4], to_stride[4];
  unsigned tokens, heads, heads_per_item, chunks;  ///< `chunks` items make the heads of a token
  unsigned items, items_per_block;
  int groups, slots, rotated_slots;
  unsigned lanes;  ///< threads of an item; each takes every so many-th slot
};

/// Which tokens there are: the sequence of each and its number there.
struct AppendKvTokens {
  abi::Offsets offsets;         ///< of packed sequences; data null: padded
  std::int32_t const* lengths;  ///< of padded ones; null: all are full
  std::int64_t lengths_stride;
};

/// Rows of cosines and sines; strides count elements.
struct AppendKvTables {
  void const *cos, *sin;
  std::int64_t rows, cos_stride[2], sin_stride[2];
  DType type;
  bool interleaved, half_width;
  bool vectors;  ///< a group's entries are loaded at once
};

struct AppendKvParams {
  AppendKvPart parts[3];     ///< keys, values, queries
  unsigned first_block[3];   ///< of the part after: blocks are dealt out in order
  AppendKvTokens tokens[2];  ///< of keys and values, of queries
  AppendKvTables tables;
  int batch;
  bool queries_share_position;
  std::int32_t const* cache_lengths;
  std::int64_t cache_lengths_stride;
  std::int32_t const* page_table;
  std::int64_t page_table_stride[2];
  std::int64_t capacity, num_pages;
  unsigned page_size;
};

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
