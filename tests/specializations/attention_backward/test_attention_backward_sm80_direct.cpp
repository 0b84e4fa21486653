// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention_backward/sm80_mma_* called directly over memory of cudaMalloc. The suite fails without
// a card of compute capability 8.0 or more.
#include "attention_backward_cases.hpp"
#include "repeated_gradient_cases.hpp"

namespace {

using F16 = abi::AttentionBackwardSm80MmaF16;
using Bf16 = abi::AttentionBackwardSm80MmaBf16;

/// What blocks may have on sm_86 and sm_89, and on sm_80: above a head_dim of 64 tiles follow it.
constexpr int least_shared = 99 * 1024, sm80_shared = 163 * 1024;

TEST(AttentionBackwardSm80Runs, HeadDim64) { each_length<Bf16>(64, 64); }
TEST(AttentionBackwardSm80Runs, HeadDim128) { each_length<Bf16>(128, 128); }
TEST(AttentionBackwardSm80Runs, HeadDim256) { each_length<Bf16>(256, 256); }
TEST(AttentionBackwardSm80Runs, HeadDim64Float16) { each_length<F16>(64, 64); }
TEST(AttentionBackwardSm80Runs, HeadDim128Float16) { each_length<F16>(128, 128); }
TEST(AttentionBackwardSm80Runs, HeadDim256Float16) { each_length<F16>(256, 256); }

TEST(AttentionBackwardSm80Runs, LittleSharedMemory) {
  for (std::int64_t d : {64, 128, 256}) {
    each_length<Bf16>(d, d, {.shared_bytes = least_shared});
    STOP_AT_FAILURE;
    each_length<F16>(d, d, {.mask = 1, .shared_bytes = least_shared});
    STOP_AT_FAILURE;
  }
}
TEST(AttentionBackwardSm80Runs, SharedMemoryOfSm80) {
  for (std::int64_t d : {128, 256}) {
    each_length<F16>(d, d, {.shared_bytes = sm80_shared});
    STOP_AT_FAILURE;
    each_length<Bf16>(d, d, {.mask = 1, .shared_bytes = sm80_shared});
    STOP_AT_FAILURE;
  }
}

template <class Kernel>
void other_head_dims(Beside const& more = {}) {
  head_dims<Kernel>(
      {{1, 1},   {1, 3},     {8, 8},     {20, 12},   {24, 24},  {40, 24},   {63, 64},  {65, 65},
       {72, 72}, {96, 96},   {100, 99},  {127, 127}, {64, 128}, {128, 64},  {16, 120}, {120, 8},
       {129, 1}, {136, 136}, {192, 192}, {192, 128}, {64, 256}, {200, 199}, {255, 255}},
      more);
}
TEST(AttentionBackwardSm80Runs, OtherHeadDims) { other_head_dims<Bf16>(); }
TEST(AttentionBackwardSm80Runs, OtherHeadDimsFloat16) { other_head_dims<F16>(); }
TEST(AttentionBackwardSm80Runs, OtherHeadDimsOfMasks) { other_head_dims<Bf16>({.mask = 2}); }
TEST(AttentionBackwardSm80Runs, OtherHeadDimsInLittleSharedMemory) {
  other_head_dims<F16>({.shared_bytes = least_shared});
}

TEST(AttentionBackwardSm80Runs, AnyStrides) {
  for (std::int64_t d : {1, 40, 64, 100, 128, 200, 256}) {
    any_strides<Bf16>(d);
    STOP_AT_FAILURE;
    any_strides<F16>(d, {.shared_bytes = least_shared});
    STOP_AT_FAILURE;
  }
}

TEST(AttentionBackwardSm80Runs, Options) { gradient_options<Bf16>(64); }
TEST(AttentionBackwardSm80Runs, OptionsOf128) { gradient_options<F16>(128); }
TEST(AttentionBackwardSm80Runs, OptionsOf256) { gradient_options<Bf16>(256); }
TEST(AttentionBackwardSm80Runs, OptionsInLittleSharedMemory) {
  gradient_options<F16>(128, {.shared_bytes = least_shared});
}

TEST(AttentionBackwardSm80Runs, TermsAndScales) { own_options<Bf16>(64); }
TEST(AttentionBackwardSm80Runs, TermsAndScalesOf128) { own_options<F16>(128); }
TEST(AttentionBackwardSm80Runs, TermsAndScalesOf256) { own_options<Bf16>(256); }
TEST(AttentionBackwardSm80Runs, TermsAndScalesInLittleSharedMemory) {
  own_options<F16>(80, least_shared);
}

TEST(AttentionBackwardSm80Runs, GradientsOfBiases) {
  for (std::int64_t d : {40, 128, 256}) {
    gradients_of_biases<Bf16>(d);
    STOP_AT_FAILURE;
    gradients_of_biases<F16>(d, 3);
    STOP_AT_FAILURE;
  }
}

TEST(AttentionBackwardSm80Runs, SinksOfEveryType) { sinks_of_every_type<Bf16>(); }

TEST(AttentionBackwardSm80Runs, HeadsThatShareKeys) {
  for (std::int64_t d : {64, 128, 256}) {
    heads_that_share_keys<Bf16>(d);
    STOP_AT_FAILURE;
  }
}

TEST(AttentionBackwardSm80Runs, LengthsCutPoisonedPadding) {
  for (std::int64_t d : {40, 64, 128, 256}) {
    ragged_gradients<Bf16>(d);
    STOP_AT_FAILURE;
    ragged_gradients<F16>(d, {.mask = 2, .d_bias = DType::float32});
    STOP_AT_FAILURE;
  }
}

TEST(AttentionBackwardSm80Runs, PackedSequences) {
  for (std::int64_t d : {40, 64, 128, 256}) {
    packed_sequences<F16, Bf16>(d);
    STOP_AT_FAILURE;
  }
}
TEST(AttentionBackwardSm80Runs, PackedSequencesWithTerms) {
  for (std::int64_t d : {64, 128, 200}) {
    packed_sequences_with_terms<F16, Bf16>(d);
    STOP_AT_FAILURE;
  }
}
TEST(AttentionBackwardSm80Runs, ManyPackedSequences) { many_packed_sequences<Bf16>(); }
TEST(AttentionBackwardSm80Runs, BoundariesThatGoBack) { boundaries_that_go_back<Bf16>(); }

TEST(AttentionBackwardSm80Runs, Unordered) {
  for (std::int64_t d : {64, 128, 256}) {
    unordered<F16, Bf16>(d);
    STOP_AT_FAILURE;
  }
}

TEST(AttentionBackwardSm80Runs, RandomCases) {
  Draws below(20251125);
  for (int round = 0; round < 150; ++round) {
    Beside more;
    Case const t = random_with_terms(below, 256, more);
    more.ordered = round % 4 != 0;
    if (below(2) == 0) more.shared_bytes = below(2) == 0 ? least_shared : sm80_shared;
    if (round % 2 == 0)
      run_backward<Bf16>(t, more);
    else
      run_backward<F16>(t, more);
    STOP_AT_FAILURE;
  }
}

TEST(AttentionBackwardSm80Runs, SameBitsEveryTime) {
  for (std::int64_t d : {64, 128, 256})
    for (bool causal : {false, true}) {
      SCOPED_TRACE(d);
      repeat<Bf16>(d, causal);
      STOP_AT_FAILURE;
      repeat<F16>(d, causal);
      STOP_AT_FAILURE;
    }
}

TEST(AttentionBackwardSm80Runs, Replays) {
  for (std::int64_t d : {64, 128, 256}) {
    replay_gradients<Bf16>(d);
    STOP_AT_FAILURE;
  }
}

}  // namespace
