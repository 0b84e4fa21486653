// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Products of bfloat16 and int8 on AMX: tiles of 16 rows of 64 bytes, of which tdpbf16ps and
/// tdpbssd multiply two and add to a third.
///
/// The factors are packed as dot_product.hpp has them; its squares of 16 units are tiles as they
/// are: 16 rows of the left factor with a row of units each, 16 units of the right one with those
/// of 16 columns. Bytes are signed on both sides, so that nothing is moved up.
#pragma once

#include <attikos/host/dot_product.hpp>

#if defined(ATTIKOS_HOST_X86)

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail::host::amx {

using avx512::Bfloat16Pairs;
using avx512::Int8Quads;
using avx512::panel_columns;
using avx512::panel_words;
using avx512::PanelPart;
using avx512::row_words;

/// What the right factor of dot_product.hpp is packed with.
inline constexpr std::uint32_t flip = 0;
/// Rows and words of a row of a tile.
inline constexpr int tile_rows = 16, tile_words = 16;

/// The processor's eight tiles, from construction to destruction those of this thread. Another
/// class of the same functions may stand for them where a processor has none.
class Tiles {
 public:
  Tiles() {
    struct alignas(64) {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } const shape;
    asm volatile("ldtilecfg %0" : : "m"(shape));
  }
  ~Tiles() { asm volatile("tilerelease"); }
  Tiles(Tiles const&) = delete;
  Tiles& operator=(Tiles const&) = delete;

  template <int Tile>
  void clear() {
    asm volatile("tilezero %%tmm%c0" : : "i"(Tile));
  }
  /// Rows at p, `stride` words apart.
  template <int Tile, class Word>
  void load(Word const* p, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,4), %%tmm%c2" : : "r"(p), "r"(stride), "i"(Tile) : "memory");
  }
  template <int Tile, class Word>
  void store(Word* p, std::int64_t stride) const {
    asm volatile("tilestored %%tmm%c2, (%0,%1,4)" : : "r"(p), "r"(stride), "i"(Tile) : "memory");
  }
  template <class Kind, int Sums, int Left, int Right>
  void dot() {
    if constexpr (Kind::values == 2)
      asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sums), "i"(Left), "i"(Right));
    else
      asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sums), "i"(Left), "i"(Right));
  }
};

/// 16·`Rows` × 16·`Columns` sums, one or two each, in tiles between load and store.
template <class Kind, int Rows, int Columns, class Engine>
inline void multiply_block(Engine& tiles, std::uint32_t const* left, std::uint32_t const* right,
                           typename Kind::Sum* sums, std::int64_t ld, int units, bool accumulate) {
  // Sums are in tiles 0 … 3, rows of the left factor in 4 and 5, columns of the right one in 6, 7.
  typename Kind::Sum* const below = sums + tile_rows * ld;
  if (accumulate) {
    tiles.template load<0>(sums, ld);
    if constexpr (Columns == 2) tiles.template load<1>(sums + tile_words, ld);
    if constexpr (Rows == 2) tiles.template load<2>(below, ld);
    if constexpr (Rows == 2 && Columns == 2) tiles.template load<3>(below + tile_words, ld);
  } else {
    tiles.template clear<0>();
    if constexpr (Columns == 2) tiles.template clear<1>();
    if constexpr (Rows == 2) tiles.template clear<2>();
    if constexpr (Rows == 2 && Columns == 2) tiles.template clear<3>();
  }
  constexpr int width = Columns * tile_words;
  for (int u = 0; u < units; u += tile_words) {
    std::uint32_t const* const from = right + static_cast<std::int64_t>(u) * width;
    tiles.template load<4>(left + u, row_words);
    tiles.template load<6>(from, width);
    tiles.template dot<Kind, 0, 4, 6>();
    if constexpr (Columns == 2) {
      tiles.template load<7>(from + tile_words, width);
      tiles.template dot<Kind, 1, 4, 7>();
    }
    if constexpr (Rows == 2) {
      tiles.template load<5>(left + tile_rows * row_words + u, row_words);
      tiles.template dot<Kind, 2, 5, 6>();
      if constexpr (Columns == 2) tiles.template dot<Kind, 3, 5, 7>();
    }
  }
  tiles.template store<0>(sums, ld);
  if constexpr (Columns == 2) tiles.template store<1>(sums + tile_words, ld);
  if constexpr (Rows == 2) tiles.template store<2>(below, ld);
  if constexpr (Rows == 2 && Columns == 2) tiles.template store<3>(below + tile_words, ld);
}

/// sums (+)= left · right as avx512::multiply() does it, of a right factor packed with `flip`, but
/// for whole tiles of 16 rows: `sums` has room for them, and its rows behind `rows` get numbers of
/// no meaning. Kept out of line, since its instructions are for those alone who chose them.
template <class Kind, class Engine>
__attribute__((noinline)) void multiply(Engine& tiles, std::uint32_t const* left,
                                        std::uint32_t const* right, typename Kind::Sum* sums,
                                        std::int64_t ld, int rows, int cols, int k, bool accumulate,
                                        PanelPart const& part) {
  int const units = (k + Kind::values - 1) / Kind::values;
  for (int j = 0; j < cols; j += panel_columns, right += part.words) {
    bool const wide = cols - j > tile_words;
    std::uint32_t const* const panel =
        right + std::int64_t{part.unit} * (wide ? panel_columns : tile_words);
    for (int i = 0; i < rows; i += 2 * tile_rows) {
      std::uint32_t const* const row = left + static_cast<std::int64_t>(i) * row_words;
      typename Kind::Sum* const to = sums + i * ld + j;
      bool const tall = rows - i > tile_rows;
      if (wide && tall)
        multiply_block<Kind, 2, 2>(tiles, row, panel, to, ld, units, accumulate);
      else if (wide)
        multiply_block<Kind, 1, 2>(tiles, row, panel, to, ld, units, accumulate);
      else if (tall)
        multiply_block<Kind, 2, 1>(tiles, row, panel, to, ld, units, accumulate);
      else
        multiply_block<Kind, 1, 1>(tiles, row, panel, to, ld, units, accumulate);
    }
  }
}

/// The same with tiles of its own.
template <class Kind, class Engine>
__attribute__((noinline)) void multiply(std::uint32_t const* left, std::uint32_t const* right,
                                        typename Kind::Sum* sums, std::int64_t ld, int rows,
                                        int cols, int k, bool accumulate) {
  Engine tiles;
  multiply<Kind, Engine>(tiles, left, right, sums, ld, rows, cols, k, accumulate,
                         PanelPart{panel_words<Kind>(k)});
}

}  // namespace detail::host::amx
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos

#endif  // ATTIKOS_HOST_X86
