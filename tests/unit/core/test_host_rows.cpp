// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Vectors of hosts in memory: conversions have the bits of the scalar ones, partial accesses touch
// what they name alone, and rows come out the same whether they are stored past the caches or not.
#include <gtest/gtest.h>

#include <attikos/norm/layer_norm_backward.hpp>
#include <attikos/norm/rms_norm_backward.hpp>
#include <attikos/norm/rms_norm_rope.hpp>
#include <attikos/quantize/quantize_portable.hpp>
#include <attikos/reduce/log_softmax.hpp>
#include <attikos/reduce/softmax_backward.hpp>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace attikos::test {
namespace {

namespace host = detail::host;
constexpr int W = host::lanes<float>;
constexpr float infinite = std::numeric_limits<float>::infinity();

/// Every float next to `x`, with both signs.
void add_around(std::vector<float>& all, float x) {
  for (float y : {std::nextafter(x, -infinite), x, std::nextafter(x, infinite)}) {
    all.push_back(y);
    all.push_back(-y);
  }
}

/// All values of a type, all that lie halfway between two of them, their neighbors, and what is no
/// number or too large.
template <class Element, class Code>
std::vector<float> edges() {
  std::vector<float> all;
  Code const count = static_cast<Code>(Code{1} << (8 * sizeof(Code) - 1));
  for (unsigned code = 0; code + 1 < count; ++code) {
    float const a = Element::from_bits(static_cast<Code>(code));
    float const b = Element::from_bits(static_cast<Code>(code + 1));
    add_around(all, a);
    if (std::isfinite(a) && std::isfinite(b))
      add_around(all, static_cast<float>((double{a} + b) / 2));
  }
  for (float x : {0.0f, infinite, std::numeric_limits<float>::max(), std::nanf(""), 1e-45f, 3e-39f,
                  0x1p-126f, 448.0f, 464.0f, 480.0f, 57344.0f, 61440.0f, 65504.0f, 65520.0f})
    add_around(all, x);
  while (all.size() % W != 0) all.push_back(0);
  return all;
}

template <class Element, class Code>
void compare_stores() {
  std::vector<float> const all = edges<Element, Code>();
  for (std::size_t first = 0; first < all.size(); first += W) {
    Element found[W], want[W];
    host::store<float, W>(found, host::load<float, W>(all.data() + first));
    for (int l = 0; l < W; ++l) {
      float const x = all[first + static_cast<std::size_t>(l)];
      want[l] = Element(x);
      if (std::isnan(x)) {
        EXPECT_TRUE(std::isnan(static_cast<float>(found[l])));
        continue;
      }
      ASSERT_EQ(std::memcmp(&found[l], &want[l], sizeof found[l]), 0)
          << std::hexfloat << x << " became " << static_cast<float>(found[l]);
    }
  }
}

TEST(HostRows, StoresRoundAsScalarsDo) {
  compare_stores<float16, std::uint16_t>();
  compare_stores<bfloat16, std::uint16_t>();
  compare_stores<float8_e4m3, std::uint8_t>();
  compare_stores<float8_e5m2, std::uint8_t>();
}

TEST(HostRows, LoadsWidenAsScalarsDo) {
  for (unsigned first = 0; first < 0x10000; first += W) {
    float16 half[W];
    bfloat16 brain[W];
    std::int8_t integer[W];
    for (unsigned l = 0; l < W; ++l) {
      half[l] = float16::from_bits(static_cast<std::uint16_t>(first + l));
      brain[l] = bfloat16::from_bits(static_cast<std::uint16_t>(first + l));
      integer[l] = static_cast<std::int8_t>(first + l);
    }
    auto const h = host::load<float, W>(half), b = host::load<float, W>(brain),
               i = host::load<float, W>(integer);
    for (int l = 0; l < W; ++l) {
      float const x = half[l], y = brain[l];
      ASSERT_TRUE(h[l] == x || (std::isnan(h[l]) && std::isnan(x))) << first + unsigned(l);
      ASSERT_TRUE(b[l] == y || (std::isnan(b[l]) && std::isnan(y))) << first + unsigned(l);
      ASSERT_EQ(i[l], static_cast<float>(integer[l]));
    }
  }
}

TEST(HostRows, QuantizedValuesAreThoseOfScalars) {
  auto const compare = [](auto kind, std::vector<float> const& all) {
    using Out = decltype(kind);
    for (float scale : {1.0f, 0.37f, 3e-5f})
      for (std::size_t first = 0; first < all.size(); first += W) {
        Out found[W];
        host::store<float, W>(
            found, host::quantize_vector<Out>(host::load<float, W>(all.data() + first), scale));
        for (int l = 0; l < W; ++l) {
          float const x = all[first + static_cast<std::size_t>(l)];
          Out const want = detail::quantize_value<Out>(double{x / scale}, detail::is_finite(x));
          if (static_cast<float>(want) != static_cast<float>(want)) {
            ASSERT_NE(static_cast<float>(found[l]), static_cast<float>(found[l])) << x;
            continue;
          }
          ASSERT_EQ(std::memcmp(&found[l], &want, sizeof want), 0)
              << std::hexfloat << x << " over " << scale;
        }
      }
  };
  auto all = edges<float8_e5m2, std::uint8_t>();
  for (int i = -300; i < 300; ++i) add_around(all, static_cast<float>(i) / 2);
  while (all.size() % W != 0) all.push_back(0);
  compare(std::int8_t{}, all);
  compare(float8_e4m3{}, all);
  compare(float8_e5m2{}, all);
}

template <class Acc, class Element>
void check_partial() {
  constexpr int V = host::lanes<Acc>;
  for (int count = 0; count <= V; ++count) {
    std::vector<Element> memory(3 * V, static_cast<Element>(7.0f)), source(V);
    for (int l = 0; l < V; ++l)
      source[static_cast<std::size_t>(l)] = static_cast<Element>(float(l + 1));
    // Read from memory that ends with the last element: whoever reads on is found by sanitizers.
    std::vector<Element> const exact(source.begin(), source.begin() + count);
    auto const v = host::load_partial<Acc, V>(exact.data(), 1, count, Acc(-3));
    for (int l = 0; l < V; ++l) EXPECT_EQ(v[l], l < count ? Acc(l + 1) : Acc(-3));
    host::store_partial<Acc, V>(memory.data() + V, 1, count, v);
    for (int l = 0; l < 3 * V; ++l) {
      bool const inside = l >= V && l < V + count;
      EXPECT_EQ(static_cast<Acc>(memory[static_cast<std::size_t>(l)]),
                inside ? Acc(l - V + 1) : Acc(7));
    }
  }
}

TEST(HostRows, PartialVectors) {
  check_partial<float, float>();
  check_partial<float, float16>();
  check_partial<float, bfloat16>();
  check_partial<float, float8_e4m3>();
  check_partial<float, std::int8_t>();
  check_partial<double, double>();
  check_partial<double, float>();
}

template <class Element>
void check_past() {
  for (int offset = 0; offset <= W; ++offset)
    for (int n : {0, 1, W - 1, 2 * W, 5 * W + 3}) {
      std::vector<Element> found(static_cast<std::size_t>(9 * W), static_cast<Element>(7.0f));
      std::vector<Element> want = found;
      auto const f = [](std::int64_t j, int) {
        host::Vec<float> v{};
        for (int l = 0; l < W; ++l) v[l] = static_cast<float>((j + l) % 50);
        return v;
      };
      host::write_row<float, true>(found.data() + offset, 1, n, true, host::Ahead<>{}, f);
      host::finish_stores_past_caches();
      for (int j = 0; j < n; ++j)
        want[static_cast<std::size_t>(offset + j)] =
            static_cast<Element>(static_cast<float>(j % 50));
      EXPECT_EQ(std::memcmp(found.data(), want.data(), found.size() * sizeof(Element)), 0)
          << "offset " << offset << ", " << n << " elements of " << sizeof(Element) << " bytes";
    }
}

TEST(HostRows, StoresPastCaches) {
  check_past<float>();
  check_past<float16>();
  check_past<std::int8_t>();
}

using Exec = Kokkos::DefaultHostExecutionSpace;
template <class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, Kokkos::HostSpace>;
template <class T>
using Vector = Kokkos::View<T*, Kokkos::HostSpace>;

template <class T>
Matrix<T> numbers(std::int64_t rows, std::int64_t cols, std::uint32_t seed) {
  Matrix<T> x("x", static_cast<std::size_t>(rows), static_cast<std::size_t>(cols));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) {
      seed = seed * 1664525u + 1013904223u;
      x(i, j) = static_cast<T>(static_cast<float>(seed >> 8) * 0x1p-23f - 1.0f);
    }
  return x;
}

