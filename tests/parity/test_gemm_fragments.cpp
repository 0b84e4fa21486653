// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The product in fragments, which devices run, on a host: lanes one after the other, among them 64
// to a thread as on some devices. Data are small integers, so that results are known to the bit.
#include <algorithm>
#include <array>
#include <attikos/gemm/gemm.hpp>
#include <cstdint>
#include <utility>
#include <vector>

#include "../support/backends.hpp"
#include "../support/tensors.hpp"

namespace attikos::test {

namespace {

using Exec = Kokkos::DefaultHostExecutionSpace;

/// A function of the caller's.
struct Doubled {
  template <class X>
  KOKKOS_INLINE_FUNCTION X operator()(X x, std::int64_t batch, std::int64_t row,
                                      std::int64_t col) const {
    return 2 * x + static_cast<X>(batch + row - col);
  }
};

template <class Shape, class A, class B, class C>
struct Products {
  Random random;
  int turn = 0;

  /// Every other call in parts along k, none of them empty.
  detail::GemmCut cut_of(abi::GemmArgs const& g) {
    std::int64_t const steps = (g.k + Shape::depth - 1) / Shape::depth * g.outer;
    if (random.integer(0, 1) == 0 || steps < 2) return {};
    std::int64_t const length = (steps + 1) / random.integer(2, 4);
    if (length == 0) return {};
    return {0, static_cast<int>((steps + length - 1) / length), length};
  }

