// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention_backward: each extra alone, other storage, labels and refusals.
#include "../support/messages.hpp"
#include "attention_backward_checks.hpp"

namespace attikos::test {
namespace {

using Host = Kokkos::DefaultHostExecutionSpace;
using Default = Kokkos::DefaultExecutionSpace;

template <class Exec>
class AttentionBackwardExtras : public testing::Test {};
TYPED_TEST_SUITE(AttentionBackwardExtras, SpaceCases, CaseName);

/// Runs `call` with a rank-4 call of attention_backward that takes further extras, and compares.
template <class Exec, class Call>
void check_alone(BackwardCase p, Call const& call) {
  p.shape = {2, 4, 2, 25, 41, 8, 6};
  p.call = BackwardCall::plain;  // what the comparison is to look at
  BackwardOperands<Exec, float> o(p);
  Random random(13);
  o.fill(random);
  o.forward();
  call(o, [&](auto const&... extras) {
    run_attention_backward(o, Exec(), o.q.view(), o.k.view(), o.v.view(), o.out.view(),
                           o.lse.view(), o.dout.view(), o.dq.view(), o.dk.view(), o.dv.view(),
                           p.options, extras...);
  });
  o.download();
  compare_attention_backward(o);
}

// In the parity suite every extra is given and says nothing; here each is given alone.
TYPED_TEST(AttentionBackwardExtras, EachAlone) {
  using E = TypeParam;
  check_alone<E>({.lengths_q = {25, 9}, .lengths_kv = {30, 41}}, [](auto& o, auto const& call) {
    call(lengths(o.lengths_q.view(), o.lengths_kv.view()));
  });
  check_alone<E>({.lengths_q = {}, .lengths_kv = {30, 41}},
                 [](auto& o, auto const& call) { call(lengths(none, o.lengths_kv.view())); });
  check_alone<E>({.bias = true}, [](auto& o, auto const& call) { call(bias(o.bias.view())); });
  check_alone<E>({.mask = true}, [](auto& o, auto const& call) { call(mask(o.mask.view())); });
  check_alone<E>({.alibi = true}, [](auto& o, auto const& call) { call(alibi(o.slopes.view())); });
  check_alone<E>({.sinks = true}, [](auto& o, auto const& call) { call(sinks(o.sinks.view())); });
  check_alone<E>({.score = true}, [](auto&, auto const& call) { call(score(BendScore{true})); });
  check_alone<E>({.weight = true},
                 [](auto&, auto const& call) { call(weight(CutoffWeight{true})); });
}

TYPED_TEST(AttentionBackwardExtras, BiasOfLowerRank) {
  BackwardCase const p{.shape = {2, 4, 2, 25, 41, 8, 6},
                       .call = BackwardCall::terms,
                       .bias = true,
                       .bias_broadcast = 1};
  BackwardOperands<TypeParam, float> o(p);
  Random random(13);
  o.fill(random);
  o.forward();
  o.d_sinks.fill(0);  // which the comparison expects
  run_attention_backward(o, TypeParam(), o.q.view(), o.k.view(), o.v.view(), o.out.view(),
                         o.lse.view(), o.dout.view(), o.dq.view(), o.dk.view(), o.dv.view(),
                         p.options, bias(o.bias.front()), d_bias(o.d_bias.front()));
  o.download();
  compare_attention_backward(o);
}

TYPED_TEST(AttentionBackwardExtras, PackedQueriesAgainstPaddedKeys) {
  BackwardCase const p{.shape = {4, 4, 2, 150, 37, 8, 6},
                       .options = {.causal = true},
                       .lengths_kv = {37, 0, 20, 36},
                       .cu_q = {1, 100, 110, 110, 148}};
  BackwardOperands<TypeParam, float> o(p);
  Random random(14);
  o.fill(random);
  o.forward();
  run_attention_backward(o, TypeParam(), o.q.front(), o.k.view(), o.v.view(), o.out.front(),
                         o.lse.front(), o.dout.front(), o.dq.front(), o.dk.view(), o.dv.view(),
                         p.options, cu_seqlens(o.cu_q.view(), none),
                         lengths(none, o.lengths_kv.view()));
  o.download();
  compare_attention_backward(o);
}

// Lengths and offsets are read on the device and clamped to the allocation.
TYPED_TEST(AttentionBackwardExtras, LengthsAndOffsetsAreClamped) {
  BackwardCase p{.shape = {2, 2, 1, 9, 20, 8, 8},
                 .call = BackwardCall::terms,
                 .layout = Layout::padded,
                 .lengths_q = {9, 0},
                 .lengths_kv = {20, 0}};
  BackwardOperands<TypeParam, float> o(p);
  Random random(4);
  o.fill(random);
  o.forward();
  o.lengths_q(0) = o.lengths_kv(0) = 2000000000;
  o.lengths_q(1) = o.lengths_kv(1) = -2000000000;
  o.upload();
  call_attention_backward(TypeParam(), o);
  o.download();
  compare_attention_backward(o);

  p = {.shape = {1, 2, 1, 9, 20, 8, 8},
       .call = BackwardCall::packed,
       .layout = Layout::padded,
       .cu_q = {0, 9},
       .cu_kv = {0, 20}};
  BackwardOperands<TypeParam, float> packed(p);
  packed.fill(random);
  packed.forward();
  packed.cu_q(0) = packed.cu_kv(0) = -2000000000;
  packed.cu_q(1) = packed.cu_kv(1) = 2000000000;
  packed.upload();
  call_attention_backward(TypeParam(), packed);
  packed.download();
  compare_attention_backward(packed);
}

// A NaN in one query reaches its own dq and the keys it sees, and nothing else; kernels on tiles do
// not say so.
TYPED_TEST(AttentionBackwardExtras, NanReachesWhatItTouchesOnly) {
  BackwardCase const p{.shape = {1, 2, 2, 150, 150, 8, 8},
                       .options = {.causal = true, .kernel = "portable"}};
  BackwardOperands<TypeParam, float> o(p);
  Random random(5);
  o.fill(random);
  o.forward();
  o.dout(0, 1, 70, 3) = poison<float>();
  o.dout.upload();
  call_attention_backward(TypeParam(), o);
  o.download();
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t i = 0; i < 150; ++i) {
      for (std::int64_t c = 0; c < 8; ++c) {
        EXPECT_EQ(std::isnan(o.dq.value(0, h, i, c)), h == 1 && i == 70) << h << ", " << i;
        EXPECT_EQ(std::isnan(o.dk.value(0, h, i, c)), h == 1 && i <= 70) << h << ", " << i;
        EXPECT_EQ(std::isnan(o.dv.value(0, h, i, c)), h == 1 && i <= 70 && c == 3)
            << h << ", " << i;
      }
    }
  }
}

