// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention: workspace, lengths from the device, tensors that are not LayoutStride, 64-bit offsets.
#include <cstddef>

#include "../support/sparse_memory.hpp"
#include "attention_checks.hpp"

namespace attikos::test {
namespace {

template <class Exec>
class AttentionOptionsOf : public testing::Test {};
TYPED_TEST_SUITE(AttentionOptionsOf, SpaceCases, CaseName);

TYPED_TEST(AttentionOptionsOf, FlashNeedsNoWorkspace) {
  AttentionCase const p{.shape = {2, 4, 2, 33, 65, 16, 16}};
  AttentionOperands<TypeParam, float> o(p);
  EXPECT_EQ(attention_workspace_size(o.q.view(), o.k.view(), o.v.view(), AttentionOptions{}), 0u);
}

/// The portable kernels are at least as precise as any of the modes allows.
TYPED_TEST(AttentionOptionsOf, ModesOfPrecision) {
  for (auto compute : {Compute::ieee, Compute::tf32, Compute::tf32x3}) {
    for (auto algorithm : all_algorithms) {
      AttentionCase const p{
          .shape = {2, 4, 2, 33, 65, 16, 16},
          .options = {
              .algorithm = algorithm, .kernel = portable_name(algorithm), .compute = compute}};
      AttentionOperands<TypeParam, float> o(p);
      Random random(4);
      o.fill(p, random);
      call_attention(TypeParam(), p, o);
      o.download();
      compare_attention(p, o);
    }
  }
}

TYPED_TEST(AttentionOptionsOf, WorkspaceOfItsSizeIsEnoughAndItsContentMeansNothing) {
  for (auto algorithm : all_algorithms) {
    AttentionCase const p{.shape = {2, 4, 2, 33, 65, 16, 16},
                          .options = {.causal = true, .algorithm = algorithm}};
    AttentionOperands<TypeParam, float> o(p);
    Random random(4);
    o.fill(p, random);
    auto const bytes = static_cast<std::int64_t>(
        attention_workspace_size(o.q.view(), o.k.view(), o.v.view(), p.options));
    for (int byte : {0xff, 0x7f, 0x00}) {  // NaN, large, zero
      Kokkos::View<std::byte*, typename TypeParam::memory_space> memory("workspace",
                                                                        sz(bytes) + 64);
      auto host = Kokkos::create_mirror_view(memory);
      for (std::size_t i = 0; i < host.extent(0); ++i) host(i) = static_cast<std::byte>(byte);
      Kokkos::deep_copy(memory, host);
      o.out.upload();
      attention(
          TypeParam(), o.q.const_view(), o.k.const_view(), o.v.const_view(), o.out.view(),
          o.lse.view(), p.options,
          workspace(Kokkos::subview(memory, std::pair<std::size_t, std::size_t>(0, sz(bytes)))));
      o.download();
      compare_attention(p, o);
      Kokkos::deep_copy(host, memory);
      for (std::size_t i = sz(bytes); i < host.extent(0); ++i) {
        ASSERT_EQ(static_cast<int>(host(i)), byte) << "written past the end of the workspace";
      }
    }
  }
}

TYPED_TEST(AttentionOptionsOf, ExtrasInAnyOrder) {
  AttentionCase const p{.shape = {2, 2, 1, 9, 20, 8, 8},
                        .options = {.algorithm = AttentionAlgorithm::naive},
                        .lengths_q = {9, 4},
                        .lengths_kv = {11, 20}};
  AttentionOperands<TypeParam, float> o(p);
  Random random(4);
  o.fill(p, random);
  Kokkos::View<std::byte*, typename TypeParam::memory_space> const memory(
      "workspace", attention_workspace_size(o.q.view(), o.k.view(), o.v.view(), p.options));
  attention(TypeParam(), o.q.const_view(), o.k.const_view(), o.v.const_view(), o.out.view(),
            o.lse.view(), p.options, workspace(memory),
            lengths(o.lengths_q.view(), o.lengths_kv.view()));
  o.download();
  compare_attention(p, o);
}

struct EqualWeights {
  float each;
  KOKKOS_FUNCTION float operator()(std::int64_t, std::int64_t, std::int64_t, std::int64_t) const {
    return each;
  }
};

template <class Exec, class T>
void check_weights_cancel() {
  AttentionCase const p{.shape = {1, 2, 1, 40, 70, 16, 24}};
  AttentionOperands<Exec, T> o(p);
  Random random(4);
  o.fill(p, random);
  auto const run = [&](auto const&... extras) {
    attention(Exec(), o.q.const_view(), o.k.const_view(), o.v.const_view(), o.out.view(),
              o.lse.view(), p.options, extras...);
    o.download();
    return o.out;
  };
  auto const plain = run();
  double largest = 0;
  for (std::int64_t j = 0; j < p.shape.seqlen_kv; ++j)
    for (std::int64_t c = 0; c < p.shape.dv; ++c)
      largest = std::max(largest, std::abs(o.v.value(0, 0, j, c)));
  // Either way weights and results are rounded once each, and there are sums of 70 products.
  double const bound =
      (4 * precision<T>().roundoff + 2 * (70 + 8) * precision<float>().roundoff) * largest;
  for (float each : {1e-30f, 1e-8f, 1e5f, 1e30f}) {
    auto const got = run(weight(EqualWeights{each}));
    for (std::int64_t h = 0; h < p.shape.heads_q; ++h)
      for (std::int64_t i = 0; i < p.shape.seqlen_q; ++i)
        for (std::int64_t c = 0; c < p.shape.dv; ++c)
          ASSERT_NEAR(got.value(0, h, i, c), plain.value(0, h, i, c), bound)
              << "weights of " << each;
  }
}

// What a functor multiplies weights by cancels, however large or small it is.
TYPED_TEST(AttentionOptionsOf, EqualWeightsCancel) {
  check_weights_cancel<TypeParam, float>();
  check_weights_cancel<TypeParam, float16>();
  check_weights_cancel<TypeParam, bfloat16>();
}

/// Counts what it is asked of pairs that there are not.
template <class Exec>
struct AsksOfPairs {
  Kokkos::View<int, Exec> outside;
  std::int64_t extent[4];
  KOKKOS_FUNCTION float operator()(std::int64_t b, std::int64_t h, std::int64_t i,
                                   std::int64_t j) const {
    bool const inside = b >= 0 && b < extent[0] && h >= 0 && h < extent[1] && i >= 0 &&
                        i < extent[2] && j >= 0 && j < extent[3];
    if (!inside) Kokkos::atomic_inc(&outside());
    return 1;
  }
};

// What a functor reads may end with the last pair.
TYPED_TEST(AttentionOptionsOf, FunctorsAreAskedOfPairsThatThereAre) {
  for (auto [queries, keys] : {std::pair<std::int64_t, std::int64_t>{40, 70}, {33, 1}, {3, 257}})
    for (bool causal : {false, true}) {
      AttentionCase p{.shape = {2, 3, 3, queries, keys, 16, 24}};
      p.options.causal = causal;
      AttentionOperands<TypeParam, float> o(p);
      Random random(5);
      o.fill(p, random);
      Kokkos::View<int, TypeParam> const outside("attikos_test");
      AsksOfPairs<TypeParam> const asks{outside, {2, 3, queries, keys}};
      attention(TypeParam(), o.q.const_view(), o.k.const_view(), o.v.const_view(), o.out.view(),
                o.lse.view(), p.options, weight(asks));
      int count = 0;
      Kokkos::deep_copy(count, outside);
      EXPECT_EQ(count, 0) << queries << " queries, " << keys << " keys, causal " << causal;
    }
}

// A key that a query must not see must not reach it as 0·NaN either, wherever tiles end.
TYPED_TEST(AttentionOptionsOf, NanBehindTheCausalMaskReachesNoRow) {
  for (auto algorithm : all_algorithms) {
    AttentionCase const p{.shape = {1, 2, 1, 300, 300, 16, 40},
                          .options = {.causal = true, .algorithm = algorithm}};
    AttentionOperands<TypeParam, float> o(p);
    Random random(4);
    o.fill(p, random);
    call_attention(TypeParam(), p, o);
    o.download();
    auto const clean = o.out;
    // Fragments sum such a row anew, in another order: up to 300 weighted values, twice.
    double largest = 0;
    for (std::int64_t j = 0; j < 300; ++j)
      for (std::int64_t c = 0; c < p.shape.dv; ++c)
        largest = std::max(largest, std::abs(o.v.value(0, 0, j, c)));
    double const bound = attikos::detail::multiplies_in_fragments<TypeParam>
                             ? 2 * (300 + 16) * precision<float>().roundoff * largest
                             : 0;
    for (std::int64_t const bad : {0, 1, 13, 130, 299}) {
      for (std::int64_t c = 0; c < p.shape.dv; ++c) o.v(0, 0, bad, c) = poison<float>();
      o.v.upload();
      call_attention(TypeParam(), p, o);
      o.download();
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t i = 0; i < 300; ++i) {
          for (std::int64_t c = 0; c < p.shape.dv; ++c) {
            double const value = o.out.value(0, h, i, c);
            if (i < bad) {
              ASSERT_NEAR(value, clean.value(0, h, i, c), bound) << describe(p) << " key " << bad;
            } else {
              ASSERT_TRUE(std::isnan(value)) << describe(p) << " key " << bad << " row " << i;
            }
          }
        }
      }
      o.fill(p, random = Random(4));
    }
  }
}

