// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What distributed operations ask of whatever carries their messages. MPI and NCCL each answer in
/// a header of their own, so that neither is needed for the other.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/error.hpp>
#include <attikos/distributed/communicator_options.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// A message that could not be sent or received, or did not come in time. What the outputs of the
/// call hold is undefined, and the communicator is dead: each later call on it throws this error,
/// too.
class CommunicationError : public Error {
 public:
  using Error::Error;
};

namespace detail {

/// An execution space instance, whatever its type; valid as long as that is.
class QueueRef {
 public:
  static constexpr int host = -1;

  template <class Exec>
  explicit QueueRef(Exec const& exec)
      : exec_(&exec), fence_([](void const* instance, char const* why) {
          static_cast<Exec const*>(instance)->fence(why);
        }) {
#if defined(KOKKOS_ENABLE_CUDA)
    if constexpr (std::is_same_v<Exec, Kokkos::Cuda>) {
      stream_ = exec.cuda_stream();
      device_ = exec.cuda_device();
    }
#endif
  }

  void fence(char const* why) const { fence_(exec_, why); }
  /// Its CUDA stream; null for hosts.
  void* stream() const { return stream_; }
  /// Number of its CUDA device, or `host`.
  int device() const { return device_; }

 private:
  void const* exec_;
  void (*fence_)(void const*, char const*);
  void* stream_ = nullptr;
  int device_ = host;
};

/// Rows on their way to a rank or from it, dense.
struct RankRows {
  int rank = 0;
  void* data = nullptr;
  std::int64_t rows = 0;
};

/// The rows of a message that are for each rank, or from it, one rank's behind those of another.
struct RowParts {
  std::vector<int> rows, places;
  int total = 0;

  /// One row of each rank.
  static RowParts one_of_each(int ranks) {
    RowParts parts;
    for (int r = 0; r < ranks; ++r) parts.add(1);
    return parts;
  }
  void add(std::int64_t count) {
    rows.push_back(static_cast<int>(count));
    places.push_back(total);
    total += static_cast<int>(count);
  }
};

/// Messages between ranks, and the order that they have with the kernels of an instance.
///
/// What starts a message takes the instance whose kernels wrote what is sent and may still read
/// what is received into: the message moves after what the instance has been given so far, and
/// what it is given after finish() is executed once the message is there. Between two ranks
/// messages match in the order in which both start them. All ranks start the same in the same
/// order.
///
/// A failure throws CommunicationError, and the transport is dead.
class Transport {
 public:
  static constexpr int slots = 3;  ///< exchanges that may be under way at once

  Transport() = default;
  Transport(Transport const&) = delete;
  Transport& operator=(Transport const&) = delete;
  virtual ~Transport() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool alive() const { return !dead_; }

  virtual char const* name() const = 0;
  /// Whether messages lie in memory of the instance's space, be it a device.
  virtual bool takes_device_memory() const = 0;
  /// Whether finish() returns before the message is there, so that no rank knows of another's
  /// failure at the end of a call.
  virtual bool asynchronous() const = 0;
  /// Whether the call is being recorded rather than executed: then nobody can wait for it.
  virtual bool recording(QueueRef const& queue) const = 0;
  /// Whether messages that never ended may still write to memory that they were given.
  virtual bool memory_is_in_use() const = 0;
  /// Throws DeviceError if messages cannot follow this instance.
  virtual void check_queue(char const* operation, QueueRef const& queue) const = 0;
  /// Throws CommunicationError if the code, as functions of the library return it, is a failure.
  virtual void check(char const* function, int code) = 0;
  /// Looks whether something failed since, and throws then.
  virtual void poll() = 0;
  /// Ends it: this rank will not send what others wait for.
  virtual void abandon() = 0;

  // --- messages ---------------------------------------------------------------------------------
  /// Begins to receive rows from a rank, and to send rows to a rank.
  virtual void start(QueueRef const& queue, int slot, char const* why, std::int64_t row_bytes,
                     RankRows const& from, RankRows const& to) = 0;
  /// For those that move messages only while they are called.
  virtual void progress(int slot) = 0;
  /// No effect where nothing was started.
  virtual void finish(QueueRef const& queue, int slot) = 0;
  /// Every rank gets the rows of all. Started and finished.
  virtual void gather_rows(QueueRef const& queue, char const* why, std::int64_t row_bytes,
                           void const* own, void* all, RowParts const& parts) = 0;
  /// Every rank gets a part from each. Started and finished.
  virtual void exchange_rows(QueueRef const& queue, char const* why, std::int64_t row_bytes,
                             void const* from, RowParts const& sent, void* to,
                             RowParts const& got) = 0;
  /// Waits for the instance, and for messages as long as the time-out allows.
  virtual void fence(QueueRef const& queue, char const* why) = 0;

  // --- small numbers of the host, which are there on return -------------------------------------
  virtual void minimum(std::int64_t const* mine, std::int64_t* least, int count) = 0;
  virtual void gather(void const* mine, void* all, int bytes) = 0;
  virtual void broadcast(void* data, int bytes, int root) = 0;

 protected:
  int rank_ = 0, size_ = 1;
  bool dead_ = false;
};

/// `type`: the transport that is made of a handle. Specialized beside each.
template <class Handle>
struct TransportOf;
template <class Handle>
concept TransportHandle = requires {
  typename TransportOf<Handle>::type;
};

/// `of(transport)`: the handle that a transport has. MpiHandle stands for MPI_Comm where nobody may
/// name it.
struct MpiHandle;
template <class Handle>
struct HandleOf;

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
