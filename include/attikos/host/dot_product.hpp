// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Products of bfloat16 and int8 on the dot-product instructions of AVX-512: vdpbf16ps adds two
/// products to each lane of a sum, vpdpbusd four.
///
/// The left factor is packed (dot_packing.hpp), or read where it lies if its numbers along k lie
/// side by side; sums go where they are wanted.
#pragma once

#include <attikos/host/dot_packing.hpp>

#if defined(ATTIKOS_HOST_X86)

#define ATTIKOS_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define ATTIKOS_AVX512_INLINE \
  inline __attribute__((always_inline, target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
/// Before a loop over the sums of a block, which are registers only once it is unrolled, at -O2
/// too.
#if defined(__CUDACC__)  // whose front end does not know the pragma
#define ATTIKOS_UNROLL
#else
#define ATTIKOS_UNROLL _Pragma("GCC unroll 16")
#endif

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail::host::avx512 {

/// Units of k that rows which are not packed are multiplied by at once, where the right factor is
/// packed as deep: a panel of it, 256 KiB, stays in the cache of a core.
inline constexpr int direct_units = 2048;

/// Rows of a left factor: unit u of row i is the word at `data + i · row_bytes + 4u`.
struct LeftRows {
  void const* data;
  std::int64_t row_bytes;
  std::uint32_t const* tails = nullptr;  ///< each row's last unit, where data has but a part of it
  std::uint32_t const* moved = nullptr;  ///< by how much a row's sums are, every `moved_stride`
  int moved_stride = 1;

  /// From row i on.
  ATTIKOS_AVX512_INLINE LeftRows from(std::int64_t i) const {
    return {static_cast<char const*>(data) + i * row_bytes, row_bytes,
            tails == nullptr ? nullptr : tails + i,
            moved == nullptr ? nullptr : moved + i * moved_stride, moved_stride};
  }
};

/// Rows that pack_left() packed.
ATTIKOS_AVX512 inline LeftRows packed_rows(std::uint32_t const* left) {
  return {left, row_words * 4, nullptr, left + most_units, row_words};
}

/// Words of rows_in_place().
constexpr std::int64_t words_in_place(int rows) { return 2 * ((rows + 15) / 16 * 16); }

/// Rows whose numbers along k lie side by side, as they are. What the kernel wants besides is
/// written to `room`, words_in_place() long.
template <class Kind>
ATTIKOS_AVX512 inline LeftRows rows_in_place(std::uint32_t* room,
                                             Factor<typename Kind::Element> const& from, int rows,
                                             int k) {
  using Element = typename Kind::Element;
  constexpr int V = Kind::values, size = static_cast<int>(sizeof(Element));
  LeftRows left{from.data, from.neighbor_stride * size};
  int const rest = k % V;
  if (rest != 0) {
    std::uint32_t* const tails = room + words_in_place(rows) / 2;
    Element const* last = from.data + (k - rest);
    for (int i = 0; i < rows; ++i, last += from.neighbor_stride) {
      std::uint32_t word = 0;
      for (int v = 0; v < rest; ++v) word |= std::uint32_t{last[v]} << (8 * size * v);
      tails[i] = word;
    }
    left.tails = tails;
  }
  if constexpr (Kind::moves) {
    Words const ones = broadcast(0x01010101u);
    for (int i = 0; i < rows; i += 16) {
      Words sums[16];
      for (int n = 0; n < 16; ++n) {
        sums[n] = Words{};
        if (i + n >= rows) continue;
        Element const* const row = from.data + (i + n) * from.neighbor_stride;
        for (int p = 0; p < k; p += 64) {
          Words const units = k - p < 64 ? load_bytes(row + p, k - p) : load_as<Words>(row + p);
          asm("vpdpbusd %2, %1, %0" : "+v"(sums[n]) : "v"(ones), "v"(units));
        }
      }
      transpose(sums);
      for (int n = 1; n < 16; ++n) sums[0] += sums[n];
      store(room + i, sums[0]);
    }
    left.moved = room;
  }
  return left;
}

/// Where a product's sums come from and go to.
template <class Sum, class To>
struct Sums {
  Sum const* before;  ///< what they are added to; nullptr: nothing
  std::int64_t before_ld;
  To* to;  ///< sums, or bfloat16 that they are rounded to
  std::int64_t to_ld;

  ATTIKOS_AVX512_INLINE Sums from(std::int64_t i, std::int64_t j) const {
    return {before == nullptr ? nullptr : before + i * before_ld + j, before_ld, to + i * to_ld + j,
            to_ld};
  }
};

/// Stores the first `width` ≤ 16 numbers of a vector.
template <class To, class Vector>
ATTIKOS_AVX512_INLINE void store_some(To* to, Vector v, int width) {
  static_assert(sizeof(To) == 4);
  auto const mask = static_cast<std::uint16_t>((1u << width) - 1);
  asm("vmovdqu32 %1, %0%{%2%}" : "+m"(*reinterpret_cast<char(*)[64]>(to)) : "v"(v), "Yk"(mask));
}

/// The first `width` ≤ 32 numbers of two vectors, rounded to bfloat16 as round_row() does.
ATTIKOS_AVX512_INLINE void round_some(std::uint16_t* to, Floats low, Floats high, int width) {
  Words v;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(v) : "v"(low), "v"(high));
  std::uint32_t const mask = width >= 32 ? ~0u : (std::uint32_t{1} << width) - 1;
  asm("vmovdqu16 %1, %0%{%2%}" : "+m"(*reinterpret_cast<char(*)[64]>(to)) : "v"(v), "Yk"(mask));
}

/// `Rows` × (16·`Vectors`) sums over `units` units, in registers between load and store, of which
/// `width` columns are stored.
template <class Kind, int Rows, int Vectors, class To>
ATTIKOS_AVX512 inline void multiply_block(LeftRows const& left, std::uint32_t const* right,
                                          Sums<typename Kind::Sum, To> const& sums, int width,
                                          int units) {
  typename Kind::Vector sum[Rows][Vectors];
  ATTIKOS_UNROLL
  for (int i = 0; i < Rows; ++i) ATTIKOS_UNROLL
  for (int v = 0; v < Vectors; ++v) {
    sum[i][v] = typename Kind::Vector{};
    if (sums.before != nullptr)
      sum[i][v] = load_as<typename Kind::Vector>(sums.before + i * sums.before_ld + v * 16);
    if constexpr (Kind::moves) sum[i][v] -= left.moved[i * left.moved_stride] << 7;
  }
  char const* row = static_cast<char const*>(left.data);
  std::int64_t row_bytes = left.row_bytes;
  int const whole = left.tails == nullptr ? units : units - 1;
  for (int u = 0; u < units; ++u) {
    if (u == whole) {
      row = reinterpret_cast<char const*>(left.tails);
      row_bytes = 4;
    }
    Words column[Vectors];
    ATTIKOS_UNROLL
    for (int v = 0; v < Vectors; ++v) column[v] = load_as<Words>(right + v * 16);
    ATTIKOS_UNROLL
    for (int i = 0; i < Rows; ++i) {
      Words const unit = broadcast(load_as<std::uint32_t>(row + i * row_bytes));
      ATTIKOS_UNROLL
      for (int v = 0; v < Vectors; ++v) sum[i][v] = Kind::dot(sum[i][v], column[v], unit);
    }
    row += 4;
    right += Vectors * 16;
  }
  ATTIKOS_UNROLL
  for (int i = 0; i < Rows; ++i) {
    To* const to = sums.to + i * sums.to_ld;
    if constexpr (sizeof(To) == 2) {
      round_some(to, sum[i][0], sum[i][Vectors - 1], width);
    } else {
      ATTIKOS_UNROLL
      for (int v = 0; v + 1 < Vectors; ++v) store(to + v * 16, sum[i][v]);
      if (width == 16 * Vectors)
        store(to + (Vectors - 1) * 16, sum[i][Vectors - 1]);
      else
        store_some(to + (Vectors - 1) * 16, sum[i][Vectors - 1], width - 16 * (Vectors - 1));
    }
  }
}

/// `rows` ≤ `Rows` of them.
template <class Kind, int Rows, int Vectors, class To>
ATTIKOS_AVX512_INLINE void multiply_few(LeftRows const& left, std::uint32_t const* right,
                                        Sums<typename Kind::Sum, To> const& sums, int rows,
                                        int width, int units) {
  if constexpr (Rows > 1) {
    if (rows < Rows)
      return multiply_few<Kind, Rows - 1, Vectors>(left, right, sums, rows, width, units);
  }
  multiply_block<Kind, Rows, Vectors>(left, right, sums, width, units);
}

/// Rows in register blocks of nearly one height, none of which is so low that its sums wait for one
/// another. Each element sees the same sums whatever the block.
template <class Kind, int Vectors, class To>
ATTIKOS_AVX512 inline void multiply_rows(LeftRows const& left, std::uint32_t const* right,
                                         Sums<typename Kind::Sum, To> const& sums, int rows,
                                         int width, int units) {
  int i = 0;
  for (int blocks = (rows + block_rows - 1) / block_rows; blocks > 0; --blocks) {
    int const height = (rows - i + blocks - 1) / blocks;
    multiply_few<Kind, block_rows, Vectors>(left.from(i), right, sums.from(i, 0), height, width,
                                            units);
    i += height;
  }
}

/// Which part of a packed right factor a product takes, where it is not all of it.
struct PanelPart {
  std::int64_t words;  ///< from a panel to the next
  int unit = 0;        ///< the first along k: that of the left factor's first
};

/// multiply() panel by panel.
template <class Kind, class To>
ATTIKOS_AVX512 inline void multiply_panels(LeftRows const& left, std::uint32_t const* right,
                                           Sums<typename Kind::Sum, To> const& sums, int rows,
                                           int cols, int units, PanelPart const& part) {
  for (int j = 0; j < cols; j += panel_columns, right += part.words) {
    int const width = cols - j < panel_columns ? cols - j : panel_columns;
    if (width > vector_columns)
      multiply_rows<Kind, 2>(left, right + std::int64_t{part.unit} * panel_columns, sums.from(0, j),
                             rows, width, units);
    else
      multiply_rows<Kind, 1>(left, right + std::int64_t{part.unit} * vector_columns,
                             sums.from(0, j), rows, width, units);
  }
}

/// sums (+)= left · right, `k` deep. Of each row `cols` columns are stored, or rounded to bfloat16,
/// and no more; those that sums are added to are read in whole vectors of 16.
template <class Kind, class To>
ATTIKOS_AVX512 inline void multiply(LeftRows const& left, std::uint32_t const* right,
                                    Sums<typename Kind::Sum, To> const& sums, int rows, int cols,
                                    int k, PanelPart const& part) {
  int const units = (k + Kind::values - 1) / Kind::values;
  // Where all panels stay in the nearest cache, rows are finished one block after the other:
  // storing takes much of the time there, and does best in long stretches.
  if (cols * units > nearest_words)
    return multiply_panels<Kind>(left, right, sums, rows, cols, units, part);
  int i = 0;
  for (int blocks = (rows + block_rows - 1) / block_rows; blocks > 0; --blocks) {
    int const height = (rows - i + blocks - 1) / blocks;
    multiply_panels<Kind>(left.from(i), right, sums.from(i, 0), height, cols, units, part);
    i += height;
  }
}

/// sums (+)= left · right for packed factors of `k` ≤ most_units·values. `sums` has room for whole
/// vectors of 16 columns, which are written.
template <class Kind>
ATTIKOS_AVX512 inline void multiply(std::uint32_t const* left, std::uint32_t const* right,
                                    typename Kind::Sum* sums, std::int64_t ld, int rows, int cols,
                                    int k, bool accumulate, PanelPart const& part) {
  using Sum = typename Kind::Sum;
  int const whole = (cols + vector_columns - 1) / vector_columns * vector_columns;
  multiply<Kind, Sum>(packed_rows(left), right, {accumulate ? sums : nullptr, ld, sums, ld}, rows,
                      whole, k, part);
}
template <class Kind>
ATTIKOS_AVX512 inline void multiply(std::uint32_t const* left, std::uint32_t const* right,
                                    typename Kind::Sum* sums, std::int64_t ld, int rows, int cols,
                                    int k, bool accumulate) {
  multiply<Kind>(left, right, sums, ld, rows, cols, k, accumulate, PanelPart{panel_words<Kind>(k)});
}

/// Rounds `count` sums of pairs to bfloat16: to nearest, ties to even. Subnormal numbers, which
/// such sums are not, would give 0.
inline ATTIKOS_AVX512 void round_row(std::uint16_t* to, float const* sums, int count) {
  int j = 0;
  for (; j + 32 <= count; j += 32) {
    Words v;
    asm("vcvtne2ps2bf16 %1, %2, %0"
        : "=v"(v)
        : "v"(load_as<Floats>(sums + j)), "v"(load_as<Floats>(sums + j + 16)));
    store(to + j, v);
  }
  if (j == count) return;
  int const rest = count - j, first = rest < 16 ? rest : 16;
  Words const low = load_bytes(sums + j, 4 * first);
  Words const high = load_bytes(sums + j + first, 4 * (rest - first));
  Words v;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(v) : "v"(low), "v"(high));
  std::uint32_t const mask = (std::uint32_t{1} << rest) - 1;
  asm("vmovdqu16 %1, %0%{%2%}" : "+m"(*reinterpret_cast<char(*)[64]>(to + j)) : "v"(v), "Yk"(mask));
}

}  // namespace detail::host::avx512
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos

#undef ATTIKOS_UNROLL
#undef ATTIKOS_AVX512
#undef ATTIKOS_AVX512_INLINE

#endif  // ATTIKOS_HOST_X86
