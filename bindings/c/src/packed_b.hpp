// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory of attikos_pack_b: what it holds stands in its first bytes, so that a caller keeps one
// array.
#pragma once

#include <attikos/gemm/pack_b.hpp>

#include "tensor.hpp"

namespace attikos::c {

/// Bytes of the header, and those that may stand behind it for what follows to be aligned.
inline constexpr std::size_t packed_header = 64;
inline constexpr std::size_t packed_slack = packed_b_alignment - 1;

/// How far into memory that begins at `data` the panels begin: caller's memory lies anywhere.
inline std::size_t packed_offset(void const* data) {
  auto const address = reinterpret_cast<std::uintptr_t>(data) + packed_header;
  return packed_header + (packed_b_alignment - address % packed_b_alignment) % packed_b_alignment;
}

/// Checks B, whose data are looked at if `reads` says so, as what can be packed.
Tensor read_unpacked(char const* operation, attikos_tensor const* b, bool reads,
                     attikos_context const& context);

/// Refuses what cannot be packed memory: it is uint8 and dense.
void expect_packed(char const* operation, Tensor const& packed);

/// What memory of attikos_pack_b says that it holds, which is `b` as far as type and extents tell.
PackedLayout read_packed_layout(char const* operation, Tensor const& packed, Tensor const& b);

/// The packed factor behind its header.
template <class T>
PackedB<T> packed_factor(Tensor const& packed, PackedLayout const& layout) {
  std::size_t const offset = packed_offset(packed.data);
  std::size_t const size = static_cast<std::size_t>(packed.extent[0]);
  auto const* const bytes = static_cast<std::uint8_t const*>(packed.data);
  return {typename PackedB<T>::Memory(bytes + offset, size < offset ? 0 : size - offset), layout};
}

}  // namespace attikos::c