  /// Of a random shape up to 3 tiles, strides and epilogue.
  void check() {
    std::int64_t const batch = random.integer(1, 3), m = random.integer(1, 3 * Shape::m),
                       n = random.integer(1, 3 * Shape::n), k = random.integer(0, 70);
    auto const layout = [&] { return all_layouts[sz(random.integer(0, 4))]; };
    Tensor<A, 3, Exec> a({batch, m, k}, layout());
    Tensor<B, 3, Exec> b({random.integer(0, 1) == 0 ? 1 : batch, k, n}, layout());
    Tensor<C, 3, Exec> c({batch, m, n}, layout()), residuals({batch, m, n}, layout());
    Tensor<float, 1, Exec> biases({n});
    Tensor<float, 3, Exec> scales({batch, m, 1});
    a.fill_integers(random, -9, 9);
    b.fill_integers(random, -9, 9);
    residuals.fill_integers(random, -9, 9);
    biases.fill_integers(random, -9, 9);
    scales.fill_integers(random, 1, 4);
    bool const plain = turn % 3 == 0, function = turn % 3 == 1, adds = turn % 2 == 0;
    ++turn;
    GemmOptions options;
    if (!plain) options = {.alpha = 2, .beta = adds ? 1.0 : 0.0, .activation = Activation::relu};
    if (function) options.activation = Activation::none;
    if (options.beta != 0) c.fill_integers(random, -9, 9);
    auto const before = c;
    auto const run = [&](auto const& run_function, auto const&... extras) {
      auto const args = detail::gemm_arguments(
          detail::gemm_tensors<Exec>(a.const_view(), b.const_view(), c.view(), extras...), options);
      detail::GemmCut const cut = cut_of(args);
      detail::launch_gemm_fragments<Shape, A, B, C>("gemm", "portable", Exec(), args, run_function,
                                                    cut);
      if (cut.parts == 1 || options.beta != 0) return;
      c.download();
      auto const first = c;
      detail::launch_gemm_fragments<Shape, A, B, C>("gemm", "portable", Exec(), args, run_function,
                                                    cut);
      c.download();
      c.for_each([&](auto const& at) {
        auto const [z, i, j] = at;
        EXPECT_EQ(c.value(z, i, j), first.value(z, i, j)) << "the second time";
      });
    };
    if (plain)
      run(detail::Absent{});
    else if (function)
      run(Doubled{}, bias(biases.const_view()), residual(residuals.const_view()),
          epilogue(Doubled{}));
    else
      run(detail::Absent{}, bias(biases.const_view()), scale_a(scales.const_view()));
    c.download();
    EXPECT_EQ(c.writes_outside(), 0u);
    c.for_each([&](auto const& at) {
      auto const [z, i, j] = at;
      double x = 0;
      for (std::int64_t l = 0; l < k; ++l)
        x += a.value(z, i, l) * b.value(b.extent(0) == 1 ? 0 : z, l, j);
      if (!plain) {
        x *= 2 * (function ? 1 : scales.value(z, i, 0));
        if (options.beta != 0) x += before.value(z, i, j);
        x += biases.value(j);
        x = function ? 2 * x + static_cast<double>(z + i - j) : std::max(x, 0.0);
        if (function) x += residuals.value(z, i, j);
      }
      EXPECT_EQ(c.value(z, i, j), to_double(from_double<C>(x)))
          << z << ", " << i << ", " << j << " of " << m << " x " << n << " x " << k;
    });
  }
};

template <class Shape, class A, class B, class C>
void check_products(int count) {
  Products<Shape, A, B, C> products{Random(17)};
  for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) products.check();
}

/// A batch whose products are a tile of one thread each, their strides and bits.
template <class Shape, class T>
void check_alone(std::int64_t k) {
  Random random(23);
  for (Layout layout : all_layouts) {
    std::int64_t const batch = random.integer(1, 9), m = random.integer(1, Shape::m),
                       n = random.integer(1, Shape::n);
    Tensor<T, 3, Exec> a({batch, m, k}, layout), b({batch, k, n}, layout), c({batch, m, n}, layout);
    a.fill_integers(random, -9, 9);
    b.fill_integers(random, -9, 9);
    c.fill_integers(random, -9, 9);
    auto const before = c;
    auto const args = detail::gemm_arguments(
        detail::gemm_tensors<Exec>(a.const_view(), b.const_view(), c.view()), {.beta = 2});
    detail::launch_gemm_fragments<Shape, T, T, T>("gemm", "portable", Exec(), args,
                                                  detail::Absent{});
    c.download();
    EXPECT_EQ(c.writes_outside(), 0u);
    c.for_each([&](auto const& at) {
      auto const [z, i, j] = at;
      double x = 2 * before.value(z, i, j);
      for (std::int64_t l = 0; l < k; ++l) x += a.value(z, i, l) * b.value(z, l, j);
      EXPECT_EQ(c.value(z, i, j), x) << z << ", " << i << ", " << j;
    });
  }
}

template <class F, int FragmentsM, int FragmentsN>
using Tile = detail::GemmShape<F, 1, 1, FragmentsM, FragmentsN, 16>;

/// A block comes into scratch as `Threads` threads copy it, from strides that allow `width`
/// elements at once, and beside it nothing is written.
template <class F, class Stored, int MN, int K, int Threads>
void check_stage(std::int64_t stride, bool along_k, std::size_t first, int width) {
  using Stage = detail::Stage<F, Stored, MN, K>;
  using T = typename F::Element;
  std::int64_t const mn_stride = along_k ? stride : 1, k_stride = along_k ? 1 : stride;
  auto const whole = sz((along_k ? MN : K) * stride + 64);
  Random random(3);
  std::vector<Stored> from_storage(whole + 16);
  std::vector<T> to_storage(sz(Stage::size) + 48);
  auto const aligned = [](auto* p) {
    return p + (32 - reinterpret_cast<std::uintptr_t>(p) % 32) % 32 / sizeof(*p);
  };
  Stored* const from = aligned(from_storage.data()) + first;
  T* const to = aligned(to_storage.data());
  for (std::size_t i = 0; i < whole - first; ++i)
    from[i] = from_double<Stored>(static_cast<double>(random.integer(-9, 9)));
  Stage const stage({from, mn_stride, k_stride, {0, 0}, false});
  EXPECT_EQ(stage.width, width);
  for (auto [mn_end, k_end] :
       {std::pair{MN, K}, {MN - 1, K}, {MN, K - 3}, {1, 1}, {MN / 2 + 1, 5}}) {
    for (T& x : to_storage) x = from_double<T>(77);
    for (int thread = 0; thread < Threads; ++thread)
      if constexpr (F::reads_k_major_alone)
        stage.template copy<Threads, true>(to, from, mn_end, k_end, thread);
      else if (F::reads_k_major && stage.k_major)
        stage.template copy<Threads, F::reads_k_major>(to, from, mn_end, k_end, thread);
      else
        stage.template copy<Threads, false>(to, from, mn_end, k_end, thread);
    std::vector<bool> written(sz(Stage::size));
    for (int mn = 0; mn < MN; ++mn)
      for (int k = 0; k < K; ++k) {
        detail::FactorPlace const place = Stage::place(stage.k_major);
        std::size_t const at = sz(mn * place.mn + k * place.k);
        ASSERT_LT(at, written.size());
        written[at] = true;
        bool const inside = mn < mn_end && k < k_end;
        EXPECT_EQ(to_double(to[at]), inside ? to_double(from[mn * mn_stride + k * k_stride]) : 0.0)
            << mn << ", " << k << " of " << mn_end << ", " << k_end;
      }
    written.resize(written.size() + 16);
    for (std::size_t at = 0; at < written.size(); ++at)
      EXPECT_TRUE(written[at] || to_double(to[at]) == 77.0) << at;
  }
}

TEST(GemmFragments, StagedByManyThreads) {
  using Halves = EmulatedMma<bfloat16>;
  using Bytes = EmulatedMma<std::int8_t>;
  using Floats = AllLanes<detail::PlainFragments<float, 32>>;
  using Doubles = AllLanes<detail::PlainFragments<double, 32>>;
  for (bool along_k : {false, true}) {
    check_stage<Halves, bfloat16, 128, 32, 128>(136, along_k, 0, 8);
    check_stage<Halves, bfloat16, 64, 32, 128>(132, along_k, 0, 4);
    check_stage<Halves, bfloat16, 64, 32, 128>(136, along_k, 2, 2);
    check_stage<Halves, bfloat16, 64, 32, 128>(133, along_k, 0, 1);
    check_stage<Halves, float8_e4m3, 64, 32, 128>(144, along_k, 0, 1);
    check_stage<Bytes, std::int8_t, 128, 64, 128>(144, along_k, 0, along_k ? 16 : 1);
    check_stage<Floats, float, 128, 16, 256>(132, along_k, 0, along_k ? 1 : 4);
    check_stage<Doubles, double, 64, 8, 256>(130, along_k, 0, along_k ? 1 : 2);
    check_stage<Doubles, double, 64, 8, 256>(131, along_k, 0, 1);
  }
}

template <class F>
using GemmTile32 = detail::GemmShape<F, 1, 1, 1, 2, 32>;

TEST(GemmFragments, OfOneLane) {
  using F = detail::PlainFragments<float, 1>;
  check_products<Tile<F, 4, 4>, float, float, float>(60);
  check_products<Tile<F, 4, 2>, bfloat16, float8_e4m3, float16>(60);
  check_products<Tile<detail::PlainFragments<double, 1>, 4, 8>, double, float, double>(60);
  check_products<Tile<EmulatedMmaDouble, 2, 2>, double, double, double>(30);
  check_products<detail::GemmShape<F, 1, 1, 8, 8, 8, 4>, float, float, float>(60);
}

TEST(GemmFragments, Of32And64Lanes) {
  check_products<Tile<AllLanes<detail::PlainFragments<float, 32>>, 1, 1>, float, float, float>(40);
  check_products<Tile<AllLanes<detail::PlainFragments<float, 64>>, 2, 1>, float, float, bfloat16>(
      30);
  check_products<Tile<AllLanes<detail::PlainFragments<double, 64>>, 1, 1>, double, double, double>(
      30);
}

TEST(GemmFragments, OfMatrixInstructions) {
  check_products<Tile<EmulatedMma<bfloat16>, 1, 2>, bfloat16, bfloat16, bfloat16>(60);
  check_products<Tile<EmulatedMma<float16>, 2, 1>, float16, float8_e5m2, float>(60);
  check_products<GemmTile32<EmulatedMma<std::int8_t>>, std::int8_t, std::int8_t, float>(60);
}

TEST(GemmFragments, OfThreadsAlone) {
  using Plain = detail::PlainFragments<float, 1>;
  for (std::int64_t k : {0, 3, 8, 9, 33}) {
    check_alone<detail::GemmShape<Plain, 1, 1, 2, 2, 8, 2, 1>, float>(k);
    check_alone<detail::GemmShape<AllLanes<detail::PlainFragments<float, 32>>, 1, 1, 1, 1, 8, 3, 1>,
                float>(k);
    check_alone<detail::GemmShape<EmulatedMmaDouble, 1, 1, 1, 2, 16, 2, 1>, double>(k);
  }
}

TEST(GemmFragments, TilesByAnyOfTheirExtents) {
  Tensor<float, 2, Exec> a({70, 30}), b({30, 90}), c({70, 90});
  auto const tile_of = [&](GemmOptions const& options) {
    return gemm_tile(Exec(), a.const_view(), b.const_view(), c.view(), options);
  };
  auto const tiles = detail::gemm_fragments_tiles<float, float, float>(
      Exec(), detail::gemm_arguments(
                  detail::gemm_tensors<Exec>(a.const_view(), b.const_view(), c.view()), {}));
  for (auto const& tile : tiles) {
    EXPECT_EQ(tile_of({.tile_m = tile.tile_m}), tile);
    EXPECT_EQ(tile_of({.tile_n = tile.tile_n}), tile);
    EXPECT_EQ(tile_of({.tile_m = tile.tile_m, .tile_n = tile.tile_n}), tile);
  }
  EXPECT_EQ(tile_of({.tile_k = tiles[1].tile_k}), tiles[0]);
  EXPECT_THROW(tile_of({.tile_m = tiles[0].tile_m, .tile_n = tiles[1].tile_n}), UnsupportedError);
}

TEST(GemmFragments, CutAsTheModelHasIt) {
  using Large = detail::GemmShape<EmulatedMma<bfloat16>, 2, 4, 4, 2, 32>;
  using Small = detail::GemmShape<EmulatedMma<bfloat16>, 2, 2, 2, 2, 32, 3>;
  std::array const models{detail::gemm_tile_model<Large>(), detail::gemm_tile_model<Small>()};
  auto const cut = [&](std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch = 1,
                       std::int64_t outer = 1, bool counted = false) {
    abi::GemmArgs g{};
    std::int32_t const count = 0;
    g.m = m;
    g.n = n;
    g.k = k;
    g.batch = batch;
    g.outer = outer;
    if (counted) g.counts = &count;
    auto const result = detail::choose_gemm_cut(models, g, 0.02, 0.02, 132);
    std::int64_t const steps = (k + 31) / 32 * outer;
    EXPECT_GE(result.part_steps * result.parts, steps);
    EXPECT_LE(result.part_steps * (result.parts - 1), std::max<std::int64_t>(steps - 1, 0));
    return result;
  };
  EXPECT_EQ(cut(4096, 4096, 4096).tile, 0);
  EXPECT_EQ(cut(4096, 4096, 4096).parts, 1);
  EXPECT_EQ(cut(64, 64, 320).tile, 1);
  EXPECT_GT(cut(200, 300, 8192).parts, 3);
  EXPECT_EQ(cut(200, 300, 8192, 1, 1, true).parts, 1);
  EXPECT_EQ(cut(200, 300, 100).parts, 1);
  EXPECT_EQ(cut(200, 300, 8192, 200).parts, 1);
  EXPECT_GT(cut(200, 300, 128, 1, 64).parts, 3);
  for (std::int64_t k : {0, 1, 31, 4097})
    for (std::int64_t m : {0, 1, 65, 5000}) cut(m, 129, k, m % 3);
}

TEST(GemmFragments, GroupsOfRows) {
  using Shape = Tile<EmulatedMma<bfloat16>, 1, 1>;
  Random random(5);
  for (Layout layout : all_layouts) {
    std::int64_t const total = 83, n = 21, k = 19;
    std::vector<std::int32_t> const given{3, 3, 20, 21, 70, 80};
    auto const groups = static_cast<std::int64_t>(given.size()) - 1;
    Tensor<bfloat16, 2, Exec> a({total, k}, layout);
    Tensor<bfloat16, 3, Exec> b({groups, k, n}, layout);
    Tensor<float, 2, Exec> c({total, n});
    Tensor<std::int32_t, 1, Exec> offsets({groups + 1});
    a.fill_integers(random, -9, 9);
    b.fill_integers(random, -9, 9);
    for (std::int64_t g = 0; g <= groups; ++g) offsets(g) = given[sz(g)];
    offsets.upload();
    c.fill(-7);
    auto const args =
        detail::gemm_arguments(detail::gemm_tensors<Exec>(a.const_view(), b.const_view(), c.view(),
                                                          grouped(offsets.const_view())),
                               GemmOptions{});
    detail::launch_gemm_fragments<Shape, bfloat16, bfloat16, float>("gemm", "portable", Exec(),
                                                                    args, detail::Absent{});
    c.download();
    EXPECT_EQ(c.writes_outside(), 0u);
    for (std::int64_t i = 0; i < total; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double want = -7;
        for (std::int64_t g = 0; g < groups; ++g)
          if (i >= given[sz(g)] && i < given[sz(g + 1)]) {
            want = 0;
            for (std::int64_t l = 0; l < k; ++l) want += a.value(i, l) * b.value(g, l, j);
          }
        EXPECT_EQ(c.value(i, j), want) << i << ", " << j;
      }
  }
}

}  // namespace
}  // namespace attikos::test
