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
// would double.
#if defined(KOKKOS_ENABLE_CUDA)
using ExecutionSpaces = List<Kokkos::Cuda>;
#elif defined(KOKKOS_ENABLE_SERIAL) && defined(KOKKOS_ENABLE_OPENMP) && \
    !defined(ATTIKOS_TEST_FEW_CASES) && !defined(ATTIKOS_TEST_DEVICE_ON_HOST)
using ExecutionSpaces = List<Kokkos::OpenMP, Kokkos::Serial>;
#else
using ExecutionSpaces = List<Kokkos::DefaultExecutionSpace>;
#endif

using FloatingTypes = List<double, float, float16, bfloat16>;

/// `HostTypes` where all types go one way; every floating-point type where a device's kernels run,
/// which have ways of their own for some. Where a host runs them, `usual` cases have those of
/// arithmetic and of matrix instructions.
#if defined(ATTIKOS_TEST_DEVICE_ON_HOST) && !defined(ATTIKOS_TEST_ALL_CASES)
template <class HostTypes>
using TypesOfWays = List<float, bfloat16>;
#elif defined(KOKKOS_ENABLE_CUDA) || defined(ATTIKOS_TEST_DEVICE_ON_HOST)
template <class HostTypes>
using TypesOfWays = FloatingTypes;
#else
template <class HostTypes>
using TypesOfWays = HostTypes;
#endif

/// The type parameter of a typed suite.
template <class ExecutionSpace, class Element>
struct Case {
  using Exec = ExecutionSpace;
  using T = Element;
};

namespace impl {

template <class... As>
testing::Types<As...> test_types(List<As...>);
template <class... As, class... Bs>
List<As..., Bs...> join(List<As...>, List<Bs...>);
template <class Exec, class... Ts>
List<Case<Exec, Ts>...> with(List<Ts...>);
template <class... Ts>
auto last(List<Ts...>) {
  return List<typename decltype((std::type_identity<Ts>{}, ...))::type>{};
}

// ATTIKOS_TEST_CASES says which spaces meet which types. Kernels have one body for all of them, so
// that the first space, the default one, stands for the others in most respects.
#if defined(ATTIKOS_TEST_ALL_CASES)
template <class First, class... Others, class Types>
auto cross(List<First, Others...>, Types types) {
  if constexpr (sizeof...(Others) == 0) {
    return with<First>(types);
  } else {
    return join(with<First>(types), cross(List<Others...>{}, types));
  }
}
template <class... Spaces>
testing::Types<Spaces...> spaces(List<Spaces...>);
#elif defined(ATTIKOS_TEST_FEW_CASES)
template <class First, class Types>
auto cross(List<First>, Types types) {
  return with<First>(last(types));
}
template <class First>
testing::Types<First> spaces(List<First>);
#else
template <class First, class... Others, class Types>
auto cross(List<First, Others...>, Types types) {
  return join(with<First>(types), List<Case<Others, float>...>{});
}
template <class First, class... Others>
testing::Types<First> spaces(List<First, Others...>);
#endif

}  // namespace impl

/// testing::Types of execution spaces with element types: all of them, or (`usual`) the default
/// space with every type and the others with float, or (`few`) the default space with the last
/// type.
template <class Types>
using Cases = decltype(impl::test_types(impl::cross(ExecutionSpaces{}, Types{})));
using FloatingCases = Cases<FloatingTypes>;
/// Execution spaces alone, for suites that name their types themselves: all, or the default one.
using SpaceCases = decltype(impl::spaces(ExecutionSpaces{}));
/// The default execution space alone with every floating-point type.
using OneSpaceCases =
    decltype(impl::test_types(impl::with<Kokkos::DefaultExecutionSpace>(FloatingTypes{})));

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
