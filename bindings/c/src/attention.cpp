// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention_forward.hpp"
#include "explanation.hpp"

namespace attikos::c {
namespace {

void run_attention(attikos_context* context, attikos_tensor const* q, attikos_tensor const* k,
                   attikos_tensor const* v, attikos_tensor const* out, attikos_tensor const* lse,
                   attikos_attention_options const* options, Explanation* log) {
  constexpr char const* operation = AttentionCall::operation;
  auto const& where = expect_context(operation, context);
  AttentionCall call{where,
                     log,
                     {},
                     {},
                     {},
                     {},
                     {},
                     lse != nullptr,
                     read_attention_options(operation, options, where)};
  call.q = read_tensor(operation, "q", q, 3, 4, where);
  call.k = read_tensor(operation, "k", k, 3, 4, where);
  call.v = read_tensor(operation, "v", v, 3, 4, where);
  call.out = read_tensor(operation, "out", out, 3, 4, where);
  expect_attention_ranks(operation, call.setup, call.q, {&call.out}, call.k, call.v);
  bool const float8 = call.q.dtype == ATTIKOS_FLOAT8_E4M3;
  expect_same_dtype(operation, call.k, call.q);
  expect_same_dtype(operation, call.v, call.q);
  if (!float8) expect_same_dtype(operation, call.out, call.q);
  if (call.has_lse)
    call.lse = read_tensor(operation, "lse", lse, call.q.rank - 1, call.q.rank - 1, where);
  if (float8) {
    if (call.has_lse) visit_dtype<float>(operation, call.lse, [](auto) {});
    run_float8_attention(call);
    return;
  }
  visit_dtype<double, float, float16, bfloat16, float8_e4m3>(
      operation, call.q, [&]<class T>(std::type_identity<T>) {
        if constexpr (sizeof(T) > 1) {
          if (call.has_lse)
            visit_dtype<typename ElementTraits<T>::Accumulator>(operation, call.lse, [](auto) {});
          call.run<T, T>();
        }
      });
}

}  // namespace
}  // namespace attikos::c

extern "C" {

using namespace attikos::c;

attikos_status attikos_attention(attikos_context* context, attikos_tensor const* q,
                                 attikos_tensor const* k, attikos_tensor const* v,
                                 attikos_tensor const* out, attikos_tensor const* lse,
                                 attikos_attention_options const* options) {
  return guarded([&] { run_attention(context, q, k, v, out, lse, options, nullptr); });
}

attikos_status attikos_explain_attention(attikos_context* context, attikos_tensor const* q,
                                         attikos_tensor const* k, attikos_tensor const* v,
                                         attikos_tensor const* out, attikos_tensor const* lse,
                                         attikos_attention_options const* options, char* text,
                                         size_t size, size_t* length) {
  return guarded([&] {
    explain_into({text, size, length}, "explain_attention", [&](attikos::Explanation* log) {
      run_attention(context, q, k, v, out, lse, options, log);
    });
  });
}
}
