// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Ports and cards that messages share, ways around links that failed, and what else disturbs
/// ranks.
#pragma once

#include <algorithm>
#include <array>
#include <attikos/distributed/plan/machine.hpp>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {
namespace plan {

/// A rank whose work takes `factor` times as long.
struct SlowRank {
  int rank = 0;
  double factor = 1;
};
/// A link, both directions, that has `factor` of its bandwidth; 0: it failed. Between two ranks of
/// one node, or between two nodes.
struct SlowLink {
  bool nodes = false;
  int from = 0, to = 0;
  double factor = 1;
};
/// A network card that has `factor` of its bandwidth; 0: it failed.
struct SlowCard {
  int node = 0, card = 0;
  double factor = 1;
};

/// What is not as the machine says.
struct Disturbances {
  std::vector<SlowRank> ranks;
  std::vector<SlowLink> links;
  std::vector<SlowCard> cards;
  /// The work of a rank's step takes 1 + jitter·x times as long, x drawn from the exponential
  /// distribution of mean 1 by `seed`, rank and step.
  double jitter = 0;
  std::uint64_t seed = 0;

  bool none() const { return ranks.empty() && links.empty() && cards.empty() && jitter == 0; }

  /// Factor of a rank without jitter.
  double slowness(int rank) const {
    double factor = 1;
    for (SlowRank const& slow : ranks)
      if (slow.rank == rank) factor *= slow.factor;
    return factor;
  }
  double jitter_of(int rank, std::int64_t step) const {
    if (jitter == 0) return 1;
    // SplitMix64's mixing of a counter: the same number whoever asks first.
    std::uint64_t x = seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank) + 1;
    x = mixed(x) + static_cast<std::uint64_t>(step) * 0x9e3779b97f4a7c15u;
    double const unit = static_cast<double>(mixed(x) >> 11) * 0x1p-53;  // in [0, 1)
    return 1 - jitter * std::log1p(-unit);
  }

 private:
  static std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
};

/// The way of a message: what it shares with others, and what it takes alone.
struct Route {
  std::array<std::int32_t, 4> ports{};
  int count = 0;
  double latency = 0;
  double most = 0;  ///< bytes a second where nothing else is on its ports
};

/// The links of some ranks of a machine.
class Network {
 public:
  Network(Machine const& machine, int ranks, Disturbances const& disturbances)
      : machine_(machine), ranks_(ranks), disturbances_(disturbances) {
    nodes_ = (ranks + machine.ranks_per_node - 1) / machine.ranks_per_node;
    inside_ = machine.shared ? nodes_ : 2 * ranks;
  }

  /// The number of ports, each of which messages share.
  int ports() const { return inside_ + 2 * nodes_ * machine_.cards; }
  /// Bytes a second that a port has for all of its messages.
  double capacity(int port) const {
    if (port < inside_) return machine_.inside.bandwidth;
    int const card = (port - inside_) / 2;
    return machine_.outside.bandwidth * card_factor(card / machine_.cards, card % machine_.cards);
  }

  /// The way from a rank to another one: over a third of the same node, or a third node, where the
  /// link between them failed, and over another card of a node whose card failed. None if there is
  /// none; why_no_route() then says what failed.
  std::optional<Route> route(int from, int to) const {
    int const a = from / machine_.ranks_per_node, b = to / machine_.ranks_per_node;
    return a == b ? inside_route(from, to) : outside_route(from, to);
  }
  std::string why_no_route(int from, int to) const {
    int const a = from / machine_.ranks_per_node, b = to / machine_.ranks_per_node;
    std::string const message =
        "no way from rank " + std::to_string(from) + " to rank " + std::to_string(to) + ": ";
    if (a == b)
      return message + "the link between them failed, and no other rank of node " +
             std::to_string(a) + " has links to both";
    for (int const node : {a, b})
      if (card_of(node, 0) < 0)
        return message + "all network cards of node " + std::to_string(node) + " failed";
    return message + "the link between node " + std::to_string(a) + " and node " +
           std::to_string(b) + " failed, and no other node has links to both";
  }

 private:
  double link_factor(bool nodes, int a, int b) const {
    double factor = 1;
    for (SlowLink const& link : disturbances_.links)
      if (link.nodes == nodes &&
          ((link.from == a && link.to == b) || (link.from == b && link.to == a)))
        factor *= link.factor;
    return factor;
  }
  double card_factor(int node, int card) const {
    double factor = 1;
    for (SlowCard const& slow : disturbances_.cards)
      if (slow.node == node && slow.card == card) factor *= slow.factor;
    return factor;
  }
  /// The card of the rank at `place` of a node, or the next one that works, or −1.
  int card_of(int node, int place) const {
    for (int i = 0; i < machine_.cards; ++i) {
      int const card = (place + i) % machine_.cards;
      if (card_factor(node, card) > 0) return card;
    }
    return -1;
  }

