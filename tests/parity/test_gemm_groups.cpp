// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm on groups of rows, on counted rows, behind arrays of pointers, and on many small matrices.
#include <attikos/gemm/gemm.hpp>
#include <vector>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance_gemm.hpp"

namespace attikos::test {
namespace {

template <class C>
class GemmGroups : public testing::Test {};
TYPED_TEST_SUITE(GemmGroups, FloatingCases, CaseName);

/// Compares c(i, j) with the product of a row and a column. `more`: error that the sum may have
/// beside that of its roundings.
template <class T, class Row, class Column>
void compare(Comparison& comparison, double got, std::int64_t k, Row const& row,
             Column const& column, reference::GemmTerms const& terms,
             std::initializer_list<std::int64_t> at, double more = 0) {
  using Acc = Accumulator<T>;
  auto const want = reference::gemm_element(k, row, column, terms);
  double const error = scaled_gemm_error<Acc>(k, want, terms) + more;
  comparison.add(got, want.value, stored_gemm_bound<Acc, T>(want.value, error), at);
}

/// What C holds before the call: a number, since rows that are read although they do not count, and
/// written, would give the NaN that they hold.
constexpr double untouched = -7;

template <class Exec, class T, class Index>
void check_grouped(std::vector<std::int64_t> const& given, std::int64_t total, std::int64_t n,
                   std::int64_t k, int trans, Layout layout) {
  auto const groups = static_cast<std::int64_t>(given.size()) - 1;
  GemmOptions const options{.trans_a = (trans & 1) != 0, .trans_b = (trans & 2) != 0};
  Tensor<T, 2, Exec> a({options.trans_a ? k : total, options.trans_a ? total : k}, layout);
  Tensor<T, 3, Exec> b({groups, options.trans_b ? n : k, options.trans_b ? k : n}, layout);
  Tensor<T, 2, Exec> c({total, n}, layout), residuals({total, n});
  Tensor<T, 1, Exec> biases({n});
  Tensor<Index, 1, Exec> offsets({groups + 1}, Layout::strided);
  Random random(static_cast<std::uint64_t>(total + n));
  a.fill_uniform(random);
  b.fill_uniform(random);
  residuals.fill_uniform(random);
  biases.fill_uniform(random);
  c.fill(untouched);
  for (std::int64_t g = 0; g <= groups; ++g) offsets(g) = static_cast<Index>(given[sz(g)]);
  offsets.upload();
  // Rows of no group are never read: poison must not matter, and is where A has it.
  std::vector<std::int64_t> group_of(sz(total), -1);
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t i = given[sz(g)]; i < given[sz(g + 1)]; ++i) group_of[sz(i)] = g;
  for (std::int64_t i = 0; i < total; ++i)
    for (std::int64_t l = 0; l < k && group_of[sz(i)] < 0; ++l)
      a.at(options.trans_a ? std::array{l, i} : std::array{i, l}) = poison<T>();
  a.upload();
  gemm(Exec(), a.const_view(), b.const_view(), c.view(), options, grouped(offsets.const_view()),
       bias(biases.const_view()), residual(residuals.const_view()));
  c.download();
  EXPECT_EQ(c.writes_outside(), 0u);
  Comparison comparison(std::string("gemm/grouped/") + type_name<T>() + "/" + Exec::name(),
                        std::to_string(groups) + " groups of " + std::to_string(total) + " rows",
                        k > 1 ? stored_as<T>() : Stored{});
  for (std::int64_t i = 0; i < total; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      std::int64_t const g = group_of[sz(i)];
      if (g < 0) {
        EXPECT_EQ(c.value(i, j), untouched) << "row " << i << " of no group was written";
        continue;
      }
      reference::GemmTerms terms;
      terms.bias = biases.value(j);
      terms.residual = residuals.value(i, j);
      compare<T>(
          comparison, c.value(i, j), k,
          [&](std::int64_t l) { return options.trans_a ? a.value(l, i) : a.value(i, l); },
          [&](std::int64_t l) { return options.trans_b ? b.value(g, j, l) : b.value(g, l, j); },
          terms, {i, j});
    }
  }
}

