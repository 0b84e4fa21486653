// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// A fused operation beside the same work by separate calls of this library. What no call offers
/// (an elementwise product, an activation) is one Kokkos kernel. Where an operation cannot be taken
/// apart, the peer is a copy of the bytes that it has to move.
///
/// Case names: <operation>/<execution space>/<type>/<sizes>; the peer is "separate" or "copy".
#pragma once

#include <functional>
#include <support/alternate.hpp>
#include <support/check.hpp>
#include <support/data.hpp>

namespace attikos::measure {

template <class T, int Rank>
struct Pointers {
  using type = typename Pointers<T, Rank - 1>::type*;
};
template <class T>
struct Pointers<T, 0> {
  using type = T;
};
template <class T, int Rank>
using Tensor = Kokkos::View<typename Pointers<T, Rank>::type, Kokkos::LayoutRight, Memory>;

/// Normally distributed, times `size`.
template <class T, class... Extents>
auto tensor(double size, Extents... extents) {
  Tensor<T, static_cast<int>(sizeof...(extents))> x(
      Kokkos::view_alloc("x", Kokkos::WithoutInitializing), static_cast<std::size_t>(extents)...);
  auto const host = Kokkos::create_mirror_view(x);
  for (std::size_t i = 0; i < host.span(); ++i)
    host.data()[i] = from_float<T>(static_cast<float>(size) * normal().next());
  Kokkos::deep_copy(x, host);
  return x;
}

/// What is compared before anything is timed: the largest difference must be small beside the
/// largest number. That sides do the same work is all that it shows; the parity suite has bounds.
template <class Ours, class Theirs>
void require_agreement(std::string const& name, Ours const& ours, Theirs const& theirs,
                       double tolerance) {
  auto const a = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, ours);
  auto const b = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, theirs);
  require_written(name, a);
  require_written(name, b);
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < a.span(); ++i) {
    largest = std::max(largest, std::abs(to_double(b.data()[i])));
    difference = std::max(difference, std::abs(to_double(a.data()[i]) - to_double(b.data()[i])));
  }
  require_close(name, "the largest difference", difference, 0, tolerance * largest);
}

/// Roundings of intermediate results to T may add up to some units.
template <class T>
constexpr double agreement() {
  return std::is_same_v<T, bfloat16> ? 0.05 : 1e-4;
}

/// Both sides, what compares their results, and how much one call does.
struct FusedCase {
  std::function<void()> ours, theirs;
  std::function<void()> check = [] {};
  Work work;
  char const* peer = "separate";
};

/// `build(exec)` makes the operands when the case runs, so that only one case holds memory.
template <class Build>
void add_fused(Settings const& settings, std::string const& name, Build build) {
  add_case(settings, name, [&settings, build](benchmark::State& state) {
    Exec const exec;
    FusedCase const c = build(exec);
    std::vector<Side> sides = {{"attikos", [&](std::size_t) { c.ours(); }}};
    if (settings.wants(c.peer)) sides.push_back({c.peer, [&](std::size_t) { c.theirs(); }});
    c.ours();
    c.theirs();
    exec.fence();
    c.check();
    alternate(state, exec, sides, 1, c.work);
  });
}

template <class T>
std::string case_name_of(char const* operation, std::string const& sizes) {
  return text(operation, "/", Exec::name(), "/", dtype_name(dtype_of<T>), "/", sizes);
}

template <class F>
void each_element(Exec const& exec, std::size_t count, F const& f) {
  Kokkos::parallel_for("pointwise", Kokkos::RangePolicy<Exec>(exec, 0, count), f);
}

}  // namespace attikos::measure
