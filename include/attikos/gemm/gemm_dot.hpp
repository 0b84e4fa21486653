// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What a host's instructions that are chosen at run time do for a tile of a matrix product:
/// bfloat16 pairs and int8 quads in place of factors that are converted to the type of the sums, or
/// fused multiply-adds of those.
#pragma once

#include <attikos/core/host_isa.hpp>
#include <attikos/core/tile.hpp>
#include <attikos/gemm/gemm_types.hpp>
#include <attikos/host/amx.hpp>
#include <attikos/host/dot_product.hpp>
#include <attikos/host/few_rows.hpp>
#include <attikos/host/fused_product.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Products that a host may have blocks for: the instruction set that does, and extents as
/// dot_product.hpp or fused_product.hpp fixes them.
struct GemmDotOfAny {
  static constexpr bool exists = false;
  static constexpr bool any_depth = true;
  static constexpr int values = 1;
  static constexpr int streamed_rows = 0;
  static constexpr bool streams_columns_alone = false;
  static constexpr bool rounds = false;
  static constexpr bool direct = false;
  static constexpr HostIsa isa = HostIsa::compiled;
  static constexpr int rows = 1, cols = 1, k = 0, vector_cols = 1;
  KOKKOS_INLINE_FUNCTION static constexpr int whole_height(HostIsa) { return 1; }
  template <class B>
  KOKKOS_INLINE_FUNCTION static constexpr bool streams(HostIsa) {
    return false;
  }
};
#if defined(ATTIKOS_HOST_X86)
/// Factors converted to `Acc`, multiplied by AVX-512's fused multiply-adds.
template <class Acc>
struct GemmFused {
  using Packed = Acc;
  static constexpr bool exists = true;
  /// Sums are the same in whatever steps of at most `k` they are taken.
  static constexpr bool any_depth = true;
  static constexpr int values = 1;  ///< neighbors along k that a packed unit holds
  static constexpr HostIsa isa = HostIsa::avx512;
  static constexpr int rows = host::avx512::block_rows, cols = host::avx512::fused_columns<Acc>;
  static constexpr int k = host::avx512::fused_depth;  ///< packed at once
  /// Rows up to which a right factor is read where it lies.
  static constexpr int streamed_rows = host::avx512::streamed_rows;
  static constexpr bool streams_columns_alone = false;
  static constexpr bool rounds = false;
  static constexpr bool direct = false;
  static constexpr int vector_cols = host::avx512::Fused<Acc>::width;
  KOKKOS_INLINE_FUNCTION static constexpr bool uses_tiles(HostIsa) { return false; }
  /// Whether a right factor of `B` is.
  template <class B>
  KOKKOS_INLINE_FUNCTION static constexpr bool streams(HostIsa) {
    return std::is_same_v<Acc, B>;
  }
  KOKKOS_INLINE_FUNCTION static constexpr int whole_height(HostIsa) { return 1; }
  KOKKOS_INLINE_FUNCTION static constexpr int whole_rows(int m) { return m; }

  /// Elements of packed factors.
  KOKKOS_INLINE_FUNCTION static constexpr std::int64_t left_words(int m) {
    return std::int64_t{m} * host::avx512::fused_row;
  }
  KOKKOS_INLINE_FUNCTION static constexpr std::int64_t right_words(int n) {
    return std::int64_t{round_up(n, cols)} * k;
  }

  /// Packs rows of a, `depth` ≤ k deep.
  template <class A>
  static void pack_left(Acc* left, Block<A const> const& a, int rows_of_a, int depth) {
    host::pack_rows<Acc, A>(left, host::avx512::fused_row, a, rows_of_a, depth);
  }

  /// sums (+)= left · b, `depth` deep, b packed into `right` on the way, but not where rows are
  /// few.
  template <class B>
  static void multiply(HostIsa, Acc const* left, [[maybe_unused]] Acc* right,
                       Block<B const> const& b, Acc* sums, int ld, int rows_of_a, int cols_of_b,
                       int depth, bool accumulate) {
    if constexpr (std::is_same_v<Acc, B>) {
      if (rows_of_a <= streamed_rows && (b.row_stride == 1 || b.col_stride == 1))
        return host::avx512::stream_multiply<host::avx512::Fused<Acc>>(
            left, {b.data, b.col_stride, b.row_stride}, sums, ld, rows_of_a, cols_of_b, depth,
            accumulate);
    }
    host::pack_panels<cols, Acc, B>(right, depth, b, depth, cols_of_b);
    host::avx512::fused_multiply<Acc>(left, right, std::int64_t{depth} * cols, sums, ld, rows_of_a,
                                      cols_of_b, depth, accumulate);
  }

