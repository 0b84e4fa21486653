// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// A planned launch of append_kv/sm80_simt, to be made for the types of the call. Those with float8
/// caches have translation units of their own.
#pragma once

#include "kernel.cuh"
#include "plan.cuh"
#include "sequences/launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

struct AppendKvLaunch {
  AppendKvParams params;
  std::int64_t blocks;
  int group;  ///< elements moved at once
  abi::Device const& device;
  CUstream_st* stream;

  template <class Config>
  cudaError_t run() const {
    return launch_behind(append_kv_kernel<Config>, blocks, append_kv_threads, 0, device, stream,
                         params);
  }
  /// Converts or rotates.
  template <class X, class C>
  cudaError_t pair() const {
    using namespace append_kv_shapes;
    using Most = std::conditional_t<sizeof(X) == 8, Pairs, Fours>;
    return group == Most::group ? run<AppendKvConfig<X, C, Most>>()
                                : run<AppendKvConfig<X, C, Singles>>();
  }
};

cudaError_t launch_append_kv_e4m3(AppendKvLaunch const& launch, DType from);
cudaError_t launch_append_kv_e5m2(AppendKvLaunch const& launch, DType from);

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
