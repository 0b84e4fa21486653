// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Launches of attention/sm90_wgmma_*: what a kernel is told of a call, and which shape of kernel a
/// head dimension takes. Each element type has a translation unit for a few head dimensions, which
/// includes this.
#pragma once

#include <cmath>
#include <numeric>

#include "kernel.cuh"
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Works out softcap's series; without softcap it is left as one that is never used.
///
/// P is the polynomial of least relative error, 2^-19.7, for tanh(x) / x in x² up to 0.09: less
/// than the products' own.
inline void make_series(abi::AttentionArgs const& g, CapSeries& series) {
  series.exponent = ~0u;
  double const ratio = g.softmax_scale / g.softcap, limit = 0.09 / (ratio * ratio);
  if (!(limit > 0x1p-60 && limit < 0x1p60)) return;
  int exponent;
  std::frexp(limit, &exponent);  // limit <= 2^exponent
  double const shift = std::ldexp(2.0, exponent) - limit, unit = g.softmax_scale * log2_e;
  // The polynomial in x² becomes one in s² + shift.
  double a[3] = {0.9999988388724449, -0.333100216525011, 0.12633945961192697};
  for (int k = 0; k < 3; ++k)
    for (int r = 1; r >= k; --r) a[r] -= a[r + 1] * shift * ratio * ratio;
  series.shift = static_cast<float>(shift);
  series.exponent = static_cast<std::uint32_t>(127 + exponent);
  double power = unit;
  for (int k = 0; k < 3; ++k, power *= ratio * ratio)
    series.factor[k] = static_cast<float>(a[k] * power);
}

/// Describes the bias of a call to the copy engine and the kernel.
inline cudaError_t make_bias_map(abi::AttentionArgs const& g, Sm90AttentionParams& p) {
  std::int64_t const extent[4] = {g.batch, g.heads_q, g.seqlen_q, g.seqlen_kv};
  if (g.type_bias == DType::float32)
    return make_operand_map<float>(&p.bias, g.bias, extent, g.bias_stride, 64, p.bias_steps);
  // Of 16 bits the copy engine has to know no more.
  return make_operand_map<__half>(&p.bias, g.bias, extent, g.bias_stride, 64, p.bias_steps);
}

/// Log2 of the heads that share a tile: as many as leave a hundredth less to do, counted in keys
/// that tiles see, where heads have nothing of their own that speaks against it. Few queries fill
/// a tile of several heads, and a tile of fewer positions sees fewer keys that masks exclude.
///
/// From <H200 700 W, CUDA 13.0, bfloat16, 32 query heads on 8 (16 on 4 at head_dim 256), 4096
/// keys>, times faster than with heads apart, at head_dim 64, 128 and 256: 16 queries
/// causal, 3.5, 3.0 and 2.0; 64, 1.9, 1.8 and 1.8; 160 in full, 1.3, 1.3 and 1.0; head_dim 256 with
/// a window of 1024, 1.12, causal in 512, 1.16.
template <class Config>
int choose_pack_shift(abi::AttentionArgs const& g) {
  bool const by_head = g.bias != nullptr || g.alibi != nullptr ||
                       (g.lengths_q != nullptr && g.lengths_q_stride[1] != 0);
  if (!Config::packs_heads || by_head || g.heads_kv == 0 || g.q_stride[1] == 0) return 0;
  auto const mean = [&](std::int64_t positions, bool packed) {
    std::int64_t const sequences = packed ? std::max<std::int64_t>(1, g.batch) : 1;
    return (positions + sequences - 1) / sequences;
  };
  std::int64_t const queries = mean(g.seqlen_q, g.cu_seqlens_q.data != nullptr);
  std::int64_t const keys = mean(g.seqlen_kv, g.cu_seqlens_kv.data != nullptr);
  auto const work = [&](int shift) {
    std::int64_t const rows = Config::tile_m >> shift;
    std::int64_t const beside = std::max<std::int64_t>(rows, Config::tile_n);
    std::int64_t seen = keys;  // by a tile, on average
    if (g.causal) {
      std::int64_t const offset =
          g.causal_alignment == CausalAlignment::bottom_right ? keys - queries : 0;
      seen = std::clamp<std::int64_t>(offset + (queries + beside) / 2, 0, keys);
    }
    if (g.window_left >= 0) seen = std::min(seen, g.window_left + beside);
    return (queries + rows - 1) / rows * (seen + 1) << (2 - shift);
  };
  int best = 0;
  for (int shift = 1; shift <= 2 && g.heads_q / g.heads_kv % (1 << shift) == 0; ++shift)
    if (100 * work(shift) <= 99 * work(0) && work(shift) < work(best)) best = shift;
  return best;
}

