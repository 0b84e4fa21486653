// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention over packed sequences (cu_seqlens) and paged caches.
#include "attention_term_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class AttentionStorage : public testing::Test {};
TYPED_TEST_SUITE(AttentionStorage, FloatingCases, CaseName);

/// Sequences one behind the other, with positions before the first and behind the last that belong
/// to none and hold NaN.
template <class T, class Exec>
struct Packed {
  std::vector<std::int64_t> begin;
  Tensor<T, 3, Exec> x;

  Packed(std::int64_t heads, std::vector<int> const& lengths, std::int64_t d, std::int64_t before,
         std::int64_t behind, Random& random)
      : begin(offsets(lengths, before)), x({heads, begin.back() + behind, d}, Layout::permuted) {
    x.fill_uniform(random);
    x.for_each([&](auto const& i) {
      if (i[1] < begin.front() || i[1] >= begin.back()) x.at(i) = poison<T>();
    });
    x.upload();
  }

  static std::vector<std::int64_t> offsets(std::vector<int> const& lengths, std::int64_t at) {
    std::vector<std::int64_t> result{at};
    for (int length : lengths) result.push_back(at += length);
    return result;
  }

  /// The offsets on the device, as integers of any kind.
  template <class Integer>
  auto cu() const {
    Kokkos::View<Integer*, typename Exec::memory_space> device("cu_seqlens", begin.size());
    auto host = Kokkos::create_mirror_view(device);
    for (std::size_t i = 0; i < begin.size(); ++i) host(i) = static_cast<Integer>(begin[i]);
    Kokkos::deep_copy(device, host);
    return Kokkos::View<Integer const*, typename Exec::memory_space>(device);
  }
};

constexpr std::int64_t heads_q = 4, heads_kv = 2, d = 16, dv = 24;

template <class T, class Exec, class Integer>
void check_packed(std::vector<int> const& lengths_q, std::vector<int> const& lengths_kv,
                  AttentionOptions const& options) {
  Random random(5);
  Packed<T, Exec> q(heads_q, lengths_q, d, 2, 3, random), k(heads_kv, lengths_kv, d, 1, 5, random),
      v(heads_kv, lengths_kv, dv, 1, 5, random);
  Tensor<T, 3, Exec> out({heads_q, q.x.extent(1), dv}, Layout::padded);
  Tensor<Accumulator<T>, 2, Exec> lse({heads_q, q.x.extent(1)}, Layout::padded);
  TermOperands<Exec, float> terms({static_cast<std::int64_t>(lengths_q.size()), heads_q, heads_kv,
                                   q.x.extent(1), k.x.extent(1), d, dv},
                                  0, 0, random);
  auto const with_arguments = [&](auto const& run) {
    return run(q.x.const_view(), k.x.const_view(), v.x.const_view(), out.view(), lse.view(),
               options, cu_seqlens(q.template cu<Integer>(), k.template cu<Integer>()),
               alibi(terms.slopes.const_view()), bias(terms.bias.const_view()));
  };
  with_arguments([](auto const&... given) { attention(Exec(), given...); });
  bool const rounded = rounds_weights<Exec>(with_arguments(
      [](auto const&... given) { return explain(op::attention, Exec(), given...); }));
  out.download();
  lse.download();
  EXPECT_EQ(out.writes_outside(), 0u);
  EXPECT_EQ(lse.writes_outside(), 0u);
  std::string const name = std::string("attention/packed/") + type_name<T>() + "/" + Exec::name();
  std::string const what = "algorithm " + std::to_string(static_cast<int>(options.algorithm)) +
                           " causal " + std::to_string(options.causal);
  Comparison out_check(name, what, stored_as<T>()), lse_check(name + "/lse", what);
  SequenceCheck compare{out_check,
                        lse_check,
                        {1, heads_q, heads_kv, 0, 0, d, dv},
                        options,
                        Terms{.bias = true, .alibi = true}};
  compare.rounded_weights = rounded;
  for (std::size_t b = 0; b < lengths_q.size(); ++b) {
    std::int64_t const rows = lengths_q[b];
    compare.template operator()<T>(
        terms, static_cast<std::int64_t>(b), rows, rows, lengths_kv[b],
        [&](auto h, auto i, auto c) { return q.x.value(h, q.begin[b] + i, c); },
        [&](auto h, auto j, auto c) { return k.x.value(h, k.begin[b] + j, c); },
        [&](auto h, auto j, auto c) { return v.x.value(h, v.begin[b] + j, c); },
        [&](auto h, auto i, auto c) { return out.value(h, q.begin[b] + i, c); },
        [&](auto h, auto i) { return lse.value(h, q.begin[b] + i); });
  }
  // Positions of no sequence.
  out.for_each([&](auto const& i) {
    if (i[1] < q.begin.front() || i[1] >= q.begin.back()) {
      ASSERT_EQ(to_double(out.at(i)), 0) << i[1];
      ASSERT_EQ(lse.value(i[0], i[1]), -std::numeric_limits<double>::infinity()) << i[1];
    }
  });
}

