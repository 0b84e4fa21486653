// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/attention/decode.hpp>

#include "attention_call.hpp"
#include "explanation.hpp"

namespace attikos::c {
namespace {

constexpr char const* operation = "decode";

struct DecodeCall {
  attikos_context const& context;
  Explanation* log;  ///< null: run; else find out what would run
  Tensor q, k, v, out, lse;
  bool has_lse;
  AttentionSetup setup;
  std::int64_t splits;
  Determinism determinism;

  /// Elements of type T, output of type Out.
  template <class T, class Out>
  void run() const {
    using Acc = typename ElementTraits<T>::Accumulator;
    if (has_lse) visit_dtype<Acc>(operation, lse, [](auto) {});
    expect_term_types<T, Out>(operation, setup);
    auto const valid =
        padded_lengths(setup, q.extent[0], setup.has_pages ? q.extent[0] : k.extent[0]);
    auto const rows = optional_span<Acc, 3>(has_lse, lse, {q.extent[0], q.extent[1], q.extent[2]});
    std::int64_t const capacity = k.extent[2] * (setup.has_pages ? setup.pages.extent[1] : 1);
    DecodeOptions const options{.softmax_scale = setup.options.softmax_scale,
                                .causal = setup.options.causal,
                                .causal_alignment = setup.options.causal_alignment,
                                .kernel = setup.options.kernel,
                                .window_left = setup.options.window_left,
                                .window_right = setup.options.window_right,
                                .softcap = setup.options.softcap,
                                .splits = splits,
                                .determinism = determinism};
    auto const call = [&](auto const&... extras) {
      run_on(context, [&](auto const& exec) {
        auto const sq = q.span<T const, 4>();
        auto const sk = k.span<T const, 4>();
        auto const sv = v.span<T const, 4>();
        auto const so = out.span<Out, 4>();
        if (log != nullptr) {
          *log = explain(op::decode, exec, sq, sk, sv, so, options, extras...);
          return;
        }
        if (setup.check && setup.has_lengths_q) validate_lengths(exec, valid.q, q.extent[2]);
        if (setup.check && setup.has_lengths) validate_lengths(exec, valid.kv, capacity);
        decode(exec, sq, sk, sv, so, rows, options, extras...);
      });
    };
    std::apply(
        [&](auto const&... terms) {
          if (setup.has_pages) {
            call(terms..., valid, page_table(setup, k.extent[2]));
          } else {
            call(terms..., valid);
          }
        },
        attention_terms<T, Out>(setup, q.extent[0], q.extent[1], k.extent[1]));
  }
};

/// The enumerator behind a number of the C interface, where the default is 0.
Determinism read_determinism(std::int32_t given) {
  switch (given) {
    case ATTIKOS_RUN_TO_RUN:
      return Determinism::run_to_run;
    case ATTIKOS_BATCH_INVARIANT:
      return Determinism::batch_invariant;
    case ATTIKOS_UNORDERED:
      return Determinism::unordered;
    default:
      fail(ATTIKOS_INVALID_ARGUMENT, operation, ": determinism is ", given,
           "; expected an attikos_determinism");
  }
}

/// The options that decode has in common with attention, as attention takes them.
attikos_attention_options attention_part(attikos_decode_options const& o) {
  attikos_attention_options a = ATTIKOS_ATTENTION_OPTIONS_INIT;
  a.softmax_scale = o.softmax_scale;
  a.softcap = o.softcap;
  a.window_left = o.window_left;
  a.window_right = o.window_right;
  a.causal = o.causal;
  a.causal_top_left = o.causal_top_left;
  a.check = o.check;
  a.lengths_q = o.lengths_q;
  a.lengths_kv = o.lengths_kv;
  a.page_table = o.page_table;
  a.bias = o.bias;
  a.mask = o.mask;
  a.alibi_slopes = o.alibi_slopes;
  a.sinks = o.sinks;
  a.kernel = o.kernel;
  a.descale_q = o.descale_q;
  a.descale_k = o.descale_k;
  a.descale_v = o.descale_v;
  return a;
}

void run_decode(attikos_context* context, attikos_tensor const* q, attikos_tensor const* k,
                attikos_tensor const* v, attikos_tensor const* out, attikos_tensor const* lse,
                attikos_decode_options const* options, Explanation* log) {
  auto const& where = expect_context(operation, context);
  attikos_decode_options const defaults = ATTIKOS_DECODE_OPTIONS_INIT;
  auto const o =
      read_options(operation, options, defaults, offsetof(attikos_decode_options, determinism));
  auto const terms = attention_part(o);
  DecodeCall call{where,
                  log,
                  {},
                  {},
                  {},
                  {},
                  {},
                  lse != nullptr,
                  read_attention_options(operation, &terms, where),
                  o.splits,
                  read_determinism(o.determinism)};
  call.q = read_tensor(operation, "q", q, 4, 4, where);
  call.k = read_tensor(operation, "k", k, 4, 4, where);
  call.v = read_tensor(operation, "v", v, 4, 4, where);
  call.out = read_tensor(operation, "out", out, 4, 4, where);
  if (call.has_lse) call.lse = read_tensor(operation, "lse", lse, 3, 3, where);
  expect_same_dtype(operation, call.k, call.q);
  expect_same_dtype(operation, call.v, call.q);
  if (call.q.dtype != ATTIKOS_FLOAT8_E4M3) expect_same_dtype(operation, call.out, call.q);
  visit_dtype<double, float, float16, bfloat16, float8_e4m3>(
      operation, call.q, [&]<class T>(std::type_identity<T>) {
        if constexpr (sizeof(T) == 1) {
          visit_dtype<float, float16, bfloat16>(
              operation, call.out, [&]<class Out>(std::type_identity<Out>) { call.run<T, Out>(); });
        } else {
          call.run<T, T>();
        }
      });
}

}  // namespace
}  // namespace attikos::c

extern "C" {

using namespace attikos::c;

attikos_status attikos_decode(attikos_context* context, attikos_tensor const* q,
                              attikos_tensor const* k, attikos_tensor const* v,
                              attikos_tensor const* out, attikos_tensor const* lse,
                              attikos_decode_options const* options) {
  return guarded([&] { run_decode(context, q, k, v, out, lse, options, nullptr); });
}

attikos_status attikos_explain_decode(attikos_context* context, attikos_tensor const* q,
                                      attikos_tensor const* k, attikos_tensor const* v,
                                      attikos_tensor const* out, attikos_tensor const* lse,
                                      attikos_decode_options const* options, char* text,
                                      size_t size, size_t* length) {
  return guarded([&] {
    explain_into({text, size, length}, "explain_decode", [&](attikos::Explanation* log) {
      run_decode(context, q, k, v, out, lse, options, log);
    });
  });
}
}
