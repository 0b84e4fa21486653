// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file What the host side of every specialization observes: whose errors are whose, which device
/// is current, how to launch.
#pragma once

#include <cuda_runtime_api.h>

#include <attikos/abi/device.hpp>
#include <cstddef>

#include "limits.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

namespace {

/// Whether this translation unit has code for sm_90. Host code asks, since what a card without code
/// of its own runs is made of another's.
constexpr bool has_code_for_sm90() {
#if defined(__CUDA_ARCH_LIST__)
  for (int architecture : {__CUDA_ARCH_LIST__})
    if (architecture == 900) return true;
#endif
  return false;
}

}  // namespace

/// Why a device does not run code for sm_80 and later, or for Hopper alone; null if it does.
inline char const* refuse_before_sm80(abi::Device const& device) {
  if (device.compute_major >= 8) return nullptr;
  return device.compute_major == 0 ? "no CUDA device" : "it needs compute capability 8.0";
}
inline char const* refuse_other_than_sm90(abi::Device const& device) {
  if (device.compute_major == 9) return nullptr;
  return device.compute_major == 0 ? "no CUDA device" : "its machine code runs on sm_90 only";
}

/// Makes one runtime call and returns its status, without leaving its failure behind as the
/// thread's last error. An error that was already pending belongs to the caller, who must still
/// find one: then nothing is cleared.
template <class Call>
cudaError_t without_trace(Call&& call) noexcept {
  cudaError_t const before = cudaPeekAtLastError();
  cudaError_t const status = call();
  if (status != cudaSuccess && before == cudaSuccess) (void)cudaGetLastError();
  return status;
}

/// Makes a device current for a scope. Costs one thread-local look-up where it already is.
class ScopedDevice {
 public:
  explicit ScopedDevice(int ordinal) noexcept {
    status_ = without_trace([&] { return cudaGetDevice(&previous_); });
    if (status_ != cudaSuccess || previous_ == ordinal) return;
    status_ = without_trace([&] { return cudaSetDevice(ordinal); });
    changed_ = status_ == cudaSuccess;
  }
  ~ScopedDevice() {
    if (changed_) (void)without_trace([&] { return cudaSetDevice(previous_); });
  }
  ScopedDevice(ScopedDevice const&) = delete;
  ScopedDevice& operator=(ScopedDevice const&) = delete;

  cudaError_t status() const noexcept { return status_; }

 private:
  int previous_ = -1;
  bool changed_ = false;
  cudaError_t status_ = cudaSuccess;
};

/// Lets launches of a kernel on the current device use as much dynamic shared memory as they ask
/// for, up to what the device allows a block. The limit belongs to the kernel, not to the launch:
/// if each launch set what it needs, host threads with different shapes would take it from each
/// other between setting and launching. So it is set once for each kernel and device, to the most
/// there can be; the next calls cost a look-up. Any threads may call it, during a capture too.
cudaError_t raise_shared_memory_limit(void const* kernel) noexcept;

/// Launches a kernel of one struct parameter and returns the status of this very launch. `<<<>>>`
/// would report through the last error, where one cannot tell this launch's failure from an older
/// one. `shared_bytes`: of dynamic shared memory; `cluster`: blocks of a cluster, side by side.
template <class Params>
cudaError_t launch_kernel(void (*kernel)(Params), dim3 grid, int threads, cudaStream_t stream,
                          Params params, int shared_bytes = 0, int cluster = 1) noexcept {
  void* arguments[] = {&params};
  return without_trace([&] {
    auto const* const function = reinterpret_cast<void const*>(kernel);
    if (shared_bytes > unlimited_shared_bytes) {
      cudaError_t const status = raise_shared_memory_limit(function);
      if (status != cudaSuccess) return status;
    }
    if (cluster > 1) {
      cudaLaunchAttribute attribute{};
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
      cudaLaunchConfig_t config{};
      config.gridDim = grid;
      config.blockDim = dim3(static_cast<unsigned>(threads));
      config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
      config.stream = stream;
      config.attrs = &attribute;
      config.numAttrs = 1;
      return cudaLaunchKernelExC(&config, function, arguments);
    }
    return cudaLaunchKernel(function, grid, dim3(static_cast<unsigned>(threads)), arguments,
                            static_cast<std::size_t>(shared_bytes), stream);
  });
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
