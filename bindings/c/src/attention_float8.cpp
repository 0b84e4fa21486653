// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention_forward.hpp"

namespace attikos::c {

void run_float8_attention(AttentionCall const& call) {
  visit_dtype<float, float16, bfloat16>(
      AttentionCall::operation, call.out,
      [&]<class Out>(std::type_identity<Out>) { call.run<float8_e4m3, Out>(); });
}

}  // namespace attikos::c
