// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// append_kv of sequences that differ in their number of new tokens, padded with counts or packed
// with offsets, against float64: every element of both caches and of the rotated queries.
#include <attikos/append_kv/append_kv.hpp>
#include <attikos/append_kv/validate_append_kv.hpp>
#include <attikos/reference/append_kv_reference.hpp>
#include <attikos/reference/rope_reference.hpp>
#include <limits>
#include <sstream>
#include <string>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/messages.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance_norms.hpp"

namespace attikos::test {
namespace {

/// How new tokens and queries lie.
enum class Storage { counted, packed, packed_queries_only, packed_keys_only };

struct RaggedCase {
  std::vector<std::int64_t> counts;  ///< new tokens of each sequence, as the device has them
  std::vector<std::int64_t> starts;  ///< what each has in the cache
  Storage storage = Storage::counted;
  std::int64_t page_size = 0;  ///< 0: plain
  RopeStyle style = RopeStyle::half_split;
  bool half_width = true;
  Layout layout = Layout::right;
  std::int64_t seqlen_new = 6;
  std::int64_t d = 24, dv = 9, rotary_dim = 20, capacity = 24;
};

std::string describe(RaggedCase const& p) {
  std::ostringstream text;
  text << "counts";
  for (auto n : p.counts) text << " " << n;
  text << " storage " << static_cast<int>(p.storage) << " page size " << p.page_size << " style "
       << static_cast<int>(p.style) << " half width " << p.half_width << " layout "
       << layout_name(p.layout);
  return text.str();
}

template <class Exec, class T>
struct RaggedRun {
  RaggedCase p;
  std::int64_t const heads = 2;
  std::int64_t batch, max_pages, num_pages;
  bool packed_kv, packed_q;
  std::vector<std::int64_t> before{2};  ///< positions before each packed sequence
  std::int64_t total = 2;               ///< with two that belong to no sequence at either end
  Tensor<T, 4, Exec> k_new, v_new, q, q_out, k_cache, v_cache;
  Tensor<std::int32_t, 1, Exec> lengths, counts;
  Tensor<std::int64_t, 1, Exec> offsets;
  Tensor<std::int32_t, 2, Exec> table;
  Tensor<float, 2, Exec> cos, sin;

  static std::int64_t packed_total(RaggedCase const& c) {
    std::int64_t total = 4;
    for (auto n : c.counts) total += std::max<std::int64_t>(n, 0);
    return total;
  }
  static bool has_packed_kv(RaggedCase const& c) {
    return c.storage == Storage::packed || c.storage == Storage::packed_keys_only;
  }
  static bool has_packed_q(RaggedCase const& c) {
    return c.storage == Storage::packed || c.storage == Storage::packed_queries_only;
  }
  static std::array<std::int64_t, 4> tokens(RaggedCase const& c, bool packed, std::int64_t heads,
                                            std::int64_t d) {
    if (packed) return {1, heads, packed_total(c), d};
    return {static_cast<std::int64_t>(c.counts.size()), heads, c.seqlen_new, d};
  }

