// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "context.hpp"

#include <algorithm>
#include <attikos/core/workspace.hpp>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
#if __has_include(<unistd.h>) && __has_include(<pthread.h>)
#include <pthread.h>
#define ATTIKOS_HAS_FORK
#endif

#include "entry.hpp"

#if defined(KOKKOS_ENABLE_CUDA) && defined(ATTIKOS_WRAPS_SYNCHRONIZE)
// Kokkos waits for the whole device while it is initialized, though nothing there needs it. That
// would end every capture under way, so the linker sends Kokkos's calls through here.
namespace {
thread_local bool initializing = false;
}
extern "C" cudaError_t __real_cudaDeviceSynchronize();
extern "C" cudaError_t __wrap_cudaDeviceSynchronize() {
  return initializing ? cudaSuccess : __real_cudaDeviceSynchronize();
}
#endif

namespace attikos::c {
namespace {

std::mutex& setup_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

using Key = std::tuple<std::int32_t, std::int32_t, void*>;
using Cache = std::map<Key, std::shared_ptr<Shared>>;
Cache& instances() {
  // Never destroyed: Kokkos's finalize hook empties it, maybe after static destructors.
  static Cache& cache = *new Cache;
  return cache;
}
/// So many instances stay that no context has, for those that come and go.
constexpr std::ptrdiff_t most_idle = 16;

/// Whether this process was forked from one where Kokkos ran, whose threads and devices it lacks.
std::atomic<bool> forked{false};

/// Whether the process is ending, and Kokkos with it.
std::atomic<bool> ending{false};
void expect_no_end(char const* operation) {
  if (ending) fail(ATTIKOS_DEVICE_ERROR, operation, ": the process is ending");
}

/// Refuses calls from now on and waits for those under way, of threads that end with the process.
/// Whether none is left; a call may take longer than a process that ends should.
bool calls_have_ended() {
  ending = true;
  for (int i = 0; i < 5000 && calls_under_way > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return calls_under_way == 0;
}

/// The fatal errors that devices have reported, by ordinal; 0 of those that work.
constexpr int most_devices = 64;
std::atomic<int> faults[most_devices];
bool any_fault() {
  for (auto const& fault : faults)
    if (fault != 0) return true;
  return false;
}

#if defined(KOKKOS_ENABLE_CUDA)
/// Whether an error leaves the device unusable in this process.
bool is_fatal(cudaError_t error) {
  switch (error) {
    case cudaErrorAssert:
    case cudaErrorContextIsDestroyed:
    case cudaErrorECCUncorrectable:
    case cudaErrorExternalDevice:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorMisalignedAddress:
    case cudaErrorMpsClientTerminated:
    case cudaErrorNvlinkUncorrectable:
      return true;
    default:
      return false;
  }
}

[[noreturn]] void fail_for_fault(char const* operation, std::int32_t ordinal, int fault) {
  fail(ATTIKOS_DEVICE_ERROR, operation, ": CUDA device ", ordinal,
       " has failed: ", cudaGetErrorString(static_cast<cudaError_t>(fault)),
       ". Some kernel of this process, of this library or not, caused it; no more work can run on "
       "the device before a new process");
}

void check_cuda(char const* operation, std::int32_t ordinal, cudaError_t error) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // the caller learns of it by the status
  if (is_fatal(error)) {
    faults[ordinal % most_devices] = error;
    fail_for_fault(operation, ordinal, error);
  }
  fail(error == cudaErrorMemoryAllocation ? ATTIKOS_OUT_OF_MEMORY : ATTIKOS_INTERNAL_ERROR,
       operation, ": CUDA reports: ", cudaGetErrorString(error));
}

/// Refuses a first use of a stream inside a capture where making its instance would end that.
/// Streams that were not made with cudaStreamNonBlocking cannot be told: CUDA counts even the
/// question for their flags as a mistake inside a capture.
void expect_capture_survives(void* stream) {
  auto const capture = detail::capture_of(static_cast<cudaStream_t>(stream));
  if (capture.active && capture.graph == nullptr)
    fail(ATTIKOS_DEVICE_ERROR,
         "context: the legacy default stream cannot be used while another stream is captured that "
         "was made without cudaStreamNonBlocking");
#if !defined(ATTIKOS_WRAPS_SYNCHRONIZE)
  if (capture.active && !Kokkos::is_initialized())
    fail(ATTIKOS_DEVICE_ERROR,
         "context: Kokkos cannot be initialized while a stream is captured; make a context before "
         "the capture begins");
#endif
}
#endif

/// f(std::type_identity<Space>) for every space of contexts on the host.
template <class F>
void on_host_spaces(F const& f) {
  f(std::type_identity<Host>{});
#if defined(KOKKOS_ENABLE_SERIAL) && !defined(KOKKOS_ENABLE_CUDA)
  if constexpr (!std::is_same_v<Host, Kokkos::Serial>) f(std::type_identity<Kokkos::Serial>{});
#endif
}

/// Leaves a forked process a library that works: locks as if nobody had them, and a mark.
void watch_forks() {
#if defined(ATTIKOS_HAS_FORK)
  static_cast<void>(pthread_atfork(
      [] {
        setup_mutex().lock();
        on_host_spaces(
            []<class Space>(std::type_identity<Space>) { detail::before_fork<Space>(); });
      },
      [] {
        on_host_spaces([]<class Space>(std::type_identity<Space>) { detail::after_fork<Space>(); });
        setup_mutex().unlock();
      },
      [] {
        on_host_spaces([]<class Space>(std::type_identity<Space>) { detail::after_fork<Space>(); });
        setup_mutex().unlock();
        if (Kokkos::is_initialized()) forked = true;
      }));
#endif
}

/// Under setup_mutex(): Kokkos runs afterwards, or this throws.
void initialize_kokkos() {
  if (Kokkos::is_finalized())
    fail(ATTIKOS_DEVICE_ERROR, "context: Kokkos was finalized and cannot be used any more");
  if (!Kokkos::is_initialized()) {
#if defined(KOKKOS_ENABLE_CUDA)
    detail::RestoreDevice const restore;
    detail::OutsideCapture const outside;
#if defined(ATTIKOS_WRAPS_SYNCHRONIZE)
    struct Initializing {
      Initializing() { initializing = true; }
      ~Initializing() { initializing = false; }
    } const mark;
#endif
#endif
    Kokkos::initialize(Kokkos::InitializationSettings().set_disable_warnings(true));
    // Runs before the destructors of what existed by now, Kokkos's own statics among it. Where a
    // device has failed, or the threads are another process's, there is nothing to finalize with.
    std::atexit([] {
      if (Kokkos::is_initialized() && !Kokkos::is_finalized() && !forked && calls_have_ended() &&
          !any_fault())
        Kokkos::finalize();
    });
  }
  static bool prepared = false;
  if (prepared) return;
  detail::at_finalize([] {
    for (auto& [key, shared] : instances()) shared->instance.reset();
    instances().clear();
  });
  watch_forks();
  prepared = true;
}

Instance make_instance(std::int32_t kind, std::int32_t ordinal, void* stream) {
  if (kind == ATTIKOS_HOST) return Host();
#if defined(KOKKOS_ENABLE_SERIAL) && !defined(KOKKOS_ENABLE_CUDA)
  if (kind == ATTIKOS_SERIAL)
    return stream == nullptr ? Kokkos::Serial() : Kokkos::Serial(Kokkos::NewInstance{});
#endif
#if defined(KOKKOS_ENABLE_CUDA)
  if (kind == ATTIKOS_CUDA) {
    detail::RestoreDevice const restore;
    detail::OutsideCapture const outside;
    check_cuda("context", ordinal, cudaSetDevice(ordinal));
    // Makes the device's context, which Kokkos asks for.
    check_cuda("context", ordinal, cudaFree(nullptr));
    return Kokkos::Cuda(static_cast<cudaStream_t>(stream));
  }
#endif
  static_cast<void>(ordinal);
  static_cast<void>(stream);
  fail(ATTIKOS_DEVICE_ERROR, "context: this library was built without ",
       kind == ATTIKOS_CUDA ? "CUDA" : "Kokkos's Serial space");
}

/// Under setup_mutex(): gives up what has been idle for longest where there is too much of it.
/// What a graph may use stays for good, like the host's pool of threads. So does all that a forked
/// process has: where an instance ends Kokkos waits for calls on others, of threads that are not
/// here, and what contexts of its own share may be in use.
void trim_instances() {
  if (forked) return;
  auto const is_idle = [](Cache::value_type const& entry) {
    return std::get<0>(entry.first) != ATTIKOS_HOST && entry.second.use_count() == 1 &&
           !entry.second->captured;
  };
  Cache& cache = instances();
  while (std::count_if(cache.begin(), cache.end(), is_idle) > most_idle) {
    auto oldest = cache.end();
    for (auto entry = cache.begin(); entry != cache.end(); ++entry)
      if (is_idle(*entry) &&
          (oldest == cache.end() || entry->second->last_wanted < oldest->second->last_wanted))
        oldest = entry;
#if defined(KOKKOS_ENABLE_CUDA)
    detail::RestoreDevice const restore;
    detail::OutsideCapture const outside;
    if (faults[std::get<1>(oldest->first) % most_devices] != 0) {  // Kokkos could not free it
      static auto& lost = *new std::vector<std::shared_ptr<Shared>>;
      lost.push_back(oldest->second);
      cache.erase(oldest);
      continue;
    }
#endif
    std::visit([](auto const& exec) { detail::forget_workspaces(exec); },
               *oldest->second->instance);
    cache.erase(oldest);
  }
}

template <class Space, class Argument>
Instance const& made_once(Argument argument) {
  static auto const& instance = *new Instance(Space(argument));
  return instance;
}

/// In a forked process: an instance that needs no thread beside the caller's.
Instance const& instance_in_child([[maybe_unused]] std::int32_t kind) {
#if defined(KOKKOS_ENABLE_SERIAL) && \
    (!defined(KOKKOS_ENABLE_CUDA) || \
     !(defined(KOKKOS_ENABLE_OPENMP) || defined(KOKKOS_ENABLE_THREADS)))
  if (kind == ATTIKOS_SERIAL || std::is_same_v<Host, Kokkos::Serial>)
    return made_once<Kokkos::Serial>(Kokkos::NewInstance{});
#endif
#if defined(KOKKOS_ENABLE_OPENMP)
  return made_once<Kokkos::OpenMP>(1);
#else
  fail(ATTIKOS_DEVICE_ERROR,
       "context: this process was forked from one that had used the library, and lacks the threads "
       "of Kokkos's space ",
       Host::name(), "; expected a process started anew");
#endif
}

}  // namespace

Instance const& instance_of(attikos_context const& context) {
  if (forked) return instance_in_child(context.kind);
#if defined(KOKKOS_ENABLE_CUDA)
  if (context.is_cuda()) {
    auto const capture = detail::capture_of(static_cast<cudaStream_t>(context.stream));
    if (is_fatal(capture.error)) check_cuda("context", context.ordinal, capture.error);
    if (capture.active) context.shared->captured = true;
  }
#endif
  return *context.shared->instance;
}

CurrentDevice::CurrentDevice([[maybe_unused]] int ordinal) {
#if defined(KOKKOS_ENABLE_CUDA)
  if (ordinal < 0) return;
  int current = -1;
  check_cuda("context", ordinal, cudaGetDevice(&current));
  if (current == ordinal) return;
  check_cuda("context", ordinal, cudaSetDevice(ordinal));
  previous_ = current;
#endif
}

CurrentDevice::~CurrentDevice() {
#if defined(KOKKOS_ENABLE_CUDA)
  if (previous_ >= 0) static_cast<void>(cudaSetDevice(previous_));
#endif
}

int device_of([[maybe_unused]] void const* memory) {
#if defined(KOKKOS_ENABLE_CUDA)
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
    cudaGetLastError();
    return -1;
  }
  if (attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged)
    return attributes.device;
#endif
  return -1;
}

