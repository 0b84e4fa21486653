// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// A tile of pairs of attention's gradients on a host's dot-product instructions, in place of
/// tile.hpp's. Weights and gradients of scores are rounded to bfloat16 for the products that they
/// go into, as kernels for tensor cores do.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/attention/attention_dot_blocks.hpp>
#include <attikos/attention/backward/tile.hpp>
#include <new>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

#if defined(ATTIKOS_HOST_X86)
/// AMX's tiles, from take() on those of this thread.
class HeldTiles {
 public:
  HeldTiles() = default;
  KOKKOS_INLINE_FUNCTION ~HeldTiles() {
    KOKKOS_IF_ON_HOST((if (tiles_ != nullptr) tiles_->~Tiles();))
  }
  HeldTiles(HeldTiles const&) = delete;
  HeldTiles& operator=(HeldTiles const&) = delete;
  void take() { tiles_ = new (memory_) host::amx::Tiles; }
  /// Null before take().
  host::amx::Tiles* get() const { return tiles_; }

 private:
  alignas(host::amx::Tiles) unsigned char memory_[sizeof(host::amx::Tiles)];
  host::amx::Tiles* tiles_ = nullptr;
};

/// BackwardScratch's twin. Rows are queries and columns keys, or the other way round; 32 rows at a
/// time go from dot products to factors.
template <class Traits>
struct BackwardDotScratch : AttentionDotBlocks {
  static constexpr int few_rows = 2 * tile_rows;
  static constexpr int pair_stride = most + 16;  ///< keeps rows out of one another's cache sets
  using Pairs = Words const*;
  static constexpr bool dots = true;

  BackwardTile tile;
  int d, dv;
  Words *first = nullptr, *second = nullptr;                // rows as left factors
  Words *weights = nullptr, *gradients = nullptr;           // of pairs, as left factors
  Words *across_first = nullptr, *across_second = nullptr;  // columns as right factors, for
  Words* along = nullptr;                                   // products over features, over columns
  Acc *products = nullptr, *values = nullptr;               // q·k and dout·v of few_rows
  Acc *lse = nullptr, *delta = nullptr;  // of the tile's queries; lse +∞ where it is −∞
  HeldTiles tiles;

  KOKKOS_INLINE_FUNCTION BackwardDotScratch(BackwardTile const& extents, int width, int width_v)
      : tile(extents), d(width), dv(width_v) {}

  KOKKOS_INLINE_FUNCTION static int ld_sum(int width) { return round_up(width, panel); }
  /// Rows that tiles of AMX write.
  KOKKOS_INLINE_FUNCTION static int whole_rows(int rows) { return round_up(rows, few_rows); }
  /// Columns begin at multiples of this: in which order a row's sums are taken does not depend on
  /// where the tile begins.
  KOKKOS_INLINE_FUNCTION static std::int64_t aligned(std::int64_t column) {
    return column / 32 * 32;
  }

  std::int64_t left_words(int width) const {
    return std::int64_t{whole_rows(tile.rows)} * row_words * ((width + most - 1) / most);
  }
  int queries() const { return std::max(whole_rows(tile.rows), round_up(tile.cols, 32)); }

  std::size_t bytes() const {
    return scratch_bytes<Words>(left_words(d)) + scratch_bytes<Words>(left_words(dv)) +
           2 * scratch_bytes<Words>(left_words(1)) + scratch_bytes<Words>(right_words(most, d)) +
           scratch_bytes<Words>(right_words(most, dv)) +
           scratch_bytes<Words>(right_words(std::max(d, dv), most)) +
           2 * scratch_bytes<Acc>(few_rows * pair_stride) + 2 * scratch_bytes<Acc>(queries());
  }

  // BackwardScratch's functions, as the kernels call them, which are compiled for devices, too.

