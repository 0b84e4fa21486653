// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "context.hpp"

#include <attikos/core/workspace.hpp>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <tuple>

#include "entry.hpp"

namespace attikos::c {
namespace {

std::mutex& setup_mutex() {
  static std::mutex mutex;
  return mutex;
}

using Key = std::tuple<std::int32_t, std::int32_t, void*>;
using Cache = std::map<Key, std::unique_ptr<Instance>>;
Cache& instances() {
  // Never destroyed: Kokkos's finalize hook empties it, maybe after static destructors.
  static Cache& cache = *new Cache;
  return cache;
}

/// Under setup_mutex(): Kokkos runs afterwards, or this throws.
void initialize_kokkos() {
  if (Kokkos::is_finalized())
    fail(ATTIKOS_DEVICE_ERROR, "context: Kokkos was finalized and cannot be used any more");
  if (!Kokkos::is_initialized()) {
    Kokkos::initialize(Kokkos::InitializationSettings().set_disable_warnings(true));
    // Runs before the destructors of what existed by now, Kokkos's own statics among it.
    std::atexit([] {
      if (Kokkos::is_initialized() && !Kokkos::is_finalized()) Kokkos::finalize();
    });
  }
  static bool hooked = false;
  if (!hooked) {
    Kokkos::push_finalize_hook([] { instances().clear(); });
    hooked = true;
  }
}

#if defined(KOKKOS_ENABLE_CUDA)
void check_cuda(char const* what, cudaError_t error) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // the caller learns of it by the status
  fail(error == cudaErrorMemoryAllocation ? ATTIKOS_OUT_OF_MEMORY : ATTIKOS_INTERNAL_ERROR, what,
       ": CUDA reports: ", cudaGetErrorString(error));
}
#endif

std::unique_ptr<Instance> make_instance(std::int32_t kind, std::int32_t ordinal, void* stream) {
  if (kind == ATTIKOS_HOST) return std::make_unique<Instance>(Host());
#if defined(KOKKOS_ENABLE_SERIAL) && !defined(KOKKOS_ENABLE_CUDA)
  if (kind == ATTIKOS_SERIAL)
    return std::make_unique<Instance>(stream == nullptr ? Kokkos::Serial()
                                                        : Kokkos::Serial(Kokkos::NewInstance{}));
#endif
#if defined(KOKKOS_ENABLE_CUDA)
  if (kind == ATTIKOS_CUDA) {
    CurrentDevice const device(ordinal);
    check_cuda("context", cudaFree(nullptr));  // makes the device's context, which Kokkos asks for
    return std::make_unique<Instance>(Kokkos::Cuda(static_cast<cudaStream_t>(stream)));
  }
#endif
  static_cast<void>(ordinal);
  static_cast<void>(stream);
  fail(ATTIKOS_DEVICE_ERROR, "context: this library was built without ",
       kind == ATTIKOS_CUDA ? "CUDA" : "Kokkos's Serial space");
}

}  // namespace

CurrentDevice::CurrentDevice([[maybe_unused]] int ordinal) {
#if defined(KOKKOS_ENABLE_CUDA)
  if (ordinal < 0) return;
  int current = -1;
  check_cuda("context", cudaGetDevice(&current));
  if (current == ordinal) return;
  check_cuda("context", cudaSetDevice(ordinal));
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

attikos_context& expect_context(char const* operation, attikos_context* context) {
  if (context == nullptr)
    fail(ATTIKOS_NULL_ARGUMENT, operation,
         ": the context is null; expected one of attikos_context_create()");
  if (!Kokkos::is_initialized())
    fail(ATTIKOS_DEVICE_ERROR, operation, ": Kokkos was finalized and cannot be used any more");
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
  if (!attikos_has_device(kind, ordinal))
    fail(ATTIKOS_DEVICE_ERROR, "context: there is no device ", ordinal, " of kind ",
         kind == ATTIKOS_CUDA     ? "cuda"
         : kind == ATTIKOS_SERIAL ? "serial"
                                  : "host",
         " for this library");
  if (kind == ATTIKOS_HOST) stream = nullptr;  // one pool of threads serves all
  std::lock_guard<std::mutex> const lock(setup_mutex());
  initialize_kokkos();
  auto& entry = instances()[Key(kind, ordinal, stream)];
  if (entry == nullptr) entry = make_instance(kind, ordinal, stream);
  return attikos_context{kind, ordinal, stream, entry.get()};
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
      check_cuda("allocate", cudaMalloc(&result, wanted));
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
      CurrentDevice const device(context->ordinal);
      check_cuda("free", cudaFree(memory));
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
      check_cuda("copy", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
      check_cuda("copy", cudaStreamSynchronize(stream));
      return;
    }
#endif
    static_cast<void>(c);
    std::memmove(to, from, bytes);
  });
}
}
