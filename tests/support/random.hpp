// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random numbers that are the same on every machine (std distributions are not).
#pragma once

#include <cstdint>

namespace attikos::test {

/// splitmix64.
class Random {
 public:
  explicit Random(std::uint64_t seed = 1) : state_(seed) {}

  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  double uniform(double low, double high) {
    return low + (high - low) * (static_cast<double>(bits() >> 11) * 0x1p-53);
  }

  /// In [low, high], both ends included.
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  std::uint64_t state_;
};

}  // namespace attikos::test
