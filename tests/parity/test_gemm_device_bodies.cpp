// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a host never runs of gemm's and quantize's kernels, run on whatever space there is: the
// bodies for teams of threads and lanes. Data are small integers, so that both ways agree exactly.
#include <attikos/gemm/gemm.hpp>
#include <attikos/gemm/gemm_backward.hpp>
#include <attikos/gemm/team_gemm.hpp>
#include <attikos/quantize/quantize.hpp>
#include <attikos/reference/gated_mlp_reference.hpp>

#include "../support/backends.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance_gemm_backward.hpp"

namespace attikos::test {

/// Calls `op.device_row(team, index)`, or whatever else `call` makes of it, for every index.
template <class Exec, class Call>
struct TeamRuns {
  using Team = typename Kokkos::TeamPolicy<Exec>::member_type;
  Call call;
  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const { call(team, team.league_rank()); }
};
template <class Exec, class Call>
void run_teams(std::int64_t count, Call const& call) {
  if (count > 0)
    Kokkos::parallel_for("attikos_test", Kokkos::TeamPolicy<Exec>(static_cast<int>(count), 1, 1),
                         TeamRuns<Exec, Call>{call});
}

template <class Op>
struct DeviceRow {
  Op op;
  template <class Team>
  KOKKOS_INLINE_FUNCTION void operator()(Team const& team, int index) const {
    op.device_row(team, index);
  }
};
template <class Op>
struct DeviceChunk {
  Op op;
  template <class Team>
  KOKKOS_INLINE_FUNCTION void operator()(Team const& team, int index) const {
    op.device_chunk(team, index);
  }
};
template <class A, class B, class C>
struct SmallTeam {
  abi::GemmArgs g;
  int per_team;
  template <class Team>
  KOKKOS_INLINE_FUNCTION void operator()(Team const& team, int index) const {
    std::int64_t const first = std::int64_t{index} * per_team;
    int const count = static_cast<int>(g.batch - first < per_team ? g.batch - first : per_team);
    detail::small_gemm_team<A, B, C>(team, g, detail::Absent{}, first, count);
  }
};
template <class A, class B, class C>
struct TeamBlocks {
  detail::TeamMatrix<A const> a;
  detail::TeamMatrix<B const> b;
  detail::TeamGemmResult<C, float> result;
  template <class Team>
  KOKKOS_INLINE_FUNCTION void operator()(Team const& team, int) const {
    detail::team_gemm_blocks<4, 4, 4>(team, a, b, result);
  }
};

namespace {

template <class Exec>
class DeviceBodies : public testing::Test {};
TYPED_TEST_SUITE(DeviceBodies, SpaceCases, CaseName);

template <class Exec, class A, class C, class... Extras>
void check_small(std::int64_t m, std::int64_t n, std::int64_t k, Layout layout, bool along_m,
                 Extras const&... extras) {
  std::int64_t const batch = 13;
  Tensor<A, 3, Exec> a({batch, m, k}, layout), b({1, k, n}, layout);
  // Seen with rows and columns exchanged, the layout on the right runs down the columns.
  Tensor<C, 3, Exec> c({batch, n, m}, layout), again({batch, n, m}, layout);
  auto const turned = [](auto const& view) {
    using View = std::remove_cvref_t<decltype(view)>;
    return View(view.data(), Kokkos::LayoutStride(view.extent(0), view.stride(0), view.extent(2),
                                                  view.stride(2), view.extent(1), view.stride(1)));
  };
  Tensor<float, 1, Exec> biases({along_m ? m : n});
  Random random(5);
  a.fill_integers(random, -9, 9);
  b.fill_integers(random, -9, 9);
  biases.fill_integers(random, -9, 9);
  GemmOptions const options{.alpha = 2,
                            .activation = Activation::relu,
                            .bias_along = along_m ? BiasAlong::m : BiasAlong::n};
  auto const args = detail::gemm_arguments(
      detail::gemm_tensors<Exec>(a.const_view(), b.const_view(), turned(again.view()),
                                 bias(biases.const_view()), extras...),
      options);
  run_teams<Exec>((batch + 4) / 5, SmallTeam<A, A, C>{args, 5});
  gemm(Exec(), a.const_view(), b.const_view(), turned(c.view()), options, bias(biases.const_view()),
       extras...);
  c.download();
  again.download();
  EXPECT_EQ(again.writes_outside(), 0u);
  EXPECT_TRUE(same_bits(c.elements(), again.elements())) << m << " " << n << " " << k;
  again.for_each([&](auto const& at) { EXPECT_FALSE(std::isnan(to_double(again.at(at)))); });
}

TYPED_TEST(DeviceBodies, SmallProducts) {
  using Exec = TypeParam;
  // Blocks along an empty k have no scales; what lies there is poison.
  Tensor<float, 3, Exec> no_scales({1, 5, 0});
  check_small<Exec, float, float>(5, 7, 0, Layout::right, false, scale_a(no_scales.const_view()));
  Tensor<std::int32_t, 1, Exec> za({1}), zb({1});
  Tensor<float, 1, Exec> two({1});
  za.fill(3);
  zb.fill(-5);
  two.fill(2);
  int turn = 0;
  for (auto [m, n, k] :
       {std::array<std::int64_t, 3>{1, 1, 1}, {5, 7, 3}, {32, 32, 32}, {8, 1, 0}}) {
    for (Layout layout : {Layout::right, Layout::left, Layout::strided}) {
      check_small<Exec, float, float>(m, n, k, layout, turn % 2 == 0, scale_a(two.const_view()));
      check_small<Exec, std::int8_t, float>(m, n, k, layout, turn % 2 == 1,
                                            zero_point_a(za.const_view()),
                                            zero_point_b(zb.const_view()));
      ++turn;
    }
  }
}

/// Without reading C, what is written next to an element would show: a number over poison.
template <class Exec>
void check_blocks(int m, int n, int k, bool read_c, Layout layout) {
  Tensor<float, 2, Exec> a({m, k}), b({k, n}, Layout::left), c({m, n}, layout);
  Random random(6);
  a.fill_integers(random, -9, 9);
  b.fill_integers(random, -9, 9);
  if (read_c) c.fill_integers(random, -9, 9);
  auto const before = c;
  TeamBlocks<float, float, float> const blocks{
      {a.const_view().data(), m, k, a.strides()[0], a.strides()[1]},
      {b.const_view().data(), k, n, b.strides()[0], b.strides()[1]},
      {{c.view().data(), m, n, c.strides()[0], c.strides()[1]}, 2, 3, read_c}};
  run_teams<Exec>(1, blocks);
  c.download();
  EXPECT_EQ(c.writes_outside(), 0u);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double want = read_c ? 3 * before.value(i, j) : 0.0;
      for (int l = 0; l < k; ++l) want += 2 * a.value(i, l) * b.value(l, j);
      EXPECT_EQ(c.value(i, j), want) << i << ", " << j;
    }
}

TYPED_TEST(DeviceBodies, BlocksOfTeamGemm) {
  for (bool read_c : {false, true})
    for (auto [m, n, k] : {std::array<int, 3>{1, 1, 1}, {5, 7, 3}, {16, 9, 20}, {2, 2, 0}})
      for (Layout layout : {Layout::right, Layout::strided})
        check_blocks<TypeParam>(m, n, k, read_c, layout);
}

template <class Exec, class X, class Out>
void check_pieces(std::int64_t rows, std::int64_t cols, std::int64_t scale_rows,
                  std::int64_t scale_cols) {
  using detail::QuantizePass;
  Tensor<X, 2, Exec> x({rows, cols}, Layout::padded), back({rows, cols}), again({rows, cols});
  Tensor<Out, 2, Exec> out({rows, cols}, Layout::strided),
      device_out({rows, cols}, Layout::strided);
  Tensor<float, 2, Exec> scale({scale_rows, scale_cols}), device_scales({scale_rows, scale_cols});
  Random random(8);
  x.fill_uniform(random, -3, 3);
  x.at({rows / 2, cols / 2}) = poison<X>();
  x.upload();
  Exec const exec;
  quantize(exec, x.const_view(), out.view(), scale.view());
  auto const args = detail::quantize_arguments<Exec>("quantize", x.const_view(),
                                                     device_scales.view(), device_out.view());
  bool const fused = args.grid.row != 0 && args.grid.row_shift == 0;
  auto const pass = [&](QuantizePass what) {
    auto const pieces = detail::make_pieces(args.x.extent[1], args.x.extent[2], args.grid, fused);
    detail::QuantizePiece<X, Out> const op{args.x, args.out, args.grid, device_scales.view().data(),
                                           pieces, {false},  what};
    run_teams<Exec>(args.x.extent[1] * pieces.per_row, DeviceRow<decltype(op)>{op});
  };
  if (fused) {
    pass(QuantizePass::fused);
  } else {
    device_scales.fill(0);
    pass(QuantizePass::measure);
    device_scales.download();
    detail::ScaleRule<Out> const rule{false};
    device_scales.for_each(
        [&](auto const& at) { device_scales.at(at) = rule(device_scales.at(at)); });
    device_scales.upload();
    pass(QuantizePass::apply);
  }
  dequantize(exec, out.const_view(), scale.const_view(), back.view());
  auto const undo = detail::quantize_arguments<Exec>("dequantize", out.const_view(),
                                                     scale.const_view(), again.view());
  auto const pieces = detail::make_pieces(undo.x.extent[1], undo.x.extent[2], undo.grid, false);
  detail::DequantizePiece<Out, X> const op{undo.x, undo.out, undo.grid, pieces};
  run_teams<Exec>(undo.x.extent[1] * pieces.per_row, DeviceRow<decltype(op)>{op});
  for (auto* t : {&back, &again}) t->download();
  for (auto* t : {&out, &device_out}) t->download();
  for (auto* t : {&scale, &device_scales}) t->download();
  EXPECT_TRUE(same_bits(scale.elements(), device_scales.elements()));
  EXPECT_TRUE(same_bits(out.elements(), device_out.elements()));
  EXPECT_TRUE(same_bits(back.elements(), again.elements()));
  EXPECT_EQ(device_out.writes_outside(), 0u);
}

TYPED_TEST(DeviceBodies, Quantize) {
  using Exec = TypeParam;
  for (auto [rows, cols] : {std::pair{5, 300}, {130, 140}, {3, 5000}}) {
    std::int64_t const rb = (rows + 127) / 128, cb = (cols + 127) / 128;
    check_pieces<Exec, float, float8_e4m3>(rows, cols, rows, 1);
    check_pieces<Exec, float, float8_e4m3>(rows, cols, rows, cb);
    check_pieces<Exec, float, float8_e4m3>(rows, cols, rb, cb);
    check_pieces<Exec, float, float8_e4m3>(rows, cols, 1, 1);
    check_pieces<Exec, double, std::int8_t>(rows, cols, 1, cols);
    check_pieces<Exec, double, std::int8_t>(rows, cols, rb, 1);
  }
}

/// By lanes that move `Width` elements at once, where tensors in this layout allow it.
template <class Exec, int Width>
void check_activation_gradient(Tensor<float, 3, Exec> const& dout, Layout layout) {
  std::int64_t const batch = dout.extent(0), rows = dout.extent(1), cols = dout.extent(2);
  Tensor<float, 3, Exec> x({batch, rows, cols}), dx({batch, rows, cols}, layout);
  Random random(9);
  x.fill_uniform(random, -3, 3);
  auto const operand = [](auto const& view) {
    return detail::operand_of(detail::any_tensor(view));
  };
  for (Activation activation :
       {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
    using Op = detail::ActivationGradient<float, float>;
    Op const op{detail::operand_rows<float const>(operand(dout.const_view())),
                detail::operand_rows<float>(operand(dx.view())),
                detail::operand_rows<float const>(operand(x.const_view())),
                activation,
                {.rows = rows}};
    EXPECT_EQ(op.moves_at_once(), Width > 1);
    using Stretch = detail::PointwiseStretch<Op, Width>;
    std::int64_t const stretches = (cols + Stretch::span - 1) / Stretch::span;
    run_teams<Exec>(batch * rows * stretches, DeviceRow<Stretch>{Stretch{op, cols, stretches}});
    dx.download();
    EXPECT_EQ(dx.writes_outside(), 0u);
    auto const slope = [&](double v) {
      return activation == Activation::relu   ? double(v > 0)
             : activation == Activation::gelu ? reference::gelu_slope(v)
             : activation == Activation::silu ? reference::silu_slope(v)
                                              : reference::gelu_tanh_slope(v);
    };
    Comparison comparison("gemm_backward/device body/pre_activation", activation_name(activation));
    dx.for_each([&](auto const& i) {
      auto const [n, r, c] = i;
      double const d = dout.value(n, r, c), want = d * slope(x.value(n, r, c));
      comparison.add(dx.value(n, r, c), want, pre_activation_gradient_bound<float>(d, want, true),
                     {n, r, c});
    });
  }
}

TYPED_TEST(DeviceBodies, GradientOfTheActivationAndOfTheBias) {
  using Exec = TypeParam;
  std::int64_t const batch = 3, rows = 11, cols = 37;
  Tensor<float, 3, Exec> dout({batch, rows, cols}, Layout::permuted), wide({2, 3, 1500});
  Random random(8);
  dout.fill_integers(random, -9, 9);
  wide.fill_integers(random, -9, 9);
  check_activation_gradient<Exec, 1>(dout, Layout::left);
  check_activation_gradient<Exec, 4>(wide, Layout::right);
  auto const d = detail::operand_of(detail::any_tensor(dout.view()));

  detail::RowChunks const chunks{batch * rows, 7};
  Tensor<float, 2, Exec> partial({chunks.count(), cols});
  detail::RowChunkSum<float, float> const sums{
      detail::operand_rows<float const>(d), chunks, partial.view().data(), {.rows = rows}, false};
  run_teams<Exec>(chunks.count(), DeviceChunk<decltype(sums)>{sums});
  partial.download();
  for (std::int64_t c = 0; c < chunks.count(); ++c)
    for (std::int64_t j = 0; j < cols; ++j) {
      double want = 0;
      for (std::int64_t r = chunks.first(c); r < chunks.last(c); ++r)
        want += dout.value(r / rows, r % rows, j);
      EXPECT_EQ(partial.value(c, j), want);
    }
}

}  // namespace
}  // namespace attikos::test
