// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Factors of products of bfloat16 and int8 packed for dot-product instructions (dot_product.hpp).
///
/// A *unit* is 32 bits: so many neighbors along k as one lane takes, two bfloat16, four int8 or a
/// float32. The left factor is packed by rows of units, the right one by panels of 32 columns, in
/// each of which a unit of every column follows a unit of every column. Both are padded with 0 to
/// whole squares of 16 units, so that AMX takes them as they are.
///
/// vpdpbusd multiplies unsigned by signed bytes. The right factor is the unsigned one, moved up by
/// 128; 128 times the sum of a row of the left one comes off again. All of it is exact modulo 2³².
#pragma once

#include <attikos/host/isa.hpp>
#include <cstring>

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

typedef std::uint32_t Words __attribute__((vector_size(64)));
typedef float Floats __attribute__((vector_size(64)));

/// Columns of a panel, and of a vector of it.
inline constexpr int panel_columns = 32;
inline constexpr int vector_columns = 16;
/// Rows of a register block: with two vectors of columns 24 sums, which leave room for a panel's.
inline constexpr int block_rows = 12;
/// Units of k that are packed at once, and words from a row of the left factor to the next: a
/// constant, so that one pointer reaches all rows of a block; 9 lines of the cache, so that rows
/// do not meet in its sets. The word behind the units holds what a row's sums have to be moved by.
inline constexpr int most_units = 128;
inline constexpr int row_words = most_units + 16;
/// Words of a right factor that stay in the nearest cache beside what else is used: 24 KiB.
inline constexpr int nearest_words = 6144;

/// What a lane does: `Element` is what memory holds, `dot` adds the products of units to
/// sums. (Its operands are registers: about instructions that read memory GCC 12 knows too little
/// to keep the sums of a block in registers.)
struct Bfloat16Pairs {
  using Element = std::uint16_t;
  using Sum = float;
  using Vector = Floats;
  static constexpr int values = 2;
  static constexpr bool moves = false;
  static constexpr std::uint32_t flip = 0;
  ATTIKOS_AVX512_INLINE static Vector dot(Vector sums, Words right, Words left) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(right), "v"(left));
    return sums;
  }
};
struct Int8Quads {
  using Element = std::uint8_t;
  using Sum = std::uint32_t;
  using Vector = Words;
  static constexpr int values = 4;
  static constexpr bool moves = true;
  static constexpr std::uint32_t flip = 0x80808080u;  ///< what moves the right factor up
  ATTIKOS_AVX512_INLINE static Vector dot(Vector sums, Words right, Words left) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(right), "v"(left));
    return sums;
  }
};

template <class To, class From>
ATTIKOS_AVX512_INLINE To load_as(From const* p) {
  To v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

/// (A function, because nvcc's front end fails on constant vectors that are initialized by one
/// sum.)
ATTIKOS_AVX512_INLINE Words broadcast(std::uint32_t value) { return Words{} + value; }

/// Takes the vector by value: registers whose address is taken are none.
template <class To, class Vector>
ATTIKOS_AVX512_INLINE void store(To* p, Vector v) {
  std::memcpy(p, &v, sizeof v);
}

// All of it goes by squares: 16 neighbors, rows of the left factor or columns of the right
// one, times 16 units.

/// The first `bytes` bytes at p, which may be all there is; 0 behind them.
ATTIKOS_AVX512_INLINE Words load_bytes(void const* p, int bytes) {
  std::uint64_t const mask = bytes >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bytes) - 1;
  Words v;
  asm("vmovdqu8 %1, %0%{%2%}%{z%}" : "=v"(v) : "m"(*static_cast<char const(*)[64]>(p)), "Yk"(mask));
  return v;
}

/// An element of each neighbor as a word; 0 where the mask has none.
ATTIKOS_AVX512_INLINE Words widen(std::uint16_t const* p, std::uint16_t mask) {
  Words v;
  asm("vpmovzxwd %1, %0%{%2%}%{z%}"
      : "=v"(v)
      : "m"(*reinterpret_cast<char const(*)[32]>(p)), "Yk"(mask));
  return v;
}
ATTIKOS_AVX512_INLINE Words widen(std::uint8_t const* p, std::uint16_t mask) {
  Words v;
  asm("vpmovzxbd %1, %0%{%2%}%{z%}"
      : "=v"(v)
      : "m"(*reinterpret_cast<char const(*)[16]>(p)), "Yk"(mask));
  return v;
}

