// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention against the float64 oracle: execution spaces x element types; algorithms, layouts,
// masks and lengths at run time.
#include "attention_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class Attention : public testing::Test {};
TYPED_TEST_SUITE(Attention, FloatingCases, CaseName);

template <class C>
void check(AttentionCase const& p) {
  check_attention<typename C::Exec, typename C::T>(p);
}

TYPED_TEST(Attention, Shapes) {
  for (auto algorithm : all_algorithms) {
    for (auto const& shape : attention_shapes)
      check<TypeParam>({.shape = shape, .options = {.algorithm = algorithm}});
  }
}

TYPED_TEST(Attention, WideHeads) {
  for (auto algorithm : all_algorithms) {
    check<TypeParam>({.shape = {1, 2, 1, 70, 131, 192, 128}, .options = {.algorithm = algorithm}});
    check<TypeParam>({.shape = {1, 2, 1, 70, 131, 256, 256},
                      .options = {.causal = true, .algorithm = algorithm}});
    check<TypeParam>({.shape = {1, 1, 1, 67, 70, 20, 264}, .options = {.algorithm = algorithm}});
  }
}

TYPED_TEST(Attention, CausalBothAlignments) {
  for (auto algorithm : all_algorithms) {
    for (auto alignment : {CausalAlignment::bottom_right, CausalAlignment::top_left}) {
      for (auto const& shape : attention_shapes) {
        check<TypeParam>(
            {.shape = shape,
             .options = {.causal = true, .causal_alignment = alignment, .algorithm = algorithm}});
      }
    }
  }
}

TYPED_TEST(Attention, Layouts) {
  for (auto algorithm : all_algorithms) {
    for (Layout layout : all_layouts) {
      check<TypeParam>({.shape = {2, 4, 2, 19, 37, 20, 12},
                        .options = {.algorithm = algorithm},
                        .layout = layout});
      check<TypeParam>({.shape = {1, 3, 3, 21, 35, 17, 9},
                        .options = {.causal = true, .algorithm = algorithm},
                        .layout = layout,
                        .joined = true});
    }
  }
}

TYPED_TEST(Attention, WithoutLse) {
  for (auto algorithm : all_algorithms) {
    check<TypeParam>(
        {.shape = {2, 2, 1, 19, 37, 20, 12}, .options = {.algorithm = algorithm}, .lse = false});
    check<TypeParam>({.shape = {1, 2, 2, 19, 37, 20, 12},
                      .options = {.algorithm = algorithm},
                      .joined = true,
                      .lse = false});
  }
}

TYPED_TEST(Attention, EmptyExtents) {
  for (auto algorithm : all_algorithms) {
    for (auto const& shape : empty_attention_shapes) {
      for (bool causal : {false, true}) {
        check<TypeParam>({.shape = shape, .options = {.causal = causal, .algorithm = algorithm}});
      }
    }
  }
}

TYPED_TEST(Attention, LengthsCutPoisonedPadding) {
  for (auto algorithm : all_algorithms) {
    for (bool causal : {false, true}) {
      for (auto alignment : {CausalAlignment::bottom_right, CausalAlignment::top_left}) {
        AttentionOptions const options{
            .causal = causal, .causal_alignment = alignment, .algorithm = algorithm};
        // Nothing, one, all, and lengths on either side of 16, 32, 64; len_q > len_kv masks whole
        // rows.
        check<TypeParam>({.shape = {8, 2, 1, 35, 70, 16, 24},
                          .options = options,
                          .lengths_q = {0, 1, 35, 17, 35, 31, 20, 0},
                          .lengths_kv = {70, 1, 70, 33, 0, 16, 65, 0}});
        check<TypeParam>({.shape = {1, 4, 4, 35, 70, 16, 24},
                          .options = options,
                          .layout = Layout::padded,
                          .joined = true,
                          .lengths_q = {0, 1, 35, 17},
                          .lengths_kv = {70, 0, 64, 15}});
      }
    }
    check<TypeParam>({.shape = {3, 2, 1, 9, 130, 8, 8},
                      .options = {.algorithm = algorithm},
                      .lse = false,
                      .lengths_q = {9, 3, 0},
                      .lengths_kv = {129, 128, 127}});
  }
}

TYPED_TEST(Attention, ScalesAndSharpSoftmax) {
  for (auto algorithm : all_algorithms) {
    for (double scale : {0.01, 1.0, -0.5}) {
      check<TypeParam>({.shape = {1, 2, 1, 9, 75, 24, 24},
                        .options = {.softmax_scale = scale, .algorithm = algorithm}});
    }
    // Scores of some hundreds: nearly one-hot rows, and exp would overflow without the maximum.
    check<TypeParam>({.shape = {1, 2, 1, 9, 75, 24, 24},
                      .options = {.softmax_scale = 4, .algorithm = algorithm},
                      .largest = 8});
  }
}

// A key whose score is -inf has no weight; a row of such keys has nothing to attend to.
TYPED_TEST(Attention, ScoresOfMinusInfinity) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (auto algorithm : all_algorithms) {
    AttentionCase const p{.shape = {1, 1, 1, 5, 71, 4, 6}, .options = {.algorithm = algorithm}};
    AttentionOperands<Exec, T> o(p);
    Random random(5);
    o.q.fill_uniform(random, 0.5, 1);
    o.k.fill_uniform(random);
    o.v.fill_uniform(random);
    double const infinity = std::numeric_limits<double>::infinity();
    // A first block that is -inf throughout, then single keys.
    for (std::int64_t j = 0; j < 70; ++j) {
      if (j < 65 || j == 68) o.k.set(-infinity, 0, 0, j, 2);
    }
    o.k.upload();
    call_attention(Exec(), p, o);
    o.download();
    compare_attention(p, o);

    for (std::int64_t j = 0; j < 71; ++j) o.k.set(-infinity, 0, 0, j, 2);
    o.k.upload();
    call_attention(Exec(), p, o);
    o.download();
    compare_attention(p, o);
    EXPECT_EQ(o.out.value(0, 0, 4, 5), 0);
    EXPECT_EQ(o.lse.value(0, 0, 4), -infinity);
  }
}

TYPED_TEST(Attention, NanReachesItsRowsOnly) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (auto algorithm : all_algorithms) {
    AttentionCase const p{.shape = {1, 2, 2, 21, 40, 8, 8},
                          .options = {.causal = true, .algorithm = algorithm}};
    AttentionOperands<Exec, T> o(p);
    Random random(5);
    o.fill(p, random);
    o.q.at({0, 0, 3, 1}) = poison<T>();
    o.k.at({0, 1, 35, 0}) = poison<T>();  // visible from i + 19 >= 35
    o.q.upload();
    o.k.upload();
    call_attention(Exec(), p, o);
    o.download();
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t i = 0; i < 21; ++i) {
        bool const poisoned = h == 0 ? i == 3 : i >= 16;
        for (std::int64_t c = 0; c < 8; ++c) {
          EXPECT_EQ(std::isnan(o.out.value(0, h, i, c)), poisoned) << h << ", " << i << ", " << c;
        }
        EXPECT_EQ(std::isnan(o.lse.value(0, h, i)), poisoned) << h << ", " << i;
      }
    }
  }
}

}  // namespace
}  // namespace attikos::test