  explicit RaggedRun(RaggedCase const& c)
      : p(c),
        batch(static_cast<std::int64_t>(c.counts.size())),
        max_pages(p.page_size == 0 ? 0 : p.capacity / p.page_size),
        num_pages(batch * max_pages + 3),
        packed_kv(has_packed_kv(c)),
        packed_q(has_packed_q(c)),
        k_new(tokens(c, packed_kv, heads, p.d), p.layout),
        v_new(tokens(c, packed_kv, heads, p.dv), p.layout),
        q(tokens(c, packed_q, 2 * heads, p.d), p.layout),
        q_out(q.extents(), p.layout),
        k_cache(cache_extents(p.d)),
        v_cache(cache_extents(p.dv)),
        lengths({batch}, Layout::strided),
        counts({batch}, Layout::strided),
        offsets({batch + 1}, Layout::strided),
        table({batch, max_pages}),
        cos({p.capacity, p.half_width ? p.rotary_dim / 2 : p.rotary_dim}, Layout::padded),
        sin(cos.extents()) {
    Random random(17);
    cos.fill_uniform(random);
    sin.fill_uniform(random);
    for (std::int64_t b = 0; b < batch; ++b) {
      lengths(b) = static_cast<std::int32_t>(p.starts[sz(b)]);
      counts(b) = static_cast<std::int32_t>(p.counts[sz(b)]);
      for (std::int64_t i = 0; i < max_pages; ++i)
        table(b, i) = static_cast<std::int32_t>(i * batch + b + 1);
      before.push_back(before.back() + std::max<std::int64_t>(p.counts[sz(b)], 0));
    }
    for (std::int64_t b = 0; b <= batch; ++b) offsets(b) = before[sz(b)];
    lengths.upload(), counts.upload(), offsets.upload(), table.upload();
    // NaN stays wherever no new token is.
    auto const fill = [&](auto& x, bool packed) {
      x.for_each([&](auto const& i) {
        bool const inside =
            packed ? i[2] >= before.front() && i[2] < before.back() : i[2] < count(i[0]);
        if (inside) x.at(i) = from_double<T>(random.uniform(-1, 1));
      });
      x.upload();
    };
    fill(k_new, packed_kv), fill(v_new, packed_kv);
    if (packed_q) {
      fill(q, true);
    } else {
      q.fill_uniform(random);
    }
    for (auto* cache : {&k_cache, &v_cache}) cache->fill_uniform(random);
  }

  std::array<std::int64_t, 4> cache_extents(std::int64_t d) const {
    if (p.page_size == 0) return {batch, heads, p.capacity, d};
    return {num_pages, heads, p.page_size, d};
  }
  std::int64_t count(std::int64_t b) const {
    std::int64_t const most = packed_kv ? p.counts[sz(b)] : p.seqlen_new;
    return std::clamp<std::int64_t>(p.counts[sz(b)], 0, std::max<std::int64_t>(most, 0));
  }

  void call() {
    auto const tables = rotary(cos.const_view(), sin.const_view());
    auto const lens = cache_lengths(lengths.const_view());
    AppendKvOptions const options{.style = p.style, .rotary_dim = p.half_width ? p.rotary_dim : 0};
    auto const run = [&](auto const& k, auto const& v, auto const& queried, auto const&... how) {
      if (p.page_size == 0) {
        append_kv(Exec(), k, v, k_cache.view(), v_cache.view(), options, lens, tables, queried,
                  how...);
      } else {
        append_kv(Exec(), k, v, k_cache.view(), v_cache.view(), options, how..., queried, tables,
                  paged(table.const_view(), p.page_size), lens);
      }
    };
    auto const off = offsets.const_view();
    switch (p.storage) {
      case Storage::counted:
        run(k_new.const_view(), v_new.const_view(), queries(q.const_view(), q_out.view()),
            new_lengths(counts.const_view()));
        break;
      case Storage::packed:
        run(k_new.const_front(), v_new.const_front(), queries(q.const_front(), q_out.front()),
            cu_seqlens(off));
        break;
      case Storage::packed_queries_only:
        run(k_new.const_view(), v_new.const_view(), queries(q.const_front(), q_out.front()),
            cu_seqlens(off, none), new_lengths(counts.const_view()));
        break;
      case Storage::packed_keys_only:
        run(k_new.const_front(), v_new.const_front(), queries(q.const_view(), q_out.view()),
            cu_seqlens(none, off));
    }
  }

  reference::RopeHead rotated(Tensor<T, 4, Exec> const& x, std::int64_t b, std::int64_t h,
                              std::int64_t i, std::int64_t position, bool rotate) {
    std::vector<double> head, c, s;
    for (std::int64_t j = 0; j < x.extent(3); ++j) head.push_back(x.value(b, h, i, j));
    bool const interleaved = p.style == RopeStyle::interleaved;
    std::int64_t const row = std::clamp<std::int64_t>(position, 0, cos.extent(0) - 1);
    for (std::int64_t j = 0; rotate && j < cos.extent(1); ++j) {
      c.push_back(cos.value(row, j));
      s.push_back(sin.value(row, j));
    }
    if (p.half_width) {
      c = reference::rope_full_width(c, interleaved);
      s = reference::rope_full_width(s, interleaved);
    }
    return reference::rope_head(head, c, s, interleaved, false);
  }

