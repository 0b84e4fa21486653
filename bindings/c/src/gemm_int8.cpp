// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm_call.hpp"

namespace attikos::c {

void run_int8_gemm(GemmCall const& call) {
  expect_same_dtype(GemmCall::operation, call.b, call.a);
  using Int = std::int8_t;
  visit_dtype<std::int32_t, Int, float, float16, bfloat16>(
      GemmCall::operation, call.c,
      [&]<class C>(std::type_identity<C>) { call.run<Int, Int, C>(); });
}

}  // namespace attikos::c
