// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which strided tensors share memory: against a list of all their bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <attikos/core/overlap.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "support/random.hpp"

namespace attikos::test {
namespace {

using detail::AnyTensor;
using detail::overlaps;
using detail::overlaps_itself;

/// An element type of `size` bytes.
DType type_of(std::int64_t size) {
  return size == 1   ? DType::int8
         : size == 2 ? DType::float16
         : size == 4 ? DType::float32
                     : DType::float64;
}

/// A tensor at an address that is never read.
AnyTensor box(std::uintptr_t data, std::int64_t size, std::vector<std::int64_t> const& extents,
              std::vector<std::int64_t> const& strides) {
  AnyTensor result;
  result.data = reinterpret_cast<void const*>(data);
  result.type = type_of(size);
  result.rank = static_cast<int>(extents.size());
  std::copy(extents.begin(), extents.end(), result.extent);
  std::copy(strides.begin(), strides.end(), result.stride);
  return result;
}

AnyTensor moved(AnyTensor x, std::int64_t bytes) {
  x.data = x.as<std::byte>() + bytes;
  return x;
}

/// The first byte of every element.
std::vector<std::int64_t> addresses(AnyTensor const& x) {
  std::vector<std::int64_t> result;
  std::int64_t index[AnyTensor::max_rank] = {};
  for (int r = 0; r < x.rank; ++r)
    if (x.extent[r] == 0) return result;
  for (int r = x.rank - 1;; r = x.rank - 1) {
    auto at = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(x.data));
    for (int i = 0; i < x.rank; ++i) at += index[i] * x.stride[i] * dtype_size(x.type);
    result.push_back(at);
    for (; r >= 0 && ++index[r] == x.extent[r]; --r) index[r] = 0;
    if (r < 0) return result;
  }
}

std::set<std::int64_t> bytes(AnyTensor const& x) {
  std::set<std::int64_t> result;
  for (auto const at : addresses(x))
    for (std::int64_t i = 0; i < dtype_size(x.type); ++i) result.insert(at + i);
  return result;
}

AnyTensor random_box(Random& random) {
  std::int64_t const size = std::int64_t{1} << random.integer(0, 3);
  // As a rule on the grid of its elements.
  std::int64_t const step = random.integer(0, 3) == 0 ? 1 : size;
  AnyTensor x = box(static_cast<std::uintptr_t>(4000 + step * random.integer(0, 80)), size, {}, {});
  x.rank = static_cast<int>(random.integer(0, 4));
  for (int r = 0; r < x.rank; ++r) {
    x.extent[r] = random.integer(0, 30) == 0 ? 0 : random.integer(1, 5);
    x.stride[r] = random.integer(0, 3) == 0 ? random.integer(-3, 60) : random.integer(-20, 20);
  }
  return x;
}

std::string text(AnyTensor const& x) {
  std::string result = std::to_string(reinterpret_cast<std::uintptr_t>(x.data)) + " + " +
                       std::to_string(dtype_size(x.type)) + " x";
  for (int r = 0; r < x.rank; ++r)
    result += " " + std::to_string(x.extent[r]) + "@" + std::to_string(x.stride[r]);
  return result;
}

TEST(Overlap, IsDecidedExactly) {
  constexpr std::uint64_t seed = 7;
  std::cout << "seed " << seed << "\n";
  Random random(seed);
  int shared = 0, apart = 0, folded = 0, plain = 0;
  for (int round = 0; round < 40000; ++round) {
    AnyTensor const x = random_box(random), y = random_box(random);
    auto const elements = addresses(x);
    bool const itself =
        std::set<std::int64_t>(elements.begin(), elements.end()).size() != elements.size();
    ASSERT_EQ(overlaps_itself(x), itself) << text(x);
    ++(itself ? folded : plain);
    auto const taken = bytes(x);
    bool both = false;
    for (auto const at : bytes(y)) both = both || taken.contains(at);
    ASSERT_EQ(overlaps(x, y), both) << text(x) << " and " << text(y);
    ASSERT_EQ(overlaps(y, x), both) << text(y) << " and " << text(x);
    ++(both ? shared : apart);
  }
  for (int const cases : {shared, apart, folded, plain}) EXPECT_GT(cases, 4000);
}

// Sums that 64 bits might not hold are taken to have no solution, however near it is.
TEST(Overlap, OfNumbersPastWhatIsSummed) {
  constexpr std::int64_t step = std::int64_t{1} << 60;
  detail::StrideSum within, past, together;
  within.add(step, -2, 2);
  EXPECT_TRUE(within.reaches(step));
  past.add(step, -3, 3);
  EXPECT_FALSE(past.reaches(step));
  together.add(step, -1, 1);
  together.add(step - 1, -2, 2);
  EXPECT_FALSE(together.reaches(step));
}

TEST(Overlap, OfTheViewsThatCallsAreMadeOf) {
  // Queries, keys and values in one buffer, [batch, heads, seqlen, head_dim] of 2 bytes.
  std::int64_t const b = 8, h = 16, s = 1024, d = 64, width = 3 * h * d;
  std::vector<std::int64_t> const extents{b, h, s, d}, strides{s * width, d, width, 1};
  auto const part = [&](std::int64_t n) {
    return box(static_cast<std::uintptr_t>(4096 + 2 * n * h * d), 2, extents, strides);
  };
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) EXPECT_EQ(overlaps(part(i), part(j)), i == j);
  EXPECT_FALSE(overlaps_itself(part(0)));
  // One element further two heads meet.
  EXPECT_TRUE(overlaps(part(0), moved(part(1), -2)));
  // Even and odd columns; a matrix and its transposed self; halves.
  EXPECT_FALSE(overlaps(box(1000, 4, {50, 8}, {16, 2}), box(1004, 4, {50, 8}, {16, 2})));
  EXPECT_TRUE(overlaps(box(1000, 4, {9, 8}, {8, 1}), box(1000, 4, {8, 9}, {1, 8})));
  EXPECT_FALSE(overlaps(box(1000, 4, {4, 8}, {8, 1}), box(1128, 4, {4, 8}, {8, 1})));
  // Reversed rows end where they begin.
  EXPECT_FALSE(overlaps(box(1028, 4, {8}, {-1}), box(1032, 4, {8}, {1})));
  EXPECT_TRUE(overlaps(box(1032, 4, {8}, {-1}), box(1032, 4, {8}, {1})));
  using detail::is_same_memory;
  EXPECT_TRUE(
      is_same_memory(box(1000, 4, {4, 8}, {8, 1}), box(1000, 4, {1, 4, 1, 8}, {5, 8, 0, 1})));
  EXPECT_FALSE(is_same_memory(box(1000, 4, {4, 8}, {8, 1}), box(1000, 4, {8, 4}, {1, 8})));
  EXPECT_FALSE(is_same_memory(box(1000, 4, {4, 8}, {8, 1}), box(1000, 4, {32}, {1})));
  EXPECT_FALSE(is_same_memory(box(1000, 4, {4}, {1}), box(1000, 2, {4}, {1})));
  // A broadcast input, nothing, and no memory.
  EXPECT_TRUE(overlaps(box(1000, 4, {4}, {1}), box(1012, 4, {100}, {0})));
  EXPECT_FALSE(overlaps(box(1000, 4, {4, 0}, {1, 1}), box(1000, 4, {4}, {1})));
  EXPECT_FALSE(overlaps(box(0, 4, {4}, {1}), box(0, 4, {4}, {1})));
  // A window that slides by less than it is wide, and by as much.
  EXPECT_TRUE(overlaps_itself(box(1000, 4, {4, 8}, {1, 1})));
  EXPECT_TRUE(overlaps_itself(box(1000, 4, {10, 8}, {7, 1})));
  EXPECT_FALSE(overlaps_itself(box(1000, 4, {10, 8}, {8, 1})));
  EXPECT_FALSE(overlaps_itself(box(1000, 4, {3, 2}, {2, 3})));  // interleaved, but distinct
  EXPECT_TRUE(overlaps_itself(box(1000, 4, {4, 2}, {2, 6})));
}

TEST(Overlap, FarAndHardStrides) {
  std::int64_t const far = std::int64_t{1} << 40;
  EXPECT_FALSE(overlaps(box(1000, 1, {4, 7}, {far, 1}), box(1007, 1, {4, 7}, {far, 1})));
  EXPECT_TRUE(overlaps(box(1000, 1, {4, 7}, {far, 1}), box(1006, 1, {4, 7}, {far, 1})));
  auto const start = std::chrono::steady_clock::now();
  // Four unknowns of like weight each way, without a solution that is easy to see.
  overlaps_itself(
      box(64, 4, {4096, 4096, 4096, 4096}, {100000007, 100000037, 100000039, 100000049}));
  overlaps(box(64, 4, {999, 998, 997, 996}, {100000007, 100000037, 100000039, 100000049}),
           box(68, 4, {999, 998, 997, 996}, {100000081, 100000123, 100000127, 100000193}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

}  // namespace
}  // namespace attikos::test