  /// Elements of a whole right factor in panels, each as deep as the factor.
  static constexpr std::int64_t packed_words(std::int64_t k_of_b, std::int64_t n) {
    return round_up<std::int64_t>(n, cols) * k_of_b;
  }
  /// Packs columns [col, col + count) of it, at most a panel that begins at a multiple of `cols`.
  template <class B>
  static void pack_panel(HostIsa, Acc* packed, Block<B const> const& b, int k_of_b,
                         std::int64_t col, int count) {
    host::pack_panels<cols, Acc, B>(packed + col * k_of_b, k_of_b,
                                    {b.at(0, col), b.row_stride, b.col_stride}, k_of_b, count);
  }
  /// multiply() with such a factor from row p and column col on, a multiple of `cols`.
  static void multiply_packed(HostIsa, Acc const* left, Acc const* packed, std::int64_t k_of_b,
                              std::int64_t p, std::int64_t col, Acc* sums, int ld, int rows_of_a,
                              int cols_of_b, int depth, bool accumulate) {
    host::avx512::fused_multiply<Acc>(left, packed + col * k_of_b + p * cols, k_of_b * cols, sums,
                                      ld, rows_of_a, cols_of_b, depth, accumulate);
  }
};

template <class Acc, class A, class B>
struct GemmDot : std::conditional_t<std::is_floating_point_v<Acc>, GemmFused<Acc>, GemmDotOfAny> {};

template <class KindOf, HostIsa Needs>
struct GemmDotOf {
  using Kind = KindOf;
  using Element = typename Kind::Element;
  using Packed = std::uint32_t;
  static constexpr bool exists = true;
  static constexpr bool any_depth = false;
  static constexpr int values = Kind::values;
  static constexpr int streamed_rows =
      Kind::moves ? host::avx512::streamed_quad_rows : host::avx512::streamed_rows;
  /// Whether of right factors that lie by rows none is read where it lies.
  static constexpr bool streams_columns_alone = Kind::moves;
  /// Whether round_rows() is what storing sums as bfloat16 is.
  static constexpr bool rounds = std::is_same_v<Kind, host::avx512::Bfloat16Pairs>;
  /// Whether there is multiply_direct(), for where AMX does not multiply.
  static constexpr bool direct = true;
  static constexpr HostIsa isa = Needs;
  static constexpr int rows = host::avx512::block_rows, cols = host::avx512::panel_columns;
  static constexpr int k = host::avx512::most_units * Kind::values;  ///< packed at once
  static constexpr int direct_k = host::avx512::direct_units * Kind::values;
  /// Whether AMX multiplies, if the machine has it.
  KOKKOS_INLINE_FUNCTION static constexpr bool uses_tiles(HostIsa isa_used) {
    return isa_used >= HostIsa::amx;
  }
  /// Tiles want their factors packed.
  template <class B>
  KOKKOS_INLINE_FUNCTION static constexpr bool streams(HostIsa isa_used) {
    return !uses_tiles(isa_used);
  }
  /// Columns that are written at once, and rows.
  static constexpr int vector_cols = host::avx512::vector_columns;
  KOKKOS_INLINE_FUNCTION static constexpr int whole_height(HostIsa isa_used) {
    return uses_tiles(isa_used) ? host::amx::tile_rows : 1;
  }

  /// Rows that there has to be room for: whole squares, whole tiles.
  KOKKOS_INLINE_FUNCTION static constexpr int whole_rows(int m) { return round_up(m, 16); }
  /// What an instruction set wants the right factor packed with.
  static constexpr std::uint32_t flip(HostIsa isa_used) {
    return uses_tiles(isa_used) ? host::amx::flip : Kind::flip;
  }
  /// Words of packed factors.
  KOKKOS_INLINE_FUNCTION static constexpr std::int64_t left_words(int m) {
    return std::int64_t{whole_rows(m)} * host::avx512::row_words;
  }
  KOKKOS_INLINE_FUNCTION static constexpr std::int64_t right_words(int n) {
    return std::int64_t{round_up(n, cols)} * host::avx512::most_units;
  }

  template <class T>
  static host::avx512::Factor<Element> factor(T const* data, std::int64_t neighbor_stride,
                                              std::int64_t k_stride) {
    static_assert(sizeof(T) == sizeof(Element));
    return {reinterpret_cast<Element const*>(data), neighbor_stride, k_stride};
  }

  /// Packs rows of a, `depth` ≤ k deep; there is room for whole_rows() of them.
  template <class A>
  static void pack_left(std::uint32_t* left, Block<A const> const& a, int rows_of_a, int depth) {
    host::avx512::pack_left<Kind>(left, factor(a.data, a.row_stride, a.col_stride), rows_of_a,
                                  depth);
  }

