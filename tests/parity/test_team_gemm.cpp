// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// team_gemm inside a kernel of the test's own, on global and on scratch memory.
#include <attikos/gemm/team_gemm.hpp>
#include <string>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance_gemm.hpp"

namespace attikos::test {

/// Threads of a team, and lanes of each: the policy's vector length. No threads: what Kokkos takes.
struct TeamSize {
  int threads = 0, lanes = 1;
};

/// One product for each team. With `through_scratch` A is copied to scratch memory first.
template <class Exec, class A, class B, class C>
struct TeamProducts {
  using Team = typename Kokkos::TeamPolicy<Exec>::member_type;
  using Element = element_t<A>;
  using Scratch = Kokkos::View<Element**, Kokkos::LayoutRight, typename Exec::scratch_memory_space,
                               Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  A a;
  B b;
  C c;
  TeamGemmOptions options;
  bool through_scratch;

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    using Kokkos::ALL;
    int const batch = team.league_rank();
    auto const sub_a = Kokkos::subview(a, batch, ALL, ALL);
    auto const sub_b = Kokkos::subview(b, batch, ALL, ALL);
    auto const sub_c = Kokkos::subview(c, batch, ALL, ALL);
    if (!through_scratch) return team_gemm(team, sub_a, sub_b, sub_c, options);
    Scratch const near(team.team_scratch(0), sub_a.extent(0), sub_a.extent(1));
    int const rows = static_cast<int>(sub_a.extent(0)), cols = static_cast<int>(sub_a.extent(1));
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * cols), [&](int index) {
      near(index / cols, index % cols) = sub_a(index / cols, index % cols);
    });
    team.team_barrier();
    team_gemm(team, near, sub_b, sub_c, options);
  }
};

/// The elements of C, or none where the device has no such team.
template <class Exec, class TA, class TB, class TC>
std::vector<TC> check_team_gemm(std::int64_t m, std::int64_t n, std::int64_t k, int turn,
                                TeamSize size = {}) {
  std::int64_t const batch = 3;
  TeamGemmOptions const options{.alpha = turn % 5 == 4 ? -1.0 : 2.0,
                                .beta = turn % 3 == 0 ? 0.0 : 3.0,
                                .trans_a = (turn & 1) != 0,
                                .trans_b = (turn & 2) != 0};
  Layout const layout = all_layouts[static_cast<std::size_t>(turn) % 5];
  Tensor<TA, 3, Exec> a({batch, options.trans_a ? k : m, options.trans_a ? m : k}, layout);
  Tensor<TB, 3, Exec> b({batch, options.trans_b ? n : k, options.trans_b ? k : n}, layout);
  Tensor<TC, 3, Exec> c({batch, m, n}, layout);
  Random random(static_cast<std::uint64_t>(turn + 1));
  if constexpr (std::is_integral_v<TA>) {
    a.fill_integers(random, -128, 127);
    b.fill_integers(random, -128, 127);
    if (options.beta != 0) c.fill_integers(random, -1000, 1000);
  } else {
    a.fill_uniform(random);
    b.fill_uniform(random);
    if (options.beta != 0) c.fill_uniform(random);
  }
  auto const before = c;
  using Kernel =
      TeamProducts<Exec, decltype(a.view()), decltype(b.const_view()), decltype(c.view())>;
  bool const through_scratch = turn % 2 == 1;
  Kernel const kernel{a.view(), b.const_view(), c.view(), options, through_scratch};
  Exec const exec;
  using Policy = Kokkos::TeamPolicy<Exec>;
  auto const scratch =
      Kokkos::PerTeam(static_cast<int>(Kernel::Scratch::shmem_size(sz(m), sz(k)) + 64));
  Policy policy(exec, static_cast<int>(batch), Kokkos::AUTO, size.lanes);
  policy.set_scratch_size(0, scratch);
  if (size.threads > 0) {
    if (size.threads > policy.team_size_max(kernel, Kokkos::ParallelForTag())) return {};
    policy = Policy(exec, static_cast<int>(batch), size.threads, size.lanes);
    policy.set_scratch_size(0, scratch);
  }
  Kokkos::parallel_for("attikos_test", policy, kernel);
  c.download();
  EXPECT_EQ(c.writes_outside(), 0u);
  constexpr bool mixed =
      detail::is_wide_real<TA> && !(std::is_same_v<TA, TB> && std::is_same_v<TA, TC>);
  Comparison comparison(
      std::string("team_gemm/") + (mixed ? "mixed" : type_name<TA>()) + "/" + Exec::name(),
      "m " + std::to_string(m) + " n " + std::to_string(n) + " k " + std::to_string(k) + " turn " +
          std::to_string(turn) + " threads " + std::to_string(size.threads) + " lanes " +
          std::to_string(size.lanes),
      k > 1 ? stored_as<TC>() : Stored{});
  c.for_each([&](auto const& at) {
    std::int64_t const bt = at[0], i = at[1], j = at[2];
    reference::GemmTerms terms;
    terms.alpha = options.alpha;
    terms.beta = options.beta;
    if (options.beta != 0) terms.c = before.value(bt, i, j);
    auto const want = reference::gemm_element(
        k, [&](std::int64_t l) { return options.trans_a ? a.value(bt, l, i) : a.value(bt, i, l); },
        [&](std::int64_t l) { return options.trans_b ? b.value(bt, j, l) : b.value(bt, l, j); },
        terms);
    using Acc = Accumulator<TA, TB, TC>;
    double bound = 0;  // integers are exact
    if constexpr (!std::is_integral_v<TA>)
      bound = stored_gemm_bound<Acc, TC>(want.value, scaled_gemm_error<Acc>(k, want, terms));
    comparison.add(to_double(c.at(at)), want.value, bound, {bt, i, j});
  });
  return c.elements();
}

