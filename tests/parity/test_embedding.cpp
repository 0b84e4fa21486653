// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// embedding, which is exact, and its gradient against the float64 oracle.
#include <attikos/reference/embedding_reference.hpp>

#include "row_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class Embedding : public testing::Test {};
TYPED_TEST_SUITE(Embedding, FloatingCases, CaseName);

/// How often ids come.
enum class Draw { evenly, few, one, in_order, strange };

struct EmbeddingCase {
  std::int64_t rows, batch, tokens, width;
  Draw draw = Draw::evenly;
  Layout layout = Layout::right;
  std::int64_t padding_index = -1;
  double beta = 0;
  std::int64_t column_step = 1;
};

std::string describe(EmbeddingCase const& p) {
  std::ostringstream text;
  text << p.batch << " x " << p.tokens << " ids of [" << p.rows << ", " << p.width << "] drawn "
       << static_cast<int>(p.draw) << " layout " << layout_name(p.layout) << " padding "
       << p.padding_index << " beta " << p.beta;
  return text.str();
}

template <class Id>
Id draw_id(EmbeddingCase const& p, std::int64_t i, Random& random) {
  std::int64_t id = random.integer(0, p.rows - 1);
  if (p.draw == Draw::few) id = id % 3 * (p.rows / 3);
  if (p.draw == Draw::one && i % 100 != 17) id = p.rows / 2;
  if (p.draw == Draw::in_order) id = i % p.rows;
  if (p.draw == Draw::strange && i % 3 == 1) id = i % 2 == 0 ? p.rows + i : -1 - i;
  return static_cast<Id>(id);
}

template <class C, class Id>
struct Problem {
  using T = typename C::T;
  using Exec = typename C::Exec;
  Tensor<Id, 2, Exec> ids;
  Tensor<T, 3, Exec> rows;
  Tensor<T, 2, Exec> table;

  explicit Problem(EmbeddingCase const& p)
      : ids({p.batch, p.tokens}, p.layout),
        rows({p.batch, p.tokens, p.width}, p.layout),
        table({p.rows, p.width}, p.layout) {
    Random random(static_cast<std::uint64_t>(p.tokens + p.width));
    std::int64_t i = 0;
    ids.for_each([&](auto const& at) { ids.at(at) = draw_id<Id>(p, i++, random); });
    ids.upload();
    table.fill_uniform(random);
  }
};

template <class C, class Id = std::int64_t>
void check_rows(EmbeddingCase const& p) {
  Problem<C, Id> t(p);
  embedding(typename C::Exec(), t.table.const_view(), t.ids.const_view(), t.rows.view());
  t.rows.download();
  EXPECT_EQ(t.rows.writes_outside(), 0u) << describe(p);
  std::int64_t wrong = 0;
  t.rows.for_each([&](auto const& at) {
    auto const id = static_cast<std::int64_t>(t.ids(at[0], at[1]));
    double const got = t.rows.value(at[0], at[1], at[2]);
    if (id < 0 || id >= p.rows)
      wrong += !std::isnan(got);
    else
      wrong += !(got == t.table.value(id, at[2]));
  });
  EXPECT_EQ(wrong, 0) << describe(p);
}

