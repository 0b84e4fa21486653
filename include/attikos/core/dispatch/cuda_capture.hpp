// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// CUDA's side of temporary memory: streams that are recorded into graphs, devices that must stay
/// current, memory that lives as long as a graph.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/config.hpp>

#if defined(KOKKOS_ENABLE_CUDA)
#include <atomic>
#include <attikos/core/error.hpp>
#include <attikos/core/label.hpp>
#include <cstddef>
#include <memory>
#include <string>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Makes a runtime call that reports a failure by its status alone: the thread's last error stays
/// what it was, since an older one is for the caller to find.
template <class Call>
cudaError_t without_last_error(Call const& call) {
  cudaError_t const before = cudaPeekAtLastError();
  cudaError_t const status = call();
  if (status != cudaSuccess && before == cudaSuccess) cudaGetLastError();
  return status;
}

/// Restores the thread's current device. Kokkos makes another one current wherever it allocates.
class RestoreDevice {
 public:
  RestoreDevice() {
    if (without_last_error([&] { return cudaGetDevice(&device_); }) != cudaSuccess) device_ = -1;
  }
  ~RestoreDevice() {
    if (device_ >= 0) static_cast<void>(without_last_error([&] { return cudaSetDevice(device_); }));
  }
  RestoreDevice(RestoreDevice const&) = delete;
  RestoreDevice& operator=(RestoreDevice const&) = delete;

 private:
  int device_ = -1;
};

/// For a scope, allocation and the like do not end a capture that this thread or another has begun:
/// they are not part of the graph. Unless status() says that this could not be had: then they would
/// end it.
class OutsideCapture {
 public:
  OutsideCapture() : status_(exchange()) {}
  ~OutsideCapture() {
    if (status_ == cudaSuccess) exchange();  // else the thread's mode is what it was
  }
  cudaError_t status() const { return status_; }
  OutsideCapture(OutsideCapture const&) = delete;
  OutsideCapture& operator=(OutsideCapture const&) = delete;

 private:
  cudaError_t exchange() {
    return without_last_error([&] { return cudaThreadExchangeStreamCaptureMode(&mode_); });
  }
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  cudaError_t status_;
};

/// What a stream is recorded into.
struct Capture {
  bool active = false;
  unsigned long long id = 0;  ///< never given again in this process
  cudaGraph_t graph = nullptr;
  cudaError_t error = cudaSuccess;  ///< of asking, or an earlier one of the device
};

/// The capture that a stream is part of, if any. For the legacy default stream, whose use would be
/// an error while some other stream is captured, an active one without a graph. Costs less than
/// 100 ns.
inline Capture capture_of(cudaStream_t stream) {
  Capture capture;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaError_t const error = without_last_error([&] {
#if CUDART_VERSION >= 13000
    return cudaStreamGetCaptureInfo(stream, &status, &capture.id, &capture.graph);
#else
    return cudaStreamGetCaptureInfo_v2(stream, &status, &capture.id, &capture.graph);
#endif
  });
  if (error != cudaSuccess) return {error == cudaErrorStreamCaptureImplicit, 0, nullptr, error};
  capture.active = status != cudaStreamCaptureStatusNone;
  return capture;
}

/// Device memory that Kokkos's tools are told of. Allocating it waits for nothing, copies nothing
/// and is allowed while streams are captured, unlike creating a View.
class CudaMemory {
 public:
  CudaMemory(char const* operation, int device, std::size_t size) : bytes(size), device_(device) {
    RestoreDevice const restore;
    OutsideCapture const outside;
    cudaError_t const status = without_last_error([&] {
      if (outside.status() != cudaSuccess) return outside.status();
      cudaError_t const current = cudaSetDevice(device);
      return current == cudaSuccess ? cudaMalloc(&data, bytes) : current;
    });
    if (status != cudaSuccess)
      raise<ResourceError>(operation, ": needs ", bytes,
                           " bytes of workspace, which could not be allocated: CUDA reports: ",
                           cudaGetErrorString(status));
    label_ = label("workspace", operation);
    if (Kokkos::Tools::profileLibraryLoaded())
      Kokkos::Tools::allocateData(Kokkos::Tools::make_space_handle(Kokkos::CudaSpace::name()),
                                  label_, data, bytes);
  }
  ~CudaMemory() {
    if (Kokkos::Tools::profileLibraryLoaded())
      Kokkos::Tools::deallocateData(Kokkos::Tools::make_space_handle(Kokkos::CudaSpace::name()),
                                    label_, data, bytes);
    RestoreDevice const restore;
    OutsideCapture const outside;
    static_cast<void>(without_last_error([&] {
      cudaError_t const current = cudaSetDevice(device_);
      return current == cudaSuccess ? cudaFree(data) : current;
    }));
  }
  CudaMemory(CudaMemory const&) = delete;
  CudaMemory& operator=(CudaMemory const&) = delete;

  void* data = nullptr;
  std::size_t bytes;

  int device() const { return device_; }
  /// Whether a graph uses it.
  bool in_graph() const { return in_graph_->load(std::memory_order_acquire); }

  /// Leaves it to a graph until that graph and all that was instantiated from it are destroyed.
  void keep_for(char const* operation, cudaGraph_t graph) {
    // CUDA calls back from a thread of its own, maybe long after this object is gone.
    using Flag = std::shared_ptr<std::atomic<bool>>;
    auto flag = std::make_unique<Flag>(in_graph_);
    in_graph_->store(true, std::memory_order_release);
    cudaUserObject_t object = nullptr;
    cudaError_t status = without_last_error([&] {
      return cudaUserObjectCreate(
          &object, flag.get(),
          [](void* argument) {
            std::unique_ptr<Flag> const mine(static_cast<Flag*>(argument));
            (*mine)->store(false, std::memory_order_release);
          },
          1, cudaUserObjectNoDestructorSync);
    });
    if (status == cudaSuccess) {
      static_cast<void>(flag.release());
      status = without_last_error(
          [&] { return cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove); });
      if (status != cudaSuccess) static_cast<void>(cudaUserObjectRelease(object, 1));
    } else {
      in_graph_->store(false, std::memory_order_release);
    }
    if (status != cudaSuccess)
      raise<ResourceError>(operation, ": the graph that is captured cannot keep ", bytes,
                           " bytes of workspace: CUDA reports: ", cudaGetErrorString(status));
  }

 private:
  int device_;
  std::string label_;
  std::shared_ptr<std::atomic<bool>> in_graph_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
#endif
