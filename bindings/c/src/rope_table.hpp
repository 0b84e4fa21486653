// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tables of cosines and sines.
#pragma once

#include "tensor.hpp"

namespace attikos::c {

/// [positions, n], also given as [1, positions, 1, n]: one rank is compiled.
inline Tensor read_rope_table(char const* operation, char const* name, attikos_tensor const* tensor,
                              attikos_context const& context) {
  Tensor t = read_tensor(operation, name, tensor, 2, 4, context);
  if (t.rank == 2) return t;
  if (t.rank != 4 || t.extent[0] != 1 || t.extent[2] != 1)
    fail(ATTIKOS_SHAPE_MISMATCH, operation, ": ", name, " is ", t.describe(),
         "; expected [positions, features] or [1, positions, 1, features]");
  t.extent[0] = t.extent[1];
  t.stride[0] = t.stride[1];
  t.extent[1] = t.extent[3];
  t.stride[1] = t.stride[3];
  t.rank = 2;
  return t;
}

}  // namespace attikos::c
