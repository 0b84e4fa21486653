// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// rms_norm_rope and rms_norm_rope_backward against the float64 oracle, and the oracle against
// finite differences.
#include "rope_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class RmsNormRope : public testing::Test {};
TYPED_TEST_SUITE(RmsNormRope, FloatingCases, CaseName);

/// One call of either direction. `alias` says what the output is: 0 apart, 1 x, 2 dout.
struct FusedCase {
  std::int64_t batch, seqlen, heads, head_dim;
  NormExtent norm = NormExtent::hidden;
  RopeStyle style = RopeStyle::half_split;
  Layout x = Layout::right, out = Layout::right, table = Layout::right;
  std::int64_t offset = 0;
  PositionKind positions = PositionKind::none;
  int alias = 0;
  bool infer_heads = true;
  std::int64_t rotary_dim = 0;  ///< of heads that are rotated in part
  bool half_width = false;      ///< tables with one entry per pair
};

std::string describe(FusedCase const& p) {
  std::ostringstream text;
  text << "[" << p.batch << ", " << p.seqlen << ", " << p.heads << "*" << p.head_dim << "] norm "
       << static_cast<int>(p.norm) << " style " << static_cast<int>(p.style) << " layouts "
       << layout_name(p.x) << ", " << layout_name(p.out) << ", " << layout_name(p.table)
       << " offset " << p.offset << " positions " << static_cast<int>(p.positions) << " alias "
       << p.alias << " rotary_dim " << p.rotary_dim << " half width " << p.half_width;
  return text.str();
}

template <class C, class Table = typename C::T>
struct Fused {
  using T = typename C::T;
  using Exec = typename C::Exec;
  FusedCase p;
  std::int64_t hidden, size, groups, rotary_dim;
  Random random{static_cast<std::uint64_t>(p.head_dim + 100 * p.seqlen)};
  Tensor<T, 3, Exec> x, dout, out;
  Tensor<T, 1, Exec> weight, dweight;
  Tables<Table, Exec> tables;
  RowPositions<Exec> rows;
  RmsNormRopeOptions options;

  explicit Fused(FusedCase const& fused)
      : p(fused),
        hidden(p.heads * p.head_dim),
        size(p.norm == NormExtent::head ? p.head_dim : hidden),
        groups(p.norm == NormExtent::head ? p.heads : 1),
        rotary_dim(p.rotary_dim != 0 ? p.rotary_dim : p.head_dim),
        x({p.batch, p.seqlen, hidden}, p.x),
        dout({p.batch, p.seqlen, hidden}, p.out),
        out({p.batch, p.seqlen, hidden}, p.out),
        weight({size}, Layout::strided),
        dweight({size}, Layout::strided),
        tables(random, p.offset + p.seqlen + 3, p.half_width ? rotary_dim / 2 : rotary_dim,
               p.table),
        rows(random, p.positions, p.batch, p.seqlen, tables.length(), p.offset),
        options{.eps = 1e-5,
                .num_heads = p.infer_heads ? 0 : p.heads,
                .norm = p.norm,
                .style = p.style,
                .position_offset = p.offset,
                .rotary_dim = p.half_width ? rotary_dim : p.rotary_dim} {
    x.fill_uniform(random);
    dout.fill_uniform(random);
    weight.fill_uniform(random);
    tables.poison_unused(rows);
    if (p.alias == 1) out = x;
    if (p.alias == 2) out = dout;
  }

  template <class... Extras>
  void run(bool backward, Extras const&... more) {
    rows.with_extras([&](auto const&... extras) {
      tables.with_views([&](auto const& cos, auto const& sin) {
        if (backward) {
          rms_norm_rope_backward(Exec(), x.const_view(), weight.const_view(), cos, sin,
                                 dout.const_view(), out.view(), dweight.view(), options, extras...,
                                 more...);
        } else {
          rms_norm_rope(Exec(), x.const_view(), weight.const_view(), cos, sin, out.view(), options,
                        extras...);
        }
      });
    });
    out.download();
    dweight.download();
    EXPECT_EQ(out.writes_outside() + dweight.writes_outside(), 0u) << describe(p);
  }

  /// Group g of token (b, s).
  std::vector<double> group(Tensor<T, 3, Exec> const& from, std::int64_t b, std::int64_t s,
                            std::int64_t g) const {
    std::vector<double> row;
    for (std::int64_t c = g * size; c < (g + 1) * size; ++c) row.push_back(from.value(b, s, c));
    return row;
  }

  std::vector<double> table_row(Tensor<Table, 2, Exec> const& table, std::int64_t row) const {
    auto const entries = row_of2(table, row);
    return p.half_width ? reference::rope_full_width(entries, p.style == RopeStyle::interleaved)
                        : entries;
  }

