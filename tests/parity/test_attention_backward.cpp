// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention_backward against the float64 oracle: execution spaces x element types; options, terms,
// storage and layouts at run time.
#include "attention_backward_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class AttentionBackward : public testing::Test {};
TYPED_TEST_SUITE(AttentionBackward, FloatingCases, CaseName);

template <class C>
void check(BackwardCase const& p) {
  check_attention_backward<typename C::Exec, typename C::T>(p);
}

inline constexpr std::array both_alignments{CausalAlignment::bottom_right,
                                            CausalAlignment::top_left};

TYPED_TEST(AttentionBackward, Shapes) {
  for (auto const& shape : attention_shapes) check<TypeParam>({.shape = shape});
  // More than a tile of rows and of columns, several query heads to a key head.
  check<TypeParam>({.shape = {2, 4, 2, 201, 263, 16, 12}});
  check<TypeParam>(
      {.shape = {2, 4, 1, 130, 263, 40, 24}, .options = {.determinism = Determinism::unordered}});
}

TYPED_TEST(AttentionBackward, WideHeads) {
  check<TypeParam>({.shape = {1, 2, 1, 70, 131, 192, 128}});
  check<TypeParam>({.shape = {1, 2, 1, 70, 131, 256, 256}, .options = {.causal = true}});
  check<TypeParam>({.shape = {1, 1, 1, 67, 70, 20, 264}});
}

// Gradients of dot products that 16 bits could hold only in parts of something.
TYPED_TEST(AttentionBackward, GradientsOfAnySize) {
  check<TypeParam>({.shape = {1, 2, 1, 150, 263, 24, 20},
                    .options = {.softmax_scale = 1.0 / 16384},
                    .largest = 64});
  check<TypeParam>({.shape = {1, 2, 1, 19, 5, 24, 20},
                    .options = {.softmax_scale = 4},
                    .largest = 0.0625,
                    .largest_dout = 4096});
}

TYPED_TEST(AttentionBackward, CausalBothAlignments) {
  for (auto alignment : both_alignments) {
    for (auto const& shape : attention_shapes)
      check<TypeParam>(
          {.shape = shape, .options = {.causal = true, .causal_alignment = alignment}});
    // len_q > len_kv: with bottom_right the first rows see nothing.
    check<TypeParam>({.shape = {1, 2, 1, 263, 140, 9, 8},
                      .options = {.causal = true, .causal_alignment = alignment}});
    check<TypeParam>({.shape = {1, 2, 1, 140, 263, 9, 8},
                      .options = {.causal = true, .causal_alignment = alignment}});
  }
}

TYPED_TEST(AttentionBackward, Windows) {
  for (auto alignment : both_alignments) {
    for (bool causal : {false, true}) {
      for (std::int64_t left : {-1, 0, 20}) {
        for (std::int64_t right : {-1, 0, 7}) {
          check<TypeParam>({.shape = {1, 2, 1, 150, 135, 8, 5},
                            .options = {.causal = causal,
                                        .causal_alignment = alignment,
                                        .window_left = left,
                                        .window_right = right}});
        }
      }
    }
  }
}

TYPED_TEST(AttentionBackward, Chunks) {
  for (auto alignment : both_alignments)
    for (bool causal : {false, true})
      for (std::int64_t chunk : {1, 20, 64, 500}) {
        check<TypeParam>({.shape = {1, 2, 1, 150, 135, 8, 5},
                          .options = {.causal = causal,
                                      .causal_alignment = alignment,
                                      .window_left = chunk == 64 ? 40 : -1,
                                      .attention_chunk = chunk}});
        check<TypeParam>(
            {.shape = {1, 2, 1, 33, 135, 8, 5},
             .options = {
                 .causal = causal, .causal_alignment = alignment, .attention_chunk = chunk}});
      }
}

TYPED_TEST(AttentionBackward, ScaleAndSoftcap) {
  for (double scale : {0.0, 0.01, -0.5}) {
    for (double softcap : {0.0, 1.5, 30.0}) {
      check<TypeParam>({.shape = {1, 2, 1, 19, 75, 24, 20},
                        .options = {.softmax_scale = scale, .softcap = softcap}});
    }
  }
  // Scores of some hundreds: nearly one-hot rows.
  check<TypeParam>(
      {.shape = {1, 2, 1, 9, 75, 24, 24}, .options = {.softmax_scale = 4}, .largest = 8});
}

