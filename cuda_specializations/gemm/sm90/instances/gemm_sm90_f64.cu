// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cassert>

#include "gemm/sm80/launch.cuh"
#include "gemm/sm90/kernel_f64.cuh"
#include "gemm/sm90/launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

TensorMapSource double_a(abi::GemmArgs const& g) {
  return operand_source(g.a, CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 8, major_a(g), g.m, g.a_m, g.k, g.a_k,
                        g.batch, g.a_batch);
}
TensorMapSource double_b(abi::GemmArgs const& g) {
  return operand_source(g.b, CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 8, major_b(g), g.n, g.b_n, g.k, g.b_k,
                        g.batch, g.b_batch);
}

/// Pairs of tiles of 128 × 128, one above the other.
std::int64_t double_pairs(abi::GemmArgs const& g) {
  return blocks_of(g.m, 256) * blocks_of(g.n, 128) * g.batch;
}

/// Whether the busiest multiprocessor has less to do than with gemm/sm80_mma_f64's tiles of
/// 64 × 64, a quarter of these, which take 5 % more time for their size.
///
/// From <H200 700 W, CUDA 13.0, 2048³ and 4096³>: 0.99 … 1.07 times as fast as those; at 1024³,
/// where that has less to do, they keep the call.
bool pays_for_double(abi::GemmArgs const& g, abi::Device const& device) {
  std::int64_t const sms = std::max(1, device.sm_count),
                     at_once = std::max<std::int64_t>(1, sms / 2);
  std::int64_t const small = blocks_of(g.m, 64) * blocks_of(g.n, 64) * g.batch;
  return static_cast<double>((double_pairs(g) + at_once - 1) / at_once * 4) <=
         1.05 * static_cast<double>((small + sms - 1) / sms);
}

char const* refuse_double(abi::GemmArgs const& g, abi::Device const& device) {
  if (char const* reason = refuse_sm80<DoubleElement<1>>(g, device)) return reason;
  if (char const* reason = abi::beyond(g, abi::GemmSm90MmaF64::takes)) return reason;
  if (device.compute_major != 9) return "its machine code runs on sm_90 only";
  if (g.m == 0 || g.n == 0 || g.batch == 0) return nullptr;  // nothing is read or written
  if (g.k == 0) return "K is 0";
  if (char const* reason = refuse_maps(double_a(g), double_b(g))) return reason;
  return pays_for_double(g, device) ? nullptr : "its tiles of 128 x 128 are too few for the device";
}

template <class Config>
cudaError_t launch_double(abi::GemmArgs const& g, abi::Device const& device, CUstream_st* stream) {
  Sm90DoubleParams p{};
  cudaError_t status =
      make_tensor_map(&p.map_a, double_a(g), Config::tile_k, Config::mn_a ? 16 : Config::tile_m);
  if (status == cudaSuccess)
    status = make_tensor_map(&p.map_b, double_b(g), Config::tile_k,
                             Config::mn_b ? 16 : Config::tile_n / Config::cluster);
  if (status != cudaSuccess) return status;
  p.pairs = {blocks_of(g.m, 256), blocks_of(g.n, 128), g.batch, 8};
  p.m = static_cast<int>(g.m), p.n = static_cast<int>(g.n), p.k = static_cast<int>(g.k);
  p.k_blocks = static_cast<int>(blocks_of(g.k, Config::tile_k));
  p.a_batch_step = g.a_batch != 0, p.b_batch_step = g.b_batch != 0;
  p.whole = stores_whole(g);
  p.epilogue = make_epilogue(g);
  p.alpha = g.alpha, p.beta = g.beta, p.scale = g.scale;
  std::int64_t const clusters =
      std::min<std::int64_t>(double_pairs(g), std::max(1, device.sm_count / Config::cluster));
  return launch_clusters(sm90_f64_kernel<Config>, static_cast<int>(clusters) * Config::cluster,
                         Config::cluster, Config::threads, Config::shared_bytes, stream, p);
}

cudaError_t launch_double_layout(abi::GemmArgs const& g, abi::Device const& device,
                                 CUstream_st* stream) {
  return layouts::with_layout(major_a(g) == Major::mn, major_b(g) == Major::mn,
                              [&]<class Layout>(Layout) {
                                return launch_double<Sm90DoubleConfig<Layout>>(g, device, stream);
                              });
}

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm90MmaF64::accepts(GemmArgs const& args, Device const& device) noexcept {
  char const* const reason = cuda::refuse_double(args, device);
  return reason == nullptr ? accepted() : refused(reason);
}

int GemmSm90MmaF64::launch(GemmArgs const& args, Device const& device,
                           CUstream_st* stream) noexcept {
  assert(cuda::refuse_double(args, device) == nullptr);
  if (args.m == 0 || args.n == 0 || args.batch == 0) return cudaSuccess;
  cuda::ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  GemmArgs const g = args.c_n != 1 && args.c_m == 1 ? cuda::transposed(args) : args;
  return cuda::launch_double_layout(g, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