  template <class Team>
  KOKKOS_INLINE_FUNCTION void allocate(Team const& team) {
    KOKKOS_IF_ON_HOST((host_allocate(team);))
    (void)team;
  }
  template <class Team>
  KOKKOS_INLINE_FUNCTION void load_rows(Team const&, Block<T const> const& x,
                                        Block<T const> const& y, int rows) const {
    KOKKOS_IF_ON_HOST((host_load_rows(x, y, rows);))
    (void)x, (void)y, (void)rows;
  }
  template <class Team, class Head>
  KOKKOS_INLINE_FUNCTION void load_queries(Team const&, Head const& head, Acc const* deltas,
                                           std::int64_t i0, int count) const {
    KOKKOS_IF_ON_HOST((host_load_queries(head, deltas, i0, count);))
    (void)head, (void)deltas, (void)i0, (void)count;
  }
  /// Weights and gradients of the pairs of rows from row0 and the columns x, y from m0 on. `ByKey`:
  /// rows are keys.
  template <bool ByKey, class Team, class Functors, class Head>
  KOKKOS_INLINE_FUNCTION void differentiate(Team const& team, abi::AttentionArgs const& g,
                                            Functors const& functors, Head const& head,
                                            Block<T const> const& x, Block<T const> const& y,
                                            std::int64_t row0, int rows, std::int64_t m0,
                                            int cols) {
    KOKKOS_IF_ON_HOST(
        (host_differentiate<ByKey>(team, g, functors, head, x, y, row0, rows, m0, cols);))
    (void)team, (void)g, (void)functors, (void)head, (void)x, (void)y;
    (void)row0, (void)rows, (void)m0, (void)cols;
  }
  KOKKOS_INLINE_FUNCTION Pairs pair_weights() const { return weights; }
  KOKKOS_INLINE_FUNCTION Pairs pair_gradients() const { return gradients; }
  /// sum += pairs·columns, where a pair whose number is 0 adds nothing.
  template <class Team>
  KOKKOS_INLINE_FUNCTION void add_columns(Team const&, Pairs pairs, Block<T const> const& columns,
                                          int width, Acc* sum, int rows, int cols) {
    KOKKOS_IF_ON_HOST((host_add_columns(pairs, columns, width, sum, rows, cols);))
    (void)pairs, (void)columns, (void)width, (void)sum, (void)rows, (void)cols;
  }

 private:
  template <class Team>
  void host_allocate(Team const& team) {
    int const level = tile.scratch_level;
    first = scratch<Words>(team, level, left_words(d));
    second = scratch<Words>(team, level, left_words(dv));
    weights = scratch<Words>(team, level, left_words(1));
    gradients = scratch<Words>(team, level, left_words(1));
    across_first = scratch<Words>(team, level, right_words(most, d));
    across_second = scratch<Words>(team, level, right_words(most, dv));
    along = scratch<Words>(team, level, right_words(std::max(d, dv), most));
    products = scratch<Acc>(team, level, few_rows * pair_stride);
    values = scratch<Acc>(team, level, few_rows * pair_stride);
    lse = scratch<Acc>(team, level, queries());
    delta = scratch<Acc>(team, level, queries());
    if (host_isa() >= HostIsa::amx) tiles.take();
  }

  void host_load_rows(Block<T const> const& x, Block<T const> const& y, int rows) const {
    auto const pack = [&](Words* to, Block<T const> const& block, int width) {
      for (int p = 0; p < width; p += most) {
        host::avx512::pack_left<Kind>(to,
                                      factor(block.at(0, p), block.row_stride, block.col_stride),
                                      rows, std::min(most, width - p));
        to += left_words(1);
      }
    };
    pack(first, x, d);
    pack(second, y, dv);
  }

  template <class Head>
  void host_load_queries(Head const& head, Acc const* deltas, std::int64_t i0, int count) const {
    for (int i = 0; i < count; ++i) {
      Acc const sum = head.lse[(i0 + i) * head.lse_stride];
      lse[i] = sum == negative_infinity<Acc>() ? -sum : sum;
      delta[i] = deltas[head.delta_row + i0 + i];
    }
    // What vectors read behind them.
    for (int i = count; i < round_up(count, 32); ++i) lse[i] = delta[i] = Acc(0);
  }

