// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Communicator: what distributed operations send through, made from the caller's MPI_Comm or
/// ncclComm_t.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/error.hpp>
#include <attikos/distributed/communicator_options.hpp>
#include <attikos/distributed/transport.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

// The CMake targets say which of them there are.
#if defined(ATTIKOS_WITH_NCCL)
#include <attikos/distributed/nccl_transport.hpp>
#endif
#if defined(ATTIKOS_WITH_MPI) || !defined(ATTIKOS_WITH_NCCL)
#include <attikos/distributed/mpi_transport.hpp>
#endif

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {

/// What calls of one group of ranks send through, with the memory that transfers need. Made once
/// and used for many calls.
///
/// Of an MPI_Comm (component `mpi`): a duplicate, which reports errors by return codes
/// (MPI_ERRORS_RETURN) that become CommunicationError; the caller's is left as it is. Making one is
/// collective; end it before MPI_Finalize.
///
/// Of an ncclComm_t (component `nccl`): the caller's own, used on a stream of this object's that
/// is ordered with the execution space instance by CUDA events, never by the host. Calls return
/// without waiting for the device, unless ranks agree (`CommunicatorOptions::agree`); fence()
/// waits, and notices a rank that has gone. The instances are of the CUDA device that the
/// ncclComm_t is for. End it before the ncclComm_t, after the instances' work.
///
/// Calls on one communicator are made by one host thread at a time, by all ranks in the same
/// order, and on execution space instances that are ordered among themselves. Buffers grow to what
/// the largest call needed and stay until the end.
class Communicator {
 public:
  /// \param comm MPI_Comm, or ncclComm_t
  template <::attikos::detail::TransportHandle Handle>
  explicit Communicator(Handle comm, CommunicatorOptions const& options = {})
      : options_(options),
        transport_(std::make_unique<typename ::attikos::detail::TransportOf<Handle>::type>(
            comm, options)) {}
  Communicator(Communicator const&) = delete;
  Communicator& operator=(Communicator const&) = delete;
  ~Communicator() {
    // Messages that never ended may still be written to it.
    if (transport_->memory_is_in_use()) static_cast<void>(new auto(std::move(buffers_)));
  }

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  /// The duplicate (`handle()`), or what it was made of (`handle<ncclComm_t>()`).
  template <class Handle = ::attikos::detail::MpiHandle>
  auto handle() const {
    return ::attikos::detail::HandleOf<Handle>::of(*transport_);
  }
  /// Whether messages lie in memory of devices.
  bool gpu_aware() const { return transport_->takes_device_memory(); }
  MachineModel const& machine() const { return options_.machine; }
  CommunicatorOptions const& options() const { return options_; }
  /// Whether no message has failed so far.
  bool alive() const { return transport_->alive(); }

  /// Waits for the kernels of an execution space instance. Over NCCL throws CommunicationError
  /// when another rank has gone or the time-out is over, where `exec.fence()` would wait for ever.
  template <class Exec>
  void fence(Exec const& exec) {
    check_alive("distributed::Communicator::fence");
    transport_->fence(::attikos::detail::QueueRef(exec), "attikos::distributed: fence");
  }

  /// Throws CommunicationError if the code, of a function of MPI or of NCCL, is a failure.
  void check(char const* function, int code) { transport_->check(function, code); }
  void check_alive(char const* operation) {
    if (!alive())
      detail::raise<CommunicationError>(
          operation,
          ": a message of an earlier call failed, and the communicator is dead; expected "
          "a new one");
    transport_->poll();
  }

  ::attikos::detail::Transport& transport() { return *transport_; }
  /// Fingerprints of the calls that ranks have agreed on; see Agree::first_call_alike.
  std::set<std::uint64_t>& agreed() { return agreed_; }
  /// What this rank has to tell the others when they next agree: that it failed.
  bool& failed() { return failed_; }

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

  CommunicatorOptions options_;
  std::vector<Buffer> buffers_;  // outlive the transport
  std::unique_ptr<::attikos::detail::Transport> transport_;
  std::set<std::uint64_t> agreed_;
  bool failed_ = false;
};

}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
