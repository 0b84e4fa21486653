// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Messages over NCCL: Communicator(ncclComm_t). Included by communicator.hpp with Attikos::nccl.
#pragma once

#include <nccl.h>

#include <algorithm>
#include <attikos/distributed/transport.hpp>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// The caller's ncclComm_t, on a stream of the transport's own. That stream and the instance's wait
/// for one another by events: the host fills both and goes on.
class NcclTransport final : public Transport {
 public:
  NcclTransport(ncclComm_t comm, distributed::CommunicatorOptions const& options)
      : comm_(comm),
        time_out_(options.time_out.value_or(600)),
        owns_(options.owns_nccl),
        aborts_(options.owns_nccl || options.aborts_nccl) {
    check("ncclCommUserRank", ncclCommUserRank(comm_, &rank_));
    check("ncclCommCount", ncclCommCount(comm_, &size_));
    check("ncclCommCuDevice", ncclCommCuDevice(comm_, &device_));
    OnDevice const scope(device_);
    try {
      int least = 0, greatest = 0;
      cuda("cudaDeviceGetStreamPriorityRange", cudaDeviceGetStreamPriorityRange(&least, &greatest));
      // Messages before kernels: a rank that sends late holds the others up.
      cuda("cudaStreamCreateWithPriority",
           cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
      for (cudaEvent_t* event : {&ready_, &host_, &done_[0], &done_[1], &done_[2]})
        cuda("cudaEventCreateWithFlags", cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    } catch (...) {
      release();
      throw;
    }
  }
  ~NcclTransport() override {
    OnDevice const scope(device_);
    if (owns_ && comm_ != nullptr) ncclCommDestroy(comm_);
    release();
  }

  ncclComm_t handle() const { return comm_; }
  char const* name() const override { return "NCCL"; }
  bool takes_device_memory() const override { return true; }
  bool asynchronous() const override { return true; }
  bool memory_is_in_use() const override { return dead_ && comm_ != nullptr; }
  bool recording(QueueRef const& queue) const override {
    if (is_of_a_host(queue)) return false;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream_of(queue), &status) == cudaSuccess &&
           status != cudaStreamCaptureStatusNone;
  }
  void check_queue(char const* operation, QueueRef const& queue) const override {
    if (is_of_a_host(queue))
      raise<DeviceError>(operation,
                         ": exec is of a host and the communicator is over NCCL; expected an "
                         "instance of Kokkos::Cuda");
    if (queue.device() != QueueRef::host && queue.device() != device_)
      raise<DeviceError>(operation, ": exec is of CUDA device ", queue.device(),
                         " and the communicator of ", device_, "; expected the same device");
  }

  void check(char const* function, int code) override {
    auto const result = static_cast<ncclResult_t>(code);
    if (result == ncclSuccess) return;
    char const* const last = comm_ == nullptr ? nullptr : ncclGetLastError(comm_);
    std::string text = ncclGetErrorString(result);
    if (last != nullptr && *last != '\0') text += std::string(": ") + last;
    end();
    raise<CommunicationError>("distributed: ", function, " on rank ", rank_, " of ", size_,
                              " failed: ", text);
  }
  void poll() override {
    ncclResult_t state = ncclSuccess;
    check("ncclCommGetAsyncError", ncclCommGetAsyncError(comm_, &state));
    if (state != ncclInProgress) check("an earlier call", state);
  }
  void abandon() override { end(); }

  void start(QueueRef const& queue, int slot, char const*, std::int64_t row_bytes,
             RankRows const& from, RankRows const& to) override {
    OnDevice const scope(device_);
    follow(queue);
    in_a_group([&] {
      receive(from.data, from.rows * row_bytes, from.rank);
      send(to.data, to.rows * row_bytes, to.rank);
    });
    cuda("cudaEventRecord", cudaEventRecord(done_[slot], stream_));
    pending_[slot] = true;
  }
  void progress(int) override {}
  void finish(QueueRef const& queue, int slot) override {
    if (!pending_[slot]) return;
    OnDevice const scope(device_);
    pending_[slot] = false;
    cuda("cudaStreamWaitEvent", cudaStreamWaitEvent(stream_of(queue), done_[slot], 0));
  }

  void gather_rows(QueueRef const& queue, char const*, std::int64_t row_bytes, void const* own,
                   void* all, RowParts const& parts) override {
    auto const mine = parts.rows[static_cast<std::size_t>(rank_)];
    bool const alike =
        std::all_of(parts.rows.begin(), parts.rows.end(), [&](int rows) { return rows == mine; });
    OnDevice const scope(device_);
    follow(queue);
    if (alike) {
      if (mine * row_bytes > 0)
        settle("ncclAllGather",
               ncclAllGather(own, all, size_of(mine * row_bytes), ncclInt8, comm_, stream_));
    } else {
      in_a_group([&] {
        for (int r = 0; r < size_; ++r) {
          auto const i = static_cast<std::size_t>(r);
          receive(at(all, parts.places[i] * row_bytes), parts.rows[i] * row_bytes, r);
          send(own, mine * row_bytes, r);
        }
      });
    }
    precede(queue);
  }
  void exchange_rows(QueueRef const& queue, char const*, std::int64_t row_bytes, void const* from,
                     RowParts const& sent, void* to, RowParts const& got) override {
    OnDevice const scope(device_);
    follow(queue);
    in_a_group([&] {
      for (int r = 0; r < size_; ++r) {
        auto const i = static_cast<std::size_t>(r);
        receive(at(to, got.places[i] * row_bytes), got.rows[i] * row_bytes, r);
        send(at(from, sent.places[i] * row_bytes), sent.rows[i] * row_bytes, r);
      }
    });
    precede(queue);
  }
  void fence(QueueRef const& queue, char const*) override {
    OnDevice const scope(device_);
    cuda("cudaEventRecord", cudaEventRecord(host_, stream_of(queue)));
    wait_for_host_event("distributed::Communicator::fence");
  }

  void minimum(std::int64_t const* mine, std::int64_t* least, int count) override {
    auto const bytes = static_cast<std::size_t>(count) * sizeof(std::int64_t);
    if (size_ == 1) {
      std::memcpy(least, mine, bytes);
      return;
    }
    OnDevice const scope(device_);
    numbers_to_device(mine, bytes, bytes);
    settle("ncclAllReduce",
           ncclAllReduce(device_numbers_, device_numbers_, static_cast<std::size_t>(count),
                         ncclInt64, ncclMin, comm_, stream_));
    numbers_to_host(device_numbers_, least, bytes);
  }
  void gather(void const* mine, void* all, int bytes) override {
    auto const size = static_cast<std::size_t>(bytes);
    if (size_ == 1) {
      std::memcpy(all, mine, size);
      return;
    }
    OnDevice const scope(device_);
    auto const all_bytes = size * static_cast<std::size_t>(size_);
    numbers_to_device(mine, size, size + all_bytes);
    void* const result = at(device_numbers_, static_cast<std::int64_t>(size));
    settle("ncclAllGather", ncclAllGather(device_numbers_, result, size, ncclInt8, comm_, stream_));
    numbers_to_host(result, all, all_bytes);
  }
  void broadcast(void* data, int bytes, int root) override {
    if (size_ == 1) return;
    OnDevice const scope(device_);
    auto const size = static_cast<std::size_t>(bytes);
    numbers_to_device(data, size, size);
    settle("ncclBroadcast",
           ncclBroadcast(device_numbers_, device_numbers_, size, ncclInt8, root, comm_, stream_));
    numbers_to_host(device_numbers_, data, size);
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// The device of the communicator is the current one meanwhile.
  class OnDevice {
   public:
    explicit OnDevice(int device) {
      if (cudaGetDevice(&before_) == cudaSuccess && before_ != device)
        moved_ = cudaSetDevice(device) == cudaSuccess;
    }
    ~OnDevice() {
      if (moved_) cudaSetDevice(before_);
    }
    OnDevice(OnDevice const&) = delete;
    OnDevice& operator=(OnDevice const&) = delete;

   private:
    int before_ = 0;
    bool moved_ = false;
  };

  static bool is_of_a_host([[maybe_unused]] QueueRef const& queue) {
#if defined(ATTIKOS_NCCL_ON_HOSTS)  // tests have a stand-in for NCCL, which reaches their memory
    return false;
#else
    return queue.device() == QueueRef::host;
#endif
  }
  static cudaStream_t stream_of(QueueRef const& queue) {
    return static_cast<cudaStream_t>(queue.stream());
  }
  static std::size_t size_of(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }
  static void* at(void* data, std::int64_t bytes) { return static_cast<char*>(data) + bytes; }
  static void const* at(void const* data, std::int64_t bytes) {
    return static_cast<char const*>(data) + bytes;
  }

  void cuda(char const* function, cudaError_t code) {
    if (code == cudaSuccess) return;
    end();
    raise<CommunicationError>("distributed: ", function, " on rank ", rank_, " of ", size_,
                              " failed: ", cudaGetErrorString(code));
  }

  /// What is started now comes after what the instance has been given.
  void follow(QueueRef const& queue) {
    cuda("cudaEventRecord", cudaEventRecord(ready_, stream_of(queue)));
    cuda("cudaStreamWaitEvent", cudaStreamWaitEvent(stream_, ready_, 0));
  }
  /// What the instance is given from now on comes after what was started.
  void precede(QueueRef const& queue) {
    cuda("cudaEventRecord", cudaEventRecord(ready_, stream_));
    cuda("cudaStreamWaitEvent", cudaStreamWaitEvent(stream_of(queue), ready_, 0));
  }

  // Nothing is sent where there are no bytes: both ranks know.
  void receive(void* to, std::int64_t bytes, int rank) {
    if (bytes == 0 || group_ != ncclSuccess) return;
    group_ = ncclRecv(to, size_of(bytes), ncclInt8, rank, comm_, stream_);
  }
  void send(void const* from, std::int64_t bytes, int rank) {
    if (bytes == 0 || group_ != ncclSuccess) return;
    group_ = ncclSend(from, size_of(bytes), ncclInt8, rank, comm_, stream_);
  }
  template <class F>
  void in_a_group(F const& f) {
    settle("ncclGroupStart", ncclGroupStart());
    group_ = ncclSuccess;
    f();
    if (group_ == ncclInProgress) group_ = ncclSuccess;
    ncclResult_t const end_of_group = ncclGroupEnd();  // in any case: groups count
    check("ncclSend or ncclRecv", group_);
    settle("ncclGroupEnd", end_of_group);
  }
  /// A communicator that does not block (ncclConfig_t::blocking 0) may be at it still.
  void settle(char const* function, ncclResult_t code) {
    if (code != ncclInProgress) {
      check(function, code);
      return;
    }
    auto const begin = Clock::now();
    for (ncclResult_t state = ncclInProgress; state == ncclInProgress;) {
      check("ncclCommGetAsyncError", ncclCommGetAsyncError(comm_, &state));
      if (state == ncclInProgress) {
        give_up_after(function, begin);
        std::this_thread::yield();
      } else {
        check(function, state);
      }
    }
  }

  void give_up_after(char const* what, Clock::time_point begin) {
    if (std::chrono::duration<double>(Clock::now() - begin).count() < time_out_) return;
    end();
    raise<CommunicationError>("distributed: ", what, " on rank ", rank_, " of ", size_, " waited ",
                              time_out_,
                              " s; expected every rank to make the same call within the "
                              "communicator's time_out");
  }
  void wait_for_host_event(char const* what) {
    auto const begin = Clock::now();
    for (int turn = 0;; ++turn) {
      cudaError_t const code = cudaEventQuery(host_);
      if (code == cudaSuccess) return;
      if (code != cudaErrorNotReady) cuda(what, code);
      poll();
      give_up_after(what, begin);
      if (turn < 1000)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  /// Numbers of the host on their way through memory of the device, `room` bytes of it.
  void numbers_to_device(void const* from, std::size_t bytes, std::size_t room) {
    if (room > numbers_room_) {
      free_numbers();
      cuda("cudaMalloc", cudaMalloc(&device_numbers_, room));
      cuda("cudaMallocHost", cudaMallocHost(&host_numbers_, room));
      numbers_room_ = room;
    }
    std::memcpy(host_numbers_, from, bytes);
    cuda("cudaMemcpyAsync",
         cudaMemcpyAsync(device_numbers_, host_numbers_, bytes, cudaMemcpyHostToDevice, stream_));
  }
  void numbers_to_host(void const* from, void* to, std::size_t bytes) {
    cuda("cudaMemcpyAsync",
         cudaMemcpyAsync(host_numbers_, from, bytes, cudaMemcpyDeviceToHost, stream_));
    cuda("cudaEventRecord", cudaEventRecord(host_, stream_));
    wait_for_host_event("the agreement of ranks");
    std::memcpy(to, host_numbers_, bytes);
  }
  void free_numbers() {
    if (device_numbers_ != nullptr) cudaFree(device_numbers_);
    if (host_numbers_ != nullptr) cudaFreeHost(host_numbers_);
    device_numbers_ = host_numbers_ = nullptr;
    numbers_room_ = 0;
  }

  /// Dead, and where that is allowed kernels that wait for other ranks end.
  void end() {
    dead_ = true;
    if (!aborts_ || comm_ == nullptr) return;
    ncclComm_t const comm = comm_;
    comm_ = nullptr;
    ncclCommAbort(comm);
  }
  void release() {
    if (!memory_is_in_use()) free_numbers();  // to free it would wait for the device
    for (cudaEvent_t event : {ready_, host_, done_[0], done_[1], done_[2]})
      if (event != nullptr) cudaEventDestroy(event);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  ncclComm_t comm_;
  double time_out_;
  bool owns_, aborts_;
  int device_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t ready_ = nullptr, host_ = nullptr, done_[slots] = {};
  bool pending_[slots] = {};
  ncclResult_t group_ = ncclSuccess;
  void *device_numbers_ = nullptr, *host_numbers_ = nullptr;
  std::size_t numbers_room_ = 0;
};

template <>
struct TransportOf<ncclComm_t> {
  using type = NcclTransport;
};
template <>
struct HandleOf<ncclComm_t> {
  static ncclComm_t of(Transport const& transport) {
    auto const* const nccl = dynamic_cast<NcclTransport const*>(&transport);
    if (nccl == nullptr)
      raise<Error>("distributed: the communicator is over ", transport.name(),
                   " and has no ncclComm_t");
    return nccl->handle();
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
