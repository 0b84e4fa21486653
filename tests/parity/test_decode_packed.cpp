// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// decode of packed queries over padded, paged and packed caches, and with the user's functors,
// against float64; the same bits for a sequence whatever is packed beside it.
#include <attikos/decode/decode.hpp>
#include <sstream>

#include "../support/messages.hpp"
#include "../support/tolerance_decode.hpp"
#include "attention_term_checks.hpp"

namespace attikos::test {
namespace {

enum class Cache { padded, paged, packed };

struct PackedCase {
  std::vector<std::int64_t> queries;  ///< of each sequence
  std::vector<std::int64_t> keys;
  Cache cache = Cache::paged;
  DecodeOptions options = {};
  Terms terms = {};
  std::int64_t heads_q = 4, heads_kv = 2, d = 24, dv = 20;
  Layout layout = Layout::right;
  std::int64_t page_size = 16;
  std::int64_t margin = 3;  ///< positions at either end that belong to no sequence
};

std::string describe(PackedCase const& p) {
  std::ostringstream text;
  text << "queries";
  for (auto n : p.queries) text << " " << n;
  text << " keys";
  for (auto n : p.keys) text << " " << n;
  text << " cache " << static_cast<int>(p.cache) << " heads " << p.heads_q << "/" << p.heads_kv
       << " causal " << p.options.causal << " window " << p.options.window_left << " splits "
       << p.options.splits << " score " << p.terms.score << " weight " << p.terms.weight
       << " layout " << layout_name(p.layout);
  return text.str();
}

template <class Exec, class T>
struct PackedRun {
  using Lse = Accumulator<T>;
  PackedCase p;
  std::int64_t batch, most_kv, max_pages;
  std::vector<std::int64_t> before_q, before_kv;
  Tensor<T, 3, Exec> q, out;
  Tensor<Lse, 2, Exec> lse;
  Tensor<T, 4, Exec> k, v;  ///< packed keys have a first extent of 1
  Tensor<std::int64_t, 1, Exec> cu_q, cu_kv;
  Tensor<std::int32_t, 1, Exec> lengths_kv;
  Tensor<std::int32_t, 2, Exec> table;
  Random random{5};
  TermOperands<Exec, float> operands;

  static std::vector<std::int64_t> sums(std::vector<std::int64_t> const& counts,
                                        std::int64_t first) {
    std::vector<std::int64_t> result{first};
    for (auto n : counts) result.push_back(result.back() + n);
    return result;
  }
  static std::int64_t largest(std::vector<std::int64_t> const& counts) {
    return counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  }
  std::array<std::int64_t, 4> cache_extents(std::int64_t width) const {
    if (p.cache == Cache::padded) return {batch, p.heads_kv, most_kv, width};
    if (p.cache == Cache::paged) return {batch * max_pages + 2, p.heads_kv, p.page_size, width};
    return {1, p.heads_kv, before_kv.back() + p.margin, width};
  }
  AttentionShape term_shape() const {
    // Rows of the terms are positions in a sequence, columns reach to the end of the cache.
    return {std::max<std::int64_t>(batch, 1),
            p.heads_q,
            p.heads_kv,
            q.extent(1),
            capacity(),
            p.d,
            p.dv};
  }
  std::int64_t capacity() const {
    if (p.cache == Cache::paged) return max_pages * p.page_size;
    return p.cache == Cache::padded ? most_kv : before_kv.back() + p.margin;
  }

