// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One problem of attention with a block mask: compared with the oracle, and with the same mask
// given densely.
#pragma once

#include "attention_term_checks.hpp"
#include "block_mask_predicates.hpp"

namespace attikos::test {

struct BlockCase {
  AttentionShape shape;
  Pattern pattern = Pattern::mosaic;
  std::int64_t block_q = 16, block_kv = 16;
  AttentionOptions options = {};
  unsigned broadcast = 0;
  bool terms = false;     ///< a boolean mask, bias, ALiBi and sinks beside it
  bool functors = false;  ///< score and weight functors beside it
  std::vector<int> lengths_q = {}, lengths_kv = {};
  Layout layout = Layout::right;
};

inline std::string describe(BlockCase const& p) {
  std::ostringstream text;
  text << describe(AttentionCase{.shape = p.shape,
                                 .options = p.options,
                                 .layout = p.layout,
                                 .lengths_q = p.lengths_q,
                                 .lengths_kv = p.lengths_kv})
       << " pattern " << static_cast<int>(p.pattern) << " tiles of " << p.block_q << " x "
       << p.block_kv << " broadcast " << p.broadcast << " terms " << p.terms << " functors "
       << p.functors << " window " << p.options.window_left << ' ' << p.options.window_right;
  return text.str();
}

/// `call` with the extras of the case besides the mask.
template <bool Functors, class O, class Terms4, class Call>
void with_extras(BlockCase const& p, O const& o, Terms4 const& x, Call const& call) {
  if constexpr (Functors)
    call(score(TestScore{}), weight(TestWeight{}));
  else if (p.terms)
    call(bias(x.bias.const_view()), alibi(x.slopes.const_view()), sinks(x.sinks.const_view()));
  else
    call(lengths(o.lengths_q.const_view(), o.lengths_kv.const_view()));
}

template <class C, bool Functors = false>
void check_blocks(BlockCase const& p) {
  using T = typename C::T;
  using Exec = typename C::Exec;
  auto const& s = p.shape;
  AttentionCase a{.shape = s,
                  .options = p.options,
                  .layout = p.layout,
                  .lengths_q = p.lengths_q,
                  .lengths_kv = p.lengths_kv};
  if (a.lengths_q.empty()) {
    a.lengths_q.assign(sz(s.batch), static_cast<int>(s.seqlen_q));
    a.lengths_kv.assign(sz(s.batch), static_cast<int>(s.seqlen_kv));
  }
  AttentionOperands<Exec, T> o(a), dense(a);
  Random random(static_cast<std::uint64_t>(s.seqlen_q * 31 + s.seqlen_kv));
  o.fill(a, random);
  TermOperands<Exec, T> x(s, 0, 0, random);
  if (!p.terms) x.mask.fill(1);
  Tensor<std::uint8_t, 4, Exec> given({s.batch, s.heads_q, s.seqlen_q, s.seqlen_kv});
  given.for_each([&](auto const& i) { given.at(i) = x.mask.at(i); });
  given.upload();
  TestPredicate const predicate{p.pattern};
  keep_seen(x.mask, predicate);

  BlockMaskShape const tiles{s.seqlen_q, s.seqlen_kv, p.block_q, p.block_kv};
  auto const view = block_tiles<Exec>(s.batch, s.heads_q, tiles, p.broadcast);
  auto const blocks = make_block_mask(Exec(), predicate, view.view(), tiles);
  std::string kernel;
  bool rounded = false;
  with_extras<Functors>(p, o, x, [&](auto const&... extras) {
    auto const run = [&](auto const&... masks) {
      auto const told =
          explain(op::attention, Exec(), o.q.const_view(), o.k.const_view(), o.v.const_view(),
                  o.out.view(), o.lse.view(), p.options, extras..., masks...);
      kernel = told.kernel;
      rounded = rounds_weights<Exec>(told);
      attention(Exec(), o.q.const_view(), o.k.const_view(), o.v.const_view(), o.out.view(),
                o.lse.view(), p.options, extras..., masks...);
    };
    if (p.terms)
      run(blocks, mask(given.const_view()));
    else
      run(blocks);
    AttentionOptions same_kernel = p.options;
    same_kernel.kernel = kernel.c_str();
    attention(Exec(), o.q.const_view(), o.k.const_view(), o.v.const_view(), dense.out.view(),
              dense.lse.view(), same_kernel, extras..., mask(x.mask.const_view()));
  });
  EXPECT_EQ(kernel.rfind("portable/", 0), 0u) << kernel;
  o.download();
  dense.download();
  EXPECT_EQ(o.out.writes_outside(), 0u) << describe(p);
  EXPECT_EQ(o.lse.writes_outside(), 0u) << describe(p);
  // Empty tiles add nothing at all, so that leaving them out does not change a bit.
  if (is_host_space<Exec>) {
    EXPECT_TRUE(same_bits(o.out.elements(), dense.out.elements())) << describe(p);
    EXPECT_TRUE(same_bits(o.lse.elements(), dense.lse.elements())) << describe(p);
  }
  std::string const name =
      std::string("attention/block_mask/") + type_name<T>() + "/" + Exec::name();
  Comparison out(name, describe(p), stored_as<T>()), lse(name + "/lse", describe(p));
  Terms const terms{.bias = p.terms && !Functors,
                    .mask = true,
                    .alibi = p.terms && !Functors,
                    .sinks = p.terms && !Functors,
                    .score = Functors,
                    .weight = Functors};
  SequenceCheck compare{out, lse, s, p.options, terms};
  compare.rounded_weights = rounded;
  bool const padded = !Functors && !p.terms;
  for (std::int64_t b = 0; b < s.batch; ++b)
    compare.template operator()<T>(
        x, b, s.seqlen_q, padded ? a.lengths_q[sz(b)] : s.seqlen_q,
        padded ? a.lengths_kv[sz(b)] : s.seqlen_kv,
        [&](auto h, auto i, auto c) { return o.q.value(b, h, i, c); },
        [&](auto h, auto j, auto c) { return o.k.value(b, h, j, c); },
        [&](auto h, auto j, auto c) { return o.v.value(b, h, j, c); },
        [&](auto h, auto i, auto c) { return o.out.value(b, h, i, c); },
        [&](auto h, auto i) { return o.lse.value(b, h, i); });
}

/// Packed sequences of keys and queries alike.
struct PackedBlockCase {
  std::vector<int> cu;   ///< where sequences begin, and the last one ends
  std::int64_t covered;  ///< queries and keys of a sequence that the tiles tell of
  std::int64_t block_q, block_kv;
  Pattern pattern = Pattern::mosaic;
  AttentionOptions options = {};
};

template <class Exec>
void check_packed_blocks(PackedBlockCase const& p) {
  std::int64_t const sequences = static_cast<std::int64_t>(p.cu.size()) - 1, heads = 4, d = 16;
  std::int64_t const total = p.cu.back() + 5;
  Tensor<float, 3, Exec> q({heads, total, d}), k({2, total, d}), v({2, total, d}),
      out({heads, total, d});
  Tensor<float, 2, Exec> lse({heads, total});
  Tensor<std::int32_t, 1, Exec> offsets({sequences + 1});
  Random random(21);
  for (auto* x : {&q, &k, &v}) x->fill_uniform(random);
  for (std::int64_t b = 0; b <= sequences; ++b) offsets(b) = p.cu[sz(b)];
  offsets.upload();
  AttentionShape const s{sequences, heads, 2, total, total, d, d};
  TermOperands<Exec, float> x(s, 0, 0, random);
  x.mask.fill(1);
  TestPredicate const predicate{p.pattern};
  keep_seen(x.mask, predicate);
  BlockMaskShape const shape{p.covered, p.covered, p.block_q, p.block_kv};
  auto const tiles = block_tiles<Exec>(sequences, heads, shape);
  attention(Exec(), q.view(), k.view(), v.view(), out.view(), lse.view(), p.options,
            cu_seqlens(offsets.view(), offsets.view()),
            make_block_mask(Exec(), predicate, tiles.view(), shape));
  out.download();
  lse.download();
  std::string const what = "tiles of " + std::to_string(p.block_q) + " x " +
                           std::to_string(p.block_kv) + " cover " + std::to_string(p.covered);
  std::string const name = std::string("attention/block_mask/packed/") + Exec::name();
  Comparison out_check(name, what), lse_check(name + "/lse", what);
  SequenceCheck compare{out_check, lse_check, s, p.options, Terms{.mask = true}};
  for (std::int64_t b = 0; b < sequences; ++b) {
    std::int64_t const at = p.cu[sz(b)], length = p.cu[sz(b + 1)] - at;
    compare.template operator()<float>(
        x, b, length, length, length, [&](auto h, auto i, auto c) { return q.value(h, at + i, c); },
        [&](auto h, auto j, auto c) { return k.value(h, at + j, c); },
        [&](auto h, auto j, auto c) { return v.value(h, at + j, c); },
        [&](auto h, auto i, auto c) { return out.value(h, at + i, c); },
        [&](auto h, auto i) { return lse.value(h, at + i); });
  }
}

}  // namespace attikos::test
