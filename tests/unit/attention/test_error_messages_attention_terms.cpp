// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Refused terms, storage and options of attention: the message names argument, what was expected
// and what came, and outputs stay as they were.
#include <gtest/gtest.h>

#include <attikos/attikos.hpp>
#include <limits>
#include <string>

#include "support/messages.hpp"
#include "support/tensors.hpp"

namespace attikos::test {
namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using Parts = std::initializer_list<std::string>;
std::string const op = "attikos::attention: ";

template <class E, class... Extras>
void expect_refused(Parts parts, AttentionOptions const& options, Extras const&... extras) {
  Tensor<float, 4, Exec> q({2, 4, 3, 8}), k({2, 2, 5, 8}), v({2, 2, 5, 6}), out({2, 4, 3, 6});
  expect_error<E>(
      [&] { attention(Exec(), q.view(), k.view(), v.view(), out.view(), options, extras...); },
      parts);
  out.download();
  EXPECT_TRUE(out.unchanged()) << "a refused call wrote out";
}

TEST(AttentionTermErrors, Options) {
  double const nan = std::numeric_limits<double>::quiet_NaN();
  expect_refused<Error>({op + "softcap is -1; expected a finite positive number"}, {.softcap = -1});
  expect_refused<Error>({op + "softcap is nan"}, {.softcap = nan});
  expect_refused<Error>({op + "window_left is -2; expected a number of keys, -1 for all"},
                        {.window_left = -2});
  expect_refused<Error>({op + "window_right is -7"}, {.window_right = -7});
  expect_refused<Error>({op + "attention_chunk is -4; expected a number of positions, 0 for all"},
                        {.attention_chunk = -4});
  expect_refused<Error>({op + "sm_margin is -1; expected a number of multiprocessors, 0 for none"},
                        {.sm_margin = -1});
  expect_refused<UnsupportedError>({op + "dropout_p is 0.1; expected 0, dropout is not offered"},
                                   {.dropout_p = 0.1});
}

TEST(AttentionTermErrors, BiasAndMask) {
  Tensor<float, 2, Exec> bias2({3, 4});
  Tensor<float, 4, Exec> bias4({2, 2, 3, 5});
  Tensor<std::uint8_t, 3, Exec> mask3({4, 2, 5});
  expect_refused<ShapeError>({op + "bias has extents [3, 4]; expected each to be 1 or as in [2, 4, "
                                   "3, 5], aligned at the last. q is [2, 4, 3, 8] float32"},
                             {}, bias(bias2.view()));
  expect_refused<ShapeError>({op + "bias has extents [2, 2, 3, 5]"}, {}, bias(bias4.view()));
  expect_refused<ShapeError>({op + "mask has extents [4, 2, 5]"}, {}, mask(mask3.view()));
}

struct AllPairs {
  KOKKOS_INLINE_FUNCTION bool operator()(std::int64_t, std::int64_t, std::int64_t,
                                         std::int64_t) const {
    return true;
  }
};

TEST(AttentionTermErrors, BlockMasks) {
  Tensor<std::int8_t, 2, Exec> one({1, 1}), two({2, 1});
  Tensor<std::int8_t, 4, Exec> three({3, 1, 1, 1});
  auto const refused = [&](Parts parts, auto const& tiles, BlockMaskShape const& shape) {
    expect_refused<ShapeError>(parts, {}, block_mask(tiles.view(), AllPairs{}, shape));
  };
  refused({op + "block mask is [2, 1] int8; expected 1 x 1 at the last, tiles of 16 x 16 pairs of "
                "3 x 5"},
          two, {3, 5, 16, 16});
  refused({op + "block mask is made for seqlen_q 4; expected 3. q is [2, 4, 3, 8] float32"}, one,
          {4, 5, 16, 16});
  refused({op + "block mask is made for seqlen_kv 6; expected 5."}, one, {3, 6, 16, 16});
  refused({op + "block mask has extents [3, 1, 1, 1]; expected each to be 1 or as in [2, 4, 1, 1]"},
          three, {3, 5, 16, 16});
  expect_refused<Error>({op + "block_q of the block mask is 0; expected at least 1"}, {},
                        block_mask(one.view(), AllPairs{}, {3, 5, 0, 16}));
  expect_refused<Error>({op + "seqlen_kv of the block mask is -5; expected at least 0"}, {},
                        block_mask(one.view(), AllPairs{}, {3, -5, 16, 16}));
  expect_error<ShapeError>(
      [&] {
        make_block_mask(Exec(), AllPairs{}, two.view(), {3, 5, 16, 16});
      },
      {"attikos::make_block_mask: block mask is [2, 1] int8; expected 1 x 1"});
  expect_error<StrideError>(
      [&] {
        Kokkos::View<std::int8_t**, Kokkos::LayoutStride, typename Exec::memory_space,
                     Kokkos::MemoryTraits<Kokkos::Unmanaged>> const
            overlapping(two.view().data(), Kokkos::LayoutStride(2, 0, 1, 1));
        make_block_mask(Exec(), AllPairs{}, overlapping, {32, 5, 16, 16});
      },
      {"attikos::make_block_mask: "});
  two.download();
  EXPECT_TRUE(two.unchanged());
}

TEST(AttentionTermErrors, ArraysPerHead) {
  Tensor<float, 1, Exec> three({3});
  Tensor<float, 2, Exec> square({2, 2});
  expect_refused<ShapeError>({op + "alibi is [3] float32; expected [1], [4] or [2, 4]"}, {},
                             alibi(three.view()));
  expect_refused<ShapeError>({op + "alibi is [2, 2] float32; expected [2, 4]"}, {},
                             alibi(square.view()));
  expect_refused<ShapeError>({op + "sinks is [3] float32; expected one per query head, [4]"}, {},
                             sinks(three.view()));
  Tensor<float8_e4m3, 4, Exec> q({2, 4, 3, 8}), k({2, 2, 5, 8});
  Tensor<float, 4, Exec> out({2, 4, 3, 8});
  Tensor<float, 1, Exec> one({1});
  expect_error<ShapeError>(
      [&] {
        attention(Exec(), q.view(), k.view(), k.view(), out.view(), {},
                  descale(one.view(), one.view(), three.view()));
      },
      {op + "descale of v is [3] float32; expected [1], [2] or [2, 2]"});
}

TEST(AttentionTermErrors, PackedSequences) {
  Tensor<float, 3, Exec> q({4, 9, 8}), k({2, 7, 8}), out({4, 9, 8});
  Tensor<float, 4, Exec> padded({2, 2, 7, 8});
  Tensor<std::int32_t, 1, Exec> nothing({0}), three({3}), four({4});
  auto const run = [&](auto const& keys, auto const& cu, auto const&... extras) {
    attention(Exec(), q.view(), keys.view(), keys.view(), out.view(), {}, cu, extras...);
  };
  expect_error<ShapeError>([&] { run(k, cu_seqlens(nothing.view(), three.view())); },
                           {op + "cu_seqlens of q has 0 entries; expected one more than there are "
                                 "sequences"});
  expect_error<ShapeError>([&] { run(k, cu_seqlens(three.view(), four.view())); },
                           {op + "cu_seqlens of kv has 4 entries; expected 3 as for q"});
  expect_error<ShapeError>([&] { run(padded, cu_seqlens(four.view(), none)); },
                           {op + "k has batch 2; expected 3, one per sequence of cu_seqlens"});
  expect_error<ShapeError>(
      [&] { run(padded, cu_seqlens(three.view(), none), lengths(none, three.view())); },
      {op + "lengths of kv has 3 entries; expected 2, one per sequence of the batch"});
  out.download();
  EXPECT_TRUE(out.unchanged());
}

TEST(AttentionTermErrors, Pages) {
  Tensor<float, 4, Exec> q({2, 4, 3, 8}), pages({6, 2, 4, 8}), out({2, 4, 3, 8}),
      none_there({0, 2, 4, 8});
  Tensor<std::int32_t, 2, Exec> table({2, 3}), other({3, 3});
  auto const run = [&](auto const& cache, auto const& t, std::int64_t size) {
    attention(Exec(), q.view(), cache.view(), cache.view(), out.view(), {}, paged(t.view(), size));
  };
  expect_error<ShapeError>([&] { run(pages, table, 0); }, {op + "page_size is 0; expected 1"});
  expect_error<ShapeError>([&] { run(pages, table, 5); },
                           {op + "k has pages of 4 rows; expected page_size 5"});
  expect_error<ShapeError>([&] { run(pages, other, 4); },
                           {op + "page table is [3, 3] int32; expected 2 rows"});
  expect_error<ShapeError>([&] { run(none_there, table, 4); }, {op + "k has 0 pages"});
  out.download();
  EXPECT_TRUE(out.unchanged());
}

}  // namespace
}  // namespace attikos::test
