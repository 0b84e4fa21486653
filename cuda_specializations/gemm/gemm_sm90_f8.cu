// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gemm_sm90.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

using E4 = __nv_fp8_e4m3;
using E5 = __nv_fp8_e5m2;

/// Calls `f` with the two element types of a product of float8.
template <class F>
auto with_types(abi::GemmArgs const& g, F f) {
  bool const a5 = g.type_a == DType::float8_e5m2, b5 = g.type_b == DType::float8_e5m2;
  if (a5) return b5 ? f(E5{}, E5{}) : f(E5{}, E4{});
  return b5 ? f(E4{}, E5{}) : f(E4{}, E4{});
}

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm90WgmmaF8::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::with_types(args, [&](auto a, auto b) {
    return cuda::accepts_sm90<decltype(a), decltype(b)>(args, device);
  });
}

int GemmSm90WgmmaF8::launch(GemmArgs const& args, Device const& device,
                            CUstream_st* stream) noexcept {
  return cuda::with_types(args, [&](auto a, auto b) {
    return cuda::run_sm90<decltype(a), decltype(b)>(args, device, stream);
  });
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
