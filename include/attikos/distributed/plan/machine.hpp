// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What a plan knows of a machine: processors, links and memory of ranks, in numbers that can be
/// measured. Without MPI and without Kokkos.
#pragma once

#include <attikos/core/error.hpp>
#include <attikos/distributed/machine_model.hpp>
#include <cmath>
#include <string>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {
namespace plan {

/// A message of b bytes takes latency + b/bandwidth seconds while it has the link for itself.
struct Link {
  double latency = 5e-6;    ///< seconds
  double bandwidth = 10e9;  ///< bytes a second, in each direction at once
};

/// Ranks that are all alike, on nodes that are all alike.
///
/// Inside a node each rank has a port of its own, `inside`, in both directions, or all ranks of a
/// node have one between them (`shared`). Nodes have network cards, each of them an `outside`; rank
/// i of a node sends and receives through card i mod cards. Messages that are on a port or a card
/// at once have equal parts of its bandwidth.
struct Machine {
  std::string name = "machine";

  // --- a rank
  // -------------------------------------------------------------------------------------
  double attention = 100e9;  ///< floating-point operations a second of attention over many keys
  double gemm = 100e9;       ///< floating-point operations a second of products of matrices
  /// What a row of queries costs beside its keys, in keys: attention over n keys then runs at
  /// attention/(1 + row_keys/n).
  double row_keys = 0;
  /// What a row that a mask cuts costs beyond the keys that it sees, in keys: the part of a tile
  /// that is computed in vain.
  double masked_keys = 0;
  /// Whether kernels of attention begin with the state that earlier blocks left, so that a later
  /// block's result needs no pass of its own that joins the two. Attikos's do not, so far.
  bool continues_states = false;
  double launch = 0;               ///< seconds of a kernel that computes nothing
  double memory_bandwidth = 20e9;  ///< bytes read plus bytes written a second
  double memory = 0;               ///< bytes; 0: not looked at
  /// Bytes a second between a device and the memory that MPI reads; 0: MPI reads the device's.
  double staging_bandwidth = 0;

  // --- nodes
  // --------------------------------------------------------------------------------------
  int ranks_per_node = 1;
  int cards = 1;        ///< network cards of a node
  bool shared = false;  ///< one port inside for all ranks of a node, such as a host's memory
  Link inside, outside;

  /// Seconds of a copy within a rank's memory.
  double copy_seconds(double bytes) const { return 2 * bytes / memory_bandwidth; }
  /// Seconds of a copy to or from the memory that MPI reads, where it is another.
  double stage_seconds(double bytes) const {
    return staging_bandwidth > 0 ? bytes / staging_bandwidth : 0;
  }

  /// What distributed::attention() chooses by, for CommunicatorOptions::machine: the links between
  /// nodes where `ranks` do not fit into one.
  MachineModel model(int ranks) const {
    Link const& link = ranks > ranks_per_node ? outside : inside;
    return {link.latency,   link.bandwidth, attention,       memory_bandwidth / 2,
            ranks_per_node, inside.latency, inside.bandwidth};
  }
};

namespace detail {

/// A field of a machine file, with its place for messages.
template <class Json>
class MachineFields {
 public:
  MachineFields(Json const& object, std::string where, std::string const& fields)
      : object_(object), where_(std::move(where)) {
    if (!object.is_object()) refuse(where_, object, "an object");
    for (auto const& item : object.items())
      if ((" " + fields + " ").find(" " + item.key() + " ") == std::string::npos)
        ::attikos::detail::raise<Error>("plan: machine file: ", path(item.key()),
                                        " is no field; expected one of ", fields);
  }

  double number(char const* name, double least, bool above, bool needed, double otherwise) const {
    if (!has(name, needed)) return otherwise;
    Json const& value = object_.at(name);
    std::string const expected =
        (above ? "a number greater than " : "a number of at least ") + text_of(least);
    if (!value.is_number()) refuse(path(name), value, expected);
    auto const got = value.template get<double>();
    if (!std::isfinite(got) || got < least || (above && got == least))
      refuse(path(name), value, expected);
    return got;
  }
  int count(char const* name, int otherwise) const {
    if (!has(name, true)) return otherwise;
    Json const& value = object_.at(name);
    constexpr double most = 1 << 20;
    if (!value.is_number_integer() || value.template get<double>() < 1 ||
        value.template get<double>() > most)
      refuse(path(name), value, "a whole number from 1 to 1048576");
    return value.template get<int>();
  }
  bool flag(char const* name) const {
    if (!has(name, false)) return false;
    if (!object_.at(name).is_boolean()) refuse(path(name), object_.at(name), "true or false");
    return object_.at(name).template get<bool>();
  }
  std::string text(char const* name, bool needed) const {
    if (!has(name, needed)) return "";
    if (!object_.at(name).is_string()) refuse(path(name), object_.at(name), "a string");
    return object_.at(name).template get<std::string>();
  }
  Link link() const {
    Link result;
    result.latency = number("latency", 0, false, true, 0);
    result.bandwidth = number("bandwidth", 0, true, true, 0);
    return result;
  }
  Json const& part(char const* name) const {
    has(name, true);
    return object_.at(name);
  }
  bool has(char const* name, bool needed) const {
    if (object_.contains(name)) return true;
    if (needed)
      ::attikos::detail::raise<Error>("plan: machine file: ", path(name), " is not there");
    return false;
  }

