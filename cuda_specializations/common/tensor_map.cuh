// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Descriptions of tensors for the copy engine, made by the driver without linking it.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <attikos/abi/dtype.hpp>
#include <cstdint>

#include "check.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// What an element type is called, by us and by the copy engine, which only copies what has 8 bits.
template <class T>
struct TensorMapElement;
template <>
struct TensorMapElement<__half> {
  static constexpr DType dtype = DType::float16;
  static constexpr CUtensorMapDataType map = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
};
template <>
struct TensorMapElement<__nv_bfloat16> {
  static constexpr DType dtype = DType::bfloat16;
  static constexpr CUtensorMapDataType map = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
};
template <>
struct TensorMapElement<__nv_fp8_e4m3> {
  static constexpr DType dtype = DType::float8_e4m3;
  static constexpr CUtensorMapDataType map = CU_TENSOR_MAP_DATA_TYPE_UINT8;
};
template <>
struct TensorMapElement<__nv_fp8_e5m2> {
  static constexpr DType dtype = DType::float8_e5m2;
  static constexpr CUtensorMapDataType map = CU_TENSOR_MAP_DATA_TYPE_UINT8;
};
template <>
struct TensorMapElement<float> {
  static constexpr DType dtype = DType::float32;
  static constexpr CUtensorMapDataType map = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
};
template <>
struct TensorMapElement<std::int8_t> {
  static constexpr DType dtype = DType::int8;
  static constexpr CUtensorMapDataType map = CU_TENSOR_MAP_DATA_TYPE_UINT8;
};

/// A matrix [batch, outer, inner] with unit stride along `inner` as the copy engine sees it;
/// strides in bytes.
struct TensorMapSource {
  void const* data;
  CUtensorMapDataType type;
  int element_bytes;
  std::int64_t inner, outer, batch;
  std::int64_t outer_stride, batch_stride;
};

constexpr bool multiple_of_16(std::int64_t bytes) { return bytes % 16 == 0; }

/// Why the copy engine cannot go through a matrix, null if it can. `inner_stride` counts elements.
constexpr char const* refuse_tensor_map(TensorMapSource const& t, char const* misaligned,
                                        char const* odd_stride, char const* too_large) {
  if (reinterpret_cast<std::uintptr_t>(t.data) % 16 != 0) return misaligned;
  if ((t.outer > 1 && (t.outer_stride <= 0 || !multiple_of_16(t.outer_stride))) ||
      (t.batch > 1 && (t.batch_stride < 0 || !multiple_of_16(t.batch_stride))))
    return odd_stride;
  constexpr std::int64_t extent = std::int64_t{1} << 31, stride = std::int64_t{1} << 40;
  if (t.inner >= extent || t.outer >= extent || t.batch >= extent ||
      (t.outer > 1 && t.outer_stride >= stride) || (t.batch > 1 && t.batch_stride >= stride))
    return too_large;
  return nullptr;
}

/// Describes a tensor of `Rank` dimensions, the unit stride first, to the copy engine: strides in
/// bytes of the others, boxes swizzled in rows of 128 bytes unless told otherwise. Returns a
/// cudaError_t.
template <int Rank>
cudaError_t encode_tensor_map(CUtensorMap* map, CUtensorMapDataType type, void const* data,
                              cuuint64_t const (&extents)[Rank],
                              cuuint64_t const (&strides)[Rank - 1], cuuint32_t const (&box)[Rank],
                              CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B) noexcept {
  using Encode =
      CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, cuuint64_t const*,
                   cuuint64_t const*, cuuint32_t const*, cuuint32_t const*, CUtensorMapInterleave,
                   CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  // The driver's function does not change while the program runs. A look-up that failed is no
  // answer: the next call asks again.
  static std::atomic<Encode> known{nullptr};
  Encode encode = known.load(std::memory_order_relaxed);
  if (encode == nullptr) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    cudaError_t const status = without_trace([&] {
      return cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                              cudaEnableDefault, &result);
    });
    if (status != cudaSuccess) return status;
    if (result != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
    encode = reinterpret_cast<Encode>(found);
    known.store(encode, std::memory_order_relaxed);
  }
  cuuint32_t steps[Rank];
  for (cuuint32_t& step : steps) step = 1;
  auto const attempt = [&] {
    return encode(map, type, Rank, const_cast<void*>(data), extents, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult status = attempt();
  if (status == CUDA_ERROR_INVALID_CONTEXT || status == CUDA_ERROR_NOT_INITIALIZED) {
    // A host thread's first call: the driver has no context before the runtime has bound one.
    int device = 0;
    cudaError_t bound = without_trace([&] { return cudaGetDevice(&device); });
    if (bound == cudaSuccess) bound = without_trace([&] { return cudaSetDevice(device); });
    if (bound != cudaSuccess) return bound;
    status = attempt();
  }
  return status == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

/// Boxes of `box_inner` × `box_outer` elements. Returns a cudaError_t.
inline cudaError_t make_tensor_map(
    CUtensorMap* map, TensorMapSource const& t, int box_inner, int box_outer,
    CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B) noexcept {
  // Strides of dimensions of extent 1 are the caller's to choose; the driver wants valid ones.
  std::int64_t const row =
      t.outer > 1 ? t.outer_stride : (t.inner * t.element_bytes + 15) / 16 * 16;
  std::int64_t const plane = t.batch > 1 ? t.batch_stride : row;
  cuuint64_t const extents[3] = {static_cast<cuuint64_t>(t.inner), static_cast<cuuint64_t>(t.outer),
                                 static_cast<cuuint64_t>(t.batch)};
  cuuint64_t const strides[2] = {static_cast<cuuint64_t>(row), static_cast<cuuint64_t>(plane)};
  cuuint32_t const box[3] = {static_cast<cuuint32_t>(box_inner), static_cast<cuuint32_t>(box_outer),
                             1};
  return encode_tensor_map(map, t.type, t.data, extents, strides, box, swizzle);
}

/// Launches a kernel of one struct parameter with clusters and dynamic shared memory, as a launch
/// that may begin while the one before it in the stream ends.
template <class Params>
cudaError_t launch_clusters(void (*kernel)(Params), int blocks, int cluster, int threads,
                            int shared_bytes, cudaStream_t stream, Params const& params) noexcept {
  return without_trace([&] {
    if (shared_bytes > unlimited_shared_bytes) {
      cudaError_t const status = raise_shared_memory_limit(reinterpret_cast<void const*>(kernel));
      if (status != cudaSuccess) return status;
    }
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = 2;
    void* arguments[] = {const_cast<Params*>(&params)};
    return cudaLaunchKernelExC(&config, reinterpret_cast<void const*>(kernel), arguments);
  });
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
