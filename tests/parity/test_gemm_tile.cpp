// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles of gemm that the caller chose: same bits, what is refused, and the fastest found by timing.
#include <attikos/gemm/autotune_gemm.hpp>
#include <vector>

#include "../support/messages.hpp"
#include "../support/shapes.hpp"
#include "gemm_checks.hpp"

namespace attikos::test {
namespace {

using tune::TileConfig;

/// Register block of a space's kernel, of which tiles are multiples.
template <class Exec, class T>
struct Unit {
  using Traits = detail::TileTraits<Exec, Accumulator<T>>;
  static constexpr int m = Traits::rows, n = Traits::cols;
  /// So many k, or on a device as many as its scratch memory has room for beside any tile here.
  static constexpr int deep(std::int64_t k) {
    return static_cast<int>(is_host_space<Exec> ? k : std::min<std::int64_t>(k, 19));
  }
};

template <class C>
class GemmTile : public testing::Test {};
TYPED_TEST_SUITE(GemmTile, FloatingCases, CaseName);

/// Two matrices, more than a tile in every direction.
template <class Exec, class T>
struct Product {
  std::int64_t m, n, k;
  Tensor<T, 3, Exec> a{{2, m, k}}, b{{2, k, n}, Layout::left}, c{{2, m, n}, Layout::padded};
  Product(std::int64_t m_, std::int64_t n_, std::int64_t k_) : m(m_), n(n_), k(k_) {
    Random random(5);
    a.fill_uniform(random);
    b.fill_uniform(random);
  }
  TileConfig tile(GemmOptions const& options = {}) {
    return gemm_tile(Exec(), a.const_view(), b.const_view(), c.view(), options);
  }
  /// All that the portable kernel of a device has, and its own choice with one extent set.
  std::vector<TileConfig> device_tiles() {
    auto const tiles = detail::gemm_fragments_tiles<T, T, T>(
        Exec(), detail::gemm_arguments(
                    detail::gemm_tensors<Exec>(a.const_view(), b.const_view(), c.view()), {}));
    return {tiles[0], tiles[1], {0, 0, tiles[0].tile_k}};
  }
  std::vector<T> run(GemmOptions const& options) {
    c.fill(3);
    gemm(Exec(), a.const_view(), b.const_view(), c.view(), options);
    c.download();
    EXPECT_EQ(c.writes_outside(), 0u);
    return c.elements();
  }
};

TYPED_TEST(GemmTile, EveryTileGivesTheSameBits) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  using U = Unit<Exec, T>;
  Product<Exec, T> p(101, 131, 300);
  GemmOptions const plain{.kernel = "portable"};
  auto const automatic = p.tile(plain);
  EXPECT_GT(automatic.tile_m, 0);
  EXPECT_GT(automatic.tile_n, 0);
  EXPECT_GT(automatic.tile_k, 0);
  auto const want = p.run(plain);
  std::vector<TileConfig> tiles{automatic,           {U::m, U::n, 1},
                                {U::m * 2, 0, 0},    {0, U::n * 3, 0},
                                {0, 0, 7},           {U::m * 3, U::n, U::deep(300)},
                                {0, 0, U::deep(299)}};
  if constexpr (!is_host_space<Exec>) tiles = p.device_tiles();
  for (TileConfig const& tile : tiles) {
    GemmOptions const options = with_tile({}, tile);
    auto const used = p.tile(options);
    EXPECT_EQ(used, tune::completed(tile, automatic)) << to_string(tile);
    EXPECT_EQ(
        explain(op::gemm, Exec(), p.a.const_view(), p.b.const_view(), p.c.view(), options).kernel,
        "portable");
    EXPECT_TRUE(same_bits(p.run(options), want)) << to_string(tile);
  }
}

TYPED_TEST(GemmTile, WithinTheBound) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  using U = Unit<Exec, T>;
  int turn = 0;
  for (MatrixShape const& s :
       {MatrixShape{1, 1, 1}, MatrixShape{17, 9, 31}, MatrixShape{70, 90, 129}}) {
    std::vector<TileConfig> tiles{
        {U::m, U::n, 1}, {U::m, 0, 0}, {0, U::n, 0}, {0, 0, U::deep(s.k)}};
    if constexpr (!is_host_space<Exec>) tiles = Product<Exec, T>(s.m, s.n, s.k).device_tiles();
    for (TileConfig const& tile : tiles) {
      GemmCase p{.batch = 2, .m = s.m, .n = s.n, .k = s.k};
      p.options = with_tile({.alpha = 2, .beta = 0.5, .trans_a = turn % 2 == 1}, tile);
      p.a = all_layouts[static_cast<std::size_t>(turn) % 5];
      p.b = all_layouts[static_cast<std::size_t>(turn + 1) % 5];
      p.c = all_layouts[static_cast<std::size_t>(turn + 2) % 5];
      check_gemm<Exec, T>(p);
      ++turn;
    }
  }
}