template <class C, class Id = std::int64_t>
void check_gradient(EmbeddingCase const& p) {
  using T = typename C::T;
  using Acc = Accumulator<T>;
  Problem<C, Id> t(p);
  Random random(5);
  t.rows.fill_uniform(random, -1, 2);
  if (p.beta == 0) t.table.fill(std::numeric_limits<double>::quiet_NaN());
  auto const old =
      p.beta == 0 ? std::vector<T>{} : Tensor<T, 2, typename C::Exec>(t.table).elements();
  embedding_backward(typename C::Exec(), t.ids.const_view(), t.rows.const_view(), t.table.view(),
                     {.padding_index = p.padding_index, .beta = p.beta});
  t.table.download();
  EXPECT_EQ(t.table.writes_outside(), 0u) << describe(p);
  std::vector<std::int64_t> ids;
  t.ids.for_each(
      [&](auto const& at) { ids.push_back(static_cast<std::int64_t>(t.ids(at[0], at[1]))); });
  Stored const stored = stored_as<T>();
  Comparison comparison(name_of<C>("embedding_backward"), describe(p), stored);
  double const u = precision<Acc>().roundoff;
  for (std::int64_t c = 0; c < p.width; c += p.column_step) {
    std::vector<double> column;
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t i = 0; i < p.tokens; ++i) column.push_back(t.rows.value(b, i, c));
    auto const want = reference::embedding_gradient_column(ids, column, p.rows, p.padding_index);
    for (std::int64_t r = 0; r < p.rows; ++r) {
      auto const& g = want[sz(r)];
      double const held = p.beta == 0 ? 0 : p.beta * to_double(old[sz(r * p.width + c)]);
      double const value = g.sum + held;
      // The sum's roundings, then those of the product and of the sum of both, and the result's.
      // What has one term or none is exact.
      double const error =
          (g.terms > 1 ? growth(static_cast<double>(g.terms)) * u * g.magnitude : 0) +
          (p.beta == 0 ? 0 : 2 * u * (g.magnitude + std::abs(held)));
      bool const exact = g.terms <= 1 && p.beta == 0;
      double const bound =
          exact ? 0 : oracle_factor<Acc>() * error + rounding<T>(std::abs(value) + error);
      double const got = t.table.value(r, c);
      if (stored.roundoff == 0) {
        comparison.add(got, value, bound, {r, c});
        continue;
      }
      // A sum of few numbers of few bits lies on few places between neighbors of T, m of them
      // evenly and ties as the others: h²/3 (1 + 2/m²), which is largest for the two of 0 and a
      // tie.
      ErrorParts parts = stored_parts(value, bound, stored.roundoff, stored.smallest);
      parts.own *= 1.5;
      comparison.add(got, value, bound, parts, {r, c});
    }
  }
}

TYPED_TEST(Embedding, Rows) {
  for (auto width : row_lengths) {
    check_rows<TypeParam>({11, 2, 9, width});
    check_rows<TypeParam, std::int32_t>({11, 1, 20, width, Draw::strange});
  }
  for (Layout layout : all_layouts) check_rows<TypeParam>({40, 3, 7, 48, Draw::evenly, layout});
  check_rows<TypeParam>({300, 1, 500, 1024});
}

TYPED_TEST(Embedding, Gradient) {
  for (auto width : row_lengths) {
    check_gradient<TypeParam>({11, 2, 9, width});
    check_gradient<TypeParam, std::int32_t>({11, 1, 150, width, Draw::strange});
  }
  for (Layout layout : all_layouts)
    check_gradient<TypeParam>({40, 3, 70, 48, Draw::evenly, layout});
}

TYPED_TEST(Embedding, GradientOfIdsThatComeOften) {
  for (Draw draw : {Draw::few, Draw::one, Draw::in_order}) {
    check_gradient<TypeParam>({5, 2, 100, 24, draw});
    check_gradient<TypeParam>({70, 1, 4500, 40, draw});
    check_gradient<TypeParam>(
        {.rows = 5000, .batch = 2, .tokens = 2600, .width = 300, .draw = draw, .column_step = 37});
  }
}

TYPED_TEST(Embedding, GradientBesideThatOfBefore) {
  for (double beta : {1.0, 0.5}) {
    check_gradient<TypeParam>({40, 2, 33, 20, Draw::evenly, Layout::right, 3, beta});
    check_gradient<TypeParam>({40, 2, 333, 20, Draw::one, Layout::strided, 3, beta});
  }
}