TYPED_TEST(AttentionBackward, Layouts) {
  for (Layout layout : all_layouts) {
    check<TypeParam>({.shape = {2, 4, 2, 19, 37, 20, 12},
                      .call = BackwardCall::terms,
                      .layout = layout,
                      .bias = true});
    check<TypeParam>({.shape = {1, 3, 3, 21, 35, 17, 9},
                      .options = {.causal = true},
                      .call = BackwardCall::joined,
                      .layout = layout,
                      .lengths_q = {21, 20, 7},
                      .lengths_kv = {35, 10, 16}});
    // Rows of whole 16 bytes, which kernels on tensor cores take.
    check<TypeParam>({.shape = {1, 3, 3, 70, 150, 24, 16},
                      .options = {.causal = true, .window_left = 90},
                      .call = BackwardCall::joined,
                      .layout = layout,
                      .lengths_q = {70, 50, 7},
                      .lengths_kv = {150, 140, 16}});
  }
}

TYPED_TEST(AttentionBackward, EmptyExtents) {
  for (auto const& shape : empty_attention_shapes) {
    for (auto call : {BackwardCall::plain, BackwardCall::terms}) {
      for (unsigned broadcast : {0u, 15u}) {
        check<TypeParam>({.shape = shape,
                          .options = {.causal = true},
                          .call = call,
                          .bias_broadcast = broadcast,
                          .mask_broadcast = broadcast});
      }
    }
  }
  check<TypeParam>({.shape = {1, 2, 1, 5, 7, 0, 3}});
  check<TypeParam>({.shape = {2, 0, 2, 5, 7, 4, 3}});
}

TYPED_TEST(AttentionBackward, LengthsCutPoisonedPadding) {
  for (bool causal : {false, true}) {
    for (auto alignment : both_alignments) {
      check<TypeParam>({.shape = {8, 2, 1, 35, 70, 16, 24},
                        .options = {.causal = causal, .causal_alignment = alignment},
                        .call = BackwardCall::terms,
                        .bias = true,
                        .lengths_q = {0, 1, 35, 17, 35, 31, 20, 0},
                        .lengths_kv = {70, 1, 70, 33, 0, 16, 65, 0}});
    }
  }
}

TYPED_TEST(AttentionBackward, BiasBroadcasts) {
  for (unsigned broadcast = 0; broadcast < 16; ++broadcast) {
    check<TypeParam>({.shape = {2, 4, 2, 21, 33, 8, 6},
                      .call = BackwardCall::terms,
                      .bias = true,
                      .bias_broadcast = broadcast,
                      .lengths_q = {21, 9},
                      .lengths_kv = {20, 33}});
  }
  for (unsigned broadcast : {3u, 7u, 11u, 15u}) {  // over tiles of rows, of columns, of both
    check<TypeParam>({.shape = {1, 2, 1, 203, 270, 8, 6},
                      .options = {.causal = true, .window_left = 150},
                      .call = BackwardCall::terms,
                      .bias = true,
                      .bias_broadcast = broadcast});
  }
}

TYPED_TEST(AttentionBackward, TermsSinglyAndTogether) {
  for (unsigned terms = 1; terms < 16; ++terms) {
    check<TypeParam>({.shape = {2, 4, 2, 25, 41, 8, 6},
                      .options = {.causal = terms == 15, .softcap = terms == 15 ? 2.0 : 0.0},
                      .call = BackwardCall::terms,
                      .bias = (terms & 1) != 0,
                      .mask = (terms & 2) != 0,
                      .alibi = (terms & 4) != 0,
                      .sinks = (terms & 8) != 0,
                      .bias_broadcast = 1,
                      .mask_broadcast = terms == 15 ? 2u : 0u});
  }
}

