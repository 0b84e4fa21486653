// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One problem of attention_backward with a block mask: compared with the oracle, and with the same
// mask given densely.
#pragma once

#include "attention_backward_checks.hpp"
#include "block_mask_predicates.hpp"

namespace attikos::test {

/// Extras beside the mask: none; bias, ALiBi, sinks and their gradients; functors and those.
enum class Beside { nothing, terms, functors };

/// `call` with the extras that tell how the case is stored and what enters its scores.
template <Beside beside, class Space, class T, class Call>
void with_extras_beside(BackwardOperandsIn<Space, T>& o, Call const& call) {
  if constexpr (beside == Beside::nothing)
    call(lengths(o.lengths_q.const_view(), o.lengths_kv.const_view()));
  else if constexpr (beside == Beside::terms)
    call(bias(o.bias.const_view()), d_bias(o.d_bias.view()), alibi(o.slopes.const_view()),
         sinks(o.sinks.const_view()), d_sinks(o.d_sinks.view()));
  else
    call(bias(o.bias.const_view()), d_bias(o.d_bias.view()), alibi(o.slopes.const_view()),
         sinks(o.sinks.const_view()), d_sinks(o.d_sinks.view()), score(BendScore{o.p.score}),
         weight(CutoffWeight{o.p.weight}));
}

template <class C, Beside beside = Beside::nothing>
void check_block_gradients(BackwardCase p, Pattern pattern, std::int64_t block_q,
                           std::int64_t block_kv, unsigned broadcast = 0) {
  using T = typename C::T;
  using Exec = typename C::Exec;
  p.mask = true;  // what the oracle sees
  p.call = beside == Beside::nothing ? BackwardCall::plain : BackwardCall::terms;
  BackwardOperands<Exec, T> o(p), dense(p);
  for (auto* x : {&o, &dense}) {
    Random random(static_cast<std::uint64_t>(p.shape.seqlen_q * 31 + p.shape.seqlen_kv));
    x->fill(random);
    x->mask.fill(1);
    keep_seen(x->mask, TestPredicate{pattern});
    x->forward();
  }
  using Space = TensorSpace<Exec>;
  BlockMaskShape const shape{p.shape.seqlen_q, p.shape.seqlen_kv, block_q, block_kv};
  auto const tiles = block_tiles<Space>(p.shape.batch, p.shape.heads_q, shape, broadcast);
  auto const blocks = make_block_mask(Exec(), TestPredicate{pattern}, tiles.view(), shape);
  auto const run = [&](auto& x, auto const&... extras) {
    run_attention_backward(x, Exec(), x.q.const_view(), x.k.const_view(), x.v.const_view(),
                           x.out.const_view(), x.lse.const_view(), x.dout.const_view(), x.dq.view(),
                           x.dk.view(), x.dv.view(), p.options, extras...);
  };
  with_extras_beside<beside>(o, [&](auto const&... extras) { run(o, extras..., blocks); });
  with_extras_beside<beside>(
      dense, [&](auto const&... extras) { run(dense, extras..., mask(dense.mask.const_view())); });
  o.download();
  dense.download();
  compare_attention_backward(o, std::string("block_mask/") + Exec::name());
  // Empty tiles add nothing at all, so that leaving them out does not change a bit.
  std::string const what = describe(p) + " pattern " + std::to_string(static_cast<int>(pattern)) +
                           " tiles of " + std::to_string(block_q) + " x " +
                           std::to_string(block_kv);
  auto const same = [&](auto& a, auto& b, char const* name) {
    EXPECT_TRUE(same_bits(a.elements(), b.elements())) << name << ": " << what;
  };
  if (is_host_space<Exec>) {
    same(o.dq, dense.dq, "dq");
    same(o.dk, dense.dk, "dk");
    same(o.dv, dense.dv, "dv");
    if (beside == Beside::nothing) return;
    same(o.d_bias, dense.d_bias, "dbias");
    same(o.d_sinks, dense.d_sinks, "dsinks");
  }
}

/// Gradients of packed sequences; the oracle sees the mask densely.
template <class Exec>
void check_packed_gradients(BackwardCase p, Pattern pattern, BlockMaskShape const& shape) {
  p.mask = true;
  BackwardOperands<Exec, float> o(p);
  Random random(14);
  o.fill(random);
  o.mask.fill(1);
  TestPredicate const predicate{pattern};
  keep_seen(o.mask, predicate);
  o.forward();
  auto const tiles = block_tiles<TensorSpace<Exec>>(p.shape.batch, p.shape.heads_q, shape);
  run_attention_backward(o, Exec(), o.q.front(), o.k.front(), o.v.front(), o.out.front(),
                         o.lse.front(), o.dout.front(), o.dq.front(), o.dk.front(), o.dv.front(),
                         p.options, cu_seqlens(o.cu_q.view(), o.cu_kv.view()),
                         make_block_mask(Exec(), predicate, tiles.view(), shape));
  o.download();
  compare_attention_backward(o, std::string("block_mask/") + Exec::name());
}

}  // namespace attikos::test
