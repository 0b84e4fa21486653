// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which fault is on, and, in the file that ATTIKOS_FAULTS_TO names, which ones are in this program
// and which of them each test comes by.
#include "switches.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace attikos_faults {

int const active = [] {
  char const* const number = std::getenv("ATTIKOS_FAULT");
  return number == nullptr ? -1 : std::atoi(number);
}();

namespace {

/// A line each: `test <milliseconds> <name>`, then the numbers of the faults.
class Report : public testing::EmptyTestEventListener {
 public:
  explicit Report(char const* path) : file_(path) {}
  void OnTestProgramStart(testing::UnitTest const&) override { write("compiled 0 -", true); }
  void OnTestStart(testing::TestInfo const&) override {
    for (Site* s = Site::first; s != nullptr; s = s->next) s->met = false;
  }
  void OnTestEnd(testing::TestInfo const& test) override {
    write("test " + std::to_string(test.result()->elapsed_time()) + " " + test.test_suite_name() +
              "." + test.name(),
          false);
  }

 private:
  void write(std::string const& what, bool all) {
    file_ << what;
    for (Site const* s = Site::first; s != nullptr; s = s->next)
      if (all || s->met) file_ << ' ' << s->number;
    file_ << std::endl;
  }
  std::ofstream file_;
};

bool const reports = [] {
  if (char const* const path = std::getenv("ATTIKOS_FAULTS_TO"))
    testing::UnitTest::GetInstance()->listeners().Append(new Report(path));
  return true;
}();

}  // namespace
}  // namespace attikos_faults
