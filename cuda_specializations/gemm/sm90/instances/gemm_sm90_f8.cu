// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm/sm90/launch_product.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// The operands may have changed places.
cudaError_t float8_product(abi::GemmArgs const& g, abi::Device const& device,
                           Destination const& to) {
  using Products = Sm90ProductsF8;
  bool const a5 = g.type_a == DType::float8_e5m2, b5 = g.type_b == DType::float8_e5m2;
  if (a5) return b5 ? Products::e5m2(g, device, to) : Products::e5m2_e4m3(g, device, to);
  return b5 ? Products::e4m3_e5m2(g, device, to) : Products::e4m3(g, device, to);
}

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm90WgmmaF8::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::with_float8(args, [&](auto a, auto b) {
    return cuda::accepts_sm90<decltype(a), decltype(b)>(args, device, cuda::float8_product);
  });
}

GemmTiles GemmSm90WgmmaF8::tiles(GemmArgs const& args, Device const& device) noexcept {
  return cuda::with_float8(args, [&](auto a, auto b) {
    return cuda::list_tiles_sm90<decltype(a), decltype(b)>(args, device, cuda::float8_product);
  });
}

int GemmSm90WgmmaF8::launch(GemmArgs const& args, Device const& device,
                            CUstream_st* stream) noexcept {
  return cuda::with_float8(args, [&](auto a, auto b) {
    return cuda::run_sm90<decltype(a), decltype(b)>(args, device, stream, cuda::float8_product);
  });
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
