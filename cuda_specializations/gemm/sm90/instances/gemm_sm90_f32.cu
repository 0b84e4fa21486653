// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cassert>

#include "gemm/sm90/kernel_simt_f32.cuh"
#include "gemm/sm90/kernel_tf32x3.cuh"
#include "gemm/sm90/launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// `splits`: blocks that share out each tile's K, of shapes that they do so in.
template <class Config>
cudaError_t launch_simt(abi::GemmArgs const& g, abi::Device const& device, int splits,
                        CUstream_st* stream) {
  SimtParams p{};
  cudaError_t const status = make_params<Config>(g, Config::tile_m, Config::tile_n, p);
  if (status != cudaSuccess) return status;
  // Stored by ordinary stores either way: `words` says that alpha is all there is and that four
  // sums side by side are one store.
  p.store = choose_store(g, false);
  p.k_major_a = major_a(g) == Major::k, p.k_major_b = major_b(g) == Major::k;
  p.alpha = p.epilogue.alpha, p.epilogue.alpha = 1;
  p.splits = splits;
  p.tiles = {blocks_of(g.m, Config::tile_m), blocks_of(g.n, Config::tile_n), g.batch, 16};
  std::int64_t const tiles = std::int64_t{p.tiles.clusters_m} * p.tiles.tiles_n * p.tiles.batch;
  std::int64_t const blocks =
      Config::split ? tiles * splits : std::min<std::int64_t>(tiles, std::max(1, device.sm_count));
  return launch_clusters(simt_f32_kernel<Config>, static_cast<int>(blocks),
                         Config::split ? splits : 1, Config::threads, Config::shared_bytes, stream,
                         p);
}

using SimtLarge = SimtConfig<sm90_gemm_shapes::M128N256Simt>;
using SimtMiddle = SimtConfig<sm90_gemm_shapes::M128N128Simt>;
using SimtSmall = SimtConfig<sm90_gemm_shapes::M64N128Simt>;

/// Cycles that a call takes: rounds of blocks over the device times what a block costs. `splits`: 0
/// for large tiles. Figures from where those in shapes.cuh are from; clusters of 4 and 8 leave a
/// tenth of the device idle.
template <class Config>
double simt_cost(abi::GemmArgs const& g, abi::Device const& device, int splits) {
  double const per_k =
      Config::cycles + (major_a(g) == Major::k ? 4 : 0) + (major_b(g) == Major::k ? 8 : 0);
  double const fixed = splits == 0   ? 8e3
                       : splits == 1 ? 12e3
                       : splits == 2 ? 13e3
                       : splits == 4 ? 18e3
                                     : 24e3;
  std::int64_t const blocks =
      blocks_of(g.m, Config::tile_m) * blocks_of(g.n, Config::tile_n) * g.batch;
  std::int64_t const sms = std::max(1, device.sm_count), shares = std::max(1, splits);
  std::int64_t const at_once =
      std::max<std::int64_t>(1, (shares > 2 ? sms * 9 / 10 : sms) / shares);
  std::int64_t const k =
      blocks_of(blocks_of(g.k, Config::tile_k), static_cast<int>(shares)) * Config::tile_k;
  return static_cast<double>((blocks + at_once - 1) / at_once) *
         (fixed + per_k * static_cast<double>(k));
}

/// Large tiles, or a smaller tile with so many blocks for each as take least time.
cudaError_t launch_cheapest_simt(abi::GemmArgs const& g, abi::Device const& device,
                                 CUstream_st* stream) {
  double least = simt_cost<SimtLarge>(g, device, 0);
  int splits = 0;
  bool small = false;
  for (int s : {1, 2, 4, 8}) {
    if (s > std::max(1, device.sm_count)) break;
    double const middle = simt_cost<SimtMiddle>(g, device, s);
    double const little = simt_cost<SimtSmall>(g, device, s);
    if (s <= SimtMiddle::most_splits && middle < least) least = middle, splits = s, small = false;
    if (little < least) least = little, splits = s, small = true;
  }
  if (splits == 0) return launch_simt<SimtLarge>(g, device, 0, stream);
  return small ? launch_simt<SimtSmall>(g, device, splits, stream)
               : launch_simt<SimtMiddle>(g, device, splits, stream);
}