/// What a kernel is told of a call.
template <class Config>
cudaError_t make_attention_params(abi::AttentionArgs const& g, int multiprocessors,
                                  Sm90AttentionParams& p, int& blocks) {
  bool const packed_q = g.cu_seqlens_q.data != nullptr;
  using T = typename Config::Element;
  StoredExtents const extents(g);
  int const shift = choose_pack_shift<Config>(g);
  cudaError_t status =
      make_operand_map<T>(&p.q, g.q, extents.q, g.q_stride, 64 >> shift, p.q_steps, 1 << shift);
  if (status != cudaSuccess) return status;
  if (g.heads_kv != 0 && g.seqlen_kv != 0) {
    int rows = Config::tile_n;  // of a box
    if (g.page_table != nullptr) {
      rows = p.page_rows = static_cast<int>(std::gcd(g.page_size, std::int64_t{Config::tile_n}));
      p.by_page = Quotient(static_cast<int>(g.page_size));
      for (int r = 0; r < 3; ++r) {
        p.row_units[0][r] = static_cast<std::uint32_t>(units_of<T>(extents.k, g.k_stride, r));
        p.row_units[1][r] = static_cast<std::uint32_t>(units_of<T>(extents.v, g.v_stride, r));
      }
    }
    status = make_operand_map<T>(&p.k, g.k, extents.k, g.k_stride, rows, p.k_steps);
    if (status != cudaSuccess) return status;
    status = make_operand_map<T>(&p.v, g.v, extents.v, g.v_stride, rows, p.v_steps);
    if (status != cudaSuccess) return status;
  }
  if constexpr (Config::copies_bias) {
    status = make_bias_map(g, p);
    if (status != cudaSuccess) return status;
  }
  std::int64_t const bytes =
      plan_attention(g, Config::tile_m, multiprocessors, static_cast<int>(sizeof(T)), p, shift);
  blocks = static_cast<int>(
      std::min<std::int64_t>(std::int64_t{p.tiles_m} * p.heads, std::max(1, multiprocessors)));
  // Tiles of a causal problem differ in length. Rounds that are left over even out the end, but
  // their tiles of one head lie apart in time; it pays where L2 holds the keys meanwhile, or tiles
  // are long.
  std::int64_t const pairs_of_head = (p.tiles_m + 1) / 2, pairs = p.heads * pairs_of_head;
  std::int64_t const heads_left = std::min<std::int64_t>(p.heads, 4 * blocks / pairs_of_head);
  bool const held = (heads_left << shift) / p.group_of_heads * bytes <= std::int64_t{48} << 20;
  p.form = g.softcap > 0 && g.bias == nullptr && g.alibi == nullptr ? ScoreForm::capped
                                                                    : ScoreForm::general;
  if (g.softcap > 0) make_series(g, p.cap);
  p.bias_factor = static_cast<float>(1 / g.softmax_scale);
  p.rounds = -1;
  if (g.causal && p.window_left < 0 && !packed_q) {
    int const left = held || p.tiles_m > 64 ? 3 : p.tiles_m > 16 ? 1 : 0;
    p.rounds = static_cast<int>(std::max<std::int64_t>(0, pairs / blocks - left));
    // One of a head's few pairs is a single tile: every block takes it equally often.
    if (p.tiles_m % 2 != 0 && p.tiles_m < 9) p.rounds -= p.rounds % static_cast<int>(pairs_of_head);
  }
  // The first tiles of a window are shorter than others. They even out the end, unless the keys
  // that they see are more than L2 holds.
  if (!packed_q && p.window_left >= 0 && p.reach >= 0) {
    std::int64_t const offset =
        g.causal_alignment == CausalAlignment::bottom_right ? g.seqlen_kv - g.seqlen_q : 0;
    std::int64_t const rows = std::max<std::int64_t>(0, p.window_left - offset);
    std::int64_t const keys = std::min<std::int64_t>(g.seqlen_kv, p.window_left + p.reach);
    if ((std::int64_t{p.heads} << shift) / p.group_of_heads *
            (bytes / std::max<std::int64_t>(1, g.seqlen_kv)) * keys <=
        std::int64_t{48} << 20)
      p.short_tiles = static_cast<int>(std::min<std::int64_t>(
          p.tiles_m, ((rows << shift) + Config::tile_m - 1) / Config::tile_m));
  }
  // A block whose multiprocessor another kernel takes begins late, and a share dealt at once ends
  // as late. One block per unit the device deals as multiprocessors get free, but each starts anew:
  // with 16 of 132 multiprocessors taken for the first 20 % of the time, calls take 1.00 to 1.05
  // times as long instead of 1.12 to 1.18 (ideal: 1.024); with none taken, they are 1 to 4 % slower
  // at head_dim 128 and up to 12 % at 64 <H200>. Packed sequences are put in order by each block,
  // which would do so for every unit.
  std::int64_t const units = p.rounds >= 0 ? pairs : std::int64_t{p.tiles_m} * p.heads;
  if (g.sm_margin > 0 && !packed_q && units > blocks) {
    blocks = static_cast<int>(units);
    if (p.rounds >= 0) p.rounds = 1;
    // Of short tiles alone a first round would begin with the shortest.
    p.short_tiles = std::min(p.short_tiles, p.tiles_m - 1);
  }
  if (packed_q && g.batch + 2 <= Config::segments)
    p.ordered = p.reach >= 0 && p.window_left < 0 ? 2 : 1;
  return cudaSuccess;
}

