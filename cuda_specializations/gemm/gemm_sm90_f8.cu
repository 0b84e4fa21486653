// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm_sm90.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

Verdict GemmSm90WgmmaF8::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::with_float8(args, [&](auto a, auto b) {
    return cuda::accepts_sm90<decltype(a), decltype(b)>(args, device);
  });
}

GemmTiles GemmSm90WgmmaF8::tiles(GemmArgs const& args, Device const& device) noexcept {
  return cuda::with_float8(args, [&](auto a, auto b) {
    return cuda::list_tiles_sm90<decltype(a), decltype(b)>(args, device);
  });
}

int GemmSm90WgmmaF8::launch(GemmArgs const& args, Device const& device,
                            CUstream_st* stream) noexcept {
  return cuda::with_float8(args, [&](auto a, auto b) {
    return cuda::run_sm90<decltype(a), decltype(b)>(args, device, stream);
  });
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
