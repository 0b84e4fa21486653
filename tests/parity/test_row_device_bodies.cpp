// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of row kernels for devices, run on whatever space there is, by teams of one lane.
// Teams that walk over several rows, the next of which is under way while one is worked on, give
// the bits of teams that have one row each; softmax, norms and their gradient are compared with the
// float64 oracle, too.
#include <attikos/norm/layer_norm.hpp>
#include <attikos/norm/layer_norm_backward.hpp>
#include <attikos/reduce/cross_entropy.hpp>
#include <attikos/reduce/softmax.hpp>
#include <attikos/reference/reduce_reference.hpp>

#include "../support/tolerance_norms.hpp"
#include "row_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class RowDeviceBodies : public testing::Test {};
using DeviceRowCases = Cases<List<float, bfloat16>>;
TYPED_TEST_SUITE(RowDeviceBodies, DeviceRowCases, CaseName);

template <class T>
inline constexpr int widest = detail::neighbors<T, T>;
/// Stands for the widest access that elements have.
inline constexpr int at_most = -1;

template <class Tensor2>
std::vector<double> row_of_matrix(Tensor2 const& x, std::int64_t i) {
  std::vector<double> row;
  for (std::int64_t c = 0; c < x.extent(1); ++c) row.push_back(x.value(i, c));
  return row;
}

/// How lanes hold a row, and how many of its elements move at once.
template <int Items, detail::Lanes Share, int Width>
struct Held {
  static constexpr int items = Items;
  static constexpr detail::Lanes share = Share;
  static constexpr bool fits = Share != detail::Lanes::warps_by_turn;
  template <class T>
  static constexpr int width = Width == at_most ? widest<T> : Width;
};
using Whole = Held<32, detail::Lanes::warps, at_most>;
using WholeByTwo = Held<32, detail::Lanes::warps, 2>;
using WholeByOne = Held<32, detail::Lanes::warps, 1>;
using WholeByStrides = Held<32, detail::Lanes::warps, detail::any_stride>;
using Tiles = Held<16, detail::Lanes::warps_by_turn, at_most>;
using TilesByOne = Held<16, detail::Lanes::warps_by_turn, 1>;

/// A device's team thread is a warp.
template <class Exec>
inline constexpr int lanes = is_host_space<Exec> ? 1 : 32;

/// By `teams` teams that walk, or by one for each row if there are none.
template <class H, class Exec, class Op>
void run_op(Op const& op, std::int64_t rows, std::int64_t size, std::int64_t teams) {
  detail::RowShape const shape{rows, size, lanes<Exec>, 1};
  auto const launch = [&](auto walks, std::int64_t league) {
    using Kernel = detail::DeviceRowKernel<Exec, Op, H::items, H::template width<typename Op::X>,
                                           H::share, decltype(walks)::value>;
    Kokkos::parallel_for("attikos_test",
                         typename Kernel::Policy(Exec(), static_cast<int>(league), 1, lanes<Exec>),
                         Kernel{op, shape});
  };
  if (teams == 0)
    launch(std::false_type{}, rows);
  else
    launch(std::true_type{}, teams);
}

/// Calls check(rows, size, layout) for rows that H holds.
template <class H, class T, class Check>
void for_rows(Check const& check) {
  constexpr int width = H::template width<T>;
  constexpr std::int64_t step = detail::elements_at_once<width>, room = H::items;
  constexpr std::int64_t most = H::fits ? room : 9 * room;
  for (std::int64_t rows : {1, 2, 3, 7, 8, 9, 17, 33}) {
    for (std::int64_t size : {H::fits ? step : room + step, most - step, most}) {
      check(rows, size, Layout::right);
      if (width <= 1) check(rows, size, Layout::padded);
      if (width == detail::any_stride) check(rows, size, Layout::strided);
    }
  }
}

inline constexpr std::int64_t some_teams[] = {1, 2, 7, 8, 9, 16, 32};