template <class Config>
cudaError_t launch_attention(abi::AttentionArgs const& g, abi::Device const& device,
                             CUstream_st* stream) {
  Sm90AttentionParams p{};
  int blocks = 0;
  cudaError_t const status = make_attention_params<Config>(g, device.sm_count, p, blocks);
  if (status != cudaSuccess) return status;
  return launch_clusters(sm90_attention_kernel<Config>, blocks, 1, Config::threads,
                         Config::shared_bytes, stream, p);
}

/// Launches one of the shapes of shapes.cuh.
template <class T, class Shape>
cudaError_t launch_shape(Shape, abi::AttentionArgs const& g, abi::Device const& device,
                         CUstream_st* stream) {
  return launch_attention<Sm90AttentionConfig<T, Shape>>(g, device, stream);
}

/// Takes the shape for head dimensions up to 64.
template <class T>
cudaError_t launch_to_64(abi::AttentionArgs const& g, abi::Device const& device,
                         CUstream_st* stream) {
  using namespace sm90_attention_shapes;
  auto const launch = [&](auto shape) { return launch_shape<T>(shape, g, device, stream); };
  std::int64_t const d = std::max(g.head_dim, g.head_dim_v);
  std::int64_t const sequences = g.cu_seqlens_q.data != nullptr ? g.batch : 1;
  if constexpr (sizeof(T) == 1) {
    if (has_score_terms(g)) return launch(D64TermsBytes{});
    // Few queries fill a tile of several heads.
    if (g.seqlen_q <= 96 * sequences && choose_pack_shift<Sm90AttentionConfig<T, D64Bytes>>(g) != 0)
      return launch(D64Bytes{});
    return d <= 32 ? launch(D32WideBytes{}) : launch(D64WideBytes{});
  } else {
    if (has_columns(g)) return launch(D64Columns{});
    if (copies_bias(g)) return launch(D64Bias{});
    // What changes scores needs registers that a third warpgroup would take.
    if (has_score_terms(g)) return g.bias == nullptr ? launch(D64Softcap{}) : launch(D64Terms{});
    // Tiles of 192 queries but for short sequences, which waste them.
    std::int64_t const length = g.seqlen_q / std::max<std::int64_t>(1, sequences);
    bool const narrow = g.window_left >= 0 && g.window_left < 4096;
    if (d <= 32)
      return length > (g.causal ? 1024 : 256) && !narrow ? launch(D32Wide{}) : launch(D32{});
    return length > (g.causal ? 4096 : 1024) && !narrow ? launch(D64Wide{}) : launch(D64{});
  }
}

/// The same from there to 128.
template <class T>
cudaError_t launch_to_128(abi::AttentionArgs const& g, abi::Device const& device,
                          CUstream_st* stream) {
  using namespace sm90_attention_shapes;
  auto const launch = [&](auto shape) { return launch_shape<T>(shape, g, device, stream); };
  std::int64_t const d = std::max(g.head_dim, g.head_dim_v);
  if constexpr (sizeof(T) == 1) {
    if (has_score_terms(g)) return launch(D128TermsBytes{});
    return d <= 96 ? launch(D96Bytes{}) : launch(D128Bytes{});
  } else {
    if (has_columns(g)) return launch(D128Columns{});
    if (copies_bias(g)) return launch(D128Bias{});
    if (has_score_terms(g)) return g.bias == nullptr ? launch(D128Softcap{}) : launch(D128Terms{});
    return d <= 96 ? launch(D96{}) : launch(D128{});
  }
}

/// The same from there to 256, of scores that are positive multiples of products.
template <class T>
cudaError_t launch_to_256(abi::AttentionArgs const& g, abi::Device const& device,
                          CUstream_st* stream) {
  using namespace sm90_attention_shapes;
  auto const launch = [&](auto shape) { return launch_shape<T>(shape, g, device, stream); };
  bool const narrow_v = g.head_dim > 128 && g.head_dim <= 192 && g.head_dim_v <= 128;
  bool const to_192 = std::max(g.head_dim, g.head_dim_v) <= 192;
  if constexpr (sizeof(T) == 1) {
    if (narrow_v) return launch(D192V128Bytes{});
    if (g.head_dim <= 64 && g.head_dim_v > 192) return launch(D64V256Bytes{});
    return to_192 ? launch(D192Bytes{}) : launch(D256Bytes{});
  } else {
    if (narrow_v) return launch(D192V128{});
    if (g.head_dim <= 64) return launch(D64V256{});
    return to_192 ? launch(D192{}) : launch(D256{});
  }
}

/// The same of other scores.
template <class T>
cudaError_t launch_to_256_with_terms(abi::AttentionArgs const& g, abi::Device const& device,
                                     CUstream_st* stream) {
  using namespace sm90_attention_shapes;
  auto const launch = [&](auto shape) { return launch_shape<T>(shape, g, device, stream); };
  if constexpr (sizeof(T) == 1) {
    return launch(D256TermsBytes{});
  } else {
    if (has_columns(g)) return launch(D256Columns{});
    if (copies_bias(g)) return launch(D256Bias{});
    return g.bias == nullptr ? launch(D256Softcap{}) : launch(D256Terms{});
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