/// Transposes 16 × 16 words: pairs of words, pairs of pairs, then the 128-bit lanes.
ATTIKOS_AVX512_INLINE void transpose(Words (&x)[16]) {
  Words y[16];
  for (int i = 0; i < 16; i += 2) {
    asm("vpunpckldq %2, %1, %0" : "=v"(y[i]) : "v"(x[i]), "v"(x[i + 1]));
    asm("vpunpckhdq %2, %1, %0" : "=v"(y[i + 1]) : "v"(x[i]), "v"(x[i + 1]));
  }
  for (int i = 0; i < 16; i += 4)
    for (int half = 0; half < 2; ++half) {
      asm("vpunpcklqdq %2, %1, %0"
          : "=v"(x[i + 2 * half])
          : "v"(y[i + half]), "v"(y[i + 2 + half]));
      asm("vpunpckhqdq %2, %1, %0"
          : "=v"(x[i + 2 * half + 1])
          : "v"(y[i + half]), "v"(y[i + 2 + half]));
    }
  for (int c = 0; c < 4; ++c) {
    Words even[2], odd[2];
    for (int h = 0; h < 2; ++h) {
      Words const &low = x[8 * h + c], &high = x[8 * h + 4 + c];
      asm("vshufi32x4 $0x88, %2, %1, %0" : "=v"(even[h]) : "v"(low), "v"(high));
      asm("vshufi32x4 $0xdd, %2, %1, %0" : "=v"(odd[h]) : "v"(low), "v"(high));
    }
    asm("vshufi32x4 $0x88, %2, %1, %0" : "=v"(y[c]) : "v"(even[0]), "v"(even[1]));
    asm("vshufi32x4 $0x88, %2, %1, %0" : "=v"(y[4 + c]) : "v"(odd[0]), "v"(odd[1]));
    asm("vshufi32x4 $0xdd, %2, %1, %0" : "=v"(y[8 + c]) : "v"(even[0]), "v"(even[1]));
    asm("vshufi32x4 $0xdd, %2, %1, %0" : "=v"(y[12 + c]) : "v"(odd[0]), "v"(odd[1]));
  }
  for (int i = 0; i < 16; ++i) x[i] = y[i];
}

/// Elements of one factor: `neighbors` of them at one stride, `k` values of each at the other.
template <class Element>
struct Factor {
  Element const* data;
  std::int64_t neighbor_stride, k_stride;
};

/// Packs the square of units at p, `neighbors` of which there are at most 16 and `count` values of
/// each: words (neighbor, unit) at `to + neighbor · neighbor_words + unit · unit_words`, one of
/// which is 1. All 256 are written, 0 where there is nothing, each exclusive-or `flip`.
template <class Kind>
ATTIKOS_AVX512 inline void pack_square(std::uint32_t* to, int neighbor_words, int unit_words,
                                       Factor<typename Kind::Element> const& from, int neighbors,
                                       int count, std::uint32_t flip) {
  using Element = typename Kind::Element;
  constexpr int V = Kind::values, bits = 8 * static_cast<int>(sizeof(Element));
  bool const by_neighbor = neighbor_words != 1;
  bool loaded_by_neighbor = true;
  Words x[16];
  if (from.k_stride == 1) {
    Element const* p = from.data;
    for (int n = 0; n < 16; ++n) {
      x[n] = load_bytes(p, n < neighbors ? count * static_cast<int>(sizeof(Element)) : 0);
      if (n + 1 < neighbors) p += from.neighbor_stride;  // masks hide what lies elsewhere, slowly
    }
  } else if (from.neighbor_stride == 1) {
    loaded_by_neighbor = false;
    auto const some = static_cast<std::uint16_t>((1u << neighbors) - 1);
    Element const* p = from.data;
    for (int u = 0; u < 16; ++u) {
      Words unit{};
      for (int v = 0; v < V; ++v) {
        int const k = u * V + v;
        unit |= widen(p, k < count ? some : std::uint16_t{0}) << (bits * v);
        if (k + 1 < count) p += from.k_stride;
      }
      x[u] = unit;
    }
  } else {
    Element gathered[16][16 * V] = {};
    for (int n = 0; n < neighbors; ++n)
      for (int k = 0; k < count; ++k)
        gathered[n][k] = from.data[n * from.neighbor_stride + k * from.k_stride];
    for (int n = 0; n < 16; ++n) x[n] = load_as<Words>(gathered[n]);
  }
  if (by_neighbor != loaded_by_neighbor) transpose(x);
  int const step = by_neighbor ? neighbor_words : unit_words;
  for (int i = 0; i < 16; ++i) store(to + static_cast<std::int64_t>(i) * step, x[i] ^ flip);
}

