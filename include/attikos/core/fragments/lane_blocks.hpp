// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Blocks of factors that a lane loads for itself, from memory or scratch, where they lie.
#pragma once

#include <attikos/core/fragments/unroll.hpp>
#include <attikos/core/rows/device_elements.hpp>
#include <attikos/ptx/opaque.hpp>
#include <attikos/ptx/prefetch.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// x, of which the compiler no longer knows where it is from: it does not keep in registers what it
/// could compute of it before a loop.
KOKKOS_INLINE_FUNCTION std::int64_t forgotten(std::int64_t x) {
#if defined(__CUDA_ARCH__)
  cuda::make_opaque(x);
#endif
  return x;
}

/// Which neighbors a lane loads at once: along k, along rows of A or columns of B, or none.
enum class Neighbors { none, along_k, along_mn };

/// How a lane loads blocks of `MN` rows of A, or columns of B, by `K` elements of k: of a matrix of
/// `Stored`, as T.
template <class T, class Stored, int MN, int K>
struct LaneBlocks {
  static constexpr int depth = K;
  Stored const* data;
  int mn_end, k_end;
  std::int64_t mn_stride, k_stride;
  Neighbors neighbors;  ///< those of the whole matrix

  KOKKOS_INLINE_FUNCTION LaneBlocks(Stored const* first, int mn, int k, std::int64_t stride_of_mn,
                                    std::int64_t stride_of_k)
      : data(first),
        mn_end(mn),
        k_end(k),
        mn_stride(stride_of_mn),
        k_stride(stride_of_k),
        neighbors(k_stride == 1 && fits<K>(mn_stride)    ? Neighbors::along_k
                  : mn_stride == 1 && fits<MN>(k_stride) ? Neighbors::along_mn
                                                         : Neighbors::none) {}

  /// Whether the `Extent` rows or columns from `mn` on come in blocks that the matrix has whole or
  /// not at all.
  template <int Extent>
  KOKKOS_INLINE_FUNCTION bool has_whole_blocks(int mn) const {
    return mn + Extent <= mn_end || mn_end % MN == 0;
  }

  /// The whole block from `mn`, `k` on, by neighbors along k or along the other way; zeros if it is
  /// not `within` k. Nobody may look at what becomes of what is beyond the last row or column.
  template <bool by_k>
  KOKKOS_INLINE_FUNCTION void load(T (&x)[MN][K], int mn, int k, std::bool_constant<by_k>,
                                   bool within) const {
    constexpr int runs = by_k ? MN : K, run = by_k ? K : MN, size = pack_size<Stored, run>;
    std::int64_t const apart = forgotten(by_k ? mn_stride : k_stride);
    Stored const* p =
        data + (by_k ? (mn < mn_end ? mn : 0) * apart + k : (mn < mn_end ? mn : 0) + k * apart);
    Pack<Stored, size> packs[runs][run / size] = {};
    if (within) {
      ATTIKOS_UNROLL_DEVICE
      for (int r = 0; r < runs; ++r, p += apart) ATTIKOS_UNROLL_DEVICE
      for (int n = 0; n < run / size; ++n)
        packs[r][n] = reinterpret_cast<Pack<Stored, size> const*>(p)[n];
    }
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < MN; ++i) ATTIKOS_UNROLL_DEVICE
    for (int l = 0; l < K; ++l) {
      int const r = by_k ? i : l, n = by_k ? l : i;
      x[i][l] = converted(packs[r][n / size].element[n % size]);
    }
  }
  /// Any block, one element after the other; zeros beyond the ends.
  template <int Depth>
  KOKKOS_INLINE_FUNCTION void load_elements(T (&x)[MN][Depth], int mn, int k) const {
    std::int64_t const to_mn = forgotten(mn_stride), to_k = forgotten(k_stride);
    Stored const* row = data + mn * to_mn + k * to_k;
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < MN; ++i, row += to_mn) {
      Stored const* p = row;
      ATTIKOS_UNROLL_DEVICE
      for (int l = 0; l < Depth; ++l, p += to_k)
        x[i][l] = mn + i < mn_end && k + l < k_end ? converted(*p) : T{};
    }
  }

 private:
  template <int Count>
  KOKKOS_INLINE_FUNCTION bool fits(std::int64_t other_stride) const {
    constexpr unsigned bytes = sizeof(Stored) * pack_size<Stored, Count>;
    return reinterpret_cast<std::uintptr_t>(data) % bytes == 0 &&
           static_cast<std::uint64_t>(other_stride) * sizeof(Stored) % bytes == 0;
  }
  KOKKOS_INLINE_FUNCTION static T converted(Stored x) {
    if constexpr (std::is_same_v<T, Stored>)
      return x;
    else if constexpr (std::is_integral_v<Stored> || std::is_same_v<T, double>)
      return element_value<T>(x);
    else
      return nearest_element<T>(element_value<float>(x));
  }
};

/// Asks for the lines of a matrix in memory, the first of many: loads that nobody waits for take
/// together as long as one.
template <class Team, class T>
KOKKOS_INLINE_FUNCTION void prefetch_matrix([[maybe_unused]] Team const& team,
                                            [[maybe_unused]] T const* data,
                                            [[maybe_unused]] int rows, [[maybe_unused]] int cols,
                                            [[maybe_unused]] std::int64_t row_stride,
                                            [[maybe_unused]] std::int64_t col_stride) {
#if defined(__CUDA_ARCH__)
  constexpr int line = 128 / static_cast<int>(sizeof(T)), most = 256;
  bool const by_row = col_stride == 1;
  if ((!by_row && row_stride != 1) || !cuda::is_global(data)) return;
  std::int64_t const apart = by_row ? row_stride : col_stride;
  int runs = by_row ? rows : cols, length = by_row ? cols : rows;
  if (apart == length && runs < (most * line) / length) {
    length *= runs;
    runs = 1;
  }
  int const lines = (length + line - 1) / line, fit = (most + lines - 1) / lines;
  int const count = (runs < fit ? runs : fit) * lines;
  Kokkos::parallel_for(Kokkos::TeamVectorRange(team, count < most ? count : most), [&](int i) {
    cuda::prefetch_line(data + i / lines * apart + i % lines * line);
  });
#endif
}

/// Calls add(k, whether A has neighbors along k, whether B has, as constants) for each `Depth` of k
/// for which both can be loaded so, of which the last may go beyond the end. Returns where the rest
/// of k begins. `whole`: both have whole blocks.
template <int Depth, class Left, class Right, class Add>
KOKKOS_INLINE_FUNCTION int for_each_depth(Left const& left, Right const& right, bool whole,
                                          Add const& add) {
  int k = 0;
  if (!whole || left.neighbors == Neighbors::none || right.neighbors == Neighbors::none) return k;
  int const end = left.k_end % Left::depth == 0 ? left.k_end : left.k_end / Depth * Depth;
  auto const add_all = [&](auto a_by_k, auto b_by_k) {
    ATTIKOS_DO_NOT_UNROLL_DEVICE
    for (; k < end; k += Depth) add(k, a_by_k, b_by_k);
  };
  bool const a_by_k = left.neighbors == Neighbors::along_k;
  if (right.neighbors == Neighbors::along_mn) {
    if (a_by_k)
      add_all(std::true_type{}, std::false_type{});
    else
      add_all(std::false_type{}, std::false_type{});
  } else if (a_by_k) {
    add_all(std::true_type{}, std::true_type{});
  }
  return k;  // neighbors of Aᵀ·Bᵀ would take a loop more
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
