// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// team_gemm(): a matrix product inside a kernel of the caller's, done by one team.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/concepts.hpp>
#include <attikos/core/rows/row.hpp>
#include <attikos/gemm/gemm_types.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of team_gemm().
struct TeamGemmOptions {
  double alpha = 1;      ///< factor of op(A)·op(B)
  double beta = 0;       ///< factor of what C holds; 0 never reads C
  bool trans_a = false;  ///< op(A) = Aᵀ
  bool trans_b = false;  ///< op(B) = Bᵀ
};

namespace detail {

/// A matrix inside a kernel.
template <class T>
struct TeamMatrix {
  T* data;
  int rows, cols;
  std::int64_t row_stride, col_stride;
};

template <KokkosView View>
KOKKOS_INLINE_FUNCTION auto team_matrix(View const& view, bool transposed) {
  using Storage = std::remove_pointer_t<decltype(view.data())>;
  using Element =
      std::conditional_t<std::is_const_v<Storage>, element_t<View> const, element_t<View>>;
  int const rows = static_cast<int>(view.extent(0)), cols = static_cast<int>(view.extent(1));
  auto const row_stride = static_cast<std::int64_t>(view.stride(0));
  auto const col_stride = static_cast<std::int64_t>(view.stride(1));
  auto* const data = reinterpret_cast<Element*>(view.data());
  return transposed ? TeamMatrix<Element>{data, cols, rows, col_stride, row_stride}
                    : TeamMatrix<Element>{data, rows, cols, row_stride, col_stride};
}

/// Rows of a host thread at a time, elements of a device thread.
struct TeamGemmBlock {
  static constexpr int host_rows = 4;
  static constexpr int rows = 2, cols = 2;
};

/// The whole product on a device: blocks of elements for all threads and lanes of the team.
template <class Acc, class Team, class A, class B, class C>
KOKKOS_INLINE_FUNCTION void team_gemm_blocks(Team const& team, TeamMatrix<A> const& a,
                                             TeamMatrix<B> const& b, TeamMatrix<C> const& c,
                                             Acc alpha, Acc beta, bool read_c) {
  using Block = TeamGemmBlock;
  int const row_blocks = (c.rows + Block::rows - 1) / Block::rows;
  int const col_blocks = (c.cols + Block::cols - 1) / Block::cols;
  Kokkos::parallel_for(Kokkos::TeamVectorRange(team, row_blocks * col_blocks), [&](int block) {
    // Columns of a block lie apart, so that neighboring threads meet neighboring columns.
    int const i0 = block / col_blocks * Block::rows;
    int const j0 = block % col_blocks;
    Acc sum[Block::rows][Block::cols] = {};
    for (int p = 0; p < a.cols; ++p) {
      Acc right[Block::cols];
      for (int j = 0; j < Block::cols; ++j) {
        int const col = j0 + j * col_blocks < c.cols ? j0 + j * col_blocks : j0;
        right[j] = static_cast<Acc>(b.data[p * b.row_stride + col * b.col_stride]);
      }
      for (int i = 0; i < Block::rows; ++i) {
        int const row = i0 + i < c.rows ? i0 + i : i0;
        Acc const left = static_cast<Acc>(a.data[row * a.row_stride + p * a.col_stride]);
        for (int j = 0; j < Block::cols; ++j) sum[i][j] += left * right[j];
      }
    }
    for (int i = 0; i < Block::rows; ++i)
      for (int j = 0; j < Block::cols; ++j) {
        int const row = i0 + i;
        int const col = j0 + j * col_blocks;
        if (row >= c.rows || col >= c.cols) continue;
        C* const to = c.data + row * c.row_stride + col * c.col_stride;
        Acc x = alpha * sum[i][j];
        if (read_c) x += beta * static_cast<Acc>(*to);
        *to = static_cast<C>(x);
      }
  });
}

namespace host {

/// Rows [i0, i0 + rows) of c = alpha·a·b + beta·c, a vector of columns at a time.
template <class Scalar, class A, class B, class C>
inline void team_gemm_rows(TeamMatrix<A> const& a, TeamMatrix<B> const& b, TeamMatrix<C> const& c,
                           Scalar alpha, Scalar beta, bool read_c, int i0, int rows) {
  using Acc = Scalar;
  constexpr int W = lanes<Acc>;
  constexpr int MR = TeamGemmBlock::host_rows;
  for (int j = 0; j < c.cols; j += W) {
    int const count = c.cols - j < W ? c.cols - j : W;
    Vec<Acc> sum[MR] = {};
    for (int p = 0; p < a.cols; ++p) {
      Vec<Acc> const v =
          load_row<Acc>(b.data + p * b.row_stride + j * b.col_stride, b.col_stride, count);
      for (int i = 0; i < MR; ++i) {
        int const row = i0 + (i < rows ? i : 0);
        sum[i] += static_cast<Acc>(a.data[row * a.row_stride + p * a.col_stride]) * v;
      }
    }
    for (int i = 0; i < rows; ++i) {
      C* const to = c.data + (i0 + i) * c.row_stride + j * c.col_stride;
      Vec<Acc> x = alpha * sum[i];
      if (read_c) x += beta * load_row<Acc>(to, c.col_stride, count);
      put<Acc>(to, c.col_stride, count, x);
    }
  }
}

}  // namespace host
}  // namespace detail