TYPED_TEST(Embedding, PaddingHasNoGradient) {
  for (Draw draw : {Draw::few, Draw::one, Draw::strange})
    check_gradient<TypeParam>({30, 2, 200, 17, draw, Layout::padded, draw == Draw::few ? 0 : 15});
}

TYPED_TEST(Embedding, NothingToDo) {
  for (auto [rows, tokens, width] :
       {std::array<std::int64_t, 3>{0, 0, 3}, {4, 0, 3}, {4, 5, 0}, {4, 1, 1}}) {
    if (rows > 0) {
      check_rows<TypeParam>({rows, 1, tokens, width});
      check_gradient<TypeParam>({rows, 1, tokens, width});
    }
  }
  // A table without rows: all ids are outside.
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  Tensor<T, 2, Exec> table({0, 4}), rows({3, 4});
  Tensor<std::int32_t, 1, Exec> ids({3});
  embedding(Exec(), table.const_view(), ids.const_view(), rows.view());
  embedding_backward(Exec(), ids.const_view(), rows.const_view(), table.view());
  rows.download();
  rows.for_each([&](auto const& i) { EXPECT_TRUE(std::isnan(rows.value(i[0], i[1]))); });
}

// Sums of float16 kept in float32, and the caller's workspace, all of which is written in vain.
TYPED_TEST(Embedding, TypesApartAndWorkspace) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  using Wide = Accumulator<T>;
  Tensor<T, 2, Exec> dout({4000, 8});
  Tensor<std::int32_t, 1, Exec> ids({4000});
  Tensor<Wide, 2, Exec> dtable({2, 8});
  dout.fill(0.125);
  ids.fill(1);
  std::size_t const bytes =
      embedding_backward_workspace_size(ids.view(), dout.view(), dtable.view());
  Kokkos::View<std::byte*, typename Exec::memory_space> memory("memory", bytes);
  embedding_backward(Exec(), ids.const_view(), dout.const_view(), dtable.view(), {},
                     workspace(memory));
  dtable.download();
  for (std::int64_t c = 0; c < 8; ++c) {
    EXPECT_EQ(dtable.value(0, c), 0);
    EXPECT_EQ(dtable.value(1, c), 500);
  }
  Kokkos::View<std::byte*, typename Exec::memory_space> small("small", 8);
  expect_message<ResourceError>(
      [&] {
        embedding_backward(Exec(), ids.const_view(), dout.const_view(), dtable.view(), {},
                           workspace(small));
      },
      "attikos::embedding_backward: workspace has 8 bytes; expected at least " +
          std::to_string(bytes));
}

TEST(EmbeddingMessages, NameWhatIsWrong) {
  using Exec = Kokkos::DefaultExecutionSpace;
  Kokkos::View<float**, Exec> table("table", 6, 5), out("out", 3, 5), narrow("narrow", 3, 4);
  Kokkos::View<std::int64_t*, Exec> ids("ids", 3), few("few", 2);
  expect_message<ShapeError>([&] { embedding(table, few, out); },
                             "attikos::embedding: out is [3, 5] float32; expected the extents of "
                             "ids, which is [2] int64, and the width of table, which is [6, 5] "
                             "float32");
  expect_message<ShapeError>([&] { embedding(table, ids, narrow); },
                             "attikos::embedding: out is [3, 4] float32; expected the extents of "
                             "ids, which is [3] int64, and the width of table, which is [6, 5] "
                             "float32");
  expect_message<ShapeError>(
      [&] { embedding_backward(ids, narrow, table); },
      "attikos::embedding_backward: dout is [3, 4] float32; expected the "
      "extents of ids, which is [3] int64, and the width of dtable, which is "
      "[6, 5] float32");
  expect_message<Error>([&] { embedding_backward(ids, table, table); },
                        "attikos::embedding_backward: dout is [6, 5] float32; expected the extents "
                        "of ids, which is [3] int64, and the width of dtable, which is [6, 5] "
                        "float32");
}

}  // namespace
}  // namespace attikos::test
