// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Step 10: a kernel of your own, which attikos::gemm() finds by trait, on a host and in CUDA.
#include <attikos/attikos.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>

using Exec = Kokkos::DefaultExecutionSpace;
using Args = attikos::abi::GemmArgs;

/// One element of a matrix of floats times a vector of doubles, or the share of a thread of it.
KOKKOS_FUNCTION double dot(Args const& g, std::int64_t row, unsigned first, unsigned step) {
  auto const* const a = static_cast<float const*>(g.a) + row * g.a_m;
  auto const* const x = static_cast<double const*>(g.b);
  double sum = 0;
  for (std::int64_t k = first; k < g.k; k += step)
    sum += static_cast<double>(a[k * g.a_k]) * x[k * g.b_k];
  return sum;
}

#if defined(KOKKOS_ENABLE_CUDA)
__global__ void a_warp_for_each_row(Args const g) {
  std::int64_t const row = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= g.m) return;
  double sum = dot(g, row, threadIdx.x, 32);
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
  if (threadIdx.x == 0) static_cast<double*>(g.c)[row * g.c_m] = sum;
}
#endif

struct MyKernel {
  static constexpr char const* name = "mine/gemv";

  /// Asked at every call. An option that the braces do not name is refused, future ones too.
  static attikos::abi::Verdict accepts(Args const& g, Exec const&) {
    if (char const* reason = beyond(g, {})) return attikos::abi::refused(reason);
    if (g.batch != 1 || g.n != 1) return attikos::abi::refused("B is not a single column");
    if (g.m == 0) return attikos::abi::refused("the product is empty");
    return attikos::abi::accepted();
  }
  static void run(Args const& g, Exec const& exec) {
#if defined(KOKKOS_ENABLE_CUDA)
    auto const blocks = static_cast<unsigned>((g.m + 7) / 8);
    a_warp_for_each_row<<<blocks, dim3(32, 8), 0, exec.cuda_stream()>>>(g);
    if (auto const error = cudaGetLastError(); error != cudaSuccess)
      throw attikos::DeviceError(cudaGetErrorString(error));
#else
    Kokkos::parallel_for(
        "attikos::gemm[mine/gemv]", Kokkos::RangePolicy<Exec>(exec, 0, g.m),
        KOKKOS_LAMBDA(std::int64_t row) {
          static_cast<double*>(g.c)[row * g.c_m] = dot(g, row, 0, 1);
        });
#endif
  }
};

/// gemm() of float and double into double asks MyKernel first on Exec. This stands before the first
/// such call in every file that makes one. Like all in `detail` it may change with the version.
template <>
struct attikos::detail::Specializations<attikos::op::Gemm, Exec, float, double, double> {
  using kernels = KernelList<MyKernel>;
};

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Kokkos::View<float**> const a("a", 1000, 300);
  Kokkos::View<double**> const x("x", 300, 1), y("y", 1000, 1);
  Kokkos::deep_copy(a, 0.5f);
  Kokkos::deep_copy(x, 1.0 / 3);
  attikos::gemm(a, x, y);
  auto const last = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), y)(999, 0);
  std::printf("the last of y is 50: %s\n", std::abs(last - 50) < 1e-12 ? "yes" : "no");
  attikos::op::Gemm const gemm;
  std::printf("%s\n%s\n", attikos::explain(gemm, a, x, y).to_string().c_str(),
              attikos::explain(gemm, a, x, y, {.alpha = 2}).to_string().c_str());
}
