// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// append_kv against float64: every element of both caches, those that must change and those that
// must not; plain and paged, rotated and not.
#include <attikos/append_kv/append_kv.hpp>
#include <attikos/reference/append_kv_reference.hpp>
#include <attikos/reference/rope_reference.hpp>
#include <cstring>
#include <sstream>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/messages.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance_norms.hpp"

namespace attikos::test {
namespace {

enum class Rotate { none, half_split, interleaved };

struct AppendCase {
  std::int64_t batch, heads, seqlen_new, d, dv;
  std::int64_t capacity;       ///< of a plain cache, or page_size·max_pages
  std::int64_t page_size = 0;  ///< 0: plain
  Rotate rotate = Rotate::none;
  std::int64_t rotary_dim = 0;
  Layout layout = Layout::right;
  bool lengths = true;
  int queries = 0;  ///< 0: none, 1: into another tensor, 2: in place
  bool share_position = false;
  std::int64_t table_rows = 0;  ///< rows of cos and sin; 0: enough
  char const* kernel = "";
};

std::string describe(AppendCase const& p) {
  std::ostringstream text;
  text << "batch " << p.batch << " heads " << p.heads << " new " << p.seqlen_new << " d " << p.d
       << " dv " << p.dv << " capacity " << p.capacity << " page size " << p.page_size << " rotate "
       << static_cast<int>(p.rotate) << " rotary_dim " << p.rotary_dim << " layout "
       << layout_name(p.layout) << " lengths " << p.lengths << " queries " << p.queries
       << " share position " << p.share_position;
  return text.str();
}

template <class Exec, class X, class C>
struct AppendRun {
  using X4 = Tensor<X, 4, Exec>;
  using C4 = Tensor<C, 4, Exec>;
  AppendCase p;
  Random random{11};
  std::int64_t max_pages, num_pages;
  X4 k_new, v_new, q, q_out;
  C4 k_cache, v_cache;
  Tensor<std::int32_t, 1, Exec> lengths;
  Tensor<std::int32_t, 2, Exec> table;
  Tensor<float, 2, Exec> cos, sin;
  std::vector<X> q_before;

  explicit AppendRun(AppendCase const& c)
      : p(c),
        max_pages(p.page_size == 0 ? 0 : p.capacity / p.page_size),
        num_pages(p.batch * max_pages + 3),
        k_new({p.batch, p.heads, p.seqlen_new, p.d}, p.layout),
        v_new({p.batch, p.heads, p.seqlen_new, p.dv}, p.layout),
        q({p.batch, 2 * p.heads, p.seqlen_new + 1, p.d}, p.layout),
        q_out(q.extents(), p.layout),
        k_cache(cache_extents(p.d), p.layout),
        v_cache(cache_extents(p.dv), p.layout),
        lengths({p.batch}, Layout::strided),
        table({p.batch, max_pages}, Layout::strided),
        cos({p.table_rows == 0 ? p.capacity + p.seqlen_new + 1 : p.table_rows, p.rotary_dim},
            Layout::padded),
        sin(cos.extents()) {
    k_new.fill_uniform(random);
    v_new.fill_uniform(random);
    q.fill_uniform(random);
    cos.fill_uniform(random);
    sin.fill_uniform(random);
    // Sequences: one that fits, one that runs over the end, one before the beginning, an empty one.
    for (std::int64_t b = 0; b < p.batch; ++b) {
      std::int64_t const starts[] = {p.capacity / 2, p.capacity - p.seqlen_new / 2 - 1, 0,
                                     p.capacity + 5, -1 - p.seqlen_new / 2};
      lengths(b) = static_cast<std::int32_t>(starts[b % 5]);
    }
    lengths.upload();
    // Pages in an order of their own; the first sequence's last entry and the second's first are
    // none.
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t i = 0; i < max_pages; ++i)
        table(b, i) = static_cast<std::int32_t>((i * p.batch + b) * 7 % prime_above(num_pages));
    table.for_each([&](auto const& i) {
      if (table.at(i) >= num_pages) table.at(i) = static_cast<std::int32_t>(-1 - i[1]);
    });
    if (p.batch > 1 && max_pages > 0) table(1, 0) = static_cast<std::int32_t>(num_pages);
    table.upload();
    // Half of the cache in use, half NaN.
    for (auto* cache : {&k_cache, &v_cache}) {
      cache->for_each([&](auto const& i) {
        if (i[2] % 2 == 0) cache->at(i) = from_double<C>(random.uniform(-1, 1));
      });
      cache->upload();
    }
  }