TYPED_TEST(GemmTile, AutotuneRemembers) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  using U = Unit<Exec, T>;
  Product<Exec, T> p(40, 50, 60);
  auto const tune_with = [&](tune::TileCache& cache, std::vector<TileConfig> const& candidates,
                             GemmOptions const& options = {.kernel = "portable"}) {
    return autotune_gemm(Exec(), p.a.const_view(), p.b.const_view(), p.c.view(), options, cache,
                         candidates);
  };
  auto const want = p.run({});
  tune::TileCache cache;
  // Refused candidates are left out, zeros filled in.
  TileConfig good{U::m, U::n, 0};
  if constexpr (!is_host_space<Exec>) good = p.device_tiles()[1];
  std::vector<TileConfig> const candidates{{-1, 0, 0}, good, {U::m, U::n, 61}};
  p.c.fill(3);
  auto const first = tune_with(cache, candidates);
  EXPECT_EQ(first, p.tile(with_tile({}, good)));
  EXPECT_EQ(cache.size(), 1u);
  p.c.download();
  EXPECT_TRUE(same_bits(p.c.elements(), want)) << "real calls were timed";
  p.c.fill(3);
  EXPECT_EQ(tune_with(cache, candidates), first);
  p.c.download();
  EXPECT_TRUE(p.c.unchanged()) << "the cache answers";
  // Another problem is another entry; what the cache holds is taken, whatever the clock would say.
  auto const tensors = detail::gemm_tensors<Exec>(p.a.const_view(), p.b.const_view(), p.c.view());
  auto const args = detail::gemm_arguments(tensors, GemmOptions{.beta = 1});
  auto const key = tune::make_key(Exec(), "gemm", detail::gemm_tile_types(args), 2, 40, 50, 60);
  EXPECT_FALSE(cache.lookup(key));
  std::vector<TileConfig> two{{U::m, U::n, 1}, {U::m, U::n, 60}};
  if constexpr (!is_host_space<Exec>) two = {p.device_tiles()[0], p.device_tiles()[1]};
  for (auto const& tile : two) {
    cache.store(key, {tile, 1.0});
    EXPECT_EQ(tune_with(cache, two, {.beta = 1, .kernel = "portable"}), tile);
  }
  // Without candidates the library has some, the automatic tile among them.
  auto const best = tune_with(cache, {});
  EXPECT_TRUE(same_bits(p.run(with_tile({}, best)), want));
  expect_error<ResourceError>(
      [&] {
        tune_with(cache, {{-1, 4, 4}, {-2, 0, 0}});
      },
      {"none of 2 tiles runs for gemm", is_host_space<Exec> ? "tile_m is -2" : "a tile of -2 x "});
}

template <class Exec>
class GemmTileChecks : public testing::Test {};
TYPED_TEST_SUITE(GemmTileChecks, SpaceCases, CaseName);

