// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// team_attention inside a kernel of the test's own, on global and on scratch memory; and
// attention() over many short sequences, which goes the same way on a host.
#include <algorithm>
#include <attikos/attention/attention.hpp>
#include <attikos/attention/team_attention.hpp>
#include <attikos/reference/attention_reference.hpp>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance.hpp"

namespace attikos::test {

/// How a TeamHeads kernel makes the call.
enum class Way { plain, without_lse, through_scratch, device_body };

/// One head for each team.
template <class Exec, class In, class Out, class Lse>
struct TeamHeads {
  using Team = typename Kokkos::TeamPolicy<Exec>::member_type;
  using Element = element_t<In>;
  using Scratch = Kokkos::View<Element**, Kokkos::LayoutRight, typename Exec::scratch_memory_space,
                               Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  In q, k, v;
  Out out;
  Lse lse;
  TeamAttentionOptions options;
  Way way;
  int level;  ///< of the scratch memory

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    using Kokkos::ALL;
    int const b = team.league_rank();
    auto const sub_q = Kokkos::subview(q, b, ALL, ALL);
    auto const sub_k = Kokkos::subview(k, b, ALL, ALL);
    auto const sub_v = Kokkos::subview(v, b, ALL, ALL);
    auto const sub_out = Kokkos::subview(out, b, ALL, ALL);
    auto const sub_lse = Kokkos::subview(lse, b, ALL);
    if (way == Way::plain) {
      team_attention(team, sub_q, sub_k, sub_v, sub_out, sub_lse, options);
    } else if (way == Way::without_lse) {
      team_attention(team, sub_q, sub_k, sub_v, sub_out, options);
    } else if (way == Way::device_body) {
      detail::team_attention_pieces(team, detail::team_attention_problem<Element>(
                                              sub_q, sub_k, sub_v, sub_out, sub_lse, options));
    } else {
      Scratch const near(team.team_scratch(level), sub_k.extent(0), sub_k.extent(1));
      int const rows = static_cast<int>(sub_k.extent(0)), cols = static_cast<int>(sub_k.extent(1));
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * cols), [&](int index) {
        near(index / cols, index % cols) = sub_k(index / cols, index % cols);
      });
      team.team_barrier();
      team_attention(team, sub_q, near, sub_v, sub_out, sub_lse, options);
    }
  }
};

/// Extents of one head.
struct HeadShape {
  std::int64_t rows, keys, d, dv;
};

template <class Exec, class T>
struct TeamOperands {
  static constexpr std::int64_t batch = 2;
  using Acc = Accumulator<T>;
  HeadShape shape;
  Tensor<T, 3, Exec> q, k, v, out;
  Tensor<Acc, 2, Exec> lse;

  TeamOperands(HeadShape s, Layout layout)
      : shape(s),
        q({batch, s.rows, s.d}, layout),
        k({batch, s.keys, s.d}, layout),
        v({batch, s.keys, s.dv}, layout),
        out({batch, s.rows, s.dv}, layout),
        lse({batch, s.rows}, layout) {
    Random random(static_cast<std::uint64_t>(s.rows * 1009 + s.keys * 31 + s.d));
    q.fill_uniform(random);
    k.fill_uniform(random);
    v.fill_uniform(random);
  }

  void run(TeamAttentionOptions const& options, Way way, int team_size = 0) {
    using Kernel =
        TeamHeads<Exec, decltype(q.const_view()), decltype(out.view()), decltype(lse.view())>;
    int const bytes =
        static_cast<int>(Kernel::Scratch::shmem_size(sz(shape.keys), sz(shape.d)) + 64);
    int const level = bytes <= Kokkos::TeamPolicy<Exec>::scratch_size_max(0) ? 0 : 1;
    Kernel const kernel{
        q.const_view(), k.const_view(), v.const_view(), out.view(), lse.view(), options, way,
        level};
    Exec const exec;
    auto const launch = [&](auto policy) {
      policy.set_scratch_size(level, Kokkos::PerTeam(bytes));
      Kokkos::parallel_for("attikos_test", policy, kernel);
    };
    if (team_size == 0)
      launch(Kokkos::TeamPolicy<Exec>(exec, static_cast<int>(batch), Kokkos::AUTO));
    else
      launch(Kokkos::TeamPolicy<Exec>(exec, static_cast<int>(batch), team_size));
    out.download();
    lse.download();
  }

