// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// A schedule event by event: ranks, their messages and the ports that messages share.
#pragma once

#include <attikos/distributed/plan/network.hpp>
#include <attikos/distributed/plan/step.hpp>
#include <deque>
#include <queue>
#include <string>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {
namespace plan {

/// What became of a schedule.
struct Outcome {
  double seconds = 0;            ///< until the last rank has ended
  double work = 0;               ///< of it, seconds of work and copies on the rank that has most
  double exposed = 0;            ///< the rest: that rank waited for messages or other ranks
  std::vector<double> finished;  ///< of each rank
  std::string failure;           ///< not empty: a message had no way; nothing else counts then

  void summarize(std::vector<double> const& busy) {
    for (std::size_t r = 0; r < finished.size(); ++r) {
      seconds = std::max(seconds, finished[r]);
      work = std::max(work, busy[r]);
    }
    exposed = std::max(0.0, seconds - work);
  }
};

namespace detail {

class EventSimulation {
 public:
  EventSimulation(Schedule const& schedule, Machine const& machine,
                  Disturbances const& disturbances)
      : schedule_(schedule),
        disturbances_(disturbances),
        network_(machine, schedule.ranks(), disturbances),
        on_port_(static_cast<std::size_t>(network_.ports())),
        ranks_(static_cast<std::size_t>(schedule.ranks())),
        busy_(ranks_.size(), 0) {
    outcome_.finished.assign(ranks_.size(), 0);
    needed_.emplace_back(ranks_.size(), 0);
    arrived_.emplace_back(ranks_.size(), 0);
  }

  Outcome run() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) push(0, Event::begin, static_cast<int>(r), 0);
    while (!events_.empty() && outcome_.failure.empty()) {
      Event const event = events_.top();
      events_.pop();
      switch (event.kind) {
        case Event::begin:
          begin(event.id, event.time);
          break;
        case Event::worked:
          part_done(event.id, event.time);
          break;
        case Event::starts:
          start(event.id, event.time);
          break;
        case Event::ends:
          if (flow(event.id).version == event.version) end(event.id, event.time);
          break;
      }
    }
    if (outcome_.failure.empty()) outcome_.summarize(busy_);
    return std::move(outcome_);
  }

 private:
  struct Event {
    enum Kind : std::uint8_t { begin, worked, starts, ends };
    double time;
    std::uint64_t number;  ///< of two at the same time the one that was found first
    Kind kind;
    int id;
    std::uint32_t version;

    bool operator<(Event const& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };
  struct Rank {
    std::int64_t step = -1;
    int pending = 0;  ///< work and messages that its step waits for
    bool collecting = false;
  };
  /// A step that some rank has begun and not all have ended.
  struct Live {
    Step step;
    std::vector<std::vector<std::int32_t>> from;  ///< of each rank, of each of `transfers`
    std::vector<char> begun;
    std::size_t left = 0;   ///< ranks that have not ended it
    std::size_t epoch = 0;  ///< which collection its posted messages are for
  };
  struct Flow {
    int from = 0, to = 0;
    std::int64_t step = 0;
    std::size_t epoch = 0;
    bool posted = false;
    double left = 0, rate = 0, since = 0;
    std::uint32_t version = 0;
    Route route;
  };

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  Flow& flow(int id) { return flows_[index(id)]; }
  void push(double time, Event::Kind kind, int id, std::uint32_t version) {
    events_.push({time, count_++, kind, id, version});
  }

  Live& live(std::int64_t step) {
    while (first_ + static_cast<std::int64_t>(live_.size()) <= step) {
      Live& next = live_.emplace_back();
      schedule_.fill(first_ + static_cast<std::int64_t>(live_.size()) - 1, next.step);
      if (next.step.collects) {
        ++collections_;
        needed_.emplace_back(ranks_.size(), 0);
        arrived_.emplace_back(ranks_.size(), 0);
      }
      next.epoch = collections_;
      next.left = ranks_.size();
      next.begun.assign(ranks_.size(), 0);
      for (Transfers const& t : next.step.transfers) {
        next.from.emplace_back(ranks_.size(), -1);
        for (std::size_t r = 0; r < ranks_.size(); ++r) {
          if (t.to[r] < 0) continue;
          if (t.posted)
            ++needed_[next.epoch][index(t.to[r])];
          else
            next.from.back()[index(t.to[r])] = static_cast<std::int32_t>(r);
        }
      }
    }
    return live_[static_cast<std::size_t>(step - first_)];
  }

  void begin(int r, double time) {
    Rank& rank = ranks_[index(r)];
    if (++rank.step == schedule_.steps()) {
      outcome_.finished[index(r)] = time;
      return;
    }
    Live const& at = live(rank.step);
    rank.collecting = at.step.collects && !collected(r, at.epoch - 1);
    if (!rank.collecting) work(r, time);
  }
  bool collected(int r, std::size_t epoch) const {
    return arrived_[epoch][index(r)] == needed_[epoch][index(r)];
  }