TYPED_TEST(GemmGroups, Grouped) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  std::vector<std::vector<std::int64_t>> const partitions{
      {0, 0},
      {0, 7},
      {0, 3, 3, 10},
      {2, 5, 9},
      {0, 64, 128, 129},
      {0, 63, 64, 65, 192, 192, 200},
      {190, 191, 200},
      {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20},
      {0, 0, 0, 0, 300},
      {300, 300, 300}};
  int turn = 0;
  for (auto const& offsets : partitions) {
    Layout const layout = all_layouts[static_cast<std::size_t>(turn) % 5];
    check_grouped<Exec, T, std::int32_t>(offsets, 300, 17, 33, turn % 4, layout);
    check_grouped<Exec, T, std::int64_t>(offsets, offsets.back(), 40, 5, (turn + 1) % 4, layout);
    ++turn;
  }
  check_grouped<Exec, T, std::int32_t>({0}, 5, 3, 4, 0, Layout::right);
  check_grouped<Exec, T, std::int32_t>({0, 5, 9}, 9, 0, 4, 0, Layout::right);
  check_grouped<Exec, T, std::int32_t>({0, 5, 9}, 9, 3, 0, 0, Layout::right);
}

template <class Exec, class T>
void check_masked(std::vector<std::int32_t> const& given, std::int64_t max_m, std::int64_t n,
                  std::int64_t k, int trans, bool shared_b) {
  auto const groups = static_cast<std::int64_t>(given.size());
  GemmOptions const options{.trans_a = (trans & 1) != 0, .trans_b = (trans & 2) != 0};
  Tensor<T, 3, Exec> a({groups, options.trans_a ? k : max_m, options.trans_a ? max_m : k});
  Tensor<T, 3, Exec> b({shared_b ? 1 : groups, options.trans_b ? n : k, options.trans_b ? k : n});
  Tensor<T, 3, Exec> c({groups, max_m, n}, Layout::permuted);
  Tensor<std::int32_t, 1, Exec> counts({groups}, Layout::strided);
  Random random(9);
  a.fill_uniform(random);
  b.fill_uniform(random);
  auto const rows = [&](std::int64_t g) {
    return std::clamp<std::int64_t>(given[sz(g)], 0, max_m);
  };
  for (std::int64_t g = 0; g < groups; ++g) {
    counts(g) = given[sz(g)];
    for (std::int64_t i = rows(g); i < max_m; ++i)
      for (std::int64_t l = 0; l < k; ++l)
        a.at(options.trans_a ? std::array{g, l, i} : std::array{g, i, l}) = poison<T>();
  }
  a.upload();
  counts.upload();
  c.fill(untouched);
  gemm(Exec(), a.const_view(), b.const_view(), c.view(), options, masked(counts.const_view()));
  c.download();
  EXPECT_EQ(c.writes_outside(), 0u);
  Comparison comparison(std::string("gemm/masked/") + type_name<T>() + "/" + Exec::name(), "",
                        stored_as<T>());
  c.for_each([&](auto const& at) {
    std::int64_t const g = at[0], i = at[1], j = at[2];
    double const got = to_double(c.at(at));
    if (i >= rows(g)) {
      EXPECT_EQ(got, untouched) << "row " << i << " behind the count was written";
      return;
    }
    std::int64_t const gb = shared_b ? 0 : g;
    compare<T>(
        comparison, got, k,
        [&](std::int64_t l) { return options.trans_a ? a.value(g, l, i) : a.value(g, i, l); },
        [&](std::int64_t l) { return options.trans_b ? b.value(gb, j, l) : b.value(gb, l, j); }, {},
        {g, i, j});
  });
}

TYPED_TEST(GemmGroups, Masked) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  for (int trans = 0; trans < 4; ++trans) {
    check_masked<Exec, T>({0, 1, 130, 64, 65}, 130, 20, 17, trans, trans == 2);
    // Counts outside the allocation are clamped.
    check_masked<Exec, T>({-5, 1000, 3, INT32_MIN, INT32_MAX}, 9, 5, 40, trans, trans == 1);
  }
  check_masked<Exec, T>({3, 2}, 0, 5, 4, 0, false);
  check_masked<Exec, T>({}, 4, 5, 4, 0, false);
}

