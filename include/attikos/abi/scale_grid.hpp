// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// float32 factors of a matrix: one for all of it, one per row or column, or one per block.
#pragma once

#include <attikos/abi/dtype.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

/// Factors of a matrix [batch, rows, cols]. Element (b, i, j) has the factor at
/// b·batch + (i >> row_shift)·row + (j >> col_shift)·col. A stride of 0 means one factor for the
/// whole dimension, a shift of 7 one for each 128 entries, a shift of 0 with a stride one for each.
struct ScaleGrid {
  float const* data = nullptr;  ///< null: 1 everywhere
  std::int64_t batch = 0, row = 0, col = 0;
  std::int32_t row_shift = 0, col_shift = 0;

  /// Where the factor of an element lies.
  ATTIKOS_HD constexpr std::int64_t offset(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return b * batch + (i >> row_shift) * row + (j >> col_shift) * col;
  }
  /// The factor of an element, 1 where there are none.
  ATTIKOS_HD constexpr float at(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return data == nullptr ? 1.0f : data[offset(b, i, j)];
  }
};

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
