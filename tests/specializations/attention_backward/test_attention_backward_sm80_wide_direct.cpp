// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention_backward/sm80_mma_f64, sm80_mma_tf32x3 and sm80_simt_f32 called directly over memory of
// cudaMalloc. The suite fails without a card of compute capability 8.0 or more, and on cards whose
// blocks have less shared memory than those of sm_90.
#include "attention_backward_cases.hpp"
#include "repeated_gradient_cases.hpp"

namespace {

template <class Kernel>
struct AttentionBackwardWideRuns : testing::Test {
  /// Head dimensions of every shape of kernel.
  static std::vector<std::int64_t> head_dims() {
    if (std::is_same_v<Kernel, abi::AttentionBackwardSm80SimtF32>) return {64, 128, 256};
    return {64, 128};
  }
  static constexpr std::int64_t most =
      std::is_same_v<Kernel, abi::AttentionBackwardSm80SimtF32> ? 256 : 128;
  /// Calls `f` with each head_dim and what blocks may have: as much as they like, and so little
  /// that the kernel has smaller tiles.
  template <class F>
  static void each_shape(F const& f) {
    for (std::int64_t d : head_dims()) {
      f(d, Beside{});
      STOP_AT_FAILURE;
    }
    bool const simt = std::is_same_v<Kernel, abi::AttentionBackwardSm80SimtF32>;
    if (!simt) f(64, Beside{.shared_bytes = 99 * 1024});
    STOP_AT_FAILURE;
    if (!std::is_same_v<Kernel, abi::AttentionBackwardSm80MmaTf32x3>)
      f(128, Beside{.shared_bytes = (simt ? 99 : 163) * 1024});
  }
};
using Kernels =
    testing::Types<abi::AttentionBackwardSm80MmaF64, abi::AttentionBackwardSm80MmaTf32x3,
                   abi::AttentionBackwardSm80SimtF32>;
TYPED_TEST_SUITE(AttentionBackwardWideRuns, Kernels);

TYPED_TEST(AttentionBackwardWideRuns, Lengths) {
  this->each_shape([](std::int64_t d, Beside const& more) { each_length<TypeParam>(d, d, more); });
}

TYPED_TEST(AttentionBackwardWideRuns, OtherHeadDims) {
  head_dims<TypeParam>({{1, 1},
                        {1, 3},
                        {8, 8},
                        {20, 12},
                        {40, 24},
                        {63, 64},
                        {65, 65},
                        {96, 96},
                        {100, 99},
                        {127, 127},
                        {64, 128},
                        {128, 64},
                        {16, 120}});
  STOP_AT_FAILURE;
  if (this->most > 128)
    head_dims<TypeParam>({{129, 1}, {136, 136}, {192, 128}, {64, 256}, {200, 199}, {255, 255}});
  head_dims<TypeParam>({{40, 24}, {72, 100}}, {.mask = 2});
}

TYPED_TEST(AttentionBackwardWideRuns, AnyStrides) {
  for (std::int64_t d : {1, 40, 64, 99, 128}) {
    any_strides<TypeParam>(d);
    STOP_AT_FAILURE;
  }
  if (this->most > 128) any_strides<TypeParam>(200);
}

TYPED_TEST(AttentionBackwardWideRuns, Options) {
  for (std::int64_t d : this->head_dims()) {
    gradient_options<TypeParam>(d);
    STOP_AT_FAILURE;
  }
}

TYPED_TEST(AttentionBackwardWideRuns, TermsAndScales) {
  this->each_shape(
      [](std::int64_t d, Beside const& more) { own_options<TypeParam>(d, more.shared_bytes); });
}

TYPED_TEST(AttentionBackwardWideRuns, GradientsOfBiases) {
  for (std::int64_t d : this->head_dims()) {
    gradients_of_biases<TypeParam>(d, d == 64 ? 0 : 3);
    STOP_AT_FAILURE;
  }
}

TYPED_TEST(AttentionBackwardWideRuns, SinksOfEveryType) { sinks_of_every_type<TypeParam>(); }

TYPED_TEST(AttentionBackwardWideRuns, HeadsThatShareKeys) {
  for (std::int64_t d : this->head_dims()) {
    heads_that_share_keys<TypeParam>(d);
    STOP_AT_FAILURE;
  }
}

TYPED_TEST(AttentionBackwardWideRuns, LengthsCutPoisonedPadding) {
  this->each_shape([](std::int64_t d, Beside more) {
    ragged_gradients<TypeParam>(d, more);
    STOP_AT_FAILURE;
    more.mask = 2, more.d_bias = DType::float32;
    ragged_gradients<TypeParam>(d, more);
  });
}

TYPED_TEST(AttentionBackwardWideRuns, PackedSequences) {
  for (std::int64_t d : this->head_dims()) {
    packed_sequences<TypeParam, TypeParam>(d);
    STOP_AT_FAILURE;
    packed_sequences_with_terms<TypeParam, TypeParam>(d);
    STOP_AT_FAILURE;
  }
}
TYPED_TEST(AttentionBackwardWideRuns, ManyPackedSequences) { many_packed_sequences<TypeParam>(); }
TYPED_TEST(AttentionBackwardWideRuns, BoundariesThatGoBack) {
  boundaries_that_go_back<TypeParam>();
}

TYPED_TEST(AttentionBackwardWideRuns, Unordered) {
  for (std::int64_t d : this->head_dims()) {
    unordered<TypeParam, TypeParam>(d);
    STOP_AT_FAILURE;
  }
}

TYPED_TEST(AttentionBackwardWideRuns, RandomCases) {
  Draws below(20251125);
  for (int round = 0; round < 80; ++round) {
    Beside more;
    Case const t = random_with_terms(below, this->most, more);
    more.ordered = round % 4 != 0;
    run_backward<TypeParam>(t, more);
    STOP_AT_FAILURE;
  }
}

TYPED_TEST(AttentionBackwardWideRuns, SameBitsEveryTime) {
  for (std::int64_t d : this->head_dims()) {
    SCOPED_TRACE(d);
    repeat<TypeParam>(d, d == 64);
    STOP_AT_FAILURE;
  }
}

TYPED_TEST(AttentionBackwardWideRuns, Replays) {
  for (std::int64_t d : this->head_dims()) {
    replay_gradients<TypeParam>(d);
    STOP_AT_FAILURE;
  }
}

}  // namespace