  void compare_cache(char const* name, Tensor<T, 4, Exec>& cache, Tensor<T, 4, Exec> const& x,
                     bool rotate) {
    auto expected = cache.elements();
    cache.download();
    EXPECT_EQ(cache.writes_outside(), 0u) << describe(p);
    Tensor<T, 4, Exec> after(cache.extents());
    std::size_t n = 0;
    after.for_each([&](auto const& i) { after.at(i) = expected[n++]; });
    Comparison values(
        std::string("append_kv ragged/") + name + "/" + type_name<T>() + "/" + Exec::name(),
        describe(p), stored_as<T>());
    for (std::int64_t b = 0; b < batch; ++b) {
      std::vector<std::int64_t> pages;
      for (std::int64_t i = 0; i < max_pages; ++i) pages.push_back(table(b, i));
      for (std::int64_t i = 0; i < count(b); ++i) {
        std::int64_t const position = p.starts[sz(b)] + i;
        auto const to = p.page_size == 0
                            ? reference::plain_slot(b, position, p.capacity)
                            : reference::paged_slot(pages, position, p.page_size, num_pages);
        if (!to) continue;
        std::int64_t const outer = to->outer, row = to->row;
        for (std::int64_t h = 0; h < heads; ++h) {
          auto const head = packed_kv ? rotated(x, 0, h, before[sz(b)] + i, position, rotate)
                                      : rotated(x, b, h, i, position, rotate);
          for (std::int64_t c = 0; c < x.extent(3); ++c) {
            double const want = head.out[sz(c)];
            bool const exact = !rotate || c >= p.rotary_dim;
            values.add(cache.value(outer, h, row, c), want,
                       exact ? 0x1p-1000 : rope_bound<T>(head.magnitude[sz(c)], want),
                       {outer, h, row, c});
            after(outer, h, row, c) = cache(outer, h, row, c);
          }
        }
      }
    }
    EXPECT_TRUE(same_bits(after.elements(), cache.elements()))
        << "an element changed that no new position stands for: " << describe(p);
  }

