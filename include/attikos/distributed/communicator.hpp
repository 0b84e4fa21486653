// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Communicator: what distributed operations send through, made from the caller's MPI_Comm.
#pragma once

#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <attikos/core/error.hpp>
#include <attikos/distributed/machine_model.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// A message that could not be sent or received. What the outputs of the call hold is undefined,
/// and the communicator is dead: each later call on it throws this error, too.
class CommunicationError : public Error {
 public:
  using Error::Error;
};

namespace distributed {

/// What the caller knows of its MPI.
struct CommunicatorOptions {
  /// MPI takes pointers to the memory of devices. Never guessed: without it what lies on a device
  /// is copied through pinned memory of the host.
  bool gpu_aware = false;
  /// What strategies are chosen by; the same on all ranks.
  MachineModel machine = {};
};

/// A duplicate of the caller's communicator, with the memory that transfers need. Made once and
/// used for many calls; the caller owns it and ends it before MPI_Finalize.
///
/// Making one is collective over `comm`. The duplicate reports errors by return codes
/// (MPI_ERRORS_RETURN), which become CommunicationError; `comm` itself is left as it is. Calls on
/// one communicator are made by one host thread at a time, by all ranks in the same order, and on
/// execution space instances that are ordered among themselves. Buffers grow to what the largest
/// call needed and stay until the end.
class Communicator {
 public:
  explicit Communicator(MPI_Comm comm, CommunicatorOptions const& options = {})
      : options_(options) {
    check("MPI_Comm_dup", MPI_Comm_dup(comm, &comm_));
    check("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    check("MPI_Comm_rank", MPI_Comm_rank(comm_, &rank_));
    check("MPI_Comm_size", MPI_Comm_size(comm_, &size_));
  }
  Communicator(Communicator const&) = delete;
  Communicator& operator=(Communicator const&) = delete;
  ~Communicator() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (comm_ != MPI_COMM_NULL && finalized == 0) MPI_Comm_free(&comm_);
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm handle() const { return comm_; }
  bool gpu_aware() const { return options_.gpu_aware; }
  MachineModel const& machine() const { return options_.machine; }
  /// Whether no message has failed so far.
  bool alive() const { return !dead_; }

  /// Throws CommunicationError if the code is not MPI_SUCCESS.
  void check(char const* function, int code) {
    if (code == MPI_SUCCESS) return;
    dead_ = true;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    detail::raise<CommunicationError>(
        "distributed: ", function, " on rank ", rank_, " of ", size_,
        " failed: ", std::string(text, static_cast<std::size_t>(length)));
  }
  void check_alive(char const* operation) const {
    if (dead_)
      detail::raise<CommunicationError>(
          operation,
          ": a message of an earlier call failed, and the communicator is dead; expected "
          "a new one");
  }

  /// Memory of a space that stays the communicator's: at least `bytes`, aligned to 64. What it held
  /// is lost if it grows. Buffers of one call have different numbers.
  template <class MemorySpace>
  void* buffer(char const* operation, int number, std::size_t bytes) {
    for (Buffer& held : buffers_) {
      if (held.number != number || held.space != MemorySpace::name()) continue;
      if (held.bytes < bytes) {
        held.memory.reset();  // before more is asked for
        held.bytes = 0;
        held.memory = allocate<MemorySpace>(operation, bytes);
        held.bytes = bytes;
      }
      return held.memory.get();
    }
    buffers_.push_back(
        {number, MemorySpace::name(), bytes, allocate<MemorySpace>(operation, bytes)});
    return buffers_.back().memory.get();
  }
  /// Bytes of all buffers.
  std::size_t buffer_bytes() const {
    std::size_t sum = 0;
    for (Buffer const& held : buffers_) sum += held.bytes;
    return sum;
  }

 private:
  struct Buffer {
    int number;
    std::string space;
    std::size_t bytes;
    std::shared_ptr<void> memory;
  };

  template <class MemorySpace>
  static std::shared_ptr<void> allocate(char const* operation, std::size_t bytes) {
    try {
      Kokkos::View<char*, MemorySpace> const view(
          Kokkos::view_alloc("attikos::distributed", Kokkos::WithoutInitializing), bytes);
      return {view.data(), [view](void*) {}};
    } catch (std::exception const& error) {
      detail::raise<ResourceError>(
          operation, ": needs ", bytes,
          " bytes for transfers, which could not be allocated: ", error.what());
    }
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  CommunicatorOptions options_;
  bool dead_ = false;
  std::vector<Buffer> buffers_;
};

}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
