// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What a decode call may ask for besides its tensors.
#pragma once

#include <attikos/attention/attention_options.hpp>
#include <attikos/core/determinism.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of decode(). All are run-time values; those that attention() has too mean the same, and
/// come from the same rows of abi/option_tables.h.
struct DecodeOptions {
  ATTIKOS_OPTION_SOFTMAX_SCALE(ATTIKOS_CXX_OPTION_MEMBER)
  ATTIKOS_OPTION_CAUSAL(ATTIKOS_CXX_OPTION_MEMBER)
  CausalAlignment causal_alignment =
      CausalAlignment::bottom_right;  ///< offset len_kv − len_q, or 0
  char const* kernel = "";            ///< "" chooses; a name demands it and never falls back
  ATTIKOS_OPTION_WINDOW(ATTIKOS_CXX_OPTION_MEMBER)
  ATTIKOS_OPTION_SOFTCAP(ATTIKOS_CXX_OPTION_MEMBER)
  /// At most this many parts of the cache are worked on apart; 0: as many as are worth while. The
  /// result depends on it by rounding only. Given, it makes bits batch-invariant; see decode().
  std::int64_t splits = 0;
  /// `batch_invariant` leaves splits to what does not depend on the batch: 16 on a device.
  Determinism determinism = Determinism::run_to_run;
  ATTIKOS_LATER_SCORE_OPTIONS(ATTIKOS_CXX_OPTION_MEMBER)
};

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