  static std::int64_t prime_above(std::int64_t n) {
    for (;; ++n) {
      bool prime = n > 7;
      for (std::int64_t f = 2; f * f <= n; ++f) prime = prime && n % f != 0;
      if (prime) return n;
    }
  }
  std::array<std::int64_t, 4> cache_extents(std::int64_t d) const {
    if (p.page_size == 0) return {p.batch, p.heads, p.capacity, d};
    return {num_pages, p.heads, p.page_size, d};
  }

  std::int64_t start(std::int64_t b) { return p.lengths ? lengths(b) : 0; }

  template <class... Extras>
  void call(Extras const&... extras) {
    auto const run = [&](auto const&... more) {
      append_kv(Exec(), k_new.const_view(), v_new.const_view(), k_cache.view(), v_cache.view(),
                {.style = p.rotate == Rotate::interleaved ? RopeStyle::interleaved
                                                          : RopeStyle::half_split,
                 .queries_share_position = p.share_position,
                 .kernel = p.kernel},
                more..., extras...);
    };
    // Few forms, so that few kernels are compiled: queries come with tables, and paged caches with
    // lengths.
    if (p.rotate == Rotate::none) {
      if (p.page_size != 0) {
        run(paged(table.const_view(), p.page_size), cache_lengths(lengths.const_view()));
      } else if (p.lengths) {
        run(cache_lengths(lengths.const_view()));
      } else {
        run();
      }
      return;
    }
    auto const tables = rotary(cos.const_view(), sin.const_view());
    auto const queried = queries(q.const_view(), p.queries == 2 ? q.view() : q_out.view());
    if (p.page_size != 0) {
      run(cache_lengths(lengths.const_view()), tables, queried,
          paged(table.const_view(), p.page_size));
    } else if (p.lengths && p.queries == 0) {
      run(tables, cache_lengths(lengths.const_view()));
    } else if (p.lengths) {
      run(tables, queried, cache_lengths(lengths.const_view()));
    } else {
      run(queried, tables);
    }
  }

  std::optional<reference::CacheSlot> slot(std::int64_t b, std::int64_t position) {
    if (p.page_size == 0) return reference::plain_slot(b, position, p.capacity);
    std::vector<std::int64_t> pages;
    for (std::int64_t i = 0; i < max_pages; ++i) pages.push_back(table(b, i));
    return reference::paged_slot(pages, position, p.page_size, num_pages);
  }

  /// The head x(b, h, i, :) rotated for a position.
  reference::RopeHead rotated(X4 const& x, std::int64_t b, std::int64_t h, std::int64_t i,
                              std::int64_t position, bool rotate) {
    std::vector<double> head, c, s;
    for (std::int64_t j = 0; j < x.extent(3); ++j) head.push_back(x.value(b, h, i, j));
    if (rotate) {
      std::int64_t const row = std::clamp<std::int64_t>(position, 0, cos.extent(0) - 1);
      for (std::int64_t j = 0; j < p.rotary_dim; ++j) {
        c.push_back(cos.value(row, j));
        s.push_back(sin.value(row, j));
      }
    }
    return reference::rope_head(head, c, s, p.rotate == Rotate::interleaved, false);
  }

