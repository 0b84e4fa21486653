// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Matrix products of a warpgroup (wgmma, sm_90a) whose 8-bit A comes from registers, and the way
/// from an A in shared memory whose unit stride is along M to those registers.
///
/// wgmma reads 8-bit operands from shared memory only with their unit stride along K. From
/// registers it takes four k of one row in each word: thread g = t % 32 / 4, q = t % 4 of warp w
/// gives k = 4 q ... 4 q + 3 of its rows g and g + 8, then k + 16 of both. ldmatrix transposes
/// pairs of bytes, so a thread receives two neighbours along M for each k; two byte permutations
/// part them. They are given to rows g and g + 8: line 16 w + 2 g + i of the tile is row
/// 16 w + g + 8 i of the product, which the epilogue undoes for nothing.
///
/// Source: PTX ISA 9.0, "wgmma.mma_async" (fragments of A), "ldmatrix", "prmt".
#pragma once

#include <cuda_fp8.h>

#include <attikos/ptx/ldmatrix.hpp>

#include "wgmma_lists.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// `multiply(d, a, b, accumulate)`: D[64, N] (+)= A[64, 32] · B[32, N], A in four registers of each
/// thread, B as in Wgmma. The registers must not change before the product has been waited for.
template <class A, class B, int N>
struct WgmmaRegisters;

#define ATTIKOS_WGMMA_A(TA, TB, TYPES, ACC, C, WIDTH, LIST, REGS, A0, A1, A2, A3, PB, PP, TAIL)   \
  template <>                                                                                     \
  struct WgmmaRegisters<TA, TB, WIDTH> {                                                          \
    static __device__ __forceinline__ void multiply(ACC (&d)[WIDTH / 2],                          \
                                                    std::uint32_t const (&a)[4], std::uint64_t b, \
                                                    int accumulate) {                             \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " PP                                         \
                   ", 0;\n"                                                                       \
                   "wgmma.mma_async.sync.aligned.m64n" #WIDTH "k32." TYPES " {" LIST "}, {" A0    \
                   "," A1 "," A2 "," A3 "}, " PB ", p" TAIL ";\n}\n"                              \
                   : REGS(C, 0)                                                                   \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));        \
    }                                                                                             \
  }
#define ATTIKOS_WGMMA_A_WIDTHS(TA, TB, TYPES, ACC, C, TAIL)                                        \
  ATTIKOS_WGMMA_A(TA, TB, TYPES, ACC, C, 32, ATTIKOS_L2, ATTIKOS_R16, "%16", "%17", "%18", "%19",  \
                  "%20", "%21", TAIL);                                                             \
  ATTIKOS_WGMMA_A(TA, TB, TYPES, ACC, C, 64, ATTIKOS_L4, ATTIKOS_R32, "%32", "%33", "%34", "%35",  \
                  "%36", "%37", TAIL);                                                             \
  ATTIKOS_WGMMA_A(TA, TB, TYPES, ACC, C, 96, ATTIKOS_L6, ATTIKOS_R48, "%48", "%49", "%50", "%51",  \
                  "%52", "%53", TAIL);                                                             \
  ATTIKOS_WGMMA_A(TA, TB, TYPES, ACC, C, 128, ATTIKOS_L8, ATTIKOS_R64, "%64", "%65", "%66", "%67", \
                  "%68", "%69", TAIL);                                                             \
  ATTIKOS_WGMMA_A(TA, TB, TYPES, ACC, C, 192, ATTIKOS_L12, ATTIKOS_R96, "%96", "%97", "%98",       \
                  "%99", "%100", "%101", TAIL);                                                    \
  ATTIKOS_WGMMA_A(TA, TB, TYPES, ACC, C, 256, ATTIKOS_L16, ATTIKOS_R128, "%128", "%129", "%130",   \
                  "%131", "%132", "%133", TAIL)

ATTIKOS_WGMMA_A_WIDTHS(__nv_fp8_e4m3, __nv_fp8_e4m3, "f32.e4m3.e4m3", float, ATTIKOS_F, ", 1, 1");
ATTIKOS_WGMMA_A_WIDTHS(__nv_fp8_e4m3, __nv_fp8_e5m2, "f32.e4m3.e5m2", float, ATTIKOS_F, ", 1, 1");
ATTIKOS_WGMMA_A_WIDTHS(__nv_fp8_e5m2, __nv_fp8_e4m3, "f32.e5m2.e4m3", float, ATTIKOS_F, ", 1, 1");
ATTIKOS_WGMMA_A_WIDTHS(__nv_fp8_e5m2, __nv_fp8_e5m2, "f32.e5m2.e5m2", float, ATTIKOS_F, ", 1, 1");
ATTIKOS_WGMMA_A_WIDTHS(std::int8_t, std::int8_t, "s32.s8.s8", int, ATTIKOS_I, "");

#undef ATTIKOS_WGMMA_A
#undef ATTIKOS_WGMMA_A_WIDTHS

/// Loads A's registers from a tile of 128-byte lines of M, one for each k, swizzled as the copy
/// engine's SWIZZLE_128B does.
class TransposedBytes {
 public:
  __device__ __forceinline__ TransposedBytes() {
    int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    int const matrix = lane / 8, pair = lane % 8 / 2;
    // Threads of the upper half of a quad take the later two k first, so that the eight lines of
    // a matrix lie in different banks.
    int const later = (pair / 2) ^ (matrix & 1);
    int const line = 16 * (matrix / 2) + 4 * pair + 2 * later + lane % 2;
    offset_ = static_cast<std::uint32_t>(line * 128 + ((warp % 4 ^ line % 8) * 16));
    bool const swapped = lane % 4 >= 2;
    even_ = swapped ? 0x2064 : 0x6420;
    odd_ = swapped ? 0x3175 : 0x7531;
  }

  /// Lines 32 `step` ... + 31 of the tile at shared address `tile`, columns 64 `wave` ... + 63.
  __device__ __forceinline__ void load(std::uint32_t (&a)[4], std::uint32_t tile, int step,
                                       int wave) const {
    std::uint32_t const address = tile + static_cast<std::uint32_t>(step) * 4096 +
                                  (offset_ ^ static_cast<std::uint32_t>(wave * 64));
    std::uint32_t pairs[4];
    load_matrices<true>(pairs, address);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      a[2 * i] = __byte_perm(pairs[2 * i], pairs[2 * i + 1], even_);
      a[2 * i + 1] = __byte_perm(pairs[2 * i], pairs[2 * i + 1], odd_);
    }
  }

 private:
  std::uint32_t offset_, even_, odd_;
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