  template <bool ByKey, class Team, class Functors, class Head>
  void host_differentiate(Team const& team, abi::AttentionArgs const& g, Functors const& functors,
                          Head const& head, Block<T const> const& x, Block<T const> const& y,
                          std::int64_t row0, int rows, std::int64_t m0, int cols) {
    pack_rows_right(across_first, x, cols, d, most);
    pack_rows_right(across_second, y, cols, dv, most);
    int const whole = round_up(cols, 32);
    bool const terms = has_terms<Functors>(g);
    for (int r = 0; r < rows; r += few_rows) {
      int const count = std::min(few_rows, rows - r);
      std::int64_t const at = std::int64_t{r} * row_words;
      multiply_passes(first + at, across_first, d, products, count, cols);
      multiply_passes(second + at, across_second, dv, values, count, cols);
      if (terms)
        gradient_tile<Traits, ByKey>(team, g, functors, head, false, row0 + r, count, m0, cols,
                                     products, values, pair_stride, lse + (ByKey ? 0 : r),
                                     delta + (ByKey ? 0 : r));
      for (int i = 0; i < round_up(count, tile_rows); ++i) {
        auto* const to_weights =
            reinterpret_cast<std::uint16_t*>(weights + at + std::int64_t{i} * row_words);
        auto* const to_gradients =
            reinterpret_cast<std::uint16_t*>(gradients + at + std::int64_t{i} * row_words);
        Acc* const dot = products + i * pair_stride;
        Acc* const value = values + i * pair_stride;
        if (terms && i < count) {
          host::avx512::round_row(dot, to_weights, cols);
          host::avx512::round_row(value, to_gradients, cols);
          continue;
        }
        // Rows behind the last that tiles take along get zeros.
        std::int64_t const row = row0 + r + i;
        auto const column = [&](std::int64_t m) {
          return i < count ? static_cast<int>(clamp_index(m - m0, 0, cols)) : 0;
        };
        int const begin = column(ByKey ? head.first_query(row) : head.first(row));
        int const end = column(ByKey ? head.last_query(row) : head.last(row));
        host::avx512::gradient_row<ByKey>(
            dot, value, to_weights, to_gradients, begin, end, whole,
            {lse + (ByKey ? 0 : r + i), delta + (ByKey ? 0 : r + i), head.scale});
      }
    }
  }

  void host_add_columns(Pairs pairs, Block<T const> const& columns, int width, Acc* sum, int rows,
                        int cols) {
    bool const finite = pack_features_right(along, columns, cols, width);
    Part const part{host::avx512::panel_words<Kind>(cols)};
    for (int r = 0; r < rows; r += few_rows) {
      Words const* const left = pairs + std::int64_t{r} * row_words;
      Acc* const to = sum + std::int64_t{r} * ld_sum(width);
      int const count = std::min(few_rows, rows - r);
      multiply(tiles.get(), left, along, to, ld_sum(width), count, width, cols, true, part);
      if (!finite)
        add_not_finite(
            left, count, [&](int j) { return columns.at(j, 0); }, cols, columns.col_stride, width,
            to, ld_sum(width));
    }
  }

  /// sums = left · right over `width` features.
  void multiply_passes(Words const* left, Words const* right, int width, Acc* sums, int rows,
                       int cols) {
    if (width == 0)
      for (int i = 0; i < rows; ++i)
        std::fill_n(sums + i * pair_stride, round_up(cols, 32), Acc(0));
    for (int p = 0; p < width; p += most) {
      multiply(tiles.get(), left, right, sums, pair_stride, rows, cols, std::min(most, width - p),
               p > 0, {pass_panel(p, width)});
      left += left_words(1);
      right += pass_panel(p, width) * (most / panel);
    }
  }
};

template <class Traits, class Acc, bool Dots>
using BackwardScratchOf =
    std::conditional_t<Dots, BackwardDotScratch<Traits>, BackwardScratch<Traits, Acc>>;
#else
template <class Traits, class Acc, bool Dots>
using BackwardScratchOf = BackwardScratch<Traits, Acc>;
#endif

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
