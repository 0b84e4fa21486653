// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gated_mlp with weights that were packed ahead of time: the bits of the call with the weights
// themselves, which the oracle checks, and what is refused.
#include <attikos/mlp/gated_mlp.hpp>

#include "../support/messages.hpp"
#include "gated_mlp_checks.hpp"
#include "packed_b_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class PackedWeights : public testing::Test {};
TYPED_TEST_SUITE(PackedWeights, FloatingCases, CaseName);

/// Both weights packed, and one of the two.
template <class Exec, class T, class Out>
void check_packed_weights(GatedMlpCase const& p) {
  SCOPED_TRACE(describe(p));
  check_gated_mlp<Exec, T, T, Out>(p);
  GatedMlpOperands<Exec, T, T, Out> o(p);
  o.forward(p);
  Kokkos::fence("test");
  o.out.download();
  auto const want = o.out.elements();
  PackBOptions const options{.trans_b = true};
  PackedMemory gate_memory(pack_b_size(o.gate.const_view(), options));
  PackedMemory up_memory(pack_b_size(o.up.const_view(), options));
  auto const gate = pack_b(Exec(), o.gate.const_view(), gate_memory.view(), options);
  auto const up = pack_b(Exec(), o.up.const_view(), up_memory.view(), options);
  auto const expect = [&](auto const& gate_weight, auto const& up_weight) {
    o.out.fill(3);
    if (p.batch >= 0)
      gated_mlp(Exec(), o.x.const_view(), gate_weight, up_weight, o.out.view(), p.options);
    else
      gated_mlp(Exec(), o.x.const_front(), gate_weight, up_weight, o.out.front(), p.options);
    Kokkos::fence("test");
    o.out.download();
    EXPECT_TRUE(same_bits(o.out.elements(), want)) << gate.layout.to_string();
    EXPECT_EQ(o.out.writes_outside(), 0u);
  };
  expect(gate, up);
  expect(gate, o.up.const_view());
  expect(o.gate.const_view(), up);
  EXPECT_EQ(gate_memory.writes_outside() + up_memory.writes_outside(), 0u);
}

TYPED_TEST(PackedWeights, OfEveryShape) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  int turn = 0;
  for (auto [tokens, hidden, intermediate] : {std::array<std::int64_t, 3>{0, 40, 40},
                                              {3, 0, 40},
                                              {3, 40, 0},
                                              {1, 33, 1},
                                              {1, 131, 97},
                                              {8, 65, 33},
                                              {9, 257, 31},
                                              {13, 63, 49},
                                              {30, 513, 70},
                                              {32, 32, 32},
                                              {201, 300, 140}})
    for (std::int64_t batch : {-1, 2}) {
      check_packed_weights<Exec, T, T>({.batch = batch,
                                        .tokens = tokens,
                                        .hidden = hidden,
                                        .intermediate = intermediate,
                                        .x = all_layouts[sz(turn) % 4],
                                        .weights = all_layouts[sz(turn / 2) % 4],
                                        .out = all_layouts[sz(turn / 3) % 4]});
      ++turn;
    }
}

TYPED_TEST(PackedWeights, WithEveryActivation) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  using Out = std::conditional_t<std::is_same_v<T, double>, float, T>;
  for (auto activation : {Activation::silu, Activation::gelu, Activation::gelu_tanh}) {
    GatedMlpCase const p{.batch = -1,
                         .tokens = 21,
                         .hidden = 140,
                         .intermediate = 49,
                         .options = {.activation = activation}};
    check_packed_weights<Exec, T, Out>(p);
    check_packed_weights<Exec, T, float>(p);
  }
}

using Space = Kokkos::DefaultHostExecutionSpace;
template <class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, Kokkos::HostSpace>;

TEST(PackedWeightsOf, GatedMlpAreChecked) {
  Matrix<float> x("x", 5, 40), weight("weight", 50, 40), out("out", 5, 50);
  auto const packed = pack_b(Space(), weight, {.trans_b = true});
  auto const turned = pack_b(Space(), weight);
  expect_error<UnsupportedError>(
      [&] { gated_mlp(Space(), x, packed, turned, out); },
      {"attikos::gated_mlp: up_weight was packed with trans_b = false; expected true"});
  auto other = packed;
  other.layout.isa = host_isa() == HostIsa::compiled ? HostIsa::avx512 : HostIsa::compiled;
  expect_error<UnsupportedError>([&] { gated_mlp(Space(), x, other, packed, out); },
                                 {std::string("attikos::gated_mlp: gate_weight was packed for ") +
                                      host_isa_name(other.layout.isa),
                                  host_isa_name(host_isa())});
  auto const short_one = pack_b(Space(), Matrix<float>("w", 50, 39), {.trans_b = true});
  expect_error<ShapeError>([&] { gated_mlp(Space(), x, packed, short_one, out); },
                           {"attikos::gated_mlp: up_weight is [50, 39] float32; expected the "
                            "extents of gate_weight, which is [50, 40] float32"});
  Kokkos::View<std::uint8_t*, Kokkos::HostSpace> const memory("memory", packed.layout.bytes);
  auto const held = pack_b(Space(), weight, memory, {.trans_b = true});
  Matrix<float> const over(reinterpret_cast<float*>(memory.data()), 5, 50);
  expect_error<Error>([&] { gated_mlp(Space(), x, packed, held, over); },
                      {"attikos::gated_mlp: output out shares memory with up_weight"});
  auto const told = explain(op::gated_mlp, Space(), x, packed, weight, out);
  EXPECT_EQ(told.packed_b, "gate_weight " + packed.layout.to_string());
  EXPECT_EQ(told.instructions, host_isa() >= HostIsa::avx512 ? "avx512" : "");
}

}  // namespace
}  // namespace attikos::test
