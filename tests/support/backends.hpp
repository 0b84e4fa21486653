// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The execution spaces and element types over which a typed suite is instantiated.
#pragma once

#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <attikos/attikos.hpp>
#include <cstdint>
#include <string>
#include <type_traits>

namespace attikos::test {

template <class... Ts>
struct List {};

// A CUDA build tests Cuda alone: its host spaces are what the host build tests, and the binary
// would double. ATTIKOS_TEST_FEW_CASES is for builds that look for something other than wrong
// numbers (sanitizers, another thread back end): the space they are about, and one type for each
// accumulator.
#if defined(KOKKOS_ENABLE_CUDA)
using ExecutionSpaces = List<Kokkos::Cuda>;
#elif defined(ATTIKOS_TEST_FEW_CASES)
using ExecutionSpaces = List<Kokkos::DefaultExecutionSpace>;
#elif defined(KOKKOS_ENABLE_SERIAL) && defined(KOKKOS_ENABLE_OPENMP)
using ExecutionSpaces = List<Kokkos::Serial, Kokkos::OpenMP>;
#else
using ExecutionSpaces = List<Kokkos::DefaultExecutionSpace>;
#endif

#if defined(ATTIKOS_TEST_FEW_CASES)
using FloatingTypes = List<double, bfloat16>;
#else
using FloatingTypes = List<double, float, float16, bfloat16>;
#endif

/// The type parameter of a typed suite.
template <class ExecutionSpace, class Element>
struct Case {
  using Exec = ExecutionSpace;
  using T = Element;
};

namespace impl {
template <class Exec, class... Ts>
List<Case<Exec, Ts>...> with_types(List<Ts...>);
template <class... As>
testing::Types<As...> concatenate(List<As...>);
template <class... As, class... Bs, class... Rest>
auto concatenate(List<As...>, List<Bs...>, Rest... rest) {
  return concatenate(List<As..., Bs...>{}, rest...);
}
template <class... Execs, class Types>
auto cross(List<Execs...>, Types types) {
  return concatenate(decltype(with_types<Execs>(types)){}...);
}
template <class... Execs>
testing::Types<Execs...> spaces(List<Execs...>);
}  // namespace impl

/// testing::Types of every execution space with every element type.
template <class Types>
using Cases = decltype(impl::cross(ExecutionSpaces{}, Types{}));
using FloatingCases = Cases<FloatingTypes>;
using SpaceCases = decltype(impl::spaces(ExecutionSpaces{}));
/// The default execution space alone with every floating-point type.
using OneSpaceCases = decltype(impl::cross(List<Kokkos::DefaultExecutionSpace>{}, FloatingTypes{}));

template <class T>
constexpr char const* type_name() {
  if constexpr (std::is_same_v<T, double>) return "float64";
  if constexpr (std::is_same_v<T, float>) return "float32";
  if constexpr (std::is_same_v<T, float16>) return "float16";
  if constexpr (std::is_same_v<T, bfloat16>) return "bfloat16";
  if constexpr (std::is_same_v<T, std::int8_t>) return "int8";
  if constexpr (std::is_same_v<T, std::int32_t>) return "int32";
  return "other";
}

/// "Serial_float16" for Case<Serial, float16>, "Serial" for Serial.
struct CaseName {
  template <class C>
  static std::string GetName(int) {
    if constexpr (requires { typename C::T; }) {
      return std::string(C::Exec::name()) + "_" + type_name<typename C::T>();
    } else {
      return C::name();
    }
  }
};

}  // namespace attikos::test
