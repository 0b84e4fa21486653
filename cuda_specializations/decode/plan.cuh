// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Host side that the decode kernels share: which calls they refuse for their extents, how many
/// tiles and states a call has, and what every kernel is told of it.
#pragma once

#include <attikos/abi/decode.hpp>

#include "common/check.cuh"
#include "common/limits.cuh"
#include "sequences/call.cuh"
#include "sequences/launch.cuh"
#include "sequences/row_params.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// How a problem is cut up, but for the number of parts, which a kernel's own plan chooses.
struct DecodeParts {
  bool packed;
  std::int64_t group;    ///< query heads to a key head
  std::int64_t queries;  ///< of a sequence; packed ones are taken for equally long
  std::int64_t tiles, states, splits;
  std::int64_t state_width;

  explicit DecodeParts(abi::DecodeArgs const& args)
      : packed(args.cu_seqlens_q.data != nullptr),
        group(args.heads_kv == 0 ? std::max<std::int64_t>(args.heads_q, 1)
                                 : args.heads_q / args.heads_kv),
        queries(packed ? (args.seqlen_q + sequences(args) - 1) / sequences(args) : args.seqlen_q),
        tiles(0),
        states((packed ? 1 : args.batch) * args.heads_q * args.seqlen_q),
        splits(args.splits),
        state_width((args.head_dim_v + 3) / 4 * 4) {}

  static std::int64_t sequences(abi::DecodeArgs const& args) {
    return std::max<std::int64_t>(args.batch, 1);
  }
  /// Tiles of `height` rows. Each packed sequence begins one of its own.
  void cut_rows(abi::DecodeArgs const& args, std::int64_t height) {
    std::int64_t const rows = group * args.seqlen_q;
    tiles = packed ? rows / height + args.batch + 2 : (rows + height - 1) / height;
  }
  /// Tiles of all sequences, each of which goes over a whole cache.
  std::int64_t units(abi::DecodeArgs const& args, std::int64_t height) const {
    return std::max<std::int64_t>(
        sequences(args) * args.heads_kv * ((group * queries + height - 1) / height), 1);
  }
  void limit_splits(abi::DecodeArgs const& args) {
    splits = std::clamp<std::int64_t>(
        splits, 1, std::min<std::int64_t>(most_decode_splits, args.seqlen_kv / 128 + 1));
  }

  /// Blocks of the first launch.
  std::int64_t blocks(abi::DecodeArgs const& args) const {
    return (packed ? 1 : args.batch) * std::max<std::int64_t>(args.heads_kv, 1) * tiles * splits;
  }
  /// Sums of type Acc of all parts, behind an address that is a multiple of 16.
  template <class Acc>
  std::size_t bytes() const {
    return splits == 1 ? 0
                       : static_cast<std::size_t>(states * splits) *
                                 static_cast<std::size_t>(state_width + 1) * sizeof(Acc) +
                             32;
  }
};

/// What a kernel takes.
struct DecodeLimits {
  std::int64_t most_head_dim;
  char const* above;  ///< what to say of larger ones
  abi::AttentionOptionSet takes;
  bool float64_bias;
};

/// First reason not to take a call that lies in the device, in options or in extents; null if there
/// is none, as where nothing is to be done.
inline char const* refuse_decode_extents(abi::DecodeArgs const& g, abi::Device const& device,
                                         DecodeLimits const& limits) {
  if (char const* reason = refuse_before_sm80(device)) return reason;
  if (char const* reason = abi::beyond(g, limits.takes)) return reason;
  if (char const* reason = refuse_bias_type(g, limits.float64_bias)) return reason;
  if (g.lengths_q != nullptr && g.lengths_q_stride[1] != 0 && g.heads_q > 1)
    return "lengths of q differ between heads";
  if (has_negative_extent(g)) return "an extent is negative";
  if (g.page_table != nullptr && g.page_size == 0) return "page_size is 0";
  if (is_empty(g)) return nullptr;
  if (char const* reason = refuse_extents(g)) return reason;
  if (std::max(g.head_dim, g.head_dim_v) > limits.most_head_dim) return limits.above;
  if (g.heads_kv == 0) return "k and v have no heads";
  if (g.num_pages >= most_positions || g.heads_q / g.heads_kv * g.seqlen_q >= most_positions)
    return "an extent is too large";
  return nullptr;
}

/// Why one launch has no place for all blocks, or a state no number; null if they have.
inline char const* refuse_decode_tiles(abi::DecodeArgs const& g, DecodeParts const& parts) {
  if (char const* reason = refuse_tiles(parts.states, most_positions - 1)) return reason;
  return refuse_tiles(parts.blocks(g), most_blocks_x);
}

/// What every kernel is told of a call that has been accepted; false where its parts need a
/// workspace and there is none. `Acc`: of the sums of parts.
template <class Acc>
bool tell_decode(abi::DecodeArgs const& g, DecodeParts const& parts, DecodeParams& p) {
  p.args = g;
  p.states = parts.states;
  p.state_width = static_cast<int>(parts.state_width);
  p.splits = static_cast<int>(parts.splits);
  p.tiles = static_cast<int>(parts.tiles);
  p.group = static_cast<int>(parts.group);
  plan_window(g, p);
  p.terms = g.softcap > 0 || g.bias != nullptr || g.alibi != nullptr || g.mask != nullptr;
  if (parts.splits == 1) return true;
  if (g.workspace == nullptr) return false;
  auto const address = (reinterpret_cast<std::uintptr_t>(g.workspace) + 15) / 16 * 16;
  auto* const sums = reinterpret_cast<Acc*>(address);
  p.partial_out = reinterpret_cast<float*>(sums);
  p.partial_lse = reinterpret_cast<float*>(sums + parts.states * parts.splits * parts.state_width);
  return true;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
