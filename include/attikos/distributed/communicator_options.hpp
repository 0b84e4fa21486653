// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What a communicator may be told when it is made.
#pragma once

#include <attikos/distributed/machine_model.hpp>
#include <cstdint>
#include <optional>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {

/// When ranks compare what they are asked for. It is one reduction of 672 bytes before the first
/// message of a call, and by it one rank's error becomes that of all. Over NCCL the host then waits
/// until the transfers of earlier calls are done and the device has answered; without it a call
/// only fills queues.
enum class Agree : std::uint8_t {
  every_call,  ///< whatever one rank does wrong, all throw the same, and go on together
  /// Calls with the operation, shapes, types, options and shards of one that was agreed on are
  /// taken to be alike. Any other call is agreed on, and so is one whose arguments do not fit:
  /// where that is so on some ranks alone, they wait for the others until the time-out.
  first_call_alike,
  /// Nothing is compared. A rank whose arguments do not fit throws by itself, and sends nothing.
  never
};

/// What the caller knows and wants, the same on all ranks.
struct CommunicatorOptions {
  /// MPI takes pointers to the memory of devices. Never guessed: without it what lies on a device
  /// is copied through pinned memory of the host. NCCL does in any case.
  bool gpu_aware = false;
  /// What strategies are chosen by.
  MachineModel machine = {};
  Agree agree = Agree::every_call;
  /// Seconds that a rank waits for others before it throws CommunicationError. None: over MPI as
  /// long as it takes, by MPI's blocking calls; over NCCL 600. What the instance has to do before
  /// counts, too.
  std::optional<double> time_out = {};
  /// The communicator ends the caller's ncclComm_t: with its own end, and on a failure.
  bool owns_nccl = false;
  /// A failure ends the caller's ncclComm_t (ncclCommAbort), so that kernels of the device which
  /// wait for other ranks end, too. The caller must not use it, or end it, once alive() is false.
  bool aborts_nccl = false;
};

}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
