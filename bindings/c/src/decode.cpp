// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/decode/decode.hpp>

#include "attention_call.hpp"
#include "explanation.hpp"

namespace attikos::c {
namespace {

constexpr char const* decode_name = "decode";

struct DecodeCall {
  attikos_context const& context;
  Explanation* log;  ///< null: run; else find out what would run
  Tensor q, k, v, out, lse;
  bool has_lse;
  AttentionSetup setup;
  DecodeOptions options;

  /// Reads the tensors once `setup` says how many dimensions they have.
  void read(attikos_tensor const* queries, attikos_tensor const* keys, attikos_tensor const* values,
            attikos_tensor const* output, attikos_tensor const* sums) {
    int const rank = setup.has_cu_q ? 3 : 4;
    int const rank_kv = setup.has_cu_kv ? 3 : 4;
    q = read_tensor(decode_name, "q", queries, rank, rank, context);
    k = read_tensor(decode_name, "k", keys, rank_kv, rank_kv, context);
    v = read_tensor(decode_name, "v", values, rank_kv, rank_kv, context);
    out = read_tensor(decode_name, "out", output, rank, rank, context);
    if (has_lse) lse = read_tensor(decode_name, "lse", sums, rank - 1, rank - 1, context);
    expect_same_dtype(decode_name, k, q);
    expect_same_dtype(decode_name, v, q);
    if (q.dtype != ATTIKOS_FLOAT8_E4M3) expect_same_dtype(decode_name, out, q);
  }

  /// Elements of type T, output of type Out.
  template <class T, class Out>
  void run() const {
    using Acc = typename ElementTraits<T>::Accumulator;
    if (has_lse) visit_dtype<Acc>(decode_name, lse, [](auto) {});
    expect_term_types<T, Out>(decode_name, setup);
    auto const tensors = attention_tensors(setup, q, k, v, out, has_lse ? &lse : nullptr);
    run_on(context, [&](auto const& exec) {
      if (setup.check && log == nullptr) validate_sequences(exec, tensors);
      attikos::detail::decode_run<T, Out>(exec, tensors, options, NoFunctors{}, log);
    });
  }
};

/// The options that decode has in common with attention, as attention takes them.
attikos_attention_options attention_part(attikos_decode_options const& from) {
  attikos_attention_options to = ATTIKOS_ATTENTION_OPTIONS_INIT;
  ATTIKOS_DECODE_OPTIONS(ATTIKOS_COPY_OPTION)
  static_assert(ATTIKOS_UNCOPIED(ATTIKOS_DECODE_OPTIONS, attikos_attention_options) == 1,
                "splits is decode's own");
  to.determinism = ATTIKOS_RUN_TO_RUN;  // of decode more can be asked than of attention
  return to;
}

/// Those of decode in C++.
DecodeOptions decode_options(attikos_decode_options const& from) {
  DecodeOptions to;
  ATTIKOS_DECODE_OPTIONS(ATTIKOS_COPY_OPTION)
  static_assert(ATTIKOS_UNCOPIED(ATTIKOS_DECODE_OPTIONS, DecodeOptions) == 2,
                "causal_top_left and check are read by hand");
  to.causal_alignment =
      from.causal_top_left != 0 ? CausalAlignment::top_left : CausalAlignment::bottom_right;
  to.determinism = read_determinism(decode_name, from.determinism);
  return to;
}

void run_decode(attikos_context* context, attikos_tensor const* q, attikos_tensor const* k,
                attikos_tensor const* v, attikos_tensor const* out, attikos_tensor const* lse,
                attikos_decode_options const* options, Explanation* log) {
  auto const& where = expect_context(decode_name, context);
  auto const o = read_options(decode_name, options);
  auto const terms = attention_part(o);
  DecodeCall call{where,
                  log,
                  {},
                  {},
                  {},
                  {},
                  {},
                  lse != nullptr,
                  read_attention_options(decode_name, &terms, where, true),
                  decode_options(o)};
  call.read(q, k, v, out, lse);
  visit_dtype<double, float, float16, bfloat16, float8_e4m3>(
      decode_name, call.q, [&]<class T>(std::type_identity<T>) {
        if constexpr (sizeof(T) == 1) {
          visit_dtype<float, float16, bfloat16>(
              decode_name, call.out,
              [&]<class Out>(std::type_identity<Out>) { call.run<T, Out>(); });
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
