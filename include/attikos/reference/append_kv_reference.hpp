// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Where `append_kv` puts a position, plainly. Its rotation is that of reference::rope_head.
#pragma once

#include <attikos/config.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace reference {

/// Dimensions 0 and 2 of a cache.
struct CacheSlot {
  std::int64_t outer, row;
};

/// The slot of a position of sequence b in a plain cache; none where there is no room.
inline std::optional<CacheSlot> plain_slot(std::int64_t b, std::int64_t position,
                                           std::int64_t seqlen_max) {
  if (position < 0 || position >= seqlen_max) return std::nullopt;
  return CacheSlot{b, position};
}

/// The slot of a position in a paged cache whose sequence has these pages.
inline std::optional<CacheSlot> paged_slot(std::vector<std::int64_t> const& pages,
                                           std::int64_t position, std::int64_t page_size,
                                           std::int64_t num_pages) {
  for (std::size_t p = 0; p < pages.size(); ++p) {
    std::int64_t const first = static_cast<std::int64_t>(p) * page_size;
    if (position < first || position >= first + page_size) continue;
    if (pages[p] < 0 || pages[p] >= num_pages) return std::nullopt;
    return CacheSlot{pages[p], position - first};
  }
  return std::nullopt;
}

}  // namespace reference
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
