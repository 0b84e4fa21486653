// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cassert>

#include "common/check.cuh"
#include "common/limits.cuh"
#include "kernel_f32.cuh"
#include "kernel_f64.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

constexpr int small_extent = 64;

/// First reason not to take a call of elements `type`; null if there is none.
char const* refuse_small(abi::GemmArgs const& g, abi::Device const& device, DType type) {
  if (g.type_a != type || g.type_b != type) return "it multiplies other element types";
  if (g.type_c != type) return "it does not write C's element type";
  if (device.compute_major == 0) return "no CUDA device";
  if (!device.at_least(8, 0)) return "device is older than sm_80";
  if (device.shared_memory_per_block_optin < sm80_shared_bytes)
    return "the device gives a block less than 99 KiB of shared memory";
  bool const pointers =
      g.a_pointers != nullptr || g.b_pointers != nullptr || g.c_pointers != nullptr;
  if (char const* reason = abi::beyond(g, abi::GemmSm80SmallF32::takes)) return reason;
  if (g.m < 0 || g.n < 0 || g.k < 0 || g.batch < 0) return "an extent is negative";
  if (g.m > small_extent || g.n > small_extent || g.k > small_extent)
    return "an extent is above 64";
  if (g.m == 0 || g.n == 0 || g.batch == 0) return nullptr;  // nothing is read or written
  std::int64_t const largest = std::max({g.m, g.n, g.k});
  if (!pointers && g.batch < (largest <= 32 ? 2 : 2 * std::max(1, device.sm_count)))
    return "it is for batches of many products";
  if (g.batch > std::int64_t{1} << 29) return "the batch is too large for one launch";
  if (g.c == nullptr && g.c_pointers == nullptr) return "C is a null pointer";
  if ((g.m > 1 && g.c_m == 0) || (g.n > 1 && g.c_n == 0) || (g.batch > 1 && g.c_batch == 0))
    return "C has a zero stride, so its elements overlap";
  if (g.k == 0) return nullptr;  // A and B are empty
  if (g.a == nullptr && g.a_pointers == nullptr) return "A is a null pointer";
  if (g.b == nullptr && g.b_pointers == nullptr) return "B is a null pointer";
  return nullptr;
}

/// The same products seen as Cᵀ = Bᵀ · Aᵀ.
abi::GemmArgs transposed(abi::GemmArgs const& g) {
  abi::GemmArgs t = g;
  t.m = g.n, t.n = g.m;
  t.a = g.b, t.a_pointers = g.b_pointers, t.a_batch = g.b_batch, t.a_m = g.b_n, t.a_k = g.b_k;
  t.b = g.a, t.b_pointers = g.a_pointers, t.b_batch = g.a_batch, t.b_k = g.a_k, t.b_n = g.a_m;
  t.c_m = g.c_n, t.c_n = g.c_m;
  return t;
}

constexpr int round_up(std::int64_t x, int multiple) {
  return static_cast<int>((x + multiple - 1) / multiple * multiple);
}

/// One operand of elements of `size` bytes: `mn` rows or columns and slices of `depth` k, copied by
/// `threads` threads. `k_inner`: k lies together in a stage.
SmallOperand make_operand(void const* data, void const* const* pointers, std::int64_t batch,
                          std::int64_t mn, std::int64_t stride_mn, std::int64_t k,
                          std::int64_t stride_k, int size, int depth, int pitch, bool k_inner,
                          std::int64_t products, int threads) {
  SmallOperand o{};
  o.data = static_cast<unsigned char const*>(data);
  o.pointers = reinterpret_cast<unsigned char const* const*>(pointers);
  o.batch = products <= 1 ? 0 : pointers != nullptr ? batch : batch * size;
  std::int64_t const step_mn = mn <= 1 ? 0 : stride_mn * size;
  o.step_k = k <= 1 ? 0 : stride_k * size;
  int const lines = static_cast<int>(mn);
  int const shared_k = k_inner ? size : pitch, shared_mn = k_inner ? pitch : size;
  std::int64_t const inner = k_inner ? k : mn;
  o.whole = inner <= 1 || (k_inner ? stride_k : stride_mn) == 1;
  auto const magnitude = [](std::int64_t x) { return x < 0 ? -x : x; };
  o.k_is_x = o.whole ? k_inner : magnitude(o.step_k) <= magnitude(step_mn);
  o.extent_x = static_cast<int>(o.k_is_x ? k : mn),
  o.extent_y = static_cast<int>(o.k_is_x ? mn : k);
  o.size_x = o.k_is_x ? depth : lines, o.size_y = o.k_is_x ? lines : depth;
  o.step_x = o.k_is_x ? o.step_k : step_mn, o.step_y = o.k_is_x ? step_mn : o.step_k;
  o.shared_x = o.k_is_x ? shared_k : shared_mn, o.shared_y = o.k_is_x ? shared_mn : shared_k;
  if (o.whole) {
    o.size_x = (o.size_x * size + 15) / 16;
    o.step_x = o.shared_x = 16;
  }
  o.aligned = o.step_y % 16 == 0;
  auto const lanes = [](int count, int most_lanes) {
    int x = 1;
    while (x < count && x < most_lanes) x *= 2;
    return x;
  };
  o.lanes_x = lanes(o.size_x, threads), o.lanes_y = lanes(o.size_y, threads / o.lanes_x);
  o.lanes_product = threads / (o.lanes_x * o.lanes_y);
  return o;
}

