// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Context-parallel attention in the other types.
#include "context_checks.hpp"

namespace attikos::test {
namespace {

template <class T>
void check_type() {
  Shards const shards = Shards::zigzag(70, ranks().size());
  check_all_strategies<T>({1, 8, 2, 16, 16, shards, {.causal = true, .softcap = 3}, {}, {}, true});
  check_all_strategies<T>({2, 8, 4, 16, 24, uneven(50), {.window_left = 12}});
}

TEST(ContextTypes, Double) { check_type<double>(); }
TEST(ContextTypes, Bfloat16) { check_type<bfloat16>(); }

}  // namespace
}  // namespace attikos::test
