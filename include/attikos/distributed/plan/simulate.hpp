// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Schedules in virtual time: event by event with links that are shared by what is on them at the
/// time, or step by step for thousands of ranks.
#pragma once

#include <attikos/distributed/plan/event_simulation.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {
namespace plan {

/// A schedule step by step, as a recurrence over the ranks: O(ranks · steps), a few nanoseconds
/// each.
///
/// With e[r] the end of the step before, a message from r to p travels from max(e[r], e[p]) on for
/// latency + bytes/rate, and r ends the step when its work and its messages have ended. Exact, and
/// the same numbers as simulate_events() gives but for rounding, where no two messages are on one
/// port at a time, whatever the jitter and whoever is slow. Where they are, a port's bandwidth is
/// divided by the messages that all ranks together have on it in the step, as if they were all
/// there for its whole length: exact if they begin together, too slow if they do not. Messages of
/// different steps are never on a port at once here; `posted` ones of ranks that have drifted apart
/// can be, so that events take longer than steps: tensor_parallel between nodes by up to a half.
inline Outcome simulate_steps(Schedule const& schedule, Machine const& machine,
                              Disturbances const& disturbances = {}) {
  int const n = schedule.ranks();
  check_disturbances(disturbances, machine, n);
  Network const network(machine, n, disturbances);
  auto const size = static_cast<std::size_t>(n);
  std::vector<double> begin(size, 0), end(size, 0), arrived(size, 0), busy(size, 0);
  std::vector<double> slowness(size, 1);
  for (int r = 0; r < n; ++r) slowness[static_cast<std::size_t>(r)] = disturbances.slowness(r);
  struct Flow {
    double latency, seconds;  // the latter of a byte
  };
  std::vector<std::vector<std::int32_t>> known;  // receivers that flows were worked out for
  std::vector<std::vector<Flow>> flows;
  bool const calm = disturbances.none();
  Outcome outcome;

  // Flows of a step whose messages have other ways than those of the step before.
  auto const work_out = [&](Step const& step) {
    bool same = known.size() == step.transfers.size();
    for (std::size_t k = 0; same && k < known.size(); ++k) same = known[k] == step.transfers[k].to;
    if (same) return true;
    known.clear();
    std::vector<int> messages(static_cast<std::size_t>(network.ports()), 0);
    std::vector<std::vector<Route>> routes;
    for (Transfers const& t : step.transfers) {
      known.push_back(t.to);
      routes.emplace_back(size);
      for (int r = 0; r < n; ++r) {
        auto const i = static_cast<std::size_t>(r);
        if (t.to[i] < 0) continue;
        auto const route = network.route(r, t.to[i]);
        if (!route) {
          outcome.failure = network.why_no_route(r, t.to[i]);
          return false;
        }
        routes.back()[i] = *route;
        for (int p = 0; p < route->count; ++p)
          ++messages[static_cast<std::size_t>(route->ports[static_cast<std::size_t>(p)])];
      }
    }
    flows.assign(step.transfers.size(), std::vector<Flow>(size));
    for (std::size_t k = 0; k < routes.size(); ++k)
      for (std::size_t i = 0; i < size; ++i) {
        Route const& route = routes[k][i];
        double rate = route.most;
        for (int p = 0; p < route.count; ++p) {
          int const port = route.ports[static_cast<std::size_t>(p)];
          rate = std::min(rate, network.capacity(port) / messages[static_cast<std::size_t>(port)]);
        }
        flows[k][i] = {route.latency, 1 / rate};
      }
    return true;
  };

  Step step;
  for (std::int64_t s = 0; s < schedule.steps(); ++s) {
    schedule.fill(s, step);
    if (!work_out(step)) return outcome;
    for (std::size_t i = 0; i < size; ++i) {
      if (step.collects) begin[i] = std::max(begin[i], arrived[i]);
      double const work =
          calm ? step.work[i]
               : step.work[i] * slowness[i] * disturbances.jitter_of(static_cast<int>(i), s);
      end[i] = begin[i] + work;
      busy[i] += work;
    }
    for (std::size_t k = 0; k < step.transfers.size(); ++k) {
      Transfers const& t = step.transfers[k];
      for (std::size_t i = 0; i < size; ++i) {
        if (t.to[i] < 0) continue;
        auto const p = static_cast<std::size_t>(t.to[i]);
        Flow const& flow = flows[k][i];
        double const from = t.posted ? begin[i] : std::max(begin[i], begin[p]);
        double const there = from + flow.latency + t.bytes[i] * flow.seconds;
        end[i] = std::max(end[i], there);
        double& other = t.posted ? arrived[p] : end[p];
        other = std::max(other, there);
      }
    }
    if (!step.after.empty())
      for (std::size_t i = 0; i < size; ++i) {
        end[i] += step.after[i];
        busy[i] += step.after[i];
      }
    std::swap(begin, end);
  }
  outcome.finished = std::move(begin);
  outcome.summarize(busy);
  return outcome;
}

/// Schedules of more rank steps than this are simulated by simulate_steps().
inline constexpr std::int64_t most_events = std::int64_t{1} << 18;

/// simulate_events() of what has at most `most_events` rank steps, simulate_steps() of more.
inline Outcome simulate(Schedule const& schedule, Machine const& machine,
                        Disturbances const& disturbances = {}) {
  if (schedule.ranks() * schedule.steps() <= most_events)
    return simulate_events(schedule, machine, disturbances);
  return simulate_steps(schedule, machine, disturbances);
}

}  // namespace plan
}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
