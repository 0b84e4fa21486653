// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm/sm90/launch_8bit.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {
namespace {
constexpr auto product = cuda::launch_8bit<std::int8_t, std::int8_t>;
}

Verdict GemmSm90WgmmaS8::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::accepts_sm90<std::int8_t, std::int8_t>(args, device, product);
}

GemmTiles GemmSm90WgmmaS8::tiles(GemmArgs const& args, Device const& device) noexcept {
  return cuda::list_tiles_sm90<std::int8_t, std::int8_t>(args, device, product);
}

int GemmSm90WgmmaS8::launch(GemmArgs const& args, Device const& device,
                            CUstream_st* stream) noexcept {
  return cuda::run_sm90<std::int8_t, std::int8_t>(args, device, stream, product);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
