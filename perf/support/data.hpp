// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Operands of a measurement: normally distributed, in as many copies as keep the cache cold.
#pragma once

#include <algorithm>
#include <attikos/attikos.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <support/settings.hpp>
#include <vector>

#if defined(__linux__)
#include <unistd.h>
#endif

namespace attikos::measure {

/// Standard normal numbers, repeating after a prime number of them: drawing one per element of
/// every buffer would take longer than the measurements.
class Normal {
 public:
  explicit Normal(unsigned seed = 1) : values_(1048573) {
    std::mt19937_64 generator(seed);
    std::normal_distribution<float> distribution;
    for (float& value : values_) value = distribution(generator);
  }

  float next() {
    if (++position_ == values_.size()) position_ = 0;
    return values_[position_];
  }

 private:
  std::vector<float> values_;
  std::size_t position_ = 0;
};

inline Normal& normal() {
  static Normal source;
  return source;
}

template <class T>
T from_float(float value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(std::lround(std::clamp(40 * value, -127.0f, 127.0f)));
  } else {
    return T(value);
  }
}

template <class T>
double to_double(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else {
    return static_cast<double>(static_cast<float>(value));
  }
}

/// Fills a contiguous View with normal numbers (integers: 40 times that).
template <class View>
void fill_normal(View const& view) {
  auto const host = Kokkos::create_mirror_view(view);
  using T = typename View::non_const_value_type;
  for (std::size_t i = 0; i < host.span(); ++i) host.data()[i] = from_float<T>(normal().next());
  Kokkos::deep_copy(view, host);
}

/// Fills a contiguous View with what no right result holds: NaN, or for integers a large number.
template <class View>
void poison(View const& view) {
  using T = typename View::non_const_value_type;
  if constexpr (std::is_integral_v<T>) {
    Kokkos::deep_copy(view, std::numeric_limits<T>::max());
  } else {
    Kokkos::deep_copy(view, T(std::numeric_limits<float>::quiet_NaN()));
  }
}

/// The same numbers in float32, in host memory: operands for a peer that has no narrower type.
template <class View>
std::vector<float> float_copy(View const& view) {
  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
  std::vector<float> result(host.span());
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = static_cast<float>(to_double(host.data()[i]));
  return result;
}

inline std::size_t last_level_cache_bytes() {
#if defined(KOKKOS_ENABLE_CUDA)
  return static_cast<std::size_t>(Exec().cuda_device_prop().l2CacheSize);
#elif defined(_SC_LEVEL3_CACHE_SIZE)
  long const bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes > 0) return static_cast<std::size_t>(bytes);
#endif
  return std::size_t{32} << 20;
}

/// How many sets of operands to go through in turn, so that a set has left the cache when its turn
/// comes again.
inline std::size_t count_sets(std::size_t bytes_per_set, bool warm) {
  if (warm) return 1;
  std::size_t const needed =
      2 * last_level_cache_bytes() / std::max<std::size_t>(bytes_per_set, 1) + 1;
  return std::clamp<std::size_t>(needed, 2, 256);
}

}  // namespace attikos::measure
