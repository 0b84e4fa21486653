// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Plans as a table for people, as CSV and as JSON.
#pragma once

#include <attikos/distributed/plan/plan.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "command_line.hpp"

namespace attikos_plan {

/// A plan on one number of ranks.
struct Row {
  attikos::distributed::plan::Model model;
  int ranks;
  attikos::distributed::plan::RankPlan plan;
};

/// The machine in a file. Throws attikos::Error, which names the file and what is wrong with it.
attikos::distributed::plan::Machine read_machine(std::string const& path);

void write_heading(std::ostream& out, Request const& request,
                   attikos::distributed::plan::Machine const& machine);
/// A table and CSV grow by each row, as it is known.
void write_row(std::ostream& out, Format format, Row const& row);
void write_json(std::ostream& out, attikos::distributed::plan::Machine const& machine,
                std::vector<Row> const& rows);

}  // namespace attikos_plan
