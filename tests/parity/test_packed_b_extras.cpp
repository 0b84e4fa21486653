// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm with a packed B: int8, what stands beside the matrices, and what is refused.
#include <attikos/host/amx.hpp>
#include <climits>

#include "../support/messages.hpp"
#include "packed_b_checks.hpp"

namespace attikos::test {
namespace {

template <class Exec>
class PackedExtras : public testing::Test {};
TYPED_TEST_SUITE(PackedExtras, SpaceCases, CaseName);

/// Exact, and as with the plain B where something follows the sum.
template <class Exec>
void check_packed_int8(std::int64_t m, std::int64_t n, std::int64_t k, bool trans_a, bool trans_b,
                       Layout layout) {
  SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << ", trans " << trans_a
                                  << trans_b << ", " << layout_name(layout));
  Tensor<std::int8_t, 2, Exec> a({trans_a ? k : m, trans_a ? m : k}, layout),
      b({trans_b ? n : k, trans_b ? k : n}, layout);
  Tensor<std::int32_t, 2, Exec> c({m, n}, layout);
  Tensor<std::int32_t, 1, Exec> zero_a({m}), zero_b({n});
  Tensor<float, 2, Exec> real({m, n}, layout);
  Tensor<std::int8_t, 2, Exec> eight({m, n}, layout);
  Tensor<float, 1, Exec> scale({n}), out({1});
  Random random(9);
  a.fill_integers(random, -128, 127);
  b.fill_integers(random, -128, 127);
  c.fill_integers(random, INT_MIN, INT_MAX);
  zero_a.fill_integers(random, -100, 100);
  zero_b.fill_integers(random, -100, 100);
  scale.fill_uniform(random, 0.5, 2);
  out.fill(300);
  Exec const exec;
  GemmOptions const options{.beta = 1, .trans_a = trans_a, .trans_b = trans_b};
  auto const before = c;
  expect_same_bits(exec, b.const_view(), trans_b, c, [&](auto const& right) {
    gemm(exec, a.const_view(), right, c.view(), options, zero_point_a(zero_a.const_view()),
         zero_point_b(zero_b.const_view()));
  });
  auto copy = before;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      std::int64_t sum = copy(i, j);
      for (std::int64_t l = 0; l < k; ++l) {
        std::int64_t const x = trans_a ? a(l, i) : a(i, l), y = trans_b ? b(j, l) : b(l, j);
        sum += (x - zero_a(i)) * (y - zero_b(j));
      }
      ASSERT_EQ(c(i, j), static_cast<std::int32_t>(static_cast<std::uint32_t>(sum))) << i << j;
    }
  GemmOptions const plain{.trans_a = trans_a, .trans_b = trans_b};
  expect_same_bits(exec, b.const_view(), trans_b, real, [&](auto const& right) {
    gemm(exec, a.const_view(), right, real.view(), plain, scale_b(scale.const_view()));
  });
  expect_same_bits(exec, b.const_view(), trans_b, eight, [&](auto const& right) {
    gemm(exec, a.const_view(), right, eight.view(), plain, scale_out(out.const_view()));
  });
}

TYPED_TEST(PackedExtras, Int8) {
  int turn = 0;
  for (auto [m, n, k] : {std::array<std::int64_t, 3>{0, 40, 40},
                         {40, 0, 40},
                         {40, 40, 0},
                         {1, 1, 33},
                         {40, 1, 1},
                         {1, 97, 131},
                         {13, 31, 63},
                         {33, 33, 65},
                         {17, 65, 511},
                         {20, 16, 513},
                         {33, 47, 1025},
                         {32, 32, 32},
                         {200, 32, 32}})
    for (int trans = 0; trans < 4; ++trans, ++turn)
      check_packed_int8<TypeParam>(m, n, k, (trans & 1) != 0, (trans & 2) != 0,
                                   all_layouts[static_cast<std::size_t>(turn) % 4]);
}

