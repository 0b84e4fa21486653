// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What would run, as text for the caller's memory.
#pragma once

#include <attikos/core/dispatch/dispatch.hpp>

#include "text_result.hpp"

namespace attikos::c {

/// `attikos_explain_<name>`: lets `run(log)` explain a call and gives the caller the text.
template <class Run>
void explain_into(TextResult const& result, char const* operation, Run const& run) {
  result.check(operation);
  Explanation log;
  run(&log);
  result.put(log.to_string());
}

}  // namespace attikos::c
