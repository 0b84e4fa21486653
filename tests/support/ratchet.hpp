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

/// By how much a ratio may exceed the one on record: a tenth, and what the last of its printed
/// digits hides. Compilers contract products and sums into one rounding or two, and vectors of 16,
/// 32 and 64 bytes sum in different orders; records are the largest of builds for all three.
inline bool has_grown(double ratio, double recorded) { return ratio > 1.1 * recorded + 0.01; }

/// What is on record, in the file that the environment names; CTest does.
inline std::map<std::string, double> const& recorded_ratios() {
  static auto const ratios = [] {
    std::map<std::string, double> all;
    char const* const path = std::getenv("ATTIKOS_TEST_RATIOS");
    if (path == nullptr) return all;
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
      // A number, and the name, which may have spaces.
      std::istringstream words(line);
      double ratio = 0;
      std::string name;
      if (line.rfind('#', 0) != 0 && words >> ratio && std::getline(words >> std::ws, name))
        all[name] = ratio;
    }
    return all;
  }();
  return ratios;
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
    for (auto const& [name, ratio] : worst_ratios()) file << ratio << ' ' << name << '\n';
  }
};

/// Keeps a ratio under a name, and fails if that is more than what is on record.
inline void keep_worst_ratio(std::string const& name, double ratio) {
  double& kept = worst_ratios()[name];
  static RatioReport const report;
  kept = std::max(kept, ratio);
  std::ostringstream number;
  number << kept;
  ::testing::Test::RecordProperty("worst_ratio", number.str());
  auto const recorded = recorded_ratios().find(name);
  if (ratio <= 1 && recorded != recorded_ratios().end() && has_grown(ratio, recorded->second))
    ADD_FAILURE() << name << ": error/bound " << ratio << " has grown from " << recorded->second
                  << " in tests/worst_ratios.txt by more than a tenth; find out why, or record it"
                     " with tests/ratchet.py";
}

}  // namespace attikos::test
