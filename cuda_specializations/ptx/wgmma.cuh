// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Matrix products of a warpgroup (wgmma, sm_90a): descriptors of operands in shared memory and one
/// wrapper per instruction.
///
/// D[64, N] (+)= A[64, 32 bytes of K] · B[32 bytes of K, N], asynchronous. Thread t of the
/// warpgroup, w = t / 32, g = t % 32 / 4, q = t % 4, holds in d[j + 2 i + 4 b] row 16 w + g + 8 i,
/// column 8 b + 2 q + j.
///
/// Source: PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions".
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "mbarrier.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Descriptor of an operand in rows of 128 bytes swizzled as the copy engine's SWIZZLE_128B does,
/// whose base is a multiple of 1024. K-major: rows of K, `leading` unused. MN-major: rows of 64
/// elements along M or N, one per k; `leading` is the distance in bytes from one 64 of them to the
/// next.
__device__ __forceinline__ std::uint64_t operand_descriptor(void const* base,
                                                            std::uint32_t leading) {
  std::uint64_t const swizzle_128 = 1;
  return static_cast<std::uint64_t>((shared_address(base) & 0x3FFFF) >> 4) |
         static_cast<std::uint64_t>(leading >> 4) << 16 |
         static_cast<std::uint64_t>(1024 >> 4) << 32 | swizzle_128 << 62;
}

/// Moves a descriptor on by a multiple of 16 bytes.
__device__ __forceinline__ std::uint64_t advance(std::uint64_t descriptor, std::uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

/// Orders earlier accesses to the registers of accumulators before the products that follow.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `Pending` of the latest groups are under way.
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

/// Keeps the compiler from moving accesses to accumulators across this point.
template <int Count>
__device__ __forceinline__ void pin(float (&d)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int Count>
__device__ __forceinline__ void pin(int (&d)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+r"(d[i])::"memory");
}

/// `multiply(d, a, b, accumulate)` for element types A and B, width N, and which operands are
/// MN-major (16-bit types only). D is overwritten where `accumulate` is 0.
template <class A, class B, int N, int TransA, int TransB>
struct Wgmma;

// Register lists by eights, %0 to %127; then the operands that follow N / 2 of them.
#define ATTIKOS_L0 "%0,%1,%2,%3"
#define ATTIKOS_L1 ATTIKOS_L0 ",%4,%5,%6,%7"
#define ATTIKOS_L2 ATTIKOS_L1 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define ATTIKOS_L4 ATTIKOS_L2 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define ATTIKOS_L6 ATTIKOS_L4 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define ATTIKOS_L8 ATTIKOS_L6 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define ATTIKOS_L12                                                                   \
  ATTIKOS_L8                                                                          \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83," \
  "%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define ATTIKOS_L16                                                                    \
  ATTIKOS_L12                                                                          \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112," \
  "%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define ATTIKOS_R4(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define ATTIKOS_R8(c, i) ATTIKOS_R4(c, i), ATTIKOS_R4(c, i + 4)
#define ATTIKOS_R16(c, i) ATTIKOS_R8(c, i), ATTIKOS_R8(c, i + 8)
#define ATTIKOS_R32(c, i) ATTIKOS_R16(c, i), ATTIKOS_R16(c, i + 16)
#define ATTIKOS_R48(c, i) ATTIKOS_R32(c, i), ATTIKOS_R16(c, i + 32)
#define ATTIKOS_R64(c, i) ATTIKOS_R32(c, i), ATTIKOS_R32(c, i + 32)
#define ATTIKOS_R96(c, i) ATTIKOS_R64(c, i), ATTIKOS_R32(c, i + 64)
#define ATTIKOS_R128(c, i) ATTIKOS_R64(c, i), ATTIKOS_R64(c, i + 64)

// One specialization; `tail` are the modifiers after the predicate.
#define ATTIKOS_WGMMA(TA, TB, SHAPE, TYPES, ACC, C, WIDTH, LIST, REGS, PA, PB, PP, TAIL, EXTRA)  \
  template <int TransA, int TransB>                                                              \
  struct Wgmma<TA, TB, WIDTH, TransA, TransB> {                                                  \
    static __device__ __forceinline__ void multiply(ACC (&d)[WIDTH / 2], std::uint64_t a,        \
                                                    std::uint64_t b, int accumulate) {           \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " PP                                        \
                   ", 0;\n"                                                                      \
                   "wgmma.mma_async.sync.aligned.m64n" #WIDTH SHAPE "." TYPES " {" LIST "}, " PA \
                   ", " PB ", p" TAIL ";\n}\n"                                                   \
                   : REGS(C, 0)                                                                  \
                   : "l"(a), "l"(b), "r"(accumulate)EXTRA);                                      \
    }                                                                                            \
  }
#define ATTIKOS_F(x) "+f"(x)
#define ATTIKOS_I(x) "+r"(x)
#define ATTIKOS_NO_EXTRA
#define ATTIKOS_TRANS_EXTRA , "n"(TransA), "n"(TransB)

#define ATTIKOS_WGMMA_16(T, TYPES)                                                                 \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 8, ATTIKOS_L0, ATTIKOS_R4, "%4", "%5", "%6", \
                ", 1, 1, %7, %8", ATTIKOS_TRANS_EXTRA);                                            \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 16, ATTIKOS_L1, ATTIKOS_R8, "%8", "%9",      \
                "%10", ", 1, 1, %11, %12", ATTIKOS_TRANS_EXTRA);                                   \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 32, ATTIKOS_L2, ATTIKOS_R16, "%16", "%17",   \
                "%18", ", 1, 1, %19, %20", ATTIKOS_TRANS_EXTRA);                                   \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 64, ATTIKOS_L4, ATTIKOS_R32, "%32", "%33",   \
                "%34", ", 1, 1, %35, %36", ATTIKOS_TRANS_EXTRA);                                   \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 128, ATTIKOS_L8, ATTIKOS_R64, "%64", "%65",  \
                "%66", ", 1, 1, %67, %68", ATTIKOS_TRANS_EXTRA);                                   \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 192, ATTIKOS_L12, ATTIKOS_R96, "%96", "%97", \
                "%98", ", 1, 1, %99, %100", ATTIKOS_TRANS_EXTRA);                                  \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 256, ATTIKOS_L16, ATTIKOS_R128, "%128",      \
                "%129", "%130", ", 1, 1, %131, %132", ATTIKOS_TRANS_EXTRA)
