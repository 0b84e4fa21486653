// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the direct tests of attention's gradients have in common.
#pragma once

#include <array>
#include <vector>

#include "attention/attention_cases.hpp"
#include "compare_gradients.hpp"

namespace {

/// Lengths around those of tiles, each in full and with either causal mask.
template <class Kernel>
void each_length(std::int64_t d, std::int64_t dv, Beside const& more = {}) {
  std::int64_t const lengths[][2] = {{1, 1},     {1, 300},   {300, 1},   {7, 13},    {63, 65},
                                     {64, 128},  {65, 129},  {127, 127}, {128, 64},  {129, 255},
                                     {113, 203}, {192, 256}, {193, 257}, {385, 144}, {192, 320}};
  for (auto const& l : lengths)
    for (int mask = 0; mask < 3; ++mask) {
      run_backward<Kernel>({.batch = 1 + l[0] % 2,
                            .heads = 2,
                            .heads_kv = 2 - l[1] % 2,
                            .len_q = l[0],
                            .len_kv = l[1],
                            .d = d,
                            .dv = dv,
                            .causal = mask != 0,
                            .top_left = mask == 2},
                           more);
      STOP_AT_FAILURE;
    }
}

/// Head dimensions of q and k and of v.
template <class Kernel>
void head_dims(std::initializer_list<std::array<std::int64_t, 2>> dims, Beside const& more = {},
               std::array<std::int64_t, 2> lengths = {130, 203}) {
  for (auto const& e : dims)
    for (bool causal : {false, true}) {
      run_backward<Kernel>({.batch = 2,
                            .heads = 2,
                            .heads_kv = 2,
                            .len_q = lengths[0],
                            .len_kv = lengths[1],
                            .d = e[0],
                            .dv = e[1],
                            .causal = causal,
                            .order = causal ? Order::padded : Order::heads_first,
                            .order_out = causal ? Order::heads_first : Order::padded},
                           more);
      STOP_AT_FAILURE;
    }
}

constexpr int last_gradient_option = 14;
/// Option number `which`, to last_gradient_option, of what all kernels of gradients take.
inline void set_gradient_option(Case& t, int which) {
  if (which == 0) t.left = 40;
  if (which == 1) t.left = 100, t.right = 30;
  if (which == 2) t.right = t.left = 0;
  if (which == 3) t.causal = true, t.left = 150;
  if (which == 4) t.sinks = t.causal = true;
  if (which == 5) t.sinks = true, t.top_left = true, t.right = 7;
  if (which == 6) t.scale = 1.5, t.amplitude = 8;
  if (which == 7) t.scale = 1e-3;
  if (which == 8) t.len_q = 400, t.causal = t.sinks = true;  // the first rows see nothing
  if (which == 9) t.top_left = t.causal = true, t.left = 64, t.len_q = 130;
  if (which == 10) t.right = 128, t.top_left = true, t.order = t.order_out = Order::positions_first;
  if (which == 11) t.softcap = 0.7;
  if (which == 12) t.softcap = 30, t.scale = 1.5, t.amplitude = 8;
  if (which == 13) t.alibi = true;
  if (which == 14) t.alibi = t.top_left = true, t.softcap = 5;
}
/// Each alone and any two of them.
template <class Kernel>
void gradient_options(std::int64_t d, Beside const& more = {}) {
  for (int one = 0; one <= last_gradient_option; ++one)
    for (int two = one; two <= last_gradient_option; ++two) {
      // Two alone in the smaller of sizes, to be done in time.
      Case t{.batch = 2, .heads = 4, .heads_kv = 2, .len_q = 200, .len_kv = 333, .d = d, .dv = d};
      if (one != two) t.batch = 1, t.heads = 2, t.heads_kv = 1, t.len_q = 100, t.len_kv = 150;
      set_gradient_option(t, one), set_gradient_option(t, two);
      run_backward<Kernel>(t, more);
      STOP_AT_FAILURE;
    }
}

constexpr int last_own_option = 4 + last_bias;
/// Option number `which`, to last_own_option, of those that Hopper's kernels do not take.
inline void set_own_option(Case& t, Beside& more, int which) {
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
inline std::vector<Order> const all_orders{Order::heads_first, Order::positions_first,
                                           Order::padded, Order::odd};

/// Every tensor in any order, at any address, with any stride along its features; q, k, v and dout
/// in one of `orders`.
template <class Kernel>
void any_strides(std::int64_t d, Beside const& more = {},
                 std::vector<Order> const& orders = all_orders, bool sinks = true,
                 std::array<std::int64_t, 2> lengths = {70, 150}) {
  for (Order order : orders)
    for (Order order_out : all_orders) {
      run_backward<Kernel>({.batch = 2,
                            .heads = 4,
                            .heads_kv = 2,
                            .len_q = lengths[0],
                            .len_kv = lengths[1],
                            .d = d,
                            .dv = d,
                            .causal = true,
                            .sinks = sinks,
                            .order = order,
                            .order_out = order_out},
                           more);
      STOP_AT_FAILURE;
    }
}

/// The gradient of a bias lies anyhow, in every type, beside softcap, whose derivative it has not.
template <class Kernel>
void gradients_of_biases(std::int64_t d, int mask = 0) {
  for (DType type : {DType::float32, DType::float16, DType::bfloat16, DType::float64})
    for (int bias : {2, 8})
      for (Order order_out : {Order::heads_first, Order::positions_first, Order::odd}) {
        run_backward<Kernel>({.batch = 2,
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
                              .order_out = order_out},
                             {.mask = mask, .d_bias = type});
        STOP_AT_FAILURE;
      }
}

// Sinks and their gradients have types of their own.
template <class Kernel, class Sink, class Gradient>
void sinks_of() {
  using T = ElementOf<Kernel>;
  SKIP_IF_LEFT_OUT(Kernel);
  SCOPED_TRACE(testing::Message() << static_cast<int>(dtype_of<Sink>()) << ' '
                                  << static_cast<int>(dtype_of<Gradient>()));
  Device const device = abi::query_device(abi::current_device());
  BackwardProblem<T> x(
      {.batch = 2, .heads = 3, .heads_kv = 1, .len_q = 100, .len_kv = 70, .sinks = true});
  AttentionBackwardArgs a = x.arguments();
  DirectWorkspace const memory(Kernel::workspace_bytes(a, device));
  a.workspace = memory.begin();
  ASSERT_EQ(Kernel::launch(a, device, nullptr), cudaSuccess);
  ASSERT_CUDA(cudaDeviceSynchronize());
  std::vector<double> expected;
  auto const bytes = x.results()[3];
  for (std::int64_t h = 0; h < 3; ++h) {
    float value;
    std::memcpy(&value, &bytes[x.d_sinks.offset(0, 0, h, 0) * sizeof value], sizeof value);
    expected.push_back(value);
  }
  std::vector<Sink> sinks;
  for (float sink : x.sinks) sinks.insert(sinks.end(), {Sink(sink), Sink(100.0f)});
  DeviceArray<Sink> const given(sinks);
  DeviceArray<Gradient> const gradients(std::vector<Gradient>(6, Gradient(7.0f)));
  a.forward.sinks = given.data, a.forward.type_sinks = dtype_of<Sink>(), a.forward.sinks_stride = 2;
  a.d_sinks = gradients.data, a.type_d_sinks = dtype_of<Gradient>(), a.d_sinks_stride = 2;
  ASSERT_STREQ(Kernel::accepts(a, device).reason, "");
  ASSERT_EQ(Kernel::launch(a, device, nullptr), cudaSuccess);
  std::vector<Gradient> got(6);
  ASSERT_CUDA(cudaMemcpy(got.data(), gradients.data, 6 * sizeof(Gradient), cudaMemcpyDeviceToHost));
  for (std::size_t h = 0; h < 3; ++h) {  // sinks are the same numbers in every type
    auto const once_float = static_cast<float>(wide(got[2 * h]));
    EXPECT_EQ(wide(Gradient(once_float)), wide(Gradient(static_cast<float>(expected[h]))));
    EXPECT_EQ(wide(got[2 * h + 1]), 7);
  }
}

template <class Kernel>
void sinks_of_every_type() {
  sinks_of<Kernel, float, __half>();
  sinks_of<Kernel, __half, __nv_bfloat16>();
  sinks_of<Kernel, __nv_bfloat16, double>();
  sinks_of<Kernel, double, float>();
}

template <class Kernel>
void heads_that_share_keys(std::int64_t d) {
  for (std::int64_t group : {1, 2, 4, 8})
    for (bool causal : {false, true}) {
      run_backward<Kernel>({.batch = 2,
                            .heads = 8,
                            .heads_kv = 8 / group,
                            .len_q = 70,
                            .len_kv = 140,
                            .d = d,
                            .dv = d,
                            .causal = causal,
                            .sinks = causal});
      STOP_AT_FAILURE;
    }
}

/// Poison past lengths.
template <class Kernel>
void ragged_gradients(std::int64_t d, Beside const& more = {}) {
  for (int mask = 0; mask < 4; ++mask) {
    Case t = ragged_case<Case>(d, mask % 3);
    if (mask == 3) t.left = 50, t.sinks = true;
    if (more.d_bias) t.bias = 2;
    t.infinite = mask % 2 != 0;
    run_backward<Kernel>(t, more);
    STOP_AT_FAILURE;
  }
}

/// Packed sequences, some of them empty, with positions outside all of them. Keys of two sequences
/// would get a gradient from either.
inline Case packed_gradients(std::int64_t d, int mask) {
  Case t = packed_case<Case>(4, 2, d, mask);
  t.cu_kv = {2, 9, 230, 430, 430, 580, 700, 700, 990};
  return t;
}

template <class F16, class Bf16>
void packed_sequences(std::int64_t d) {
  for (int mask = 0; mask < 4; ++mask) {
    Case t = packed_gradients(d, mask % 3);
    if (mask == 3) t.left = 70, t.sinks = t.alibi = true;
    t.wide = mask % 2 != 0;
    run_backward<Bf16>(t);
    STOP_AT_FAILURE;
    t.order_out = Order::odd, t.infinite = true;
    t.cu_kv = {0, 128, 208, 400, 401, 529, 700, 800, 1000};
    run_backward<F16>(t);
    STOP_AT_FAILURE;
    // Packed queries against padded keys.
    t.cu_q = {0, 400, 900}, t.cu_kv = {}, t.len_kv = 400, t.lengths_kv = {399, 150};
    run_backward<Bf16>(t);
    STOP_AT_FAILURE;
  }
}

/// Queries and keys of a bias, of its gradient and of a mask count within their sequence.
template <class F16, class Bf16>
void packed_sequences_with_terms(std::int64_t d) {
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

// More sequences than one step of the search for one has lanes, most of them of few positions.
template <class Kernel>
void many_packed_sequences() {
  for (int count : {31, 32, 33, 1025, 1500})
    for (bool causal : {false, true}) {
      Case t{.heads = 2,
             .heads_kv = 1,
             .causal = causal,
             .order = Order::positions_first,
             .order_out = Order::positions_first,
             .cu_q = {3},
             .cu_kv = {1}};
      for (int n = 0; n < count; ++n) {
        t.cu_q.push_back(t.cu_q.back() + (n % 251 == 7 ? 140 : n * 7 % 3));
        t.cu_kv.push_back(t.cu_kv.back() + (n % 301 == 7 ? 260 : n * 5 % 4));
      }
      t.len_q = t.cu_q.back() + 70, t.len_kv = t.cu_kv.back();
      run_backward<Kernel>(t);
      STOP_AT_FAILURE;
    }
}

// What comes of boundaries that make no sense is not said, but it ends, and within the gradients.
template <class Kernel>
void boundaries_that_go_back() {
  using T = ElementOf<Kernel>;
  SKIP_IF_LEFT_OUT(Kernel);
  Device const device = abi::query_device(abi::current_device());
  DeviceArray<int> const boundaries({0, 800, 100, 900, -50, 5000, 300, 899});
  DeviceArray<int> const ascending({0, 100, 300, 301, 301, 500, 800, 900});
  for (int which = 0; which < 3; ++which)
    for (bool ordered : {false, true}) {
      SCOPED_TRACE(which);
      BackwardProblem<T> x({.len_q = 900,
                            .len_kv = 900,
                            .causal = ordered,
                            .order = Order::padded,
                            .order_out = Order::padded});
      AttentionBackwardArgs a = x.arguments();
      a.forward.batch = 7, a.ordered = ordered;
      a.forward.cu_seqlens_q.data = which == 1 ? ascending.data : boundaries.data;
      a.forward.cu_seqlens_kv.data = which == 2 ? ascending.data : boundaries.data;
      DirectWorkspace const memory(Kernel::workspace_bytes(a, device));
      a.workspace = memory.begin();
      ASSERT_EQ(Kernel::launch(a, device, nullptr), cudaSuccess);
      ASSERT_CUDA(cudaDeviceSynchronize());
      EXPECT_TRUE(memory.is_kept()) << "memory behind the workspace was written";
      auto const got = x.results();
      std::size_t n = 0;
      for (auto* tensor : {&x.dq, &x.dk, &x.dv}) {
        auto untouched = got[n];
        for (std::int64_t h = 0; h < tensor->extent[1]; ++h)
          for (std::int64_t i = 0; i < 900; ++i)
            std::memset(&untouched[tensor->offset(0, h, i, 0) * sizeof(T)], 0xFF, 64 * sizeof(T));
        EXPECT_EQ(untouched == tensor->host, true) << "memory around a gradient was written";
        ++n;
      }
    }
}

template <class F16, class Bf16>
void unordered(std::int64_t d) {
  for (int mask = 0; mask < 3; ++mask) {
    run_backward<Bf16>({.batch = 2,
                        .heads = 4,
                        .heads_kv = 2,
                        .len_q = 200,
                        .len_kv = 600,
                        .d = d,
                        .dv = d,
                        .causal = mask != 0,
                        .top_left = mask == 2},
                       {.ordered = false});
    STOP_AT_FAILURE;
    run_backward<F16>(packed_gradients(d, mask), {.ordered = false});
    STOP_AT_FAILURE;
  }
}

/// A case of what all kernels of gradients take, head dims up to `most`.
inline Case random_gradients(Draws& below, int most) {
  Case t;
  t.batch = 1 + below(3), t.heads_kv = 1 + below(2), t.heads = t.heads_kv * (1 + below(3));
  t.len_q = 1 + below(300), t.len_kv = 1 + below(400);
  t.d = 1 + below(most), t.dv = below(2) == 0 ? t.d : 1 + below(most);
  t.causal = below(2) == 0, t.top_left = below(2) == 0, t.sinks = below(4) == 0;
  draw_window(t, below, 300);
  t.amplitude = 1 + below(4);
  if (below(5) == 0) t.softcap = 1 + below(20);
  t.alibi = below(5) == 0;
  t.order = static_cast<Order>(below(3)), t.order_out = static_cast<Order>(below(4));
  draw_lengths(t, below);
  return t;
}

/// The same with a mask, a bias and its gradient, any sign of the scale and any strides.
inline Case random_with_terms(Draws& below, int most, Beside& more) {
  Case t = random_gradients(below, most);
  more.mask = below(3) == 0 ? 1 + below(3) : 0;
  if (below(3) == 0) t.bias = 1 + below(last_bias);
  if (below(4) == 0) t.bias = 2, more.d_bias = DType::float32;
  if (below(5) == 0) t.scale = -0.2;
  if (below(3) == 0) t.order = Order::odd;
  return t;
}

class WorstBackwardRatio : public testing::Environment {
  void TearDown() override {
    if (worst_backward_ratio > 0)
      std::printf("attention_backward: largest error / bound %.3f\n", worst_backward_ratio);
  }
};
[[maybe_unused]] auto* const worst_backward_reporter =
    testing::AddGlobalTestEnvironment(new WorstBackwardRatio);

}  // namespace
