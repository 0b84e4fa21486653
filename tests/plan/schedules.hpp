// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the planner's tests share: schedules written down by hand, and the machine of the anchors.
#pragma once

#include <attikos/distributed/plan/plan.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace attikos::test {

namespace plan = distributed::plan;
using plan::Layout;
using plan::Machine;
using plan::Model;

/// Steps that a test wrote down.
class WrittenSchedule : public plan::Schedule {
 public:
  explicit WrittenSchedule(std::vector<plan::Step> steps) : steps_(std::move(steps)) {}
  int ranks() const override { return static_cast<int>(steps_[0].work.size()); }
  std::int64_t steps() const override { return static_cast<std::int64_t>(steps_.size()); }
  void fill(std::int64_t step, plan::Step& s) const override {
    s = steps_[static_cast<std::size_t>(step)];
  }

 private:
  std::vector<plan::Step> steps_;
};

/// Nodes of `ranks` with numbers that one can reckon with: 1 s and 10 bytes a second.
inline Machine slow_machine(int ranks) {
  Machine m;
  m.ranks_per_node = ranks;
  m.inside = m.outside = {1, 10};
  return m;
}

inline Machine h200x4() {
  std::ifstream file(ATTIKOS_MACHINES "/h200x4.json");
  return plan::machine_of(nlohmann::json::parse(file));
}

/// What the anchors were measured with: one layer of 16 heads of 128, bfloat16.
inline Model anchor_model(std::int64_t length, bool causal = true) {
  Model m;
  m.layers = 1;
  m.heads = m.kv_heads = 16;
  m.hidden = 2048;
  m.intermediate = 8192;
  m.length = length;
  m.causal = causal;
  return m;
}

inline void expect_close(double a, double b, double bound) {
  EXPECT_LE(std::abs(a - b), bound * std::max(std::abs(a), std::abs(b))) << a << " and " << b;
}

}  // namespace attikos::test