/// One product, of Views of any layout.
template <class Exec, class View>
struct TeamProduct {
  View a, b, c;
  KOKKOS_INLINE_FUNCTION void operator()(
      typename Kokkos::TeamPolicy<Exec>::member_type const& team) const {
    team_gemm(team, a, b, c);
  }
};

/// Integers that all types hold, so that the product is exact, in the corners of matrices whose
/// rows are aligned and that are poison elsewhere.
template <class Exec, class T, class Layout>
void check_layout(std::size_t m, std::size_t n, std::size_t k) {
  using Whole = Kokkos::View<T**, Layout, Exec>;
  std::size_t const size = 64;
  Whole const whole_a("a", size, size), whole_b("b", size, size), whole_c("c", size, size);
  auto const a = Kokkos::create_mirror_view(whole_a), b = Kokkos::create_mirror_view(whole_b);
  for (std::size_t i = 0; i < size; ++i)
    for (std::size_t j = 0; j < size; ++j) {
      auto const number = [](std::size_t x) { return static_cast<T>(static_cast<float>(x)); };
      a(i, j) = i < m && j < k ? number((3 * i + j) % 5) : poison<T>();
      b(i, j) = i < k && j < n ? number((i + 2 * j) % 3) : poison<T>();
    }
  Kokkos::deep_copy(whole_a, a);
  Kokkos::deep_copy(whole_b, b);
  auto const corner = [](Whole const& view, std::size_t rows, std::size_t cols) {
    return Kokkos::subview(view, std::pair(std::size_t{0}, rows), std::pair(std::size_t{0}, cols));
  };
  using View = decltype(corner(whole_a, m, k));
  TeamProduct<Exec, View> const kernel{corner(whole_a, m, k), corner(whole_b, k, n),
                                       corner(whole_c, m, n)};
  Kokkos::parallel_for("attikos_test", Kokkos::TeamPolicy<Exec>(1, Kokkos::AUTO), kernel);
  auto const c = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), whole_c);
  for (std::size_t i = 0; i < size; ++i)
    for (std::size_t j = 0; j < size; ++j) {
      double want = 0;
      for (std::size_t p = 0; i < m && j < n && p < k; ++p)
        want += to_double(a(i, p)) * to_double(b(p, j));
      EXPECT_EQ(to_double(c(i, j)), want) << m << " " << n << " " << k << ": " << i << ", " << j;
    }
}