  /// Every element of a cache against what it was and what should have been written.
  void compare_cache(char const* name, C4& cache, X4 const& x, bool rotate) {
    std::vector<C> const before = cache.elements();
    cache.download();
    EXPECT_EQ(cache.writes_outside(), 0u) << describe(p);
    C4 expected(cache.extents());
    Tensor<double, 4, Exec> magnitude(cache.extents());
    std::size_t n = 0;
    expected.for_each([&](auto const& i) { expected.at(i) = before[n++]; });
    Comparison values(std::string("append_kv/") + name + "/" + type_name<X>() + "/" +
                          type_name<C>() + "/" + Exec::name(),
                      describe(p), stored_as<C>());
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t i = 0; i < p.seqlen_new; ++i) {
        auto const to = slot(b, start(b) + i);
        if (!to) continue;
        std::int64_t const outer = to->outer, row = to->row;
        for (std::int64_t h = 0; h < p.heads; ++h) {
          auto const head = rotated(x, b, h, i, start(b) + i, rotate);
          for (std::int64_t c = 0; c < x.extent(3); ++c) {
            // Where nothing is rotated and no type changes, the result is exact.
            double const want = head.out[sz(c)];
            bool const exact = std::is_same_v<X, C> && (!rotate || c >= p.rotary_dim);
            values.add(cache.value(outer, h, row, c), want,
                       exact ? 0x1p-1000 : rope_bound<X, C>(head.magnitude[sz(c)], want),
                       {outer, h, row, c});
            expected(outer, h, row, c) = cache(outer, h, row, c);
          }
        }
      }
    EXPECT_TRUE(same_bits(expected.elements(), cache.elements()))
        << "an element changed that no new position stands for: " << describe(p);
  }

  void compare_queries() {
    X4 const given = q;  // a copy on the host, before the download
    X4& out = p.queries == 2 ? q : q_out;
    out.download();
    if (p.queries == 0) {
      EXPECT_TRUE(out.unchanged()) << describe(p);
      return;
    }
    EXPECT_EQ(out.writes_outside(), 0u) << describe(p);
    Comparison values(std::string("append_kv/q/") + type_name<X>() + "/" + Exec::name(),
                      describe(p), stored_as<X>());
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t h = 0; h < q.extent(1); ++h)
        for (std::int64_t i = 0; i < q.extent(2); ++i) {
          auto const head = rotated(given, b, h, i, start(b) + (p.share_position ? 0 : i), true);
          for (std::int64_t c = 0; c < p.d; ++c)
            values.add(out.value(b, h, i, c), head.out[sz(c)],
                       rope_bound<X, X>(head.magnitude[sz(c)], head.out[sz(c)]), {b, h, i, c});
        }
  }
};

template <class Exec, class X, class C = X>
void check_append(AppendCase const& p) {
  AppendRun<Exec, X, C> run(p);
  run.call();
  run.compare_cache("k", run.k_cache, run.k_new, p.rotate != Rotate::none);
  run.compare_cache("v", run.v_cache, run.v_new, false);
  if (p.rotate != Rotate::none) run.compare_queries();
}

template <class C>
class AppendKv : public testing::Test {};
TYPED_TEST_SUITE(AppendKv, FloatingCases, CaseName);

TYPED_TEST(AppendKv, PlainCache) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (std::int64_t d : {1, 7, 16, 33, 64, 128})
    for (std::int64_t seqlen : {1, 5}) check_append<Exec, T>({5, 2, seqlen, d, d + 3, 19});
  for (Layout layout : all_layouts)
    check_append<Exec, T>({5, 3, 4, 24, 9, 13, 0, Rotate::none, 0, layout});
  check_append<Exec, T>({2, 3, 4, 24, 9, 13, 0, Rotate::none, 0, Layout::right, false});
  check_append<Exec, T>({2, 3, 9, 24, 9, 5, 0, Rotate::none, 0, Layout::right, false});
  check_append<Exec, T>(
      {5, 2, 5, 24, 9, 19, 0, Rotate::none, 0, Layout::right, true, 0, false, 0, "portable"});
}

TYPED_TEST(AppendKv, PagedCache) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (std::int64_t page_size : {1, 2, 3, 16}) {
    for (std::int64_t seqlen : {1, 7})
      check_append<Exec, T>({5, 2, seqlen, 24, 17, page_size * 6, page_size});
    check_append<Exec, T>({5, 2, 40, 8, 8, page_size * 3, page_size});
  }
  for (Layout layout : all_layouts)
    check_append<Exec, T>({5, 3, 4, 24, 9, 12, 4, Rotate::none, 0, layout});
}

