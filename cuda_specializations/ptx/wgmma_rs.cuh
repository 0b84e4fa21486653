// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Matrix products of a warpgroup whose left operand lies in registers, for 16-bit types and tf32.
///
/// Thread t of the warpgroup, w = t / 32, g = t % 32 / 4, q = t % 4, holds of A[64, 16] in a[i + 2
/// k] row 16 w + g + 8 i, columns 8 k + 2 q and the next. That is how two neighbouring blocks of
/// eight columns of an accumulator lie, rounded in pairs: a product's result becomes the next one's
/// operand in place.
///
/// Source: PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions".
#pragma once

#include "wgmma.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// `multiply(d, a, b, accumulate)`: D[64, N] (+)= A[64, 16] · B[16, N] with A in registers and B
/// MN-major in shared memory. The registers of A may change only after the wait for this product.
template <class T, int N>
struct WgmmaRs;

// One specialization; LIST and REGS name the N / 2 registers of D, the rest the operands behind
// them.
#define ATTIKOS_RS(T, TYPES, WIDTH, LIST, REGS, A0, A1, A2, A3, B, P)                              \
  template <>                                                                                      \
  struct WgmmaRs<T, WIDTH> {                                                                       \
    static __device__ __forceinline__ void multiply(float (&d)[WIDTH / 2], std::uint32_t const* a, \
                                                    std::uint64_t b, int accumulate) {             \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P                                           \
                   ", 0;\n"                                                                        \
                   "wgmma.mma_async.sync.aligned.m64n" #WIDTH "k16." TYPES " {" LIST "}, {" A0     \
                   ", " A1 ", " A2 ", " A3 "}, " B ", p, 1, 1, 1;\n}\n"                            \
                   : REGS                                                                          \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));         \
    }                                                                                              \
  }
#define ATTIKOS_RS_TYPE(T, TYPES)                                                               \
  ATTIKOS_RS(T, TYPES, 32, ATTIKOS_L2, ATTIKOS_R16(ATTIKOS_F, 0), "%16", "%17", "%18", "%19",   \
             "%20", "%21");                                                                     \
  ATTIKOS_RS(T, TYPES, 64, ATTIKOS_L4, ATTIKOS_R32(ATTIKOS_F, 0), "%32", "%33", "%34", "%35",   \
             "%36", "%37");                                                                     \
  ATTIKOS_RS(T, TYPES, 96, ATTIKOS_L6, ATTIKOS_R48(ATTIKOS_F, 0), "%48", "%49", "%50", "%51",   \
             "%52", "%53");                                                                     \
  ATTIKOS_RS(T, TYPES, 128, ATTIKOS_L8, ATTIKOS_R64(ATTIKOS_F, 0), "%64", "%65", "%66", "%67",  \
             "%68", "%69");                                                                     \
  ATTIKOS_RS(T, TYPES, 192, ATTIKOS_L12, ATTIKOS_R96(ATTIKOS_F, 0), "%96", "%97", "%98", "%99", \
             "%100", "%101");                                                                   \
  ATTIKOS_RS(T, TYPES, 256, ATTIKOS_L16, ATTIKOS_R128(ATTIKOS_F, 0), "%128", "%129", "%130",    \
             "%131", "%132", "%133")

ATTIKOS_RS_TYPE(__half, "f32.f16.f16");
ATTIKOS_RS_TYPE(__nv_bfloat16, "f32.bf16.bf16");

#undef ATTIKOS_RS
#undef ATTIKOS_RS_TYPE

/// D[64, 128] (+)= A[64, 8] · B[8, 128] of float32, whose lower 13 bits the tensor cores leave out.
/// B is K-major in shared memory; of A a[i + 2 k] holds row 16 w + g + 8 i, column q + 4 k, and may
/// change only after the wait for this product.
__device__ __forceinline__ void multiply_tf32(float (&d)[64], std::uint32_t const (&a)[4],
                                              std::uint64_t b, int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {" ATTIKOS_L8
      "}, {%64, %65, %66, %67}, %68, p, 1, 1;\n}\n"
      : ATTIKOS_R64(ATTIKOS_F, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
