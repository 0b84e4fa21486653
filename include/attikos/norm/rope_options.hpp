// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What rotary embeddings may be asked for.
#pragma once

#include <attikos/config.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Which features form the pairs that are rotated.
enum class RopeStyle : std::uint8_t {
  half_split,   ///< feature i with feature i + rotary_dim/2
  interleaved,  ///< feature 2i with feature 2i + 1
};

/// Options of rope() and rope_backward().
struct RopeOptions {
  RopeStyle style = RopeStyle::half_split;  ///< which features form pairs
  std::int64_t position_offset = 0;         ///< added to every position
};

/// What one root mean square is taken over.
enum class NormExtent : std::uint8_t {
  hidden,  ///< all heads of a token together; the weight has `hidden` elements
  head,    ///< every head by itself (QK-norm); the weight has `head_dim` elements
};

/// Options of rms_norm_rope() and rms_norm_rope_backward().
struct RmsNormRopeOptions {
  double eps = 1e-6;                        ///< added to the mean square
  std::int64_t num_heads = 0;               ///< 0: hidden/head_dim
  NormExtent norm = NormExtent::hidden;     ///< what one root mean square is taken over
  RopeStyle style = RopeStyle::half_split;  ///< which features form pairs
  std::int64_t position_offset = 0;         ///< added to every position
};

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