/// Packs `rows` × `k` elements as the left factor: `row_words` words a row, room for whole squares.
/// Where sums have to be moved, finds by how much.
template <class Kind>
ATTIKOS_AVX512 inline void pack_left(std::uint32_t* to, Factor<typename Kind::Element> const& from,
                                     int rows, int k) {
  constexpr int V = Kind::values;
  for (int i = 0; i < rows; i += 16) {
    int const neighbors = rows - i < 16 ? rows - i : 16;
    std::uint32_t* const row = to + static_cast<std::int64_t>(i) * row_words;
    for (int p = 0; p < k; p += 16 * V)
      pack_square<Kind>(row + p / V, row_words, 1,
                        {from.data + i * from.neighbor_stride + p * from.k_stride,
                         from.neighbor_stride, from.k_stride},
                        neighbors, k - p < 16 * V ? k - p : 16 * V, 0);
  }
  if constexpr (Kind::moves) {
    Words const ones = broadcast(0x01010101u);
    for (int i = 0; i < rows; ++i) {
      std::uint32_t* const row = to + static_cast<std::int64_t>(i) * row_words;
      Words sums{};
      for (int u = 0; u * V < k; u += 16) {
        Words const units = load_as<Words>(row + u);
        asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(ones), "v"(units));
      }
      std::uint32_t sum = 0;
      for (int l = 0; l < 16; ++l) sum += sums[l];
      row[most_units] = sum;
    }
  }
}

/// Words from a panel of `k` values to the next.
template <class Kind>
constexpr std::int64_t panel_words(int k) {
  return std::int64_t{panel_columns} * ((k + 16 * Kind::values - 1) / (16 * Kind::values) * 16);
}

/// Packs `k` × `cols` elements as the right factor, in panels each of which is panel_words(k) long.
/// The last one has one vector of columns where that is enough.
template <class Kind>
ATTIKOS_AVX512 inline void pack_right(std::uint32_t* to, Factor<typename Kind::Element> const& from,
                                      int k, int cols, std::uint32_t flip = Kind::flip) {
  constexpr int V = Kind::values;
  for (int j = 0; j < cols; j += vector_columns) {
    int const first = j / panel_columns * panel_columns;
    int const width = cols - first > vector_columns ? panel_columns : vector_columns;
    std::uint32_t* const panel = to + first / panel_columns * panel_words<Kind>(k) + (j - first);
    int const neighbors = cols - j < vector_columns ? cols - j : vector_columns;
    for (int p = 0; p < k; p += 16 * V)
      pack_square<Kind>(panel + static_cast<std::int64_t>(p) / V * width, 1, width,
                        {from.data + j * from.neighbor_stride + p * from.k_stride,
                         from.neighbor_stride, from.k_stride},
                        neighbors, k - p < 16 * V ? k - p : 16 * V, flip);
  }
}

/// Sums over k of each column of the right factor: `to` has room for whole vectors of 16 columns.
inline ATTIKOS_AVX512 void column_sums(std::uint32_t const* right, std::uint32_t* to, int k,
                                       int cols, std::uint32_t flip = Int8Quads::flip) {
  int const units = (k + Int8Quads::values - 1) / Int8Quads::values;
  Words const ones = broadcast(0x01010101u);
  for (int j = 0; j < cols; j += vector_columns) {
    int const first = j / panel_columns * panel_columns;
    int const width = cols - first > vector_columns ? panel_columns : vector_columns;
    std::uint32_t const* from =
        right + first / panel_columns * panel_words<Int8Quads>(k) + (j - first);
    Words sums = broadcast(-512u * static_cast<std::uint32_t>(units));
    for (int u = 0; u < units; ++u)
      sums = Int8Quads::dot(
          sums,
          load_as<Words>(from + static_cast<std::int64_t>(u) * width) ^ (flip ^ Int8Quads::flip),
          ones);
    store(to + j, sums);
  }
}

}  // namespace detail::host::avx512
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos

#undef ATTIKOS_UNROLL
#undef ATTIKOS_AVX512
#undef ATTIKOS_AVX512_INLINE

#endif  // ATTIKOS_HOST_X86
