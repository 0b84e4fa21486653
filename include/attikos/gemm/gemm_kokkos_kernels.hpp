// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Kokkos Kernels' BLAS as a candidate for float and double products on the host.
///
/// It calls a vendor BLAS there, which may be faster than the portable kernel, but gives results
/// that can depend on the number of threads; say `.kernel = "portable"` where that matters.
#pragma once

#include <attikos/config.hpp>

#if defined(ATTIKOS_HAVE_KOKKOS_KERNELS)
#include <KokkosKernels_config.h>

#include <KokkosBlas3_gemm.hpp>
#include <Kokkos_Profiling_ScopedRegion.hpp>
#include <attikos/abi/gemm.hpp>
#include <attikos/core/dispatch/dispatch.hpp>
#include <attikos/core/explain.hpp>
#include <attikos/core/label.hpp>
#include <limits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Takes plain contiguous row-major products without an epilogue.
template <class Exec, class T>
struct GemmKokkosKernels {
  static constexpr char const* name = "kokkos_kernels";

  static abi::Verdict accepts(abi::GemmArgs const& g, Exec const&) {
#if !defined(KOKKOSKERNELS_ENABLE_TPL_BLAS)
    (void)g;
    return abi::refused("Kokkos Kernels was built without a BLAS library");
#else
    if (g.m == 0 || g.n == 0 || g.k == 0 || g.batch == 0)
      return abi::refused("the product is empty");
    using Option = abi::GemmOption;
    if (char const* reason = abi::beyond(g, {Option::alpha, Option::beta, Option::scale}))
      return abi::refused(reason);
    constexpr std::int64_t limit = std::numeric_limits<int>::max();
    if (g.m > limit || g.n > limit || g.k > limit)
      return abi::refused("BLAS counts in int: an extent is too large");
    if (!(g.a_k == 1 && g.a_m == g.k) && !(g.a_m == 1 && g.a_k == g.m))
      return abi::refused("A is not contiguous");
    if (!(g.b_n == 1 && g.b_k == g.n) && !(g.b_k == 1 && g.b_n == g.k))
      return abi::refused("B is not contiguous");
    if (!(g.c_n == 1 && g.c_m == g.n)) return abi::refused("C is not contiguous and row-major");
    return abi::accepted();
#endif
  }

  static void run(abi::GemmArgs const& g, Exec const& exec) {
    using Layout = Kokkos::LayoutRight;
    using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
    // The device names Exec: the BLAS call is chosen by it, and HostSpace alone would mean the
    // default host space.
    using Device = Kokkos::Device<Exec, Kokkos::HostSpace>;
    using In = Kokkos::View<T const**, Layout, Device, Unmanaged>;
    using Out = Kokkos::View<T**, Layout, Device, Unmanaged>;
    Kokkos::Profiling::ScopedRegion const region(label_if_heard("gemm", name));
    bool const plain_a = g.a_k == 1 && g.a_m == g.k;
    bool const plain_b = g.b_n == 1 && g.b_k == g.n;
    for (std::int64_t batch = 0; batch < g.batch; ++batch) {
      auto const* a = static_cast<T const*>(g.a) + batch * g.a_batch;
      auto const* b = static_cast<T const*>(g.b) + batch * g.b_batch;
      auto* c = static_cast<T*>(g.c) + batch * g.c_batch;
      auto const view = [](T const* p, bool plain, std::int64_t rows, std::int64_t cols) {
        return plain ? In(p, static_cast<std::size_t>(rows), static_cast<std::size_t>(cols))
                     : In(p, static_cast<std::size_t>(cols), static_cast<std::size_t>(rows));
      };
      // scale·(alpha·AB + beta·C) folds into the two factors.
      KokkosBlas::gemm(exec, plain_a ? "N" : "T", plain_b ? "N" : "T",
                       static_cast<T>(g.scale * g.alpha), view(a, plain_a, g.m, g.k),
                       view(b, plain_b, g.k, g.n), static_cast<T>(g.scale * g.beta),
                       Out(c, static_cast<std::size_t>(g.m), static_cast<std::size_t>(g.n)));
    }
  }
};

template <class Exec, class T>
requires(is_host_space<Exec>&&
             std::is_floating_point_v<T>) struct Specializations<op::Gemm, Exec, T, T, T> {
  using kernels = KernelList<GemmKokkosKernels<Exec, T>>;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
#endif