  void add_inside(Route& route, int from, int to) const {
    if (machine_.shared) {
      add(route, from / machine_.ranks_per_node);
      return;
    }
    add(route, 2 * from);
    add(route, 2 * to + 1);
  }
  static void add(Route& route, int port) {
    route.ports[static_cast<std::size_t>(route.count++)] = port;
  }
  std::optional<Route> inside_route(int from, int to) const {
    Route route;
    double const direct = link_factor(false, from, to);
    route.latency = machine_.inside.latency;
    route.most = machine_.inside.bandwidth * direct;
    if (direct > 0) {
      add_inside(route, from, to);
      return route;
    }
    int const first = from / machine_.ranks_per_node * machine_.ranks_per_node;
    int best = -1;
    double best_factor = 0;
    for (int c = first; c < std::min(first + machine_.ranks_per_node, ranks_); ++c) {
      if (c == from || c == to) continue;
      double const factor = std::min(link_factor(false, from, c), link_factor(false, c, to));
      if (factor > best_factor) best = c, best_factor = factor;
    }
    if (best < 0) return std::nullopt;
    route.latency *= 2;
    route.most = machine_.inside.bandwidth * best_factor;
    add_inside(route, from, best);
    add_inside(route, best, to);
    return route;
  }

  std::int32_t card_port(int node, int card, int direction) const {
    return inside_ + 2 * (node * machine_.cards + card) + direction;
  }
  std::optional<Route> outside_route(int from, int to) const {
    int const a = from / machine_.ranks_per_node, b = to / machine_.ranks_per_node;
    int const place_a = from % machine_.ranks_per_node, place_b = to % machine_.ranks_per_node;
    int const card_a = card_of(a, place_a), card_b = card_of(b, place_b);
    if (card_a < 0 || card_b < 0) return std::nullopt;
    Route route;
    double const direct = link_factor(true, a, b);
    route.latency = machine_.outside.latency;
    route.most = machine_.outside.bandwidth * direct;
    add(route, card_port(a, card_a, 0));
    if (direct == 0) {
      int best = -1;
      double best_factor = 0;
      for (int c = 0; c < nodes_; ++c) {
        if (c == a || c == b || card_of(c, place_a) < 0) continue;
        double const factor = std::min(link_factor(true, a, c), link_factor(true, c, b));
        if (factor > best_factor) best = c, best_factor = factor;
      }
      if (best < 0) return std::nullopt;
      route.latency *= 2;
      route.most = machine_.outside.bandwidth * best_factor;
      add(route, card_port(best, card_of(best, place_a), 1));
      add(route, card_port(best, card_of(best, place_a), 0));
    }
    add(route, card_port(b, card_b, 1));
    return route;
  }

  Machine machine_;
  int ranks_, nodes_ = 1, inside_ = 0;
  Disturbances disturbances_;
};

/// Throws Error for a disturbance that names what is not there, or has a factor that cannot be.
inline void check_disturbances(Disturbances const& d, Machine const& machine, int ranks) {
  int const nodes = (ranks + machine.ranks_per_node - 1) / machine.ranks_per_node;
  auto const check = [](char const* what, char const* field, double got, double least,
                        double below) {
    if (!(got >= least && got < below))
      ::attikos::detail::raise<Error>("plan: ", field, " of ", what, " is ", got,
                                      "; expected at least ", least, " and less than ", below);
  };
  constexpr double most = 1e9;
  for (SlowRank const& slow : d.ranks) {
    check("a slow rank", "rank", slow.rank, 0, ranks);
    check("a slow rank", "factor", slow.factor, 0, most);
  }
  for (SlowLink const& slow : d.links) {
    check("a slow link", "from", slow.from, 0, slow.nodes ? nodes : ranks);
    check("a slow link", "to", slow.to, 0, slow.nodes ? nodes : ranks);
    check("a slow link", "factor", slow.factor, 0, most);
    if (!slow.nodes && slow.from / machine.ranks_per_node != slow.to / machine.ranks_per_node)
      ::attikos::detail::raise<Error>("plan: a slow link goes from rank ", slow.from, " to rank ",
                                      slow.to, "; expected two ranks of one node, or two nodes");
  }
  for (SlowCard const& slow : d.cards) {
    check("a slow card", "node", slow.node, 0, nodes);
    check("a slow card", "card", slow.card, 0, machine.cards);
    check("a slow card", "factor", slow.factor, 0, most);
  }
  check("the disturbances", "jitter", d.jitter, 0, most);
}

}  // namespace plan
}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
