// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Messages over MPI: Communicator(MPI_Comm). Included by communicator.hpp with Attikos::mpi.
#pragma once

#include <mpi.h>

#include <attikos/distributed/transport.hpp>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <string>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// A duplicate of the caller's communicator, which reports errors by return codes. MPI sees nothing
/// of an instance's queue: it is fenced before its memory is sent or received into.
class MpiTransport final : public Transport {
 public:
  MpiTransport(MPI_Comm comm, distributed::CommunicatorOptions const& options)
      : gpu_aware_(options.gpu_aware), time_out_(options.time_out) {
    check("MPI_Comm_dup", MPI_Comm_dup(comm, &comm_));
    check("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    check("MPI_Comm_rank", MPI_Comm_rank(comm_, &rank_));
    check("MPI_Comm_size", MPI_Comm_size(comm_, &size_));
  }
  ~MpiTransport() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized != 0) return;
    for (auto& [bytes, type] : row_types_) MPI_Type_free(&type);
    // Collective, and a rank that others gave up may not come.
    if (comm_ != MPI_COMM_NULL && !timed_out_) MPI_Comm_free(&comm_);
  }

  MPI_Comm handle() const { return comm_; }
  char const* name() const override { return "MPI"; }
  bool takes_device_memory() const override { return gpu_aware_; }
  bool asynchronous() const override { return false; }
  bool recording(QueueRef const&) const override { return false; }
  bool memory_is_in_use() const override { return timed_out_; }
  void check_queue(char const*, QueueRef const&) const override {}
  void poll() override {}
  void abandon() override { dead_ = true; }

  void check(char const* function, int code) override {
    if (code == MPI_SUCCESS) return;
    dead_ = true;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    raise<CommunicationError>("distributed: ", function, " on rank ", rank_, " of ", size_,
                              " failed: ", std::string(text, static_cast<std::size_t>(length)));
  }

  void start(QueueRef const& queue, int slot, char const* why, std::int64_t row_bytes,
             RankRows const& from, RankRows const& to) override {
    MPI_Datatype const row = row_type(row_bytes);
    MPI_Request* const pending = pending_[slot];
    queue.fence(why);
    check("MPI_Irecv",
          MPI_Irecv(from.data, static_cast<int>(from.rows), row, from.rank, 0, comm_, &pending[0]));
    check("MPI_Isend",
          MPI_Isend(to.data, static_cast<int>(to.rows), row, to.rank, 0, comm_, &pending[1]));
  }
  void progress(int slot) override {
    int done = 0;
    check("MPI_Testall", MPI_Testall(2, pending_[slot], &done, MPI_STATUSES_IGNORE));
  }
  void finish(QueueRef const&, int slot) override { complete("MPI_Waitall", 2, pending_[slot]); }

  void gather_rows(QueueRef const& queue, char const* why, std::int64_t row_bytes, void const* own,
                   void* all, RowParts const& parts) override {
    MPI_Datatype const row = row_type(row_bytes);
    int const mine = parts.rows[static_cast<std::size_t>(rank_)];
    int const *const rows = parts.rows.data(), *const places = parts.places.data();
    queue.fence(why);
    collective(
        "MPI_Allgatherv",
        [&] { return MPI_Allgatherv(own, mine, row, all, rows, places, row, comm_); },
        [&](MPI_Request* r) {
          return MPI_Iallgatherv(own, mine, row, all, rows, places, row, comm_, r);
        });
  }
  void exchange_rows(QueueRef const& queue, char const* why, std::int64_t row_bytes,
                     void const* from, RowParts const& sent, void* to,
                     RowParts const& got) override {
    MPI_Datatype const row = row_type(row_bytes);
    int const *const out = sent.rows.data(), *const out_at = sent.places.data();
    int const *const in = got.rows.data(), *const in_at = got.places.data();
    queue.fence(why);
    collective(
        "MPI_Alltoallv",
        [&] { return MPI_Alltoallv(from, out, out_at, row, to, in, in_at, row, comm_); },
        [&](MPI_Request* r) {
          return MPI_Ialltoallv(from, out, out_at, row, to, in, in_at, row, comm_, r);
        });
  }
  void fence(QueueRef const& queue, char const* why) override { queue.fence(why); }

  void minimum(std::int64_t const* mine, std::int64_t* least, int count) override {
    std::size_t const bytes = static_cast<std::size_t>(count) * sizeof(std::int64_t);
    char* const numbers = host_memory(2 * bytes);
    std::memcpy(numbers, mine, bytes);
    collective(
        "MPI_Allreduce",
        [&] { return MPI_Allreduce(numbers, numbers + bytes, count, MPI_INT64_T, MPI_MIN, comm_); },
        [&](MPI_Request* r) {
          return MPI_Iallreduce(numbers, numbers + bytes, count, MPI_INT64_T, MPI_MIN, comm_, r);
        });
    std::memcpy(least, numbers + bytes, bytes);
  }
  void gather(void const* mine, void* all, int bytes) override {
    auto const size = static_cast<std::size_t>(bytes);
    char* const numbers = host_memory(size * (static_cast<std::size_t>(size_) + 1));
    std::memcpy(numbers, mine, size);
    char* const result = numbers + size;
    collective(
        "MPI_Allgather",
        [&] { return MPI_Allgather(numbers, bytes, MPI_BYTE, result, bytes, MPI_BYTE, comm_); },
        [&](MPI_Request* r) {
          return MPI_Iallgather(numbers, bytes, MPI_BYTE, result, bytes, MPI_BYTE, comm_, r);
        });
    std::memcpy(all, result, size * static_cast<std::size_t>(size_));
  }
  void broadcast(void* data, int bytes, int root) override {
    char* const numbers = host_memory(static_cast<std::size_t>(bytes));
    std::memcpy(numbers, data, static_cast<std::size_t>(bytes));
    collective(
        "MPI_Bcast", [&] { return MPI_Bcast(numbers, bytes, MPI_BYTE, root, comm_); },
        [&](MPI_Request* r) { return MPI_Ibcast(numbers, bytes, MPI_BYTE, root, comm_, r); });
    std::memcpy(data, numbers, static_cast<std::size_t>(bytes));
  }

 private:
  /// MPI counts in an int: messages are rows, however long these are.
  MPI_Datatype row_type(std::int64_t bytes) {
    auto const [at, fresh] = row_types_.try_emplace(bytes, MPI_DATATYPE_NULL);
    if (fresh) {
      check("MPI_Type_contiguous",
            MPI_Type_contiguous(static_cast<int>(bytes), MPI_BYTE, &at->second));
      check("MPI_Type_commit", MPI_Type_commit(&at->second));
    }
    return at->second;
  }

  template <class Blocking, class Nonblocking>
  void collective(char const* function, Blocking const& blocking, Nonblocking const& nonblocking) {
    if (!time_out_) {
      check(function, blocking());
      return;
    }
    MPI_Request request = MPI_REQUEST_NULL;
    check(function, nonblocking(&request));
    complete(function, 1, &request);
  }

  void complete(char const* function, int count, MPI_Request* requests) {
    if (!time_out_) {
      check(function, MPI_Waitall(count, requests, MPI_STATUSES_IGNORE));
      return;
    }
    using Clock = std::chrono::steady_clock;
    auto const begin = Clock::now();
    for (;;) {
      int done = 0;
      check(function, MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE));
      if (done != 0) return;
      if (std::chrono::duration<double>(Clock::now() - begin).count() < *time_out_) continue;
      dead_ = timed_out_ = true;
      raise<CommunicationError>("distributed: ", function, " on rank ", rank_, " of ", size_,
                                " waited ", *time_out_,
                                " s; expected every rank to make the same call within the "
                                "communicator's time_out");
    }
  }

  /// What MPI reads and writes outlives a call that gives up.
  char* host_memory(std::size_t bytes) {
    if (host_memory_ == nullptr) host_memory_ = new std::vector<char>;
    if (host_memory_->size() < bytes) host_memory_->resize(bytes);
    return host_memory_->data();
  }
  struct FreeUnlessUsed {
    bool const& used;
    std::vector<char>*& memory;
    ~FreeUnlessUsed() {
      if (!used) delete memory;
    }
  };

  MPI_Comm comm_ = MPI_COMM_NULL;
  bool gpu_aware_;
  std::optional<double> time_out_;
  bool timed_out_ = false;
  MPI_Request pending_[slots][2] = {{MPI_REQUEST_NULL, MPI_REQUEST_NULL},
                                    {MPI_REQUEST_NULL, MPI_REQUEST_NULL},
                                    {MPI_REQUEST_NULL, MPI_REQUEST_NULL}};
  std::map<std::int64_t, MPI_Datatype> row_types_;
  std::vector<char>* host_memory_ = nullptr;
  FreeUnlessUsed free_{timed_out_, host_memory_};
};

template <>
struct TransportOf<MPI_Comm> {
  using type = MpiTransport;
};
template <>
struct HandleOf<MpiHandle> {
  static MPI_Comm of(Transport const& transport) {
    auto const* const mpi = dynamic_cast<MpiTransport const*>(&transport);
    if (mpi == nullptr)
      raise<Error>("distributed: the communicator is over ", transport.name(),
                   " and has no MPI_Comm");
    return mpi->handle();
  }
};
template <>
struct HandleOf<MPI_Comm> : HandleOf<MpiHandle> {};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
