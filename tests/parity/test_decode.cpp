// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// decode against float64: plain and paged caches, shared key heads, every term of the score, any
// number of splits; the same bits on every host back end.
#include <attikos/append_kv/append_kv.hpp>

#include "../support/messages.hpp"
#include "decode_checks.hpp"

namespace attikos::test {
namespace {

constexpr std::array decode_shapes{
    AttentionShape{1, 1, 1, 1, 1, 1, 1},      AttentionShape{4, 4, 2, 1, 300, 16, 24},
    AttentionShape{1, 6, 2, 3, 530, 40, 32},  AttentionShape{2, 4, 1, 1, 1300, 8, 8},
    AttentionShape{1, 3, 3, 2, 65, 64, 64},   AttentionShape{1, 12, 1, 9, 260, 24, 40},
    AttentionShape{1, 32, 4, 1, 97, 33, 31},  AttentionShape{2, 2, 1, 5, 1031, 12, 12},
    AttentionShape{1, 2, 1, 1, 1024, 128, 64}};

/// More heads of one key head, and more rows of them, than any tile has.
constexpr AttentionShape many_heads{2, 450, 2, 1, 70, 12, 9}, many_rows{1, 90, 1, 5, 70, 12, 9};

template <class C>
class Decode : public testing::Test {};
TYPED_TEST_SUITE(Decode, FloatingCases, CaseName);

TYPED_TEST(Decode, Shapes) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (auto const& shape : decode_shapes) {
    for (std::int64_t splits : {0, 1, 3}) {
      check_decode<Exec, T>({shape, {.splits = splits}});
      check_decode<Exec, T>({shape, {.causal = true, .splits = splits}, Form::lengths});
    }
  }
}

/// Rows that fill a device's tiles and one more; features that its teams take in several steps, and
/// more of them than queries that stay in scratch or than sums have registers for.
TYPED_TEST(Decode, RowsAndFeaturesOfTiles) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (auto [group, queries] :
       {std::pair<std::int64_t, std::int64_t>{4, 1}, {5, 1}, {4, 2}, {1, 9}, {16, 1}, {17, 1}})
    check_decode<Exec, T>(
        {{2, 2 * group, 2, queries, 150, 40, 24}, {.causal = true, .splits = 2}, Form::lengths});
  for (std::int64_t width : {128, 136, 264})
    for (std::int64_t queries : {1, 3})
      for (Form form : {Form::lengths, Form::paged})
        check_decode<Exec, T>({{1, 4, 2, queries, 140, width, 400 - width},
                               {.causal = true, .splits = 2},
                               form,
                               Layout::right,
                               16});
}

TYPED_TEST(Decode, PagedCache) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (std::int64_t page_size : {1, 3, 16, 64, 300}) {
    for (std::int64_t splits : {0, 2}) {
      check_decode<Exec, T>({{4, 4, 2, 4, 333, 24, 16},
                             {.causal = true, .splits = splits},
                             Form::paged,
                             Layout::right,
                             page_size});
    }
  }
  check_decode<Exec, T>({{1, 6, 1, 1, 1100, 32, 32}, {}, Form::paged, Layout::padded, 16});
}

TYPED_TEST(Decode, TermsOfTheScore) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  AttentionShape const shape{4, 6, 2, 5, 290, 24, 20};
  for (std::int64_t splits : {1, 3}) {
    for (auto alignment : {CausalAlignment::bottom_right, CausalAlignment::top_left}) {
      check_decode<Exec, T>({shape,
                             {.causal = true, .causal_alignment = alignment, .splits = splits},
                             Form::terms,
                             Layout::right,
                             32});
      check_decode<Exec, T>({shape,
                             {.softmax_scale = 0.7,
                              .causal_alignment = alignment,
                              .window_left = 100,
                              .window_right = 2,
                              .softcap = 1.5,
                              .splits = splits},
                             Form::terms,
                             Layout::right,
                             7});
    }
    check_decode<Exec, T>({shape,
                           {.window_left = 40, .window_right = 0, .splits = splits},
                           Form::paged,
                           Layout::right,
                           16});
    check_decode<Exec, T>({shape, {.window_left = 0, .splits = splits}, Form::lengths});
    check_decode<Exec, T>({shape, {.softcap = 2, .splits = splits}, Form::lengths});
    for (std::int64_t chunk : {1, 60, 256}) {
      check_decode<Exec, T>({shape, {.splits = splits, .attention_chunk = chunk}, Form::lengths});
      check_decode<Exec, T>({shape,
                             {.causal = true, .splits = splits, .attention_chunk = chunk},
                             Form::paged,
                             Layout::right,
                             16});
    }
  }
  // One query a head: rows are heads, each with its own bias, slope and sink.
  check_decode<Exec, T>({{2, 8, 2, 1, 290, 24, 20}, {}, Form::terms, Layout::right, 32});
}