/// Scales in blocks along k, whose sums are scaled every 128 products, and of what was packed
/// transposed.
template <class Exec, class T>
void check_block_scales() {
  std::int64_t const m = 21, n = 70, k = 300, blocks = 3;
  for (bool trans_b : {false, true}) {
    Tensor<T, 2, Exec> a({m, k}), b({trans_b ? n : k, trans_b ? k : n});
    Tensor<float, 2, Exec> of_a({m, blocks}), c({m, n});
    Tensor<float, 2, Exec> of_b({trans_b ? n : blocks, trans_b ? blocks : n});
    Random random(11);
    a.fill_integers(random, -100, 100);
    b.fill_integers(random, -100, 100);
    of_a.fill_uniform(random, 0.5, 2);
    of_b.fill_uniform(random, 0.5, 2);
    Exec const exec;
    expect_same_bits(exec, b.const_view(), trans_b, c, [&](auto const& right) {
      gemm(exec, a.const_view(), right, c.view(), {.trans_b = trans_b}, scale_a(of_a.const_view()),
           scale_b(of_b.const_view()));
    });
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0, magnitude = 0;
        for (std::int64_t l = 0; l < k; ++l) {
          double const scales =
              of_a.value(i, l / 128) * (trans_b ? of_b.value(j, l / 128) : of_b.value(l / 128, j));
          double const term = scales * a.value(i, l) * (trans_b ? b.value(j, l) : b.value(l, j));
          sum += term;
          magnitude += std::abs(term);
        }
        // |computed − exact| ≤ (k + k/128 + 12)·ε·Σ|a||b|, as gemm.hpp states it.
        double const epsilon = 0x1p-23;
        ASSERT_NEAR(c.value(i, j), sum, (k + k / 128.0 + 12) * epsilon * magnitude) << i << j;
      }
  }
}
TYPED_TEST(PackedExtras, ScalesInBlocks) {
  check_block_scales<TypeParam, std::int8_t>();
  check_block_scales<TypeParam, bfloat16>();
  check_block_scales<TypeParam, float>();
}

TYPED_TEST(PackedExtras, FunctionsCountsAndPreActivations) {
  using T = bfloat16;
  std::int64_t const batch = 3, m = 20, n = 45, k = 100;
  Tensor<T, 3, TypeParam> a({batch, m, k}, Layout::permuted);
  Tensor<T, 2, TypeParam> b({k, n});
  Tensor<float, 3, TypeParam> c({batch, m, n}), pre({batch, m, n}, Layout::left);
  Tensor<std::int32_t, 1, TypeParam> counts({batch});
  Random random(12);
  a.fill_uniform(random);
  b.fill_uniform(random);
  counts.fill_integers(random, 1, m);
  TypeParam const exec;
  expect_same_bits(exec, b.const_view(), false, c, [&](auto const& right) {
    gemm(exec, a.const_view(), right, c.view(), {}, masked(counts.const_view()));
  });
  expect_same_bits(exec, b.const_view(), false, c, [&](auto const& right) {
    gemm(exec, a.const_view(), right, c.view(), {},
         epilogue([](float x, std::int64_t bt, std::int64_t i, std::int64_t j) {
           return x + static_cast<float>(bt + 2 * i - j);
         }));
  });
  expect_same_bits(exec, b.const_view(), false, pre, [&](auto const& right) {
    gemm(exec, a.const_view(), right, c.view(), {.activation = Activation::silu},
         pre_activation(pre.view()));
  });
  // Matrices of A behind pointers.
  std::vector<T const*> pointers;
  for (std::int64_t i = 0; i < batch; ++i)
    pointers.push_back(&a.const_view()(static_cast<std::size_t>(batch - 1 - i), 0, 0));
  expect_same_bits(exec, b.const_view(), false, c, [&](auto const& right) {
    gemm(exec, matrix_pointers(pointers.data(), batch, m, k, a.strides()[1], a.strides()[2]), right,
         c.view());
  });
}

using Space = Kokkos::DefaultHostExecutionSpace;
template <class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, Kokkos::HostSpace>;
using Bytes = Kokkos::View<std::uint8_t*, Kokkos::HostSpace>;

