// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What ranks do one after the other: steps of work with transfers behind it, as data.
#pragma once

#include <attikos/config.hpp>
#include <cstdint>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {
namespace plan {

/// One message of each rank, or of some.
struct Transfers {
  std::vector<std::int32_t> to;  ///< of each rank; −1: it sends nothing
  std::vector<double> bytes;     ///< of each rank's message
  /// Whether the receive was posted long before, so that the message travels once it is sent and
  /// the receiver waits for it in a later step, which `collects`. Else it travels once both ranks
  /// have begun the step, and both wait for it at the end.
  bool posted = false;
};

/// What all ranks do in a step. A rank begins it when it has ended the one before: it hands its
/// messages over, works, waits for its messages, and copies what came.
struct Step {
  std::vector<double> work;   ///< seconds of each rank's processor, transfers going on
  std::vector<double> after;  ///< seconds of each rank once messages have come; empty: none
  std::vector<Transfers> transfers;
  bool collects = false;  ///< begins once everything `posted` has come
};

/// The steps of a call. Every rank has the same number of them.
class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual int ranks() const = 0;
  virtual std::int64_t steps() const = 0;
  /// Step `step` of all ranks, in place of what `result` held.
  virtual void fill(std::int64_t step, Step& result) const = 0;
};

/// Bytes on the rank that has most.
struct MemoryUse {
  double tensors = 0;   ///< the caller's
  double messages = 0;  ///< buffers of messages and what is put in order
  double states = 0;    ///< partial results
  double staging = 0;   ///< pinned memory of the host

  double device() const { return tensors + messages + states; }
};

}  // namespace plan
}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