TYPED_TEST(Decode, MoreRowsThanATileHas) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (auto const& shape : {many_heads, many_rows}) {
    check_decode<Exec, T>({shape});
    check_decode<Exec, T>({shape, {.causal = true, .splits = 2}, Form::terms, Layout::padded, 16});
  }
}

TYPED_TEST(Decode, Layouts) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (Layout layout : all_layouts) {
    for (std::int64_t seqlen_q : {1, 4}) {
      AttentionShape const shape{2, 4, 2, seqlen_q, 270, 20, 12};
      check_decode<Exec, T>({shape, {.causal = true, .splits = 2}, Form::lengths, layout});
      check_decode<Exec, T>({shape, {.causal = true}, Form::paged, layout, 16});
      check_decode<Exec, T>({shape, {.causal = true}, Form::terms, layout, 16});
    }
  }
  // Contiguous features of one of keys and values alone.
  for (Layout of_k : {Layout::strided, Layout::right}) {
    Layout const of_v = of_k == Layout::right ? Layout::strided : Layout::right;
    check_decode<Exec, T>({{2, 4, 2, 1, 270, 20, 12}, {}, Form::lengths, of_k, 0, 1, of_v});
  }
}

/// Scores far apart: parts whose weight underflows, exponents near the edge.
TYPED_TEST(Decode, LargeScores) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  check_decode<Exec, T>(
      {{1, 4, 2, 2, 600, 16, 16}, {.splits = 2}, Form::lengths, Layout::right, 0, 15});
}

/// What a query must not see does not reach it as 0·NaN either, be the rows few or many, nor in the
/// last features, fewer than a vector.
TYPED_TEST(Decode, UnseenValues) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (std::int64_t queries : {4, 7})
    for (std::int64_t width : {16, 19})
      for (Form form : {Form::lengths, Form::paged}) {
        DecodeRun<Exec, T> run(
            {{1, 4, 2, queries, 300, width, width}, {.causal = true}, form, Layout::right, 16});
        // The last query alone sees the last key; the others are compared with the oracle.
        for (std::int64_t h = 0; h < 2; ++h)
          for (std::int64_t c = 0; c < width; ++c)
            run.at(run.v, 0, h, 299, c) = run.at(run.k, 0, h, 299, c) = poison<T>();
        run.k.upload(), run.v.upload();
        run.call();
        run.compare();
        for (std::int64_t c = 0; c < width; ++c) {
          EXPECT_TRUE(std::isnan(run.out.value(0, 0, queries - 1, c)));
          EXPECT_FALSE(std::isnan(run.out.value(0, 0, queries - 2, c)));
        }
      }
}

TYPED_TEST(Decode, ZeroExtents) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (auto shape : empty_attention_shapes) {
    if (shape.heads_q == 0) shape.heads_kv = 1;
    check_decode<Exec, T>({shape});
    check_decode<Exec, T>({shape, {.splits = 3}, Form::lengths});
    check_decode<Exec, T>({shape, {}, Form::paged, Layout::right, 4});
    check_decode<Exec, T>({shape, {}, Form::terms, Layout::right, 4});
  }
  check_decode<Exec, T>({{1, 2, 1, 3, 20, 0, 8}, {}, Form::lengths});
}

template <class Exec>
class DecodeSpaces : public testing::Test {};
TYPED_TEST_SUITE(DecodeSpaces, SpaceCases, CaseName);