/// What does not depend on how lanes share the sums. `depth`: of a stage, whose first `rows_a`
/// rows are A's, as many as lanes read.
template <class Shape>
SmallParams make_params(abi::GemmArgs const& g, int depth, int rows_a, int pitch_a, int pitch_b,
                        int per_group) {
  constexpr int size = static_cast<int>(sizeof(typename Shape::T));
  SmallParams p{};
  p.depth = depth;
  p.slices = std::max(1, static_cast<int>((g.k + p.depth - 1) / p.depth));
  p.pitch_a = pitch_a, p.pitch_b = pitch_b;
  p.a = make_operand(g.a, g.a_pointers, g.a_batch, g.m, g.a_m, g.k, g.a_k, size, p.depth, pitch_a,
                     true, g.batch, 32 * Shape::team);
  p.b = make_operand(g.b, g.b_pointers, g.b_batch, g.n, g.b_n, g.k, g.b_k, size, p.depth, pitch_b,
                     false, g.batch, 32 * Shape::team);
  p.c = static_cast<unsigned char*>(g.c);
  p.c_pointers = reinterpret_cast<unsigned char* const*>(g.c_pointers);
  p.c_batch = g.batch <= 1 ? 0 : g.c_batch, p.c_m = g.m <= 1 ? 0 : g.c_m;
  p.c_n = g.n <= 1 ? 1 : g.c_n;
  p.alpha = g.scale * g.alpha, p.beta = g.scale * g.beta;
  p.batch = static_cast<int>(g.batch);
  p.m = static_cast<int>(g.m), p.n = static_cast<int>(g.n), p.k = static_cast<int>(g.k);
  p.per_group = per_group;
  p.groups = (p.batch + per_group - 1) / per_group;
  p.b_offset = rows_a * pitch_a;
  // Products begin an odd number of 16 bytes apart, in different banks.
  p.product_bytes = p.b_offset + p.depth * pitch_b;
  if (p.product_bytes / 16 % 2 == 0) p.product_bytes += 16;
  p.stage_bytes = per_group * p.product_bytes;
  return p;
}

template <class Shape>
cudaError_t launch_small(void (*kernel)(SmallParams), SmallParams const& p,
                         abi::Device const& device, CUstream_st* stream) {
  int const ring = Shape::stages * p.stage_bytes, most = device.shared_memory_per_block_optin;
  int teams = 4 / Shape::team;
  while (teams > 1 && teams * ring > most) --teams;
  int const bytes = teams * ring, warps = teams * Shape::team;
  // A block takes 1 KiB more than it asks for, and a multiprocessor has 1 KiB more than a block
  // may.
  int const per_sm =
      std::max(1, std::min((most + 1024) / (bytes + 1024), Shape::blocks * 4 / warps));
  int const blocks =
      std::min((p.groups + teams - 1) / teams, per_sm * std::max(1, device.sm_count));
  return launch_kernel(kernel, dim3(static_cast<unsigned>(blocks)), 32 * warps, stream, p, bytes);
}