TYPED_TEST(GemmTileChecks, WhatCannotRunIsRefusedBeforeAnythingIsWritten) {
  using Exec = TypeParam;
  using U = Unit<Exec, float>;
  Product<Exec, float> p(100, 100, 30);
  auto const refuse = [&]<class E>(std::type_identity<E>, GemmOptions const& options,
                                   std::initializer_list<std::string> parts) {
    auto const call = [&](bool runs) {
      if (runs)
        gemm(Exec(), p.a.const_view(), p.b.const_view(), p.c.view(), options);
      else
        p.tile(options);
    };
    expect_error<E>([&] { call(true); }, parts);
    expect_error<E>([&] { call(false); }, parts);
    p.c.download();
    EXPECT_TRUE(p.c.unchanged());
  };
  std::type_identity<ShapeError> const shape;
  std::type_identity<UnsupportedError> const unsupported;
  auto const text = [](int number) { return std::to_string(number); };
  if constexpr (!is_host_space<Exec>) {
    std::string const known = "expected " + to_string(p.device_tiles()[0]) + " or " +
                              to_string(p.device_tiles()[1]) + ", which the portable kernel has";
    refuse(unsupported, {.tile_m = -1}, {"attikos::gemm: a tile of -1 x ", known});
    refuse(unsupported, {.tile_m = 4, .tile_n = 4, .tile_k = 16},
           {"attikos::gemm: a tile of 4 x 4 x 16", known});
    return;
  }
  refuse(shape, {.tile_m = -1}, {"attikos::gemm: tile_m is -1; expected 1 or more, or 0"});
  refuse(shape, {.tile_n = 100 * U::n},
         {"attikos::gemm: tile_n is " + text(100 * U::n), "since n is 100"});
  refuse(shape, {.tile_k = 31}, {"attikos::gemm: tile_k is 31; expected at most 30 since k is 30"});
  refuse(unsupported, {.tile_m = U::m + 1},
         {"attikos::gemm: tile_m is " + text(U::m + 1) + "; expected a multiple of " + text(U::m)});
  // An extent of 0 strides costs nothing, but its tile would.
  Tensor<float, 2, Exec> one({1, 1}), c({1, 1});
  std::size_t const large = 1 << 20;
  Kokkos::View<float const**, Kokkos::LayoutStride, Exec> const wide(
      one.const_view().data(), Kokkos::LayoutStride(1, 0, large, 0));
  Kokkos::View<float const**, Kokkos::LayoutStride, Exec> const tall(
      one.const_view().data(), Kokkos::LayoutStride(large, 0, 1, 0));
  GemmOptions const deep{.tile_k = 1 << 20};
  expect_error<ResourceError>([&] { gemm(Exec(), wide, tall, c.view(), deep); },
                              {"attikos::gemm: a tile of ", " x 1048576 needs ", "bytes"});
  expect_error<ResourceError>([&] { explain(op::gemm, Exec(), wide, tall, c.view(), deep); },
                              {"attikos::gemm: a tile of "});
  // An empty product is checked too.
  Tensor<float, 2, Exec> none_a({0, 4}), none_b({4, 5}), none_c({0, 5});
  expect_error<ShapeError>(
      [&] {
        gemm(Exec(), none_a.const_view(), none_b.const_view(), none_c.view(),
             GemmOptions{.tile_k = 5});
      },
      {"tile_k is 5; expected at most 4"});
  gemm(Exec(), none_a.const_view(), none_b.const_view(), none_c.view(), GemmOptions{.tile_k = 4});
  // The products of a gradient have other extents.
  Tensor<float, 3, Exec> da({2, 100, 30});
  expect_error<UnsupportedError>(
      [&] {
        gemm_backward(Exec(), p.a.const_view(), p.b.const_view(), p.c.view(), da.view(), none,
                      GemmOptions{.tile_m = 4});
      },
      {"attikos::gemm_backward: tile_m, tile_n, tile_k are 4, 0, 0; expected 0"});
}

TYPED_TEST(GemmTileChecks, SmallProductsHaveNoTileUnlessOneIsSet) {
  using Exec = TypeParam;
  Product<Exec, float> p(8, 9, 10);
  GemmOptions const portable{.kernel = "portable"};
  tune::TileCache cache;
  if (is_host_space<Exec>) {
    EXPECT_EQ(p.tile(portable), TileConfig{});
    EXPECT_EQ(
        autotune_gemm(Exec(), p.a.const_view(), p.b.const_view(), p.c.view(), portable, cache),
        TileConfig{});
    EXPECT_EQ(cache.size(), 0u);
  }
  if constexpr (is_host_space<Exec>) {
    EXPECT_EQ(p.tile({.tile_k = 5}).tile_k, 5);
    EXPECT_EQ(p.run({.tile_k = 5}), p.run(portable));
  }
  Product<Exec, float> empty(0, 9, 10);
  EXPECT_EQ(empty.tile(portable), TileConfig{});
}

