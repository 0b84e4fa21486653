// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention_backward/sm80_mma_* called directly over memory of cudaMalloc. The suite fails without
// a card of compute capability 8.0 or more.
#include "attention_backward_cases.hpp"

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

// Every tensor in any order, at any address, with any stride along its features.
TEST(AttentionBackwardSm80Runs, AnyStrides) {
  for (std::int64_t d : {1, 40, 64, 100, 128, 200, 256})
    for (Order order : {Order::heads_first, Order::positions_first, Order::padded, Order::odd})
      for (Order order_out :
           {Order::heads_first, Order::positions_first, Order::padded, Order::odd}) {
        Case const t{.batch = 2,
                     .heads = 4,
                     .heads_kv = 2,
                     .len_q = 70,
                     .len_kv = 150,
                     .d = d,
                     .dv = d,
                     .causal = true,
                     .sinks = true,
                     .order = order,
                     .order_out = order_out};
        run_backward<Bf16>(t);
        STOP_AT_FAILURE;
        run_backward<F16>(t, {.shared_bytes = least_shared});
        STOP_AT_FAILURE;
      }
}

TEST(AttentionBackwardSm80Runs, Options) { gradient_options<Bf16>(64); }
TEST(AttentionBackwardSm80Runs, OptionsOf128) { gradient_options<F16>(128); }
TEST(AttentionBackwardSm80Runs, OptionsOf256) { gradient_options<Bf16>(256); }
TEST(AttentionBackwardSm80Runs, OptionsInLittleSharedMemory) {
  gradient_options<F16>(128, {.shared_bytes = least_shared});
}

constexpr int last_own_option = 4 + last_bias;
/// Option number `which`, to last_own_option, of those that Hopper's kernels do not take.
void set_own_option(Case& t, Beside& more, int which) {
  if (which < 3) more.mask = 1 + which;
  if (which == 3) t.scale = -0.3;
  if (which == 4) more.unscaled = true;
  if (which <= 4) return;
  t.bias = which - 4;
  BiasKind const& kind = bias_kinds[t.bias];
  if (kind.batches && kind.heads && kind.queries)
    more.d_bias = which % 2 == 0 ? DType::float32 : DType::bfloat16;
}
/// Each alone, any two of them, and each with one of the others' options.
template <class Kernel>
void own_options(std::int64_t d, int shared_bytes = 0) {
  auto const run = [&](int one, int two, int other) {
    Case t{.batch = 2, .heads = 4, .heads_kv = 2, .len_q = 100, .len_kv = 170, .d = d, .dv = d};
    Beside more{.shared_bytes = shared_bytes};
    // Two together in the smaller of sizes, to be done in time.
    if (one != two || other >= 0) t.batch = 1, t.heads = 2, t.heads_kv = 1;
    if (other >= 0) set_gradient_option(t, other);
    t.len_q = std::min<std::int64_t>(t.len_q, 190);
    set_own_option(t, more, one), set_own_option(t, more, two);
    run_backward<Kernel>(t, more);
  };
  for (int one = 0; one <= last_own_option; ++one) {
    for (int two = one; two <= last_own_option; ++two) {
      if (one > 4 && two != one) break;  // one bias is enough
      run(one, two, -1);
      STOP_AT_FAILURE;
    }
    for (int other = 0; other <= last_gradient_option; ++other) {
      run(one, one, other);
      STOP_AT_FAILURE;
    }
  }
}
TEST(AttentionBackwardSm80Runs, TermsAndScales) { own_options<Bf16>(64); }
TEST(AttentionBackwardSm80Runs, TermsAndScalesOf128) { own_options<F16>(128); }
TEST(AttentionBackwardSm80Runs, TermsAndScalesOf256) { own_options<Bf16>(256); }
TEST(AttentionBackwardSm80Runs, TermsAndScalesInLittleSharedMemory) {
  own_options<F16>(80, least_shared);
}

// The gradient of a bias lies anyhow, in every type, beside softcap, whose derivative it has not.
TEST(AttentionBackwardSm80Runs, GradientsOfBiases) {
  for (std::int64_t d : {40, 128, 256})
    for (DType type : {DType::float32, DType::float16, DType::bfloat16, DType::float64})
      for (int bias : {2, 8})
        for (Order order_out : {Order::heads_first, Order::positions_first, Order::odd}) {
          Case const t{.batch = 2,
                       .heads = 4,
                       .heads_kv = 2,
                       .len_q = 70,
                       .len_kv = 140,
                       .d = d,
                       .dv = d,
                       .causal = bias == 2,
                       .softcap = order_out == Order::odd ? 2.0 : 0.0,
                       .sinks = bias == 8,
                       .bias = bias,
                       .order_out = order_out};
          run_backward<Bf16>(t, {.d_bias = type});
          STOP_AT_FAILURE;
          run_backward<F16>(t, {.mask = 3, .d_bias = type});
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
// Queries and keys of a bias, of its gradient and of a mask count within their sequence.
TEST(AttentionBackwardSm80Runs, PackedSequencesWithTerms) {
  for (std::int64_t d : {64, 128, 200})
    for (int mask = 0; mask < 4; ++mask) {
      Case t{.heads = 4,
             .heads_kv = 2,
             .len_q = 220,
             .len_kv = 300,
             .d = d,
             .dv = d,
             .causal = mask % 2 != 0,
             .order = Order::positions_first,
             .order_out = mask == 3 ? Order::odd : Order::positions_first,
             .cu_q = {2, 30, 30, 100, 209},
             .cu_kv = {3, 50, 60, 195, 260}};
      t.bias = mask == 2 ? 8 : 2;
      run_backward<Bf16>(t, {.mask = mask, .d_bias = DType::float32});
      STOP_AT_FAILURE;
      run_backward<F16>(t, {.mask = mask, .d_bias = DType::float16});
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
    Case t = random_gradients(below, 256);
    Beside more{.ordered = round % 4 != 0, .mask = below(3) == 0 ? 1 + below(3) : 0};
    if (below(3) == 0) t.bias = 1 + below(last_bias);
    if (below(4) == 0) t.bias = 2, more.d_bias = DType::float32;
    if (below(5) == 0) t.scale = -0.2;
    if (below(3) == 0) t.order = Order::odd;
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
