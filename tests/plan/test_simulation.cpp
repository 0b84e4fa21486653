// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Schedules in virtual time: cases worked by hand, contention, failures, what repeats.
#include <gtest/gtest.h>

#include <cmath>

#include "plan/schedules.hpp"
#include "support/random.hpp"

namespace attikos::test {
namespace {

using plan::Disturbances;
using plan::Outcome;
using plan::Step;

/// Both ways to simulate, which have to agree.
Outcome both(plan::Schedule const& schedule, Machine const& machine, Disturbances const& d = {}) {
  Outcome events = simulate_events(schedule, machine, d);
  Outcome const steps = simulate_steps(schedule, machine, d);
  EXPECT_EQ(events.failure, steps.failure);
  if (events.failure.empty()) {
    expect_close(events.seconds, steps.seconds, 1e-12);
    for (std::size_t r = 0; r < events.finished.size(); ++r)
      expect_close(events.finished[r], steps.finished[r], 1e-12);
  }
  return events;
}

TEST(Simulation, TwoRanksThreeStepsByHand) {
  // Step 0: messages 0 … 1 + 2 = 3 and 0 … 1 + 4 = 5; both wait for both, until 5.
  // Step 1: messages 5 … 5 + 1 + 9 = 15 and 5 … 6, work until 6 and 9: both until 15.
  // Step 2: until 17 and 16, and half a second of copies.
  WrittenSchedule const schedule({{{5, 3}, {}, {{{1, 0}, {20, 40}}}, false},
                                  {{1, 4}, {}, {{{1, 0}, {90, 0}}}, false},
                                  {{2, 1}, {0.5, 0}, {}, false}});
  Outcome const outcome = both(schedule, slow_machine(2));
  EXPECT_DOUBLE_EQ(outcome.finished[0], 17.5);
  EXPECT_DOUBLE_EQ(outcome.finished[1], 16);
  EXPECT_DOUBLE_EQ(outcome.seconds, 17.5);
  EXPECT_DOUBLE_EQ(outcome.work, 8.5);
  EXPECT_DOUBLE_EQ(outcome.exposed, 9);
}

TEST(Simulation, MessagesWaitForBothRanksUnlessPosted) {
  Step const first{{2, 6}, {}, {}, false};
  Step second{{1, 1}, {}, {{{1, -1}, {10, 0}}}, false};
  Outcome const met = both(WrittenSchedule({first, second}), slow_machine(2));
  EXPECT_DOUBLE_EQ(met.finished[0], 8);  // 6 + 1 + 1
  EXPECT_DOUBLE_EQ(met.finished[1], 8);
  second.transfers[0].posted = true;
  Outcome const posted = both(WrittenSchedule({first, second}), slow_machine(2));
  EXPECT_DOUBLE_EQ(posted.finished[0], 4);  // 2 + 1 + 1
  EXPECT_DOUBLE_EQ(posted.finished[1], 7);
  second.transfers[0].bytes[0] =
      100;  // there at 2 + 1 + 10, which the step that collects waits for
  Step const third{{1, 1}, {}, {}, true};
  Outcome const late = both(WrittenSchedule({first, second, third}), slow_machine(2));
  EXPECT_DOUBLE_EQ(late.finished[0], 14);
  EXPECT_DOUBLE_EQ(late.finished[1], 14);
}

TEST(Simulation, MessagesShareAPort) {
  Machine machine = slow_machine(2);
  machine.shared = true;
  // Alike: 40 bytes at 10 a second, together.
  Step const alike{{0, 0}, {}, {{{1, 0}, {20, 20}}}, false};
  EXPECT_DOUBLE_EQ(both(WrittenSchedule({alike}), machine).seconds, 5);
  // 10 bytes at 5 a second until 3; of the other 30 then 10 are gone, 20 have 10 a second: until 5.
  Step const unlike{{0, 0}, {}, {{{1, 0}, {10, 30}}}, false};
  EXPECT_DOUBLE_EQ(simulate_events(WrittenSchedule({unlike}), machine).seconds, 5);
  EXPECT_DOUBLE_EQ(simulate_steps(WrittenSchedule({unlike}), machine).seconds, 7);  // 5 a second
  // Nodes of two ranks with one card: messages of different pairs of ranks meet on it.
  machine = slow_machine(2);
  Step const across{{0, 0, 0, 0}, {}, {{{2, 3, -1, -1}, {20, 20, 0, 0}}}, false};
  EXPECT_DOUBLE_EQ(both(WrittenSchedule({across}), machine).seconds, 5);
  machine.cards = 2;
  EXPECT_DOUBLE_EQ(both(WrittenSchedule({across}), machine).seconds, 3);
  // One begins two seconds later: 10 bytes alone, then 5 a second each.
  machine.cards = 1;
  Step const before{{0, 2, 0, 2}, {}, {}, false};
  // First: 1 … 3 alone, 20 bytes, done at 3. Second begins at 2 + 1 = 3, alone again, until 5.
  EXPECT_DOUBLE_EQ(simulate_events(WrittenSchedule({before, across}), machine).seconds, 5);
  Step const long_across{{0, 0, 0, 0}, {}, {{{2, 3, -1, -1}, {40, 40, 0, 0}}}, false};
  // First: 20 bytes until 3, the other 20 at 5 a second until 7. Second: 20 bytes until 7, 20 at 10
  // until 9.
  Outcome const met = simulate_events(WrittenSchedule({before, long_across}), machine);
  EXPECT_DOUBLE_EQ(met.finished[0], 7);
  EXPECT_DOUBLE_EQ(met.finished[1], 9);
}

TEST(Simulation, GoesAroundALinkThatFailedOrNamesIt) {
  Step const step{{0, 0, 0}, {}, {{{1, -1, -1}, {20, 0, 0}}}, false};
  Disturbances failed;
  failed.links = {{false, 0, 1, 0}};
  EXPECT_DOUBLE_EQ(both(WrittenSchedule({step}), slow_machine(3), failed).seconds, 4);  // 2·1 + 2
  failed.links[0].factor = 0.5;
  EXPECT_DOUBLE_EQ(both(WrittenSchedule({step}), slow_machine(3), failed).seconds, 5);  // 1 + 4
  failed.links = {{false, 0, 1, 0}, {false, 0, 2, 0}};
  EXPECT_EQ(
      both(WrittenSchedule({step}), slow_machine(3), failed).failure,
      "no way from rank 0 to rank 1: the link between them failed, and no other rank of node 0 "
      "has links to both");
  // Three nodes of one rank.
  failed.links = {{true, 1, 0, 0}};
  EXPECT_DOUBLE_EQ(both(WrittenSchedule({step}), slow_machine(1), failed).seconds, 4);
  failed.links.push_back({true, 1, 2, 0});
  EXPECT_EQ(both(WrittenSchedule({step}), slow_machine(1), failed).failure,
            "no way from rank 0 to rank 1: the link between node 0 and node 1 failed, and no other "
            "node has links to both");
  failed.links.clear();
  failed.cards = {{1, 0, 0}};
  EXPECT_EQ(both(WrittenSchedule({step}), slow_machine(1), failed).failure,
            "no way from rank 0 to rank 1: all network cards of node 1 failed");
  Machine two_cards = slow_machine(1);
  two_cards.cards = 2;
  EXPECT_DOUBLE_EQ(both(WrittenSchedule({step}), two_cards, failed).seconds, 3);
  failed.cards[0].factor = 0.5;
  EXPECT_DOUBLE_EQ(both(WrittenSchedule({step}), two_cards, failed).seconds, 5);
}

TEST(Simulation, RefusesDisturbancesOfWhatIsNotThere) {
  WrittenSchedule const schedule({{{1, 1}, {}, {}, false}});
  auto const refused = [&](Disturbances const& d) {
    EXPECT_THROW(simulate_events(schedule, slow_machine(1), d), Error);
    EXPECT_THROW(simulate_steps(schedule, slow_machine(1), d), Error);
  };
  Disturbances d;
  d.ranks = {{2, 1}};
  refused(d);
  d.ranks = {{0, -1}};
  refused(d);
  d.ranks = {{0, std::nan("")}};
  refused(d);
  d = {};
  d.links = {{false, 0, 1, 0}};  // of two nodes
  refused(d);
  d.links = {{true, 0, 2, 0}};
  refused(d);
  d = {};
  d.cards = {{0, 1, 0}};
  refused(d);
  d = {};
  d.jitter = -1;
  refused(d);
}

/// Steps drawn at random, in which each rank sends to at most one and gets from at most one.
WrittenSchedule random_schedule(Random& random, int ranks) {
  std::vector<Step> steps;
  auto const size = static_cast<std::size_t>(ranks);
  for (int s = 0; s < 12; ++s) {
    Step step{std::vector<double>(size), {}, {}, random.integer(0, 5) == 0};
    for (double& seconds : step.work) seconds = random.uniform(0, 4);
    if (random.integer(0, 2) == 0)
      for (std::size_t r = 0; r < size; ++r) step.after.push_back(random.uniform(0, 1));
    if (random.integer(0, 3) > 0) {
      plan::Transfers t;
      t.posted = random.integer(0, 3) == 0;
      std::int64_t const shift = random.integer(1, ranks - 1);
      for (std::int64_t r = 0; r < ranks; ++r) {
        t.to.push_back(random.integer(0, 4) == 0 ? -1
                                                 : static_cast<std::int32_t>((r + shift) % ranks));
        t.bytes.push_back(random.uniform(0, 60));
      }
      step.transfers.push_back(t);
    }
    steps.push_back(step);
  }
  return WrittenSchedule(steps);
}

// Ranks on nodes of their own, none of whose messages are posted: no two are on a port at a time.
TEST(Simulation, EventsAndStepsAreTheSameWithoutContention) {
  Random random(11);
  for (int round = 0; round < 200; ++round) {
    int const ranks = static_cast<int>(random.integer(2, 9));
    WrittenSchedule const drawn = random_schedule(random, ranks);
    std::vector<Step> steps;
    for (std::int64_t s = 0; s < drawn.steps(); ++s) {
      steps.emplace_back();
      drawn.fill(s, steps.back());
      for (auto& t : steps.back().transfers) t.posted = false;
    }
    Disturbances d;
    d.jitter = random.uniform(0, 1);
    d.seed = static_cast<std::uint64_t>(round);
    d.ranks = {{0, random.uniform(0.5, 3)}};
    both(WrittenSchedule(steps), slow_machine(1), d);
    both(WrittenSchedule(steps), slow_machine(ranks), d);
  }
}

// With contention a port is never used beyond its bandwidth, and steps are not faster than events
// by more than rounding where all begin together.
TEST(Simulation, NothingIsFasterThanItsWorkAndItsBytes) {
  Random random(12);
  for (int round = 0; round < 200; ++round) {
    int const ranks = static_cast<int>(random.integer(2, 9));
    WrittenSchedule const schedule = random_schedule(random, ranks);
    Machine machine = slow_machine(static_cast<int>(random.integer(1, ranks)));
    machine.shared = random.integer(0, 1) == 1;
    Outcome const events = simulate_events(schedule, machine);
    std::vector<double> work(static_cast<std::size_t>(ranks), 0), bytes(work);
    Step step;
    double all = 0;
    for (std::int64_t s = 0; s < schedule.steps(); ++s) {
      schedule.fill(s, step);
      double longest = 0;
      for (std::size_t r = 0; r < work.size(); ++r) {
        double here = step.work[r];
        for (auto const& t : step.transfers)
          if (t.to[r] >= 0) {
            bytes[r] += t.bytes[r];
            here += 1 + t.bytes[r] * ranks / machine.inside.bandwidth;
          }
        work[r] += step.work[r] + (step.after.empty() ? 0 : step.after[r]);
        longest = std::max(longest, here + (step.after.empty() ? 0 : step.after[r]));
      }
      all += longest;
    }
    for (std::size_t r = 0; r < work.size(); ++r) {
      EXPECT_GE(events.finished[r], work[r] * (1 - 1e-12));
      EXPECT_GE(events.seconds, bytes[r] / machine.inside.bandwidth);
    }
    EXPECT_LE(events.seconds, all * (1 + 1e-12));
  }
}

TEST(Simulation, RepeatsBySeed) {
  plan::ContextSchedule const ring(Layout::ring, anchor_model(8192), h200x4(), 8);
  Disturbances d;
  d.jitter = 0.2;
  d.seed = 5;
  Outcome const first = simulate_events(ring, h200x4(), d),
                again = simulate_events(ring, h200x4(), d);
  EXPECT_EQ(first.finished, again.finished);  // the same bits
  d.seed = 6;
  EXPECT_NE(simulate_events(ring, h200x4(), d).seconds, first.seconds);
  // The mean of what is drawn.
  double sum = 0;
  constexpr int draws = 100000;
  for (int i = 0; i < draws; ++i) sum += d.jitter_of(i % 64, i / 64) - 1;
  EXPECT_NEAR(sum / draws, d.jitter, 5 * d.jitter / std::sqrt(draws));  // five standard deviations
}

TEST(Simulation, StragglersHoldUpARing) {
  Machine const machine = h200x4();
  plan::ContextSchedule const ring(Layout::ring, anchor_model(131072), machine, 4);
  double const calm = simulate(ring, machine).seconds;
  Disturbances d;
  d.ranks = {{3, 2}};
  double const slow = simulate(ring, machine, d).seconds;
  EXPECT_GT(slow, 1.9 * calm);
  EXPECT_LT(slow, 2.0 * calm);
  d = {};
  d.jitter = 0.1;
  EXPECT_GT(simulate(ring, machine, d).seconds, 1.1 * calm);  // everybody waits for whoever is last
}

}  // namespace
}  // namespace attikos::test
