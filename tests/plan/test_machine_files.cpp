// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Machine files: what they hold, and how they are refused.
#include <gtest/gtest.h>

#include "plan/schedules.hpp"
#include "support/random.hpp"

namespace attikos::test {
namespace {

using nlohmann::json;

json good_file() { return plan::machine_file<json>(h200x4()); }

std::string refusal(json const& file) {
  try {
    plan::machine_of(file);
  } catch (Error const& error) {
    return error.what();
  }
  return "";
}

TEST(MachineFile, ComesBackAsItWas) {
  json const file = good_file();
  EXPECT_EQ(plan::machine_file<json>(plan::machine_of(file)), file);
  EXPECT_EQ(plan::machine_of(file).cards, 4);
  EXPECT_EQ(plan::machine_of(file).outside.bandwidth, 50e9);
  auto const model = plan::machine_of(file).model(4);
  EXPECT_EQ(model.bandwidth, 330e9);
  EXPECT_EQ(plan::machine_of(file).model(5).bandwidth, 50e9);
  EXPECT_EQ(model.copy_bandwidth, 4281e9 / 2);
}

TEST(MachineFile, RefusalsNameFieldExpectedAndGot) {
  std::string const start = "attikos::plan: machine file: ";
  EXPECT_EQ(refusal(json::array()), start + "the whole is []; expected an object");
  json file = good_file();
  file["inside"]["bandwidth"] = "fast";
  EXPECT_EQ(refusal(file),
            start + "inside.bandwidth is \"fast\"; expected a number greater than 0");
  file = good_file();
  file["outside"]["latency"] = -1;
  EXPECT_EQ(refusal(file), start + "outside.latency is -1; expected a number of at least 0");
  file = good_file();
  file["rank"].erase("attention");
  EXPECT_EQ(refusal(file), start + "rank.attention is not there");
  file = good_file();
  file["node"]["rank"] = 4;
  EXPECT_EQ(refusal(file), start + "node.rank is no field; expected one of ranks cards shared");
  file = good_file();
  file["node"]["ranks"] = 0;
  EXPECT_EQ(refusal(file), start + "node.ranks is 0; expected a whole number from 1 to 1048576");
  file["node"]["ranks"] = 2.5;
  EXPECT_EQ(refusal(file), start + "node.ranks is 2.5; expected a whole number from 1 to 1048576");
  file = good_file();
  file["node"]["shared"] = 1;
  EXPECT_EQ(refusal(file), start + "node.shared is 1; expected true or false");
  file = good_file();
  file["name"] = nullptr;
  EXPECT_EQ(refusal(file), start + "name is null; expected a string");
  file = good_file();
  file["rank"] = 7;
  EXPECT_EQ(refusal(file), start + "rank is 7; expected an object");
  file = good_file();
  file.erase("inside");
  EXPECT_EQ(refusal(file), start + "inside is not there");
  file = good_file();
  file["name"] = json::array({std::string(200, 'x')});
  EXPECT_LT(refusal(file).size(), 140u);
}

json random_value(Random& random) {
  switch (random.integer(0, 9)) {
    case 0:
      return nullptr;
    case 1:
      return random.integer(0, 1) == 1;
    case 2:
      return random.integer(-3, 3);
    case 3:
      return random.uniform(-1e300, 1e300);
    case 4:
      return std::string("\xff\xfe text", 7);
    case 5:
      return json::array({1, "two"});
    case 6:
      return json::object({{"latency", 1}});
    case 7:
      return json::object();
    case 8:
      return std::numeric_limits<std::uint64_t>::max();
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

TEST(MachineFile, AnythingIsAMachineOrRefused) {
  Random random(4);
  char const* const groups[] = {"", "rank", "node", "inside", "outside"};
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    json file = good_file();
    for (std::int64_t change = random.integer(1, 3); change > 0; --change) {
      std::string const group = groups[random.integer(0, 4)];
      json& target = group.empty() ? file : file[group];
      if (!target.is_object() || target.empty()) continue;
      auto at = target.begin();
      std::advance(at, random.integer(0, static_cast<std::int64_t>(target.size()) - 1));
      std::string const key = at.key();
      switch (random.integer(0, 3)) {
        case 0:
          target.erase(key);
          break;
        case 1:
          target[key + "x"] = random_value(random);
          break;
        default:
          target[key] = random_value(random);
      }
    }
    try {
      Machine const m = plan::machine_of(file);
      EXPECT_TRUE(m.ranks_per_node >= 1 && m.cards >= 1 && m.inside.bandwidth > 0 &&
                  m.outside.bandwidth > 0 && m.attention > 0 && m.gemm > 0 &&
                  m.memory_bandwidth > 0 && m.inside.latency >= 0 && m.launch >= 0);
    } catch (Error const& error) {
      ++refused;
      EXPECT_EQ(std::string(error.what()).rfind("attikos::plan: machine file: ", 0), 0u);
    }
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace attikos::test
