// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attikos-plan: what each way of spreading a transformer over ranks is expected to take.
#include <exception>
#include <iostream>

#include "command_line.hpp"
#include "report.hpp"

namespace {

int run(std::vector<std::string> const& arguments) {
  using namespace attikos_plan;
  Request const request = parse(arguments);
  if (request.help) {
    std::cout << help_text;
    return 0;
  }
  auto const machine = read_machine(request.machine);
  check_model(request.model);
  write_heading(std::cout, request, machine);
  std::vector<Row> rows;
  for (int const ranks : request.ranks) {
    Row row{request.model, ranks, {}};
    if (request.length_is_per_rank) row.model.length *= ranks;
    row.plan = plan_ranks(row.model, machine, ranks, request.disturbances);
    write_row(std::cout, request.format, row);
    std::cout.flush();
    rows.push_back(std::move(row));
  }
  if (request.format == Format::json) write_json(std::cout, machine, rows);
  if (!std::cout) throw attikos::Error("attikos-plan: the output could not be written");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (attikos_plan::UsageError const& error) {
    std::cerr << "attikos-plan: " << error.what() << '\n';
    return 2;
  } catch (std::exception const& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