TEST(AttentionBackwardDefaultSpace, MayBeLeftOut) {
  BackwardOperands<Default, float> o({.shape = {1, 2, 1, 19, 37, 20, 12}});
  Random random(4);
  o.fill(random);
  o.forward();
  Kokkos::fence("attikos_test");
  run_attention_backward(o, o.q.view(), o.k.view(), o.v.view(), o.out.view(), o.lse.view(),
                         o.dout.view(), o.dq.view(), o.dk.view(), o.dv.view());
  o.download();
  compare_attention_backward(o);
}

// What is kept beside the outputs grows with the number of queries, not with that of pairs.
TEST(AttentionBackwardWorkspace, IsOneNumberForEachQuery) {
  auto const bytes = [](std::int64_t queries, std::int64_t keys) {
    Kokkos::View<bfloat16****, Kokkos::LayoutRight, Host, Kokkos::MemoryTraits<Kokkos::Unmanaged>>
        q(nullptr, 2, 4, sz(queries), 8), k(nullptr, 2, 2, sz(keys), 8);
    return attention_backward_workspace_size(Host(), q, k, k);
  };
  EXPECT_EQ(bytes(1000, 10), 2u * 4 * 1000 * 4);
  EXPECT_EQ(bytes(1000, 100000), bytes(1000, 10));
}

std::vector<std::string> kernels_seen;

TEST(AttentionBackwardDispatch, LabelsAndExplanation) {
  BackwardCase p{.shape = {1, 2, 1, 9, 20, 8, 8},
                 .options = {.kernel = "portable"},
                 .call = BackwardCall::terms};
  BackwardOperands<Default, float> o(p);
  Random random(4);
  o.fill(random);
  o.forward();
  auto const before = Kokkos::Tools::Experimental::get_callbacks();
  kernels_seen.clear();
  Kokkos::Tools::Experimental::set_begin_parallel_for_callback(
      [](char const* name, std::uint32_t, std::uint64_t*) { kernels_seen.emplace_back(name); });
  call_attention_backward(Default(), o);
  Kokkos::Tools::Experimental::set_callbacks(before);
  std::size_t count = 0;
  for (auto const& name : kernels_seen)
    if (name.rfind("attikos::attention_backward[portable/", 0) == 0) ++count;
  EXPECT_EQ(count, attikos::detail::multiplies_in_fragments<Default> ? 6u : 5u);  // dk and dv apart

  auto const explain_with = [&](AttentionOptions const& options) {
    return explain(op::attention_backward, Default(), o.q.view(), o.k.view(), o.v.view(),
                   o.out.view(), o.lse.view(), o.dout.view(), o.dq.view(), o.dk.view(), o.dv.view(),
                   options);
  };
  o.upload();
  o.for_gradients([](auto& x) { x.upload(); });
  EXPECT_EQ(explain_with({.kernel = "portable"}).kernel, "portable");
  EXPECT_THROW(explain_with({.causal_alignment = {}, .kernel = "nonsense"}), UnsupportedError);
  o.dq.download();
  EXPECT_TRUE(o.dq.unchanged()) << "explain() ran the kernel";
}

/// Extents of one call, right until a test breaks one of them.
struct Problem {
  using Extents = std::array<std::int64_t, 4>;
  Extents q{2, 4, 3, 8}, k{2, 2, 5, 8}, v{2, 2, 5, 6}, out{2, 4, 3, 6}, dout{2, 4, 3, 6},
      dq{2, 4, 3, 8}, dk{2, 2, 5, 8}, dv{2, 2, 5, 6}, bias{2, 1, 3, 5}, d_bias{2, 1, 3, 5};
  std::array<std::int64_t, 3> lse{2, 4, 3};
  std::int64_t d_sinks = 4, workspace = 24;
  AttentionOptions options = {};
};

