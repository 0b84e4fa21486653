// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/abi/attention_cuda.hpp>
#include <cassert>

#include "attention/shared/plan.cuh"
#include "common/check.cuh"
#include "kernel_simt.cuh"
#include "kernel_tf32x3.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// First reason not to take a float32 call; null if there is none.
char const* refuse_f32(abi::AttentionArgs const& g, abi::Device const& device) {
  if (g.type != DType::float32 || g.type_out != DType::float32)
    return "it takes other element types";
  if (char const* reason = refuse_any_attention(g, device, abi::tile_attention_options))
    return reason;
  if (!is_empty(g) && (g.head_dim > 256 || g.head_dim_v > 256)) return "head_dim is above 256";
  return nullptr;
}

template <class Config>
cudaError_t launch_f32(void (*kernel)(F32AttentionParams), abi::AttentionArgs const& g,
                       abi::Device const& device, CUstream_st* stream) {
  F32AttentionParams p{};
  plan_attention(g, Config::tile_m, Config::blocks * device.sm_count, 2, p);
  p.terms = g.softcap > 0 || g.bias != nullptr || g.alibi != nullptr || !(g.softmax_scale > 0);
  p.excludes = g.mask != nullptr || g.bias != nullptr;
  bool const paged = g.page_table != nullptr;
  StoredExtents const extents(g);
  p.whole_q = rows_in_groups<float>(g.q, extents.q, g.q_stride);
  p.whole_k = rows_in_groups<float>(g.k, extents.k, g.k_stride);
  p.whole_v = rows_in_groups<float>(g.v, extents.v, g.v_stride);
  p.dense_k = !paged && (Config::across ? g.head_dim == 1 || g.k_stride[3] == 1 : p.whole_k) &&
              g.head_dim % Config::k_features == 0;
  p.dense_v = !paged && p.whole_v && g.head_dim_v % Config::v_features == 0;
  p.vectors = g.head_dim_v % 4 == 0 &&
              rows_in_groups<float>(g.out, {extents.q[0], extents.q[1], extents.q[2], g.head_dim_v},
                                    g.out_stride);
  return launch_kernel(kernel, dim3(static_cast<unsigned>(p.tiles_m * p.heads)), Config::threads,
                       stream, p, Config::shared_bytes);
}

using namespace f32_attention_shapes;

cudaError_t run_simt(abi::AttentionArgs const& g, abi::Device const& device, CUstream_st* stream) {
  auto const launch = [&]<class Config>(Config) {
    return launch_f32<Config>(simt_attention_kernel<Config>, g, device, stream);
  };
  std::int64_t const d = std::max(g.head_dim, g.head_dim_v);
  if (d <= 64) return launch(SimtAttentionConfig<D64Simt>{});
  if (d <= 128) return launch(SimtAttentionConfig<D128Simt>{});
  return launch(SimtAttentionConfig<D256Simt>{});
}

cudaError_t run_tf32x3(abi::AttentionArgs const& g, abi::Device const& device,
                       CUstream_st* stream) {
  auto const launch = [&]<class Config>(Config) {
    return launch_f32<Config>(tf32x3_attention_kernel<Config>, g, device, stream);
  };
  std::int64_t const d = std::max(g.head_dim, g.head_dim_v);
  if (d <= 64) return launch(Tf32x3AttentionConfig<D64Tf32x3>{});
  if (d <= 128) return launch(Tf32x3AttentionConfig<D128Tf32x3>{});
  return launch(Tf32x3AttentionConfig<D256Tf32x3>{});
}

}  // namespace
}  // namespace cuda

namespace abi {

Verdict AttentionSm80SimtF32::accepts(AttentionArgs const& args, Device const& device) noexcept {
  char const* const reason = cuda::refuse_f32(args, device);
  return reason == nullptr ? accepted() : refused(reason);
}

int AttentionSm80SimtF32::launch(AttentionArgs const& args, Device const& device,
                                 CUstream_st* stream) noexcept {
  assert(accepts(args, device).ok);
  if (cuda::is_empty(args)) return cudaSuccess;
  cuda::ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  return cuda::run_simt(args, device, stream);
}

Verdict AttentionSm80MmaTf32x3::accepts(AttentionArgs const& args, Device const& device) noexcept {
  if (args.compute == Compute::ieee)
    return refused("it drops the lowest bits of products, which compute = tf32x3 allows");
  char const* const reason = cuda::refuse_f32(args, device);
  return reason == nullptr ? accepted() : refused(reason);
}

int AttentionSm80MmaTf32x3::launch(AttentionArgs const& args, Device const& device,
                                   CUstream_st* stream) noexcept {
  assert(accepts(args, device).ok);
  if (cuda::is_empty(args)) return cudaSuccess;
  cuda::ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  return cuda::run_tf32x3(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
