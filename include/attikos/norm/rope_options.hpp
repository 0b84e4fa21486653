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
  /// How many leading features of a head are rotated: the width of the tables (which 0 stands for),
  /// or twice that for tables that hold one entry per pair.
  std::int64_t rotary_dim = 0;
};

/// What one root mean square is taken over.
enum class NormExtent : std::uint8_t {
  hidden,  ///< all heads of a token together; the weight has `hidden` elements
  head,    ///< every head by itself (QK-norm); the weight has `head_dim` elements
};

/// Options of rms_norm_rope() and rms_norm_rope_backward().
struct RmsNormRopeOptions {
  double eps = 1e-6;                        ///< added to the mean square
  std::int64_t num_heads = 0;               ///< 0: hidden over the number of rotated features
  NormExtent norm = NormExtent::hidden;     ///< what one root mean square is taken over
  RopeStyle style = RopeStyle::half_split;  ///< which features form pairs
  std::int64_t position_offset = 0;         ///< added to every position
  /// As in RopeOptions. Less than head_dim only where it and num_heads are given: the other
  /// features of a head are normalized and not rotated.
  std::int64_t rotary_dim = 0;
};

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