  void check(bool backward) {
    bool const interleaved = p.style == RopeStyle::interleaved;
    std::vector<double> w, sum(sz(size)), magnitude(sz(size)), error(sz(size));
    for (std::int64_t c = 0; c < size; ++c) w.push_back(weight.value(c));
    Comparison comparison(std::string(backward ? "rms_norm_rope_backward/" : "rms_norm_rope/") +
                              type_name<T>() + "/" + Exec::name(),
                          describe(p), stored_as<T>());
    for (std::int64_t b = 0; b < p.batch; ++b) {
      for (std::int64_t s = 0; s < p.seqlen; ++s) {
        auto const cos = table_row(tables.cos, rows(b, s)), sin = table_row(tables.sin, rows(b, s));
        for (std::int64_t g = 0; g < groups; ++g) {
          auto const in = group(x, b, s, g);
          if (!backward) {
            auto const want = reference::rms_norm_rope_row(in, w, options.eps, cos, sin,
                                                           interleaved, sz(p.head_dim));
            for (std::int64_t c = 0; c < size; ++c)
              comparison.add(
                  out.value(b, s, g * size + c), want.out[sz(c)],
                  rms_norm_rope_bound<T>(sz(size), want.magnitude[sz(c)], want.out[sz(c)]),
                  {b, s, g, c});
            continue;
          }
          auto const turned = reference::rope_heads(group(dout, b, s, g), cos, sin, interleaved,
                                                    true, sz(p.head_dim));
          auto const row = reference::rms_norm_gradient_row(in, w, turned.out, options.eps);
          ScaledGradientBound<T> const bound(row, w, turned.magnitude, 1);
          for (std::int64_t c = 0; c < size; ++c) {
            auto const k = sz(c);
            comparison.add(out.value(b, s, g * size + c), row.dx[k], bound.dx(k), {b, s, g, c});
            sum[k] += turned.out[k] * row.normalized[k];
            magnitude[k] += std::abs(turned.magnitude[k] * row.normalized[k]);
            error[k] += bound.weight_term(k);
          }
        }
      }
    }
    double const count = static_cast<double>(p.batch * p.seqlen * groups);
    for (std::int64_t c = 0; backward && c < size; ++c) {
      auto const k = sz(c);
      comparison.add(dweight.value(c), sum[k],
                     row_sum_bound<T>(count, error[k], magnitude[k], sum[k]), {-1, c});
    }
  }
};

template <class C, class Table = typename C::T>
void check_fused(FusedCase p) {
  for (RopeStyle style : all_rope_styles) {
    for (NormExtent norm : {NormExtent::hidden, NormExtent::head}) {
      p.style = style;
      p.norm = norm;
      for (bool backward : {false, true}) {
        if (!backward && p.alias == 2) continue;
        Fused<C, Table> fused(p);
        fused.run(backward);
        fused.check(backward);
      }
    }
  }
}

TYPED_TEST(RmsNormRope, Shapes) {
  for (auto [heads, d] : {std::pair<std::int64_t, std::int64_t>{1, 2},
                          {3, 4},
                          {2, 14},
                          {1, 32},
                          {5, 34},
                          {2, 64},
                          {3, 66},
                          {2, 128}}) {
    check_fused<TypeParam>({2, 3, heads, d});
  }
}

TYPED_TEST(RmsNormRope, LayoutsAndAliases) {
  for (Layout layout : all_layouts) {
    FusedCase p{2, 3, 2, 18};
    p.x = p.table = layout;
    p.infer_heads = false;
    check_fused<TypeParam>(p);
    p.out = layout;
    for (p.alias = 0; p.alias < 3; ++p.alias) check_fused<TypeParam>(p);
  }
}

TYPED_TEST(RmsNormRope, OffsetsAndPositions) {
  for (auto kind : {PositionKind::none, PositionKind::sequence, PositionKind::token}) {
    for (std::int64_t offset : {0, 5}) {
      FusedCase p{3, 4, 2, 8};
      p.positions = kind;
      p.offset = offset;
      check_fused<TypeParam>(p);
    }
  }
}

TYPED_TEST(RmsNormRope, PartialRotation) {
  for (auto [d, r] : {std::pair<std::int64_t, std::int64_t>{3, 2},
                      {5, 2},
                      {20, 14},
                      {40, 32},
                      {64, 16},
                      {67, 66},
                      {128, 64}}) {
    FusedCase p{2, 3, 3, d};
    p.infer_heads = false;
    p.rotary_dim = r;
    for (p.half_width = false;; p.half_width = true) {
      for (p.alias = 0; p.alias < 3; ++p.alias) check_fused<TypeParam>(p);
      if (p.half_width) break;
    }
  }
  for (Layout layout : all_layouts) {
    FusedCase p{2, 3, 2, 22, NormExtent::hidden, RopeStyle::half_split, layout, layout, layout, 3};
    p.infer_heads = false;
    p.rotary_dim = 18;
    p.positions = PositionKind::token;
    check_fused<TypeParam>(p);
  }
  FusedCase many{2, 307, 3, 6};
  many.infer_heads = false;
  many.rotary_dim = 4;
  check_fused<TypeParam>(many);
}

