// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The vocabulary of the portable matrix kernels: pack a block of a tensor into scratch, multiply
/// two packed blocks.
///
/// One kernel body serves every back end. What differs is in TileTraits: on a host a team is one
/// thread that works through register blocks of vectors (the scheme of Goto and van de Geijn, ACM
/// TOMS 34(3), 2008); on a device a team is a block of threads that share the register blocks among
/// themselves.
#pragma once

#include <attikos/core/concepts.hpp>
#include <attikos/core/simd.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Register block and team shape for one execution space and accumulator.
template <ExecutionSpace Exec, class Acc>
struct TileTraits {
  static constexpr bool host = is_host_space<Exec>;
  static constexpr int width = host ? host::lanes<Acc> : 1;
  /// Rows and columns of one register block. On a host all accumulators and two vectors of B stay
  /// in registers.
  static constexpr int rows = !host ? 4 : (host::register_count == 32 ? 12 : 6);
  static constexpr int cols = host ? 2 * width : 4;
  /// Threads along a team and lanes of a thread.
  static constexpr int team_size = host ? 1 : 32;
  static constexpr int vector_length = host ? 1 : 8;
  /// Where tiles lie: private memory of a host thread, shared memory of a device block.
  static constexpr int scratch_level = host ? 1 : 0;
};

