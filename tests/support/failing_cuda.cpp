// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "failing_cuda.hpp"

#include <cuda.h>

#include <cstddef>
#include <utility>

namespace attikos::test {
namespace {

constexpr long never = -1;
long left = never;  // calls until the fault
cudaError_t with = cudaSuccess, last = cudaSuccess;
std::set<std::string> only;  // the functions that count, if not all do
CudaCalls calls;
bool armed = false;
long allocations = 0;

/// Whether a call fails.
bool fails(char const* name) {
  if (!armed || (!only.empty() && !only.contains(name))) return false;
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

void fail_cuda_call(long nth, cudaError_t status, std::set<std::string> functions) {
  left = nth, with = status, only = std::move(functions), calls = {}, armed = true;
}

CudaCalls stop_failing_cuda_calls() {
  armed = false, left = never;
  return std::exchange(calls, {});
}

long device_allocations() { return allocations; }

}  // namespace attikos::test

// What the linker calls f is __wrap_f where f is wrapped, and __real_f is f itself.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {

#define ATTIKOS_CALL(name, parameters, arguments)                \
  cudaError_t __real_##name parameters;                          \
  cudaError_t __wrap_##name parameters {                         \
    if (attikos::test::fails(#name)) return attikos::test::with; \
    return __real_##name arguments;                              \
  }
#define ATTIKOS_LAUNCH(name, parameters, arguments)                               \
  cudaError_t __real_##name parameters;                                           \
  cudaError_t __wrap_##name parameters {                                          \
    using namespace attikos::test;                                                \
    if (fails(#name)) return calls.failed_launch = true, with;                    \
    cudaError_t const status = __real_##name arguments;                           \
    if (armed && calls.failed.empty() && status == cudaSuccess) ++calls.launches; \
    return status;                                                                \
  }
#define ATTIKOS_OWN(name, parameters, arguments) cudaError_t __real_##name parameters;
#include "failing_cuda_functions.hpp"
#undef ATTIKOS_CALL
#undef ATTIKOS_LAUNCH
#undef ATTIKOS_OWN

cudaError_t __wrap_cudaMalloc(void** memory, std::size_t bytes) {
  using namespace attikos::test;
  if (bytes > 0 && fails("cudaMalloc")) return with;
  cudaError_t const status = __real_cudaMalloc(memory, bytes);
  if (status == cudaSuccess && *memory != nullptr) ++allocations;
  return status;
}
// Not one that fails: who frees something has nothing else to do.
cudaError_t __wrap_cudaFree(void* memory) {
  cudaError_t const status = __real_cudaFree(memory);
  if (status == cudaSuccess && memory != nullptr) --attikos::test::allocations;
  return status;
}

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
cudaError_t __wrap_cudaPeekAtLastError() {
  return attikos::test::last != cudaSuccess ? attikos::test::last : __real_cudaPeekAtLastError();
}
cudaError_t __wrap_cudaGetLastError() {
  cudaError_t const real = __real_cudaGetLastError();
  cudaError_t const ours = std::exchange(attikos::test::last, cudaSuccess);
  return ours != cudaSuccess ? ours : real;
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