namespace {

/// Refuses a CUDA device that cannot be used, or not from here.
void expect_device([[maybe_unused]] char const* operation, [[maybe_unused]] std::int32_t ordinal) {
#if defined(KOKKOS_ENABLE_CUDA)
  if (forked)
    fail(ATTIKOS_DEVICE_ERROR, operation,
         ": this process was forked from one that had used CUDA, which CUDA does not allow; "
         "expected a process started anew, in Python by multiprocessing's method \"spawn\"");
  if (int const fault = faults[ordinal % most_devices]; fault != 0)
    fail_for_fault(operation, ordinal, fault);
#endif
}

}  // namespace

attikos_context& expect_context(char const* operation, attikos_context* context) {
  if (context == nullptr)
    fail(ATTIKOS_NULL_ARGUMENT, operation,
         ": the context is null; expected one of attikos_context_create()");
  expect_no_end(operation);
  if (!Kokkos::is_initialized())
    fail(ATTIKOS_DEVICE_ERROR, operation, ": Kokkos was finalized and cannot be used any more");
  if (context->is_cuda()) expect_device(operation, context->ordinal);
  return *context;
}

attikos_status create_context(std::int32_t kind, std::int32_t ordinal, void* stream,
                              attikos_context** context) noexcept {
  return guarded([&] {
    if (context == nullptr)
      fail(ATTIKOS_NULL_ARGUMENT, "context: the place for the result is null");
    *context = new attikos_context(find_context(kind, ordinal, stream));
  });
}

