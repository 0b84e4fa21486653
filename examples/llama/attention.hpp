// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What attention_float32.cpp and attention_bfloat16.cpp instantiate.
#pragma once

#include <algorithm>
#include <attikos/append_kv/append_kv.hpp>
#include <attikos/attention/attention.hpp>
#include <attikos/decode/decode.hpp>
#include <attikos/norm/rope.hpp>

#include "operations.hpp"

namespace llama {

template <class T>
void attend(Exec const& exec, Qkv<T> const& x, Rotation const& rotation, Heads<T> const& context,
            Lse<StateOf<T>> const& lse, Bytes const& workspace) {
  attikos::rope(exec, x.rotated, rotation.cos, rotation.sin, x.rotated);
  attikos::attention(exec, x.q, x.k, x.v, context, lse, {.causal = true},
                     attikos::workspace(workspace));
}
template <class T>
std::size_t attend_bytes(Qkv<T> const& x) {
  return attikos::attention_workspace_size(x.q, x.k, x.v, {.causal = true});
}

template <class T>
auto pages_of(PagedCache<T> const& cache) {
  return attikos::paged(cache.table, static_cast<std::int64_t>(cache.keys.extent(2)));
}

template <class T>
void attend_to_cache(Exec const& exec, Qkv<T> const& x, Rotation const& rotation,
                     PagedCache<T> const& cache, Heads<T> const& context, Bytes const& workspace) {
  auto const pages = pages_of(cache);
  attikos::append_kv(
      exec, x.k, x.v, cache.keys, cache.values, {}, attikos::cache_lengths(cache.lengths_before),
      attikos::rotary(rotation.cos, rotation.sin), attikos::queries(x.q, x.q), pages);
  auto const lengths = attikos::lengths(attikos::none, cache.lengths_after);
  if (x.q.extent(2) == 1) {
    attikos::decode(exec, x.q, cache.keys, cache.values, context, {.causal = true}, lengths, pages,
                    attikos::workspace(workspace));
  } else {
    attikos::attention(exec, x.q, cache.keys, cache.values, context, {.causal = true}, lengths,
                       pages, attikos::workspace(workspace));
  }
}
template <class T>
std::size_t attend_to_cache_bytes(Exec const& exec, Qkv<T> const& x, PagedCache<T> const& cache) {
  auto const pages = pages_of(cache);
  return std::max(
      attikos::decode_workspace_size(exec, x.q, cache.keys, cache.values, {.causal = true}, pages),
      attikos::attention_workspace_size(x.q, cache.keys, cache.values, {.causal = true}, pages));
}

/// Everything above for one type.
#define LLAMA_ATTENTION(T)                                                                         \
  template void attend(Exec const&, Qkv<T> const&, Rotation const&, Heads<T> const&,               \
                       Lse<StateOf<T>> const&, Bytes const&);                                      \
  template std::size_t attend_bytes(Qkv<T> const&);                                                \
  template void attend_to_cache(Exec const&, Qkv<T> const&, Rotation const&, PagedCache<T> const&, \
                                Heads<T> const&, Bytes const&);                                    \
  template std::size_t attend_to_cache_bytes(Exec const&, Qkv<T> const&, PagedCache<T> const&)

}  // namespace llama
