// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Products of few rows, which use an element of the right factor too seldom for packing it to pay:
/// it is read once, where it lies, if one of its strides is 1.
///
/// Sums take the same products in the same order as from packed panels, so their bits are the same.
/// A `Kind` is Fused<float>, Fused<double> or StreamedPairs; a unit of k is one element or a pair.
/// Those of int8 are exact in any order, and go along k.
#pragma once

#include <attikos/host/fused_product.hpp>

#if defined(ATTIKOS_HOST_X86)

#define ATTIKOS_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define ATTIKOS_AVX512_INLINE \
  inline __attribute__((always_inline, target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#if defined(__CUDACC__)  // whose front end does not know the pragma
#define ATTIKOS_UNROLL
#else
#define ATTIKOS_UNROLL _Pragma("GCC unroll 16")
#endif

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail::host::avx512 {

/// Rows up to which packing does not pay, and units of k that are taken at once.
inline constexpr int streamed_rows = 8;
inline constexpr int streamed_units = 8;
/// The same rows of int8, whose columns are gone through once a row. (8 are slower than packed
/// ones where columns lie 4096 apart, and evict one another.)
inline constexpr int streamed_quad_rows = 4;

/// Pairs of bfloat16 along k, in words.
struct StreamedPairs {
  using Element = std::uint16_t;
  using Sum = float;
  using Left = std::uint32_t;
  using Vector = Floats;
  using Square = Words;
  static constexpr int width = 16, values = 2, left_row = row_words;
  ATTIKOS_AVX512_INLINE static Vector add(Words left, Words right, Vector sums) {
    return Bfloat16Pairs::dot(sums, right, left);
  }
  ATTIKOS_AVX512_INLINE static void transpose_square(Square (&x)[width]) { transpose(x); }
};

template <class T>
ATTIKOS_AVX512_INLINE typename Fused<T>::Vector unit_of(Fused<T>, T value) {
  return broadcast_of(value);
}
ATTIKOS_AVX512_INLINE Words unit_of(StreamedPairs, std::uint32_t value) { return broadcast(value); }

/// A unit of `neighbors` columns, 0 behind them: of `count` ≤ values rows, `ld` apart.
template <class T>
ATTIKOS_AVX512_INLINE typename Fused<T>::Vector load_unit(Fused<T>, T const* p, std::int64_t,
                                                          int neighbors, int) {
  using V = typename Fused<T>::Vector;
  if (neighbors >= Fused<T>::width) return load_as<V>(p);
  Words const v = load_bytes(p, neighbors * static_cast<int>(sizeof(T)));
  return load_as<V>(&v);
}
ATTIKOS_AVX512_INLINE Words load_unit(StreamedPairs, std::uint16_t const* p, std::int64_t ld,
                                      int neighbors, int count) {
  auto const some = static_cast<std::uint16_t>(neighbors >= 16 ? 0xffffu : (1u << neighbors) - 1);
  Words const low = widen(p, some);
  return count < 2 ? low : low | widen(p + ld, some) << 16;
}

/// A unit as it lies in a square.
template <class T>
ATTIKOS_AVX512_INLINE typename Fused<T>::Vector load_packed(Fused<T>, T const* p) {
  return load_as<typename Fused<T>::Vector>(p);
}
ATTIKOS_AVX512_INLINE Words load_packed(StreamedPairs, std::uint32_t const* p) {
  return load_as<Words>(p);
}

/// sums (+)= left · `Units` units of the right factor, whose neighbors lie side by side, `k` ≤
/// Units·values rows. Goes along its rows, as memory likes to be read; sums stay in the nearest
/// cache.
template <class Kind, int Rows, int Units>
ATTIKOS_AVX512 inline void stream_rows(typename Kind::Left const* left,
                                       typename Kind::Element const* right, std::int64_t ld_right,
                                       typename Kind::Sum* sums, std::int64_t ld, int cols, int k,
                                       bool accumulate) {
  using V = typename Kind::Vector;
  using Unit = decltype(unit_of(Kind{}, typename Kind::Left{}));
  for (int j = 0; j < cols; j += Kind::width) {
    Unit unit[Units];
    ATTIKOS_UNROLL
    for (int u = 0; u < Units; ++u)
      unit[u] = load_unit(Kind{}, right + u * Kind::values * ld_right + j, ld_right, cols - j,
                          k - u * Kind::values);
    ATTIKOS_UNROLL
    for (int i = 0; i < Rows; ++i) {
      V sum{};
      if (accumulate) sum = load_as<V>(sums + i * ld + j);
      ATTIKOS_UNROLL
      for (int u = 0; u < Units; ++u)
        sum = Kind::add(unit_of(Kind{}, left[i * Kind::left_row + u]), unit[u], sum);
      store(sums + i * ld + j, sum);
    }
  }
}

/// The same for a right factor whose numbers along k lie side by side: squares of it are transposed
/// in registers. The stretches that it reads are too short for processors to see them coming, so
/// the next columns' are asked for.
template <class Kind, int Rows>
ATTIKOS_AVX512 inline void stream_columns(typename Kind::Left const* left,
                                          typename Kind::Element const* right,
                                          std::int64_t ld_right, typename Kind::Sum* sums,
                                          std::int64_t ld, int cols, int k, bool accumulate) {
  using V = typename Kind::Vector;
  using Square = typename Kind::Square;
  constexpr int W = Kind::width, values = Kind::values;
  for (int j = 0; j < cols; j += W) {
    int const neighbors = cols - j < W ? cols - j : W;
    V sum[Rows];
    ATTIKOS_UNROLL
    for (int i = 0; i < Rows; ++i) {
      sum[i] = V{};
      if (accumulate) sum[i] = load_as<V>(sums + i * ld + j);
    }
    for (int p = 0; p < k; p += W * values) {
      int const depth = k - p < W * values ? k - p : W * values;
      Square x[W];
      typename Kind::Element const* from = right + j * ld_right + p;
      if (cols - j >= 2 * W) {
        for (int n = 0; n < W; ++n) __builtin_prefetch(from + (W + n) * ld_right, 0, 2);
      }
      if (neighbors == W && depth == W * values) {
        ATTIKOS_UNROLL
        for (int n = 0; n < W; ++n) x[n] = load_as<Square>(from + n * ld_right);
      } else {
        int const bytes = depth * static_cast<int>(sizeof(*from));
        for (int n = 0; n < W; ++n) {
          Words const v = load_bytes(from, n < neighbors ? bytes : 0);
          x[n] = load_as<Square>(&v);
          if (n + 1 < neighbors) from += ld_right;
        }
      }
      Kind::transpose_square(x);
      typename Kind::Left packed[W][W];
      ATTIKOS_UNROLL
      for (int n = 0; n < W; ++n) store(packed[n], x[n]);
      int const units = (depth + values - 1) / values;
      for (int u = 0; u < units; ++u) {
        auto const column = load_packed(Kind{}, packed[u]);
        ATTIKOS_UNROLL
        for (int i = 0; i < Rows; ++i)
          sum[i] =
              Kind::add(unit_of(Kind{}, left[i * Kind::left_row + p / values + u]), column, sum[i]);
      }
    }
    ATTIKOS_UNROLL
    for (int i = 0; i < Rows; ++i) store(sums + i * ld + j, sum[i]);
  }
}

/// `rows` ≤ `Rows` of either.
template <class Kind, int Rows>
ATTIKOS_AVX512_INLINE void stream_few(typename Kind::Left const* left,
                                      Factor<typename Kind::Element> const& right,
                                      typename Kind::Sum* sums, std::int64_t ld, int rows, int cols,
                                      int k, bool accumulate) {
  if constexpr (Rows > 1) {
    if (rows < Rows)
      return stream_few<Kind, Rows - 1>(left, right, sums, ld, rows, cols, k, accumulate);
  }
  if (right.neighbor_stride != 1)
    return stream_columns<Kind, Rows>(left, right.data, right.neighbor_stride, sums, ld, cols, k,
                                      accumulate);
  constexpr int step = streamed_units * Kind::values;
  typename Kind::Element const* from = right.data;
  int p = 0;
  for (; p + step <= k; p += step, from += step * right.k_stride)
    stream_rows<Kind, Rows, streamed_units>(left + p / Kind::values, from, right.k_stride, sums, ld,
                                            cols, step, accumulate || p > 0);
  for (; p < k; p += Kind::values, from += Kind::values * right.k_stride)
    stream_rows<Kind, Rows, 1>(left + p / Kind::values, from, right.k_stride, sums, ld, cols, k - p,
                               accumulate || p > 0);
}

/// sums (+)= left · right for at most streamed_rows rows and a right factor one of whose strides is
/// 1. `sums` has room for whole vectors of columns.
template <class Kind>
ATTIKOS_AVX512 inline void stream_multiply(typename Kind::Left const* left,
                                           Factor<typename Kind::Element> const& right,
                                           typename Kind::Sum* sums, std::int64_t ld, int rows,
                                           int cols, int k, bool accumulate) {
  stream_few<Kind, streamed_rows>(left, right, sums, ld, rows, cols, k, accumulate);
}

/// What the lanes of each of 16 vectors come to: pairs of vectors, pairs of pairs, then the 128-bit
/// lanes.
ATTIKOS_AVX512_INLINE Words sums_of_lanes(Words const (&x)[16]) {
  Words y[8], z[4], w[2], low, high;
  ATTIKOS_UNROLL
  for (int i = 0; i < 8; ++i) {
    asm("vpunpckldq %2, %1, %0" : "=v"(low) : "v"(x[2 * i]), "v"(x[2 * i + 1]));
    asm("vpunpckhdq %2, %1, %0" : "=v"(high) : "v"(x[2 * i]), "v"(x[2 * i + 1]));
    y[i] = low + high;
  }
  ATTIKOS_UNROLL
  for (int i = 0; i < 4; ++i) {
    asm("vpunpcklqdq %2, %1, %0" : "=v"(low) : "v"(y[2 * i]), "v"(y[2 * i + 1]));
    asm("vpunpckhqdq %2, %1, %0" : "=v"(high) : "v"(y[2 * i]), "v"(y[2 * i + 1]));
    z[i] = low + high;
  }
  ATTIKOS_UNROLL
  for (int i = 0; i < 2; ++i) {
    asm("vshufi32x4 $0x88, %2, %1, %0" : "=v"(low) : "v"(z[2 * i]), "v"(z[2 * i + 1]));
    asm("vshufi32x4 $0xdd, %2, %1, %0" : "=v"(high) : "v"(z[2 * i]), "v"(z[2 * i + 1]));
    w[i] = low + high;
  }
  asm("vshufi32x4 $0x88, %2, %1, %0" : "=v"(low) : "v"(w[0]), "v"(w[1]));
  asm("vshufi32x4 $0xdd, %2, %1, %0" : "=v"(high) : "v"(w[0]), "v"(w[1]));
  return low + high;
}

/// The same of int8, for a right factor whose numbers along k lie side by side. Each lane sums what
/// it meets of a column; of 16 columns the lanes are added at last.
inline ATTIKOS_AVX512 void stream_quads(std::uint32_t const* left,
                                        Factor<std::uint8_t> const& right, std::uint32_t* sums,
                                        std::int64_t ld, int rows, int cols, int k,
                                        bool accumulate) {
  constexpr int W = vector_columns, bytes = 64;
  Words const flip = broadcast(Int8Quads::flip);
  for (int j = 0; j < cols; j += W) {
    std::uint8_t const* const first = right.data + j * right.neighbor_stride;
    bool const whole = cols - j >= W;
    for (int i = 0; i < rows; ++i) {
      std::uint32_t const* const row = left + std::int64_t{i} * row_words;
      Words sum[W];
      ATTIKOS_UNROLL
      for (int n = 0; n < W; ++n) sum[n] = Words{};
      int p = 0;
      for (; whole && p + bytes <= k; p += bytes) {
        Words const units = load_as<Words>(row + p / 4);
        std::uint8_t const* from = first + p;
        ATTIKOS_UNROLL
        for (int n = 0; n < W; ++n) {
          sum[n] = Int8Quads::dot(sum[n], load_as<Words>(from) ^ flip, units);
          from += right.neighbor_stride;
        }
      }
      for (; p < k; p += bytes) {  // behind what there is the left factor has 0
        Words const units = load_as<Words>(row + p / 4);
        std::uint8_t const* from = first + p;
        ATTIKOS_UNROLL
        for (int n = 0; n < W; ++n) {
          sum[n] = Int8Quads::dot(sum[n], load_bytes(from, k - p) ^ flip, units);
          if (j + n + 1 < cols) from += right.neighbor_stride;
        }
      }
      Words all = sums_of_lanes(sum) - (row[most_units] << 7);
      if (accumulate) all += load_as<Words>(sums + i * ld + j);
      store(sums + i * ld + j, all);
    }
  }
}

}  // namespace detail::host::avx512
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos

#undef ATTIKOS_UNROLL
#undef ATTIKOS_AVX512
#undef ATTIKOS_AVX512_INLINE

#endif  // ATTIKOS_HOST_X86
