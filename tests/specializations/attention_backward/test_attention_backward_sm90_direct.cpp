// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention_backward/sm90_wgmma_* called directly over memory of cudaMalloc. The suite fails
// without a Hopper card.
#include "attention_backward_cases.hpp"
#include "repeated_gradient_cases.hpp"

namespace {

using F16 = abi::AttentionBackwardSm90WgmmaF16;
using Bf16 = abi::AttentionBackwardSm90WgmmaBf16;

TEST(AttentionBackwardSm90Runs, HeadDim32) { each_length<Bf16>(32, 32); }
TEST(AttentionBackwardSm90Runs, HeadDim64) { each_length<Bf16>(64, 64); }
TEST(AttentionBackwardSm90Runs, HeadDim96) { each_length<Bf16>(96, 96); }
TEST(AttentionBackwardSm90Runs, HeadDim128) { each_length<Bf16>(128, 128); }
TEST(AttentionBackwardSm90Runs, HeadDim192) { each_length<Bf16>(192, 192); }
TEST(AttentionBackwardSm90Runs, HeadDim192And128) { each_length<Bf16>(192, 128); }
TEST(AttentionBackwardSm90Runs, HeadDim256) { each_length<Bf16>(256, 256); }
TEST(AttentionBackwardSm90Runs, HeadDim32Float16) { each_length<F16>(32, 32); }
TEST(AttentionBackwardSm90Runs, HeadDim64Float16) { each_length<F16>(64, 64); }
TEST(AttentionBackwardSm90Runs, HeadDim96Float16) { each_length<F16>(96, 96); }
TEST(AttentionBackwardSm90Runs, HeadDim128Float16) { each_length<F16>(128, 128); }
TEST(AttentionBackwardSm90Runs, HeadDim192Float16) { each_length<F16>(192, 192); }
TEST(AttentionBackwardSm90Runs, HeadDim192And128Float16) { each_length<F16>(192, 128); }
TEST(AttentionBackwardSm90Runs, HeadDim256Float16) { each_length<F16>(256, 256); }

template <class Kernel>
void other_head_dims() {
  head_dims<Kernel>({{1, 1},     {8, 8},    {24, 24},   {31, 32},   {40, 40},   {65, 65},
                     {72, 72},   {80, 80},  {95, 96},   {96, 32},   {97, 90},   {104, 104},
                     {127, 127}, {40, 24},  {32, 96},   {128, 64},  {64, 128},  {100, 99},
                     {1, 3},     {20, 12},  {16, 120},  {120, 8},   {129, 129}, {136, 136},
                     {160, 160}, {191, 64}, {200, 200}, {255, 254}, {64, 192},  {128, 256},
                     {129, 8},   {256, 1},  {136, 128}, {193, 100}});
}
TEST(AttentionBackwardSm90Runs, OtherHeadDims) { other_head_dims<Bf16>(); }
TEST(AttentionBackwardSm90Runs, OtherHeadDimsFloat16) { other_head_dims<F16>(); }

using HeadDims = std::initializer_list<std::int64_t>;

// Softcap and ALiBi have shapes of tiles of their own.
void terms(HeadDims dims) {
  for (std::int64_t d : dims)
    for (int which = 0; which < 3; ++which)
      for (Order order_out : {Order::heads_first, Order::padded, Order::odd}) {
        Case const t{.batch = 2,
                     .heads = 4,
                     .heads_kv = 2,
                     .len_q = 150,
                     .len_kv = 270,
                     .d = d,
                     .dv = d,
                     .causal = which == 1,
                     .softcap = which == 0 ? 0 : 3.0,
                     .alibi = which != 1,
                     .order_out = order_out};
        run_backward<Bf16>(t);
        STOP_AT_FAILURE;
        run_backward<F16>(t);
        STOP_AT_FAILURE;
      }
}
TEST(AttentionBackwardSm90Runs, TermsOfHeadDimsTo80) { terms({1, 32, 33, 64, 80}); }
TEST(AttentionBackwardSm90Runs, TermsOfHeadDimsTo128) { terms({96, 100, 128}); }
TEST(AttentionBackwardSm90Runs, TermsOfHeadDimsTo192) { terms({136, 192}); }
TEST(AttentionBackwardSm90Runs, TermsOfHeadDim256) { terms({256}); }

// Everything but q, k, v and dout in any order, at any address.
TEST(AttentionBackwardSm90Runs, OutputsOfAnyStrides) {
  for (std::int64_t d : {32, 40, 64, 96, 100, 128, 136, 192, 250, 256}) {
    any_strides<Bf16>(d, {}, {Order::heads_first, Order::positions_first, Order::padded});
    STOP_AT_FAILURE;
  }
}

TEST(AttentionBackwardSm90Runs, Options) { gradient_options<Bf16>(64); }
TEST(AttentionBackwardSm90Runs, OptionsOf96) { gradient_options<F16>(96); }
TEST(AttentionBackwardSm90Runs, OptionsOf128) { gradient_options<F16>(128); }
TEST(AttentionBackwardSm90Runs, OptionsOf192) { gradient_options<Bf16>(192); }
TEST(AttentionBackwardSm90Runs, OptionsOf256) { gradient_options<F16>(256); }
TEST(AttentionBackwardSm90Runs, OptionsOf32) { gradient_options<Bf16>(32); }

TEST(AttentionBackwardSm90Runs, SinksOfEveryType) { sinks_of_every_type<Bf16>(); }

TEST(AttentionBackwardSm90Runs, HeadsThatShareKeys) {
  for (std::int64_t d : {32, 64, 96, 128, 192, 256}) {
    heads_that_share_keys<Bf16>(d);
    STOP_AT_FAILURE;
  }
}

void ragged(HeadDims dims) {
  for (std::int64_t d : dims) {
    ragged_gradients<Bf16>(d);
    STOP_AT_FAILURE;
    ragged_gradients<F16>(d);
    STOP_AT_FAILURE;
  }
}
TEST(AttentionBackwardSm90Runs, LengthsCutPoisonedPadding) { ragged({32, 40, 64, 96, 128}); }
TEST(AttentionBackwardSm90Runs, LengthsCutPoisonedPaddingOfWideHeads) { ragged({168, 192, 256}); }

// Of tiles of keys that nothing is to do with, too, the next round has to hear.
TEST(AttentionBackwardSm90Runs, LengthsOfKeysAlone) {
  for (std::int64_t d : {64, 128, 256})
    for (bool causal : {false, true}) {
      Case const t{.batch = 3,
                   .heads = 4,
                   .heads_kv = 2,
                   .len_q = 200,
                   .len_kv = 400,
                   .d = d,
                   .dv = d,
                   .causal = causal,
                   .lengths_kv = {400, 1, 130}};
      run_backward<Bf16>(t);
      STOP_AT_FAILURE;
      run_backward<F16>(t);
      STOP_AT_FAILURE;
    }
}

void packed(HeadDims dims) {
  for (std::int64_t d : dims) {
    packed_sequences<F16, Bf16>(d);
    STOP_AT_FAILURE;
  }
}
TEST(AttentionBackwardSm90Runs, PackedSequences) { packed({32, 40, 64, 96}); }
TEST(AttentionBackwardSm90Runs, PackedSequencesOf128) { packed({128}); }
TEST(AttentionBackwardSm90Runs, PackedSequencesOf168) { packed({168}); }
TEST(AttentionBackwardSm90Runs, PackedSequencesOf192) { packed({192}); }
TEST(AttentionBackwardSm90Runs, PackedSequencesOf256) { packed({256}); }
TEST(AttentionBackwardSm90Runs, ManyPackedSequences) { many_packed_sequences<Bf16>(); }
TEST(AttentionBackwardSm90Runs, BoundariesThatGoBack) { boundaries_that_go_back<Bf16>(); }

TEST(AttentionBackwardSm90Runs, Unordered) {
  for (std::int64_t d : {32, 64, 96, 128, 192, 256}) {
    unordered<F16, Bf16>(d);
    STOP_AT_FAILURE;
  }
}

void random_cases(std::uint32_t seed, int most) {
  Draws below(seed);
  for (int round = 0; round < 100; ++round) {
    Case const t = random_gradients(below, most);
    if (round % 2 == 0)
      run_backward<Bf16>(t, {.ordered = round % 4 != 0});
    else
      run_backward<F16>(t, {.ordered = round % 8 != 1});
    STOP_AT_FAILURE;
  }
}
TEST(AttentionBackwardSm90Runs, RandomCases) { random_cases(20251125, 128); }
TEST(AttentionBackwardSm90Runs, RandomCasesOfWideHeads) { random_cases(20251126, 256); }

template <class Kernel>
void same_bits(HeadDims dims) {
  for (std::int64_t d : dims)
    for (bool causal : {false, true}) {
      SCOPED_TRACE(d);
      repeat<Kernel>(d, causal);
      STOP_AT_FAILURE;
    }
}
TEST(AttentionBackwardSm90Runs, SameBitsEveryTime) { same_bits<Bf16>({32, 64, 96}); }
TEST(AttentionBackwardSm90Runs, SameBitsEveryTimeOf128) { same_bits<Bf16>({128}); }
TEST(AttentionBackwardSm90Runs, SameBitsEveryTimeOf192) { same_bits<Bf16>({192}); }
TEST(AttentionBackwardSm90Runs, SameBitsEveryTimeOf256) { same_bits<Bf16>({256}); }
TEST(AttentionBackwardSm90Runs, SameBitsEveryTimeFloat16) { same_bits<F16>({32, 64, 96}); }
TEST(AttentionBackwardSm90Runs, SameBitsEveryTimeOf128Float16) { same_bits<F16>({128}); }
TEST(AttentionBackwardSm90Runs, SameBitsEveryTimeOf192Float16) { same_bits<F16>({192}); }
TEST(AttentionBackwardSm90Runs, SameBitsEveryTimeOf256Float16) { same_bits<F16>({256}); }

TEST(AttentionBackwardSm90Runs, Replays) {
  for (std::int64_t d : {32, 64, 96, 128, 192, 256}) {
    replay_gradients<Bf16>(d);
    STOP_AT_FAILURE;
  }
}

}  // namespace
