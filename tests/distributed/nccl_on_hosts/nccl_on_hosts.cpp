// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <mpi.h>
#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace {

/// The end of what was in a stream when an event was recorded.
struct Mark {
  bool reached = false;
  std::vector<std::shared_ptr<Mark>> after;  ///< of the null stream: what that waits for

  bool done() {
    for (auto const& mark : after)
      if (!mark->done()) return false;
    return reached;
  }
};

}  // namespace

struct CUevent_st {
  std::shared_ptr<Mark> mark;
  bool of_null_stream = false;
};

struct CUstream_st {
  std::deque<std::function<bool()>> work;  ///< each says whether it is done
  /// Waited for kernels, or got its data by itself, since the last message.
  bool ordered = false;
};

struct ncclComm {
  MPI_Comm mpi = MPI_COMM_NULL;
  int rank = 0, size = 1;
  ncclResult_t error = ncclSuccess;
};

namespace {

/// Outlives the ncclComm, which an abort ends.
struct Shared {
  std::set<ncclComm_t> alive;
  std::set<cudaStream_t> streams;
  std::vector<std::shared_ptr<Mark>> null_stream_waits_for;
  int aborted = 0, queries = 0;
  nccl_on_hosts::Behavior behavior;
};
Shared& shared() {
  static Shared all;
  return all;
}

void work() {
  for (cudaStream_t stream : shared().streams)
    while (!stream->work.empty() && stream->work.front()()) stream->work.pop_front();
}

/// Messages of a group, which are begun when it is their turn. What they bring is there when all of
/// them are done, and not before.
struct Messages {
  struct Received {
    void* to;
    std::unique_ptr<std::vector<char>> data;
  };
  ncclComm_t comm = nullptr;
  std::vector<std::function<int(MPI_Request*, Messages&)>> begin;
  std::vector<MPI_Request> requests;
  std::vector<Received> received;
  bool begun = false;

  char* bounce(void* to, std::size_t bytes) {
    received.push_back({to, std::make_unique<std::vector<char>>(bytes)});
    return received.back().data->data();
  }
  bool step() {
    if (shared().alive.count(comm) == 0) {  // aborted; MPI may still write
      static_cast<void>(new std::vector<Received>(std::move(received)));
      return true;
    }
    if (comm->error != ncclSuccess) return false;
    int code = MPI_SUCCESS, done = 0;
    if (!begun) {
      begun = true;
      requests.assign(begin.size(), MPI_REQUEST_NULL);
      for (std::size_t i = 0; i < begin.size() && code == MPI_SUCCESS; ++i)
        code = begin[i](&requests[i], *this);
    }
    if (code == MPI_SUCCESS)
      code = MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                         MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS) comm->error = ncclInternalError;
    if (done == 0) return false;
    for (Received const& r : received) std::memcpy(r.to, r.data->data(), r.data->size());
    return true;
  }
};

struct Group {
  int depth = 0;
  cudaStream_t stream = nullptr;
  std::shared_ptr<Messages> messages;
};
Group& group() {
  static Group open;
  return open;
}

ncclResult_t begin_messages(std::shared_ptr<Messages> const& messages, cudaStream_t stream) {
  // A message that kernels have not written yet, or that follows nothing.
  if (stream == nullptr || !stream->ordered) return ncclInvalidUsage;
  stream->ordered = false;
  stream->work.push_back([messages] { return messages->step(); });
  work();
  return ncclSuccess;
}

int size_of(ncclDataType_t type, std::size_t count) {
  return static_cast<int>(count * (type == ncclInt64 ? 8 : 1));
}

template <class F>
ncclResult_t add(ncclComm_t comm, cudaStream_t stream, F const& f) {
  if (shared().alive.count(comm) == 0) return ncclInvalidUsage;
  Group& open = group();
  auto const messages =
      open.depth > 0 && open.messages ? open.messages : std::make_shared<Messages>();
  messages->comm = comm;
  messages->begin.push_back(f);
  if (open.depth == 0) return begin_messages(messages, stream);
  open.messages = messages;
  open.stream = stream;
  return ncclSuccess;
}

}  // namespace

