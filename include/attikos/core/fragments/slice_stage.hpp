// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Copies of slices of rows into scratch, as factors of a product over the rows' features.
#pragma once

#include <attikos/core/fragments/row_stage.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// How `Depth` features of `Rows` rows come into scratch: K-major where fragments read that, else
/// turned. They are stored as `Stored`.
template <class Fragments, class Stored, int Rows, int Depth>
struct SliceStage {
  using T = typename Fragments::Element;
  static constexpr bool k_major = Fragments::reads_k_major;
  static constexpr FactorPlace place =
      k_major ? FactorPlace{Depth + Fragments::pad_k, 1} : FactorPlace{1, Rows + Fragments::pad_mn};
  static constexpr int size = k_major ? Rows * place.mn : Depth * place.k;

  RowStage<T, Stored, Depth, Depth + Fragments::pad_k> rows;

  /// As RowStage has it.
  template <std::size_t N>
  SliceStage(void const* data, std::int64_t feature_stride, std::int64_t const (&apart)[N])
      : rows(data, feature_stride, apart) {}

  /// Copies a slice by `Threads` threads, of which this is number `thread`. row(n) is where the
  /// slice of row n begins. Rows from `row_end` on and features from `col_end` on become 0, and
  /// nothing is read there. Lands with wait_for_copies().
  template <int Threads, class Row>
  KOKKOS_INLINE_FUNCTION void copy(T* to, Row const& row, int row_end, int col_end,
                                   int thread) const {
    if constexpr (k_major) {
      rows.template copy<Rows, Threads>(to, row, row_end, col_end, thread);
    } else if constexpr (Threads % Depth == 0 && Rows % (Threads / Depth) == 0) {
      // All elements of a thread are of one feature.
      constexpr int step = Threads / Depth, count = Rows / step;
      // Where a row is found takes registers, if it does not follow from the row before.
      constexpr bool strided = std::is_same_v<Row, StridedRows<Stored>>;
      constexpr int at_once = strided && count % 8 == 0 ? 8 : 1;
      int const col = thread % Depth, first = thread / Depth;
      int const end = col < col_end ? row_end : 0;
      to += col * place.k + first;
      std::int64_t const at = col < col_end ? col * rows.stride : 0;
      ATTIKOS_DO_NOT_UNROLL_DEVICE
      for (int i = 0; i < count; i += at_once) {
        Stored value[at_once];
        ATTIKOS_UNROLL_DEVICE
        for (int e = 0; e < at_once; ++e) {
          int const n = first + (i + e) * step;
          bool const inside = n < end;
          if constexpr (asynchronous)
            copy_to_scratch<sizeof(T)>(to + (i + e) * step, inside ? row(n) + at : nullptr,
                                       inside ? sizeof(T) : 0);
          else
            value[e] = inside ? row(n)[at] : Stored{};
        }
        if constexpr (!asynchronous) {
          ATTIKOS_UNROLL_DEVICE
          for (int e = 0; e < at_once; ++e) to[(i + e) * step] = rows.converted(value[e]);
        }
        (void)value;
      }
    } else {
      for (int i = thread; i < Rows * Depth; i += Threads) {
        int const n = i / Depth, col = i % Depth;
        bool const inside = n < row_end && col < col_end;
        to[col * place.k + n] = inside ? rows.converted(row(n)[col * rows.stride]) : T{};
      }
    }
  }

 private:
  static constexpr bool asynchronous =
      std::is_same_v<T, Stored> && (sizeof(T) == 4 || sizeof(T) == 8);
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