template <class T>
KOKKOS_INLINE_FUNCTION constexpr T round_up(T value, T multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// A matrix in memory: pointer and two strides in elements.
template <class T>
struct Block {
  T* data;
  std::int64_t row_stride;
  std::int64_t col_stride;
  KOKKOS_INLINE_FUNCTION T* at(std::int64_t row, std::int64_t col) const {
    return data + row * row_stride + col * col_stride;
  }
};

namespace host {

/// Copies `rows` × `cols` elements into row-major accumulators.
template <class Acc, class T>
inline void pack_rows(Acc* dst, int ld, Block<T const> src, int rows, int cols) {
  constexpr int W = lanes<Acc>;
  if (src.col_stride == 1) {
    for (int i = 0; i < rows; ++i) {
      T const* from = src.at(i, 0);
      Acc* to = dst + static_cast<std::int64_t>(i) * ld;
      int p = 0;
      for (; p + W <= cols; p += W) store<Acc, W>(to + p, load<Acc, W>(from + p));
      for (; p < cols; ++p) to[p] = static_cast<Acc>(from[p]);
    }
    return;
  }
  int i = 0;
  if (src.row_stride == 1) {
    // Contiguous along rows: transpose in registers, W × W at a time.
    for (; i + W <= rows; i += W) {
      int p = 0;
      for (; p + W <= cols; p += W) {
        Vec<Acc, W> v[W];
        for (int l = 0; l < W; ++l) v[l] = load<Acc, W>(src.at(i, p + l));
        transpose<Acc, W>(v);
        for (int l = 0; l < W; ++l)
          store<Acc, W>(dst + static_cast<std::int64_t>(i + l) * ld + p, v[l]);
      }
      for (; p < cols; ++p)
        for (int l = 0; l < W; ++l)
          dst[static_cast<std::int64_t>(i + l) * ld + p] = static_cast<Acc>(*src.at(i + l, p));
    }
  }
  for (; i < rows; ++i)
    for (int p = 0; p < cols; ++p)
      dst[static_cast<std::int64_t>(i) * ld + p] = static_cast<Acc>(*src.at(i, p));
}

/// Copies `k` × `cols` elements into panels of `NR` columns, each panel `k_stride` rows long;
/// missing columns are 0.
template <int NR, class Acc, class T>
inline void pack_panels(Acc* dst, int k_stride, Block<T const> src, int k, int cols) {
  constexpr int W = lanes<Acc>;
  for (int j0 = 0; j0 < cols; j0 += NR, dst += static_cast<std::int64_t>(k_stride) * NR) {
    int const width = cols - j0 < NR ? cols - j0 : NR;
    if (width == NR && src.col_stride == 1) {
      for (int p = 0; p < k; ++p)
        for (int l = 0; l < NR; l += W)
          store<Acc, W>(dst + static_cast<std::int64_t>(p) * NR + l,
                        load<Acc, W>(src.at(p, j0 + l)));
      continue;
    }
    int p = 0;
    if (width == NR && src.row_stride == 1) {
      for (; p + W <= k; p += W) {
        for (int part = 0; part < NR; part += W) {
          Vec<Acc, W> v[W];
          for (int l = 0; l < W; ++l) v[l] = load<Acc, W>(src.at(p, j0 + part + l));
          transpose<Acc, W>(v);
          for (int l = 0; l < W; ++l)
            store<Acc, W>(dst + static_cast<std::int64_t>(p + l) * NR + part, v[l]);
        }
      }
    }
    for (; p < k; ++p) {
      Acc* to = dst + static_cast<std::int64_t>(p) * NR;
      for (int l = 0; l < width; ++l) to[l] = static_cast<Acc>(*src.at(p, j0 + l));
      for (int l = width; l < NR; ++l) to[l] = Acc(0);
    }
  }
}

/// c[MR × NR] (+)= a[MR × k] · b[k × NR], everything in registers between load and store of c.
template <class Acc, int W, int MR, int NV>
inline void multiply_block(Acc const* a, int lda, Acc const* b, Acc* c, int ldc, int k,
                           bool accumulate) {
  using V = Vec<Acc, W>;
  V acc[MR][NV];
  for (int i = 0; i < MR; ++i)
    for (int v = 0; v < NV; ++v)
      acc[i][v] = accumulate ? load<Acc, W>(c + static_cast<std::int64_t>(i) * ldc + v * W) : V{};
  for (int p = 0; p < k; ++p) {
    V column[NV];
    for (int v = 0; v < NV; ++v)
      column[v] = load<Acc, W>(b + static_cast<std::int64_t>(p) * NV * W + v * W);
    for (int i = 0; i < MR; ++i) {
      V const factor = broadcast<Acc, W>(a[static_cast<std::int64_t>(i) * lda + p]);
      for (int v = 0; v < NV; ++v) acc[i][v] = multiply_add<Acc, W>(factor, column[v], acc[i][v]);
    }
  }
  for (int i = 0; i < MR; ++i)
    for (int v = 0; v < NV; ++v)
      store<Acc, W>(c + static_cast<std::int64_t>(i) * ldc + v * W, acc[i][v]);
}

/// Rows that do not fill a register block go through ever smaller ones. Each element sees the same
/// sums either way.
template <class Acc, int W, int MR, int NV>
inline void multiply_rows(Acc const* a, int lda, Acc const* b, Acc* c, int ldc, int rows, int k,
                          bool accumulate) {
  for (; rows >= MR; rows -= MR, a += static_cast<std::int64_t>(MR) * lda,
                     c += static_cast<std::int64_t>(MR) * ldc)
    multiply_block<Acc, W, MR, NV>(a, lda, b, c, ldc, k, accumulate);
  if constexpr (MR > 1) {
    constexpr int next = MR > 8 ? 8 : (MR > 4 ? 4 : MR / 2);
    if (rows > 0) multiply_rows<Acc, W, next, NV>(a, lda, b, c, ldc, rows, k, accumulate);
  }
}

/// One row of c += a · b over the entries of a that are not 0, in the order of multiply_block().
template <class Acc, int W, int NV>
inline void multiply_nonzero_row(Acc const* a, Acc const* b, Acc* c, int k) {
  using V = Vec<Acc, W>;
  V acc[NV];
  for (int v = 0; v < NV; ++v) acc[v] = load<Acc, W>(c + v * W);
  for (int p = 0; p < k; ++p) {
    if (a[p] == Acc(0)) continue;
    for (int v = 0; v < NV; ++v)
      acc[v] = multiply_add<Acc, W>(broadcast<Acc, W>(a[p]),
                                    load<Acc, W>(b + static_cast<std::int64_t>(p) * NV * W + v * W),
                                    acc[v]);
  }
  for (int v = 0; v < NV; ++v) store<Acc, W>(c + v * W, acc[v]);
}

/// Whether `count` numbers are all finite. x·0 is NaN exactly where x is not.
template <class Acc>
inline bool all_finite(Acc const* x, std::int64_t count) {
  constexpr int W = lanes<Acc>;
  Vec<Acc, W> probe{};
  std::int64_t j = 0;
  for (; j + W <= count; j += W) probe += load<Acc, W>(x + j) * Acc(0);
  Acc rest = reduce_sum<Acc, W>(probe);
  for (; j < count; ++j) rest += x[j] * Acc(0);
  return rest == Acc(0);
}

}  // namespace host

/// Packs a `rows` × `cols` block into row-major scratch with leading dimension `ld`. All threads of
/// the team call it.
template <class Traits, class Team, class Acc, class T>
KOKKOS_INLINE_FUNCTION void pack_rows(Team const& team, Acc* dst, int ld, Block<T const> src,
                                      int rows, int cols) {
  if constexpr (Traits::host) {
    KOKKOS_IF_ON_HOST((host::pack_rows<Acc, T>(dst, ld, src, rows, cols);))
  } else {
    bool const by_column = src.row_stride == 1;  // neighbors in memory go to neighboring threads
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * cols), [&](int index) {
      int const i = by_column ? index % rows : index / cols;
      int const p = by_column ? index / rows : index % cols;
      dst[i * ld + p] = static_cast<Acc>(*src.at(i, p));
    });
  }
  (void)team;
}

