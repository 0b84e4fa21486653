// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Host side that kernels from sm_80 on share, of attention, its gradients, decode and append_kv:
/// what 16-byte copies need, and launches.
#pragma once

#include <attikos/abi/device.hpp>
#include <cstdint>

#include "common/check.cuh"
#include "common/tensor_map.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Why 16-byte copies cannot go through a tensor [batch, heads, positions, features], null if they
/// can.
template <class T>
char const* refuse_rows(void const* data, std::int64_t const (&extent)[4],
                        std::int64_t const (&stride)[4], char const* misaligned,
                        char const* odd_stride, char const* no_unit) {
  if (data == nullptr) return "q, k, v or out is a null pointer";
  if (extent[3] > 1 && stride[3] != 1) return no_unit;
  if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0) return misaligned;
  for (int r = 0; r < 3; ++r)
    if (extent[r] > 1 && stride[r] % (16 / static_cast<std::int64_t>(sizeof(T))) != 0)
      return odd_stride;
  return nullptr;
}

/// Dependent launches overlap on Hopper where it finds code of its own generation, which waits for
/// the launch ahead; older code, translated for it, does not.
template <class Params>
cudaError_t launch_behind(void (*kernel)(Params), std::int64_t blocks, int threads,
                          int shared_bytes, abi::Device const& device, CUstream_st* stream,
                          Params const& p) {
  if (device.compute_major == 9 && has_code_for_sm90())
    return launch_clusters(kernel, static_cast<int>(blocks), 1, threads, shared_bytes, stream, p);
  return launch_kernel(kernel, dim3(static_cast<unsigned>(blocks)), threads, stream, p,
                       shared_bytes);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