  /// sums (+)= left · b, `depth` deep, b packed into `right` on the way, but not where rows are
  /// few; of int8 where there is no `right`, which zero points want. `sums` has whole_rows() rows.
  template <class Acc, class B>
  static void multiply(HostIsa isa_used, std::uint32_t const* left, std::uint32_t* right,
                       Block<B const> const& b, Acc* sums, int ld, int rows_of_a, int cols_of_b,
                       int depth, bool accumulate) {
    if constexpr (!Kind::moves) {
      if (streams<B>(isa_used) && rows_of_a <= streamed_rows &&
          (b.row_stride == 1 || b.col_stride == 1))
        return host::avx512::stream_multiply<host::avx512::StreamedPairs>(
            left, factor(b.data, b.col_stride, b.row_stride), sums, ld, rows_of_a, cols_of_b, depth,
            accumulate);
    } else if (right == nullptr) {
      return host::avx512::stream_quads(left, factor(b.data, b.col_stride, b.row_stride), sums, ld,
                                        rows_of_a, cols_of_b, depth, accumulate);
    }
    host::avx512::pack_right<Kind>(right, factor(b.data, b.col_stride, b.row_stride), depth,
                                   cols_of_b, flip(isa_used));
    if (uses_tiles(isa_used))
      return host::amx::multiply<Kind, host::amx::Tiles>(left, right, sums, ld, rows_of_a,
                                                         cols_of_b, depth, accumulate);
    host::avx512::multiply<Kind>(left, right, sums, ld, rows_of_a, cols_of_b, depth, accumulate);
  }

  /// Part of a whole right factor in panels, each as deep as the factor: where the first panel
  /// begins, and from which unit on.
  struct PackedPart {
    std::uint32_t const* right;
    host::avx512::PanelPart part;
  };
  /// That from row p on, a multiple of a unit's values, and from column col, a multiple of `cols`.
  static PackedPart packed_part(std::uint32_t const* packed, std::int64_t k_of_b, std::int64_t p,
                                std::int64_t col) {
    std::int64_t const words = host::avx512::panel_words<Kind>(static_cast<int>(k_of_b));
    return {packed + col / cols * words, {words, static_cast<int>(p / Kind::values)}};
  }
  /// Words of it. The last panel has one vector of columns where that is enough.
  static constexpr std::int64_t packed_words(std::int64_t k_of_b, std::int64_t n) {
    std::int64_t const words = host::avx512::panel_words<Kind>(static_cast<int>(k_of_b));
    std::int64_t const vectors = (n + vector_cols - 1) / vector_cols;
    return words / 2 * vectors;
  }
  /// Packs columns [col, col + count) of it, at most a panel.
  template <class B>
  static void pack_panel(HostIsa isa_used, std::uint32_t* packed, Block<B const> const& b,
                         int k_of_b, std::int64_t col, int count) {
    host::avx512::pack_right<Kind>(packed + col / cols * host::avx512::panel_words<Kind>(k_of_b),
                                   factor(b.at(0, col), b.col_stride, b.row_stride), k_of_b, count,
                                   flip(isa_used));
  }
  /// multiply() with such a part.
  template <class Acc>
  static void multiply_packed(HostIsa isa_used, std::uint32_t const* left,
                              std::uint32_t const* packed, std::int64_t k_of_b, std::int64_t p,
                              std::int64_t col, Acc* sums, int ld, int rows_of_a, int cols_of_b,
                              int depth, bool accumulate) {
    PackedPart const b = packed_part(packed, k_of_b, p, col);
    if (uses_tiles(isa_used)) {
      host::amx::Tiles tiles;
      return host::amx::multiply<Kind>(tiles, left, b.right, sums, ld, rows_of_a, cols_of_b, depth,
                                       accumulate, b.part);
    }
    host::avx512::multiply<Kind>(left, b.right, sums, ld, rows_of_a, cols_of_b, depth, accumulate,
                                 b.part);
  }