char const* cudaGetErrorString(cudaError_t) { return "a failure"; }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new CUstream_st;
  shared().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  work();
  shared().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  auto const mark = event->mark;
  if (!mark) return cudaSuccess;
  if (stream != nullptr) {
    stream->ordered = stream->ordered || event->of_null_stream;
    stream->work.push_back([mark] { return mark->done(); });
    work();
    return cudaSuccess;
  }
  using Clock = std::chrono::steady_clock;
  auto const begin = Clock::now();
  double const patience = shared().behavior.patience;
  for (work(); !mark->done(); work()) {
    if (patience < 0 || std::chrono::duration<double>(Clock::now() - begin).count() < patience)
      continue;
    shared().null_stream_waits_for.push_back(mark);
    break;
  }
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status =
      shared().behavior.capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  auto const mark = std::make_shared<Mark>();
  event->mark = mark;
  event->of_null_stream = stream == nullptr;
  if (stream == nullptr) {
    mark->reached = true;
    mark->after = shared().null_stream_waits_for;
  } else {
    stream->work.push_back([mark] { return mark->reached = true; });
  }
  work();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  ++shared().queries;
  work();
  return !event->mark || event->mark->done() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (stream == nullptr) return cudaErrorInvalidValue;
  stream->ordered = true;
  stream->work.push_back([=] {
    std::memcpy(to, from, bytes);
    return true;
  });
  work();
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) { return cudaMalloc(memory, bytes); }
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }

char const* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError    ? "remote process exited or there was a network error"
         : result == ncclInvalidUsage ? "invalid usage"
                                      : "internal error";
}
char const* ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = comm->size;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(ncclComm_t, int* device) {
  *device = 0;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  work();
  *error = comm->error;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  ++shared().aborted;
  shared().alive.erase(comm);
  work();
  delete comm;  // the MPI_Comm may have messages under way
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  shared().alive.erase(comm);
  MPI_Comm_free(&comm->mpi);
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  ++group().depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  Group& open = group();
  if (--open.depth > 0 || !open.messages) return ncclSuccess;
  auto const messages = std::exchange(open.messages, nullptr);
  return begin_messages(messages, open.stream);
}
ncclResult_t ncclSend(void const* from, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  int const bytes = size_of(type, count);
  return add(comm, stream, [=](MPI_Request* request, Messages&) {
    return MPI_Isend(from, bytes, MPI_BYTE, peer, 0, comm->mpi, request);
  });
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  int const bytes = size_of(type, count);
  return add(comm, stream, [=](MPI_Request* request, Messages& m) {
    return MPI_Irecv(m.bounce(to, static_cast<std::size_t>(bytes)), bytes, MPI_BYTE, peer, 0,
                     comm->mpi, request);
  });
}
ncclResult_t ncclAllGather(void const* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  int const bytes = size_of(type, count);
  return add(comm, stream, [=](MPI_Request* request, Messages& m) {
    char* const all =
        m.bounce(to, static_cast<std::size_t>(bytes) * static_cast<std::size_t>(comm->size));
    return MPI_Iallgather(from, bytes, MPI_BYTE, all, bytes, MPI_BYTE, comm->mpi, request);
  });
}
ncclResult_t ncclAllReduce(void const* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclInt64 || op != ncclMin) return ncclInvalidUsage;
  return add(comm, stream, [=](MPI_Request* request, Messages& m) {
    return MPI_Iallreduce(from, m.bounce(to, 8 * count), static_cast<int>(count), MPI_INT64_T,
                          MPI_MIN, comm->mpi, request);
  });
}
ncclResult_t ncclBroadcast(void const* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  int const bytes = size_of(type, count);
  return add(comm, stream, [=](MPI_Request* request, Messages& m) {
    char* const data = m.bounce(to, static_cast<std::size_t>(bytes));
    if (comm->rank == root) std::memcpy(data, from, static_cast<std::size_t>(bytes));
    return MPI_Ibcast(data, bytes, MPI_BYTE, root, comm->mpi, request);
  });
}

namespace nccl_on_hosts {

ncclComm_t make_communicator() {
  auto* const comm = new ncclComm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm->mpi);
  MPI_Comm_set_errhandler(comm->mpi, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm->mpi, &comm->rank);
  MPI_Comm_size(comm->mpi, &comm->size);
  shared().alive.insert(comm);
  return comm;
}
void fail(ncclComm_t comm, ncclResult_t error) { comm->error = error; }
int aborted() { return shared().aborted; }
int queries() { return shared().queries; }
Behavior& behavior() { return shared().behavior; }

}  // namespace nccl_on_hosts