attikos_context find_context(std::int32_t kind, std::int32_t ordinal, void* stream) {
  if (kind != ATTIKOS_HOST && kind != ATTIKOS_SERIAL && kind != ATTIKOS_CUDA)
    fail(ATTIKOS_INVALID_ARGUMENT, "context: kind is ", kind, "; expected an attikos_device_kind");
#if !defined(KOKKOS_ENABLE_CUDA)
  if (kind == ATTIKOS_CUDA)
    fail(ATTIKOS_DEVICE_ERROR,
         "context: this library was built without CUDA; install it with: "
         "pip install . -C cmake.define.ATTIKOS_ENABLE_CUDA=ON");
#endif
  if (!attikos_has_device(kind, ordinal))
    fail(ATTIKOS_DEVICE_ERROR, "context: there is no device ", ordinal, " of kind ",
         kind == ATTIKOS_CUDA     ? "cuda"
         : kind == ATTIKOS_SERIAL ? "serial"
                                  : "host",
         " for this library");
  expect_no_end("context");
  if (kind == ATTIKOS_HOST) stream = nullptr;  // one pool of threads serves all
  if (kind == ATTIKOS_CUDA) expect_device("context", ordinal);
  std::lock_guard<std::mutex> const lock(setup_mutex());
  auto const known = instances().find(Key(kind, ordinal, stream));
  std::shared_ptr<Shared> shared = known == instances().end() ? nullptr : known->second;
  if (shared == nullptr) {
#if defined(KOKKOS_ENABLE_CUDA)
    if (kind == ATTIKOS_CUDA) expect_capture_survives(stream);
#endif
    initialize_kokkos();
    shared = std::make_shared<Shared>();
    shared->instance.emplace(forked ? instance_in_child(kind)
                                    : make_instance(kind, ordinal, stream));
    instances().emplace(Key(kind, ordinal, stream), shared);
    trim_instances();
  }
  static std::uint64_t wanted = 0;
  shared->last_wanted = ++wanted;
  return attikos_context{kind, ordinal, stream, std::move(shared), {}};
}

}  // namespace attikos::c

