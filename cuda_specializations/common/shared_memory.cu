// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <atomic>
#include <cstdint>

#include "check.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// A kernel, and a bit for each device on which its limit is set.
struct Entry {
  std::atomic<void const*> kernel{nullptr};
  std::atomic<std::uint64_t> devices{0};
};

/// Only ever filled: kernels live as long as the program. Where it is full, or an ordinal has no
/// bit, the limit is set anew for each launch, to the same value.
constexpr std::size_t entries = 4096;
Entry table[entries];

Entry* entry_of(void const* kernel) noexcept {
  // Kernels' handles are addresses of functions, which differ in their upper bits.
  std::size_t at = (reinterpret_cast<std::uintptr_t>(kernel) >> 4) * 0x9e3779b97f4a7c15u >> 32;
  for (std::size_t tried = 0; tried < entries; ++tried, ++at) {
    Entry& entry = table[at % entries];
    void const* found = entry.kernel.load(std::memory_order_relaxed);
    if (found == nullptr &&
        entry.kernel.compare_exchange_strong(found, kernel, std::memory_order_relaxed))
      return &entry;
    if (found == kernel) return &entry;
  }
  return nullptr;
}

/// The most dynamic shared memory that a kernel can have on a device.
cudaError_t set_limit(void const* kernel, int device) noexcept {
  cudaFuncAttributes attributes{};
  cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
  int per_block = 0;
  if (status == cudaSuccess)
    status = cudaDeviceGetAttribute(&per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (status != cudaSuccess) return status;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              per_block - static_cast<int>(attributes.sharedSizeBytes));
}

}  // namespace

cudaError_t raise_shared_memory_limit(void const* kernel) noexcept {
  int device = -1;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  Entry* const entry = entry_of(kernel);
  std::uint64_t const bit = device < 64 ? std::uint64_t{1} << device : 0;
  if (entry != nullptr && (entry->devices.load(std::memory_order_acquire) & bit) != 0)
    return cudaSuccess;
  status = set_limit(kernel, device);
  if (status == cudaSuccess && entry != nullptr)
    entry->devices.fetch_or(bit, std::memory_order_release);
  return status;
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
