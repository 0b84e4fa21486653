// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The companion's matrix product as a C function; see companion_call.hpp.
#include <attikos/abi/gemm.hpp>

#include "companion_call.hpp"

namespace {

using Kernels =
    List<abi::GemmSm90WgmmaF16, abi::GemmSm90WgmmaBf16, abi::GemmSm90WgmmaF8, abi::GemmSm90WgmmaS8,
         abi::GemmSm80MmaTf32, abi::GemmSm90WgmmaTf32x3, abi::GemmSm80MmaTf32x3,
         abi::GemmSm90SimtF32, abi::GemmSm90MmaF64, abi::GemmSm80MmaF16, abi::GemmSm80MmaBf16,
         abi::GemmSm80MmaS8, abi::GemmSm80MmaF64, abi::GemmSm80SimtF32, abi::GemmSm89MmaF8,
         abi::GemmSm75WmmaF16>;

}  // namespace

/// The product of dense matrices [m, k] and [n, k], the second transposed, of the named types, by
/// the kernel called `wanted`, or the first that takes it if that is "". `compute`: 0 IEEE, 1 tf32,
/// 2 tf32x3; `fast`: sums of float8 products as the tensor cores have them. Returns a cudaError_t,
/// or -1 and why in `reason`.
extern "C" int attikos_perf_gemm(char const* type, char const* type_c, void const* a, void const* b,
                                 void* c, std::int64_t m, std::int64_t n, std::int64_t k,
                                 std::int32_t compute, std::int32_t fast, char const* wanted,
                                 void* stream, char const** reason) {
  static abi::Device const device = abi::query_device(abi::current_device());
  abi::GemmArgs g;
  g.a = a, g.b = b, g.c = c;
  g.type_a = g.type_b = type_of(type), g.type_c = type_of(type_c);
  g.m = m, g.n = n, g.k = k, g.batch = 1;
  g.a_m = g.b_n = k, g.c_m = n, g.a_k = g.b_k = g.c_n = 1;
  if (compute != 0) g.compute = compute == 1 ? Compute::tf32 : Compute::tf32x3;
  if (fast != 0) g.accumulate = abi::Accumulate::fast;
  return run(Kernels{}, g, device, wanted, stream, reason);
}
