// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// team_gemm() on a device: warps of the team multiply in fragments where the device has them for
/// the types, else each lane has blocks of C of its own. Factors come from where they lie into
/// registers.
#pragma once

#include <attikos/core/fragments/fragments.hpp>
#include <attikos/core/fragments/lane_blocks.hpp>
#include <attikos/core/fragments/stage.hpp>
#include <attikos/core/lane.hpp>
#include <attikos/gemm/gemm_types.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// A matrix inside a kernel.
template <class T>
struct TeamMatrix {
  T* data;
  int rows, cols;
  std::int64_t row_stride, col_stride;
  KOKKOS_INLINE_FUNCTION TeamMatrix transposed() const {
    return {data, cols, rows, col_stride, row_stride};
  }
};

/// C = alpha · sums + beta · C.
template <class C, class Acc>
struct TeamGemmResult {
  TeamMatrix<C> c;
  Acc alpha, beta;
  bool read_c;

  /// Finishes `Count` neighbors of a row, as far as C has them. `at_once`: moves<Count>().
  template <int Count>
  KOKKOS_INLINE_FUNCTION void store(Acc const (&sums)[Count], int row, int col,
                                    bool at_once) const {
    if (row >= c.rows || col >= c.cols) return;
    C* const to = c.data + row * c.row_stride + col * c.col_stride;
    if (at_once && col + Count <= c.cols) {
      Acc x[Count], old[Count];
      if (read_c) load_neighbors<Acc>(to, old);
      ATTIKOS_UNROLL_DEVICE
      for (int j = 0; j < Count; ++j) {
        x[j] = alpha * sums[j];
        if (read_c) x[j] += beta * old[j];
      }
      return store_nearest(to, x);
    }
    ATTIKOS_UNROLL_DEVICE
    for (int j = 0; j < Count; ++j) {
      if (col + j >= c.cols) continue;
      Acc x = alpha * sums[j];
      if (read_c) x += beta * element_value<Acc>(to[j * c.col_stride]);
      to[j * c.col_stride] = nearest_element<C>(x);
    }
  }
  /// Whether so many neighbors may be moved at once.
  template <int Count>
  KOKKOS_INLINE_FUNCTION bool moves() const {
    constexpr unsigned bytes = sizeof(C) * pack_size<C, Count>;
    return c.col_stride == 1 && reinterpret_cast<std::uintptr_t>(c.data) % bytes == 0 &&
           static_cast<std::uint64_t>(c.row_stride) * sizeof(C) % bytes == 0;
  }
};

/// Each lane of the team computes blocks of `Rows` × `Cols` elements, `Depth` of k at a time.
template <int Rows, int Cols, int Depth, class Acc, class Team, class A, class B, class C>
KOKKOS_INLINE_FUNCTION void team_gemm_blocks(Team const& team, TeamMatrix<A> const& a,
                                             TeamMatrix<B> const& b,
                                             TeamGemmResult<C, Acc> const& result) {
  LaneBlocks<Acc, std::remove_const_t<A>, Rows, Depth> const left(a.data, a.rows, a.cols,
                                                                  a.row_stride, a.col_stride);
  LaneBlocks<Acc, std::remove_const_t<B>, Cols, Depth> const right(b.data, b.cols, b.rows,
                                                                   b.col_stride, b.row_stride);
  bool const at_once = result.template moves<Cols>();
  int const row_blocks = (result.c.rows + Rows - 1) / Rows;
  int const col_blocks = (result.c.cols + Cols - 1) / Cols;
  Kokkos::parallel_for(Kokkos::TeamVectorRange(team, row_blocks * col_blocks), [&](int block) {
    int const row = block / col_blocks * Rows, col = block % col_blocks * Cols;
    bool const whole =
        left.template has_whole_blocks<Rows>(row) && right.template has_whole_blocks<Cols>(col);
    Acc sums[Rows][Cols] = {};
    auto const add = [&](auto const& x, auto const& y, int depth) {
      ATTIKOS_UNROLL_DEVICE
      for (int p = 0; p < depth; ++p) ATTIKOS_UNROLL_DEVICE
      for (int i = 0; i < Rows; ++i) ATTIKOS_UNROLL_DEVICE
      for (int j = 0; j < Cols; ++j) sums[i][j] += x[i][p] * y[j][p];
    };
    int k = for_each_depth<Depth>(left, right, whole, [&](int at, auto a_by_k, auto b_by_k) {
      Acc x[Rows][Depth], y[Cols][Depth];
      left.load(x, row, at, a_by_k, true);
      right.load(y, col, at, b_by_k, true);
      add(x, y, Depth);
    });
    ATTIKOS_DO_NOT_UNROLL_DEVICE
    for (; k < a.cols; ++k) {
      Acc x[Rows][1], y[Cols][1];
      left.load_elements(x, row, k);
      right.load_elements(y, col, k);
      add(x, y, 1);
    }
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Rows; ++i) result.store(sums[i], row + i, col, at_once);
  });
}