#if defined(KOKKOS_ENABLE_CUDA) && defined(ATTIKOS_HAVE_CUDA_COMPANION)
// Every tile that a compiled kernel lists keeps the call there, is used, and gives the same result.
TYPED_TEST(GemmTile, CompiledKernelsHaveTiles) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>) {
    // Enough rows for 16 bits to have a choice, few enough for the others not to go where is none.
    std::int64_t const m = sizeof(T) == 2 ? 1032 : 136, n = sizeof(T) == 2 ? 776 : 144, k = 64;
    Tensor<T, 3, Exec> a({1, m, k}), b({1, k, n}), c({1, m, n});
    Random random(5);
    a.fill_uniform(random);
    b.fill_uniform(random);
    GemmOptions const plain{.compute = Compute::tf32x3};
    auto const run = [&](GemmOptions const& options) {
      c.fill(3);
      gemm(Exec(), a.const_view(), b.const_view(), c.view(), options);
      c.download();
      return c.elements();
    };
    auto const why = [&](GemmOptions const& options) {
      return explain(op::gemm, Exec(), a.const_view(), b.const_view(), c.view(), options);
    };
    auto const tile = [&](GemmOptions const& options) {
      return gemm_tile(Exec(), a.const_view(), b.const_view(), c.view(), options);
    };
    std::string const kernel = why(plain).kernel;
    ASSERT_NE(kernel, "portable");
    auto const args = detail::gemm_arguments(
        detail::gemm_tensors<Exec>(a.const_view(), b.const_view(), c.view()), plain);
    auto const tiles = detail::gemm_kernel_tiles<T, T, T>(Exec(), args, "");
    ASSERT_GE(tiles.size(), 2u) << kernel;
    EXPECT_EQ(tile(plain), tiles.front());
    auto const want = run(plain);
    EXPECT_TRUE(same_bits(run(with_tile(plain, tiles.front())), want));
    for (TileConfig const& one : tiles) {
      GemmOptions const options = with_tile(plain, one);
      EXPECT_EQ(why(options).kernel, kernel) << to_string(one);
      EXPECT_EQ(tile(options), one);
      EXPECT_EQ(tile(with_tile(plain, {one.tile_m, one.tile_n, 0})), one);
      GemmCase p{.batch = 1, .m = m, .n = n, .k = k};
      p.options = options;
      check_gemm<Exec, T>(p);
    }
    TileConfig const none{tiles.front().tile_m, tiles.front().tile_n + 1, 0};
    GemmOptions demanded = with_tile(plain, none);
    demanded.kernel = kernel.c_str();
    expect_error<UnsupportedError>([&] { why(demanded); },
                                   {kernel, "it has no such tile for this call"});
    tune::TileCache cache;
    auto const best = autotune_gemm(Exec(), a.const_view(), b.const_view(), c.view(), plain, cache);
    EXPECT_NE(std::find(tiles.begin(), tiles.end(), best), tiles.end()) << to_string(best);
    EXPECT_EQ(cache.size(), 1u);
    c.fill(3);
    EXPECT_EQ(autotune_gemm(Exec(), a.const_view(), b.const_view(), c.view(), plain, cache), best);
    c.download();
    EXPECT_TRUE(c.unchanged()) << "the cache answers";
  }
}
#endif

// A kernel that does not know tiles must not take the call.
TEST(GemmTileDispatch, OtherKernelsRefuseATile) {
  EXPECT_EQ(abi::beyond(abi::GemmArgs{}, abi::plain_gemm_options), nullptr);
  for (int extent = 0; extent < 3; ++extent) {
    abi::GemmArgs g{};
    (extent == 0 ? g.tile.m : extent == 1 ? g.tile.n : g.tile.k) = 4;
    EXPECT_STREQ(abi::beyond(g, abi::plain_gemm_options), "its tile cannot be set");
  }
}

TYPED_TEST(GemmTileChecks, ScalesAlongKKeepTheirBlocks) {
  using Exec = TypeParam;
  Tensor<float8_e4m3, 2, Exec> a({50, 300}), b({300, 40}, Layout::left);
  Tensor<float, 2, Exec> sa({50, 3}), sb({3, 1}), c({50, 40});
  Random random(4);
  a.fill_uniform(random);
  b.fill_uniform(random);
  sa.fill_uniform(random, 0.5, 2);
  sb.fill_uniform(random, 0.5, 2);
  auto const run = [&](GemmOptions const& options) {
    c.fill(3);
    gemm(Exec(), a.const_view(), b.const_view(), c.view(), options, scale_a(sa.const_view()),
         scale_b(sb.const_view()));
    c.download();
    return c.elements();
  };
  auto const want = run({});
  int const deepest = is_host_space<Exec> ? 128 : 32;  // what fits into a device's scratch memory
  for (int k : {1, 16, deepest}) EXPECT_TRUE(same_bits(run({.tile_k = k}), want)) << k;
  using U = Unit<Exec, float>;  // narrow enough for any k
  for (int k : {48, 129, 256})
    expect_error<UnsupportedError>(
        [&] { run({.tile_m = U::m, .tile_n = U::n, .tile_k = k}); },
        {"tile_k is " + std::to_string(k) + "; expected a divisor of 128"});
  tune::TileCache cache;
  auto const best = autotune_gemm(Exec(), a.const_view(), b.const_view(), c.view(), {}, cache, {},
                                  scale_a(sa.const_view()), scale_b(sb.const_view()));
  EXPECT_EQ(128 % best.tile_k, 0);
}

}  // namespace
}  // namespace attikos::test