/// x and a result of its shape.
template <class C>
struct Operands {
  using T = typename C::T;
  using Exec = typename C::Exec;
  Tensor<T, 2, Exec> x, out;
  Tensor<T, 1, Exec> weight, bias;
  Operands(std::int64_t rows, std::int64_t size, Layout layout)
      : x({rows, size}, layout), out({rows, size}, layout), weight({size}), bias({size}) {
    Random random(static_cast<std::uint64_t>(rows * size));
    x.fill_uniform(random, -2, 3);
    // Rows whose first element, which sums are taken relative to, is far from their mean.
    for (std::int64_t i = 1; i < rows; i += 3) x.at({i, 0}) = T(3000.0f);
    x.upload();
    weight.fill_uniform(random);
    bias.fill_uniform(random);
  }
  auto in() const { return detail::rows_of(detail::to_const_ref(x.const_view())); }
  auto to() { return detail::rows_of(detail::to_ref(out.view())); }
  auto weights() const { return detail::to_const_ref(weight.const_view()); }
  auto biases() const { return detail::to_const_ref(bias.const_view()); }

  /// Runs what `make` makes of these; the elements of the result.
  template <class H, class Make>
  std::vector<T> run(Make const& make, std::int64_t teams) {
    out.fill(std::numeric_limits<double>::quiet_NaN());
    auto const op = make(*this);
    run_op<H, Exec>(op, x.extent(0), x.extent(1), teams);
    Kokkos::fence();
    out.download();
    EXPECT_EQ(out.writes_outside(), 0u);
    return out.elements();
  }
};

/// Walking gives the bits of not walking; `compare` has these.
template <class C, class Make, class Compare>
void check_all(Make const& make, Compare const& compare) {
  auto const with = [&]<class H>(H) {
    for_rows<H, typename C::T>([&](std::int64_t rows, std::int64_t size, Layout layout) {
      Operands<C> operands(rows, size, layout);
      auto const want = operands.template run<H>(make, 0);
      compare(operands);
      for (std::int64_t teams : some_teams) {
        if (teams > rows) continue;
        EXPECT_TRUE(same_bits(operands.template run<H>(make, teams), want))
            << rows << " rows of " << size << " by " << teams << " teams, " << layout_name(layout);
      }
    });
  };
  with(Whole{});
  with(WholeByTwo{});
  with(WholeByOne{});
  with(WholeByStrides{});
  with(Tiles{});
  with(TilesByOne{});
}

TYPED_TEST(RowDeviceBodies, LayerNorm) {
  using T = typename TypeParam::T;
  auto const make = [](auto& o) {
    return detail::LayerNormDeviceRow<float, T, T, T, T>{o.in(), o.weights(), o.biases(), o.to(),
                                                         1e-5f};
  };
  check_all<TypeParam>(make, [](auto const& o) {
    Comparison comparison(name_of<TypeParam>("layer_norm"), "by device bodies", stored_as<T>());
    auto const w = values_of(o.weight), b = values_of(o.bias);
    for (std::int64_t i = 0; i < o.x.extent(0); ++i) {
      auto const in = row_of_matrix(o.x, i);
      auto const row = reference::layer_norm_row(in, w, b, 1e-5);
      for (std::int64_t c = 0; c < o.x.extent(1); ++c)
        comparison.add(o.out.value(i, c), row.out[sz(c)],
                       layer_norm_bound<T>(row, sz(c), in[sz(c)], w[sz(c)], b[sz(c)], 1e-5),
                       {i, c});
    }
  });
}

TYPED_TEST(RowDeviceBodies, RmsNormInPlace) {
  using T = typename TypeParam::T;
  auto const make = [](auto& o) {
    o.x.upload();  // which the result overwrote: a copy has the same memory
    o.out = o.x;
    auto const to = o.to();
    detail::Rows<T const> const from{to.data,         to.outer,        to.inner, to.size,
                                     to.outer_stride, to.inner_stride, to.stride};
    return detail::ScaledDeviceRow<float, T, detail::TensorRef<T const, 1>, T,
                                   detail::RmsFactor<float>>{from, o.weights(), to, {1e-6f}};
  };
  check_all<TypeParam>(make, [](auto const& o) {
    Comparison comparison(name_of<TypeParam>("rms_norm"), "by device bodies", stored_as<T>());
    for (std::int64_t i = 0; i < o.x.extent(0); ++i) {
      auto const in = row_of_matrix(o.x, i);
      auto const want = reference::rms_norm_row(in, values_of(o.weight), 1e-6);
      for (std::int64_t c = 0; c < o.x.extent(1); ++c)
        comparison.add(o.out.value(i, c), want[sz(c)], scaled_row_bound<T>(in.size(), want[sz(c)]),
                       {i, c});
    }
  });
}