  explicit PackedRun(PackedCase const& c)
      : p(c),
        batch(static_cast<std::int64_t>(c.queries.size())),
        most_kv(largest(c.keys)),
        max_pages((most_kv + c.page_size - 1) / c.page_size),
        before_q(sums(c.queries, c.margin)),
        before_kv(sums(c.keys, c.margin)),
        q({p.heads_q, before_q.back() + p.margin, p.d}, p.layout),
        out({p.heads_q, q.extent(1), p.dv}, p.layout),
        lse({p.heads_q, q.extent(1)}, p.layout == Layout::permuted ? Layout::left : p.layout),
        k(cache_extents(p.d), p.layout),
        v(cache_extents(p.dv), p.layout),
        cu_q({batch + 1}, Layout::strided),
        cu_kv({batch + 1}, Layout::strided),
        lengths_kv({batch}, Layout::strided),
        table({batch, max_pages}, Layout::strided),
        operands(term_shape(), 0, 0, random) {
    for (std::int64_t b = 0; b <= batch; ++b) {
      cu_q(b) = before_q[sz(b)];
      cu_kv(b) = before_kv[sz(b)];
    }
    for (std::int64_t b = 0; b < batch; ++b) {
      lengths_kv(b) = static_cast<std::int32_t>(p.keys[sz(b)]);
      for (std::int64_t i = 0; i < max_pages; ++i)
        table(b, i) = static_cast<std::int32_t>(1 + b + i * batch);
      for (std::int64_t h = 0; h < p.heads_kv; ++h)
        for (std::int64_t j = 0; j < p.keys[sz(b)]; ++j) {
          for (std::int64_t x = 0; x < p.d; ++x)
            at(k, b, h, j, x) = from_double<T>(random.uniform(-1, 1));
          for (std::int64_t x = 0; x < p.dv; ++x)
            at(v, b, h, j, x) = from_double<T>(random.uniform(-1, 1));
        }
      for (std::int64_t i = 0; i < p.queries[sz(b)]; ++i)
        for (std::int64_t h = 0; h < p.heads_q; ++h)
          for (std::int64_t x = 0; x < p.d; ++x)
            q(h, before_q[sz(b)] + i, x) = from_double<T>(random.uniform(-1, 1));
    }
    q.upload(), k.upload(), v.upload(), cu_q.upload(), cu_kv.upload(), lengths_kv.upload();
    table.upload();
  }

  T& at(Tensor<T, 4, Exec>& cache, std::int64_t b, std::int64_t h, std::int64_t j, std::int64_t c) {
    if (p.cache == Cache::padded) return cache(b, h, j, c);
    if (p.cache == Cache::paged) return cache(table(b, j / p.page_size), h, j % p.page_size, c);
    return cache(0, h, before_kv[sz(b)] + j, c);
  }

  void call() {
    auto const run = [&](auto const& kv, auto const& vv, auto const&... extras) {
      decode(Exec(), q.const_view(), kv, vv, out.view(), lse.view(), p.options, extras...);
    };
    auto const cu = cu_q.const_view();
    auto const lens = attikos::lengths(none, lengths_kv.const_view());
    auto const pages = paged(table.const_view(), p.page_size);
    if (p.cache == Cache::padded) {
      run(k.const_view(), v.const_view(), cu_seqlens(cu, none), lens);
    } else if (p.cache == Cache::packed) {
      run(k.const_front(), v.const_front(), cu_seqlens(cu, cu_kv.const_view()));
    } else if (p.terms.score) {
      std::size_t const bytes =
          decode_workspace_size(Exec(), q.const_view(), k.const_view(), v.const_view(), p.options,
                                pages, cu_seqlens(cu, none));
      Tensor<double, 1, Exec> memory({static_cast<std::int64_t>((bytes + 7) / 8)});
      run(k.const_view(), v.const_view(), score(TestScore{}), pages, lens, weight(TestWeight{}),
          cu_seqlens(cu, none), alibi(operands.slopes.const_view()), workspace(memory.view()));
      memory.download();
      EXPECT_EQ(memory.writes_outside(), 0u) << describe(p);
    } else if (p.terms.bias) {
      run(k.const_view(), v.const_view(), bias(operands.bias.const_view()), pages, lens,
          mask(operands.mask.const_view()), cu_seqlens(cu, none),
          sinks(operands.sinks.const_view()));
    } else {
      run(k.const_view(), v.const_view(), lens, cu_seqlens(cu, none), pages);
    }
    out.download();
    lse.download();
  }