TYPED_TEST(AttentionStorage, PackedSequences) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  std::vector<int> const mixed_q{5, 0, 1, 130, 64, 0, 33}, mixed_kv{7, 3, 0, 130, 40, 0, 190};
  for (auto algorithm : all_algorithms)
    for (bool causal : {false, true}) {
      AttentionOptions const options{.causal = causal, .algorithm = algorithm};
      check_packed<T, Exec, std::int32_t>(mixed_q, mixed_kv, options);
    }
  check_packed<T, Exec, std::int64_t>(mixed_q, mixed_q, {.causal = true});
  std::vector<int> const many(60, 7);  // several sequences share what would be one tile
  check_packed<T, Exec, std::size_t>(many, many, {.causal = true});
  check_packed<T, Exec, std::uint32_t>({}, {}, {});
  check_packed<T, Exec, std::int32_t>({0, 0}, {0, 0}, {});
}

/// A cache whose pages lie in any order; what no sequence owns holds NaN.
template <class T, class Exec>
struct Cache {
  std::int64_t page_size, pages_each;
  Tensor<std::int32_t, 2, Exec> table;
  Tensor<T, 4, Exec> k, v;

  Cache(std::vector<int> const& lengths, std::int64_t page, Random& random)
      : page_size(page),
        pages_each((300 + page - 1) / page),
        table({static_cast<std::int64_t>(lengths.size()), pages_each}, Layout::padded),
        k({static_cast<std::int64_t>(lengths.size()) * pages_each + 2, heads_kv, page, d},
          Layout::permuted),
        v({static_cast<std::int64_t>(lengths.size()) * pages_each + 2, heads_kv, page, dv},
          Layout::padded) {
    k.fill_uniform(random);
    v.fill_uniform(random);
    std::int64_t const pages = k.extent(0);
    std::vector<bool> owned(sz(pages * page), false);
    for (std::size_t b = 0; b < lengths.size(); ++b)
      for (std::int64_t p = 0; p < pages_each; ++p) {
        // A permutation of all but two pages: 7 and the number of pages are made coprime.
        std::int64_t const slot = static_cast<std::int64_t>(b) * pages_each + p;
        std::int64_t const id = (slot * (pages % 7 == 0 ? 11 : 7) + 1) % pages;
        bool const used = p * page < lengths[b];
        table(static_cast<std::int64_t>(b), p) = used ? static_cast<std::int32_t>(id) : -5;
        for (std::int64_t r = 0; r < page; ++r)
          if (p * page + r < lengths[b]) owned[sz(id * page + r)] = true;
      }
    table.upload();
    k.for_each([&](auto const& i) {
      if (!owned[sz(i[0] * page + i[2])]) k.at(i) = poison<T>();
    });
    v.for_each([&](auto const& i) {
      if (!owned[sz(i[0] * page + i[2])]) v.at(i) = poison<T>();
    });
    k.upload();
    v.upload();
  }

  static double at(Tensor<T, 4, Exec> const& x, Cache const& c, std::int64_t b, std::int64_t h,
                   std::int64_t j, std::int64_t column) {
    auto const page = static_cast<std::int64_t>(c.table.value(b, j / c.page_size));
    return x.value(page, h, j % c.page_size, column);
  }
};

