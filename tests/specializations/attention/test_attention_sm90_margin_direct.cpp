// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention/sm90_wgmma_* beside other kernels (sm_margin), of more units than there are
// multiprocessors, called directly over memory of cudaMalloc: the bits do not depend on how tiles
// are dealt. Fails without a Hopper card.

#include "attention_cases.hpp"

namespace {

/// Bits of all schedules. Other suites compare those of smaller problems with float64.
void same_bits(Case const& t) {
  using Kernel = AttentionFor<__nv_bfloat16>;
  SKIP_IF_LEFT_OUT(Kernel);
  SCOPED_TRACE(describe(t));
  AttentionProblem<__nv_bfloat16, Kernel, __nv_bfloat16>(t).run(
      abi::query_device(abi::current_device()));
}

void margins(std::int64_t d) {
  // An odd and an even number of tiles.
  std::int64_t const lengths[][3] = {{2, 32, 1000}, {1, 16, 4097}};  // batch, heads, positions
  for (auto const& [batch, heads, length] : lengths)
    for (int mask = 0; mask < 6; ++mask) {
      Case t{.batch = batch, .heads = heads, .heads_kv = heads / 4, .d = d, .dv = d};
      t.len_q = length, t.len_kv = length + 77, t.causal = mask != 0 && mask != 3;
      if (mask == 2) t.top_left = true, t.heads_kv = heads;
      if (mask == 3) t.left = 100, t.right = 30;
      if (mask == 4) t.left = 400;
      if (mask == 5) t.left = length + 77;  // all tiles are shorter than the window
      same_bits(t);
      STOP_AT_FAILURE;
    }
  for (bool causal : {false, true}) {
    Case t{.heads = 16, .heads_kv = 4, .len_q = 4600, .len_kv = 4600, .d = d, .dv = d};
    t.causal = causal, t.order = t.order_out = Order::positions_first;
    t.cu_q = t.cu_kv = {3, 900, 901, 2000, 2000, 4590};
    same_bits(t);
    STOP_AT_FAILURE;
  }
}
TEST(AttentionSm90MarginRuns, HeadDim64) { margins(64); }
TEST(AttentionSm90MarginRuns, HeadDim128) { margins(128); }
TEST(AttentionSm90MarginRuns, HeadDim256) { margins(256); }

}  // namespace