/// Each warp of the team computes tiles of 16 rows and `Fragments` fragments F across.
template <class F, int Fragments, class Acc, class A, class B, class C>
KOKKOS_INLINE_FUNCTION void team_gemm_fragments(TeamWarp const& warp, TeamMatrix<A> const& a,
                                                TeamMatrix<B> const& b,
                                                TeamGemmResult<C, Acc> const& result) {
  using T = typename F::Element;
  using Of = typename F::OfLane;
  constexpr int run = Of::run, eights = Fragments * Of::eights;
  // A lane's rows and columns are neighbors: those of a tile may be numbered at will.
  LaneBlocks<T, std::remove_const_t<A>, 2, run> const left(a.data, a.rows, a.cols, a.row_stride,
                                                           a.col_stride);
  LaneBlocks<T, std::remove_const_t<B>, eights, run> const right(b.data, b.cols, b.rows,
                                                                 b.col_stride, b.row_stride);
  bool const at_once = result.template moves<2 * eights>();
  int const tiles_n = (result.c.cols + 8 * eights - 1) / (8 * eights);
  int const tiles = (result.c.rows + F::rows - 1) / F::rows * tiles_n;
  if (warp.rank >= warp.count) return;
  lane_barrier();
  ATTIKOS_DO_NOT_UNROLL_DEVICE
  for (int tile = warp.rank; tile < tiles; tile += warp.count) {
    int const row = tile / tiles_n * F::rows, col = tile % tiles_n * (8 * eights);
    bool const whole = left.template has_whole_blocks<F::rows>(row) &&
                       right.template has_whole_blocks<8 * eights>(col);
    typename F::Sums sums[Fragments] = {};
    // `load` loads a lane's share of both factors, given the lane's first row, column and k.
    auto const add = [&](int k, auto const& load) {
      typename F::Left of_a;
      typename F::Right of_b[Fragments];
      F::each_lane(warp.lane, [&](int lane) {
        T x[2][run], y[eights][run];
        load(x, y, row + lane / 4 * 2, col + lane / 4 * eights, k + lane % 4 * run);
        ATTIKOS_UNROLL_DEVICE
        for (int i = 0; i < 2; ++i) Of::set_run(F::of_lane(of_a, lane), i, x[i]);
        ATTIKOS_UNROLL_DEVICE
        for (int j = 0; j < eights; ++j)
          Of::set_run(F::of_lane(of_b[j / Of::eights], lane), j % Of::eights, y[j]);
      });
      ATTIKOS_UNROLL_DEVICE
      for (int j = 0; j < Fragments; ++j) F::multiply_add(sums[j], of_a, of_b[j]);
    };
    int k = for_each_depth<F::depth>(left, right, whole, [&](int at, auto a_by_k, auto b_by_k) {
      add(at, [&](auto& x, auto& y, int i, int j, int l) {
        left.load(x, i, l, a_by_k, l < a.cols);
        right.load(y, j, l, b_by_k, l < a.cols);
      });
    });
    ATTIKOS_DO_NOT_UNROLL_DEVICE
    for (; k < a.cols; k += F::depth)
      add(k, [&](auto& x, auto& y, int i, int j, int l) {
        left.load_elements(x, i, l);
        right.load_elements(y, j, l);
      });
    F::each_lane(warp.lane, [&](int lane) {
      ATTIKOS_UNROLL_DEVICE
      for (int i = 0; i < 2; ++i) {
        Acc x[2 * eights];
        ATTIKOS_UNROLL_DEVICE
        for (int j = 0; j < 2 * eights; ++j)
          x[j] = static_cast<Acc>(Of::sum(F::of_lane(sums[j % eights / Of::eights], lane), i,
                                          j / eights, j % Of::eights));
        result.store(x, row + lane / 4 * 2 + i, col + lane % 4 * (2 * eights), at_once);
      }
    });
  }
}

/// The product, by what the device has for its types.
template <class Team, class A, class B, class C, class Acc>
KOKKOS_INLINE_FUNCTION void team_gemm_by_rows(Team const& team, TeamMatrix<A const> const& a,
                                              TeamMatrix<B const> const& b,
                                              TeamGemmResult<C, Acc> const& result) {
  using Exec = typename Team::execution_space;
  using F = GemmFragmentsFor<Exec, A, B, C>;
  constexpr bool in_fragments = has_matrix_instructions<Exec, typename F::Element>;
  constexpr int depth = sizeof(Acc) == 8 ? 2 : 4;
  if (result.c.rows == 0 || result.c.cols == 0) return;
  // Of two steps the loads go out almost at once anyway. <H200, CUDA 13.0, of the time without:
  // float32 16^3 0.90, 64^3 0.86, float64 64^3 0.87, bfloat16 16^3 1.2>
  if (a.cols > 2 * (in_fragments ? F::depth : depth)) {
    prefetch_matrix(team, a.data, a.rows, a.cols, a.row_stride, a.col_stride);
    prefetch_matrix(team, b.data, b.rows, b.cols, b.row_stride, b.col_stride);
  }
  if constexpr (in_fragments) {
    TeamWarp const warp = warp_of(team);
    if (warp.count > 0)
      team_gemm_fragments<F, 2>(warp, a, b, result);
    else
      team_gemm_blocks<2, 2, depth>(team, a, b, result);
  } else if (std::int64_t{result.c.rows} * result.c.cols <= 256) {
    // A warp has a block for each lane. <H200, CUDA 13.0, float32, 16^3: 126 us, 2 x 2 161>
    team_gemm_blocks<2, 4, depth>(team, a, b, result);
  } else {
    team_gemm_blocks<4, 4, depth>(team, a, b, result);
  }
}

/// The whole product. Rows of C are what lanes store at once: where its columns are dense,
/// `turned`, it is the product of the transposed matrices, if those have one type. Two calls
/// instead of one with the matrices exchanged, which would take twenty registers more.
template <class Team, class A, class B, class C, class Acc>
KOKKOS_INLINE_FUNCTION void team_gemm_device(Team const& team, TeamMatrix<A const> const& a,
                                             TeamMatrix<B const> const& b,
                                             TeamGemmResult<C, Acc> const& result, bool turned) {
  if constexpr (std::is_same_v<A, B>) {
    if (turned)
      return team_gemm_by_rows<Team, B, A>(
          team, b.transposed(), a.transposed(),
          TeamGemmResult<C, Acc>{result.c.transposed(), result.alpha, result.beta, result.read_c});
  }
  team_gemm_by_rows<Team, A, B>(team, a, b, result);
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
