// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/attention/attention_backward.hpp>

#include "attention_call.hpp"
#include "explanation.hpp"

namespace attikos::c {
namespace {

constexpr char const* attention_backward_name = "attention_backward";

struct Call {
  attikos_context const& context;
  Explanation* log;  ///< null: run
  Tensor q, k, v, out, lse, dout, dq, dk, dv, d_bias, d_sinks;
  bool has_d_bias, has_d_sinks;
  AttentionSetup setup;

  template <class T>
  void run() const {
    expect_term_types<T>(attention_backward_name, setup);
    attikos::detail::AttentionBackwardTensors t;
    t.forward = attention_tensors(setup, q, k, v, out, &lse);
    t.dout = dout.any();
    t.dq = dq.any();
    t.dk = dk.any();
    t.dv = dv.any();
    if (has_d_bias) t.d_bias = d_bias.any();
    if (has_d_sinks) t.d_sinks = d_sinks.any();
    run_on(context, [&](auto const& exec) {
      if (setup.check && log == nullptr) validate_sequences(exec, t.forward);
      attikos::detail::attention_backward_run<T>(exec, t, setup.options, NoFunctors{}, log);
    });
  }
};

void run_attention_backward(attikos_context* context, attikos_tensor const* q,
                            attikos_tensor const* k, attikos_tensor const* v,
                            attikos_tensor const* out, attikos_tensor const* lse,
                            attikos_tensor const* dout,
                            attikos_attention_gradients const* gradients,
                            attikos_attention_options const* options, Explanation* log) {
  auto const& where = expect_context(attention_backward_name, context);
  if (gradients == nullptr)
    fail(ATTIKOS_NULL_ARGUMENT, attention_backward_name,
         ": the gradients are null; expected dq, dk and dv");
  auto const g = read_options(attention_backward_name, gradients);
  Call call{where,
            log,
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            g.d_bias != nullptr,
            g.d_sinks != nullptr,
            read_attention_options(attention_backward_name, options, where)};
  if (call.setup.has_pages)
    fail(ATTIKOS_UNSUPPORTED, attention_backward_name, ": a paged cache has no gradients");
  call.q = read_tensor(attention_backward_name, "q", q, 3, 4, where);
  int const rank = call.q.rank;
  call.k = read_tensor(attention_backward_name, "k", k, 3, 4, where);
  call.v = read_tensor(attention_backward_name, "v", v, 3, 4, where);
  call.out = read_tensor(attention_backward_name, "out", out, 3, 4, where);
  call.lse = read_tensor(attention_backward_name, "lse", lse, rank - 1, rank - 1, where);
  call.dout = read_tensor(attention_backward_name, "dout", dout, 3, 4, where);
  call.dq = read_tensor(attention_backward_name, "dq", g.dq, 3, 4, where);
  call.dk = read_tensor(attention_backward_name, "dk", g.dk, rank, rank, where);
  call.dv = read_tensor(attention_backward_name, "dv", g.dv, rank, rank, where);
  expect_attention_ranks(attention_backward_name, call.setup, call.q,
                         {&call.out, &call.dout, &call.dq}, call.k, call.v);
  for (Tensor const* tensor :
       {&call.k, &call.v, &call.out, &call.dout, &call.dq, &call.dk, &call.dv})
    expect_same_dtype(attention_backward_name, *tensor, call.q);
  auto const term = [&](bool wanted, bool has, char const* name, attikos_tensor const* given,
                        Tensor const& like, Tensor& tensor) {
    if (!wanted) return;
    if (!has)
      fail(ATTIKOS_NULL_ARGUMENT, attention_backward_name, ": ", name,
           " is wanted but its tensor is null");
    tensor = read_tensor(attention_backward_name, name, given, like.rank, like.rank, where);
    expect_same_dtype(attention_backward_name, tensor, like);
  };
  auto const& s = call.setup;
  term(call.has_d_bias, s.has_bias, "d_bias", g.d_bias, s.bias, call.d_bias);
  term(call.has_d_sinks, s.has_sinks, "d_sinks", g.d_sinks, s.sinks, call.d_sinks);
  visit_floating(attention_backward_name, call.q, [&]<class T>(std::type_identity<T>) {
    visit_dtype<typename attikos::ElementTraits<T>::Accumulator>(attention_backward_name, call.lse,
                                                                 [](auto) {});
    call.run<T>();
  });
}

}  // namespace
}  // namespace attikos::c

extern "C" {

using namespace attikos::c;

attikos_status attikos_attention_backward(attikos_context* context, attikos_tensor const* q,
                                          attikos_tensor const* k, attikos_tensor const* v,
                                          attikos_tensor const* out, attikos_tensor const* lse,
                                          attikos_tensor const* dout,
                                          attikos_attention_gradients const* gradients,
                                          attikos_attention_options const* options) {
  return guarded([&] {
    run_attention_backward(context, q, k, v, out, lse, dout, gradients, options, nullptr);
  });
}

attikos_status attikos_explain_attention_backward(
    attikos_context* context, attikos_tensor const* q, attikos_tensor const* k,
    attikos_tensor const* v, attikos_tensor const* out, attikos_tensor const* lse,
    attikos_tensor const* dout, attikos_attention_gradients const* gradients,
    attikos_attention_options const* options, char* text, size_t size, size_t* length) {
  return guarded([&] {
    explain_into(
        {text, size, length}, "explain_attention_backward", [&](attikos::Explanation* log) {
          run_attention_backward(context, q, k, v, out, lse, dout, gradients, options, log);
        });
  });
}
}
