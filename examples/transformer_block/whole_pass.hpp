// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The forward pass over whole sequences, without a cache.
#pragma once

#include <attikos/attention/attention.hpp>
#include <attikos/norm/rope.hpp>
#include <type_traits>

#include "model.hpp"

namespace transformer_block {

/// What attention() writes as log-sum-exp.
template <class T>
using Lse = Tensor<std::conditional_t<std::is_same_v<T, double>, double, float>***>;

/// Leaves rotated queries and keys in the activations. `lse` is [batch, heads_q, seqlen].
template <class T>
void forward_whole(Exec const& exec, Model<T> const& model, Tensor<std::int32_t*> const& tokens,
                   Activations<T> const& a, Lse<T> const& lse) {
  Config const& c = model.config;
  forward(exec, model, tokens, a, [&](Tensor<T**> const& qkv, Tensor<T**> const& context) {
    QkvHeads<T> const part(c, qkv, a.batch);
    attikos::rope(exec, part.rotated, model.cos, model.sin, part.rotated);
    attikos::attention(exec, part.q, part.k, part.v,
                       heads(context, a.batch, c.head_dim, 0, c.heads_q), lse, {.causal = true});
  });
}

}  // namespace transformer_block