// The host does not read lengths; kernels clamp them to the allocation, so that nothing is read or
// written outside (the padding is poison and would show, and ASan watches).
TYPED_TEST(AttentionOptionsOf, LengthsAreClamped) {
  for (auto algorithm : all_algorithms) {
    for (int beyond : {1, 2000000000}) {
      AttentionCase p{.shape = {2, 2, 1, 9, 20, 8, 8},
                      .options = {.algorithm = algorithm},
                      .layout = Layout::padded,
                      .lengths_q = {9, 0},
                      .lengths_kv = {20, 0}};
      AttentionOperands<TypeParam, float> o(p);
      Random random(4);
      o.fill(p, random);
      o.lengths_q(0) = 9 + beyond;
      o.lengths_kv(0) = 20 + beyond;
      o.lengths_q(1) = -beyond;
      o.lengths_kv(1) = -beyond;
      o.lengths_q.upload();
      o.lengths_kv.upload();
      call_attention(TypeParam(), p, o);
      o.download();
      EXPECT_EQ(o.out.writes_outside(), 0u);
      compare_attention(p, o);
    }
  }
}

TYPED_TEST(AttentionOptionsOf, ValidateLengths) {
  Tensor<std::int32_t, 1, TypeParam> lengths({3}, Layout::strided);
  auto const set = [&](int a, int b, int c) {
    lengths(0) = a;
    lengths(1) = b;
    lengths(2) = c;
    lengths.upload();
  };
  set(0, 5, 9);
  EXPECT_NO_THROW(validate_lengths(TypeParam(), lengths.const_view(), 9));
  EXPECT_THROW(validate_lengths(TypeParam(), lengths.const_view(), 8), ShapeError);
  set(0, -1, 9);
  EXPECT_THROW(validate_lengths(TypeParam(), lengths.const_view(), 9), ShapeError);
}