TEST(PackedB, IsRefusedOnOtherInstructions) {
  Matrix<float> a("a", 40, 50), b("b", 50, 60), c("c", 40, 60);
  auto const good = pack_b(Space(), b);
  for (int i = 0; i < host_isa_count; ++i) {
    auto const isa = static_cast<HostIsa>(i);
    if (isa == host_isa()) continue;
    auto other = good;
    other.layout = packed_b_layout<float>(isa, 50, 60);
    expect_error<UnsupportedError>(
        [&] { gemm(Space(), a, other, c); },
        {std::string("attikos::gemm: B was packed for ") + host_isa_name(isa),
         std::string("but this process uses ") + host_isa_name(host_isa()), "ATTIKOS_HOST_ISA"});
  }
  auto other = good;
  other.layout.version = 0;
  expect_error<UnsupportedError>([&] { gemm(Space(), a, other, c); },
                                 {"attikos::gemm: B was packed in layout version 0; expected 1"});
  other = good;
  other.layout.columns += 1;
  expect_error<UnsupportedError>([&] { gemm(Space(), a, other, c); },
                                 {"attikos::gemm: B is [50, 60] float32 in panels of",
                                  "expected [50, 60] float32 in panels of"});
  other = good;
  other.layout.type = DType::float64;
  expect_error<DtypeError>([&] { gemm(Space(), a, other, c); },
                           {"attikos::gemm: B holds packed float64; expected float32"});
  other = good;
  other.layout.n = -1;
  expect_error<ShapeError>([&] { gemm(Space(), a, other, c); },
                           {"attikos::gemm: packed B has extents [50, -1]"});
}

TEST(PackedB, IsRefusedWithoutItsMemory) {
  Matrix<float> a("a", 40, 50), b("b", 50, 60), c("c", 40, 60);
  std::size_t const size = pack_b_size(b);
  Bytes const memory("memory", size + 64);
  using Kokkos::subview;
  expect_error<ResourceError>(
      [&] {
        pack_b(Space(), b, subview(memory, std::pair<std::size_t, std::size_t>(0, size - 1)));
      },
      {"attikos::pack_b: memory has " + std::to_string(size - 1) + " bytes; expected at least " +
       std::to_string(size) + " for B of [50, 60] float32"});
  expect_error<ResourceError>(
      [&] {
        pack_b(Space(), b, subview(memory, std::pair<std::size_t, std::size_t>(16, size + 16)));
      },
      {"attikos::pack_b: memory begins at ", "; expected an address divisible by 64"});
  Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace> columns("columns", size / 4 + 1, 2);
  expect_error<StrideError>([&] { pack_b(Space(), b, subview(columns, Kokkos::ALL, 0)); },
                            {"attikos::pack_b: memory has stride 2; expected contiguous memory"});
  Kokkos::View<float*, Kokkos::HostSpace> const both("both", size / 4 + 50 * 60);
  Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace> const inside(
      both.data() + size / 4 - 8, 50, 60);
  expect_error<Error>([&] { pack_b(Space(), inside, both); },
                      {"attikos::pack_b: output memory shares memory with B"});
  auto packed = pack_b(Space(), b);
  auto const whole = packed.memory;
  packed.memory = {whole.data(), size - 1};
  expect_error<ResourceError>([&] { gemm(Space(), a, packed, c); },
                              {"attikos::gemm: packed B has " + std::to_string(size - 1) +
                               " bytes; expected at least " + std::to_string(size)});
  auto moved = pack_b(Space(), b, memory);
  moved.memory = {memory.data() + 8, size};
  expect_error<ResourceError>([&] { gemm(Space(), a, moved, c); },
                              {"attikos::gemm: B begins at ", "divisible by 64"});
  // C must not lie in what B is read from.
  Matrix<float> const over(reinterpret_cast<float*>(memory.data()), 4, 60);
  Matrix<float> few("few", 4, 50);
  auto const held = pack_b(Space(), b, memory);
  expect_error<Error>([&] { gemm(Space(), few, held, over); },
                      {"attikos::gemm: output C shares memory with B"});
}

