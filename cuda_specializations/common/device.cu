// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/abi/device.hpp>

#include "check.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

Device query_device(int ordinal) noexcept {
  // Asked first, because this call does not turn a wrong ordinal into an error of the thread.
  int count = 0;
  auto const counted = cuda::without_trace([&] { return cudaGetDeviceCount(&count); });
  if (counted != cudaSuccess || ordinal < 0 || ordinal >= count) return Device{};
  Device device;
  // Attributes one by one: cudaGetDeviceProperties takes milliseconds, these take less than a
  // microsecond.
  auto const ask = [&](int& value, cudaDeviceAttr attribute) {
    return cuda::without_trace(
               [&] { return cudaDeviceGetAttribute(&value, attribute, ordinal); }) == cudaSuccess;
  };
  if (!ask(device.compute_major, cudaDevAttrComputeCapabilityMajor) ||
      !ask(device.compute_minor, cudaDevAttrComputeCapabilityMinor) ||
      !ask(device.sm_count, cudaDevAttrMultiProcessorCount) ||
      !ask(device.shared_memory_per_block_optin, cudaDevAttrMaxSharedMemoryPerBlockOptin) ||
      !ask(device.l2_bytes, cudaDevAttrL2CacheSize)) {
    return Device{};
  }
  device.ordinal = ordinal;
  device.architecture = architecture_of(device.compute_major, device.compute_minor);
  return device;
}

int current_device() noexcept {
  int ordinal = -1;
  auto const status = cuda::without_trace([&] { return cudaGetDevice(&ordinal); });
  return status == cudaSuccess ? ordinal : -1;
}

bool stream_is_capturing(CUstream_st* stream) noexcept {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  auto const status = cuda::without_trace([&] { return cudaStreamIsCapturing(stream, &capture); });
  if (status == cudaErrorStreamCaptureImplicit) return true;
  return status == cudaSuccess && capture != cudaStreamCaptureStatusNone;
}

char const* error_string(int status) noexcept {
  return cudaGetErrorString(static_cast<cudaError_t>(status));
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