TYPED_TEST(AppendKv, Rotated) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (Rotate rotate : {Rotate::half_split, Rotate::interleaved}) {
    for (auto [d, rotary] : {std::array<std::int64_t, 2>{2, 2},
                             {16, 16},
                             {33, 32},
                             {64, 18},
                             {24, 10},
                             {128, 128},
                             {9, 0}}) {
      check_append<Exec, T>({5, 2, 3, d, 5, 19, 0, rotate, rotary});
      check_append<Exec, T>({5, 2, 7, d, 5, 24, 4, rotate, rotary, Layout::right, true, 1});
    }
    for (Layout layout : all_layouts) {
      check_append<Exec, T>({5, 3, 4, 24, 9, 13, 0, rotate, 20, layout, true, 1});
      check_append<Exec, T>({5, 3, 4, 24, 9, 12, 4, rotate, 24, layout, true, 2});
      check_append<Exec, T>({2, 3, 4, 24, 9, 13, 0, rotate, 20, layout, false, 1, true});
    }
    for (bool share : {false, true}) {
      check_append<Exec, T>({5, 2, 6, 40, 8, 20, 0, rotate, 40, Layout::right, true, 2, share});
      check_append<Exec, T>({5, 2, 6, 40, 8, 20, 5, rotate, 34, Layout::right, true, 1, share});
    }
    check_append<Exec, T>(
        {5, 2, 6, 40, 8, 20, 5, rotate, 34, Layout::padded, true, 2, false, 0, "portable"});
    // Positions past the tables take their last row.
    check_append<Exec, T>({5, 2, 6, 40, 8, 20, 0, rotate, 40, Layout::right, true, 1, false, 8});
  }
}

TYPED_TEST(AppendKv, ZeroExtents) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (Rotate rotate : {Rotate::none, Rotate::half_split}) {
    for (auto [b, h, s, d, dv, capacity] : {std::array<std::int64_t, 6>{0, 2, 3, 8, 8, 12},
                                            {5, 0, 3, 8, 8, 12},
                                            {5, 2, 0, 8, 8, 12},
                                            {5, 2, 3, 8, 0, 12},
                                            {5, 2, 3, 8, 8, 0},
                                            {0, 0, 0, 8, 0, 0}}) {
      check_append<Exec, T>({b, h, s, d, dv, capacity, 0, rotate, 8});
      check_append<Exec, T>({b, h, s, d, dv, capacity, 4, rotate, 8, Layout::right, true, 1});
    }
    check_append<Exec, T>({5, 2, 3, 0, 8, 12, 4, rotate, 0, Layout::right, true, 1});
  }
}

template <class Exec>
class AppendKvSpaces : public testing::Test {};
TYPED_TEST_SUITE(AppendKvSpaces, SpaceCases, CaseName);

/// A cache of fewer bits than the keys.
TYPED_TEST(AppendKvSpaces, CacheOfAnotherType) {
  for (std::int64_t page_size : {0, 3}) {
    check_append<TypeParam, float, bfloat16>({5, 2, 5, 24, 40, 12, page_size});
    check_append<TypeParam, float, bfloat16>(
        {5, 2, 5, 24, 40, 12, page_size, Rotate::half_split, 16, Layout::padded, true, 1});
  }
}

/// Prompt, then token by token: the cache ends up as if written at once.
TYPED_TEST(AppendKvSpaces, StepByStep) {
  using Exec = TypeParam;
  std::int64_t const batch = 2, heads = 3, total = 11, d = 16;
  Random random(3);
  Tensor<float, 4, Exec> k({batch, heads, total, d}), v(k.extents());
  Tensor<float, 4, Exec> k_once({batch, heads, 16, d}), v_once(k_once.extents());
  Tensor<float, 4, Exec> k_steps(k_once.extents()), v_steps(k_once.extents());
  Tensor<float, 2, Exec> cos({16, d}), sin({16, d});
  Tensor<std::int32_t, 1, Exec> lengths({batch});
  k.fill_uniform(random), v.fill_uniform(random), cos.fill_uniform(random);
  sin.fill_uniform(random);
  for (auto* cache : {&k_once, &v_once, &k_steps, &v_steps}) cache->fill(0);
  auto const tables = rotary(cos.const_view(), sin.const_view());
  append_kv(Exec(), k.const_view(), v.const_view(), k_once.view(), v_once.view(), {}, tables);
  auto const part = [](auto const& view, std::int64_t from, std::int64_t to) {
    return Kokkos::subview(view, Kokkos::ALL, Kokkos::ALL, std::make_pair(from, to), Kokkos::ALL);
  };
  for (std::int64_t from = 0; from < total;) {
    std::int64_t const to = from == 0 ? 7 : from + 1;
    lengths.fill(static_cast<double>(from));
    append_kv(Exec(), part(k.const_view(), from, to), part(v.const_view(), from, to),
              k_steps.view(), v_steps.view(), {}, tables, cache_lengths(lengths.const_view()));
    Exec().fence();
    from = to;
  }
  for (auto* cache : {&k_once, &v_once, &k_steps, &v_steps}) cache->download();
  EXPECT_TRUE(same_bits(k_once.elements(), k_steps.elements()));
  EXPECT_TRUE(same_bits(v_once.elements(), v_steps.elements()));
  lengths.download();
  EXPECT_TRUE(lengths.unchanged());
}

