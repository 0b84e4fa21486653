// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What attikos-plan is asked on its command line.
#pragma once

#include <attikos/distributed/plan/plan.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace attikos_plan {

/// The command line is wrong; one line.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class Format { table, csv, json };

struct Request {
  std::string machine;  ///< path of a machine file
  attikos::distributed::plan::Model model;
  bool length_is_per_rank = false;
  std::vector<int> ranks;
  attikos::distributed::plan::Disturbances disturbances;
  Format format = Format::table;
  bool help = false;
};

extern char const* const help_text;

/// Throws UsageError.
Request parse(std::vector<std::string> const& arguments);

}  // namespace attikos_plan
