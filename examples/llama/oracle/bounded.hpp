// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Running error analysis: numbers in float64 that carry how far off a computation in T may be.
/// The rules are those of attikos/testing/bounds.hpp, with errors of the operands carried along;
/// no second-order term is dropped. A formula written for a type Number runs with double for its
/// value alone, and with Bounded<T> for value and bound.
#pragma once

#include <algorithm>
#include <attikos/testing/bounds.hpp>
#include <cmath>
#include <limits>

namespace block_oracle {

/// A value, and a bound of |computed − value| where every operation is correct for elements of T
/// that accumulate in float.
template <class T>
struct Bounded {
  double value = 0, error = 0;

  Bounded() = default;
  Bounded(double exact) : value(exact) {}
  Bounded(double number, double bound) : value(number), error(bound) {}
};

/// Roundings of the accumulator, and of stored elements.
template <class T>
inline constexpr double unit =
    attikos::testing::precision<attikos::testing::Accumulator<T>>().roundoff;
template <class T>
inline constexpr double stored_unit = attikos::testing::precision<T>().roundoff;

/// `x` after `count` more roundings, or functions as good as that many.
template <class T>
Bounded<T> rounded(Bounded<T> const& x, double count = 1, double u = unit<T>) {
  double const smallest = attikos::testing::precision<T>().smallest_normal;
  return {x.value, x.error + count * (u * (std::abs(x.value) + x.error) + smallest)};
}

/// An element that is written to memory.
inline double stored(double x) { return x; }
template <class T>
Bounded<T> stored(Bounded<T> const& x) {
  return rounded(x, 1, stored_unit<T>);
}

inline double value_of(double x) { return x; }
template <class T>
double value_of(Bounded<T> const& x) {
  return x.value;
}

template <class T>
Bounded<T> operator+(Bounded<T> const& a, Bounded<T> const& b) {
  return rounded(Bounded<T>{a.value + b.value, a.error + b.error});
}
template <class T>
Bounded<T> operator-(Bounded<T> const& a, Bounded<T> const& b) {
  return rounded(Bounded<T>{a.value - b.value, a.error + b.error});
}
template <class T>
Bounded<T> operator*(Bounded<T> const& a, Bounded<T> const& b) {
  return rounded(Bounded<T>{a.value * b.value,
                            std::abs(a.value) * b.error + a.error * (std::abs(b.value) + b.error)});
}

/// 1/x for x > 0.
inline double reciprocal(double x) { return 1 / x; }
template <class T>
Bounded<T> reciprocal(Bounded<T> const& x) {
  if (!(x.error < x.value)) return {1 / x.value, std::numeric_limits<double>::infinity()};
  return rounded(Bounded<T>{1 / x.value, x.error / (x.value * (x.value - x.error))}, 2);
}

/// 1/√x for x > 0.
inline double reciprocal_root(double x) { return 1 / std::sqrt(x); }
template <class T>
Bounded<T> reciprocal_root(Bounded<T> const& x) {
  double const root = 1 / std::sqrt(x.value);
  if (!(x.error < x.value)) return {root, std::numeric_limits<double>::infinity()};
  return rounded(Bounded<T>{root, 1 / std::sqrt(x.value - x.error) - root}, 3);
}

/// ln x for x > 0, in which cancellation leaves an absolute error too.
inline double logarithm(double x) { return std::log(x); }
template <class T>
Bounded<T> logarithm(Bounded<T> const& x) {
  double const value = std::log(x.value), own = attikos::testing::math_ulps * unit<T>;
  if (!(x.error < x.value)) return {value, std::numeric_limits<double>::infinity()};
  return {value, -std::log1p(-x.error / x.value) + own * (std::abs(value) + 1)};
}

/// e^(x − shift), where `extent` ≥ |x| and |shift|. `steps`: how often the kernel may change its
/// own shift on the way (online softmax, the parts of a cache), each a factor that is rounded; the
/// shifts telescope. Kernels may round the weights to T before they multiply.
inline double shifted_exp(double x, double shift, double, double) { return std::exp(x - shift); }
template <class T>
Bounded<T> shifted_exp(Bounded<T> const& x, double shift, double extent, double steps) {
  double const ulps = attikos::testing::math_ulps, value = std::exp(x.value - shift);
  double const relative =
      x.error + (8 * extent + ulps + attikos::testing::growth(steps) * (ulps + 2)) * unit<T>;
  return rounded(Bounded<T>{value, value * std::expm1(relative)}, 1, stored_unit<T>);
}

/// 1/(1 + e^−x), whose slope is largest at the point of [x − error, x + error] that is nearest 0.
inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
template <class T>
Bounded<T> sigmoid(Bounded<T> const& x) {
  double const nearest = sigmoid(std::max(std::abs(x.value) - x.error, 0.0));
  double const error = nearest * (1 - nearest) * x.error;
  return rounded(Bounded<T>{sigmoid(x.value), error}, 2 * attikos::testing::math_ulps + 8);
}

/// A sum of products, in whatever order the kernel adds them.
template <class Number>
class Sum;
template <>
class Sum<double> {
 public:
  void add(double a, double b = 1) { sum_ += a * b; }
  double result() const { return sum_; }

 private:
  double sum_ = 0;
};
template <class T>
class Sum<Bounded<T>> {
 public:
  void add(Bounded<T> const& a, Bounded<T> const& b = 1.0) {
    value_ += a.value * b.value;
    inherited_ += std::abs(a.value) * b.error + a.error * (std::abs(b.value) + b.error);
    magnitude_ += (std::abs(a.value) + a.error) * (std::abs(b.value) + b.error);
    terms_ += 1;
  }
  Bounded<T> result() const {
    // Six roundings for scale factors and for the parts that a sum may be made in.
    double const relative = (attikos::testing::growth(terms_) + 6) * unit<T>;
    double const lost = terms_ * attikos::testing::precision<T>().smallest_normal;
    return {value_, inherited_ + relative * magnitude_ + lost};
  }

 private:
  double value_ = 0, inherited_ = 0, magnitude_ = 0, terms_ = 0;
};

}  // namespace block_oracle
