// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The worst ratio of error to bound of each suite, and the one that is on record
/// (tests/worst_ratios.txt, which tests/ratchet.py writes): one that has grown by more than a tenth
/// is a failure, although it is within its bound, and so is one of a name that is not there, in
/// builds like the one that is on record.
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

/// Whether what a name stands for ran on a GPU: direct tests of kernels, suites of CUDA's space.
inline bool is_of_device(std::string const& name) {
  return name.rfind("direct ", 0) == 0 || name.find("/Cuda") != std::string::npos;
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

/// Differences of finite steps are not: their error is the step's.
inline bool is_recorded(std::string const& name) {
  return name.find("difference") == std::string::npos;
}

struct RatioRecord {
  std::string kind;
  std::map<std::string, double> ratios;

  /// A tenth, and what the last of the printed digits hides; half where a host's roundings are of
  /// another kind than those on record.
  double allowed(std::string const& name, double recorded) const {
    bool const same = is_of_device(name) || kind == rounding_kind();
    return (same ? 1.1 : 1.5) * recorded + 0.01;
  }

  /// Whether a name that is not there is missing: hosts' in a build like that of the record, which
  /// has `usual` cases. Builds of other kinds have other cases or run less; GPU suites are recorded
  /// where there is a GPU, and ratchet.py says what of their names is new.
  bool lacks([[maybe_unused]] std::string const& name) const {
#if defined(ATTIKOS_TEST_USUAL_CASES)
    return !is_of_device(name) && kind == rounding_kind() && ratios.count(name) == 0;
#else
    return false;
#endif
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

/// Appends what was seen to the file that ATTIKOS_TEST_RATIOS_TO names, at once: others may, too.
struct RatioReport {
  RatioReport() = default;
  RatioReport(RatioReport const&) = delete;
  RatioReport& operator=(RatioReport const&) = delete;
  ~RatioReport() {
    char const* const path = std::getenv("ATTIKOS_TEST_RATIOS_TO");
    if (path == nullptr || *path == 0) return;
    std::ostringstream lines;
    lines << "# kind: " << rounding_kind() << '\n';
    for (auto const& [name, ratio] : worst_ratios())
      if (is_recorded(name)) lines << ratio << ' ' << name << '\n';
    std::ofstream(path, std::ios::app) << lines.str();
  }
};

/// Keeps a ratio under a name, and fails if that is more than what is on record, or nothing is.
inline void keep_worst_ratio(std::string const& suite, double ratio) {
  std::string const name = ratio_prefix() + suite;
  auto const [place, is_new] = worst_ratios().try_emplace(name, 0.0);
  double& kept = place->second;
  static RatioReport const report;
  kept = std::max(kept, ratio);
  std::ostringstream number;
  number << kept;
  ::testing::Test::RecordProperty("worst_ratio", number.str());
  RatioRecord const& record = recorded_ratios();
  if (is_new && is_recorded(name) && record.lacks(name))
    ADD_FAILURE() << name
                  << " is not in tests/worst_ratios.txt: record it with"
                     " `python3 tests/ratchet.py --write` and this program behind it";
  auto const recorded = record.ratios.find(name);
  if (ratio <= 1 && recorded != record.ratios.end() &&
      ratio > record.allowed(name, recorded->second))
    ADD_FAILURE() << name << ": error/bound " << ratio << " has grown from " << recorded->second
                  << " in tests/worst_ratios.txt by more than a tenth; find out why, or record it"
                     " with tests/ratchet.py";
}

}  // namespace attikos::test
