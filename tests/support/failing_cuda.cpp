// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "failing_cuda.hpp"

#include <cuda.h>

#include <utility>

namespace attikos::test {
namespace {

constexpr long never = -1;
long left = never;  // calls until the fault
cudaError_t with = cudaSuccess, last = cudaSuccess;
CudaCalls calls;
bool armed = false;

/// Whether a call fails.
bool fails(char const* name) {
  if (!armed) return false;
  if (left == 0) {
    left = never;
    calls.failed = name;
    last = with;
    return true;
  }
  if (left > 0) --left, ++calls.count;
  return false;
}

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, cuuint64_t const*,
                            cuuint64_t const*, cuuint32_t const*, cuuint32_t const*,
                            CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                            CUtensorMapFloatOOBfill);
Encode real_encode = nullptr;

/// The driver's function, which the companion asks for by name. It has no last error.
CUresult encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data,
                cuuint64_t const* extents, cuuint64_t const* strides, cuuint32_t const* box,
                cuuint32_t const* steps, CUtensorMapInterleave interleave,
                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                CUtensorMapFloatOOBfill fill) {
  cudaError_t const before = last;
  if (fails("cuTensorMapEncodeTiled")) {
    last = before;
    return CUDA_ERROR_INVALID_VALUE;
  }
  return real_encode(map, type, rank, data, extents, strides, box, steps, interleave, swizzle,
                     promotion, fill);
}

}  // namespace

void fail_cuda_call(long nth, cudaError_t status) {
  left = nth, with = status, calls = {}, armed = true;
}

CudaCalls stop_failing_cuda_calls() {
  armed = false, left = never;
  return std::exchange(calls, {});
}

}  // namespace attikos::test

// What the linker calls f is __wrap_f where f is wrapped, and __real_f is f itself.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {

#define ATTIKOS_FAILING(name, parameters, arguments)             \
  cudaError_t __real_##name parameters;                          \
  cudaError_t __wrap_##name parameters {                         \
    if (attikos::test::fails(#name)) return attikos::test::with; \
    return __real_##name arguments;                              \
  }
ATTIKOS_FAILING(cudaGetDevice, (int* device), (device))
ATTIKOS_FAILING(cudaSetDevice, (int device), (device))
ATTIKOS_FAILING(cudaGetDeviceCount, (int* count), (count))
ATTIKOS_FAILING(cudaDeviceGetAttribute, (int* value, cudaDeviceAttr which, int device),
                (value, which, device))
ATTIKOS_FAILING(cudaFuncGetAttributes, (cudaFuncAttributes * attributes, void const* function),
                (attributes, function))
ATTIKOS_FAILING(cudaFuncSetAttribute, (void const* function, cudaFuncAttribute which, int value),
                (function, which, value))
ATTIKOS_FAILING(cudaStreamIsCapturing, (cudaStream_t stream, cudaStreamCaptureStatus* status),
                (stream, status))
#undef ATTIKOS_FAILING

#define ATTIKOS_FAILING_LAUNCH(name, parameters, arguments)                                   \
  cudaError_t __real_##name parameters;                                                       \
  cudaError_t __wrap_##name parameters {                                                      \
    if (attikos::test::fails(#name)) return attikos::test::with;                              \
    cudaError_t const status = __real_##name arguments;                                       \
    if (attikos::test::armed && attikos::test::calls.failed.empty() && status == cudaSuccess) \
      ++attikos::test::calls.launches;                                                        \
    return status;                                                                            \
  }
ATTIKOS_FAILING_LAUNCH(cudaLaunchKernel,
                       (void const* function, dim3 grid, dim3 block, void** arguments,
                        std::size_t shared_bytes, cudaStream_t stream),
                       (function, grid, block, arguments, shared_bytes, stream))
ATTIKOS_FAILING_LAUNCH(cudaLaunchKernelExC,
                       (cudaLaunchConfig_t const* config, void const* function, void** arguments),
                       (config, function, arguments))
#undef ATTIKOS_FAILING_LAUNCH

cudaError_t __real_cudaGetDriverEntryPointByVersion(char const*, void**, unsigned,
                                                    unsigned long long,
                                                    cudaDriverEntryPointQueryResult*);
cudaError_t __wrap_cudaGetDriverEntryPointByVersion(char const* name, void** function,
                                                    unsigned version, unsigned long long flags,
                                                    cudaDriverEntryPointQueryResult* result) {
  using namespace attikos::test;
  if (fails("cudaGetDriverEntryPointByVersion")) return with;
  cudaError_t const status =
      __real_cudaGetDriverEntryPointByVersion(name, function, version, flags, result);
  if (status == cudaSuccess && std::string(name) == "cuTensorMapEncodeTiled" &&
      *function != nullptr) {
    real_encode = reinterpret_cast<Encode>(*function);
    *function = reinterpret_cast<void*>(&encode);
  }
  return status;
}

// The last error: that of a call that was made to fail, or the run time's.
cudaError_t __real_cudaPeekAtLastError();
cudaError_t __wrap_cudaPeekAtLastError() {
  return attikos::test::last != cudaSuccess ? attikos::test::last : __real_cudaPeekAtLastError();
}
cudaError_t __real_cudaGetLastError();
cudaError_t __wrap_cudaGetLastError() {
  cudaError_t const real = __real_cudaGetLastError();
  cudaError_t const ours = std::exchange(attikos::test::last, cudaSuccess);
  return ours != cudaSuccess ? ours : real;
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
