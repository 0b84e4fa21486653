// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Small changes to inputs, the same on every machine for a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace sentence_search::fuzz {

class Mutations {
 public:
  Mutations(std::vector<std::string> seeds, std::uint64_t seed)
      : seeds_(std::move(seeds)), random_(seed) {}

  std::string const& any_seed() { return seeds_[below(seeds_.size())]; }

  /// One byte, a piece of the text or of a seed, or a number.
  void mutate(std::string& text);

  /// Uniform enough. The library's distributions differ between implementations, the engine does
  /// not.
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }

 private:
  std::string any_piece(std::string const& text);

  std::vector<std::string> seeds_;
  std::mt19937_64 random_;
};

}  // namespace sentence_search::fuzz