void attikos_context::expect_reach([[maybe_unused]] char const* operation,
                                   [[maybe_unused]] char const* name,
                                   [[maybe_unused]] void const* memory) const {
#if defined(KOKKOS_ENABLE_CUDA)
  using namespace attikos::c;
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
    cudaGetLastError();
    attributes.type = cudaMemoryTypeUnregistered;
  }
  bool const host = attributes.type == cudaMemoryTypeUnregistered ||
                    attributes.type == cudaMemoryTypeHost ||
                    attributes.type == cudaMemoryTypeManaged;
  if (!is_cuda()) {
    if (!host)
      fail(ATTIKOS_DEVICE_ERROR, operation, ": ", name,
           " lies on a CUDA device; expected host memory in a call on a host context");
  } else if (attributes.type == cudaMemoryTypeUnregistered) {
    fail(ATTIKOS_DEVICE_ERROR, operation, ": ", name,
         " lies in host memory; expected memory of CUDA device ", ordinal);
  } else if (attributes.type == cudaMemoryTypeDevice && attributes.device != ordinal) {
    fail(ATTIKOS_DEVICE_ERROR, operation, ": ", name, " lies on CUDA device ", attributes.device,
         "; expected device ", ordinal, " as in the context");
  }
#endif
}

extern "C" {

using namespace attikos::c;

void attikos_context_destroy(attikos_context* context) { delete context; }

attikos_status attikos_synchronize(attikos_context* context) {
  return guarded([&] {
    auto const& c = expect_context("synchronize", context);
#if defined(KOKKOS_ENABLE_CUDA)
    if (c.is_cuda()) {  // first of all, since Kokkos's fence would end the process with the device
      CurrentDevice const device(c.ordinal);
      check_cuda("synchronize", c.ordinal,
                 cudaStreamSynchronize(static_cast<cudaStream_t>(c.stream)));
    }
#endif
    run_on(c, [](auto const& exec) { exec.fence("attikos::synchronize"); });
  });
}

bool attikos_has_device(int32_t kind, int32_t ordinal) {
  if (ordinal < 0) return false;
  if (kind == ATTIKOS_HOST) return ordinal == 0;
  if (kind == ATTIKOS_CUDA) return ordinal < attikos_cuda_device_count();
#if defined(KOKKOS_ENABLE_SERIAL) && !defined(KOKKOS_ENABLE_CUDA)
  if (kind == ATTIKOS_SERIAL) return ordinal == 0;
#endif
  return false;
}

int32_t attikos_cuda_device_count(void) {
#if defined(KOKKOS_ENABLE_CUDA)
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
#endif
  return 0;
}

bool attikos_is_capturing(attikos_context const* context) {
  bool capturing = false;
  static_cast<void>(guarded([&] {
    if (context == nullptr || !Kokkos::is_initialized()) return;
    run_on(*context, [&](auto const& exec) { capturing = attikos::detail::is_capturing(exec); });
  }));
  return capturing;
}

attikos_status attikos_allocate(attikos_context* context, size_t bytes, void** memory) {
  return guarded([&] {
    auto const& c = expect_context("allocate", context);
    if (memory == nullptr)
      fail(ATTIKOS_NULL_ARGUMENT, "allocate: the place for the result is null");
    size_t const wanted = bytes == 0 ? 1 : bytes;
    void* result = nullptr;
#if defined(KOKKOS_ENABLE_CUDA)
    if (c.is_cuda()) {
      CurrentDevice const device(c.ordinal);
      check_cuda("allocate", c.ordinal, cudaMalloc(&result, wanted));
      *memory = result;
      return;
    }
#endif
    static_cast<void>(c);
    if (wanted <= SIZE_MAX - 64) result = std::aligned_alloc(64, (wanted + 63) / 64 * 64);
    if (result == nullptr)
      fail(ATTIKOS_OUT_OF_MEMORY, "allocate: ", bytes, " bytes could not be had");
    *memory = result;
  });
}

attikos_status attikos_free(attikos_context* context, void* memory) {
  return guarded([&] {
    if (context == nullptr) fail(ATTIKOS_NULL_ARGUMENT, "free: the context is null");
#if defined(KOKKOS_ENABLE_CUDA)
    if (context->is_cuda()) {
      // Of a device that has failed, or of another process's, nothing is left to be freed.
      if (forked || faults[context->ordinal % most_devices] != 0) return;
      CurrentDevice const device(context->ordinal);
      check_cuda("free", context->ordinal, cudaFree(memory));
      return;
    }
#endif
    std::free(memory);
  });
}

attikos_status attikos_copy(attikos_context* context, void* to, void const* from, size_t bytes) {
  return guarded([&] {
    auto const& c = expect_context("copy", context);
    if (bytes == 0) return;
    if (to == nullptr || from == nullptr) fail(ATTIKOS_NULL_ARGUMENT, "copy: a pointer is null");
#if defined(KOKKOS_ENABLE_CUDA)
    if (c.is_cuda()) {
      CurrentDevice const device(c.ordinal);
      auto const stream = static_cast<cudaStream_t>(c.stream);
      check_cuda("copy", c.ordinal, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
      check_cuda("copy", c.ordinal, cudaStreamSynchronize(stream));
      return;
    }
#endif
    static_cast<void>(c);
    std::memmove(to, from, bytes);
  });
}
}
