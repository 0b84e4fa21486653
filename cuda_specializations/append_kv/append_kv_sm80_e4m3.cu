// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

cudaError_t launch_append_kv_e4m3(AppendKvLaunch const& launch, DType from) {
  using C = __nv_fp8_e4m3;
  if (from == DType::float32) return launch.pair<float, C>();
  if (from == DType::float16) return launch.pair<__half, C>();
  if (from == DType::bfloat16) return launch.pair<__nv_bfloat16, C>();
  return launch.pair<C, C>();
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
