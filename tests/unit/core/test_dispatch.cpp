// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The seam: who takes a call, what explain() says, and what a demanded kernel that cannot run says.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <attikos/attikos.hpp>
#include <string>

#include "support/messages.hpp"
#include "support/tensors.hpp"

namespace attikos::test {
namespace {

using Exec = Kokkos::DefaultExecutionSpace;

// Two candidates as a specialization would write them.
struct Numbers {
  int value;
};
struct TakesEven {
  static constexpr char const* name = "test/even";
  static abi::Verdict accepts(Numbers const& args, Exec const&) {
    return args.value % 2 == 0 ? abi::accepted() : abi::refused("value is odd");
  }
};
struct TakesPositive {
  static constexpr char const* name = "test/positive";
  static abi::Verdict accepts(Numbers const& args, Exec const&) {
    return args.value > 0 ? abi::accepted() : abi::refused("value is not positive");
  }
};
using Candidates = detail::KernelList<TakesEven, TakesPositive>;

std::string ran;
Explanation choose(char const* wanted, int value) {
  ran = "nothing";
  Explanation log;
  bool const visited =
      detail::choose_kernel("test", Candidates{}, wanted, Numbers{value}, Exec(), &log,
                            [](auto kernel) { ran = decltype(kernel)::type::name; });
  EXPECT_EQ(visited, ran != "nothing");
  // Without a log the choice is the same.
  std::string const logged = ran;
  detail::choose_kernel("test", Candidates{}, wanted, Numbers{value}, Exec(), nullptr,
                        [](auto kernel) { ran = decltype(kernel)::type::name; });
  EXPECT_EQ(ran, logged);
  return log;
}

TEST(ChooseKernel, TakesTheFirstThatAccepts) {
  EXPECT_EQ(choose("", 2).kernel, "test/even");
  EXPECT_EQ(ran, "test/even");
  auto const second = choose("", 3);
  EXPECT_EQ(second.kernel, "test/positive");
  EXPECT_EQ(ran, "test/positive");
  ASSERT_EQ(second.rejected.size(), 1u);
  EXPECT_EQ(second.rejected[0].kernel, "test/even");
  EXPECT_EQ(second.rejected[0].reason, "value is odd");
}

TEST(ChooseKernel, FallsBackToPortableWithAllReasons) {
  auto const none = choose("", -1);
  EXPECT_EQ(none.kernel, "portable");
  EXPECT_EQ(ran, "nothing");
  ASSERT_EQ(none.rejected.size(), 2u);
  EXPECT_EQ(none.rejected[1].reason, "value is not positive");
  EXPECT_EQ(
      none.to_string(),
      "runs portable\n  not test/even: value is odd\n  not test/positive: value is not positive");
}

TEST(ChooseKernel, DemandIsObeyedOrRefused) {
  EXPECT_EQ(choose("test/positive", 2).kernel, "test/positive");
  EXPECT_EQ(ran, "test/positive");
  EXPECT_EQ(choose("portable", 2).kernel, "portable");
  EXPECT_EQ(ran, "nothing");
  expect_error<UnsupportedError>([] { choose("test/even", 3); },
                                 {"attikos::test", "test/even", "value is odd"});
  EXPECT_EQ(ran, "nothing");
  expect_error<UnsupportedError>(
      [] { choose("nonsense", 2); },
      {"attikos::test", "nonsense", Exec::name(), "portable, test/even, test/positive"});
  EXPECT_EQ(ran, "nothing");
}

TEST(Explain, NamesTheKernelOfGemm) {
  Tensor<float, 2, Exec> a({8, 9}), b({9, 7}), c({8, 7});
  auto const automatic = explain(op::gemm, Exec(), a.view(), b.view(), c.view());
  EXPECT_FALSE(automatic.kernel.empty());
  EXPECT_NE(automatic.to_string().find(automatic.kernel), std::string::npos);
  auto const portable =
      explain(op::gemm, Exec(), a.view(), b.view(), c.view(), GemmOptions{.kernel = "portable"});
  EXPECT_EQ(portable.kernel, "portable");
  c.download();
  EXPECT_TRUE(c.unchanged()) << "explain must not compute";
}

TEST(Explain, NamesTheKernelOfAttention) {
  Tensor<float, 4, Exec> q({1, 2, 3, 8}), k({1, 2, 5, 8}), v({1, 2, 5, 8}), out({1, 2, 3, 8});
  auto const flash = explain(op::attention, Exec(), q.view(), k.view(), v.view(), out.view());
  auto const naive = explain(op::attention, Exec(), q.view(), k.view(), v.view(), out.view(),
                             AttentionOptions{.algorithm = AttentionAlgorithm::naive});
  if (is_host_space<Exec>)
    EXPECT_EQ(flash.kernel, "portable/small");
  else
    EXPECT_NE(flash.to_string().find(flash.kernel), std::string::npos);
  EXPECT_EQ(naive.kernel, "portable/naive");
  // What explain() names can be demanded.
  EXPECT_EQ(explain(op::attention, Exec(), q.view(), k.view(), v.view(), out.view(),
                    AttentionOptions{.kernel = "portable/flash"})
                .kernel,
            "portable/flash");
  EXPECT_THROW(explain(op::attention, Exec(), q.view(), k.view(), v.view(), out.view(),
                       AttentionOptions{.kernel = "portable/naive"}),
               UnsupportedError);
  out.download();
  EXPECT_TRUE(out.unchanged()) << "explain must not compute";
}

TEST(Explain, RefusesWhatTheCallRefuses) {
  Tensor<float, 2, Exec> a({8, 9}), b({8, 7}), c({8, 7});
  EXPECT_THROW(explain(op::gemm, Exec(), a.view(), b.view(), c.view()), ShapeError);
  Tensor<float, 2, Exec> right({9, 7});
  EXPECT_THROW(explain(op::gemm, Exec(), a.view(), right.view(), c.view(),
                       GemmOptions{.kernel = "nonsense"}),
               UnsupportedError);
}

TEST(Demand, OfGemmNamesWhatIsMissingAndWritesNothing) {
  Tensor<float, 2, Exec> a({8, 9}), b({9, 7}), c({8, 7});
  for (char const* kernel : {"nonsense", "gemm/sm75_wmma_f16", "kokkos_kernels "}) {
    expect_error<UnsupportedError>(
        [&] { gemm(Exec(), a.view(), b.view(), c.view(), GemmOptions{.kernel = kernel}); },
        {"attikos::gemm", kernel});
  }
  c.download();
  EXPECT_TRUE(c.unchanged());
}

// On the host the specialization does not exist at all; on a GPU it names its own condition
// (float32).
TEST(Demand, OfAttentionNamesWhatIsMissingAndWritesNothing) {
  Tensor<float, 4, Exec> q({1, 2, 3, 8}), k({1, 2, 5, 8}), v({1, 2, 5, 8}), out({1, 2, 3, 8});
  expect_error<UnsupportedError>(
      [&] {
        attention(Exec(), q.view(), k.view(), v.view(), out.view(),
                  AttentionOptions{.kernel = "nonsense"});
      },
      {"attikos::attention", "nonsense"});
  out.download();
  EXPECT_TRUE(out.unchanged());
}

#if !defined(KOKKOS_ENABLE_CUDA)
TEST(Demand, OfATensorCoreKernelOnTheHostNamesTheSpace) {
  Tensor<float16, 2, Exec> a({16, 16}), b({16, 16});
  Tensor<float, 2, Exec> c({16, 16});
  expect_error<UnsupportedError>(
      [&] {
        gemm(Exec(), a.view(), b.view(), c.view(), GemmOptions{.kernel = "gemm/sm75_wmma_f16"});
      },
      {"gemm/sm75_wmma_f16", Exec::name()});
  c.download();
  EXPECT_TRUE(c.unchanged());
}
#endif

}  // namespace
}  // namespace attikos::test
