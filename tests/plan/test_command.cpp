// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attikos-plan: its command line, and what it prints.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "fit.hpp"
#include "plan/schedules.hpp"
#include "report.hpp"

namespace attikos::test {
namespace {

using attikos_plan::Format;
using attikos_plan::parse;
using attikos_plan::Request;
using attikos_plan::UsageError;

std::string refusal(std::vector<std::string> const& arguments) {
  try {
    parse(arguments);
  } catch (UsageError const& error) {
    return error.what();
  }
  return "";
}

TEST(PlanCommand, ReadsItsOptions) {
  Request const r = parse({"--machine",
                           "m.json",
                           "--ranks",
                           "3,5",
                           "--length-per-rank",
                           "4096",
                           "--full",
                           "--type",
                           "float32",
                           "--heads",
                           "8",
                           "--slow-rank",
                           "2:1.5",
                           "--slow-link",
                           "0-1:0",
                           "--slow-nodes",
                           "1-2:0.5",
                           "--slow-card",
                           "1/0:0.25",
                           "--jitter",
                           "0.1",
                           "--seed",
                           "7",
                           "--format",
                           "csv"});
  EXPECT_EQ(r.machine, "m.json");
  EXPECT_EQ(r.ranks, (std::vector<int>{3, 5}));
  EXPECT_TRUE(r.length_is_per_rank);
  EXPECT_EQ(r.model.length, 4096);
  EXPECT_FALSE(r.model.causal);
  EXPECT_EQ(r.model.type, DType::float32);
  EXPECT_EQ(r.model.heads, 8);
  EXPECT_EQ(r.model.kv_heads, 8);
  EXPECT_EQ(r.disturbances.ranks[0].rank, 2);
  EXPECT_EQ(r.disturbances.ranks[0].factor, 1.5);
  ASSERT_EQ(r.disturbances.links.size(), 2u);
  EXPECT_FALSE(r.disturbances.links[0].nodes);
  EXPECT_EQ(r.disturbances.links[0].factor, 0);
  EXPECT_TRUE(r.disturbances.links[1].nodes);
  EXPECT_EQ(r.disturbances.links[1].to, 2);
  EXPECT_EQ(r.disturbances.cards[0].node, 1);
  EXPECT_EQ(r.disturbances.cards[0].factor, 0.25);
  EXPECT_EQ(r.disturbances.jitter, 0.1);
  EXPECT_EQ(r.disturbances.seed, 7u);
  EXPECT_EQ(r.format, Format::csv);
  EXPECT_EQ(parse({"--machine", "m", "--ranks", "3..20"}).ranks, (std::vector<int>{3, 6, 12, 20}));
  EXPECT_EQ(parse({"--machine", "m"}).ranks.back(), 16384);
  EXPECT_TRUE(parse({"--help"}).help);
}

TEST(PlanCommand, RefusesWhatItDoesNotUnderstand) {
  EXPECT_EQ(refusal({}), "--machine is needed; see --help");
  EXPECT_EQ(refusal({"--rank", "3"}), "no option \"--rank\"; see --help");
  EXPECT_EQ(refusal({"--ranks"}), "--ranks needs a value");
  EXPECT_EQ(refusal({"--heads", "8x"}), "--heads needs a whole number from 1 on, not \"8x\"");
  EXPECT_EQ(refusal({"--ranks", "1,,2"}),
            "--ranks needs numbers from 1 to 1048576, as in 1,2,4 or 1..16384, not \"\"");
  EXPECT_EQ(refusal({"--ranks", "8..4"}),
            "--ranks needs a first number that is not above the last, not \"8..4\"");
  EXPECT_EQ(refusal({"--type", "int8"}),
            "--type is float64, float32, float16 or bfloat16, not \"int8\"");
  EXPECT_EQ(refusal({"--slow-link", "0:1"}), "--slow-link needs A-B:F, not \"0\"");
  EXPECT_EQ(refusal({"--jitter", "nan"}), "--jitter needs a number of at least 0, not \"nan\"");
  EXPECT_EQ(refusal({"--length", "4", "--length-per-rank", "4"}),
            "--length and --length-per-rank: expected one of them, once");
  EXPECT_EQ(refusal({"--format", std::string("\x01\xff", 2)}),
            "--format is table, csv or json, not \"??\"");
}

TEST(PlanCommand, ReadsMachineFilesOrNamesWhatIsWrong) {
  EXPECT_EQ(attikos_plan::read_machine(ATTIKOS_MACHINES "/h200x4.json").name, "h200x4");
  EXPECT_THROW(attikos_plan::read_machine("no such file"), Error);
  EXPECT_THROW(attikos_plan::read_machine(ATTIKOS_MACHINES "/../main.cpp"), Error);
}

TEST(PlanCommand, FormatsSayTheSame) {
  Machine const machine = h200x4();
  attikos_plan::Row row{anchor_model(8192), 8, {}};
  row.plan = plan_ranks(row.model, machine, 8);
  std::ostringstream csv, json;
  Request request;
  request.format = Format::csv;
  attikos_plan::write_heading(csv, request, machine);
  attikos_plan::write_row(csv, Format::csv, row);
  attikos_plan::write_json(json, machine, {row});
  auto const file = nlohmann::json::parse(json.str());
  EXPECT_EQ(plan::machine_file<nlohmann::json>(plan::machine_of(file.at("machine"))),
            plan::machine_file<nlohmann::json>(machine));
  auto const& all = file.at("predictions");
  ASSERT_EQ(all.size(), 6u);
  std::istringstream lines(csv.str());
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line.rfind("ranks,length,layout,chosen,seconds,", 0), 0u);
  for (auto const& one : all) {
    ASSERT_TRUE(std::getline(lines, line));
    std::ostringstream start;
    start << "8,8192," << one.at("layout").get<std::string>() << ',' << one.at("chosen").get<bool>()
          << ',';
    EXPECT_EQ(line.rfind(start.str(), 0), 0u) << line;
    EXPECT_NEAR(std::stod(line.substr(start.str().size())), one.at("seconds").get<double>(), 1e-9);
  }
}

TEST(PlanFit, FindsALineByRelativeErrors) {
  auto line = attikos_plan::fit({{1, 5}, {10, 23}, {1000, 2003}});
  EXPECT_NEAR(line.constant, 3, 1e-9);
  EXPECT_NEAR(line.slope, 2, 1e-12);
  // A long time that is 1 % off moves a short one's line by no more than that.
  line = attikos_plan::fit({{1, 5}, {10, 23}, {1000, 2023}});
  EXPECT_NEAR(line.constant, 3, 0.05);
  // Neither number is negative.
  line = attikos_plan::fit({{1, 1}, {2, 3}});
  EXPECT_EQ(line.constant, 0);
  EXPECT_NEAR(line.slope, (1.0 + 2.0 / 3) / (1 + 4.0 / 9), 1e-12);
  line = attikos_plan::fit({{1, 3}, {2, 1}});
  EXPECT_EQ(line.slope, 0);
  EXPECT_NEAR(line.constant, (1.0 / 3 + 1) / (1.0 / 9 + 1), 1e-12);
}

}  // namespace
}  // namespace attikos::test