/// So many rows that an output of them goes past the caches.
template <class T>
struct ManyRows {
  std::int64_t cols, bytes = cols * static_cast<std::int64_t>(sizeof(T));
  std::int64_t rows = static_cast<std::int64_t>(host::last_level_cache_bytes()) / 2 / bytes + 1;
  Matrix<T> x = numbers<T>(rows, cols, 1), dout = numbers<T>(rows, cols, 2);
  Matrix<T> out = Matrix<T>("out", x.extent(0), x.extent(1));

  /// call(x, dout, out) gives the bits that it gives on a few of them.
  template <class Call>
  void check(char const* name, Call const& call) const {
    ASSERT_TRUE(host::goes_past_caches(rows * bytes));
    call(x, dout, out);
    for (std::int64_t first : {std::int64_t{0}, rows - 5}) {
      auto const some = std::pair(first, first + 5);
      Matrix<T> const few("few", 5, x.extent(1));
      call(Kokkos::subview(x, some, Kokkos::ALL), Kokkos::subview(dout, some, Kokkos::ALL), few);
      for (std::int64_t i = 0; i < 5; ++i)
        EXPECT_EQ(std::memcmp(&few(i, 0), &out(first + i, 0), static_cast<std::size_t>(bytes)), 0)
            << name << ", row " << first + i << " of " << rows;
    }
  }
};

