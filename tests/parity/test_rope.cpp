// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// rope and rope_backward against the float64 oracle, and the oracle against finite differences.
#include "rope_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class Rope : public testing::Test {};
TYPED_TEST_SUITE(Rope, FloatingCases, CaseName);

/// One call of either direction.
struct RopeCase {
  std::int64_t batch, heads, seqlen, head_dim, rotary_dim;
  RopeStyle style = RopeStyle::half_split;
  Layout x = Layout::right, out = Layout::right, table = Layout::right;
  std::int64_t offset = 0;
  bool in_place = false;
  PositionKind positions = PositionKind::none;
  bool half_width = false;  ///< tables with one entry per pair
};

std::string describe(RopeCase const& p) {
  std::ostringstream text;
  text << "[" << p.batch << ", " << p.heads << ", " << p.seqlen << ", " << p.head_dim << "] rotary "
       << p.rotary_dim << " style " << static_cast<int>(p.style) << " layouts " << layout_name(p.x)
       << ", " << layout_name(p.out) << ", " << layout_name(p.table) << " offset " << p.offset
       << " in place " << p.in_place << " positions " << static_cast<int>(p.positions)
       << " half width " << p.half_width;
  return text.str();
}

template <class C, class Table = typename C::T, class Out = typename C::T>
void check_rope(RopeCase const& p, bool backward) {
  using T = typename C::T;
  using Exec = typename C::Exec;
  Tensor<T, 4, Exec> x({p.batch, p.heads, p.seqlen, p.head_dim}, p.x);
  Tensor<Out, 4, Exec> out({p.batch, p.heads, p.seqlen, p.head_dim}, p.out);
  Random random(static_cast<std::uint64_t>(p.head_dim + 100 * p.seqlen));
  x.fill_uniform(random);
  Tables<Table, Exec> tables(random, p.offset + p.seqlen + 3,
                             p.half_width ? p.rotary_dim / 2 : p.rotary_dim, p.table);
  RowPositions<Exec> rows(random, p.positions, p.batch, p.seqlen, tables.length(), p.offset);
  tables.poison_unused(rows);
  // The width of the tables may be said or not; half of it must be.
  RopeOptions const options{.style = p.style,
                            .position_offset = p.offset,
                            .rotary_dim = p.half_width || p.heads % 2 == 0 ? p.rotary_dim : 0};
  bool const interleaved = p.style == RopeStyle::interleaved;
  auto const table_row = [&](auto const& table, std::int64_t row) {
    auto const entries = row_of2(table, row);
    return p.half_width ? reference::rope_full_width(entries, interleaved) : entries;
  };
  auto const call = [&](auto const& in, auto const& to) {
    rows.with_extras([&](auto const&... extras) {
      tables.with_views([&](auto const& cos, auto const& sin) {
        if (backward) {
          rope_backward(Exec(), in, cos, sin, to, options, extras...);
        } else {
          rope(Exec(), in, cos, sin, to, options, extras...);
        }
      });
    });
  };
  if constexpr (std::is_same_v<T, Out>) {
    if (p.in_place) out = x;  // a deep copy on the host, a shared buffer on the device
  }
  call(p.in_place ? std::as_const(x).view() : x.view(), out.view());
  out.download();
  EXPECT_EQ(out.writes_outside(), 0u) << describe(p);
  Comparison comparison(
      std::string(backward ? "rope_backward/" : "rope/") + type_name<T>() + "/" + Exec::name(),
      describe(p), stored_as<Out>());
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t s = 0; s < p.seqlen; ++s) {
      auto const cos = table_row(tables.cos, rows(b, s)), sin = table_row(tables.sin, rows(b, s));
      for (std::int64_t h = 0; h < p.heads; ++h) {
        std::vector<double> head;
        for (std::int64_t c = 0; c < p.head_dim; ++c) head.push_back(x.value(b, h, s, c));
        auto const want = reference::rope_head(head, cos, sin, interleaved, backward);
        for (std::int64_t c = 0; c < p.head_dim; ++c) {
          bool const copied = c >= p.rotary_dim;
          double const bound = copied && std::is_same_v<T, Out>
                                   ? 0
                                   : rope_bound<T, Out>(want.magnitude[sz(c)], want.out[sz(c)]);
          comparison.add(out.value(b, h, s, c), want.out[sz(c)], bound, {b, h, s, c});
        }
      }
    }
  }
}

template <class C>
void check_both(RopeCase p) {
  for (RopeStyle style : all_rope_styles) {
    p.style = style;
    check_rope<C>(p, false);
    check_rope<C>(p, true);
  }
}

TYPED_TEST(Rope, HeadDims) {
  for (std::int64_t d : {2, 4, 6, 14, 16, 30, 32, 34, 64, 66, 128, 130, 256}) {
    check_both<TypeParam>({1, 2, 3, d, d});
  }
}

TYPED_TEST(Rope, PartialRotationCopiesTheRest) {
  for (auto [d, r] : {std::pair<std::int64_t, std::int64_t>{1, 0},
                      {3, 2},
                      {33, 32},
                      {40, 8},
                      {65, 34},
                      {128, 96},
                      {7, 0}}) {
    check_both<TypeParam>({2, 1, 3, d, r});
    check_both<TypeParam>(
        {.batch = 1, .heads = 2, .seqlen = 2, .head_dim = d, .rotary_dim = r, .in_place = true});
  }
}