template <class Layout, class Exec>
void check_static_layout() {
  AttentionCase const p{.shape = {2, 4, 2, 19, 37, 20, 12}};
  AttentionOperands<Exec, float> o(p);
  Random random(4);
  o.fill(p, random);
  using View = Kokkos::View<float****, Layout, Exec>;
  View q("q", 2, 4, 19, 20), k("k", 2, 2, 37, 20), v("v", 2, 2, 37, 12), out("out", 2, 4, 19, 12);
  Kokkos::View<float***, Layout, Exec> lse("lse", 2, 4, 19);
  Exec exec;
  Kokkos::deep_copy(exec, q, o.q.view());
  Kokkos::deep_copy(exec, k, o.k.view());
  Kokkos::deep_copy(exec, v, o.v.view());
  Kokkos::View<float const****, Layout, Exec, Kokkos::MemoryTraits<Kokkos::Unmanaged>> const
      const_k(k);
  attention(exec, q, const_k, v, out, lse);
  Kokkos::deep_copy(exec, o.out.view(), out);
  Kokkos::deep_copy(exec, o.lse.view(), lse);
  o.download();
  compare_attention(p, o);
}

TYPED_TEST(AttentionOptionsOf, StaticLayouts) {
  check_static_layout<Kokkos::LayoutRight, TypeParam>();
  check_static_layout<Kokkos::LayoutLeft, TypeParam>();
}

