// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Faults that a program has all at once, each behind a number, of which the environment turns on
/// one: ATTIKOS_FAULT. tests/mutate.py writes them into copies of headers.
///
/// A binary operator `x op y` becomes `x op Number() op y`: the number takes x, and what comes of
/// that takes y, with the precedence, the types and the evaluation that the operator had. Where
/// the other operator would not compile, or where the compiler evaluates, nothing changes.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <type_traits>
#include <utility>

namespace attikos_faults {

extern int const active;

/// A fault that is compiled, and whether it was come by.
struct Site {
  int number;
  bool met = false;
  Site* next;
  static inline Site* first = nullptr;
  explicit Site(int n) : number(n), next(first) { first = this; }
};
template <int N>
inline Site site{N};

template <int N>
constexpr bool on() {
  if (std::is_constant_evaluated()) return false;
  site<N>.met = true;
  return active == N;
}

/// What `x op` is.
template <class X, class Which>
struct Half {
  X&& x;
};

#define ATTIKOS_FAULT_OF(Name, op, other)                                                        \
  template <int N>                                                                               \
  struct Name {};                                                                                \
  template <class X, int N>                                                                      \
  constexpr Half<X, Name<N>> operator op(X&& x, Name<N>) {                                       \
    return {std::forward<X>(x)};                                                                 \
  }                                                                                              \
  template <class X, int N, class Y>                                                             \
  constexpr auto operator op(Half<X, Name<N>> half, Y&& y) {                                     \
    using Result = std::remove_cvref_t<decltype(std::declval<X>() op std::declval<Y>())>;        \
    if constexpr (requires { static_cast<Result>(std::declval<X>() other std::declval<Y>()); })  \
      if (on<N>()) return static_cast<Result>(std::forward<X>(half.x) other std::forward<Y>(y)); \
    return static_cast<Result>(std::forward<X>(half.x) op std::forward<Y>(y));                   \
  }
ATTIKOS_FAULT_OF(Less, <, <=)
ATTIKOS_FAULT_OF(LessEqual, <=, <)
ATTIKOS_FAULT_OF(Greater, >, >=)
ATTIKOS_FAULT_OF(GreaterEqual, >=, >)
ATTIKOS_FAULT_OF(Equal, ==, !=)
ATTIKOS_FAULT_OF(Unequal, !=, ==)
ATTIKOS_FAULT_OF(Plus, +, -)
ATTIKOS_FAULT_OF(Minus, -, +)
ATTIKOS_FAULT_OF(Times, *, /)
ATTIKOS_FAULT_OF(Over, /, *)
#undef ATTIKOS_FAULT_OF

/// `Not<N>() ->* x` for `!x`.
template <int N>
struct Not {};
template <int N, class X>
constexpr bool operator->*(Not<N>, X&& x) {
  return static_cast<bool>(x) == on<N>();
}

template <int N>
constexpr int one_for_the_other(int x) {
  return on<N>() ? 1 - x : x;
}

#define ATTIKOS_FAULT_OF(name, other)                    \
  template <int N, class T>                              \
  constexpr T name(T const& x, T const& y) {             \
    return on<N>() ? std::other(x, y) : std::name(x, y); \
  }                                                      \
  template <int N, class T>                              \
  constexpr T name(std::initializer_list<T> x) {         \
    return on<N>() ? std::other(x) : std::name(x);       \
  }
ATTIKOS_FAULT_OF(min, max)
ATTIKOS_FAULT_OF(max, min)
#undef ATTIKOS_FAULT_OF

}  // namespace attikos_faults
