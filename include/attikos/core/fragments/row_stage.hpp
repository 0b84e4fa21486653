// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Copies of rows that may lie anywhere, as pages do, into scratch.
#pragma once

#include <attikos/core/fragments/stage.hpp>
#include <attikos/core/rows/device_elements.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Rows that lie `stride` elements apart.
template <class T>
struct StridedRows {
  T const* data;
  std::int64_t stride;
  KOKKOS_INLINE_FUNCTION T const* operator()(int n) const { return data + n * stride; }
};

/// How rows of `stride`d features come into scratch, `Pitch` elements apart, `Cols` of them each as
/// T: decided once for a launch. They are stored as `Stored`.
template <class T, class Stored, int Cols, int Pitch>
struct RowStage {
  static_assert((Cols & (Cols - 1)) == 0 && Pitch * sizeof(T) % 16 == 0);
  static constexpr int most = 16 / static_cast<int>(sizeof(T)), pitch = Pitch;

  std::int64_t stride;  ///< between features
  int width = 1;        ///< neighbors that are copied at once; 1: element by element

  /// `data` is where all rows begin, `apart` whatever a row's address may move by.
  template <std::size_t N>
  RowStage(void const* data, std::int64_t feature_stride, std::int64_t const (&apart)[N])
      : stride(feature_stride) {
    if constexpr (std::is_same_v<T, Stored>) {
      if (stride != 1) return;
      for (int bytes : {16, 8, 4}) {
        bool fits = bytes > static_cast<int>(sizeof(T)) &&
                    reinterpret_cast<std::uintptr_t>(data) % static_cast<unsigned>(bytes) == 0;
        for (std::int64_t step : apart)
          fits = fits && step * static_cast<std::int64_t>(sizeof(T)) % bytes == 0;
        if (fits) {
          width = bytes / static_cast<int>(sizeof(T));
          return;
        }
      }
    }
  }

  /// Copies `Rows` rows by `Threads` threads, of which this is number `thread`. row(n) is where row
  /// n begins. Rows from `row_end` on and features from `col_end` on become 0, and nothing is read
  /// there. Lands with wait_for_copies().
  template <int Rows, int Threads, class Row>
  KOKKOS_INLINE_FUNCTION void copy(T* to, Row const& row, int row_end, int col_end,
                                   int thread) const {
    if constexpr (copies_whole<Rows, Threads, Row>) {
      if (width == most && row_end >= Rows)
        return copy_whole<Rows, Threads>(to, row, col_end, thread);
    }
    copy_any<Rows, Threads>(*this, to, row, row_end, col_end, thread);
  }

  static KOKKOS_INLINE_FUNCTION T converted(Stored x) {
    if constexpr (std::is_same_v<T, Stored>)
      return x;
    else
      return nearest_element<T>(element_value<float>(x));
  }

 private:
  static KOKKOS_INLINE_FUNCTION int whole(int left, int most_of_it) {
    return left < 0 ? 0 : left < most_of_it ? left : most_of_it;
  }
  /// Whether all copies of a thread may lie at the same place of rows that follow one another.
  template <int Rows, int Threads, class Row>
  static constexpr bool copies_whole = [] {
    if constexpr (std::is_same_v<T, Stored> && std::is_same_v<Row, StridedRows<Stored>>) {
      constexpr int chunks = Cols / most;
      if constexpr (Threads % chunks == 0) return Rows % (Threads / chunks) == 0;
    }
    return false;
  }();
  template <int Rows, int Threads>
  KOKKOS_INLINE_FUNCTION void copy_whole(T* to, StridedRows<Stored> const& row, int col_end,
                                         int thread) const {
    constexpr int chunks = Cols / most, step = Threads / chunks;
    int const col = thread % chunks * most, first = thread / chunks;
    int const bytes = whole(col_end - col, most) * static_cast<int>(sizeof(T));
    Stored const* from = bytes > 0 ? row(first) + col : row.data;
    std::int64_t const apart = bytes > 0 ? step * row.stride : 0;
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Rows / step; ++i, from += apart)
      copy_to_scratch<16>(to + (first + i * step) * Pitch + col, from, bytes);
  }

  /// Rows of all kinds. A function of its own, that kernels share and that takes none of the
  /// registers of what they multiply in. No member: it would want the kernel's arguments in memory.
  template <int Rows, int Threads, class Row>
  ATTIKOS_DO_NOT_INLINE_DEVICE static KOKKOS_FUNCTION void copy_any(RowStage stage, T* to, Row row,
                                                                    int row_end, int col_end,
                                                                    int thread) {
    if constexpr (std::is_same_v<T, Stored>) {
      int const width = stage.width;
      if (width > 1) {
        ATTIKOS_DO_NOT_UNROLL_DEVICE
        for (int i = thread; i < Rows * Cols / width; i += Threads) {
          int const chunks = Cols / width, n = i / chunks, col = i % chunks * width;
          int const count = n < row_end ? whole(col_end - col, width) : 0;
          Stored const* const from = count > 0 ? row(n) + col : nullptr;
          int const bytes = count * static_cast<int>(sizeof(T));
          int const size = width * static_cast<int>(sizeof(T));
          T* const place = to + n * Pitch + col;
          if (size == 16)
            copy_to_scratch<16>(place, from, bytes);
          else if (size == 8)
            copy_to_scratch<8>(place, from, bytes);
          else
            copy_to_scratch<4>(place, from, bytes);
        }
        return;
      }
    }
    ATTIKOS_DO_NOT_UNROLL_DEVICE
    for (int i = thread; i < Rows * Cols; i += Threads) {
      int const n = i / Cols, col = i % Cols;
      bool const inside = n < row_end && col < col_end;
      to[n * Pitch + col] = inside ? converted(row(n)[col * stage.stride]) : T{};
    }
  }
};

/// How rows of a tensor [batch, head, position, feature] are staged.
template <class Stage>
Stage stage_of(void const* data, std::int64_t const (&stride)[4]) {
  return Stage(data, stride[3], {stride[0], stride[1], stride[2]});
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
