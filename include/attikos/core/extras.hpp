// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Finding named wrappers such as lengths(…) or bias(…) among the trailing arguments of a call.
#pragma once

#include <attikos/config.hpp>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Stands where an optional argument was not given.
struct Absent {};

}  // namespace detail

/// Says "not this one" where a wrapper or a call takes several tensors: `lengths(none, kv)`.
inline constexpr detail::Absent none{};

namespace detail {

template <template <class...> class Wrapper, class T>
inline constexpr bool is_wrapper = false;
template <template <class...> class Wrapper, class... Args>
inline constexpr bool is_wrapper<Wrapper, Wrapper<Args...>> = true;

template <template <class...> class Wrapper>
constexpr Absent find_extra() {
  return {};
}

/// The wrapper of the given kind among the arguments, or Absent.
template <template <class...> class Wrapper, class First, class... Rest>
constexpr auto find_extra(First const& first, Rest const&... rest) {
  if constexpr (is_wrapper<Wrapper, First>) {
    static_assert((!is_wrapper<Wrapper, Rest> && ...),
                  "attikos: the same extra argument was given twice");
    return first;
  } else {
    return find_extra<Wrapper>(rest...);
  }
}

/// Whether every trailing argument is one of the kinds an operation takes.
template <class T, template <class...> class... Wrappers>
inline constexpr bool is_any_wrapper = (is_wrapper<Wrappers, T> || ...);

template <class T>
inline constexpr bool is_present = !std::is_same_v<std::remove_cvref_t<T>, Absent>;

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