/// Packs a `k` × `cols` block as the right-hand factor. `ld` is the number of rows a panel has room
/// for (host) or the padded number of columns (device).
template <class Traits, class Team, class Acc, class T>
KOKKOS_INLINE_FUNCTION void pack_panels(Team const& team, Acc* dst, int ld, Block<T const> src,
                                        int k, int cols) {
  if constexpr (Traits::host) {
    KOKKOS_IF_ON_HOST((host::pack_panels<Traits::cols, Acc, T>(dst, ld, src, k, cols);))
  } else {
    bool const by_column = src.row_stride == 1;
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, k * ld), [&](int index) {
      int const p = by_column ? index % k : index / ld;
      int const j = by_column ? index / k : index % ld;
      dst[p * ld + j] = j < cols ? static_cast<Acc>(*src.at(p, j)) : Acc(0);
    });
  }
  (void)team;
}

/// c (+)= a · b for packed factors; `SkipZeros` leaves out entries of a that are 0 (device only).
/// `cols` is rounded up to whole register blocks: c must have room for them. Every element of c
/// sums over k in ascending order, whatever the tile.
template <class Traits, class Team, class Acc, bool SkipZeros = false>
KOKKOS_INLINE_FUNCTION void multiply(Team const& team, Acc const* a, int lda, Acc const* b, int ldb,
                                     Acc* c, int ldc, int rows, int cols, int k, bool accumulate) {
  if constexpr (Traits::host) {
    KOKKOS_IF_ON_HOST((for (int j = 0; j < cols;
                            j += Traits::cols, b += static_cast<std::int64_t>(ldb) * Traits::cols)
                           host::multiply_rows<Acc, Traits::width, Traits::rows, 2>(
                               a, lda, b, c + j, ldc, rows, k, accumulate);))
  } else {
    constexpr int MR = Traits::rows;
    constexpr int NR = Traits::cols;
    int const col_blocks = (cols + NR - 1) / NR;
    int const row_blocks = (rows + MR - 1) / MR;
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, row_blocks * col_blocks), [&](int block) {
      // Columns of one block lie `col_blocks` apart, so that neighboring threads read neighboring
      // words of b.
      int const j0 = block % col_blocks;
      int const i0 = block / col_blocks * MR;
      Acc acc[MR][NR];
      for (int i = 0; i < MR; ++i)
        for (int j = 0; j < NR; ++j)
          acc[i][j] =
              accumulate && i0 + i < rows ? c[(i0 + i) * ldc + j0 + j * col_blocks] : Acc(0);
      for (int p = 0; p < k; ++p) {
        Acc column[NR];
        for (int j = 0; j < NR; ++j) column[j] = b[p * ldb + j0 + j * col_blocks];
        for (int i = 0; i < MR; ++i) {
          Acc const factor = a[(i0 + i < rows ? i0 + i : rows - 1) * lda + p];
          if (SkipZeros && factor == Acc(0)) continue;
          for (int j = 0; j < NR; ++j) acc[i][j] += factor * column[j];
        }
      }
      for (int i = 0; i < MR; ++i)
        if (i0 + i < rows)
          for (int j = 0; j < NR; ++j) c[(i0 + i) * ldc + j0 + j * col_blocks] = acc[i][j];
    });
  }
  (void)team;
}

/// c += a · b over the entries of a that are not 0. For weights behind a mask: a value that a query
/// must not see must not reach it as 0·NaN either.
template <class Traits, class Team, class Acc>
KOKKOS_INLINE_FUNCTION void multiply_nonzero(Team const& team, Acc const* a, int lda, Acc const* b,
                                             int ldb, Acc* c, int ldc, int rows, int cols, int k) {
  if constexpr (Traits::host) {
    KOKKOS_IF_ON_HOST((for (int j = 0; j < cols;
                            j += Traits::cols, b += static_cast<std::int64_t>(ldb) * Traits::cols) {
      if (host::all_finite<Acc>(b, static_cast<std::int64_t>(k) * Traits::cols)) {
        // 0 times a finite number adds nothing: whole register blocks of rows need not be taken
        // apart.
        host::multiply_rows<Acc, Traits::width, Traits::rows, 2>(a, lda, b, c + j, ldc, rows, k,
                                                                 true);
      } else {
        for (int i = 0; i < rows; ++i)
          host::multiply_nonzero_row<Acc, Traits::width, 2>(
              a + static_cast<std::int64_t>(i) * lda, b, c + static_cast<std::int64_t>(i) * ldc + j,
              k);
      }
    }))
    (void)team;
  } else {
    multiply<Traits, Team, Acc, true>(team, a, lda, b, ldb, c, ldc, rows, cols, k, true);
  }
}

/// Aligned piece of the team's scratch memory, `count` elements long.
template <class Acc, class Team>
KOKKOS_INLINE_FUNCTION Acc* scratch(Team const& team, int level, std::int64_t count) {
  return static_cast<Acc*>(team.team_scratch(level).get_shmem_aligned(
      static_cast<std::size_t>(count) * sizeof(Acc), 64));
}

/// Bytes to request for a piece of `count` elements, alignment included.
template <class Acc>
constexpr std::size_t scratch_bytes(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(Acc) + 64;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