TYPED_TEST(AttentionBackward, Functors) {
  for (int which = 1; which < 4; ++which) {
    for (bool all : {false, true}) {
      check<TypeParam>({.shape = {2, 4, 2, 25, 41, 8, 6},
                        .options = {.window_left = all ? 30 : -1, .softcap = all ? 3.0 : 0.0},
                        .call = BackwardCall::functors,
                        .bias = all,
                        .mask = all,
                        .alibi = all,
                        .sinks = all,
                        .score = (which & 1) != 0,
                        .weight = (which & 2) != 0,
                        .lengths_q = {25, 13},
                        .lengths_kv = {41, 30}});
    }
  }
}

TYPED_TEST(AttentionBackward, PackedSequences) {
  // Gaps before, after; empty sequences of queries, of keys, of both; more than a tile.
  BackwardCase p{.shape = {6, 4, 2, 250, 300, 8, 6},
                 .call = BackwardCall::packed,
                 .bias_broadcast = 3,
                 .mask_broadcast = 3,
                 .cu_q = {3, 20, 20, 150, 150, 151, 247},
                 .cu_kv = {2, 9, 30, 30, 30, 180, 290}};
  for (auto alignment : both_alignments) {
    for (bool causal : {false, true}) {
      p.options = {.causal = causal, .causal_alignment = alignment};
      p.bias = p.mask = p.alibi = p.sinks = p.score = p.weight = false;
      check<TypeParam>(p);
      p.bias = p.mask = p.alibi = p.sinks = true;
      check<TypeParam>(p);
    }
  }
  p.score = p.weight = true;
  p.options.window_right = 9;
  p.layout = Layout::strided;
  check<TypeParam>(p);
}

// Keys that no query may see, and queries that may see no key, may hold anything. Kernels on tensor
// cores, which multiply what is hidden by 0, do not say so of NaN and infinity.
TYPED_TEST(AttentionBackward, NanBehindTheMaskReachesNothing) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  BackwardOperands<Exec, T> o({.shape = {1, 2, 1, 31, 150, 8, 6},
                               .options = {.kernel = "portable"},
                               .call = BackwardCall::terms,
                               .mask = true,
                               .mask_broadcast = 3});
  Random random(7);
  o.fill(random);
  for (std::int64_t j : {0, 64, 149}) {
    for (std::int64_t i = 0; i < 31; ++i) o.mask(0, 0, i, j) = 0;
    for (std::int64_t c = 0; c < 8; ++c) o.k(0, 0, j, c) = poison<T>();
    for (std::int64_t c = 0; c < 6; ++c) o.v(0, 0, j, c) = poison<T>();
  }
  for (std::int64_t i : {0, 13, 30}) {
    for (std::int64_t j = 0; j < 150; ++j) o.mask(0, 0, i, j) = 0;
    for (std::int64_t c = 0; c < 8; ++c) o.q(0, 1, i, c) = poison<T>();
    for (std::int64_t c = 0; c < 6; ++c) o.dout(0, 1, i, c) = poison<T>();
  }
  o.upload();
  o.forward();
  call_attention_backward(Exec(), o);
  o.download();
  compare_attention_backward(o, Exec::name());
}

// A key whose score is −∞ has no weight and no gradient, infinite as it is; a row of such keys has
// none either. The same by way of the bias. Infinite keys are as above.
TYPED_TEST(AttentionBackward, ScoresOfMinusInfinity) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  double const infinity = std::numeric_limits<double>::infinity();
  BackwardOperands<Exec, T> o({.shape = {1, 1, 1, 5, 71, 4, 6},
                               .options = {.kernel = "portable"},
                               .call = BackwardCall::terms,
                               .bias = true,
                               .sinks = true});
  Random random(5);
  o.fill(random);
  o.q.fill_uniform(random, 0.5, 1);
  for (std::int64_t j = 0; j < 66; ++j) o.k.set(-infinity, 0, 0, j, 2);
  for (std::int64_t j = 0; j < 71; ++j) o.bias.set(-infinity, 0, 0, 3, j);
  for (std::int64_t i = 0; i < 5; ++i) o.bias.set(-infinity, 0, 0, i, 69);
  for (std::int64_t c = 0; c < 6; ++c) o.v(0, 0, 69, c) = poison<T>();
  o.upload();
  o.forward();
  EXPECT_EQ(o.lse.value(0, 0, 3), -infinity);
  call_attention_backward(Exec(), o);
  o.download();
  compare_attention_backward(o, Exec::name());
}

}  // namespace
}  // namespace attikos::test
