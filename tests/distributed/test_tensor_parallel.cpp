// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products whose matrices are spread over ranks, against float64.
#include <attikos/distributed/tensor_parallel.hpp>
#include <attikos/reference/gated_mlp_reference.hpp>

#include "distributed/context_checks.hpp"
#include "distributed/thrown.hpp"
#include "support/tolerance_gated_mlp.hpp"
#include "support/tolerance_gemm.hpp"

namespace attikos::test {
namespace {

using Exec = Kokkos::DefaultExecutionSpace;

template <class T>
using Matrix = Tensor<T, 2, Exec>;

/// The whole, the same on all ranks.
template <class T>
Matrix<T> whole(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  Matrix<T> x({rows, columns});
  Random random(seed);
  x.fill_uniform(random);
  return x;
}

/// What this rank has of one dimension: some, unevenly, and on the last rank of three none.
struct Slice {
  std::int64_t first, count;
};
Slice slice(std::int64_t all) {
  int const n = ranks().size(), r = ranks().rank();
  if (n == 3)
    return r == 2 ? Slice{all, 0} : Slice{r * (all / 3), r == 0 ? all / 3 : all - all / 3};
  return {all * r / n, all * (r + 1) / n - all * r / n};
}

template <class T>
Matrix<T> columns_of(Matrix<T>& x, Slice s, Layout layout = Layout::right) {
  Matrix<T> part({x.extent(0), s.count}, layout);
  part.for_each([&](auto const& i) { part.at(i) = x(i[0], s.first + i[1]); });
  part.upload();
  return part;
}
template <class T>
Matrix<T> rows_of(Matrix<T>& x, Slice s, Layout layout = Layout::right) {
  Matrix<T> part({s.count, x.extent(1)}, layout);
  part.for_each([&](auto const& i) { part.at(i) = x(s.first + i[0], i[1]); });
  part.upload();
  return part;
}
template <class T>
Matrix<T> rows_of(Matrix<T>& x, Shards const& shards) {
  Matrix<T> part({shards.rows(ranks().rank()), x.extent(1)});
  for_each_row(shards, ranks().rank(),
               [&](std::int64_t row, std::int64_t, std::int64_t, std::int64_t at) {
                 for (std::int64_t c = 0; c < x.extent(1); ++c) part(row, c) = x(at, c);
               });
  part.upload();
  return part;
}

std::vector<Shards> some_shards(std::int64_t rows) {
  int const n = ranks().size();
  return {Shards::contiguous(rows, n), Shards::zigzag(rows, n), uneven(rows)};
}

template <class T>
void check_column_parallel(std::int64_t m, std::int64_t n, std::int64_t k) {
  using Acc = Accumulator<T>;
  auto a = whole<T>(m, k, 1), b = whole<T>(k, n, 2);
  Slice const mine = slice(n);
  auto const part = columns_of(b, mine, Layout::left);
  for (auto const& shards : some_shards(m)) {
    auto const rows = rows_of(a, shards);
    Matrix<T> c({m, mine.count}, Layout::padded);
    distributed::column_parallel_gemm(Exec(), ranks(), shards, rows.const_view(), part.const_view(),
                                      c.view(), {.alpha = 0.5, .activation = Activation::silu});
    c.download();
    EXPECT_EQ(c.writes_outside(), 0u);
    Comparison comparison(std::string("distributed/column_gemm/") + type_name<T>(), "");
    reference::GemmTerms terms;
    terms.alpha = 0.5;
    terms.activation = reference::silu;
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < mine.count; ++j) {
        auto const e = reference::gemm_element(
            k, [&](std::int64_t l) { return a.value(i, l); },
            [&](std::int64_t l) { return b.value(l, mine.first + j); }, terms);
        comparison.add(c.value(i, j), e.value, gemm_bound<Acc, T>(k, e, terms), {i, j});
      }
  }
}

/// Of a sum of k products in parts, of which each rank adds one.
template <class Acc>
double parts_error(double magnitude) {
  return oracle_factor<Acc>() * (ranks().size() + 1) * precision<Acc>().roundoff * magnitude;
}

template <class T>
void check_row_parallel(std::int64_t m, std::int64_t n, std::int64_t k) {
  using Acc = Accumulator<T>;
  auto a = whole<T>(m, k, 3), b = whole<T>(n, k, 4);
  Slice const mine = slice(k);
  auto const columns = columns_of(a, mine), part = columns_of(b, mine);
  for (auto const& shards : some_shards(m)) {
    Matrix<T> c({shards.rows(ranks().rank()), n}, Layout::strided);
    auto const call = [&] {
      c.upload();
      distributed::row_parallel_gemm(Exec(), ranks(), shards, columns.const_view(),
                                     part.const_view(), c.view(), {.alpha = 0.5, .trans_b = true});
      c.download();
      return c.elements();
    };
    auto const once = call();
    EXPECT_TRUE(same_bits(call(), once));
    EXPECT_EQ(c.writes_outside(), 0u);
    Comparison comparison(std::string("distributed/row_gemm/") + type_name<T>(), "");
    reference::GemmTerms terms;
    terms.alpha = 0.5;
    for_each_row(
        shards, ranks().rank(), [&](std::int64_t row, std::int64_t, std::int64_t, std::int64_t i) {
          for (std::int64_t j = 0; j < n; ++j) {
            auto const e = reference::gemm_element(
                k, [&](std::int64_t l) { return a.value(i, l); },
                [&](std::int64_t l) { return b.value(j, l); }, terms);
            comparison.add(c.value(row, j), e.value,
                           gemm_bound<Acc, T>(k, e, terms) + parts_error<Acc>(e.magnitude), {i, j});
          }
        });
  }
}

template <class T>
void check_gated_mlp(std::int64_t m, std::int64_t hidden, std::int64_t intermediate) {
  using Acc = Accumulator<T>;
  auto x = whole<T>(m, hidden, 5), gate = whole<T>(intermediate, hidden, 6),
       up = whole<T>(intermediate, hidden, 7), down = whole<T>(hidden, intermediate, 8);
  Slice const mine = slice(intermediate);
  auto const gate_part = rows_of(gate, mine), up_part = rows_of(up, mine, Layout::padded),
             down_part = columns_of(down, mine);
  for (auto const& shards : some_shards(m)) {
    auto const rows = rows_of(x, shards);
    Matrix<T> out({shards.rows(ranks().rank()), hidden});
    distributed::gated_mlp(Exec(), ranks(), shards, rows.const_view(), gate_part.const_view(),
                           up_part.const_view(), down_part.const_view(), out.view());
    out.download();
    Comparison comparison(std::string("distributed/gated_mlp/") + type_name<T>(), "");
    double const u = precision<Acc>().roundoff;
    for_each_row(
        shards, ranks().rank(), [&](std::int64_t row, std::int64_t, std::int64_t, std::int64_t i) {
          std::vector<double> h, error;
          for (std::int64_t f = 0; f < intermediate; ++f) {
            auto const e = reference::gated_mlp_element(
                hidden, [&](std::int64_t l) { return x.value(i, l); },
                [&](std::int64_t l) { return gate.value(f, l); },
                [&](std::int64_t l) { return up.value(f, l); }, reference::silu);
            h.push_back(e.value);
            error.push_back(gated_mlp_bound<Acc, T>(hidden, e, reference::silu(e.gate)));
          }
          // The second product of what the first one is off by.
          for (std::int64_t j = 0; j < hidden; ++j) {
            double sum = 0, magnitude = 0, inherited = 0;
            for (std::int64_t f = 0; f < intermediate; ++f) {
              double const w = down.value(j, f);
              sum += h[sz(f)] * w;
              magnitude += std::abs(h[sz(f)] * w);
              inherited += error[sz(f)] * std::abs(w);
            }
            double const all = magnitude + inherited;
            double const bound =
                inherited + oracle_factor<Acc>() * (growth(double(intermediate)) + 6) * u * all +
                parts_error<Acc>(all);
            comparison.add(out.value(row, j), sum, bound + rounding<T>(std::abs(sum) + bound),
                           {i, j});
          }
        });
  }
}

TEST(TensorParallel, ColumnsOfB) {
  check_column_parallel<float>(37, 29, 17);
  check_column_parallel<bfloat16>(20, 16, 40);
  check_column_parallel<float>(0, 5, 3);
}
TEST(TensorParallel, RowsOfB) {
  check_row_parallel<float>(37, 9, 50);
  check_row_parallel<bfloat16>(20, 16, 40);
  check_row_parallel<float>(21, 3, 1);
}
TEST(TensorParallel, GatedMlp) {
  check_gated_mlp<float>(37, 12, 30);
  check_gated_mlp<bfloat16>(20, 16, 24);
}

TEST(TensorParallel, RanksThatDisagreeAllThrow) {
  int const n = ranks().size(), last = n - 1;
  bool const odd = ranks().rank() == last;
  Shards const shards = Shards::contiguous(16, n);
  std::int64_t const rows = shards.rows(ranks().rank());
  Matrix<float> a({rows, 4}), b({4, 3}), c({16, 3}), columns({16, 4}), result({rows, 3});
  // The order of calls.
  auto const other_calls = [&] {
    if (odd)
      distributed::row_parallel_gemm(Exec(), ranks(), shards, columns.const_view(), b.const_view(),
                                     result.view());
    else
      distributed::column_parallel_gemm(Exec(), ranks(), shards, a.const_view(), b.const_view(),
                                        c.view());
  };
  if (n > 1) {
    std::string const order = thrown<ShapeError>(other_calls);
    EXPECT_NE(order.find("rank " + std::to_string(last) +
                         " calls distributed::row_parallel_gemm where rank 0 calls "
                         "distributed::column_parallel_gemm"),
              std::string::npos)
        << order;
  } else {
    other_calls();
  }
  // An extent of one rank.
  Matrix<float> wrong({5, 3});
  std::string const extent = thrown<ShapeError>([&] {
    distributed::column_parallel_gemm(Exec(), ranks(), shards, a.const_view(),
                                      odd ? wrong.const_view() : b.const_view(), c.view());
  });
  EXPECT_NE(extent.find("b is [5, 3] float32; expected 4 in dimension 0, as a has columns"),
            std::string::npos)
      << extent;
  EXPECT_THROW(distributed::row_parallel_gemm(Exec(), ranks(), shards, columns.const_view(),
                                              b.const_view(), result.view(), {.beta = 1}),
               UnsupportedError);
}

}  // namespace
}  // namespace attikos::test