/// Many matrices no larger than a few registers, in numbers around the share of a team.
TYPED_TEST(GemmGroups, ThousandsOfSmallProducts) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  int turn = 0;
  for (auto [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                         {3, 4, 5},
                         {8, 8, 8},
                         {16, 2, 7},
                         {32, 32, 32},
                         {5, 33, 2},
                         {4, 4, 0}}) {
    std::int64_t const batch = m == 32 ? 301 : 4099 + turn;
    Layout const layout = all_layouts[static_cast<std::size_t>(turn) % 5];
    int const trans = turn++ % 4;
    GemmOptions const options{
        .alpha = 2, .beta = 0.5, .trans_a = (trans & 1) != 0, .trans_b = (trans & 2) != 0};
    Tensor<T, 3, Exec> a({batch, options.trans_a ? k : m, options.trans_a ? m : k}, layout);
    Tensor<T, 3, Exec> b({turn == 2 ? 1 : batch, options.trans_b ? n : k, options.trans_b ? k : n},
                         layout);
    Tensor<T, 3, Exec> c({batch, m, n}, layout);
    Tensor<float, 2, Exec> rows({batch, m});
    Random random(1);
    a.fill_uniform(random);
    b.fill_uniform(random);
    c.fill_uniform(random);
    rows.fill_uniform(random, 0.5, 2);
    auto const before = c;
    gemm(Exec(), a.const_view(), b.const_view(), c.view(), options, scale_a(rows.const_view()));
    c.download();
    EXPECT_EQ(c.writes_outside(), 0u);
    Comparison comparison(std::string("gemm/small/") + type_name<T>() + "/" + Exec::name(), "",
                          stored_as<T>());
    for (std::int64_t bt = 0; bt<batch; bt += bt> 70 && bt < batch - 70 ? 29 : 1) {
      std::int64_t const bb = turn == 2 ? 0 : bt;
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          reference::GemmTerms terms;
          terms.alpha = 2;
          terms.beta = 0.5;
          terms.c = before.value(bt, i, j);
          compare<T>(
              comparison, c.value(bt, i, j), k,
              [&](std::int64_t l) {
                return rows.value(bt, i) *
                       (options.trans_a ? a.value(bt, l, i) : a.value(bt, i, l));
              },
              [&](std::int64_t l) {
                return options.trans_b ? b.value(bb, j, l) : b.value(bb, l, j);
              },
              terms, {bt, i, j});
        }
    }
  }
}

template <class Exec>
class GemmPointers : public testing::Test {};
TYPED_TEST_SUITE(GemmPointers, SpaceCases, CaseName);

/// Device array of pointers to the matrices of a tensor, in the order given.
template <class Exec, class TensorType>
auto pointers_to(TensorType const& x, std::vector<std::int64_t> const& order) {
  Kokkos::View<std::uintptr_t*, typename Exec::memory_space> const result("pointers", order.size());
  auto const host = Kokkos::create_mirror_view(result);
  for (std::size_t i = 0; i < order.size(); ++i)
    host(i) = reinterpret_cast<std::uintptr_t>(x.view().data() + order[i] * x.strides()[0]);
  Kokkos::deep_copy(result, host);
  return result;
}

TYPED_TEST(GemmPointers, MatricesAnywhere) {
  using Exec = TypeParam;
  for (auto [m, n, k] : {std::array<std::int64_t, 3>{5, 6, 7}, {70, 33, 130}, {4, 3, 0}}) {
    std::vector<std::int64_t> const order_a{3, 0, 2, 2, 1}, order_c{4, 2, 0, 1, 3};
    Tensor<float, 3, Exec> a({4, m, k}, Layout::strided), b({5, n, k}),
        c({5, m, n}, Layout::padded), mixed({5, m, n});
    Random random(4);
    a.fill_uniform(random);
    b.fill_uniform(random);
    Exec const exec;
    auto const pa = pointers_to<Exec>(a, order_a);
    auto const pc = pointers_to<Exec>(c, order_c);
    auto const pb = pointers_to<Exec>(b, {2});
    auto const all_a = matrix_pointers(reinterpret_cast<float const* const*>(pa.data()), 5, m, k,
                                       a.strides()[1], a.strides()[2]);
    auto const all_c = matrix_pointers(reinterpret_cast<float* const*>(pc.data()), 5, m, n,
                                       c.strides()[1], c.strides()[2]);
    // One pointer shared by all, rows dense.
    auto const one_b = matrix_pointers(reinterpret_cast<float const* const*>(pb.data()), 1, n, k);
    gemm(exec, all_a, one_b, all_c, {.trans_b = true});
    gemm(exec, all_a, b.const_view(), mixed.view(), {.trans_b = true});
    c.download();
    mixed.download();
    EXPECT_EQ(c.writes_outside(), 0u);
    Comparison comparison("gemm/pointers/" + std::string(Exec::name()), "");
    for (std::int64_t bt = 0; bt < 5; ++bt)
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          auto const row = [&](std::int64_t l) { return a.value(order_a[sz(bt)], i, l); };
          compare<float>(comparison, c.value(order_c[sz(bt)], i, j), k, row,
                         [&](std::int64_t l) { return b.value(2, j, l); }, {}, {bt, i, j});
          compare<float>(comparison, mixed.value(bt, i, j), k, row,
                         [&](std::int64_t l) { return b.value(bt, j, l); }, {}, {bt, i, j});
        }
  }
}