using Exec = Kokkos::DefaultExecutionSpace;
using Keys = Tensor<float, 4, Exec>;

TEST(AppendKvErrors, Shapes) {
  Keys k({2, 3, 4, 8}), v({2, 3, 4, 6}), k_cache({2, 3, 9, 8}), v_cache({2, 3, 9, 6});
  auto const call = [&](Keys const& kn, Keys const& vn, Keys const& kc, Keys const& vc) {
    append_kv(Exec(), kn.const_view(), vn.const_view(), kc.view(), vc.view());
  };
  struct Wrong {
    int which;
    std::array<std::int64_t, 4> extents;
    std::string message;
  };
  for (auto const& wrong : {
           Wrong{1, {3, 3, 4, 6}, "v_new has batch 3; expected 2 as in k_new."},
           Wrong{1, {2, 2, 4, 6}, "v_new has heads 2; expected 3 as in k_new."},
           Wrong{1, {2, 3, 5, 6}, "v_new has seqlen 5; expected 4 as in k_new."},
           Wrong{2, {3, 3, 9, 8}, "k_cache has batch 3; expected 2 as in k_new."},
           Wrong{2, {2, 4, 9, 8}, "k_cache has heads 4; expected 3 as in k_new."},
           Wrong{2, {2, 3, 9, 7}, "k_cache has head_dim 7; expected 8 as in k_new."},
           Wrong{3, {3, 3, 9, 6}, "v_cache has batch 3; expected 2 as in k_cache."},
           Wrong{3, {2, 4, 9, 6}, "v_cache has heads 4; expected 3 as in k_cache."},
           Wrong{3, {2, 3, 8, 6}, "v_cache has seqlen 8; expected 9 as in k_cache."},
           Wrong{3, {2, 3, 9, 8}, "v_cache has head_dim 8; expected 6 as in v_new."},
       }) {
    Keys other(wrong.extents);
    Keys const* a[] = {&k, &v, &k_cache, &v_cache};
    a[wrong.which] = &other;
    expect_error<ShapeError>(
        [&] { call(*a[0], *a[1], *a[2], *a[3]); },
        {"attikos::append_kv: " + wrong.message, "k_new is [2, 3, 4, 8]", "v_cache is ["});
  }
  for (auto* cache : {&k_cache, &v_cache}) {
    cache->download();
    EXPECT_TRUE(cache->unchanged());
  }
}

