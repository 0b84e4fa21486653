// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "progress.hpp"

#include <unistd.h>

#include <cstdio>

namespace sentence_search {

Progress::Progress(std::size_t total)
    : total_(total),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

Progress::~Progress() {
  // Leaves the terminal line empty for what follows, be it the result or an error.
  if (line_open_) std::fprintf(stderr, "\r\033[K");
}

void Progress::update(std::size_t done) {
  using namespace std::chrono_literals;
  auto const now = std::chrono::steady_clock::now();
  if (total_ == 0 || now - start_ < 1s) return;
  std::size_t const tenths = done * 10 / total_;
  std::size_t const percent = done * 100 / total_;
  if (terminal_) {
    if (line_open_ && now - last_ < 100ms && done != total_) return;
    std::fprintf(stderr, "\r\033[Kembedded %zu of %zu passages (%zu %%)", done, total_, percent);
    line_open_ = true;
    last_ = now;
  } else if (tenths > shown_tenths_) {
    std::fprintf(stderr, "embedded %zu of %zu passages (%zu %%)\n", done, total_, percent);
    shown_tenths_ = tenths;
  }
}

}  // namespace sentence_search
