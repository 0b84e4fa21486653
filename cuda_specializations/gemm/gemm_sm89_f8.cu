// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm_sm80.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

constexpr bool is_float8(DType type) {
  return type == DType::float8_e4m3 || type == DType::float8_e5m2;
}

/// Eight warps of 32 × 32: the second set of accumulators and four kinds of products in one loop
/// take too many registers beside larger ones.
template <bool MnA, bool MnB>
using LargeFloat8 = Sm80Config<Float8Element, MnA, MnB, 128, 64, 32, 32, 4, 1, 100>;

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm89MmaF8::accepts(GemmArgs const& args, Device const& device) noexcept {
  if (!cuda::is_float8(args.type_a) || !cuda::is_float8(args.type_b))
    return refused("it multiplies other element types");
  if (!cuda::writable(args.type_c)) return refused("it does not write C's element type");
  char const* reason = cuda::refuse_quantized(args);
  if (reason == nullptr) reason = cuda::refuse_mma(args, device, 89);
  using Shapes = cuda::Shapes<cuda::Float8Element>;
  return cuda::with_tile<cuda::LargeFloat8, Shapes::Small>(
      reason == nullptr ? accepted() : refused(reason), args, device);
}

GemmTiles GemmSm89MmaF8::tiles(GemmArgs const& args, Device const& device) noexcept {
  using Shapes = cuda::Shapes<cuda::Float8Element>;
  return cuda::list_tiles_sm80<cuda::LargeFloat8, Shapes::Small>(accepts(args, device), args,
                                                                 device);
}

int GemmSm89MmaF8::launch(GemmArgs const& args, Device const& device,
                          CUstream_st* stream) noexcept {
  using Shapes = cuda::Shapes<cuda::Float8Element>;
  if (!accepts(args, device).ok) return cudaErrorInvalidValue;
  return cuda::run_sm80<cuda::LargeFloat8, Shapes::Small>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
