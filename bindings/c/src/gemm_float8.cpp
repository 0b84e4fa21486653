// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm_call.hpp"

namespace attikos::c {

void run_float8_gemm(GemmCall const& call) {
  constexpr char const* operation = GemmCall::operation;
  visit_dtype<float8_e4m3, float8_e5m2, float16, bfloat16>(
      operation, call.a, [&]<class A>(std::type_identity<A>) {
        if constexpr (sizeof(A) == 2) {  // narrow weights
          visit_dtype<float8_e4m3>(operation, call.b, [&]<class B>(std::type_identity<B>) {
            visit_dtype<A>(operation, call.c, [&](auto) { call.run<A, B, A>(); });
          });
        } else {
          visit_dtype<float8_e4m3, float8_e5m2>(
              operation, call.b, [&]<class B>(std::type_identity<B>) {
                visit_dtype<float, float16, bfloat16, float8_e4m3>(
                    operation, call.c,
                    [&]<class C>(std::type_identity<C>) { call.run<A, B, C>(); });
              });
        }
      });
}

}  // namespace attikos::c