template <class T, class Exec>
void check_paged(std::vector<int> const& lengths_kv, std::int64_t page, std::int64_t seqlen_q,
                 AttentionOptions const& options, bool packed_q) {
  Random random(7);
  auto const batch = static_cast<std::int64_t>(lengths_kv.size());
  Cache<T, Exec> cache(lengths_kv, page, random);
  Tensor<std::int32_t, 1, Exec> length({batch}, Layout::strided);
  for (std::int64_t b = 0; b < batch; ++b) length(b) = lengths_kv[sz(b)];
  length.upload();
  auto const pages = paged(cache.table.const_view(), page);
  std::string const name = std::string("attention/paged/") + type_name<T>() + "/" + Exec::name();
  std::string const what = "page " + std::to_string(page) + " packed " + std::to_string(packed_q) +
                           " algorithm " + std::to_string(static_cast<int>(options.algorithm));
  Comparison out_check(name, what, stored_as<T>()), lse_check(name + "/lse", what);
  AttentionShape const shape{batch, heads_q, heads_kv, seqlen_q, 0, d, dv};
  TermOperands<Exec, float> const none_given({1, 1, 1, 1, 1, 1, 1}, 0, 0, random);
  SequenceCheck compare{out_check, lse_check, shape, options, Terms{}};
  auto const k = [&](std::int64_t b) {
    return [&cache, b](auto h, auto j, auto c) { return cache.at(cache.k, cache, b, h, j, c); };
  };
  auto const v = [&](std::int64_t b) {
    return [&cache, b](auto h, auto j, auto c) { return cache.at(cache.v, cache, b, h, j, c); };
  };
  auto const call = [&](auto const&... given) {
    compare.rounded_weights = rounds_weights<Exec>(explain(op::attention, Exec(), given...));
    attention(Exec(), given...);
  };
  if (packed_q) {
    std::vector<int> const lengths_q(sz(batch), static_cast<int>(seqlen_q));
    Packed<T, Exec> q(heads_q, lengths_q, d, 1, 1, random);
    Tensor<T, 3, Exec> out({heads_q, q.x.extent(1), dv});
    Tensor<Accumulator<T>, 2, Exec> lse({heads_q, q.x.extent(1)});
    call(q.x.const_view(), cache.k.const_view(), cache.v.const_view(), out.view(), lse.view(),
         options, pages, cu_seqlens(q.template cu<std::int32_t>(), none),
         lengths(none, length.const_view()));
    out.download();
    lse.download();
    for (std::int64_t b = 0; b < batch; ++b)
      compare.template operator()<T>(
          none_given, b, seqlen_q, seqlen_q, lengths_kv[sz(b)],
          [&](auto h, auto i, auto c) { return q.x.value(h, q.begin[sz(b)] + i, c); }, k(b), v(b),
          [&](auto h, auto i, auto c) { return out.value(h, q.begin[sz(b)] + i, c); },
          [&](auto h, auto i) { return lse.value(h, q.begin[sz(b)] + i); });
  } else {
    Tensor<T, 4, Exec> q({batch, heads_q, seqlen_q, d}), out({batch, heads_q, seqlen_q, dv});
    Tensor<Accumulator<T>, 3, Exec> lse({batch, heads_q, seqlen_q});
    q.fill_uniform(random);
    call(q.const_view(), cache.k.const_view(), cache.v.const_view(), out.view(), lse.view(),
         options, lengths(none, length.const_view()), pages);
    out.download();
    lse.download();
    for (std::int64_t b = 0; b < batch; ++b)
      compare.template operator()<T>(
          none_given, b, seqlen_q, seqlen_q, lengths_kv[sz(b)],
          [&](auto h, auto i, auto c) { return q.value(b, h, i, c); }, k(b), v(b),
          [&](auto h, auto i, auto c) { return out.value(b, h, i, c); },
          [&](auto h, auto i) { return lse.value(b, h, i); });
  }
}

TYPED_TEST(AttentionStorage, PagedCache) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  for (std::int64_t page : {1, 3, 16, 64, 256})
    for (auto algorithm : all_algorithms)
      check_paged<T, Exec>({300, 0, 1, 77, 256}, page, 9, {.causal = true, .algorithm = algorithm},
                           page == 16);
  check_paged<T, Exec>({200, 31}, 5, 2, {.window_left = 40}, false);
}

// Offsets and page ids out of range are clamped to the allocation: nothing is read or written
// outside it (AddressSanitizer watches).
TYPED_TEST(AttentionStorage, WildOffsetsAndPagesStayInside) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  Random random(5);
  for (auto algorithm : all_algorithms) {
    Tensor<T, 3, Exec> x({2, 40, 8}, Layout::padded), out({2, 40, 8}, Layout::padded);
    x.fill_uniform(random);
    Tensor<std::int32_t, 1, Exec> cu({4});
    for (std::int64_t i = 0; i < 4; ++i)
      cu(i) = std::array<std::int32_t, 4>{-2000000000, 30, 10, 2000000000}[sz(i)];
    cu.upload();
    attention(Exec(), x.const_view(), x.const_view(), x.const_view(), out.view(),
              {.algorithm = algorithm}, cu_seqlens(cu.const_view()));
    out.download();
    EXPECT_EQ(out.writes_outside(), 0u);
    Tensor<T, 4, Exec> cache({3, 2, 4, 8}), q({1, 2, 5, 8}), result({1, 2, 5, 8}, Layout::padded);
    cache.fill_uniform(random);
    q.fill_uniform(random);
    Tensor<std::int32_t, 2, Exec> table({1, 3});
    for (std::int64_t i = 0; i < 3; ++i)
      table(0, i) = std::array<std::int32_t, 3>{-2000000000, 2000000000, 1}[sz(i)];
    table.upload();
    attention(Exec(), q.const_view(), cache.const_view(), cache.const_view(), result.view(),
              {.algorithm = algorithm}, paged(table.const_view(), 4));
    result.download();
    EXPECT_EQ(result.writes_outside(), 0u);
  }
}

TYPED_TEST(AttentionStorage, ValidateCuSeqlens) {
  using Exec = typename TypeParam::Exec;
  Tensor<std::int64_t, 1, Exec> cu({4}, Layout::strided);
  auto const set = [&](std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t last) {
    cu(0) = a;
    cu(1) = b;
    cu(2) = c;
    cu(3) = last;
    cu.upload();
  };
  set(0, 5, 5, 9);
  EXPECT_NO_THROW(validate_cu_seqlens(Exec(), cu.const_view(), 9));
  EXPECT_THROW(validate_cu_seqlens(Exec(), cu.const_view(), 8), ShapeError);
  set(0, 5, 4, 9);
  EXPECT_THROW(validate_cu_seqlens(Exec(), cu.const_view(), 9), ShapeError);
  set(-1, 5, 5, 9);
  EXPECT_THROW(validate_cu_seqlens(Exec(), cu.const_view(), 9), ShapeError);
}

}  // namespace
}  // namespace attikos::test
