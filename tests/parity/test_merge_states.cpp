// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// merge_states against float64: two states and many, every type, layout and rank, empty states.
#include <attikos/decode/merge_states.hpp>
#include <limits>
#include <sstream>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/messages.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance_decode.hpp"

namespace attikos::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct MergeCase {
  std::int64_t splits, batch, heads, seqlen, dv;
  Layout layout = Layout::right;
  bool joined = false;     ///< rank 3: batch must be 1
  bool lse = true;         ///< ask for the merged lse
  double spread = 4;       ///< lse are uniform in [-spread, spread]
  std::int64_t empty = 0;  ///< one state in `empty` saw no key and holds NaN; 0: none
};

std::string describe(MergeCase const& p) {
  std::ostringstream text;
  text << p.splits << " states [" << p.batch << ", " << p.heads << ", " << p.seqlen << ", " << p.dv
       << "] layout " << layout_name(p.layout) << " joined " << p.joined << " lse " << p.lse
       << " spread " << p.spread << " one empty in " << p.empty;
  return text.str();
}

/// Fills states; the empty ones keep their NaN.
template <class Outs, class Lses>
void fill_states(MergeCase const& p, Outs& outs, Lses& lses) {
  Random random(static_cast<std::uint64_t>(p.splits * 1009 + p.seqlen * 31 + p.dv));
  outs.fill_uniform(random, -2, 2);
  lses.fill_uniform(random, -p.spread, p.spread);
  if (p.empty == 0) return;
  lses.for_each([&](auto const& i) {
    if (random.integer(1, p.empty) != 1) return;
    lses.at(i) = static_cast<typename Lses::T>(-infinity);
    for (std::int64_t c = 0; c < p.dv; ++c)
      outs.at({i[0], i[1], i[2], i[3], c}) = poison<typename Outs::T>();
  });
  outs.upload();
  lses.upload();
}

/// Compares with the oracle on the states as they were before the call.
template <class Exec, class P, class L, class O>
void compare_merged(MergeCase const& p, Tensor<P, 5, Exec>& outs, Tensor<L, 4, Exec>& lses,
                    Tensor<O, 4, Exec>& out, Tensor<L, 3, Exec>& lse) {
  out.download();
  lse.download();
  std::string const name =
      std::string("merge_states/") + type_name<P>() + "/" + type_name<O>() + "/" + Exec::name();
  Comparison values(name, describe(p), stored_as<O>()), sums(name + "/lse", describe(p));
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.heads; ++h) {
      for (std::int64_t i = 0; i < p.seqlen; ++i) {
        std::vector<double> l;
        for (std::int64_t s = 0; s < p.splits; ++s) l.push_back(lses.value(s, b, h, i));
        auto const part = [&](std::size_t s, std::size_t c) {
          return outs.value(static_cast<std::int64_t>(s), b, h, i, static_cast<std::int64_t>(c));
        };
        auto const row = reference::merge_states_row(l, sz(p.dv), part);
        MergeBound<Accumulator<P, L, O>> const bound(row);
        for (std::int64_t c = 0; c < p.dv; ++c) {
          values.add(out.value(b, h, i, c), row.out[sz(c)],
                     bound.template out<O>(sz(c), [&](std::size_t s) { return part(s, sz(c)); }),
                     {b, h, i, c});
        }
        if (p.lse) sums.add(lse.value(b, h, i), row.lse, bound.template lse<L>(), {b, h, i});
      }
    }
  }
}

/// Many states of type P along dimension 0.
template <class Exec, class P, class O>
void check_splits(MergeCase const& p) {
  using L = Accumulator<O>;
  Tensor<P, 5, Exec> outs({p.splits, p.batch, p.heads, p.seqlen, p.dv}, p.layout);
  Tensor<L, 4, Exec> lses({p.splits, p.batch, p.heads, p.seqlen}, p.layout);
  Tensor<O, 4, Exec> out({p.batch, p.heads, p.seqlen, p.dv}, p.layout);
  Tensor<L, 3, Exec> lse({p.batch, p.heads, p.seqlen}, p.layout);
  fill_states(p, outs, lses);
  if (p.joined) {
    auto const whole = Kokkos::ALL;
    auto const joined_outs = Kokkos::subview(outs.const_view(), whole, 0, whole, whole, whole);
    auto const joined_lses = Kokkos::subview(lses.const_view(), whole, 0, whole, whole);
    if (p.lse) {
      merge_states(Exec(), joined_outs, joined_lses, out.front(), lse.front());
    } else {
      merge_states(Exec(), joined_outs, joined_lses, out.front());
    }
  } else if (p.lse) {
    merge_states(Exec(), outs.const_view(), lses.const_view(), out.view(), lse.view());
  } else {
    merge_states(Exec(), outs.const_view(), lses.const_view(), out.view());
  }
  compare_merged(p, outs, lses, out, lse);
  EXPECT_EQ(out.writes_outside(), 0u) << describe(p);
  EXPECT_EQ(lse.writes_outside(), 0u) << describe(p);
  EXPECT_TRUE(p.lse || lse.unchanged()) << describe(p);
}