TEST(AppendKvErrors, Extras) {
  Keys k({2, 3, 4, 8}), v({2, 3, 4, 6}), k_cache({7, 3, 4, 8}), v_cache({7, 3, 4, 6});
  Keys none_k({0, 3, 4, 8}), none_v({0, 3, 4, 6});
  Tensor<std::int32_t, 2, Exec> table({2, 5}), tall({3, 5});
  Tensor<std::int32_t, 1, Exec> lengths({2}), three({3});
  Tensor<float, 2, Exec> cos({9, 8}), wide({9, 10}), odd({9, 5}), few({3, 8}), empty({0, 8});
  auto const call = [&](auto const&... extras) {
    append_kv(Exec(), k.const_view(), v.const_view(), k_cache.view(), v_cache.view(), {},
              extras...);
  };
  auto const good = paged(table.const_view(), 4);
  expect_error<ShapeError>([&] { call(paged(table.const_view(), 0)); },
                           {"attikos::append_kv: page_size is 0; expected 1 or more"});
  expect_error<ShapeError>(
      [&] { call(paged(table.const_view(), 3)); },
      {"attikos::append_kv: k_cache has pages of 4 rows; expected page_size 3"});
  expect_error<ShapeError>(
      [&] { call(paged(tall.const_view(), 4)); },
      {"attikos::append_kv: page table is [3, 5] int32; expected 2 rows, one per sequence"});
  expect_error<ShapeError>(
      [&] {
        append_kv(Exec(), k.const_view(), v.const_view(), none_k.view(), none_v.view(), {}, good);
      },
      {"attikos::append_kv: k_cache has 0 pages; expected 1 or more for a page table of [2, 5]"});
  expect_error<ShapeError>(
      [&] { call(good, cache_lengths(three.const_view())); },
      {"attikos::append_kv: cache_lengths has 3 entries; expected 2, one per sequence"});
  expect_error<ShapeError>([&] { call(good, rotary(wide.const_view(), wide.const_view())); },
                           {"attikos::append_kv: rotary_dim is 10; expected at most 8"});
  expect_error<ShapeError>([&] { call(good, rotary(odd.const_view(), odd.const_view())); },
                           {"attikos::append_kv: rotary_dim is 5; expected an even number"});
  expect_error<ShapeError>(
      [&] { call(good, rotary(cos.const_view(), few.const_view())); },
      {"attikos::append_kv: sin is [3, 8] float32; expected the extents of cos"});
  expect_error<ShapeError>([&] { call(good, rotary(few.const_view(), few.const_view())); },
                           {"attikos::append_kv: cos has 3 rows; expected at least 4"});
  expect_error<ShapeError>(
      [&] {
        call(good, rotary(empty.const_view(), empty.const_view()),
             cache_lengths(lengths.const_view()));
      },
      {"attikos::append_kv: cos has 0 rows; expected at least 1"});
  Keys q({2, 6, 4, 8}), narrow({2, 6, 4, 7}), out({2, 6, 4, 8});
  auto const tables = rotary(cos.const_view(), cos.const_view());
  expect_error<ShapeError>(
      [&] { call(good, tables, queries(narrow.const_view(), narrow.view())); },
      {"attikos::append_kv: q is [2, 6, 4, 7] float32; expected batch and head_dim as in k_new"});
  expect_error<ShapeError>(
      [&] { call(good, tables, queries(q.const_view(), narrow.view())); },
      {"attikos::append_kv: out of queries is [2, 6, 4, 7] float32; expected the extents of q"});
  for (auto* tensor : {&k_cache, &v_cache, &out}) {
    tensor->download();
    EXPECT_TRUE(tensor->unchanged());
  }
}

TEST(AppendKvErrors, Kernels) {
  Keys k({2, 3, 4, 8}), v({2, 3, 4, 6}), k_cache({2, 3, 9, 8}), v_cache({2, 3, 9, 6});
  auto const plan = [&](AppendKvOptions const& options) {
    return explain(op::append_kv, Exec(), k.const_view(), v.const_view(), k_cache.view(),
                   v_cache.view(), options);
  };
  EXPECT_EQ(plan({.kernel = "portable"}).kernel, "portable");
  std::string const chosen =
      explain(op::append_kv, k.const_view(), v.const_view(), k_cache.view(), v_cache.view()).kernel;
  EXPECT_EQ(plan({.kernel = chosen.c_str()}).kernel, chosen);
  if (is_host_space<Exec>) {
    EXPECT_EQ(chosen, "portable");
  }
  expect_error<UnsupportedError>(
      [&] { plan({.kernel = "append_kv/none"}); },
      {"attikos::append_kv: kernel \"append_kv/none\" was demanded but is not available",
       "available: portable"});
  for (auto* cache : {&k_cache, &v_cache}) {
    cache->download();
    EXPECT_TRUE(cache->unchanged());
  }
}

}  // namespace
}  // namespace attikos::test
