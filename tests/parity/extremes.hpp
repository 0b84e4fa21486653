// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Values up to the edge of what a type holds: results are within the bounds, or the infinity that
// rounding gives, and never NaN where the formula is finite. The limit of what is promised is the
// accumulator: sums and products of the formula, as written, must fit into it. Compiled attention
// kernels promise less, see attention().
#pragma once

#include <limits>
#include <string>
#include <type_traits>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/tensors.hpp"

namespace attikos::test {

using Exec = Kokkos::DefaultExecutionSpace;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// The largest finite number.
template <class T>
constexpr double largest() {
  if constexpr (std::is_same_v<T, double>) return 0x1.fffffffffffffp1023;
  if constexpr (std::is_same_v<T, float>) return 0x1.fffffep127;
  if constexpr (std::is_same_v<T, float16>) return 65504;
  return 0x1.fep127;
}

template <class C>
class Extremes : public testing::Test {};

template <class T>
std::string name_of(char const* operation) {
  return std::string("extremes/") + operation + "/" + type_name<T>() + "/" +
         Kokkos::DefaultExecutionSpace::name();
}

/// Uniform in [-size, size], where 2 size may be infinite.
template <class TensorType>
void fill_up_to(TensorType& x, Random& random, double size) {
  x.for_each([&](auto const& i) {
    x.at(i) = from_double<typename TensorType::T>(size * random.uniform(-1, 1));
  });
  x.upload();
}

}  // namespace attikos::test
