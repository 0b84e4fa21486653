// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// flash_attn_with_kvcache: new keys and values into a cache, and attention over it. All arrays have
// heads before features alone, as in the flash-attn package.
#include <tvm/ffi/function.h>

#include <initializer_list>

#include "attention.hpp"

namespace attikos::python {
namespace {

/// So many queries are decoded; more of them fill a processor without splitting the cache.
constexpr std::int64_t few = 16;

/// What comes before the attention: new keys and values, and the rotation of both and the queries.
struct Appended {
  Array k, v, cos, sin, lengths;
  std::int32_t interleaved;
};

/// lengths: positions in use before the call; total: with the new ones, None where there are none.
Any with_kvcache(AnyView q, AnyView k_cache, AnyView v_cache, AnyView k, AnyView v, AnyView cos,
                 AnyView sin, AnyView lengths, AnyView total, AnyView block_table, AnyView scale,
                 AnyView softcap, AnyView left, AnyView right, AnyView causal, AnyView interleaved,
                 AnyView splits, AnyView with_lse, AnyView check) {
  return unless_declined([&] {
    Heads heads(q, k_cache, v_cache, true);
    expect(heads.q.rank() == 4 && heads.k.rank() == 4);
    Appended added{Array(k), Array(v), Array(cos), Array(sin), Array(lengths), flag(interleaved)};
    Array const whole(total);
    Array const table(block_table);
    bool const grows = added.k.given();
    Array const& in_use = grows ? whole : added.lengths;
    expect(added.v.given() == grows && whole.given() == grows &&
           added.cos.given() == added.sin.given());
    expect(grows || !added.cos.given());
    expect_together(heads.q, heads.k, heads.v, added.k, added.v, added.cos, added.sin,
                    added.lengths, whole, table);
    std::int64_t const batch = heads.q.extent(0);
    for (Array const* x : std::initializer_list<Array const*>{&added.lengths, &whole, &table})
      expect(!x->given() ||
             (x->dtype() == ATTIKOS_INT32 && x->rank() >= 1 && x->extent(0) == batch));
    expect(!grows || added.lengths.given());
    expect(!added.lengths.given() || added.lengths.rank() == 1);
    expect(!table.given() || (table.rank() == 2 && added.lengths.given()));

    attikos_context* const context = context_of(heads.q.device());
    bool const on_host = heads.q.device().device_type == kDLCPU;
    bool const checked = (flag(check) != 0 || on_host) && !attikos_is_capturing(context);
    attikos_append_kv_options append = ATTIKOS_APPEND_KV_OPTIONS_INIT;
    std::optional<Result> rotated;
    attikos_attention_options many = ATTIKOS_ATTENTION_OPTIONS_INIT;
    attikos_decode_options options = ATTIKOS_DECODE_OPTIONS_INIT;
    read_scores(options, scale, softcap, left, right, causal);
    read_scores(many, scale, softcap, left, right, causal);
    options.splits = integer(splits);
    expect(options.splits >= 0);
    many.lengths_kv = options.lengths_kv = in_use.get();
    many.page_table = options.page_table = table.get();
    many.check = options.check = checked && !grows ? 1 : 0;
    Outputs const outputs(AnyView(nullptr), AnyView(nullptr), heads, true, flag(with_lse) != 0);
    auto const* queries = heads.q.get();
    if (grows) {
      expect(added.k.rank() == 4 && added.v.rank() == 4);
      added.k.heads_first();
      added.v.heads_first();
      append.cache_lengths = added.lengths.get();
      append.page_table = table.get();
      append.interleaved = added.interleaved;
      append.check = checked ? 1 : 0;
      append.queries_share_position =
          options.causal == 0 && options.window_left < 0 && options.window_right < 0 ? 1 : 0;
      if (added.cos.given()) {
        std::int64_t const pages = table.given() ? table.extent(1) : 1;
        expect(added.cos.rank() == 2 && added.cos.extent(0) >= heads.k.extent(-2) * pages);
        append.rotary_cos = added.cos.get();
        append.rotary_sin = added.sin.get();
        append.rotary_dim = 2 * added.cos.extent(1);
        std::int64_t const shape[] = {batch, heads.q.extent(2), heads.q.extent(1),
                                      heads.q.extent(3)};
        rotated.emplace(AnyView(nullptr), heads.q.device(), heads.q.type(), shape, 4);
        rotated->seen().heads_first();
        append.q = queries;
        append.q_out = queries = rotated->get();
      }
    }
    bool const splits_pay = heads.q.extent(-2) <= few;
    if (grows) {  // nothing may be written when the second step is refused
      expect_success(splits_pay ? attikos_explain_decode(
                                      context, queries, heads.k.get(), heads.v.get(), outputs.out(),
                                      outputs.lse(), &options, nullptr, 0, nullptr)
                                : attikos_explain_attention(
                                      context, queries, heads.k.get(), heads.v.get(), outputs.out(),
                                      outputs.lse(), &many, nullptr, 0, nullptr));
      expect_success(attikos_append_kv(context, added.k.get(), added.v.get(), heads.k.get(),
                                       heads.v.get(), &append));
    }
    expect_success(splits_pay ? attikos_decode(context, queries, heads.k.get(), heads.v.get(),
                                               outputs.out(), outputs.lse(), &options)
                              : attikos_attention(context, queries, heads.k.get(), heads.v.get(),
                                                  outputs.out(), outputs.lse(), &many));
    return outputs.finish();
  });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(with_kvcache, with_kvcache);

}  // namespace attikos::python