template <class E>
void expect_refused(Problem const& p, std::initializer_list<std::string> parts) {
  using Four = Tensor<float, 4, Default>;
  Four q(p.q), k(p.k), v(p.v), out(p.out), dout(p.dout), dq(p.dq), dk(p.dk), dv(p.dv),
      biases(p.bias), d_biases(p.d_bias);
  Tensor<float, 3, Default> lse(p.lse);
  Tensor<float, 1, Default> given_sinks({4}), sink_gradients({p.d_sinks});
  Kokkos::View<float*, Default> const memory("workspace", sz(p.workspace));
  expect_error<E>(
      [&] {
        attention_backward(Default(), q.view(), k.view(), v.view(), out.view(), lse.view(),
                           dout.view(), dq.view(), dk.view(), dv.view(), p.options,
                           bias(biases.view()), d_bias(d_biases.view()), sinks(given_sinks.view()),
                           d_sinks(sink_gradients.view()), workspace(memory));
      },
      parts);
  auto const untouched = [](auto& x) {
    x.download();
    EXPECT_TRUE(x.unchanged()) << "a refused call wrote";
  };
  untouched(dq), untouched(dk), untouched(dv), untouched(d_biases), untouched(sink_gradients);
}

TEST(AttentionBackwardErrors, EveryArgument) {
  std::string const op = "attikos::attention_backward: ";
  expect_refused<ShapeError>({.k = {2, 2, 5, 7}}, {op + "k has head_dim 7; expected 8 as in q"});
  expect_refused<ShapeError>({.k = {2, 3, 5, 8}, .v = {2, 3, 5, 6}},
                             {op + "q has 4 heads; expected a multiple of the 3 heads"});
  expect_refused<ShapeError>({.out = {2, 4, 3, 5}}, {op + "out has head_dim 5; expected 6"});
  expect_refused<ShapeError>({.lse = {2, 4, 4}}, {op + "lse is [2, 4, 4] float32; expected"});
  expect_refused<ShapeError>(
      {.dout = {2, 4, 3, 5}},
      {op + "dout is [2, 4, 3, 5] float32; expected the extents of out, [2, 4, 3, 6]"});
  expect_refused<ShapeError>(
      {.dq = {2, 4, 4, 8}},
      {op + "dq is [2, 4, 4, 8] float32; expected the extents of q, [2, 4, 3, 8]"});
  expect_refused<ShapeError>(
      {.dk = {2, 4, 5, 8}},
      {op + "dk is [2, 4, 5, 8] float32; expected the extents of k, [2, 2, 5, 8]"});
  expect_refused<ShapeError>(
      {.dv = {2, 2, 5, 8}},
      {op + "dv is [2, 2, 5, 8] float32; expected the extents of v, [2, 2, 5, 6]"});
  expect_refused<ShapeError>(
      {.bias = {2, 3, 3, 5}},
      {op + "bias has extents [2, 3, 3, 5]; expected each to be 1 or as in"});
  expect_refused<ShapeError>(
      {.d_bias = {2, 4, 3, 5}},
      {op + "d_bias is [2, 4, 3, 5] float32; expected the extents of bias, [2, 1, 3, 5]"});
  expect_refused<ShapeError>({.d_sinks = 3},
                             {op + "d_sinks is [3] float32; expected the extents of sinks, [4]"});
  expect_refused<ResourceError>({.workspace = 23},
                                {op + "workspace has 92 bytes; expected at least 96"});
  expect_refused<UnsupportedError>({.options = {.kernel = "portable/flash"}},
                                   {op + "kernel \"portable/flash\" was demanded", "portable"});
  expect_refused<UnsupportedError>({.options = {.dropout_p = 0.1}}, {op + "dropout_p is 0.1"});
  expect_refused<Error>({.options = {.softcap = -1}}, {op + "softcap is -1"});
  expect_refused<UnsupportedError>({.options = {.determinism = Determinism::batch_invariant}},
                                   {op + "determinism is batch_invariant; expected run_to_run"});
}

TEST(AttentionBackwardErrors, OutputsMustHaveDistinctElements) {
  BackwardOperands<Default, float> o({.shape = {1, 2, 2, 5, 7, 8, 8}});
  using View = typename decltype(o.dq)::template ViewOf<float, 4>;
  View const folded(o.dk.view().data(), Kokkos::LayoutStride(1, 1, 2, 0, 7, 8, 8, 1));
  expect_error<StrideError>(
      [&] {
        attention_backward(Default(), o.q.view(), o.k.view(), o.v.view(), o.out.view(),
                           o.lse.view(), o.dout.view(), o.dq.view(), folded, o.dv.view());
      },
      {"attikos::attention_backward: output dk has stride 0 in dimension 1"});
  o.download();
  EXPECT_TRUE(o.dq.unchanged());
}

}  // namespace
}  // namespace attikos::test