TYPED_TEST(RowDeviceBodies, Softmax) {
  using T = typename TypeParam::T;
  auto const make = [](auto& o) {
    return detail::SoftmaxDeviceRow<float, T, T, false>{o.in(), o.to(), 1.0f};
  };
  check_all<TypeParam>(make, [](auto const& o) {
    Comparison comparison(name_of<TypeParam>("softmax"), "by device bodies", stored_as<T>());
    for (std::int64_t i = 0; i < o.x.extent(0); ++i) {
      auto const in = row_of_matrix(o.x, i);
      auto const want = reference::softmax_row(in, 1);
      for (std::int64_t c = 0; c < o.x.extent(1); ++c)
        comparison.add(o.out.value(i, c), want[sz(c)], softmax_bound<T>(in, 1, want[sz(c)]),
                       {i, c});
    }
  });
}

// Nothing of a row is stored: the last time that it is gone through is a sum.
TYPED_TEST(RowDeviceBodies, CrossEntropy) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  auto const with = [&]<class H>(H) {
    for_rows<H, T>([&](std::int64_t rows, std::int64_t size, Layout layout) {
      Operands<TypeParam> o(rows, size, layout);
      for (float smoothing : {0.0f, 0.25f}) {
        Tensor<std::int32_t, 1, Exec> labels({rows});
        for (std::int64_t i = 0; i < rows; ++i)
          labels.at({i}) = static_cast<std::int32_t>(i * 7 % size);
        labels.upload();
        std::vector<float> want;
        for (std::int64_t teams : {0, 1, 2, 7, 8, 9, 32}) {
          if (teams > rows) continue;
          Tensor<float, 1, Exec> loss({rows}), lse({rows});
          using Op = detail::CrossEntropyDeviceRow<float, T, std::int32_t, float>;
          Op const op{
              {o.in(),
               {detail::values_of_rows(detail::to_const_ref(labels.const_view())), smoothing, -100},
               detail::values_of_rows(detail::to_ref(loss.view())),
               detail::values_of_rows(detail::to_ref(lse.view()))}};
          run_op<H, Exec>(op, rows, size, teams);
          Kokkos::fence();
          loss.download();
          lse.download();
          std::vector<float> got;
          for (std::int64_t i = 0; i < rows; ++i) {
            got.push_back(loss.at({i}));
            got.push_back(lse.at({i}));
            EXPECT_TRUE(std::isfinite(loss.at({i}))) << rows << " rows of " << size;
          }
          if (teams == 0) want = got;
          EXPECT_TRUE(same_bits(got, want)) << rows << " rows of " << size << " by " << teams;
        }
      }
    });
  };
  with(Whole{});
  with(WholeByTwo{});
  with(WholeByOne{});
  with(WholeByStrides{});
  with(Tiles{});
  with(TilesByOne{});
}