TYPED_TEST(AttentionOptionsOf, Mdspan) {
  AttentionCase const p{.shape = {2, 4, 2, 19, 37, 20, 12}};
  AttentionOperands<TypeParam, float> o(p);
  Random random(4);
  o.fill(p, random);
  using Span = Kokkos::mdspan<float, Kokkos::dextents<int, 4>>;
  Kokkos::mdspan<float const, Kokkos::extents<int, 2, 4, 19, 20>> const q(o.q.view().data());
  attention(TypeParam(), q, Span(o.k.view().data(), 2, 2, 37, 20),
            Span(o.v.view().data(), 2, 2, 37, 12), Span(o.out.view().data(), 2, 4, 19, 12),
            Kokkos::mdspan<float, Kokkos::dextents<int, 3>>(o.lse.view().data(), 2, 4, 19));
  o.download();
  compare_attention(p, o);
}

// The same key head seen twice through a stride of 0: overlapping inputs are legal.
TYPED_TEST(AttentionOptionsOf, BroadcastInputs) {
  AttentionCase const once{.shape = {1, 2, 1, 19, 37, 20, 12}};
  AttentionOperands<TypeParam, float> o(once);
  Random random(4);
  o.fill(once, random);
  using View = typename decltype(o.q)::template ViewOf<float const, 4>;
  View const k(o.k.view().data(), Kokkos::LayoutStride(1, 1, 2, 0, 37, 20, 20, 1));
  View const v(o.v.view().data(), Kokkos::LayoutStride(1, 1, 2, 0, 37, 12, 12, 1));
  attention(TypeParam(), o.q.const_view(), k, v, o.out.view(), o.lse.view());
  o.download();
  compare_attention(once, o);
}

TEST(AttentionDefaultSpace, MayBeLeftOut) {
  using Exec = Kokkos::DefaultExecutionSpace;
  AttentionCase const p{.shape = {1, 2, 1, 19, 37, 20, 12}};
  AttentionOperands<Exec, float> o(p);
  Random random(4);
  o.fill(p, random);
  Kokkos::fence("attikos_test");
  attention(o.q.view(), o.k.view(), o.v.view(), o.out.view());
  attention(o.q.view(), o.k.view(), o.v.view(), o.out.view(), o.lse.view(), {.softmax_scale = 0});
  o.download();
  compare_attention(p, o);
}

// Keys so far apart that element offsets pass 2^31.
TYPED_TEST(AttentionOptionsOf, OffsetsPast32Bits) {
  std::int64_t const stride = (std::int64_t{1} << 30) + 12345;
  SparseMemory<TypeParam> const memory_k(5 * stride * 4), memory_v(5 * stride * 4);
  ASSERT_TRUE(memory_k && memory_v) << "no address space";
  AttentionCase const p{.shape = {1, 1, 1, 3, 5, 4, 4}};
  AttentionOperands<TypeParam, float> o(p);
  Random random(4);
  o.fill(p, random);
  using View = typename decltype(o.q)::template ViewOf<float, 4>;
  Kokkos::LayoutStride const layout(1, 1, 1, 1, 5, sz(stride), 4, 1);
  View const k(static_cast<float*>(memory_k.get()), layout);
  View const v(static_cast<float*>(memory_v.get()), layout);
  TypeParam const exec;
  Kokkos::deep_copy(exec, k, o.k.view());
  Kokkos::deep_copy(exec, v, o.v.view());
  for (auto algorithm : all_algorithms) {
    o.out.upload();
    attention(exec, o.q.view(), k, v, o.out.view(), o.lse.view(),
              AttentionOptions{.algorithm = algorithm});
    o.download();
    compare_attention(p, o);
  }
}

}  // namespace
}  // namespace attikos::test