 private:
  std::string path(std::string const& name) const {
    return where_.empty() ? name : where_ + "." + name;
  }
  static std::string text_of(double x) {
    std::ostringstream text;
    text << x;
    return text.str();
  }
  [[noreturn]] static void refuse(std::string const& where, Json const& got,
                                  std::string const& expected) {
    constexpr std::size_t longest = 60;
    std::string shown = got.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (shown.size() > longest) shown = shown.substr(0, longest) + "…";
    ::attikos::detail::raise<Error>("plan: machine file: ", where.empty() ? "the whole" : where,
                                    " is ", shown, "; expected ", expected);
  }

  Json const& object_;
  std::string where_;
};

}  // namespace detail

/// A machine from what a machine file holds. Throws Error, which names the field, what was expected
/// and what came, for a field that is missing, unknown, of another type or out of its range.
///
/// \tparam Json nlohmann::json or nlohmann::ordered_json, which is the caller's to include
template <class Json>
Machine machine_of(Json const& file) {
  using detail::MachineFields;
  MachineFields<Json> const top(file, "", "name notes rank node inside outside");
  Machine m;
  m.name = top.text("name", true);
  top.text("notes", false);
  MachineFields<Json> const rank(top.part("rank"), "rank",
                                 "attention gemm row_keys masked_keys continues_states launch "
                                 "memory_bandwidth memory staging_bandwidth");
  m.attention = rank.number("attention", 0, true, true, 0);
  m.gemm = rank.number("gemm", 0, true, true, 0);
  m.row_keys = rank.number("row_keys", 0, false, false, 0);
  m.masked_keys = rank.number("masked_keys", 0, false, false, 0);
  m.continues_states = rank.flag("continues_states");
  m.launch = rank.number("launch", 0, false, false, 0);
  m.memory_bandwidth = rank.number("memory_bandwidth", 0, true, true, 0);
  m.memory = rank.number("memory", 0, false, false, 0);
  m.staging_bandwidth = rank.number("staging_bandwidth", 0, false, false, 0);
  MachineFields<Json> const node(top.part("node"), "node", "ranks cards shared");
  m.ranks_per_node = node.count("ranks", 1);
  m.cards = node.count("cards", 1);
  m.shared = node.flag("shared");
  m.inside = MachineFields<Json>(top.part("inside"), "inside", "latency bandwidth").link();
  m.outside = MachineFields<Json>(top.part("outside"), "outside", "latency bandwidth").link();
  return m;
}

/// The content of a machine file that machine_of() makes the same machine of.
template <class Json>
Json machine_file(Machine const& m) {
  Json file;
  file["name"] = m.name;
  file["rank"]["attention"] = m.attention;
  file["rank"]["gemm"] = m.gemm;
  file["rank"]["row_keys"] = m.row_keys;
  file["rank"]["masked_keys"] = m.masked_keys;
  file["rank"]["continues_states"] = m.continues_states;
  file["rank"]["launch"] = m.launch;
  file["rank"]["memory_bandwidth"] = m.memory_bandwidth;
  file["rank"]["memory"] = m.memory;
  file["rank"]["staging_bandwidth"] = m.staging_bandwidth;
  file["node"]["ranks"] = m.ranks_per_node;
  file["node"]["cards"] = m.cards;
  file["node"]["shared"] = m.shared;
  file["inside"]["latency"] = m.inside.latency;
  file["inside"]["bandwidth"] = m.inside.bandwidth;
  file["outside"]["latency"] = m.outside.latency;
  file["outside"]["bandwidth"] = m.outside.bandwidth;
  return file;
}

}  // namespace plan
}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
