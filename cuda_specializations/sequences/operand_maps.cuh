// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Operands of attention as the copy engine sees them.
#pragma once

#include <cstdint>

#include "common/tensor_map.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Why the copy engine cannot go through a tensor [batch, heads, positions, features], null if it
/// can. A stride of 0 repeats one matrix.
template <class T>
char const* refuse_operand(void const* data, std::int64_t const (&extent)[4],
                           std::int64_t const (&stride)[4], char const* misaligned,
                           char const* odd_stride, char const* no_unit) {
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(T));
  if (extent[3] > 1 && stride[3] != 1) return no_unit;
  if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0) return misaligned;
  for (int r = 0; r < 3; ++r)
    if (extent[r] > 1 && (stride[r] < 0 || stride[r] * bytes % 16 != 0 ||
                          (r == 2 && stride[r] == 0) || stride[r] >= std::int64_t{1} << 38))
      return odd_stride;
  return nullptr;
}

/// Boxes of 128 bytes of features × `rows` positions × `heads` heads of a tensor [batch, heads,
/// positions, features]. `steps` become 0 where heads or batches share one matrix.
template <class T>
cudaError_t make_operand_map(CUtensorMap* map, void const* data, std::int64_t const (&extent)[4],
                             std::int64_t const (&stride)[4], int rows, int (&steps)[2],
                             int heads = 1) {
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(T));
  auto const pitch = static_cast<cuuint64_t>((extent[3] * bytes + 15) / 16 * 16);
  cuuint64_t extents[4] = {static_cast<cuuint64_t>(extent[3]), static_cast<cuuint64_t>(extent[2]),
                           1, 1};
  cuuint64_t strides[3] = {extent[2] > 1 ? static_cast<cuuint64_t>(stride[2] * bytes) : pitch,
                           pitch, pitch};
  for (int r = 0; r < 2; ++r) {  // heads, then batch
    std::int64_t const count = extent[1 - r], apart = stride[1 - r];
    steps[r] = count > 1 && apart != 0;
    if (steps[r] == 0) continue;
    extents[2 + r] = static_cast<cuuint64_t>(count);
    strides[1 + r] = static_cast<cuuint64_t>(apart * bytes);
  }
  cuuint32_t const box[4] = {128 / bytes, static_cast<cuuint32_t>(rows),
                             static_cast<cuuint32_t>(heads), 1};
  return encode_tensor_map(map, TensorMapElement<T>::map, data, extents, strides, box);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
