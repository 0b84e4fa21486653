// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// team_gemm(): a matrix product inside a kernel of the caller's, done by one team.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/concepts.hpp>
#include <attikos/core/rows/row.hpp>
#include <attikos/gemm/team_gemm_device.hpp>

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

template <class Element, KokkosView View>
KOKKOS_INLINE_FUNCTION TeamMatrix<Element> team_matrix(View const& view, bool transposed) {
  TeamMatrix<Element> const matrix{
      reinterpret_cast<Element*>(view.data()), static_cast<int>(view.extent(0)),
      static_cast<int>(view.extent(1)), static_cast<std::int64_t>(view.stride(0)),
      static_cast<std::int64_t>(view.stride(1))};
  return transposed ? matrix.transposed() : matrix;
}

/// Whether columns of a View are dense and rows are not; known to the compiler if the layout says
/// so.
template <KokkosView View>
KOKKOS_INLINE_FUNCTION bool has_dense_columns(View const& view) {
  using Layout = typename View::array_layout;
  return std::is_same_v<Layout, Kokkos::LayoutLeft> ||
         (!std::is_same_v<Layout, Kokkos::LayoutRight> && view.stride(0) == 1 &&
          view.stride(1) != 1);
}

/// Rows that a thread of a host computes at a time.
inline constexpr int team_gemm_host_rows = 4;

namespace host {

/// Rows [i0, i0 + rows) of c = alpha·a·b + beta·c, a vector of columns at a time.
template <class Scalar, class A, class B, class C>
inline void team_gemm_rows(TeamMatrix<A> const& a, TeamMatrix<B> const& b, TeamMatrix<C> const& c,
                           Scalar alpha, Scalar beta, bool read_c, int i0, int rows) {
  using Acc = Scalar;
  constexpr int W = lanes<Acc>;
  constexpr int MR = team_gemm_host_rows;
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
/// of them is double and in float otherwise; int8 × int8 → int32 exact modulo 2³², alpha and beta
/// integers. No memory is needed. Ends with a barrier of the team, so that all threads see C; what
/// others of the team wrote to A, B, C needs one before. Any extent may be 0; k = 0 gives beta·C.
///
/// Sums run over k in ascending order. Where CUDA has matrix instructions for the types (any with
/// double; float16 or bfloat16, float8 beside either; int8), teams of 32 lanes or more, threads
/// times vector length, multiply by them: k ascends by blocks then, within which the instruction
/// has an order of its own. Fastest are A, B and C of dense rows, or of dense columns, that begin
/// at multiples of 16 bytes.
///
/// On CUDA a kernel takes 70 to 90 registers of a lane for it, more where options or strides are
/// known at run time only: Kokkos::AUTO chooses teams that fit, a larger one needs LaunchBounds. A
/// vector length of 32 and a thread for every 4 KiB of an operand are about the fastest.
///
/// Determinism: the same bits whatever the team's size, but for teams of fewer than 32 lanes where
/// larger ones multiply by matrix instructions.
template <class Team, KokkosView A, KokkosView B, KokkosView C>
KOKKOS_INLINE_FUNCTION void team_gemm(Team const& team, A const& a, B const& b, C const& c,
                                      TeamGemmOptions const& options = {}) {
  static_assert(rank_of<A> == 2 && rank_of<B> == 2 && rank_of<C> == 2,
                "attikos::team_gemm: A, B and C have rank 2");
  using TA = element_t<A>;
  using TB = element_t<B>;
  using TC = element_t<C>;
  static_assert(detail::gemm_types_are_supported<TA, TB, TC> &&
                    (detail::is_wide_real<TC> || std::is_same_v<TC, std::int32_t>)&&(
                        std::is_same_v<TC, std::int32_t> || !std::is_integral_v<TA>),
                "attikos::team_gemm: element types must be double, float, float16 or bfloat16 in "
                "any mix (A and B may be float8), or int8 x int8 -> int32");
  using Acc = detail::GemmAccumulator<TA, TB, TC>;
  auto const ma = detail::team_matrix<TA const>(a, options.trans_a);
  auto const mb = detail::team_matrix<TB const>(b, options.trans_b);
  auto const mc = detail::team_matrix<TC>(c, false);
  // Integer factors may be negative: by way of the signed type.
  using Factor = std::conditional_t<std::is_integral_v<Acc>, std::int32_t, Acc>;
  Acc const alpha = static_cast<Acc>(static_cast<Factor>(options.alpha));
  Acc const beta = static_cast<Acc>(static_cast<Factor>(options.beta));
  bool const read_c = options.beta != 0;
  if constexpr (detail::multiplies_in_fragments<typename Team::execution_space>) {
    detail::team_gemm_device<Team, TA, TB>(team, ma, mb,
                                           detail::TeamGemmResult<TC, Acc>{mc, alpha, beta, read_c},
                                           detail::has_dense_columns(c));
  } else {
    KOKKOS_IF_ON_HOST((constexpr int at_once = detail::team_gemm_host_rows;
                       int const blocks = (mc.rows + at_once - 1) / at_once;
                       Kokkos::parallel_for(Kokkos::TeamThreadRange(team, blocks), [&](int block) {
                         int const i0 = block * at_once, left = mc.rows - i0;
                         detail::host::team_gemm_rows<Acc>(ma, mb, mc, alpha, beta, read_c, i0,
                                                           left < at_once ? left : at_once);
                       });))
  }
  team.team_barrier();
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