  /// The left factor of multiply_direct(): where it lies if its numbers along k lie side by side,
  /// else packed.
  using Left = host::avx512::LeftRows;
  KOKKOS_INLINE_FUNCTION static constexpr std::int64_t direct_left_words(int m) {
    std::int64_t const few = left_words(streamed_rows);  // which may be multiplied otherwise
    std::int64_t const words = 2 * std::int64_t{whole_rows(m)};  // words_in_place(m)
    return few > words ? few : words;
  }
  template <class A>
  static Left direct_left(std::uint32_t* room, Block<A const> const& a, int rows_of_a, int depth) {
    auto const from = factor(a.data, a.row_stride, a.col_stride);
    if (a.col_stride == 1) return host::avx512::rows_in_place<Kind>(room, from, rows_of_a, depth);
    host::avx512::pack_left<Kind>(room, from, rows_of_a, depth);
    return host::avx512::packed_rows(room);
  }
  static Left packed_left(std::uint32_t const* left) { return host::avx512::packed_rows(left); }
  /// A whole right factor of multiply_direct(), packed into `right`.
  template <class B>
  static PackedPart direct_right(std::uint32_t* right, Block<B const> const& b, int cols_of_b,
                                 int depth) {
    host::avx512::pack_right<Kind>(right, factor(b.data, b.col_stride, b.row_stride), depth,
                                   cols_of_b);
    return packed_part(right, depth, 0, 0);
  }
  /// to = before + left · b, or left · b without `before`. Writes no more than the product has;
  /// bfloat16 as round_rows() does.
  template <class Acc, class C>
  static void multiply_direct(Left const& left, PackedPart const& b, Acc const* before, int ld,
                              C* to, std::int64_t stride, int rows_of_a, int cols_of_b, int depth) {
    using To = std::conditional_t<sizeof(C) == 2, std::uint16_t, Acc>;
    static_assert(sizeof(To) == sizeof(C));
    host::avx512::multiply<Kind, To>(left, b.right, {before, ld, reinterpret_cast<To*>(to), stride},
                                     rows_of_a, cols_of_b, depth, b.part);
  }
  /// The same to sums, which have room for whole vectors of columns.
  template <class Acc>
  static void add_direct(Left const& left, PackedPart const& b, Acc* sums, int ld, int rows_of_a,
                         int cols_of_b, int depth, bool accumulate) {
    multiply_direct<Acc, Acc>(left, b, accumulate ? sums : nullptr, ld, sums, ld, rows_of_a,
                              round_up(cols_of_b, vector_cols), depth);
  }

  /// Stores `rows` × `cols` sums of pairs, none of which is subnormal, as bfloat16.
  template <class C>
  static void round_rows(C* to, std::int64_t stride, float const* sums, int ld, int rows_of_c,
                         int cols_of_c) {
    for (int i = 0; i < rows_of_c; ++i)
      host::avx512::round_row(reinterpret_cast<std::uint16_t*>(to + i * stride),
                              sums + static_cast<std::int64_t>(i) * ld, cols_of_c);
  }

  /// Takes the zero points off the sums of packed factors: Σ(a − z)(b − y) = Σab − z·Σb − y·Σa +
  /// depth·z·y, exactly modulo 2³². A zero point is at `zero[index · stride]`, 0 where there are
  /// none.
  static void subtract_zero_points(HostIsa isa_used, Left const& left, PackedPart const& b,
                                   std::int32_t const* zero_a, std::int64_t stride_a,
                                   std::int32_t const* zero_b, std::int64_t stride_b,
                                   std::uint32_t* sums, int ld, int rows_of_a, int cols_of_b,
                                   int depth) {
    std::uint32_t const* right = b.right;
    for (int j0 = 0; j0 < cols_of_b; j0 += cols, right += b.part.words) {
      int const count = cols_of_b - j0 < cols ? cols_of_b - j0 : cols;
      std::uint32_t of_b[cols];
      host::avx512::column_sums(
          right + std::int64_t{b.part.unit} * (count > vector_cols ? cols : vector_cols), of_b,
          depth, count, flip(isa_used));
      for (int i = 0; i < rows_of_a; ++i) {
        std::uint32_t const z = zero_a == nullptr ? 0u : zero_a[i * stride_a];
        std::uint32_t const of_a = left.moved[i * left.moved_stride];
        std::uint32_t* const row = sums + static_cast<std::int64_t>(i) * ld + j0;
        for (int j = 0; j < count; ++j) {
          std::uint32_t const y = zero_b == nullptr ? 0u : zero_b[(j0 + j) * stride_b];
          row[j] -= z * of_b[j] + y * (of_a - static_cast<std::uint32_t>(depth) * z);
        }
      }
    }
  }
};

template <>
struct GemmDot<float, bfloat16, bfloat16>
    : GemmDotOf<host::avx512::Bfloat16Pairs, HostIsa::avx512_bf16> {};
template <>
struct GemmDot<std::uint32_t, std::int8_t, std::int8_t>
    : GemmDotOf<host::avx512::Int8Quads, HostIsa::avx512_vnni> {};
#else
template <class Acc, class A, class B>
struct GemmDot : GemmDotOfAny {};
#endif

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