template <class T>
void check_operations(std::int64_t cols) {
  auto const w = Kokkos::subview(numbers<T>(1, cols, 3), 0, Kokkos::ALL);
  auto const b = Kokkos::subview(numbers<T>(1, cols, 4), 0, Kokkos::ALL);
  Vector<T> const dw("dw", static_cast<std::size_t>(cols)),
      db("db", static_cast<std::size_t>(cols));
  Exec const e;
  ManyRows<T> const rows{cols};
  rows.check("rms_norm", [&](auto x, auto, auto out) { rms_norm(e, x, w, out); });
  rows.check("layer_norm", [&](auto x, auto, auto out) { layer_norm(e, x, w, b, out); });
  rows.check("softmax", [&](auto x, auto, auto out) { softmax(e, x, out); });
  rows.check("log_softmax", [&](auto x, auto, auto out) { log_softmax(e, x, out); });
  rows.check("softmax_backward", [&](auto x, auto g, auto out) { softmax_backward(e, x, g, out); });
  rows.check("log_softmax_backward",
             [&](auto x, auto g, auto out) { log_softmax_backward(e, x, g, out); });
  rows.check("l2_normalize_backward",
             [&](auto x, auto g, auto out) { l2_normalize_backward(e, x, g, out); });
  rows.check("rms_norm_backward",
             [&](auto x, auto g, auto out) { rms_norm_backward(e, x, w, g, out, dw); });
  rows.check("layer_norm_backward",
             [&](auto x, auto g, auto out) { layer_norm_backward(e, x, w, g, out, dw, db); });
}

TEST(HostRows, ManyRowsAreFewRows) {
  check_operations<float>(4099);
  check_operations<bfloat16>(1024);
}

}  // namespace
}  // namespace attikos::test