  void work(int r, double time) {
    Rank& rank = ranks_[index(r)];
    Live& at = live(rank.step);
    at.begun[index(r)] = 1;
    rank.pending = 1;
    double const seconds =
        at.step.work[index(r)] * disturbances_.slowness(r) * disturbances_.jitter_of(r, rank.step);
    busy_[index(r)] += seconds;
    push(time + seconds, Event::worked, r, 0);
    for (std::size_t k = 0; k < at.step.transfers.size(); ++k) {
      Transfers const& t = at.step.transfers[k];
      int const to = t.to[index(r)], from = at.from[k][index(r)];
      if (to >= 0) {
        ++rank.pending;
        if (t.posted || at.begun[index(to)] != 0) send(r, to, k, time);
      }
      if (from >= 0) {
        ++rank.pending;
        if (at.begun[index(from)] != 0) send(from, r, k, time);
      }
    }
  }

  void send(int from, int to, std::size_t k, double time) {
    auto const route = network_.route(from, to);
    if (!route) {
      outcome_.failure = network_.why_no_route(from, to);
      return;
    }
    std::int64_t const step = ranks_[index(from)].step;
    Live const& at = live(step);
    int id = static_cast<int>(flows_.size());
    if (free_.empty()) {
      flows_.emplace_back();
    } else {
      id = free_.back();
      free_.pop_back();
    }
    Flow& f = flow(id);
    std::uint32_t const version = f.version + 1;
    f = {from,
         to,
         step,
         at.epoch,
         at.step.transfers[k].posted,
         at.step.transfers[k].bytes[index(from)],
         0,
         0,
         version,
         *route};
    push(time + route->latency, Event::starts, id, version);
  }

  void start(int id, double time) {
    Flow& f = flow(id);
    f.since = time;
    for (int p = 0; p < f.route.count; ++p) on_port_[port(f, p)].push_back(id);
    share(f.route, time);
  }
  void end(int id, double time) {
    Flow const f = flow(id);
    for (int p = 0; p < f.route.count; ++p) {
      auto& all = on_port_[port(f, p)];
      *std::find(all.begin(), all.end(), id) = all.back();
      all.pop_back();
    }
    ++flow(id).version;
    free_.push_back(id);
    share(f.route, time);
    part_done(f.from, time);
    if (!f.posted) {
      part_done(f.to, time);
      return;
    }
    ++arrived_[f.epoch][index(f.to)];
    Rank& rank = ranks_[index(f.to)];
    if (rank.collecting && live(rank.step).epoch == f.epoch + 1 && collected(f.to, f.epoch)) {
      rank.collecting = false;
      work(f.to, time);
    }
  }
  static std::size_t port(Flow const& f, int p) {
    return static_cast<std::size_t>(f.route.ports[index(p)]);
  }

  /// After a message has come to its ports or left them: what all that are there have now.
  void share(Route const& changed, double time) {
    for (int c = 0; c < changed.count; ++c) {
      for (int const id : on_port_[static_cast<std::size_t>(changed.ports[index(c)])]) {
        Flow& f = flow(id);
        double rate = f.route.most;
        for (int p = 0; p < f.route.count; ++p)
          rate = std::min(rate, network_.capacity(static_cast<int>(port(f, p))) /
                                    static_cast<double>(on_port_[port(f, p)].size()));
        f.left = std::max(0.0, f.left - f.rate * (time - f.since));
        f.since = time;
        f.rate = rate;
        push(time + f.left / rate, Event::ends, id, ++f.version);
      }
    }
  }

  void part_done(int r, double time) {
    Rank& rank = ranks_[index(r)];
    if (--rank.pending > 0) return;
    Live& at = live(rank.step);
    double const after = at.step.after.empty() ? 0 : at.step.after[index(r)];
    busy_[index(r)] += after;
    push(time + after, Event::begin, r, 0);
    --at.left;
    while (!live_.empty() && live_.front().left == 0) {
      live_.pop_front();
      ++first_;
    }
  }

  Schedule const& schedule_;
  Disturbances const& disturbances_;
  Network network_;
  std::priority_queue<Event> events_;
  std::uint64_t count_ = 0;
  std::vector<Flow> flows_;
  std::vector<int> free_;
  std::vector<std::vector<int>> on_port_;
  std::vector<Rank> ranks_;
  std::vector<double> busy_;
  std::deque<Live> live_;
  std::int64_t first_ = 0;
  std::size_t collections_ = 0;
  std::vector<std::vector<int>> needed_, arrived_;  ///< posted messages, by collection and rank
  Outcome outcome_;
};

}  // namespace detail

/// A schedule event by event. A port's bandwidth is at any time divided equally among the messages
/// that are on it, and a message has the least of what its ports give it; what one cannot use is
/// not given to others. Deterministic: the same arguments give the same bits. An event costs O(log
/// ranks) and, on ports that are shared, as much for each message there.
inline Outcome simulate_events(Schedule const& schedule, Machine const& machine,
                               Disturbances const& disturbances = {}) {
  check_disturbances(disturbances, machine, schedule.ranks());
  return detail::EventSimulation(schedule, machine, disturbances).run();
}

}  // namespace plan
}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
