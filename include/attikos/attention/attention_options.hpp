// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What an attention call may ask for besides its tensors.
#pragma once

#include <attikos/abi/attention.hpp>
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

/// Options of attention(). All are run-time values.
struct AttentionOptions {
  double softmax_scale = 0;  ///< factor of q·k; 0 means 1/√head_dim
  bool causal = false;       ///< key j is visible to query i only if j ≤ i + offset
  CausalAlignment causal_alignment =
      CausalAlignment::bottom_right;  ///< offset len_kv − len_q, or 0
  AttentionAlgorithm algorithm = AttentionAlgorithm::flash;
  char const* kernel = "";  ///< "" chooses; a name demands it and never falls back
};

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
