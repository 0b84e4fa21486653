// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm_sm90.cuh"
#include "sm90_simt_f32.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

template <class Config>
cudaError_t launch_simt(abi::GemmArgs const& g, abi::Device const& device, CUstream_st* stream) {
  Sm90Params p{};
  cudaError_t const status = make_params<Config>(g, Config::tile_m, Config::tile_n, p);
  if (status != cudaSuccess) return status;
  // Stored element by element either way: `words` says that alpha is all there is and rows of C are
  // contiguous.
  p.store = choose_store(g);
  p.tiles = {static_cast<int>(blocks_of(g.m, Config::tile_m)),
             static_cast<int>(blocks_of(g.n, Config::tile_n)), static_cast<int>(g.batch), 16};
  std::int64_t const tiles = std::int64_t{p.tiles.clusters_m} * p.tiles.tiles_n * p.tiles.batch;
  std::int64_t const places = std::max(1, device.sm_count) * Config::blocks_per_sm;
  return launch_clusters(simt_f32_kernel<Config>, static_cast<int>(std::min(tiles, places)), 1,
                         Config::threads, Config::shared_bytes, stream, p);
}

/// Large tiles where they fill the device, else small ones, two of which share a multiprocessor.
template <bool MnA, bool MnB>
cudaError_t launch_layout_f32(abi::GemmArgs const& g, abi::Device const& device,
                              CUstream_st* stream) {
  std::int64_t const large = blocks_of(g.m, 128) * blocks_of(g.n, 256) * g.batch;
  if (large * 10 >= device.sm_count * std::int64_t{9})
    return launch_simt<SimtConfig<MnA, MnB, 128, 256, 16, 4, 1>>(g, device, stream);
  return launch_simt<SimtConfig<MnA, MnB, 64, 128, 8, 4, 2>>(g, device, stream);
}

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm90SimtF32::accepts(GemmArgs const& args, Device const& device) noexcept {
  if (args.type_c != DType::float32) return refused("it does not write C's element type");
  return cuda::accepts_sm90<float, float>(args, device);
}

int GemmSm90SimtF32::launch(GemmArgs const& args, Device const& device,
                            CUstream_st* stream) noexcept {
  if (!accepts(args, device).ok) return cudaErrorInvalidValue;
  if (args.m == 0 || args.n == 0 || args.batch == 0) return cudaSuccess;
  cuda::ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  GemmArgs const g = args.c_n != 1 && args.c_m == 1 ? cuda::transposed(args) : args;
  bool const mn_a = cuda::major_a(g) == cuda::Major::mn, mn_b = cuda::major_b(g) == cuda::Major::mn;
  if (mn_a)
    return mn_b ? cuda::launch_layout_f32<true, true>(g, device, stream)
                : cuda::launch_layout_f32<true, false>(g, device, stream);
  return mn_b ? cuda::launch_layout_f32<false, true>(g, device, stream)
              : cuda::launch_layout_f32<false, false>(g, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
