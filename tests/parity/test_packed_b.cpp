// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm with a B that was packed ahead of time: the bits of the call with B itself, and the oracle's
// numbers.
#include <array>
#include <barrier>
#include <thread>

#include "packed_b_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class PackedFactors : public testing::Test {};
TYPED_TEST_SUITE(PackedFactors, FloatingCases, CaseName);

TYPED_TEST(PackedFactors, OfEveryShape) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  // Empty, single, prime, around panels (16, 32), units (64, 128) and steps (256; 4096 and 8192
  // of rows that are read where they lie) of k, and small products, which have no panels; both
  // sides of streamed rows.
  constexpr std::array<std::int64_t, 3> shapes[] = {
      {0, 40, 40},   {5, 0, 40},    {5, 40, 0},    {40, 40, 1},    {1, 1, 40},   {40, 1, 77},
      {1, 97, 131},  {8, 33, 65},   {9, 31, 257},  {13, 15, 63},   {7, 16, 64},  {31, 17, 127},
      {33, 47, 129}, {64, 48, 255}, {12, 49, 256}, {24, 127, 511}, {5, 63, 513}, {97, 129, 300},
      {32, 32, 32},  {33, 32, 32},  {200, 32, 20}, {3, 20, 33},    {2, 300, 3},  {14, 35, 8300}};
  int turn = 0;
  for (auto [m, n, k] : shapes)
    for (int trans = 0; trans < 4; ++trans, ++turn)
      check_packed<Exec, T>({.batch = -1,
                             .m = m,
                             .n = n,
                             .k = k,
                             .options = {.trans_a = (trans & 1) != 0, .trans_b = (trans & 2) != 0},
                             .a = all_layouts[static_cast<std::size_t>(turn) % 4],
                             .b = all_layouts[static_cast<std::size_t>(turn / 4 + turn) % 4],
                             .c = all_layouts[static_cast<std::size_t>(turn / 2) % 4]});
}

TYPED_TEST(PackedFactors, WithEveryEpilogue) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (auto activation : {Activation::none, Activation::relu, Activation::gelu,
                          Activation::gelu_tanh, Activation::silu})
    for (auto kind : {BiasKind::along_n, BiasKind::along_m}) {
      GemmOptions const options{
          .alpha = 0.75, .beta = -0.5, .trans_b = true, .activation = activation, .scale = 1.25};
      check_packed<Exec, T>(
          {.batch = -1, .m = 35, .n = 50, .k = 90, .options = options, .bias = kind});
      check_packed<Exec, T>({.batch = 3,
                             .m = 20,
                             .n = 37,
                             .k = 270,
                             .options = options,
                             .bias = kind,
                             .residual = true,
                             .a = Layout::padded});
    }
}

TYPED_TEST(PackedFactors, SharedByABatch) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  // Joined to one product, and matrices that no one stride leads through.
  for (auto layout : {Layout::right, Layout::left, Layout::permuted, Layout::strided})
    for (auto [m, n, k] :
         {std::array<std::int64_t, 3>{1, 40, 70}, {9, 65, 33}, {20, 20, 20}, {40, 8, 300}})
      check_packed<Exec, T>({.batch = 4, .m = m, .n = n, .k = k, .a = layout, .c = Layout::padded});
  check_packed<Exec, T>({.batch = 0, .m = 3, .n = 40, .k = 40});
  check_packed<Exec, T>({.batch = 3, .m = 9, .n = 40, .k = 70, .batch_a = Batch::extent_1});
}

TYPED_TEST(PackedFactors, OfOtherResults) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  GemmCase const p{.batch = -1, .m = 21, .n = 49, .k = 140, .options = {.trans_b = true}};
  if constexpr (std::is_same_v<T, double>) {
    check_packed<Exec, T, float>(p);
    check_packed<Exec, T, bfloat16>(p);
  } else {
    check_packed<Exec, T, float>(p);
    check_packed<Exec, T, float16>(p);
    check_packed<Exec, T, bfloat16>(p);
  }
}