template <class Exec, class Out>
void check_float8_cache(AttentionShape const& shape, Layout layout, std::int64_t page_size) {
  DecodeRun<Exec, float8_e4m3, Out> run({shape, {.splits = 2}, Form::paged, layout, page_size});
  Tensor<float, 1, Exec> fq({1}), fk({1}), fv({1});
  fq.fill(0.5), fk.fill(1.5), fv.fill(3);
  decode(Exec(), run.q.const_view(), run.k.const_view(), run.v.const_view(), run.out.view(),
         run.lse.view(), run.p.options,
         lengths(run.lengths_q.const_view(), run.lengths_kv.const_view()),
         paged(run.table.const_view(), page_size),
         descale(fq.const_view(), fk.const_view(), fv.const_view()));
  run.out.download();
  run.lse.download();
  run.compare(0.5 * 1.5, 3);
}

TYPED_TEST(DecodeSpaces, Float8Cache) {
  using Exec = TypeParam;
  for (Layout layout : {Layout::right, Layout::padded}) {
    check_float8_cache<Exec, bfloat16>({2, 4, 2, 2, 300, 32, 32}, layout, 16);
    check_float8_cache<Exec, float16>({2, 8, 2, 1, 200, 128, 64}, layout, 7);
    check_float8_cache<Exec, float>({1, 8, 1, 3, 150, 64, 128}, layout, 64);
  }
  DecodeRun<Exec, float8_e4m3, float> run(
      {{2, 8, 2, 2, 180, 64, 64}, {.causal = true, .splits = 3}, Form::terms, Layout::right, 16});
  run.call();
  run.compare();
}

/// Attention over parts of the keys, merged by hand.
TYPED_TEST(DecodeSpaces, MergedAttention) {
  using Exec = TypeParam;
  DecodeRun<Exec, float> run({{2, 4, 2, 7, 500, 24, 16}, {}, Form::lengths});
  // Lengths do not enter here: every position holds a number.
  Random random(4);
  run.k.fill_uniform(random), run.v.fill_uniform(random);
  run.p.form = Form::bare;
  Tensor<float, 4, Exec> other(run.out.extents());
  Tensor<float, 3, Exec> other_lse(run.lse.extents());
  auto const part = [](auto const& view, std::int64_t from, std::int64_t to) {
    return Kokkos::subview(view, Kokkos::ALL, Kokkos::ALL, std::make_pair(from, to), Kokkos::ALL);
  };
  auto const piece = [&](std::int64_t from, std::int64_t to, auto& out, auto& lse) {
    attention(Exec(), run.q.const_view(), part(run.k.const_view(), from, to),
              part(run.v.const_view(), from, to), out.view(), lse.view());
  };
  piece(0, 123, run.out, run.lse);
  std::int64_t const cuts[] = {123, 123, 124, 500};  // one part is empty, one a single key
  for (int c = 0; c < 3; ++c) {
    piece(cuts[c], cuts[c + 1], other, other_lse);
    merge_states(Exec(), run.out.view(), run.lse.view(), other.view(), other_lse.view(),
                 run.out.view(), run.lse.view());
  }
  run.out.download();
  run.lse.download();
  run.compare();
}

/// Keys appended token by token to a paged cache, each token attending to all before it.
TYPED_TEST(DecodeSpaces, Generation) {
  using Exec = TypeParam;
  AttentionShape const shape{2, 4, 2, 1, 20, 16, 16};
  DecodeRun<Exec, float> run({shape, {.splits = 2}, Form::paged, Layout::right, 8});
  Tensor<float, 4, Exec> k({2, 2, 20, 16}), v(k.extents());
  Tensor<std::int32_t, 1, Exec> before({2});
  Random random(9);
  k.fill_uniform(random), v.fill_uniform(random);
  run.k.fill(std::nan("")), run.v.fill(std::nan(""));
  run.lengths_q.fill(1);
  run.q.fill_uniform(random);
  auto const part = [](auto const& view, std::int64_t i) {
    return Kokkos::subview(view, Kokkos::ALL, Kokkos::ALL, std::make_pair(i, i + 1), Kokkos::ALL);
  };
  auto const pages = paged(run.table.const_view(), std::int64_t{8});
  for (std::int64_t i = 0; i < 20; ++i) {
    before.fill(static_cast<double>(i));
    run.lengths_kv.fill(static_cast<double>(i + 1));
    append_kv(Exec(), part(k.const_view(), i), part(v.const_view(), i), run.k.view(), run.v.view(),
              {}, pages, cache_lengths(before.const_view()));
    run.call();
    run.k.download(), run.v.download();
    run.compare();
  }
}