/// A product of small matrices by the threads of one team, for kernels of the caller's own:
/// C = alpha·op(A)·op(B) + beta·C.
///
/// \param team     member of a Kokkos::TeamPolicy; all its threads make the call, with equal
///                 arguments, outside of nested parallel loops
/// \param a, b, c  rank-2 Views (subviews, scratch memory) of [m, k], [k, n], [m, n] (A is [k, m]
///                 with `trans_a`, B [n, k] with `trans_b`), any strides; extents below 2³¹, which
///                 must fit together: inside a kernel nothing is checked. C overlaps neither
///
/// Types: double, float, float16, bfloat16 in any mix, A and B float8 too, summed in double if one
/// of them is double and in float otherwise, over k in ascending order; int8 × int8 → int32 exact
/// modulo 2³², alpha and beta integers. No memory is needed. Ends with a barrier of the team, so
/// that all threads see C; what others of the team wrote to A, B, C needs one before. Any extent
/// may be 0; k = 0 gives beta·C.
///
/// Determinism: the same bits whatever the team's size.
template <class Team, KokkosView A, KokkosView B, KokkosView C>
KOKKOS_INLINE_FUNCTION void team_gemm(Team const& team, A const& a, B const& b, C const& c,
                                      TeamGemmOptions const& options = {}) {
  static_assert(rank_of<A> == 2 && rank_of<B> == 2 && rank_of<C> == 2,
                "attikos::team_gemm: A, B and C have rank 2");
  using TC = element_t<C>;
  static_assert(detail::gemm_types_are_supported<element_t<A>, element_t<B>, TC> &&
                    (detail::is_wide_real<TC> || std::is_same_v<TC, std::int32_t>)&&(
                        std::is_same_v<TC, std::int32_t> || !std::is_integral_v<element_t<A>>),
                "attikos::team_gemm: element types must be double, float, float16 or bfloat16 in "
                "any mix (A and B may be float8), or int8 x int8 -> int32");
  using Acc = detail::GemmAccumulator<element_t<A>, element_t<B>, TC>;
  auto const ma = detail::team_matrix(a, options.trans_a);
  auto const mb = detail::team_matrix(b, options.trans_b);
  auto const mc = detail::team_matrix(c, false);
  // Integer factors may be negative: by way of the signed type.
  using Factor = std::conditional_t<std::is_integral_v<Acc>, std::int32_t, Acc>;
  Acc const alpha = static_cast<Acc>(static_cast<Factor>(options.alpha));
  Acc const beta = static_cast<Acc>(static_cast<Factor>(options.beta));
  bool const read_c = options.beta != 0;
  using Block = detail::TeamGemmBlock;
  KOKKOS_IF_ON_HOST((int const blocks = (mc.rows + Block::host_rows - 1) / Block::host_rows;
                     Kokkos::parallel_for(Kokkos::TeamThreadRange(team, blocks), [&](int block) {
                       int const i0 = block * Block::host_rows;
                       int const left = mc.rows - i0;
                       detail::host::team_gemm_rows<Acc>(
                           ma, mb, mc, alpha, beta, read_c, i0,
                           left < Block::host_rows ? left : Block::host_rows);
                     });))
  KOKKOS_IF_ON_DEVICE((detail::team_gemm_blocks<Acc>(team, ma, mb, mc, alpha, beta, read_c);))
  team.team_barrier();
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