  /// Compares out, and lse where it was asked for, with the oracle.
  void compare(TeamAttentionOptions const& o, Way way, std::string const& note = "") const {
    std::ostringstream what;
    what << "rows " << shape.rows << " keys " << shape.keys << " d " << shape.d << " dv "
         << shape.dv << " causal " << o.causal << " top_left "
         << (o.causal_alignment == CausalAlignment::top_left) << " window " << o.window_left << ", "
         << o.window_right << " softcap " << o.softcap << " scale " << o.softmax_scale << " way "
         << static_cast<int>(way) << " " << note;
    std::string const name =
        std::string(way == Way::device_body ? "team_attention/device_body/" : "team_attention/") +
        type_name<T>() + "/" + Exec::name();
    Comparison outs(name, what.str(), stored_as<T>()), lses(name + "/lse", what.str());
    std::int64_t const offset =
        o.causal_alignment == CausalAlignment::top_left ? 0 : shape.keys - shape.rows;
    reference::AttentionTerms terms;
    terms.scale = o.softmax_scale != 0
                      ? o.softmax_scale
                      : 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(shape.d, 1)));
    terms.softcap = o.softcap;
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < shape.rows; ++i) {
        terms.sees = [&](std::int64_t j) {
          return !(o.causal && j > i + offset) &&
                 !(o.window_left >= 0 && j < i + offset - o.window_left) &&
                 !(o.window_right >= 0 && j > i + offset + o.window_right);
        };
        auto const row = reference::attention_row(
            shape.keys, shape.d, shape.dv, terms, [&](std::int64_t c) { return q.value(b, i, c); },
            [&](std::int64_t j, std::int64_t c) { return k.value(b, j, c); },
            [&](std::int64_t j, std::int64_t c) { return v.value(b, j, c); });
        AttentionBound<T> const bound(row, shape.d);
        for (std::int64_t c = 0; c < shape.dv; ++c)
          outs.add(out.value(b, i, c), row.out[sz(c)],
                   bound.out(sz(c), [&](std::int64_t j) { return v.value(b, j, c); }), {b, i, c});
        if (way != Way::without_lse) lses.add(lse.value(b, i), row.lse, bound.lse(), {b, i});
      }
  }
};

template <class Exec, class T>
void check_team_attention(HeadShape shape, TeamAttentionOptions const& options, Layout layout,
                          Way way) {
  TeamOperands<Exec, T> o(shape, layout);
  o.run(options, way);
  EXPECT_EQ(o.out.writes_outside(), 0u);
  EXPECT_EQ(o.lse.writes_outside(), 0u);
  EXPECT_TRUE(way != Way::without_lse || o.lse.unchanged());
  o.compare(options, way, layout_name(layout));
}

/// Around blocks of 32 rows, 32 keys, 128 features, vectors of 4 to 16; and nothing.
inline constexpr std::array head_shapes{
    HeadShape{1, 1, 1, 1},      HeadShape{8, 8, 16, 16},   HeadShape{3, 4, 5, 4},
    HeadShape{5, 9, 12, 3},     HeadShape{12, 17, 24, 20}, HeadShape{31, 33, 32, 31},
    HeadShape{33, 31, 7, 33},   HeadShape{40, 70, 64, 48}, HeadShape{2, 100, 130, 9},
    HeadShape{34, 5, 128, 129}, HeadShape{7, 32, 16, 257}, HeadShape{0, 4, 3, 2},
    HeadShape{4, 0, 3, 2},      HeadShape{4, 5, 0, 2},     HeadShape{4, 5, 3, 0},
};

inline constexpr std::array head_options{
    TeamAttentionOptions{},
    TeamAttentionOptions{.causal = true},
    TeamAttentionOptions{.causal = true, .causal_alignment = CausalAlignment::top_left},
    TeamAttentionOptions{.softmax_scale = -0.7, .window_left = 3, .window_right = 1},
    TeamAttentionOptions{.causal = true, .window_left = 0, .softcap = 0.5},
    TeamAttentionOptions{.causal_alignment = CausalAlignment::top_left, .window_right = 2},
    TeamAttentionOptions{.softmax_scale = 3, .softcap = 2},
};

namespace {

template <class C>
class TeamAttention : public testing::Test {};
TYPED_TEST_SUITE(TeamAttention, FloatingCases, CaseName);

TYPED_TEST(TeamAttention, ShapesOptionsAndLayouts) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  std::size_t turn = 0;
  for (auto const& shape : head_shapes)
    for (auto const& options : head_options) {
      Way const way = std::array{Way::plain, Way::without_lse, Way::through_scratch}[turn % 3];
      check_team_attention<Exec, T>(shape, options, all_layouts[turn % 5], way);
      ++turn;
    }
}

TYPED_TEST(TeamAttention, BodyForTeamsOfThreads) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  std::size_t turn = 0;
  for (auto const& shape : head_shapes)
    for (auto const& options : head_options)
      check_team_attention<Exec, T>(shape, options, all_layouts[turn++ % 5], Way::device_body);
}

