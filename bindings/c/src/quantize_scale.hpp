// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Scales of 8-bit tensors: one number, or a tensor with the dimensions of what it scales.
#pragma once

#include "tensor.hpp"

namespace attikos::c {

/// A scale whose shape, raised to three dimensions, says what shares a factor.
inline Tensor read_scale(char const* operation, char const* name, attikos_tensor const* given,
                         Tensor const& of, attikos_context const& context) {
  Tensor const scale = read_tensor(operation, name, given, 0, 3, context);
  visit_dtype<float>(operation, scale, [](auto) {});
  bool const single = scale.rank == 0 || (scale.rank == 1 && scale.extent[0] == 1);
  if (!single && scale.rank != of.rank)
    fail(ATTIKOS_SHAPE_MISMATCH, operation, ": ", name, " is ", scale.describe(),
         "; expected one number, or the ", of.rank, " dimensions of ", of.name);
  return scale;
}

}  // namespace attikos::c
