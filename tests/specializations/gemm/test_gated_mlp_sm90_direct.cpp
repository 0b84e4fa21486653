// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gated_mlp/sm90_wgmma_* called directly over memory of cudaMalloc. The suite
// GatedSm90Refuses needs no GPU; GatedSm90Runs fails without a Hopper card.
#include <attikos/abi/gated_mlp.hpp>
#include <cstring>
#include <sstream>
#include <string>

#include "direct_matrix.hpp"

namespace {

using abi::GatedMlpArgs;

template <class T>
using KernelFor = std::conditional_t<std::is_same_v<T, __half>, abi::GatedMlpSm90WgmmaF16,
                                     abi::GatedMlpSm90WgmmaBf16>;

TEST(GatedSm90Refuses, WhatItCannotDo) {
  SKIP_IF_LEFT_OUT(abi::GatedMlpSm90WgmmaF16);
  [[maybe_unused]] alignas(16) static float somewhere[4];
  auto const with = [](auto change) -> std::string {
    GatedMlpArgs g;
    g.x = g.gate_weight = g.up_weight = g.out = somewhere;
    g.type_x = g.type_weight = g.type_out = DType::float16;
    g.batch = 1, g.tokens = 8, g.hidden = 16, g.intermediate = 24;
    g.x_token = g.gate_intermediate = g.up_intermediate = 16;
    g.x_hidden = g.gate_hidden = g.up_hidden = 1;
    g.out_token = 24, g.out_intermediate = 1;
    change(g);
    return abi::GatedMlpSm90WgmmaF16::accepts(
               g, Device{0, 9, 0, abi::Architecture::hopper, 132, 232448})
        .reason;
  };
  EXPECT_EQ(with([](GatedMlpArgs&) {}), "");
  EXPECT_EQ(with([](GatedMlpArgs& g) { g.hidden = 0; }), "hidden is 0");
  EXPECT_EQ(with([](GatedMlpArgs& g) { g.tokens = 0, g.hidden = 0; }), "");
  EXPECT_EQ(with([](GatedMlpArgs& g) { g.x_token = 1, g.x_hidden = 8; }),
            "x has no unit stride along hidden");
  EXPECT_EQ(with([](GatedMlpArgs& g) { g.up_intermediate = 1, g.up_hidden = 24; }),
            "a weight has no unit stride along hidden");
  EXPECT_EQ(with([](GatedMlpArgs& g) { g.up_intermediate = 20; }),
            "a stride of B is not a multiple of 16 bytes");
  EXPECT_EQ(with([](GatedMlpArgs& g) { g.type_weight = DType::bfloat16; }),
            "it multiplies other element types");
  EXPECT_EQ(with([](GatedMlpArgs& g) { g.type_out = DType::float32; }), "");
  for (DType const out : {DType::bfloat16, DType::float8_e4m3, DType::int8})
    EXPECT_EQ(with([&](GatedMlpArgs& g) { g.type_out = out; }),
              "it does not write out's element type");
}

/// Every element against float64, on devices of 1, 2 and 132 multiprocessors.
///
/// With u = 2^-23, which covers the tensor cores' truncating additions, G = Σ|x||Wg|, U = Σ|x||Wu|:
/// the sums are off by u(k + 8)G and u(k + 8)U; no activation is steeper than 1.13; its evaluation
/// is off by 8u|gate| for gelu and, with the fast exponential and division of silu, 2^-21
/// + 1.5·2^-23·|gate| relative to a value of |gate| at most.
template <class T, class Out>
void run(std::int64_t batch, std::int64_t tokens, std::int64_t hidden, std::int64_t intermediate,
         Activation activation, bool by_columns) {
  SKIP_IF_LEFT_OUT(KernelFor<T>);
  Device const real = abi::query_device(abi::current_device());
  ASSERT_EQ(real.compute_major, 9) << "this suite needs a Hopper card";
  std::ostringstream text;
  text << "batch" << batch << " tokens" << tokens << " hidden" << hidden << " intermediate"
       << intermediate << " activation " << static_cast<int>(activation) << " columns "
       << by_columns;
  SCOPED_TRACE(text.str());
  Matrix<T> x(batch, tokens, hidden, false, 16, false, 1);
  Matrix<T> gate(1, intermediate, hidden, false, 16, false, 2);
  Matrix<T> up(1, intermediate, hidden, false, 0, false, 3);
  Matrix<Out> out(batch, tokens, intermediate, by_columns, 0, false, 4);
  out.forget();
  x.upload(), gate.upload(), up.upload();
  GatedMlpArgs g;
  g.x = x.begin(), g.gate_weight = gate.begin(), g.up_weight = up.begin();
  g.type_x = g.type_weight = dtype_of<T>(), g.type_out = dtype_of<Out>();
  g.batch = batch, g.tokens = tokens, g.hidden = hidden, g.intermediate = intermediate;
  g.x_batch = x.stride_batch, g.x_token = x.stride_row, g.x_hidden = 1;
  g.gate_intermediate = gate.stride_row, g.gate_hidden = 1;
  g.up_intermediate = up.stride_row, g.up_hidden = 1;
  g.out_batch = out.stride_batch, g.out_token = out.stride_row,
  g.out_intermediate = out.stride_column;
  g.activation = activation;
  mislead(batch, {&g.x_batch, &g.out_batch});
  mislead(tokens, {&g.x_token, &g.out_token});
  mislead(intermediate, {&g.gate_intermediate, &g.up_intermediate, &g.out_intermediate});
  for (int sm_count : {1, 2, 132}) {
    SCOPED_TRACE("multiprocessors " + std::to_string(sm_count));
    Device d = real;
    d.sm_count = sm_count;
    out.upload();
    poison_shared_memory();
    g.out = out.begin();
    ASSERT_STREQ(KernelFor<T>::accepts(g, d).reason, "");
    ASSERT_EQ(KernelFor<T>::launch(g, d, nullptr), cudaSuccess);
    ASSERT_CUDA(cudaDeviceSynchronize());
    std::vector<unsigned char> result(out.host.size());
    ASSERT_CUDA(cudaMemcpy(result.data(), out.device, result.size(), cudaMemcpyDeviceToHost));
    auto untouched = out.host;
    double worst = 0;
    double const u = 0x1p-23;
    ResultNorms<Out> norms;
    for (std::int64_t l = 0; l < batch; ++l)
      for (std::int64_t i = 0; i < tokens; ++i, norms.end_row())
        for (std::int64_t j = 0; j < intermediate; ++j) {
          double s = 0, gate_size = 0, t = 0, up_size = 0;
          for (std::int64_t p = 0; p < hidden; ++p) {
            double const a = x.value(l, i, p) * gate.value(0, j, p);
            double const b = x.value(l, i, p) * up.value(0, j, p);
            s += a, gate_size += std::abs(a), t += b, up_size += std::abs(b);
          }
          double const y = activate(activation, s), k = static_cast<double>(hidden + 8);
          double const error_t = u * k * up_size;
          double const error_y = 1.13 * u * k * gate_size + 8 * u * std::abs(s) +
                                 std::abs(y) * (0x1p-21 + 1.5 * u * std::abs(s));
          double bound = error_y * (std::abs(t) + error_t) + std::abs(y) * error_t +
                         2 * u * std::abs(y * t) + 1e-37;
          bound += rounding<Out>() * (std::abs(y * t) + bound) + 0x1p-25;
          auto const index = static_cast<std::size_t>(out.offset(l, i, j)) * sizeof(Out);
          Out got;
          std::memcpy(&got, &result[index], sizeof got);
          std::memcpy(&untouched[index], &got, sizeof got);
          double const ratio = std::abs(wide(got) - y * t) / bound;
          norms.add(wide(got), y * t, bound);
          if (!(ratio <= 1) && worst <= 1)
            ADD_FAILURE() << "[" << l << ", " << i << ", " << j << "] is " << wide(got)
                          << ", expected " << y * t << " ± " << bound;
          worst = std::max(worst, std::isnan(ratio) ? INFINITY : ratio);
        }
    EXPECT_EQ(untouched == result, true) << "memory around out was written";
    test::keep_worst_ratio("direct gated_mlp", worst);
    norms.check("direct gated_mlp", "out");
    if (testing::Test::HasFailure()) return;
  }
}

template <class T, class Out>
void shapes() {
  for (auto activation : {Activation::silu, Activation::gelu, Activation::gelu_tanh})
    for (bool by_columns : {false, true}) {
      std::int64_t const extents[][4] = {{1, 1, 8, 1},      {1, 16, 200, 136}, {2, 24, 64, 72},
                                         {1, 63, 136, 257}, {1, 65, 96, 64},   {1, 200, 520, 328},
                                         {2, 130, 72, 130}};
      for (auto const& e : extents) {
        run<T, Out>(e[0], e[1], e[2], e[3], activation, by_columns);
        if (testing::Test::HasFailure()) return;
      }
    }
}

/// Enough tiles on one multiprocessor for pairs of blocks that share the weights' tile.
TEST(GatedSm90Runs, PairsOfBlocks) {
  run<__half, __half>(1, 130, 2056, 648, Activation::silu, false);
}

TEST(GatedSm90Runs, Float16) { shapes<__half, __half>(); }
TEST(GatedSm90Runs, Float16ToFloat32) { shapes<__half, float>(); }
TEST(GatedSm90Runs, Bfloat16) { shapes<__nv_bfloat16, __nv_bfloat16>(); }
TEST(GatedSm90Runs, Bfloat16ToFloat32) { shapes<__nv_bfloat16, float>(); }

}  // namespace
