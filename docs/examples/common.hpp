// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the examples share and no page shows: tensors to
// compute with, and checks that end the program.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

using Space = Kokkos::DefaultExecutionSpace;

inline void expect(bool truth, char const* what) {
  if (truth) return;
  std::printf("wrong: %s\n", what);
  std::exit(1);
}

/// `error` is relative to numbers above 1.
inline void expect_near(double found, double wanted,
                        double error, char const* what) {
  double const size = std::max(1.0, std::abs(wanted));
  if (std::abs(found - wanted) <= error * size) return;
  std::printf("wrong: %s is %.9g, expected %.9g\n", what,
              found, wanted);
  std::exit(1);
}

/// A View's elements where the host reads them.
template <class View>
auto on_host(View const& x) {
  return Kokkos::create_mirror_view_and_copy(
      Kokkos::HostSpace(), x);
}

/// Row i of a matrix, in float64.
using Row = std::vector<double>;
template <class View>
Row row(View const& x, int i) {
  auto const host = on_host(x);
  Row result;
  for (std::size_t j = 0; j < host.extent(1); ++j)
    result.push_back(host(i, j));
  return result;
}

/// Two dense Views of as many numbers.
template <class X, class Y>
void expect_same(X const& x, Y const& y, double error,
                 char const* what) {
  auto const a = on_host(x);
  auto const b = on_host(y);
  for (std::size_t i = 0; i < a.span(); ++i)
    expect_near(a.data()[i], b.data()[i], error, what);
}

/// A View with numbers between −1 and 1, others each
/// time.
template <class View, class... Extents>
View random(Extents... extents) {
  using Element = typename View::non_const_value_type;
  static std::minstd_rand numbers(1);
  View const x("random", extents...);
  auto const host = Kokkos::create_mirror_view(x);
  std::uniform_real_distribution<float> next(-1, 1);
  for (std::size_t i = 0; i < host.span(); ++i)
    host.data()[i] = static_cast<Element>(next(numbers));
  Kokkos::deep_copy(x, host);
  return x;
}

/// A View of rank 1 with these numbers.
template <class View>
View list(
    std::initializer_list<typename View::value_type> x) {
  View const view("list", x.size());
  auto const host = Kokkos::create_mirror_view(view);
  std::copy(x.begin(), x.end(), host.data());
  Kokkos::deep_copy(view, host);
  return view;
}

/// Σ x·y of two dense Views: the loss of which y is the
/// gradient.
template <class X, class Y>
double dot(X const& x, Y const& y) {
  auto const a = on_host(x);
  auto const b = on_host(y);
  double sum = 0;
  for (std::size_t i = 0; i < a.span(); ++i)
    sum += static_cast<double>(a.data()[i]) *
           static_cast<double>(b.data()[i]);
  return sum;
}

/// Compares a gradient with differences of the loss at
/// some elements of x.
template <class View, class Loss>
void expect_gradient(View const& x, View const& dx,
                     Loss const& loss, char const* what) {
  auto const slopes = on_host(dx);
  std::size_t const stride = x.span() / 7 + 1;
  for (std::size_t i = 0; i < x.span(); i += stride) {
    Kokkos::View<double, typename View::memory_space,
                 Kokkos::MemoryUnmanaged> const
        one(x.data() + i);
    double at = 0;
    double const step = 1e-5;
    Kokkos::deep_copy(at, one);
    Kokkos::deep_copy(one, at + step);
    double const above = loss();
    Kokkos::deep_copy(one, at - step);
    double const below = loss();
    Kokkos::deep_copy(one, at);
    expect_near(slopes.data()[i],
                (above - below) / (2 * step), 1e-7, what);
  }
}