/// A second call gives the same bits. A sequence's bits depend on its own cache alone: not on the
/// batch, on a device where that is asked for, nor, on hosts, on the back end.
TYPED_TEST(DecodeSpaces, SameBits) {
  using Exec = TypeParam;
  DecodeRun<Exec, float> batch({{3, 4, 2, 2, 1700, 24, 16}, {}});
  auto const run = [&](auto const& exec, DecodeOptions const& options, auto const& part) {
    batch.out.fill(0);
    decode(exec, part(batch.q.const_view()), part(batch.k.const_view()), part(batch.v.const_view()),
           part(batch.out.view()), options);
    batch.out.download();
    return batch.out.elements();
  };
  auto const all = [](auto const& view) { return view; };
  auto const second = [](auto const& view) {
    return Kokkos::subview(view, std::make_pair(1, 2), Kokkos::ALL, Kokkos::ALL, Kokkos::ALL);
  };
  DecodeOptions const plain{.causal = true};
  auto const want = run(Exec(), plain, all);
  EXPECT_TRUE(same_bits(run(Exec(), plain, all), want));
  constexpr bool by_host = !detail::multiplies_in_fragments<Exec>;
  if constexpr (by_host) {
    EXPECT_TRUE(same_bits(run(Kokkos::DefaultHostExecutionSpace(), plain, all), want));
  }
  auto const determinism = by_host ? Determinism::run_to_run : Determinism::batch_invariant;
  DecodeOptions const invariant{.causal = true, .determinism = determinism};
  auto together = run(Exec(), invariant, all);
  auto const third = static_cast<std::ptrdiff_t>(together.size() / 3);
  std::fill(together.begin(), together.begin() + third, 0.0f);
  std::fill(together.end() - third, together.end(), 0.0f);
  EXPECT_TRUE(same_bits(run(Exec(), invariant, second), together));
}

using Exec = Kokkos::DefaultExecutionSpace;

TEST(DecodeErrors, Messages) {
  Tensor<float, 4, Exec> q({2, 4, 1, 8}), k({2, 2, 100, 8}), v({2, 2, 100, 6}), out({2, 4, 1, 6});
  Tensor<float, 4, Exec> short_v({2, 2, 99, 6});
  auto const call = [&](DecodeOptions const& options) {
    decode(Exec(), q.const_view(), k.const_view(), v.const_view(), out.view(), options);
  };
  expect_error<Error>([&] { call({.splits = -1}); },
                      {"attikos::decode: splits is -1; expected a number of parts"});
  expect_error<Error>([&] { call({.window_left = -2}); },
                      {"attikos::decode: window_left is -2; expected a number of keys"});
  expect_error<Error>(
      [&] { call({.attention_chunk = -1}); },
      {"attikos::decode: attention_chunk is -1; expected a number of positions, 0 for all"});
  expect_error<UnsupportedError>(
      [&] { call({.kernel = "decode/none"}); },
      {"attikos::decode: kernel \"decode/none\" was demanded but is not available",
       "available: portable"});
  expect_error<ShapeError>(
      [&] { decode(Exec(), q.const_view(), k.const_view(), short_v.const_view(), out.view()); },
      {"attikos::decode: v has seqlen_kv 99; expected 100 as in k. q is [2, 4, 1, 8] float32"});
  std::size_t const bytes =
      decode_workspace_size(Exec(), q.const_view(), k.const_view(), v.const_view());
  ASSERT_GT(bytes, 8u);
  Tensor<double, 1, Exec> memory({static_cast<std::int64_t>((bytes + 7) / 8) - 1});
  expect_error<ResourceError>(
      [&] {
        decode(Exec(), q.const_view(), k.const_view(), v.const_view(), out.view(), {},
               workspace(memory.view()));
      },
      {"attikos::decode: workspace has ", "expected at least " + std::to_string(bytes)});
  out.download();
  EXPECT_TRUE(out.unchanged());
  auto const explanation =
      explain(op::decode, Exec(), q.const_view(), k.const_view(), v.const_view(), out.view());
  using Compiled = detail::Specializations<op::Decode, Exec, float, float>::kernels;
  EXPECT_EQ(explanation.kernel == "portable", (std::is_same_v<Compiled, detail::KernelList<>>))
      << explanation.kernel;
}

}  // namespace
}  // namespace attikos::test