/// dx, and what the chunks' sums come to: the gradients of weight and bias one behind the other.
template <class C>
void compare_gradient(Operands<C> const& o, Tensor<typename C::T, 2, typename C::Exec> const& dout,
                      Tensor<float, 2, typename C::Exec> const& sums) {
  using T = typename C::T;
  Comparison comparison(name_of<C>("layer_norm_backward"), "by device bodies", stored_as<T>());
  Comparison of_sums(name_of<C>("layer_norm_backward/sums"), "by device bodies");
  auto const w = values_of(o.weight);
  std::int64_t const rows = dout.extent(0), size = dout.extent(1);
  std::vector<double> sum(sz(2 * size)), magnitude(sz(2 * size)), error(sz(2 * size));
  for (std::int64_t i = 0; i < rows; ++i) {
    auto const in = row_of_matrix(o.x, i), g = row_of_matrix(dout, i);
    auto const row = reference::layer_norm_gradient_row(in, w, g, 1e-5);
    LayerNormGradientBound<T> const bound(row, reference::layer_norm_row(in, w, w, 1e-5), w, g,
                                          1e-5);
    for (std::int64_t c = 0; c < size; ++c) {
      auto const k = sz(c), of_bias = sz(size + c);
      comparison.add(o.out.value(i, c), row.dx[k], bound.dx(k), {i, c});
      sum[k] += g[k] * row.normalized[k];
      magnitude[k] += std::abs(g[k] * row.normalized[k]);
      error[k] += bound.weight_term(k);
      sum[of_bias] += g[k];
      magnitude[of_bias] += std::abs(g[k]);
    }
  }
  for (std::int64_t c = 0; c < 2 * size; ++c) {
    double got = 0;
    for (std::int64_t chunk = 0; chunk < sums.extent(0); ++chunk) got += sums.value(chunk, c);
    of_sums.add(
        got, sum[sz(c)],
        row_sum_bound<float>(static_cast<double>(rows), error[sz(c)], magnitude[sz(c)], sum[sz(c)]),
        {c});
  }
}

/// Chunks of rows whose next are under way give the bits of chunks that wait, in dx and in sums.
/// Rows of more than `Items` elements are not held.
template <class H, class C>
void check_gradient(std::int64_t rows, std::int64_t size, Layout layout) {
  using T = typename C::T;
  using Exec = typename C::Exec;
  Operands<C> o(rows, size, layout);
  Tensor<T, 2, Exec> dout({rows, size}, layout);
  Random random(7);
  dout.fill_uniform(random);
  for (std::int64_t chunks : {1, 2, 3, 8, 16, 32, static_cast<int>(rows)}) {
    if (chunks > rows) continue;
    auto const run = [&](auto walks) {
      using Op = detail::LayerNormDeviceGradient<float, T, T, T, T>;
      using Kernel = detail::DeviceGradientKernel<Exec, Op, H::items, H::template width<T>,
                                                  H::share, walks(), 16>;
      Tensor<float, 2, Exec> sums({chunks, 2 * size});
      o.out.fill(std::numeric_limits<double>::quiet_NaN());
      Op const op{o.in(), o.weights(), detail::rows_of(detail::to_const_ref(dout.const_view())),
                  o.to(), 1e-5f,       sums.view().data()};
      Kokkos::parallel_for(
          "attikos_test", typename Kernel::Policy(Exec(), static_cast<int>(chunks), 1, lanes<Exec>),
          Kernel{op, {rows, size, lanes<Exec>, 1}, chunks});
      Kokkos::fence();
      o.out.download();
      sums.download();
      EXPECT_EQ(o.out.writes_outside() + sums.writes_outside(), 0u);
      compare_gradient(o, dout, sums);
      return std::pair{o.out.elements(), sums.elements()};
    };
    auto const want = run(std::false_type{});
    if constexpr (H::fits) {
      auto const got = run(std::true_type{});
      EXPECT_TRUE(same_bits(got.first, want.first)) << rows << ", " << size << ", " << chunks;
      EXPECT_TRUE(same_bits(got.second, want.second)) << rows << ", " << size << ", " << chunks;
    }
  }
}

TYPED_TEST(RowDeviceBodies, LayerNormBackward) {
  auto const with = [&]<class H>(H) {
    for_rows<H, typename TypeParam::T>([&](std::int64_t rows, std::int64_t size, Layout layout) {
      check_gradient<H, TypeParam>(rows, size, layout);
    });
  };
  with(Held<16, detail::Lanes::few, at_most>{});
  with(Held<16, detail::Lanes::few, 2>{});
  with(Held<16, detail::Lanes::few, 1>{});
  with(Held<16, detail::Lanes::few, detail::any_stride>{});
  with(Held<16, detail::Lanes::warps_by_turn, at_most>{});
  with(Held<16, detail::Lanes::warps_by_turn, 1>{});
  with(Held<16, detail::Lanes::warps_by_turn, detail::any_stride>{});
}

}  // namespace
}  // namespace attikos::test