#define ATTIKOS_WGMMA_8(TA, TB, TYPES, ACC, C, TAIL)                                               \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 8, ATTIKOS_L0, ATTIKOS_R4, "%4", "%5", "%6", TAIL,   \
                ATTIKOS_NO_EXTRA);                                                                 \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 16, ATTIKOS_L1, ATTIKOS_R8, "%8", "%9", "%10", TAIL, \
                ATTIKOS_NO_EXTRA);                                                                 \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 32, ATTIKOS_L2, ATTIKOS_R16, "%16", "%17", "%18",    \
                TAIL, ATTIKOS_NO_EXTRA);                                                           \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 64, ATTIKOS_L4, ATTIKOS_R32, "%32", "%33", "%34",    \
                TAIL, ATTIKOS_NO_EXTRA);                                                           \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 128, ATTIKOS_L8, ATTIKOS_R64, "%64", "%65", "%66",   \
                TAIL, ATTIKOS_NO_EXTRA);                                                           \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 192, ATTIKOS_L12, ATTIKOS_R96, "%96", "%97", "%98",  \
                TAIL, ATTIKOS_NO_EXTRA);                                                           \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 256, ATTIKOS_L16, ATTIKOS_R128, "%128", "%129",      \
                "%130", TAIL, ATTIKOS_NO_EXTRA)

ATTIKOS_WGMMA_16(__half, "f32.f16.f16");
ATTIKOS_WGMMA_16(__nv_bfloat16, "f32.bf16.bf16");
ATTIKOS_WGMMA_8(__nv_fp8_e4m3, __nv_fp8_e4m3, "f32.e4m3.e4m3", float, ATTIKOS_F, ", 1, 1");
ATTIKOS_WGMMA_8(__nv_fp8_e4m3, __nv_fp8_e5m2, "f32.e4m3.e5m2", float, ATTIKOS_F, ", 1, 1");
ATTIKOS_WGMMA_8(__nv_fp8_e5m2, __nv_fp8_e4m3, "f32.e5m2.e4m3", float, ATTIKOS_F, ", 1, 1");
ATTIKOS_WGMMA_8(__nv_fp8_e5m2, __nv_fp8_e5m2, "f32.e5m2.e5m2", float, ATTIKOS_F, ", 1, 1");
ATTIKOS_WGMMA_8(std::int8_t, std::int8_t, "s32.s8.s8", int, ATTIKOS_I, "");

#undef ATTIKOS_L0
#undef ATTIKOS_L1
#undef ATTIKOS_L2
#undef ATTIKOS_L4
#undef ATTIKOS_L6
#undef ATTIKOS_L8
#undef ATTIKOS_L12
#undef ATTIKOS_L16
#undef ATTIKOS_R4
#undef ATTIKOS_R8
#undef ATTIKOS_R16
#undef ATTIKOS_R32
#undef ATTIKOS_R48
#undef ATTIKOS_R64
#undef ATTIKOS_R96
#undef ATTIKOS_R128
#undef ATTIKOS_WGMMA
#undef ATTIKOS_WGMMA_16
#undef ATTIKOS_WGMMA_8
#undef ATTIKOS_F
#undef ATTIKOS_I
#undef ATTIKOS_NO_EXTRA
#undef ATTIKOS_TRANS_EXTRA

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