/// Whether tiles of 128 × 128 are enough for the device: otherwise smaller ones, though slower,
/// keep more of it busy. From <H200 700 W, CUDA 13.0, 512³, 768³, 1024³>: they are faster with 16
/// tiles, but not with 36.
bool enough_for_tf32x3(abi::GemmArgs const& g, abi::Device const& device) {
  return 4 * blocks_of(g.m, Tf32x3Config::tile_m) * blocks_of(g.n, Tf32x3Config::tile_n) *
             g.batch >=
         device.sm_count;
}

cudaError_t launch_tf32x3(abi::GemmArgs const& g, abi::Device const& device, CUstream_st* stream) {
  using Config = Tf32x3Config;
  Tf32x3Params p{};
  cudaError_t status = make_params<Config>(g, Config::tile_m, Config::tile_n, p);
  if (status != cudaSuccess) return status;
  p.store = choose_store(g, false);
  if (p.store != Sm90Store::elements) p.epilogue.along_m = false;
  if (p.store == Sm90Store::words) {
    status = make_tensor_map(&p.c, source_c(g), 32, 64);
    if (status != cudaSuccess) return status;
  }
  p.transposes_a = major_a(g) == Major::mn, p.transposes_b = major_b(g) == Major::mn;
  p.tiles = {blocks_of(g.m, Config::tile_m), blocks_of(g.n, Config::tile_n), g.batch, 16};
  std::int64_t const tiles = std::int64_t{p.tiles.clusters_m} * p.tiles.tiles_n * p.tiles.batch;
  std::int64_t const blocks = std::min<std::int64_t>(tiles, std::max(1, device.sm_count));
  return launch_clusters(sm90_tf32x3_kernel, static_cast<int>(blocks), 1, Config::threads,
                         Config::shared_bytes, stream, p);
}

/// What both kernels accept.
abi::Verdict accepts_float32(abi::GemmArgs const& g, abi::Device const& device) {
  char const* const reason = refuse_sm90<float, float>(g, device);
  return reason == nullptr ? abi::accepted() : abi::refused(reason);
}

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm90SimtF32::accepts(GemmArgs const& args, Device const& device) noexcept {
  if (args.type_c != DType::float32) return refused("it does not write C's element type");
  // A tile of 64 × 128 for each of them would be all but empty. Those with a bias or an activation
  // are gemm/sm80_simt_f32's: <H200, 10 000 of 8, 16, 32 cubed with a bias> 111, 134, 205 µs, here
  // 1.04 ms.
  if (args.batch > 1 && args.m <= 32 && args.n <= 32 && args.k <= 32)
    return refused("a batch of products of 32 and less is shared out several at a time elsewhere");
  return cuda::accepts_float32(args, device);
}

int GemmSm90SimtF32::launch(GemmArgs const& args, Device const& device,
                            CUstream_st* stream) noexcept {
  assert(accepts(args, device).ok);
  if (args.m == 0 || args.n == 0 || args.batch == 0) return cudaSuccess;
  cuda::ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  return cuda::launch_cheapest_simt(args.c_n != 1 && args.c_m == 1 ? cuda::transposed(args) : args,
                                    device, stream);
}

Verdict GemmSm90WgmmaTf32x3::accepts(GemmArgs const& args, Device const& device) noexcept {
  if (args.compute == Compute::ieee)
    return refused("it drops the lowest bits of products, which compute = tf32x3 allows");
  if (args.type_c != DType::float32) return refused("it does not write C's element type");
  Verdict const verdict = cuda::accepts_float32(args, device);
  if (verdict.ok && args.m > 0 && args.n > 0 && args.batch > 0 &&
      !cuda::enough_for_tf32x3(args, device))
    return refused("its tiles of 128 x 128 are too few for the device");
  return verdict;
}

int GemmSm90WgmmaTf32x3::launch(GemmArgs const& args, Device const& device,
                                CUstream_st* stream) noexcept {
  assert(accepts(args, device).ok);
  if (args.m == 0 || args.n == 0 || args.batch == 0) return cudaSuccess;
  cuda::ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  return cuda::launch_tf32x3(args.c_n != 1 && args.c_m == 1 ? cuda::transposed(args) : args, device,
                             stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