// A key or value that is NaN reaches the rows that see it and no other; where its score is −∞ not
// even those.
TYPED_TEST(TeamAttention, ExcludedPairsAddNothing) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  double const infinity = std::numeric_limits<double>::infinity();
  for (Way way : {Way::plain, Way::device_body})
    for (auto shape : {HeadShape{9, 13, 8, 20}, HeadShape{40, 75, 16, 16}})
      for (auto const& options : {TeamAttentionOptions{.causal = true},
                                  TeamAttentionOptions{.window_left = 2, .window_right = 2}}) {
        TeamOperands<Exec, T> o(shape, Layout::padded);
        Random random(3);
        o.q.fill_uniform(random, 0.5, 1);
        std::int64_t const last = shape.keys - 1;
        for (std::int64_t c = 0; c < shape.dv; ++c) o.v.at({0, last - 1, c}) = poison<T>();
        for (std::int64_t c = 0; c < shape.d; ++c) o.k.at({1, last, c}) = poison<T>();
        // Its scores are −∞ for all queries.
        std::int64_t const silent = last - shape.rows / 2;
        for (std::int64_t b = 0; b < 2; ++b) {
          o.k.set(-infinity, b, silent, 0);
          for (std::int64_t c = 0; c < shape.dv; ++c) o.v.at({b, silent, c}) = poison<T>();
        }
        o.k.upload();
        o.v.upload();
        o.run(options, way);
        o.compare(options, way, "poison");
        EXPECT_FALSE(std::isnan(o.out.value(0, 0, 0)));
        EXPECT_TRUE(std::isnan(o.out.value(0, shape.rows - 1, 0)));
      }
}

TYPED_TEST(TeamAttention, TheSameBitsForAnyTeam) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  TeamAttentionOptions const options{.causal = true, .softcap = 3};
  TeamOperands<Exec, T> o({70, 90, 24, 40}, Layout::right);
  o.run(options, Way::plain, 1);
  auto const out = o.out.elements();
  auto const lse = o.lse.elements();
  for (int team_size : {0, is_host_space<Exec> ? std::min(2, Exec().concurrency()) : 32}) {
    o.run(options, Way::plain, team_size);
    EXPECT_TRUE(same_bits(o.out.elements(), out)) << team_size;
    EXPECT_TRUE(same_bits(o.lse.elements(), lse)) << team_size;
  }
}

/// attention() of the same heads, as [1, batch, …].
template <class Exec, class T>
Explanation attend(TeamOperands<Exec, T>& o, char const* kernel, bool runs = true) {
  AttentionOptions const options{.causal = true, .kernel = kernel};
  Exec const exec;
  if (runs) {
    attention(exec, o.q.const_view(), o.k.const_view(), o.v.const_view(), o.out.view(),
              o.lse.view(), options);
    o.out.download();
    o.lse.download();
  }
  return explain(op::attention, exec, o.q.const_view(), o.k.const_view(), o.v.const_view(),
                 o.out.view(), o.lse.view(), options);
}

TYPED_TEST(TeamAttention, ShortSequencesOfAttentionGoTheSameWay) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  TeamAttentionOptions const options{.causal = true};
  if constexpr (is_host_space<Exec>) {
    for (HeadShape shape :
         {HeadShape{32, 32, 128, 128}, HeadShape{1, 1, 1, 1}, HeadShape{8, 30, 20, 24}}) {
      TeamOperands<Exec, T> o(shape, Layout::strided);
      o.run(options, Way::plain);
      auto const out = o.out.elements();
      auto const lse = o.lse.elements();
      o.out.fill(3);
      // Longer ones of bfloat16 go to the host's dot products where there are some.
      if (!attend(o, "", false).instructions.empty()) {
        EXPECT_TRUE((std::is_same_v<T, bfloat16>));
        EXPECT_GT(std::max(shape.rows, shape.keys), 16);
        EXPECT_EQ(attend(o, "").kernel, "portable/flash");
        continue;
      }
      EXPECT_EQ(attend(o, "").kernel, "portable/small");
      EXPECT_TRUE(same_bits(o.out.elements(), out));
      EXPECT_TRUE(same_bits(o.lse.elements(), lse));
      EXPECT_EQ(attend(o, "portable/small").kernel, "portable/small");
      EXPECT_EQ(attend(o, "portable").kernel, "portable/flash");
      o.compare(options, Way::plain, "flash");
    }
    for (auto const& refused : {std::pair{HeadShape{33, 8, 8, 8}, "seqlen_q is above 32"},
                                std::pair{HeadShape{8, 33, 8, 8}, "seqlen_kv is above 32"},
                                std::pair{HeadShape{8, 8, 8, 129}, "head_dim is above 128"}}) {
      TeamOperands<Exec, T> o(refused.first, Layout::right);
      auto const why = attend(o, "", false);
      EXPECT_EQ(why.kernel, "portable/flash");
      std::string const by = why.instructions.empty() ? "" : " (" + why.instructions + ")";
      EXPECT_EQ(why.to_string(),
                "runs portable/flash" + by + "\n  not portable/small: " + refused.second);
      EXPECT_THROW(attend(o, "portable/small"), UnsupportedError);
      EXPECT_TRUE(o.out.unchanged());
    }
  }
}

}  // namespace
}  // namespace attikos::test
