// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the validate functions share: their answer, and data that are the same on every run.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/core/concepts.hpp>
#include <attikos/core/error.hpp>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace testing {

/// What a validation found.
struct ValidationResult {
  bool ok = true;             ///< every element is within its bound
  double max_difference = 0;  ///< largest |computed − exact|; infinite where a result is NaN
  double worst_ratio = 0;     ///< largest difference over its bound
  std::string message;        ///< one line: the problem, and the worst element with its index

  explicit operator bool() const { return ok; }
};

namespace detail {

/// splitmix64 and the Box-Muller transform: std's distributions differ between libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  /// In (0, 1].
  double uniform() { return (static_cast<double>(bits() >> 11) + 1) * 0x1p-53; }

  /// Standard normal.
  double normal() {
    double const pi = std::acos(-1.0);
    return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * pi * uniform());
  }

 private:
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  std::uint64_t state_;
};

template <class T>
double to_double(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else {
    return static_cast<double>(static_cast<float>(value));
  }
}

/// A random-normal element; an integer is rounded from 32 times as much and kept in range.
template <class T>
T random_element(Random& random) {
  if constexpr (std::is_integral_v<T>) {
    constexpr double low = static_cast<double>(std::numeric_limits<T>::min());
    constexpr double high = static_cast<double>(std::numeric_limits<T>::max());
    return static_cast<T>(std::clamp(std::nearbyint(32 * random.normal()), low, high));
  } else {
    return static_cast<T>(random.normal());
  }
}

/// NaN, or a conspicuous number where the type has none.
template <class T>
T unwritten() {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(0x5A5A5A5A);
  } else {
    return static_cast<T>(std::numeric_limits<double>::quiet_NaN());
  }
}

/// A View's dense elements on the host.
template <class V>
auto host_copy(V const& view) {
  return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view);
}

/// Fills a dense View and returns its elements as the oracle reads them.
template <class V>
std::vector<double> fill_normal(V const& view, Random& random) {
  auto const host = Kokkos::create_mirror_view(view);
  std::vector<double> values(view.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    host.data()[i] = random_element<typename V::non_const_value_type>(random);
    values[i] = to_double(host.data()[i]);
  }
  Kokkos::deep_copy(view, host);
  return values;
}

/// Fills a dense View with what no result looks like.
template <class V>
void fill_unwritten(V const& view) {
  auto const host = Kokkos::create_mirror_view(view);
  for (std::size_t i = 0; i < view.size(); ++i)
    host.data()[i] = unwritten<typename V::non_const_value_type>();
  Kokkos::deep_copy(view, host);
}

inline void check_extent(char const* function, char const* name, std::int64_t value,
                         std::int64_t least = 0) {
  if (value < least)
    attikos::detail::raise<ShapeError>("testing::", function, ": ", name, " is ", value,
                                       "; expected ", least, " or more");
}

inline std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

/// `count` numbers of [0, extent), evenly spread, the two ends among them.
inline std::vector<std::int64_t> sampled(std::int64_t extent, std::int64_t count) {
  std::vector<std::int64_t> result;
  if (count >= extent) {
    for (std::int64_t i = 0; i < extent; ++i) result.push_back(i);
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      result.push_back(count == 1 ? 0 : i * (extent - 1) / (count - 1));
  }
  return result;
}

/// Collects elements and keeps the worst.
class Judge {
 public:
  explicit Judge(std::string what) : what_(std::move(what)) {}

  void add(char const* array, double got, double want, double bound,
           std::initializer_list<std::int64_t> index) {
    ++count_;
    constexpr double infinity = std::numeric_limits<double>::infinity();
    double difference = 0, ratio = 0;
    if (!(got == want || (std::isnan(got) && std::isnan(want)))) {
      difference = std::abs(got - want);
      if (std::isnan(difference)) difference = infinity;
      ratio = difference / bound;  // a bound of 0 makes it infinite
      if (std::isnan(ratio)) ratio = infinity;
    }
    result_.max_difference = std::max(result_.max_difference, difference);
    if (ratio <= result_.worst_ratio && !worst_.empty()) return;
    result_.worst_ratio = ratio;
    std::ostringstream text;
    text.precision(17);
    text << array << '[';
    for (auto i = index.begin(); i != index.end(); ++i)
      text << (i == index.begin() ? "" : ", ") << *i;
    text << "] is " << got << "; expected " << want << " within " << bound;
    worst_ = text.str();
  }

  /// An element that is not compared must at least have been written.
  void add_unsampled(char const* array, double got, std::initializer_list<std::int64_t> index) {
    if (std::isnan(got)) add(array, got, 0, 0, index);
  }

  ValidationResult result() {
    result_.ok = result_.worst_ratio <= 1;
    std::ostringstream text;
    text << what_ << ": " << (result_.ok ? "ok" : "wrong") << ", " << count_
         << " elements compared";
    if (count_ > 0) text << ", worst error/bound " << result_.worst_ratio << " (" << worst_ << ")";
    result_.message = text.str();
    return result_;
  }

 private:
  std::string what_;
  std::string worst_;
  std::int64_t count_ = 0;
  ValidationResult result_;
};

}  // namespace detail
}  // namespace testing
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
