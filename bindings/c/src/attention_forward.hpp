// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One forward attention call after all checks that need no element type.
#pragma once

#include <attikos/attention/attention.hpp>

#include "attention_call.hpp"

namespace attikos::c {

struct AttentionCall {
  static constexpr char const* operation = "attention";

  attikos_context const& context;
  Explanation* log;  ///< null: run; else find out what would run
  Tensor q, k, v, out, lse;
  bool has_lse;
  AttentionSetup setup;

  /// Elements of type T, output of type Out.
  template <class T, class Out>
  void run() const {
    expect_term_types<T, Out>(operation, setup);
    auto const tensors = attention_tensors(setup, q, k, v, out, has_lse ? &lse : nullptr);
    run_on(context, [&](auto const& exec) {
      if (setup.check && log == nullptr) validate_sequences(exec, tensors);
      attikos::detail::attention_run<T, Out>(exec, tensors, setup.options, NoFunctors{}, log);
    });
  }
};

/// float8_e4m3 inputs, a float32, float16 or bfloat16 output. See attention_float8.cpp.
void run_float8_attention(AttentionCall const& call);

}  // namespace attikos::c