namespace {

template <class Exec, class TA, class TB, class TC>
void check_shapes() {
  int turn = 0;
  for (auto [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                         {3, 5, 7},
                         {4, 16, 8},
                         {17, 33, 5},
                         {2, 1, 40},
                         {32, 32, 32},
                         {5, 31, 2},
                         {0, 3, 2},
                         {3, 0, 2},
                         {3, 4, 0}}) {
    for (int trans = 0; trans < 4; ++trans) check_team_gemm<Exec, TA, TB, TC>(m, n, k, turn++);
  }
}

/// Teams of whole warps, of some and a part of one, and of less than one.
template <class Exec, class TA, class TB, class TC>
void check_team_sizes() {
  int turn = 0;
  for (auto [m, n, k] : {std::array<std::int64_t, 3>{40, 36, 44}, {29, 53, 67}, {8, 8, 8}})
    for (int trans = 0; trans < 8; ++trans, ++turn) {
      std::vector<TC> first;
      for (auto size : {TeamSize{1, 1},
                        {3, 1},
                        {2, 8},
                        {31, 1},
                        {1, 32},
                        {32, 1},
                        {3, 16},
                        {5, 8},
                        {4, 32},
                        {100, 1},
                        {24, 4},
                        {256, 1},
                        {512, 2}}) {
        auto const found = check_team_gemm<Exec, TA, TB, TC>(m, n, k, turn, size);
        if (size.threads * size.lanes < 32 || found.empty()) continue;
        if (first.empty()) first = found;
        EXPECT_TRUE(same_bits(first, found)) << size.threads << " threads of " << size.lanes;
      }
    }
}

template <class C>
class TeamGemm : public testing::Test {};
TYPED_TEST_SUITE(TeamGemm, FloatingCases, CaseName);

TYPED_TEST(TeamGemm, ShapesAndLayouts) {
  using T = typename TypeParam::T;
  check_shapes<typename TypeParam::Exec, T, T, T>();
}

TYPED_TEST(TeamGemm, SizesOfTeams) {
  using T = typename TypeParam::T;
  check_team_sizes<typename TypeParam::Exec, T, T, T>();
}

TYPED_TEST(TeamGemm, CornersOfAlignedMatrices) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  for (auto [m, n, k] :
       {std::array<std::size_t, 3>{16, 24, 16}, {7, 5, 9}, {41, 30, 23}, {8, 1, 4}}) {
    check_layout<Exec, T, Kokkos::LayoutLeft>(m, n, k);
    check_layout<Exec, T, Kokkos::LayoutRight>(m, n, k);
  }
}

template <class Exec>
class TeamGemmTypes : public testing::Test {};
TYPED_TEST_SUITE(TeamGemmTypes, SpaceCases, CaseName);

TYPED_TEST(TeamGemmTypes, Int8IsExact) {
  check_shapes<TypeParam, std::int8_t, std::int8_t, std::int32_t>();
}
TYPED_TEST(TeamGemmTypes, Int8OfTeamsOfAllSizes) {
  check_team_sizes<TypeParam, std::int8_t, std::int8_t, std::int32_t>();
}
TYPED_TEST(TeamGemmTypes, Mixed) {
  check_shapes<TypeParam, float, bfloat16, float16>();
  check_shapes<TypeParam, float16, float8_e5m2, float>();
  check_shapes<TypeParam, bfloat16, bfloat16, float>();
  check_shapes<TypeParam, float, float16, double>();
}
TYPED_TEST(TeamGemmTypes, Float8) { check_shapes<TypeParam, float8_e4m3, float8_e5m2, bfloat16>(); }

}  // namespace
}  // namespace attikos::test