template <class Shape>
cudaError_t launch_floats(abi::GemmArgs const& g, abi::Device const& device, CUstream_st* stream) {
  int const part = static_cast<int>((g.m + Shape::team - 1) / Shape::team);
  int const lanes_m = round_up(part, Shape::tile_m) / Shape::tile_m;
  int const lanes_n = round_up(g.n, Shape::tile_n) / Shape::tile_n;
  int const depth = std::max(4, std::min(Shape::depth, round_up(g.k, 4)));
  // Rows of A are 16 bytes longer than they need be, so that successive ones lie in other banks.
  SmallParams p = make_params<Shape>(g, depth, Shape::team * lanes_m * Shape::tile_m,
                                     (depth + 4) * 4, lanes_n * Shape::tile_n * 4,
                                     Shape::team > 1 ? 1 : 32 / (lanes_m * lanes_n));
  p.lanes_m = lanes_m, p.lanes_n = lanes_n;
  return launch_small<Shape>(small_f32_kernel<Shape>, p, device, stream);
}

template <class Shape>
cudaError_t launch_doubles(abi::GemmArgs const& g, abi::Device const& device, CUstream_st* stream) {
  // Rows of B are two elements longer, so that those that a half warp reads lie in other banks.
  SmallParams const p = make_params<Shape>(g, Shape::depth, Shape::team * Shape::rows,
                                           Shape::depth == 8 ? 64 : (Shape::depth + 2) * 8,
                                           (Shape::columns + 2) * 8, 1);
  return launch_small<Shape>(small_f64_kernel<Shape>, p, device, stream);
}

/// Lanes' tiles of floats: the smallest of which a warp, or for the largest products a team of two,
/// holds one product at least.
cudaError_t run_floats(abi::GemmArgs const& g, abi::Device const& device, CUstream_st* stream) {
  using namespace small_gemm_shapes;
  auto const fits = [&](int tile_m, int tile_n) {
    return round_up(g.m, tile_m) / tile_m * (round_up(g.n, tile_n) / tile_n) <= 32;
  };
  if (g.m <= 16 && g.n <= 16) return launch_floats<Lane4x4>(g, device, stream);
  if (fits(4, 8)) return launch_floats<Lane4x8>(g, device, stream);
  if (fits(8, 8)) return launch_floats<Lane8x8>(g, device, stream);
  if (fits(8, 12)) return launch_floats<Lane8x12>(g, device, stream);
  return launch_floats<Lane8x8Pair>(g, device, stream);
}

cudaError_t run_doubles(abi::GemmArgs const& g, abi::Device const& device, CUstream_st* stream) {
  using namespace small_gemm_shapes;
  if (g.m <= 8 && g.n <= 8) return launch_doubles<M8N8Double>(g, device, stream);
  if (g.m <= 16 && g.n <= 16) return launch_doubles<M16N16Double>(g, device, stream);
  if (g.m <= 32 && g.n <= 32) return launch_doubles<M32N32Double>(g, device, stream);
  return launch_doubles<M64N64Double>(g, device, stream);
}

template <class Run>
int run_small(abi::GemmArgs const& args, abi::Device const& device, CUstream_st* stream,
              Run const& run) {
  if (args.m == 0 || args.n == 0 || args.batch == 0) return cudaSuccess;
  ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  return run(args.c_n != 1 && args.c_m == 1 && args.m > 1 ? transposed(args) : args, device,
             stream);
}

abi::Verdict accepts_small(abi::GemmArgs const& args, abi::Device const& device, DType type) {
  char const* const reason = refuse_small(args, device, type);
  return reason == nullptr ? abi::accepted() : abi::refused(reason);
}

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm80SmallF32::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::accepts_small(args, device, DType::float32);
}

int GemmSm80SmallF32::launch(GemmArgs const& args, Device const& device,
                             CUstream_st* stream) noexcept {
  assert(accepts(args, device).ok);
  return cuda::run_small(args, device, stream, cuda::run_floats);
}

Verdict GemmSm80SmallF64::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::accepts_small(args, device, DType::float64);
}

int GemmSm80SmallF64::launch(GemmArgs const& args, Device const& device,
                             CUstream_st* stream) noexcept {
  assert(accepts(args, device).ok);
  return cuda::run_small(args, device, stream, cuda::run_doubles);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