  void compare_queries() {
    q_out.download();
    EXPECT_EQ(q_out.writes_outside(), 0u) << describe(p);
    Comparison values(std::string("append_kv ragged/q/") + type_name<T>() + "/" + Exec::name(),
                      describe(p), stored_as<T>());
    for (std::int64_t r = 0; r < q.extent(0) * q.extent(2); ++r) {
      std::int64_t const outer = r / q.extent(2), row = r % q.extent(2);
      std::int64_t b = outer, i = row;
      if (packed_q) {
        for (b = batch; b > 0 && row < before[sz(b)];) --b;
        i = row - before[sz(b)];
        if (row < before.front()) b = batch;  // as behind the last: of no sequence
      }
      for (std::int64_t h = 0; h < q.extent(1); ++h) {
        reference::RopeHead head;
        if (b < batch) head = rotated(q, outer, h, row, p.starts[sz(b)] + i, true);
        for (std::int64_t c = 0; c < p.d; ++c) {
          double const want = b < batch ? head.out[sz(c)] : 0;
          values.add(q_out.value(outer, h, row, c), want,
                     b < batch ? rope_bound<T>(head.magnitude[sz(c)], want) : 0,
                     {outer, h, row, c});
        }
      }
    }
  }
};

template <class C>
class AppendKvRagged : public testing::Test {};
TYPED_TEST_SUITE(AppendKvRagged, FloatingCases, CaseName);

template <class C>
void check_ragged(RaggedCase const& p) {
  RaggedRun<typename C::Exec, typename C::T> run(p);
  run.call();
  run.compare_cache("k", run.k_cache, run.k_new, true);
  run.compare_cache("v", run.v_cache, run.v_new, false);
  run.compare_queries();
}

constexpr std::array all_storage{Storage::counted, Storage::packed, Storage::packed_queries_only,
                                 Storage::packed_keys_only};

TYPED_TEST(AppendKvRagged, CountsAndOffsets) {
  int turn = 0;
  for (Storage storage : all_storage) {
    for (std::int64_t page_size : {0, 4}) {
      for (RopeStyle style : {RopeStyle::half_split, RopeStyle::interleaved}) {
        // One that runs past the end of the cache, empty ones, one that has none before it.
        check_ragged<TypeParam>({{3, 0, 6, 1, 0},
                                 {5, 2, 21, 0, 4},
                                 storage,
                                 page_size,
                                 style,
                                 turn % 2 == 0,
                                 all_layouts[sz(turn++ % 5)]});
        check_ragged<TypeParam>({{0, 0}, {1, 2}, storage, page_size, style});
        check_ragged<TypeParam>({{5}, {0}, storage, page_size, style, false});
        check_ragged<TypeParam>({{}, {}, storage, page_size, style});
      }
    }
  }
}

/// Counts that are no counts are clamped.
TYPED_TEST(AppendKvRagged, CountsOutOfRange) {
  for (std::int64_t page_size : {0, 4})
    check_ragged<TypeParam>({{-3, 100, 2}, {5, 2, 7}, Storage::counted, page_size});
}

using Exec = Kokkos::DefaultExecutionSpace;

TEST(AppendKvRaggedErrors, Messages) {
  Tensor<float, 4, Exec> k({1, 3, 7, 8}), v({1, 3, 7, 6}), k_cache({2, 3, 9, 8}),
      v_cache({2, 3, 9, 6}), q({1, 6, 7, 8}), padded({2, 3, 7, 8}), padded_v({2, 3, 7, 6});
  Tensor<float, 2, Exec> cos({9, 4});
  Tensor<std::int32_t, 1, Exec> two({2}), three({3}), four({4}), none_at_all({0});
  auto const call = [&](AppendKvOptions const& options, auto const&... extras) {
    append_kv(Exec(), k.const_front(), v.const_front(), k_cache.view(), v_cache.view(), options,
              extras...);
  };
  expect_error<ShapeError>([&] { call({}, cu_seqlens(none, four.const_view())); },
                           {"attikos::append_kv: k_cache has batch 2; expected 3 as in cu_seqlens",
                            "k_new is [3, 7, 8] float32"});
  expect_error<ShapeError>(
      [&] { call({}, cu_seqlens(none, none_at_all.const_view())); },
      {"attikos::append_kv: cu_seqlens of kv has 0 entries; expected one more"});
  expect_error<ShapeError>(
      [&] { call({}, cu_seqlens(none, three.const_view()), cache_lengths(three.const_view())); },
      {"attikos::append_kv: cache_lengths has 3 entries; expected 2, one per sequence"});
  auto const tables = rotary(cos.const_view(), cos.const_view());
  expect_error<ShapeError>(
      [&] {
        call({.rotary_dim = 8}, cu_seqlens(four.const_view(), three.const_view()), tables,
             queries(q.const_front(), q.front()));
      },
      {"attikos::append_kv: cu_seqlens of q has 4 entries; expected 3, one more than there are"});
  expect_error<ShapeError>(
      [&] { call({.rotary_dim = 6}, cu_seqlens(none, three.const_view()), tables); },
      {"attikos::append_kv: options.rotary_dim is 6; expected an even number that is the width"});
  expect_error<ShapeError>(
      [&] {
        append_kv(Exec(), padded.const_view(), padded_v.const_view(), k_cache.view(),
                  v_cache.view(), {}, new_lengths(three.const_view()));
      },
      {"attikos::append_kv: new_lengths has 3 entries; expected 2, one per sequence"});
  for (auto* tensor : {&k_cache, &v_cache, &q}) {
    tensor->download();
    EXPECT_TRUE(tensor->unchanged());
  }
}

/// int32 on the device.
Tensor<std::int32_t, 1, Exec> numbers(std::vector<std::int32_t> const& values) {
  Tensor<std::int32_t, 1, Exec> x({static_cast<std::int64_t>(values.size())}, Layout::strided);
  for (std::size_t i = 0; i < values.size(); ++i) x(static_cast<std::int64_t>(i)) = values[i];
  x.upload();
  return x;
}

TEST(ValidateAppendKv, NamesTheFirstSequenceThatDoesNotFit) {
  Tensor<float, 4, Exec> k({3, 2, 4, 8}), cache({3, 2, 10, 8}), packed({1, 2, 9, 8}),
      pages({7, 2, 4, 8});
  Tensor<std::int32_t, 2, Exec> table({3, 2});
  auto const refuse = [&](std::string const& what, auto const& x, auto const& to,
                          auto const&... extras) {
    expect_error<ShapeError>([&] { validate_append_kv(Exec(), x, to, extras...); }, {what});
  };
  auto const fits = [&](auto const& x, auto const& to, auto const&... extras) {
    EXPECT_NO_THROW(validate_append_kv(Exec(), x, to, extras...));
  };
  auto const kv = k.const_view();
  auto const to = cache.view();
  auto const used = [](Tensor<std::int32_t, 1, Exec> const& x) {
    return cache_lengths(x.const_view());
  };
  auto const fresh = [](Tensor<std::int32_t, 1, Exec> const& x) {
    return new_lengths(x.const_view());
  };
  fits(kv, to);
  fits(kv, to, used(numbers({0, 6, 6})));
  refuse(
      "attikos::validate_append_kv: sequence 1 has 7 positions in use and 4 new tokens; expected "
      "from 0 to 4 new tokens, and room for both in the 10 positions of one sequence of k_cache",
      kv, to, used(numbers({6, 7, 8})));
  refuse("sequence 2 has -1 positions in use and 4 new tokens", kv, to, used(numbers({6, 0, -1})));
  fits(kv, to, used(numbers({6, 10, 7})), fresh(numbers({4, 0, 3})));
  refuse("sequence 2 has 7 positions in use and 4 new tokens", kv, to, fresh(numbers({4, 0, 4})),
         used(numbers({6, 10, 7})));
  refuse("sequence 0 has 0 positions in use and 5 new tokens", kv, to, fresh(numbers({5, 0, -4})));
  refuse("sequence 1 has 0 positions in use and -4 new tokens", kv, to, fresh(numbers({4, -4, 5})));
  // Eight positions in two pages, though the pool has more of them; the last sequence has no second
  // one, so that its number may be anything.
  for (std::int64_t b = 0; b < 3; ++b)
    for (std::int64_t i = 0; i < 2; ++i) table(b, i) = static_cast<std::int32_t>(2 * b + i);
  table(2, 1) = 90;
  table.upload();
  auto const paged_cache = paged(table.const_view(), std::int64_t{4});
  fits(kv, pages.view(), paged_cache, used(numbers({4, 4, 0})));
  for (std::int32_t const page : {7, -1}) {
    table(1, 1) = page;
    table.upload();
    refuse("attikos::validate_page_table: page table holds " + std::to_string(page) +
               " at [1, 1]; expected numbers in [0, 7)",
           kv, pages.view(), paged_cache, used(numbers({4, 4, 0})));
  }
  table(1, 1) = 3;
  table.upload();
  refuse(
      "sequence 0 has 5 positions in use and 4 new tokens; expected from 0 to 4 new tokens, and "
      "room for both in the 8 positions",
      kv, pages.view(), used(numbers({5, 4, 0})), paged_cache);
  // Packed: what lies before the first offset and behind the last belongs to no sequence.
  auto const front = packed.const_front();
  auto const offsets = [](Tensor<std::int32_t, 1, Exec> const& x) {
    return cu_seqlens(none, x.const_view());
  };
  fits(front, to, offsets(numbers({1, 4, 4, 8})), used(numbers({7, 10, 6})));
  refuse("sequence 1 has 10 positions in use and 1 new tokens", front, to,
         offsets(numbers({1, 4, 5, 8})), used(numbers({7, 10, 6})));
  refuse("attikos::validate_cu_seqlens: offset 2 is 3; expected ascending numbers in [0, 9]", front,
         to, offsets(numbers({1, 4, 3, 8})));
  refuse("offset 3 is 10; expected ascending", front, to, offsets(numbers({1, 4, 5, 10})));
  refuse("attikos::validate_append_kv: cache_lengths has 2 entries; expected 3, one per sequence",
         kv, to, used(numbers({1, 2})));
  // No sequences are all right; numbers beyond 32 bits are no wrap-around.
  Tensor<float, 4, Exec> nothing({0, 2, 4, 8}), no_cache({0, 2, 10, 8});
  fits(nothing.const_view(), no_cache.view());
  refuse("sequence 0 has 2147483647 positions in use and 4 new tokens", kv, to,
         used(numbers({std::numeric_limits<std::int32_t>::max(), 0, 0})));
}

}  // namespace
}  // namespace attikos::test
