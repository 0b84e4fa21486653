// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the C functions over the companion's kernels share, for peers_torch.py and its like:
/// PyTorch's tensors reach the kernels without Kokkos, in the process and stream of their peers.
#pragma once

#include <attikos/abi/device.hpp>
#include <attikos/abi/dtype.hpp>
#include <attikos/abi/verdict.hpp>
#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace {

using namespace attikos;
namespace abi = attikos::abi;  // the standard library has a global ::abi

template <class... Kernels>
struct List {};

/// Launches the first kernel that takes the call, or the one called `wanted`.
template <class Args, class... Kernels>
int run(List<Kernels...>, Args const& g, abi::Device const& device, char const* wanted,
        void* stream, char const** reason) {
  int status = -1;
  auto const attempt = [&](auto kernel) {
    using Kernel = decltype(kernel);
    if (*wanted != '\0' && std::strcmp(wanted, Kernel::name) != 0) return false;
    abi::Verdict const verdict = Kernel::accepts(g, device);
    *reason = verdict.reason;
    if (verdict.ok) status = Kernel::launch(g, device, static_cast<CUstream_st*>(stream));
    return verdict.ok;
  };
  (attempt(Kernels{}) || ...);
  return status;
}

inline DType type_of(char const* name) {
  for (DType type : {DType::float64, DType::float32, DType::float16, DType::float8_e4m3,
                     DType::float8_e5m2, DType::int8, DType::int32})
    if (std::strcmp(name, dtype_name(type)) == 0) return type;
  return DType::bfloat16;
}

}  // namespace
