// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What attention_backward_float32.cpp and attention_backward_bfloat16.cpp instantiate.
#pragma once

#include <attikos/attention/attention_backward.hpp>
#include <attikos/norm/rope.hpp>

#include "operations.hpp"

namespace llama {

template <class T>
void attend_backward(Exec const& exec, Qkv<T> const& x, Rotation const& rotation,
                     Heads<T> const& context, Lse<StateOf<T>> const& lse, Heads<T> const& dcontext,
                     Qkv<T> const& dx, Bytes const& workspace) {
  attikos::attention_backward(exec, x.q, x.k, x.v, context, lse, dcontext, dx.q, dx.k, dx.v,
                              {.causal = true}, attikos::workspace(workspace));
  attikos::rope_backward(exec, dx.rotated, rotation.cos, rotation.sin, dx.rotated);
}
template <class T>
std::size_t attend_backward_bytes(Exec const& exec, Qkv<T> const& x) {
  return attikos::attention_backward_workspace_size(exec, x.q, x.k, x.v, {.causal = true});
}

/// Everything above for one type.
#define LLAMA_ATTENTION_BACKWARD(T)                                                           \
  template void attend_backward(Exec const&, Qkv<T> const&, Rotation const&, Heads<T> const&, \
                                Lse<StateOf<T>> const&, Heads<T> const&, Qkv<T> const&,       \
                                Bytes const&);                                                \
  template std::size_t attend_backward_bytes(Exec const&, Qkv<T> const&)

}  // namespace llama
