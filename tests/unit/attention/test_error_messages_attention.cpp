// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Refused calls of attention: the message names argument, what was expected and what came, and
// outputs stay as they were.
#include <gtest/gtest.h>

#include <attikos/attikos.hpp>
#include <cstddef>
#include <limits>
#include <string>

#include "support/messages.hpp"
#include "support/tensors.hpp"

namespace attikos::test {
namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using Parts = std::initializer_list<std::string>;
template <int Rank>
using Floats = Tensor<float, Rank, Exec>;
template <int Rank>
using Extents = std::array<std::int64_t, sz(Rank)>;

/// Extents of one call, right until a test breaks one of them.
struct Problem {
  Extents<4> q{2, 4, 3, 8}, k{2, 2, 5, 8}, v{2, 2, 5, 6}, out{2, 4, 3, 6};
  Extents<3> lse{2, 4, 3};
  AttentionOptions options = {};
};

template <class E>
void expect_refused(Problem const& p, Parts parts) {
  Floats<4> q(p.q), k(p.k), v(p.v), out(p.out);
  Floats<3> lse(p.lse);
  expect_error<E>(
      [&] { attention(Exec(), q.view(), k.view(), v.view(), out.view(), lse.view(), p.options); },
      parts);
  out.download();
  lse.download();
  EXPECT_TRUE(out.unchanged()) << "a refused call wrote out";
  EXPECT_TRUE(lse.unchanged()) << "a refused call wrote lse";
}

TEST(AttentionErrors, WholeText) {
  Tensor<bfloat16, 4, Exec> q({2, 4, 3, 8}), k({2, 2, 5, 7}), v({2, 2, 5, 6}), out({2, 4, 3, 6});
  try {
    attention(Exec(), q.view(), k.view(), v.view(), out.view());
    FAIL() << "no error";
  } catch (ShapeError const& error) {
    EXPECT_STREQ(error.what(),
                 "attikos::attention: k has head_dim 7; expected 8 as in q. q is [2, 4, 3, 8] "
                 "bfloat16, k is [2, 2, 5, "
                 "7] bfloat16, v is [2, 2, 5, 6] bfloat16, out is [2, 4, 3, 6] bfloat16.");
  }
}

TEST(AttentionErrors, EveryExtent) {
  std::string const op = "attikos::attention: ";
  expect_refused<ShapeError>({.k = {3, 2, 5, 8}}, {op + "k has batch 3; expected 2 as in q"});
  expect_refused<ShapeError>({.v = {1, 2, 5, 6}}, {op + "v has batch 1; expected 2 as in q"});
  expect_refused<ShapeError>({.out = {3, 4, 3, 6}}, {op + "out has batch 3; expected 2 as in q"});
  expect_refused<ShapeError>({.v = {2, 4, 5, 6}}, {op + "v has heads 4; expected 2 as in k"});
  expect_refused<ShapeError>({.out = {2, 2, 3, 6}}, {op + "out has heads 2; expected 4 as in q"});
  expect_refused<ShapeError>({.v = {2, 2, 4, 6}}, {op + "v has seqlen_kv 4; expected 5 as in k"});
  expect_refused<ShapeError>({.out = {2, 4, 5, 6}},
                             {op + "out has seqlen_q 5; expected 3 as in q"});
  expect_refused<ShapeError>({.k = {2, 2, 5, 9}}, {op + "k has head_dim 9; expected 8 as in q"});
  expect_refused<ShapeError>({.out = {2, 4, 3, 8}},
                             {op + "out has head_dim 8; expected 6 as in v"});
  expect_refused<ShapeError>(
      {.lse = {2, 4, 4}},
      {op + "lse is [2, 4, 4] float32; expected the extents of q", "q is [2, 4, 3, 8]"});
}

TEST(AttentionErrors, HeadsMustBeAMultiple) {
  expect_refused<ShapeError>(
      {.k = {2, 3, 5, 8}, .v = {2, 3, 5, 6}},
      {"attikos::attention: q has 4 heads; expected a multiple of the 3 heads of k and v"});
  expect_refused<ShapeError>(
      {.k = {2, 0, 5, 8}, .v = {2, 0, 5, 6}},
      {"attikos::attention: q has 4 heads; expected a multiple of the 0 heads"});
}

TEST(AttentionErrors, ScaleMustBeFinite) {
  for (double scale :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    expect_refused<Error>({.options = {.softmax_scale = scale}},
                          {"attikos::attention: softmax_scale is ", "expected a finite number"});
  }
}

TEST(AttentionErrors, DemandedKernel) {
  for (auto algorithm :
       {AttentionAlgorithm::flash, AttentionAlgorithm::tiled, AttentionAlgorithm::naive}) {
    expect_refused<UnsupportedError>(
        {.options = {.algorithm = algorithm, .kernel = "nonsense"}},
        {"attikos::attention: kernel \"nonsense\" was demanded", "available"});
  }
}

TEST(AttentionErrors, Lengths) {
  Floats<4> q({2, 4, 3, 8}), k({2, 2, 5, 8}), v({2, 2, 5, 6}), out({2, 4, 3, 6});
  Tensor<std::int32_t, 1, Exec> two({2}), three({3});
  expect_error<ShapeError>(
      [&] {
        attention(Exec(), q.view(), k.view(), v.view(), out.view(), {},
                  lengths(three.view(), two.view()));
      },
      {"attikos::attention: lengths of q has 3 entries; expected 2, one per sequence of the "
       "batch"});
  expect_error<ShapeError>(
      [&] {
        attention(Exec(), q.view(), k.view(), v.view(), out.view(), {},
                  lengths(two.view(), three.view()));
      },
      {"attikos::attention: lengths of kv has 3 entries; expected 2"});
  Floats<3> joined_q({4, 3, 8}), joined_k({4, 5, 8}), joined_v({4, 5, 6}), joined_out({4, 3, 6});
  expect_error<ShapeError>(
      [&] {
        attention(Exec(), joined_q.view(), joined_k.view(), joined_v.view(), joined_out.view(), {},
                  lengths(two.view(), two.view()));
      },
      {"attikos::attention: lengths of q has 2 entries; expected 4, one per entry of dimension 0"});
  out.download();
  EXPECT_TRUE(out.unchanged());
  joined_out.download();
  EXPECT_TRUE(joined_out.unchanged());
}

TEST(AttentionErrors, Workspace) {
  Floats<4> q({2, 4, 3, 8}), k({2, 2, 5, 8}), v({2, 2, 5, 6}), out({2, 4, 3, 6});
  for (auto algorithm : {AttentionAlgorithm::tiled, AttentionAlgorithm::naive}) {
    AttentionOptions const options{.algorithm = algorithm};
    std::size_t const bytes = attention_workspace_size(q.view(), k.view(), v.view(), options);
    ASSERT_GT(bytes, 1u);
    Kokkos::View<std::byte*, Exec::memory_space> const small("small", bytes - 1),
        large("large", 2 * bytes);
    auto const call = [&](auto const& memory) {
      attention(Exec(), q.view(), k.view(), v.view(), out.view(), options, workspace(memory));
    };
    expect_error<ResourceError>([&] { call(small); },
                                {"attikos::attention: workspace has " + std::to_string(bytes - 1) +
                                 " bytes; expected at least " + std::to_string(bytes)});
    Kokkos::View<std::byte*, Kokkos::LayoutStride, Exec::memory_space> const strided(
        large.data(), Kokkos::LayoutStride(bytes, 2));
    expect_error<StrideError>(
        [&] { call(strided); },
        {"attikos::attention: workspace has stride 2; expected contiguous memory"});
  }
  out.download();
  EXPECT_TRUE(out.unchanged());
}

TEST(AttentionErrors, OutputsThatOverlapThemselves) {
  Floats<4> q({2, 4, 3, 8}), k({2, 2, 5, 8}), v({2, 2, 5, 6}), out({2, 4, 3, 6});
  Floats<3> lse({2, 4, 3});
  using Out = Floats<4>::ViewOf<float, 4>;
  using Lse = Floats<3>::ViewOf<float, 3>;
  Out const overlapping(out.view().data(), Kokkos::LayoutStride(2, 72, 4, 0, 3, 6, 6, 1));
  expect_error<StrideError>(
      [&] { attention(Exec(), q.view(), k.view(), v.view(), overlapping); },
      {"attikos::attention: output out has stride 0 in dimension 1 of extent 4"});
  Lse const overlapping_lse(lse.view().data(), Kokkos::LayoutStride(2, 12, 4, 3, 3, 0));
  expect_error<StrideError>(
      [&] { attention(Exec(), q.view(), k.view(), v.view(), out.view(), overlapping_lse); },
      {"attikos::attention: output lse has stride 0 in dimension 2 of extent 3"});
  out.download();
  EXPECT_TRUE(out.unchanged());
}

TEST(AttentionErrors, NegativeExtents) {
  Floats<3> q({4, 3, 8}), k({4, 5, 8}), v({4, 5, 6}), out({4, 3, 6});
  Kokkos::mdspan<float, Kokkos::dextents<int, 3>> const negative(k.view().data(), 4, -5, 8);
  expect_error<ShapeError>(
      [&] { attention(Exec(), q.view(), negative, v.view(), out.view()); },
      {"attikos::attention: k has extent -5 in dimension 1; expected 0 or more"});
  out.download();
  EXPECT_TRUE(out.unchanged());
}

TEST(ValidateLengths, NamesEntryValueAndRange) {
  Tensor<std::int32_t, 1, Exec> lengths({4});
  lengths.fill(5);
  lengths(2) = 77;
  lengths(3) = -1;
  lengths.upload();
  expect_error<ShapeError>([&] { validate_lengths(Exec(), lengths.view(), 9); },
                           {"attikos::validate_lengths: ", "2", "77", "[0, 9]"});
}

}  // namespace
}  // namespace attikos::test
