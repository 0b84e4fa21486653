// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Says on standard error how far a long run has come.
#pragma once

#include <chrono>
#include <cstddef>

namespace sentence_search {

/// On a terminal one line that is rewritten; elsewhere a line for every tenth. Silent for the first
/// second.
class Progress {
 public:
  explicit Progress(std::size_t total);
  ~Progress();
  Progress(Progress const&) = delete;
  Progress& operator=(Progress const&) = delete;

  void update(std::size_t done);

 private:
  std::size_t total_;
  std::size_t shown_tenths_ = 0;
  bool terminal_;
  bool line_open_ = false;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace sentence_search