TEST(PackedB, IsRefusedInOtherCalls) {
  Matrix<bfloat16> a("a", 40, 50), b("b", 50, 60), turned("turned", 60, 50), c("c", 40, 60);
  auto const packed = pack_b(Space(), b);
  auto const packed_turned = pack_b(Space(), turned, {.trans_b = true});
  expect_error<UnsupportedError>(
      [&] { gemm(Space(), a, packed, c, {.trans_b = true}); },
      {"attikos::gemm: trans_b is true; expected false, as in the call of pack_b() that packed B",
       "B is [50, 60] bfloat16, packed"});
  expect_error<UnsupportedError>([&] { gemm(Space(), a, packed_turned, c); },
                                 {"attikos::gemm: trans_b is false; expected true"});
  Matrix<bfloat16> wide("wide", 40, 51);
  expect_error<ShapeError>(
      [&] { gemm(Space(), wide, packed, c); },
      {"attikos::gemm: B has 50 rows but A has 51 columns", "B is [50, 60] bfloat16, packed"});
  Matrix<float> sums("sums", 40, 60), left("left", 40, 50), right("right", 50, 70),
      result("result", 40, 70);
  auto const panels = pack_b(Space(), right);
  int const columns = panels.layout.columns, half = columns / 2;
  using Traits = detail::TileTraits<Space, float>;
  if (half % Traits::cols == 0)
    expect_error<UnsupportedError>([&] { gemm(Space(), left, panels, result, {.tile_n = half}); },
                                   {"attikos::gemm: tile_n is " + std::to_string(half) +
                                    "; expected a multiple of " + std::to_string(columns)});
  if (host_isa() >= HostIsa::avx512) {
    Matrix<float> deep("deep", 40, 300), deep_b("deep_b", 300, 70);
    auto const p = pack_b(Space(), deep_b);
    expect_error<UnsupportedError>(
        [&] { gemm(Space(), deep, p, result, {.tile_k = 300}); },
        {"attikos::gemm: tile_k is 300; expected at most 256 beside a packed B"});
  }
}

TEST(PackedB, IsWhatExplainNames) {
  auto const explained = [](auto element, std::size_t n, bool trans = false) {
    using T = decltype(element);
    using C = std::conditional_t<std::is_integral_v<T>, std::int32_t, T>;
    Matrix<T> a("a", 40, 32), b("b", trans ? n : 32, trans ? 32 : n);
    Matrix<C> c("c", 40, n);
    auto const packed = pack_b(Space(), b, {.trans_b = trans});
    auto const with = explain(op::gemm, Space(), a, packed, c, {.trans_b = trans});
    auto const without =
        explain(op::gemm, Space(), a, b, c, {.trans_b = trans, .kernel = "portable"});
    EXPECT_EQ(with.kernel, "portable");
    EXPECT_EQ(with.instructions, without.instructions);
    EXPECT_EQ(without.packed_b, "");
    EXPECT_EQ(with.packed_b, packed.layout.to_string());
    EXPECT_NE(with.to_string().find("packed B: [32, "), std::string::npos);
    return with.packed_b;
  };
  EXPECT_EQ(explained(float(), 32), "[32, 32] float32 as a plain copy");
  EXPECT_NE(explained(float(), 33).find("[32, 33] float32 in panels of"), std::string::npos);
  std::string const pairs = host_isa() >= HostIsa::avx512_bf16
                                ? "[32, 70] bfloat16 in pairs, panels of 32 columns"
                                : "[32, 70] bfloat16 in panels of ";
  EXPECT_EQ(explained(bfloat16(), 70, true).substr(0, pairs.size()), pairs);
  EXPECT_EQ(explained(std::int8_t(), 70), host_isa() >= HostIsa::avx512_vnni
                                              ? "[32, 70] int8 in quads, panels of 32 columns"
                                              : "[32, 70] int8 as a plain copy");
}

}  // namespace
}  // namespace attikos::test
