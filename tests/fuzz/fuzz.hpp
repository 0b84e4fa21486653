// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the fuzzers share. Each is a file that says what is done with an input and where mutation
// begins; libfuzzer.cpp hands that to libFuzzer, replay.cpp to a program that any compiler builds.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace sentence_search::fuzz {

/// Reads one input, and says whether it got to its end. Throws where a property does not hold, and
/// lets through what the readers throw but must not.
bool run(std::string_view input);

/// Inputs where mutation begins: first one that is accepted, then some that nearly are.
std::vector<std::string> seeds();

/// Throws unless `holds`.
void require(bool holds, char const* property);

/// True if `read` returns, false if it throws DataError. What that says must name `file`, or a file
/// in that folder, and fit one line. All else passes through.
bool accepts(std::filesystem::path const& file, std::function<void()> const& read);

/// Content under a path, in memory only.
class InputFile {
 public:
  explicit InputFile(std::string_view content);
  InputFile(InputFile const&) = delete;
  InputFile& operator=(InputFile const&) = delete;
  ~InputFile();

  std::filesystem::path path() const;

 private:
  int descriptor_;
};

/// A folder that is there while the program runs.
std::filesystem::path const& temporary_folder();

}  // namespace sentence_search::fuzz