/// Two states in tensors of their own, merged into a third or (`in_place`) into the first.
template <class Exec, class T>
void check_pair(MergeCase const& p, bool in_place) {
  using L = Accumulator<T>;
  Tensor<T, 5, Exec> outs({2, p.batch, p.heads, p.seqlen, p.dv});
  Tensor<L, 4, Exec> lses({2, p.batch, p.heads, p.seqlen});
  fill_states(p, outs, lses);
  Tensor<T, 4, Exec> a({p.batch, p.heads, p.seqlen, p.dv}, p.layout), b(a.extents()),
      out(a.extents(), p.layout);
  Tensor<L, 3, Exec> lse_a({p.batch, p.heads, p.seqlen}, p.layout), lse_b(lse_a.extents()),
      lse(lse_a.extents(), p.layout);
  a.for_each([&](auto const& i) {
    a.at(i) = outs.at({0, i[0], i[1], i[2], i[3]});
    b.at(i) = outs.at({1, i[0], i[1], i[2], i[3]});
  });
  lse_a.for_each([&](auto const& i) {
    lse_a.at(i) = lses.at({0, i[0], i[1], i[2]});
    lse_b.at(i) = lses.at({1, i[0], i[1], i[2]});
  });
  a.upload(), b.upload(), lse_a.upload(), lse_b.upload();
  if (p.joined) {
    merge_states(Exec(), a.front(), lse_a.front(), b.const_front(), lse_b.const_front(),
                 in_place ? a.front() : out.front(), in_place ? lse_a.front() : lse.front());
  } else if (p.lse) {
    merge_states(Exec(), a.view(), lse_a.view(), b.const_view(), lse_b.const_view(),
                 in_place ? a.view() : out.view(), in_place ? lse_a.view() : lse.view());
  } else {
    merge_states(Exec(), a.view(), lse_a.view(), b.const_view(), lse_b.const_view(),
                 in_place ? a.view() : out.view());
  }
  compare_merged(p, outs, lses, in_place ? a : out, in_place ? lse_a : lse);
  EXPECT_EQ((in_place ? a : out).writes_outside(), 0u) << describe(p);
}

template <class C>
class MergeStates : public testing::Test {};
TYPED_TEST_SUITE(MergeStates, FloatingCases, CaseName);

TYPED_TEST(MergeStates, ManyStates) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (std::int64_t dv : {1, 7, 16, 64, 65, 128, 200}) {
    for (std::int64_t splits : {1, 2, 5, 33})
      check_splits<Exec, Accumulator<T>, T>({splits, 2, 3, 2, dv});
  }
  for (Layout layout : all_layouts) {
    check_splits<Exec, Accumulator<T>, T>({5, 2, 3, 5, 37, layout, false, true, 4, 3});
    check_splits<Exec, Accumulator<T>, T>({3, 1, 4, 5, 37, layout, true, false, 4, 3});
    check_splits<Exec, Accumulator<T>, T>({3, 1, 4, 5, 16, layout, true, true, 4, 0});
    check_splits<Exec, Accumulator<T>, T>({3, 2, 4, 3, 16, layout, false, false, 4, 0});
  }
}

TYPED_TEST(MergeStates, TwoStates) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (bool in_place : {false, true}) {
    for (std::int64_t dv : {1, 33, 64, 150}) check_pair<Exec, T>({2, 2, 3, 5, dv}, in_place);
    for (Layout layout : all_layouts) {
      check_pair<Exec, T>({2, 2, 3, 7, 37, layout, false, true, 4, 3}, in_place);
      check_pair<Exec, T>({2, 1, 3, 7, 37, layout, true, true, 4, 3}, in_place);
    }
    check_pair<Exec, T>({2, 2, 3, 7, 16, Layout::padded, false, false, 4, 3}, in_place);
  }
}

/// Far apart, and near the largest exponents: weights underflow, nothing overflows.
TYPED_TEST(MergeStates, RangeOfLse) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (double spread : {1e-3, 60.0, 1e4, 1e30}) {
    check_splits<Exec, Accumulator<T>, T>({9, 1, 2, 9, 20, Layout::right, false, true, spread, 4});
  }
}

TYPED_TEST(MergeStates, ZeroExtents) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (auto [s, b, h, i, d] : {std::array<std::int64_t, 5>{0, 2, 3, 4, 5},
                               {3, 0, 3, 4, 5},
                               {3, 2, 0, 4, 5},
                               {3, 2, 3, 0, 5},
                               {3, 2, 3, 4, 0},
                               {0, 0, 0, 0, 0}}) {
    check_splits<Exec, Accumulator<T>, T>({s, b, h, i, d});
  }
}