TYPED_TEST(RmsNormRope, TablesOfHalfWidth) {
  for (std::int64_t d : {2, 14, 34, 64}) {
    for (bool infer : {false, true}) {
      FusedCase p{2, 3, 3, d};
      p.half_width = true;
      p.infer_heads = infer;
      check_fused<TypeParam>(p);
    }
  }
}

TYPED_TEST(RmsNormRope, ManyTokens) {
  check_fused<TypeParam>({2, 307, 3, 6});
  check_fused<TypeParam>({1, 1301, 2, 2});
}

TYPED_TEST(RmsNormRope, NothingToDo) {
  for (FusedCase const& p :
       {FusedCase{0, 3, 2, 8}, {2, 0, 2, 8}, {2, 3, 0, 8}, {2, 3, 2, 0}, {2, 3, 0, 0}}) {
    check_fused<TypeParam>(p);
  }
}

// What is handed in may hold NaN and need be no larger than the call asks for.
TYPED_TEST(RmsNormRope, WorkspaceOfTheCaller) {
  using Exec = typename TypeParam::Exec;
  for (NormExtent norm : {NormExtent::hidden, NormExtent::head}) {
    FusedCase p{2, 307, 3, 6};
    p.norm = norm;
    Fused<TypeParam> fused(p);
    std::size_t const bytes = rms_norm_rope_backward_workspace_size(
        fused.x.view(), fused.weight.view(), fused.dout.view());
    Tensor<double, 1, Exec> memory({static_cast<std::int64_t>((bytes + 7) / 8)});
    fused.run(true, workspace(memory.view()));
    fused.check(true);
  }
}

TYPED_TEST(RmsNormRope, TablesOfAnotherType) {
  if constexpr (std::is_same_v<typename TypeParam::T, bfloat16>) {
    check_fused<TypeParam, float>({2, 3, 2, 18});
  }
}

TEST(RmsNormRopeDefaultSpace, MayBeLeftOut) {
  Kokkos::View<float***> x("x", 2, 5, 8), out("out", 2, 5, 8);
  Kokkos::View<float**> cos("cos", 5, 4), sin("sin", 5, 4);
  Kokkos::View<float*> weight("weight", 8), dweight("dweight", 8);
  Kokkos::deep_copy(x, 2.0f);
  Kokkos::deep_copy(weight, 3.0f);
  Kokkos::deep_copy(sin, 1.0f);  // a quarter turn
  rms_norm_rope(x, weight, cos, sin, out, {.eps = 0, .num_heads = 2});
  Kokkos::fence("attikos_test");
  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), out);
  EXPECT_EQ(host(1, 4, 4), -3.0f);
  EXPECT_EQ(host(1, 4, 7), 3.0f);
  rms_norm_rope_backward(x, weight, cos, sin, out, x, dweight, {.eps = 0});
  Kokkos::fence("attikos_test");
  auto const sums = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), dweight);
  EXPECT_EQ(sums(7), 30.0f);
}

TEST(RmsNormRopeOracle, FiniteDifferences) {
  std::size_t const n = 24;
  auto const x = random_values(1, n), w = random_values(2, n), g = random_values(3, n);
  auto const cos = random_values(4, 8), sin = random_values(5, 8);
  for (int turn = 0; turn < 4; ++turn) {
    bool const interleaved = turn % 2 == 1;
    std::size_t const head_dim = turn < 2 ? 8 : 12;  // all of a head rotated, or the first 8
    auto const loss = [&](auto const& at, auto const& weight) {
      return dot(
          g, reference::rms_norm_rope_row(at, weight, 1e-6, cos, sin, interleaved, head_dim).out);
    };
    auto const turned = reference::rope_heads(g, cos, sin, interleaved, true, head_dim).out;
    auto const row = reference::rms_norm_gradient_row(x, w, turned, 1e-6);
    std::vector<double> dweight;
    for (std::size_t c = 0; c < n; ++c) dweight.push_back(turned[c] * row.normalized[c]);
    double const size = dot_size(
        g, reference::rms_norm_rope_row(x, w, 1e-6, cos, sin, interleaved, head_dim).magnitude);
    expect_gradient("rms_norm_rope dx", x, row.dx, 4.0 * n, size,
                    [&](auto const& at) { return loss(at, w); });
    expect_gradient("rms_norm_rope dweight", w, dweight, 4.0 * n, size,
                    [&](auto const& at) { return loss(x, at); });
  }
}

}  // namespace
}  // namespace attikos::test
