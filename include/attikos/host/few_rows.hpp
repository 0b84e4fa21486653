// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Products of few rows, which use an element of the right factor too seldom for packing it to pay:
/// it is read once, where it lies, if one of its strides is 1.
///
/// Sums take the same products in the same order as from packed panels, so their bits are the same.
/// A `Kind` is Fused<float>, Fused<double> or StreamedPairs; a unit of k is one element or a pair.
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

}  // namespace detail::host::avx512
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos

#undef ATTIKOS_UNROLL
#undef ATTIKOS_AVX512
#undef ATTIKOS_AVX512_INLINE

#endif  // ATTIKOS_HOST_X86
