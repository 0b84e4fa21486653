// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Generation: keys and values of past tokens stay in a paged cache.
#pragma once

#include <attikos/append_kv/append_kv.hpp>
#include <attikos/attention/attention.hpp>
#include <attikos/decode/decode.hpp>
#include <cstdint>
#include <vector>

#include "model.hpp"

namespace transformer_block {

/// lengths(b) += by
struct Advance {
  Tensor<std::int32_t*> lengths;
  std::int32_t by;
  KOKKOS_FUNCTION void operator()(int b) const { lengths(b) += by; }
};

/// The pages of `batch` sequences, dealt out in turn and from the last to the first, so that no
/// sequence lies in order: int32 [batch, pages].
inline std::vector<std::int32_t> deal_pages(std::size_t batch, std::size_t pages) {
  std::vector<std::int32_t> table;
  for (std::size_t b = 0; b < batch; ++b) {
    for (std::size_t p = 0; p < pages; ++p)
      table.push_back(static_cast<std::int32_t>((pages - 1 - p) * batch + b));
  }
  return table;
}

/// Runs a model over sequences that grow. The weights are shared with `model`.
template <class T>
class Generator {
 public:
  /// Sequences of at most `capacity` tokens.
  Generator(Model<T> const& model, std::size_t batch, std::size_t capacity)
      : model_(model),
        batch_(batch),
        pages_((capacity + model.config.page_size - 1) / model.config.page_size),
        keys_(cache("keys")),
        values_(cache("values")),
        table_(allocate<std::int32_t**>("page table", batch, pages_)),
        lengths_("lengths", batch) {
    to_device(table_, deal_pages(batch, pages_));
  }

  /// Appends `count` tokens to every sequence (one behind the other: batch·count in all) and
  /// returns their logits [batch, count, vocabulary]. Several at once are a prefill, which attends
  /// with attention(); one at a time goes through decode(), which splits a long cache.
  std::vector<double> append(std::vector<std::int32_t> const& tokens, std::size_t count) {
    Config const& c = model_.config;
    Activations<T> const a(c, batch_, count);
    auto const row_tokens = allocate<std::int32_t*>("tokens", tokens.size());
    to_device(row_tokens, tokens);
    forward(exec_, model_, row_tokens, a, [&](Tensor<T**> const& qkv, Tensor<T**> const& context) {
      QkvHeads<T> const part(c, qkv, batch_);
      auto const out = heads(context, batch_, c.head_dim, 0, c.heads_q);
      auto const pages = attikos::paged(table_, static_cast<std::int64_t>(c.page_size));
      // Keys are rotated on their way into the cache, queries where they are.
      attikos::append_kv(exec_, part.k, part.v, keys_, values_, {},
                         attikos::cache_lengths(lengths_), attikos::rotary(model_.cos, model_.sin),
                         attikos::queries(part.q, part.q), pages);
      Kokkos::parallel_for("transformer_block: advance",
                           Kokkos::RangePolicy<Exec>(exec_, 0, lengths_.extent(0)),
                           Advance{lengths_, static_cast<std::int32_t>(count)});
      auto const lengths = attikos::lengths(attikos::none, lengths_);
      if (count == 1) {
        attikos::decode(exec_, part.q, keys_, values_, out, {.causal = true}, lengths, pages);
      } else {
        attikos::attention(exec_, part.q, keys_, values_, out, {.causal = true}, lengths, pages);
      }
    });
    exec_.fence("transformer_block: logits go to the host");
    return to_host<double>(a.logits);
  }

 private:
  Tensor<T****> cache(char const* name) const {
    Config const& c = model_.config;
    return allocate<T****>(name, batch_ * pages_, c.heads_kv, c.page_size, c.head_dim);
  }

  Exec exec_;
  Model<T> model_;
  std::size_t batch_, pages_;
  Tensor<T****> keys_, values_;    // [pages, heads_kv, page_size, head_dim]
  Tensor<std::int32_t**> table_;   // [batch, pages of a sequence]
  Tensor<std::int32_t*> lengths_;  // [batch]: tokens in the cache
};

}  // namespace transformer_block
