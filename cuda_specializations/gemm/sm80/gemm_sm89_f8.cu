// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

constexpr bool is_float8(DType type) {
  return type == DType::float8_e4m3 || type == DType::float8_e5m2;
}

using Float8Product = Sm80Product<Float8Element, sm80_gemm_shapes::M128N64Float8>;

/// First reason not to take a call; null if there is none.
char const* refuse_float8(abi::GemmArgs const& g, abi::Device const& device) {
  if (!is_float8(g.type_a) || !is_float8(g.type_b)) return "it multiplies other element types";
  if (!writable(g.type_c)) return "it does not write C's element type";
  if (char const* reason = refuse_quantized(g)) return reason;
  return refuse_mma(g, device, 89);
}

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm89MmaF8::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::Float8Product::accepts(cuda::refuse_float8(args, device), args, device);
}
GemmTiles GemmSm89MmaF8::tiles(GemmArgs const& args, Device const& device) noexcept {
  return cuda::Float8Product::tiles(accepts(args, device), args, device);
}
int GemmSm89MmaF8::launch(GemmArgs const& args, Device const& device,
                          CUstream_st* stream) noexcept {
  return cuda::Float8Product::launch(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
