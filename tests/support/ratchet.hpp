// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The worst ratio of error to bound of each suite, and the one that is on record
/// (tests/worst_ratios.txt, which tests/ratchet.py writes): one that has grown by more than a tenth
/// is a failure, although it is within its bound.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace attikos::test {

/// The worst ratio seen under each name in this process; main prints it.
inline std::map<std::string, double>& worst_ratios() {
  static std::map<std::string, double> ratios;
  return ratios;
}

/// What comes before each name: programs that compile the same suites for other kernels have one.
inline std::string& ratio_prefix() {
  static std::string prefix;
  return prefix;
}

/// What roundings on a host depend on beside the source: the compiler, which contracts products and
/// sums into one rounding or two, and the length of vectors, by which the order of sums differs.
inline std::string rounding_kind() {
#if defined(__AVX512F__)
  constexpr int bytes = 64;
#elif defined(__AVX__)
  constexpr int bytes = 32;
#else
  constexpr int bytes = 16;
#endif
#if defined(__clang__)
  std::string const compiler = "clang";
#else
  std::string const compiler = "gnu";
#endif
#if defined(__OPTIMIZE__)
  std::string const optimized = "optimized";
#else
  std::string const optimized = "not optimized";
#endif
  return compiler + ", " + optimized + ", vectors of " + std::to_string(bytes) + " bytes";
}

struct RatioRecord {
  std::string kind;
  std::map<std::string, double> ratios;

  /// A tenth, and what the last of the printed digits hides; half where a host's roundings are of
  /// another kind than those on record.
  double allowed(std::string const& name, double recorded) const {
    bool const same = name.rfind("direct ", 0) == 0 || kind == rounding_kind();
    return (same ? 1.1 : 1.5) * recorded + 0.01;
  }
};

/// What is on record, in the file that the environment names; CTest does.
inline RatioRecord const& recorded_ratios() {
  static auto const record = [] {
    RatioRecord all;
    char const* const path = std::getenv("ATTIKOS_TEST_RATIOS");
    if (path == nullptr) return all;
    std::ifstream file(path);
    std::string const of_kind = "# kind: ";
    std::string line;
    while (std::getline(file, line)) {
      // A number, and the name, which may have spaces.
      std::istringstream words(line);
      double ratio = 0;
      std::string name;
      if (line.rfind(of_kind, 0) == 0) all.kind = line.substr(of_kind.size());
      if (line.rfind('#', 0) != 0 && words >> ratio && std::getline(words >> std::ws, name))
        all.ratios[name] = ratio;
    }
    return all;
  }();
  return record;
}

/// Writes what was seen into the file that ratchet.py names, if it runs this process.
struct RatioReport {
  RatioReport() = default;
  RatioReport(RatioReport const&) = delete;
  RatioReport& operator=(RatioReport const&) = delete;
  ~RatioReport() {
    char const* const path = std::getenv("ATTIKOS_TEST_RATIOS_TO");
    if (path == nullptr) return;
    std::ofstream file(path, std::ios::app);
    for (auto const& [name, ratio] : worst_ratios()) {
      if (name.rfind("direct ", 0) != 0) file << "# kind: " << rounding_kind() << '\n';
      file << ratio << ' ' << name << '\n';
    }
  }
};

/// Keeps a ratio under a name, and fails if that is more than what is on record.
inline void keep_worst_ratio(std::string const& suite, double ratio) {
  std::string const name = ratio_prefix() + suite;
  double& kept = worst_ratios()[name];
  static RatioReport const report;
  kept = std::max(kept, ratio);
  std::ostringstream number;
  number << kept;
  ::testing::Test::RecordProperty("worst_ratio", number.str());
  RatioRecord const& record = recorded_ratios();
  auto const recorded = record.ratios.find(name);
  if (ratio <= 1 && recorded != record.ratios.end() &&
      ratio > record.allowed(name, recorded->second))
    ADD_FAILURE() << name << ": error/bound " << ratio << " has grown from " << recorded->second
                  << " in tests/worst_ratios.txt by more than a tenth; find out why, or record it"
                     " with tests/ratchet.py";
}

}  // namespace attikos::test