/// Tiles of the caller's are whole panels, and change no bit.
TYPED_TEST(PackedFactors, InTilesOfTheCallers) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  Tensor<T, 2, Exec> a({101, 300}), b({300, 131}), c({101, 131});
  Random random(5);
  a.fill_uniform(random);
  b.fill_uniform(random);
  auto const packed = pack_b(Exec(), b.const_view());
  auto const run = [&](GemmOptions const& options) {
    c.fill(3);
    gemm(Exec(), a.const_view(), packed, c.view(), options);
    c.download();
    return c.elements();
  };
  using Traits = detail::TileTraits<Exec, Accumulator<T>>;
  int const panel = packed.layout.columns, rows = Traits::rows;
  auto const want = run({});
  auto const used = gemm_tile(Exec(), a.const_view(), packed, c.view());
  EXPECT_TRUE(same_bits(run(with_tile({}, used)), want)) << to_string(used);
  for (tune::TileConfig const& tile : {tune::TileConfig{rows, panel, 0},
                                       {2 * rows, 2 * panel, 0},
                                       {0, panel, 7},
                                       {0, detail::round_up(131, int{Traits::cols}), 256}})
    EXPECT_TRUE(same_bits(run(with_tile({}, tile)), want)) << to_string(tile);
}

/// Any number of threads and instances read one packed factor.
TYPED_TEST(PackedFactors, SharedByThreads) {
  using Exec = Kokkos::Serial;
  using T = typename TypeParam::T;
  constexpr std::size_t count = 4;
  Tensor<T, 2, Exec> a({37, 150}), b({150, 70}), want({37, 70});
  std::vector<Tensor<T, 2, Exec>> results;
  for (std::size_t t = 0; t < count; ++t) results.emplace_back(std::array<std::int64_t, 2>{37, 70});
  Random random(6);
  a.fill_uniform(random);
  b.fill_uniform(random);
  gemm(Exec(), a.const_view(), b.const_view(), want.view(), {.kernel = "portable"});
  want.download();
  auto const instances = Kokkos::Experimental::partition_space(Exec(), std::vector<int>(count, 1));
  auto const packed = pack_b(Exec(), b.const_view());
  std::barrier begin(static_cast<std::ptrdiff_t>(count));
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < count; ++t)
    threads.emplace_back([&, t] {
      begin.arrive_and_wait();
      for (int i = 0; i < 20; ++i) gemm(instances[t], a.const_view(), packed, results[t].view());
      instances[t].fence();
    });
  for (auto& thread : threads) thread.join();
  for (auto& result : results) {
    result.download();
    EXPECT_TRUE(same_bits(result.elements(), want.elements()));
  }
}

/// The same bytes by any number of threads, and those of the panels alone.
TYPED_TEST(PackedFactors, HaveTheBytesThatTheirSizeSays) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (auto [k, n] : {std::array<std::int64_t, 2>{131, 75}, {40, 1}, {1, 40}, {257, 16}, {8, 8}}) {
    Tensor<T, 2, Exec> b({k, n}, Layout::strided);
    Random random(8);
    b.fill_uniform(random);
    PackedMemory memory(pack_b_size(b.const_view()));
    auto const packed = pack_b(Exec(), b.const_view(), memory.view());
    Kokkos::fence("test");
    EXPECT_EQ(memory.writes_outside(), 0u);
    PackedMemory other(packed.layout.bytes);
    pack_b(Kokkos::Serial(), b.const_view(), other.view());
    EXPECT_TRUE(memory.bytes() == other.bytes());
    auto const owned = pack_b(Exec(), b.const_view());
    Kokkos::fence("test");
    EXPECT_EQ(owned.layout, packed.layout);
    EXPECT_EQ(std::vector<std::uint8_t>(owned.memory.data(),
                                        owned.memory.data() + owned.memory.extent(0)),
              other.bytes());
    EXPECT_EQ(packed.layout.form == PackedForm::plain, k == 8);
  }
}

}  // namespace
}  // namespace attikos::test
