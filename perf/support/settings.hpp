// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the command line of a performance program chose, and what each program gives to main.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace attikos::measure {

using Exec = Kokkos::DefaultExecutionSpace;
using Memory = Exec::memory_space;

inline constexpr bool on_host = std::is_same_v<Memory, Kokkos::HostSpace>;

struct Settings {
  int rounds = 7;                          ///< how often ours and the peers take turns
  std::vector<std::string> peers = {"*"};  ///< "*" for all; none if empty

  bool wants(std::string_view peer) const {
    return std::any_of(peers.begin(), peers.end(),
                       [&](std::string const& wanted) { return wanted == "*" || wanted == peer; });
  }
};

/// Defined by each program: registers its cases and adds what it links to the context of the JSON
/// file.
void register_cases(Settings const& settings);

}  // namespace attikos::measure