  void compare() {
    EXPECT_EQ(out.writes_outside(), 0u) << describe(p);
    EXPECT_EQ(lse.writes_outside(), 0u) << describe(p);
    std::string const name = std::string("decode packed/") + type_name<T>() + "/" + Exec::name();
    Comparison values(name, describe(p), stored_as<T>()), sums_of(name + "/lse", describe(p));
    AttentionOptions o;
    o.causal = p.options.causal;
    o.causal_alignment = p.options.causal_alignment;
    o.window_left = p.options.window_left;
    o.window_right = p.options.window_right;
    o.softcap = p.options.softcap;
    double const scale = 1 / std::sqrt(static_cast<double>(p.d));
    double const low = -std::numeric_limits<double>::infinity();
    std::vector<bool> inside(sz(q.extent(1)), false);
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < p.queries[sz(b)]; ++i) {
        std::int64_t const row = before_q[sz(b)] + i;
        inside[sz(row)] = true;
        for (std::int64_t h = 0; h < p.heads_q; ++h) {
          std::int64_t const hk = h / (p.heads_q / p.heads_kv);
          auto const terms =
              operands.row(p.terms, o, scale, b, h, i, p.queries[sz(b)], p.keys[sz(b)]);
          auto const value = [&](std::int64_t j, std::int64_t c) {
            return to_double(at(v, b, hk, j, c));
          };
          auto const want = reference::attention_row(
              p.keys[sz(b)], p.d, p.dv, terms, [&](std::int64_t c) { return q.value(h, row, c); },
              [&](std::int64_t j, std::int64_t c) { return to_double(at(k, b, hk, j, c)); }, value);
          DecodeBound<T> const bound(want, p.d, 128, detail::multiplies_in_fragments<Exec>);
          for (std::int64_t c = 0; c < p.dv; ++c)
            values.add(out.value(h, row, c), want.out[sz(c)],
                       bound.out(sz(c), [&](std::int64_t j) { return value(j, c); }), {h, row, c});
          sums_of.add(lse.value(h, row), want.lse, bound.lse(), {h, row});
        }
      }
    for (std::int64_t row = 0; row < q.extent(1); ++row)
      for (std::int64_t h = 0; h < p.heads_q && !inside[sz(row)]; ++h) {
        for (std::int64_t c = 0; c < p.dv; ++c) values.add(out.value(h, row, c), 0, 0, {h, row, c});
        sums_of.add(lse.value(h, row), low, 0, {h, row});
      }
  }
};

template <class C>
class DecodePacked : public testing::Test {};
TYPED_TEST_SUITE(DecodePacked, FloatingCases, CaseName);

template <class C>
void check_packed(PackedCase const& p) {
  PackedRun<typename C::Exec, typename C::T> run(p);
  run.call();
  run.compare();
}

constexpr std::array all_caches{Cache::padded, Cache::paged, Cache::packed};

TYPED_TEST(DecodePacked, Storage) {
  for (Cache cache : all_caches) {
    for (std::int64_t splits : {0, 3}) {
      // One query each, none, a chunk of a prompt; keys fewer than queries, none.
      check_packed<TypeParam>({{1, 0, 1, 7, 2, 3, 1},
                               {300, 20, 1, 530, 0, 2, 97},
                               cache,
                               {.causal = true, .splits = splits}});
      check_packed<TypeParam>({{1, 1, 1}, {600, 31, 270}, cache, {.splits = splits}});
    }
    check_packed<TypeParam>({{40}, {333}, cache, {.causal = true, .window_left = 50}});
    check_packed<TypeParam>({{}, {}, cache});
    check_packed<TypeParam>({{0, 0}, {5, 0}, cache});
  }
}

TYPED_TEST(DecodePacked, HeadsAndLayouts) {
  for (auto [hq, hk] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 3}, {8, 1}, {12, 2}}) {
    PackedCase p{{1, 3, 1}, {130, 70, 290}, Cache::paged, {.causal = true}};
    p.heads_q = hq;
    p.heads_kv = hk;
    check_packed<TypeParam>(p);
  }
  for (Layout layout : all_layouts)
    for (Cache cache : all_caches) {
      PackedCase p{{1, 3, 1}, {130, 70, 290}, cache, {.causal = true}};
      p.layout = layout;
      p.page_size = 7;
      check_packed<TypeParam>(p);
    }
  PackedCase tight{{1, 2}, {40, 30}, Cache::packed};
  tight.margin = 0;
  check_packed<TypeParam>(tight);
}

TYPED_TEST(DecodePacked, TermsAndFunctors) {
  for (std::int64_t splits : {1, 3}) {
    PackedCase p{{1, 6, 1, 2}, {290, 130, 40, 1}, Cache::paged, {.splits = splits}};
    p.terms = {.alibi = true, .score = true, .weight = true};
    check_packed<TypeParam>(p);
    p.options.causal = true;
    p.options.softcap = 2;
    check_packed<TypeParam>(p);
    p.terms = {.bias = true, .mask = true, .sinks = true};
    check_packed<TypeParam>(p);
    p.options.window_left = 60;
    p.options.causal_alignment = CausalAlignment::top_left;
    check_packed<TypeParam>(p);
  }
}

template <class Exec>
class DecodePackedSpaces : public testing::Test {};
TYPED_TEST_SUITE(DecodePackedSpaces, SpaceCases, CaseName);

