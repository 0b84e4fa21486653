// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Facts about devices, without a context and without Kokkos.
#include <unistd.h>

#include <algorithm>
#include <attikos/core/device_info.hpp>
#include <cstring>
#include <string>

#include "context.hpp"
#include "entry.hpp"

namespace attikos::c {
namespace {

static_assert(static_cast<int>(Architecture::blackwell) == ATTIKOS_ARCH_BLACKWELL &&
              static_cast<int>(Architecture::host) == ATTIKOS_ARCH_HOST);

template <std::size_t Size>
void copy_text(char (&to)[Size], std::string const& from) {
  std::size_t const length = std::min(from.size(), Size - 1);
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

attikos_device_info host_info(std::int32_t kind) {
  attikos_device_info info = ATTIKOS_DEVICE_INFO_INIT;
  copy_text(info.name, detail::processor_name());
  copy_text(info.simd, attikos::simd_name(compiled_simd));
  copy_text(info.host_isa, host_isa_name(host_isa()));
  info.kind = kind;
  info.architecture = ATTIKOS_ARCH_HOST;
  info.multiprocessors = static_cast<std::int32_t>(sysconf(_SC_NPROCESSORS_ONLN));
  info.total_memory = detail::physical_memory();
  return info;
}

attikos_device_info cuda_info([[maybe_unused]] std::int32_t ordinal) {
  attikos_device_info info = ATTIKOS_DEVICE_INFO_INIT;
#if defined(KOKKOS_ENABLE_CUDA)
  cudaDeviceProp properties{};
  cudaError_t const error = cudaGetDeviceProperties(&properties, ordinal);
  if (error != cudaSuccess) {
    cudaGetLastError();
    fail(ATTIKOS_DEVICE_ERROR, "get_device_info: CUDA reports: ", cudaGetErrorString(error));
  }
  DeviceInfo const facts = detail::cuda_device_info(properties, ordinal);
  copy_text(info.name, facts.name);
  info.kind = ATTIKOS_CUDA;
  info.architecture = static_cast<std::int32_t>(facts.architecture);
  info.compute_major = facts.compute_major;
  info.compute_minor = facts.compute_minor;
  info.has_tma = facts.tma;
  info.has_fp8 = facts.fp8;
  info.has_warpgroup_mma = facts.warpgroup_mma;
  info.multiprocessors = facts.sm_count;
  info.shared_memory_per_multiprocessor = facts.shared_memory_per_sm;
  info.total_memory = facts.memory_bytes;
#endif
  return info;
}

}  // namespace

attikos_status write_device_info(std::int32_t kind, std::int32_t ordinal,
                                 attikos_device_info* info) noexcept {
  return guarded([&] {
    if (info == nullptr)
      fail(ATTIKOS_NULL_ARGUMENT, "get_device_info: the place for the result is null");
    // As it was introduced, and as short as it may be for good.
    constexpr std::size_t first_size = 200;
    static_assert(first_size <= sizeof(attikos_device_info));
    std::size_t const size = info->struct_size;
    if (size < first_size || size % alignof(attikos_device_info) != 0)
      fail(ATTIKOS_INVALID_STRUCT, "get_device_info: struct_size of attikos_device_info is ", size,
           "; expected ", sizeof(attikos_device_info),
           " as in this version or, of others, a multiple of ", alignof(attikos_device_info),
           " from ", first_size, " on, set with ATTIKOS_DEVICE_INFO_INIT");
    if (!attikos_has_device(kind, ordinal))
      fail(ATTIKOS_DEVICE_ERROR, "get_device_info: there is no device ", ordinal, " of kind ",
           kind);
    attikos_device_info result = kind == ATTIKOS_CUDA ? cuda_info(ordinal) : host_info(kind);
    std::memcpy(info, &result, std::min(size, sizeof result));
    info->struct_size = size;
  });
}

}  // namespace attikos::c
