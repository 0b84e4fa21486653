// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Products of float32 and float64 on AVX-512's fused multiply-adds.
///
/// Every sum starts from 0, or from what it was, and takes its products one by one in ascending k,
/// each rounded once: its bits are those of any other code with fused multiply-adds that keeps the
/// order, whatever the block.
///
/// The left factor has rows of `fused_row` elements. The right one is in panels of two vectors of
/// columns.
#pragma once

#include <attikos/host/dot_product.hpp>

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

typedef double Doubles __attribute__((vector_size(64)));

/// k that is packed at once, and elements from a row of the left factor to the next: a constant,
/// so that one pointer reaches all rows of a block, that keeps rows out of one another's cache
/// sets.
inline constexpr int fused_depth = 256;
inline constexpr int fused_row = fused_depth + 16;

/// Vectors of `T`: the instruction that a product is, and squares of a vector's length, transposed.
/// For few_rows.hpp a unit of k is one element.
template <class T>
struct Fused;

template <>
struct Fused<float> {
  using Element = float;
  using Sum = float;
  using Left = float;
  using Vector = Floats;
  using Square = Words;
  static constexpr int width = 16, values = 1, left_row = fused_row;
  ATTIKOS_AVX512_INLINE static Vector add(Vector a, Vector b, Vector c) {
    asm("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
  }
  ATTIKOS_AVX512_INLINE static void transpose_square(Square (&x)[width]) { transpose(x); }
};

template <>
struct Fused<double> {
  using Element = double;
  using Sum = double;
  using Left = double;
  using Vector = Doubles;
  using Square = Doubles;
  static constexpr int width = 8, values = 1, left_row = fused_row;
  ATTIKOS_AVX512_INLINE static Vector add(Vector a, Vector b, Vector c) {
    asm("vfmadd231pd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
  }
  /// Pairs of numbers, then the 128-bit lanes as transpose() of 32-bit words has them.
  ATTIKOS_AVX512_INLINE static void transpose_square(Square (&x)[width]) {
    Doubles y[8];
    for (int i = 0; i < 8; i += 2) {
      asm("vunpcklpd %2, %1, %0" : "=v"(y[i]) : "v"(x[i]), "v"(x[i + 1]));
      asm("vunpckhpd %2, %1, %0" : "=v"(y[i + 1]) : "v"(x[i]), "v"(x[i + 1]));
    }
    for (int odd = 0; odd < 2; ++odd) {
      Doubles low[2], high[2];
      for (int h = 0; h < 2; ++h) {
        Doubles const &first = y[4 * h + odd], &second = y[4 * h + 2 + odd];
        asm("vshuff64x2 $0x88, %2, %1, %0" : "=v"(low[h]) : "v"(first), "v"(second));
        asm("vshuff64x2 $0xdd, %2, %1, %0" : "=v"(high[h]) : "v"(first), "v"(second));
      }
      asm("vshuff64x2 $0x88, %2, %1, %0" : "=v"(x[odd]) : "v"(low[0]), "v"(low[1]));
      asm("vshuff64x2 $0x88, %2, %1, %0" : "=v"(x[2 + odd]) : "v"(high[0]), "v"(high[1]));
      asm("vshuff64x2 $0xdd, %2, %1, %0" : "=v"(x[4 + odd]) : "v"(low[0]), "v"(low[1]));
      asm("vshuff64x2 $0xdd, %2, %1, %0" : "=v"(x[6 + odd]) : "v"(high[0]), "v"(high[1]));
    }
  }
};

/// Columns of a panel.
template <class T>
inline constexpr int fused_columns = 2 * Fused<T>::width;

template <class T>
ATTIKOS_AVX512_INLINE typename Fused<T>::Vector broadcast_of(T value) {
  return value - typename Fused<T>::Vector{};  // −0 stays what it is
}

/// `Rows` × `Vectors` sums over `k` products, in registers between load and store. Rows of the
/// right factor are `ld_right` apart.
template <class T, int Rows, int Vectors>
ATTIKOS_AVX512 inline void fused_block(T const* left, T const* right, std::int64_t ld_right,
                                       T* sums, std::int64_t ld, int k, bool accumulate) {
  using V = typename Fused<T>::Vector;
  constexpr int W = Fused<T>::width;
  V sum[Rows][Vectors];
  ATTIKOS_UNROLL
  for (int i = 0; i < Rows; ++i) ATTIKOS_UNROLL
  for (int v = 0; v < Vectors; ++v) {
    sum[i][v] = V{};
    if (accumulate) sum[i][v] = load_as<V>(sums + i * ld + v * W);
  }
  for (int p = 0; p < k; ++p) {
    V column[Vectors];
    ATTIKOS_UNROLL
    for (int v = 0; v < Vectors; ++v) column[v] = load_as<V>(right + v * W);
    ATTIKOS_UNROLL
    for (int i = 0; i < Rows; ++i) {
      V const factor = broadcast_of(left[i * fused_row]);
      ATTIKOS_UNROLL
      for (int v = 0; v < Vectors; ++v) sum[i][v] = Fused<T>::add(factor, column[v], sum[i][v]);
    }
    left += 1;
    right += ld_right;
  }
  ATTIKOS_UNROLL
  for (int i = 0; i < Rows; ++i) ATTIKOS_UNROLL
  for (int v = 0; v < Vectors; ++v) store(sums + i * ld + v * W, sum[i][v]);
}

/// `rows` ≤ `Rows` of them.
template <class T, int Rows, int Vectors>
ATTIKOS_AVX512_INLINE void fused_few(T const* left, T const* right, std::int64_t ld_right, T* sums,
                                     std::int64_t ld, int rows, int k, bool accumulate) {
  if constexpr (Rows > 1) {
    if (rows < Rows)
      return fused_few<T, Rows - 1, Vectors>(left, right, ld_right, sums, ld, rows, k, accumulate);
  }
  fused_block<T, Rows, Vectors>(left, right, ld_right, sums, ld, k, accumulate);
}

/// Rows in register blocks of nearly one height, none of which is so low that its sums wait for one
/// another.
template <class T, int Vectors>
ATTIKOS_AVX512 inline void fused_rows(T const* left, T const* right, T* sums, std::int64_t ld,
                                      int rows, int k, bool accumulate) {
  for (int blocks = (rows + block_rows - 1) / block_rows; blocks > 0; --blocks) {
    int const height = (rows + blocks - 1) / blocks;
    fused_few<T, block_rows, Vectors>(left, right, fused_columns<T>, sums, ld, height, k,
                                      accumulate);
    rows -= height;
    left += static_cast<std::int64_t>(height) * fused_row;
    sums += height * ld;
  }
}

/// sums (+)= left · right, `k` ≤ fused_depth deep, for panels `panel` elements apart. `sums` has
/// room for whole vectors of columns.
template <class T>
ATTIKOS_AVX512 inline void fused_multiply(T const* left, T const* right, std::int64_t panel,
                                          T* sums, std::int64_t ld, int rows, int cols, int k,
                                          bool accumulate) {
  for (int j = 0; j < cols; j += fused_columns<T>, right += panel) {
    if (cols - j > Fused<T>::width)
      fused_rows<T, 2>(left, right, sums + j, ld, rows, k, accumulate);
    else
      fused_rows<T, 1>(left, right, sums + j, ld, rows, k, accumulate);
  }
}

}  // namespace detail::host::avx512
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos

#undef ATTIKOS_UNROLL
#undef ATTIKOS_AVX512
#undef ATTIKOS_AVX512_INLINE

#endif  // ATTIKOS_HOST_X86