/// Functors on padded queries, as attention() has them.
TYPED_TEST(DecodePackedSpaces, FunctorsOfPaddedQueries) {
  using Exec = TypeParam;
  std::int64_t const batch = 2, heads = 4, queries = 3, keys = 150, d = 16;
  Tensor<float, 4, Exec> q({batch, heads, queries, d}), k({batch, 2, keys, d}), v(k.extents()),
      out(q.extents()), want(q.extents());
  Tensor<float, 3, Exec> lse({batch, heads, queries}), want_lse(lse.extents());
  Random random(3);
  q.fill_uniform(random), k.fill_uniform(random), v.fill_uniform(random);
  auto const view = [](auto const& x) { return x.const_view(); };
  decode(Exec(), view(q), view(k), view(v), out.view(), lse.view(), {.causal = true, .splits = 2},
         weight(TestWeight{}), score(TestScore{}));
  attention(Exec(), view(q), view(k), view(v), want.view(), want_lse.view(), {.causal = true},
            score(TestScore{}), weight(TestWeight{}));
  out.download(), want.download(), lse.download(), want_lse.download();
  // Both lie within bounds of the oracle elsewhere; here they differ by the order of sums of 150.
  out.for_each([&](auto const& i) { EXPECT_NEAR(out.at(i), want.at(i), 2e-5); });
  lse.for_each([&](auto const& i) { EXPECT_NEAR(lse.at(i), want_lse.at(i), 2e-5); });
}

/// On hosts what a packed sequence gets depends on nothing beside it.
TYPED_TEST(DecodePackedSpaces, SameBitsInAnyCompany) {
  using Exec = TypeParam;
  PackedCase const alone{{2}, {700}, Cache::paged, {.causal = true}};
  PackedCase const company{{9, 2, 1}, {30, 700, 500}, Cache::paged, {.causal = true}};
  PackedRun<Exec, float> one(alone), many(company), again(company);
  for (std::int64_t h = 0; h < 4; ++h)
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t c = 0; c < 24; ++c)
        many.q(h, many.before_q[1] + i, c) = one.q(h, one.before_q[0] + i, c);
  for (std::int64_t h = 0; h < 2; ++h)
    for (std::int64_t j = 0; j < 700; ++j) {
      for (std::int64_t c = 0; c < 24; ++c) many.at(many.k, 1, h, j, c) = one.at(one.k, 0, h, j, c);
      for (std::int64_t c = 0; c < 20; ++c) many.at(many.v, 1, h, j, c) = one.at(one.v, 0, h, j, c);
    }
  many.q.upload(), many.k.upload(), many.v.upload();
  one.call(), many.call();
  auto const first = many.out.elements();
  many.call();
  EXPECT_TRUE(same_bits(first, many.out.elements()));
  if constexpr (detail::multiplies_in_fragments<Exec>) return;
  std::int64_t const row = many.before_q[1], alone_row = one.before_q[0];
  for (std::int64_t h = 0; h < 4; ++h)
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t c = 0; c < 20; ++c)
        EXPECT_EQ(many.out.value(h, row + i, c), one.out.value(h, alone_row + i, c));
}

using Exec = Kokkos::DefaultExecutionSpace;

TEST(DecodePackedErrors, Messages) {
  Tensor<float, 3, Exec> q({4, 5, 8}), out({4, 5, 6});
  Tensor<float, 4, Exec> k({2, 2, 100, 8}), v({2, 2, 100, 6});
  Tensor<std::int32_t, 1, Exec> three({3}), four({4}), nothing({0});
  auto const call = [&](auto const& cu, DecodeOptions const& options, auto const&... extras) {
    decode(Exec(), q.const_view(), k.const_view(), v.const_view(), out.view(), options,
           cu_seqlens(cu, none), extras...);
  };
  expect_error<ShapeError>(
      [&] { call(four.const_view(), {}); },
      {"attikos::decode: k has batch 2; expected 3, one per sequence of cu_seqlens."});
  expect_error<ShapeError>([&] { call(nothing.const_view(), {}); },
                           {"attikos::decode: cu_seqlens of q has 0 entries; expected one more"});
  expect_error<ShapeError>(
      [&] { call(three.const_view(), {}, lengths(none, three.const_view())); },
      {"attikos::decode: lengths of kv has 3 entries; expected 2, one per sequence"});
  expect_error<UnsupportedError>(
      [&] { call(three.const_view(), {.kernel = "decode/none"}, weight(TestWeight{})); },
      {"attikos::decode: kernel \"decode/none\" was demanded but is not available",
       "available: portable"});
  out.download();
  EXPECT_TRUE(out.unchanged());
}

}  // namespace
}  // namespace attikos::test