/// A state that saw nothing, or a lone one, leaves the other's bits as they are.
TYPED_TEST(MergeStates, EmptyStatesAreExact) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  using L = Accumulator<T>;
  Tensor<T, 4, Exec> a({1, 2, 5, 37}), empty(a.extents()), out(a.extents());
  Tensor<L, 3, Exec> lse_a({1, 2, 5}), lse_empty(lse_a.extents()), lse(lse_a.extents());
  Random random(5);
  a.fill_uniform(random, -1e4, 1e4);
  lse_a.fill_uniform(random, -50, 50);
  lse_empty.fill(-infinity);
  for (bool first : {true, false}) {
    out.fill(7);
    if (first) {
      merge_states(Exec(), a.view(), lse_a.view(), empty.view(), lse_empty.view(), out.view(),
                   lse.view());
    } else {
      merge_states(Exec(), empty.view(), lse_empty.view(), a.view(), lse_a.view(), out.view(),
                   lse.view());
    }
    out.download();
    lse.download();
    EXPECT_TRUE(same_bits(out.elements(), a.elements()));
    EXPECT_TRUE(same_bits(lse.elements(), lse_a.elements()));
  }
  merge_states(Exec(), empty.view(), lse_empty.view(), empty.view(), lse_empty.view(), out.view(),
               lse.view());
  out.download();
  lse.download();
  out.for_each([&](auto const& i) { EXPECT_EQ(to_double(out.at(i)), 0.0); });
  lse.for_each([&](auto const& i) { EXPECT_EQ(to_double(lse.at(i)), -infinity); });
}

/// NaN of a state that did see keys is not lost.
TYPED_TEST(MergeStates, NotANumberStays) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  using L = Accumulator<T>;
  Tensor<T, 4, Exec> a({1, 1, 1, 20}), b(a.extents()), out(a.extents());
  Tensor<L, 3, Exec> lse_a({1, 1, 1}), lse_b(lse_a.extents()), lse(lse_a.extents());
  for (double other : {0.0, -infinity}) {
    a.fill(1);
    b.fill(1);
    lse_a.fill(std::nan(""));
    lse_b.fill(other);
    merge_states(Exec(), a.view(), lse_a.view(), b.view(), lse_b.view(), out.view(), lse.view());
    out.download();
    lse.download();
    EXPECT_TRUE(std::isnan(out.value(0, 0, 0, 19)));
    EXPECT_TRUE(std::isnan(lse.value(0, 0, 0)));
  }
}

using Exec = Kokkos::DefaultExecutionSpace;

TEST(MergeStatesErrors, Shapes) {
  Tensor<float, 4, Exec> a({2, 3, 4, 5}), wrong({2, 3, 4, 6}), out({2, 3, 4, 5});
  Tensor<float, 3, Exec> lse({2, 3, 4}), short_lse({2, 3, 3}), merged({2, 3, 4});
  Tensor<float, 5, Exec> outs({7, 2, 3, 4, 6});
  Tensor<float, 4, Exec> lses({7, 2, 3, 4}), few({6, 2, 3, 4});
  expect_error<ShapeError>(
      [&] {
        merge_states(Exec(), a.view(), lse.view(), wrong.view(), lse.view(), out.view(),
                     merged.view());
      },
      {"attikos::merge_states: out_b is [2, 3, 4, 6] float32; expected the extents of out",
       "[2, 3, 4, 5] float32"});
  expect_error<ShapeError>(
      [&] { merge_states(Exec(), a.view(), short_lse.view(), a.view(), lse.view(), out.view()); },
      {"attikos::merge_states: lse_a is [2, 3, 3] float32; expected the extents of out_a without "
       "its last dimension, which is [2, 3, 4, 5] float32"});
  expect_error<ShapeError>(
      [&] {
        merge_states(Exec(), a.view(), lse.view(), a.view(), lse.view(), out.view(),
                     short_lse.view());
      },
      {"attikos::merge_states: lse is [2, 3, 3] float32; expected the extents of out"});
  expect_error<ShapeError>(
      [&] { merge_states(Exec(), outs.view(), lses.view(), out.view()); },
      {"attikos::merge_states: outs is [7, 2, 3, 4, 6] float32; expected the extents of out behind "
       "the splits, which is [2, 3, 4, 5] float32"});
  expect_error<ShapeError>(
      [&] { merge_states(Exec(), outs.view(), few.view(), wrong.view(), merged.view()); },
      {"attikos::merge_states: lses is [6, 2, 3, 4] float32; expected the extents of outs"});
  Kokkos::View<float****, Kokkos::LayoutStride, Exec> const overlapping(
      out.view().data(), Kokkos::LayoutStride(2, 60, 3, 20, 4, 0, 5, 1));
  expect_error<StrideError>(
      [&] { merge_states(Exec(), a.view(), lse.view(), a.view(), lse.view(), overlapping); },
      {"attikos::merge_states: output out has stride 0 in dimension 2 of extent 4"});
  for (auto* tensor : {&out, &wrong}) {
    tensor->download();
    EXPECT_TRUE(tensor->unchanged());
  }
}

}  // namespace
}  // namespace attikos::test