TYPED_TEST(Rope, Layouts) {
  for (Layout x : all_layouts) {
    for (Layout out : all_layouts) {
      check_both<TypeParam>({2, 3, 5, 36, 34, RopeStyle::half_split, x, out, x});
    }
    RopeCase p{2, 3, 5, 36, 34, RopeStyle::half_split, x, x, Layout::right};
    p.in_place = true;
    check_both<TypeParam>(p);
  }
}

TYPED_TEST(Rope, OffsetsAndPositions) {
  for (auto kind : {PositionKind::none, PositionKind::sequence, PositionKind::token}) {
    for (std::int64_t offset : {0, 1, 17}) {
      RopeCase p{3, 2, 9, 20, 16};
      p.positions = kind;
      p.offset = offset;
      check_both<TypeParam>(p);
    }
  }
}

TYPED_TEST(Rope, TablesOfHalfWidth) {
  for (auto [d, r] : {std::pair<std::int64_t, std::int64_t>{2, 2},
                      {6, 6},
                      {9, 6},
                      {32, 32},
                      {34, 34},
                      {64, 62},
                      {128, 128},
                      {130, 64},
                      {5, 0}}) {
    RopeCase p{2, 3, 3, d, r};
    p.half_width = true;
    check_both<TypeParam>(p);
    p.in_place = true;
    check_both<TypeParam>(p);
  }
  for (Layout layout : all_layouts) {
    RopeCase p{2, 3, 5, 36, 34, RopeStyle::half_split, layout, layout, layout, 4};
    p.half_width = true;
    p.positions = PositionKind::token;
    check_both<TypeParam>(p);
  }
}

TYPED_TEST(Rope, NothingToRotate) {
  for (RopeCase const& p :
       {RopeCase{0, 2, 3, 8, 8}, {2, 0, 3, 8, 8}, {2, 2, 0, 8, 8}, {2, 2, 3, 0, 0}}) {
    check_both<TypeParam>(p);
  }
}

// A NaN spoils the pair it belongs to and nothing else.
TYPED_TEST(Rope, NanStaysInItsPair) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  for (RopeStyle style : all_rope_styles) {
    Tensor<T, 4, Exec> x({1, 2, 3, 40}), out({1, 2, 3, 40});
    Random random(3);
    x.fill_uniform(random);
    x.at({0, 1, 1, 0}) = poison<T>();
    x.upload();
    Tables<T, Exec> tables(random, 3, 40, Layout::right);
    rope(Exec(), x.view(), tables.cos.view(), tables.sin.view(), out.view(), {.style = style});
    out.download();
    std::int64_t const partner = style == RopeStyle::interleaved ? 1 : 20;
    out.for_each([&](auto const& i) {
      bool const spoilt = i[1] == 1 && i[2] == 1 && (i[3] == 0 || i[3] == partner);
      EXPECT_EQ(std::isnan(to_double(out.at(i))), spoilt) << i[1] << ", " << i[2] << ", " << i[3];
    });
  }
}

// Tables in float for 16-bit features, results in another type.
TYPED_TEST(Rope, MixedTypes) {
  using T = typename TypeParam::T;
  if constexpr (std::is_same_v<T, bfloat16>) {
    check_rope<TypeParam, float, float>({2, 2, 5, 40, 36}, false);
    check_rope<TypeParam, float, float>({2, 2, 5, 40, 36}, true);
  }
}

// [batch, seqlen, heads, head_dim] Views go through heads_first.
TEST(RopeDefaultSpace, HeadsFirstAndDefaults) {
  Kokkos::View<float****> x("x", 2, 5, 3, 8), out("out", 2, 5, 3, 8), back("back", 2, 5, 3, 8);
  Kokkos::View<float**> cos("cos", 5, 8), sin("sin", 5, 8);
  Kokkos::deep_copy(x, 2.0f);
  Kokkos::deep_copy(sin, 1.0f);  // a quarter turn
  rope(heads_first(x), cos, sin, heads_first(out));
  rope_backward(heads_first(out), cos, sin, heads_first(back));
  Kokkos::fence("attikos_test");
  auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), out);
  EXPECT_EQ(host(1, 4, 2, 0), -2.0f);
  EXPECT_EQ(host(1, 4, 2, 7), 2.0f);
  Kokkos::deep_copy(host, back);
  EXPECT_EQ(host(1, 4, 2, 0), 2.0f);
  EXPECT_EQ(host(1, 4, 2, 7), 2.0f);
}

TEST(RopeOracle, FiniteDifferences) {
  for (bool interleaved : {false, true}) {
    auto const x = random_values(1, 34), g = random_values(2, 34);
    auto const cos = random_values(3, 32), sin = random_values(4, 32);
    auto const forward = [&](auto const& at) {
      return dot(g, reference::rope_head(at, cos, sin, interleaved, false).out);
    };
    auto const size = reference::rope_head(x, cos, sin, interleaved, false).magnitude;
    expect_gradient(interleaved ? "rope interleaved" : "rope half_split", x,
                    reference::rope_head(g, cos, sin, interleaved, true).out, 3 * 34,
                    dot_size(g, size), forward);
  }
}

}  // namespace
}  // namespace attikos::test
