// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// A kernel of the compiled companion as a dispatch candidate on Kokkos::Cuda. Included where both
/// exist.
#pragma once

#include <Kokkos_Core.hpp>
#include <Kokkos_Profiling_ScopedRegion.hpp>
#include <attikos/abi/device.hpp>
#include <attikos/abi/verdict.hpp>
#include <attikos/core/error.hpp>
#include <attikos/core/label.hpp>
#include <cstddef>
#include <string_view>

#if defined(KOKKOS_ENABLE_CUDA)
namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Facts of the device an instance runs on; asked once per instance's device and kept, since they
/// never change.
inline abi::Device device_of(Kokkos::Cuda const& exec) {
  static int const matches =
      abi::companion_matches_headers() ? 1 : 0;  // ties this object to the companion's version
  if (matches == 0)
    raise<DeviceError>("companion: the compiled companion is not of version ",
                       ATTIKOS_VERSION_STRING);
  static abi::Device const first = abi::query_device(exec.cuda_device());
  return first.ordinal == exec.cuda_device() ? first : abi::query_device(exec.cuda_device());
}

/// Adapts `abi` kernels (name, accepts, launch on a stream) to KernelList. Names read
/// "operation/kernel".
template <class Kernel>
struct CudaKernel {
  static constexpr char const* name = Kernel::name;

  template <class Args>
  static abi::Verdict accepts(Args const& args, Kokkos::Cuda const& exec) {
    return Kernel::accepts(args, device_of(exec));
  }

  /// Of kernels that need temporary memory: how much.
  template <class Args>
  static std::size_t workspace_bytes(Args const& args, Kokkos::Cuda const& exec) {
    return Kernel::workspace_bytes(args, device_of(exec));
  }

  /// Of kernels that have several tiles for a call: which.
  template <class Args>
  static auto tiles(Args const& args, Kokkos::Cuda const& exec) requires requires {
    Kernel::tiles(args, abi::Device{});
  }
  { return Kernel::tiles(args, device_of(exec)); }

  template <class Args>
  static void run(Args const& args, Kokkos::Cuda const& exec) {
    std::string_view const full = name;
    run(args, exec, std::string(full.substr(0, full.find('/'))).c_str());
  }
  /// For `operation`, which the kernel's name need not begin with: attention() takes some of
  /// decode()'s kernels.
  template <class Args>
  static void run(Args const& args, Kokkos::Cuda const& exec, char const* operation) {
    std::string_view const full = name;
    auto const slash = full.find('/');
    bool const own = full.substr(0, slash) == operation;
    Kokkos::Profiling::ScopedRegion const region(
        label_if_heard(operation, own ? name + slash + 1 : name));
    int const status = Kernel::launch(args, device_of(exec), exec.cuda_stream());
    if (status != 0)
      raise<DeviceError>(operation, ": launching ", name, " failed: ", abi::error_string(status));
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
#endif
