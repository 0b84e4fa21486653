// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How errors become statuses: nothing is thrown across the C interface.
#pragma once

#include <attikos/attikos.h>

#include <atomic>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace attikos::c {

/// An error that this layer found itself, with its status.
class Failure : public std::runtime_error {
 public:
  Failure(attikos_status status, std::string const& message)
      : std::runtime_error(message), status_(status) {}
  attikos_status status() const noexcept { return status_; }

 private:
  attikos_status status_;
};

/// Throws a Failure with a message made of all parts, in the form of the library's own messages.
template <class... Parts>
[[noreturn]] void fail(attikos_status status, Parts const&... parts) {
  std::ostringstream message;
  message << "attikos::";
  (message << ... << parts);
  throw Failure(status, message.str());
}

/// Stores the calling thread's message and returns `status`.
attikos_status remember(attikos_status status, char const* message) noexcept;

/// Status of the exception being handled; its text becomes the thread's message.
attikos_status status_of_current_exception() noexcept;

/// Calls that have not returned: while there are any, the end of the process leaves Kokkos to them.
inline std::atomic<int> calls_under_way{0};

/// Runs `f` and turns whatever it throws into a status.
template <class F>
attikos_status guarded(F&& f) noexcept {
  struct UnderWay {
    UnderWay() { ++calls_under_way; }
    ~UnderWay() { --calls_under_way; }
  } const mark;
  try {
    std::forward<F>(f)();
    return ATTIKOS_SUCCESS;
  } catch (...) {
    return status_of_current_exception();
  }
}

}  // namespace attikos::c