/// Scales of grouped float8: rows of A by row of the whole, blocks of B by group.
template <class Exec>
void check_grouped_float8(std::int64_t k) {
  std::int64_t const total = 150, n = 70, groups = 3;
  Tensor<float8_e4m3, 2, Exec> a({total, k});
  Tensor<float8_e4m3, 3, Exec> b({groups, n, k});
  Tensor<bfloat16, 2, Exec> c({total, n});
  Tensor<float, 2, Exec> sa({total, 3});
  Tensor<float, 3, Exec> sb({groups, 1, 3});
  Tensor<std::int32_t, 1, Exec> offsets({groups + 1});
  std::int64_t const ends[] = {0, 20, 101, 150};
  for (int g = 0; g < 4; ++g) offsets(g) = static_cast<std::int32_t>(ends[g]);
  offsets.upload();
  Random random(8);
  a.fill_uniform(random);
  b.fill_uniform(random);
  sa.fill_uniform(random, 0.5, 2);
  sb.fill_uniform(random, 0.5, 2);
  auto const with = [&](auto const& call) {
    return call(Exec(), a.const_view(), b.const_view(), c.view(), GemmOptions{.trans_b = true},
                grouped(offsets.const_view()), scale_a(sa.const_view()), scale_b(sb.const_view()));
  };
  bool const tensor_cores = with([](auto const&... arguments) {
                              return explain(op::gemm, arguments...).kernel;
                            }) == "gemm/sm90_grouped_f8";
  with([](auto const&... arguments) { gemm(arguments...); });
  c.download();
  Comparison comparison("gemm/grouped/float8/" + std::string(Exec::name()), "",
                        stored_as<bfloat16>());
  for (std::int64_t i = 0; i < total; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      std::int64_t const g = i < 20 ? 0 : i < 101 ? 1 : 2;
      auto const row = [&](std::int64_t l) { return sa.value(i, l / 128) * a.value(i, l); };
      auto const column = [&](std::int64_t l) {
        return sb.value(g, 0, l / 128) * b.value(g, j, l);
      };
      double more = 0;
      if (tensor_cores)
        more =
            float8_tensor_core_error(k, true, [&](std::int64_t l) { return row(l) * column(l); });
      compare<bfloat16>(comparison, c.value(i, j), k, row, column, {}, {i, j}, more);
    }
}

/// Strides that only some kernels take, and such as all do.
TYPED_TEST(GemmPointers, GroupedFloat8WithScales) {
  check_grouped_float8<TypeParam>(260);
  check_grouped_float8<TypeParam>(272);
}

/// Offsets that the caller got wrong stay inside the allocation.
TYPED_TEST(GemmPointers, OffsetsOutsideAreClamped) {
  using Exec = TypeParam;
  for (auto const& given : std::vector<std::vector<std::int32_t>>{
           {-7, 3, 2000}, {9, 4, 0}, {INT32_MIN, INT32_MAX, INT32_MIN}, {5, -1, 5}}) {
    Tensor<float, 2, Exec> a({9, 4}), c({9, 3}, Layout::padded);
    Tensor<float, 3, Exec> b({2, 4, 3});
    Tensor<std::int32_t, 1, Exec> offsets({3});
    a.fill(1);
    b.fill(1);
    c.fill(untouched);
    for (std::size_t g = 0; g < 3; ++g) offsets(g) = given[g];
    offsets.upload();
    gemm(Exec(), a.const_view(), b.const_view(), c.view(), {}, grouped(offsets.const_view()));
    c.download();
    EXPECT_EQ(c.writes_outside(), 0u);
    c.for_each([&](auto const& at) {
      double const got = c.at(at);
      EXPECT_TRUE(got == untouched || got == 4) << got;
    });
  }
}

}  // namespace
}  // namespace attikos::test
