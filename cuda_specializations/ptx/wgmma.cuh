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
#include "wgmma_lists.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Descriptor of an operand in rows of 128 bytes swizzled as the copy engine's SWIZZLE_128B does,
/// whose base is a multiple of 1024: bits 0-13 address / 16, 16-29 `leading` / 16, 32-45 the
/// distance of eight rows to the next / 16, 62-63 the swizzle. K-major: rows of K, `leading`
/// unused. MN-major: rows of 64 elements along M or N, one per k; `leading` is the distance in
/// bytes from one 64 of them to the next.
__device__ __forceinline__ std::uint64_t operand_descriptor(void const* base,
                                                            std::uint32_t leading) {
  std::uint64_t const swizzle_128 = 1;
  return static_cast<std::uint64_t>((shared_address(base) & 0x3FFFF) >> 4) |
         static_cast<std::uint64_t>(leading >> 4) << 16 |
         static_cast<std::uint64_t>(1024 >> 4) << 32 | swizzle_128 << 62;
}

/// Moves a descriptor on by a multiple of 16 bytes: by 32 to the next step of K within a row of K,
/// by 2048 where rows lie along M or N (16 rows).
__device__ __forceinline__ std::uint64_t advance(std::uint64_t descriptor, std::uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

/// Orders earlier accesses to the registers of accumulators before the products that follow.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/// Closes the group of products since the last one.
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
template <int Count>
__device__ __forceinline__ void pin(std::uint32_t (&d)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+r"(d[i])::"memory");
}

/// `multiply(d, a, b, accumulate)` for element types A and B, width N, and which operands are
/// MN-major (16-bit types only). D is overwritten where `accumulate` is 0.
template <class A, class B, int N, int TransA, int TransB>
struct Wgmma;

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
#define ATTIKOS_NO_EXTRA
#define ATTIKOS_TRANS_EXTRA , "n"(TransA), "n"(TransB)

#define ATTIKOS_WGMMA_16(T, TYPES)                                                                 \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 16, ATTIKOS_L1, ATTIKOS_R8, "%8", "%9",      \
                "%10", ", 1, 1, %11, %12", ATTIKOS_TRANS_EXTRA);                                   \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 32, ATTIKOS_L2, ATTIKOS_R16, "%16", "%17",   \
                "%18", ", 1, 1, %19, %20", ATTIKOS_TRANS_EXTRA);                                   \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 48, ATTIKOS_L3, ATTIKOS_R24, "%24", "%25",   \
                "%26", ", 1, 1, %27, %28", ATTIKOS_TRANS_EXTRA);                                   \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 64, ATTIKOS_L4, ATTIKOS_R32, "%32", "%33",   \
                "%34", ", 1, 1, %35, %36", ATTIKOS_TRANS_EXTRA);                                   \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 96, ATTIKOS_L6, ATTIKOS_R48, "%48", "%49",   \
                "%50", ", 1, 1, %51, %52", ATTIKOS_TRANS_EXTRA);                                   \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 112, ATTIKOS_L7, ATTIKOS_R56, "%56", "%57",  \
                "%58", ", 1, 1, %59, %60", ATTIKOS_TRANS_EXTRA);                                   \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 128, ATTIKOS_L8, ATTIKOS_R64, "%64", "%65",  \
                "%66", ", 1, 1, %67, %68", ATTIKOS_TRANS_EXTRA);                                   \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 144, ATTIKOS_L9, ATTIKOS_R72, "%72", "%73",  \
                "%74", ", 1, 1, %75, %76", ATTIKOS_TRANS_EXTRA);                                   \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 160, ATTIKOS_L10, ATTIKOS_R80, "%80", "%81", \
                "%82", ", 1, 1, %83, %84", ATTIKOS_TRANS_EXTRA);                                   \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 176, ATTIKOS_L11, ATTIKOS_R88, "%88", "%89", \
                "%90", ", 1, 1, %91, %92", ATTIKOS_TRANS_EXTRA);                                   \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 192, ATTIKOS_L12, ATTIKOS_R96, "%96", "%97", \
                "%98", ", 1, 1, %99, %100", ATTIKOS_TRANS_EXTRA);                                  \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 208, ATTIKOS_L13, ATTIKOS_R104, "%104",      \
                "%105", "%106", ", 1, 1, %107, %108", ATTIKOS_TRANS_EXTRA);                        \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 224, ATTIKOS_L14, ATTIKOS_R112, "%112",      \
                "%113", "%114", ", 1, 1, %115, %116", ATTIKOS_TRANS_EXTRA);                        \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 240, ATTIKOS_L15, ATTIKOS_R120, "%120",      \
                "%121", "%122", ", 1, 1, %123, %124", ATTIKOS_TRANS_EXTRA);                        \
  ATTIKOS_WGMMA(T, T, "k16", TYPES, float, ATTIKOS_F, 256, ATTIKOS_L16, ATTIKOS_R128, "%128",      \
                "%129", "%130", ", 1, 1, %131, %132", ATTIKOS_TRANS_EXTRA)
#define ATTIKOS_WGMMA_8(TA, TB, TYPES, ACC, C, TAIL)                                               \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 16, ATTIKOS_L1, ATTIKOS_R8, "%8", "%9", "%10", TAIL, \
                ATTIKOS_NO_EXTRA);                                                                 \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 32, ATTIKOS_L2, ATTIKOS_R16, "%16", "%17", "%18",    \
                TAIL, ATTIKOS_NO_EXTRA);                                                           \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 48, ATTIKOS_L3, ATTIKOS_R24, "%24", "%25", "%26",    \
                TAIL, ATTIKOS_NO_EXTRA);                                                           \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 64, ATTIKOS_L4, ATTIKOS_R32, "%32", "%33", "%34",    \
                TAIL, ATTIKOS_NO_EXTRA);                                                           \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 80, ATTIKOS_L5, ATTIKOS_R40, "%40", "%41", "%42",    \
                TAIL, ATTIKOS_NO_EXTRA);                                                           \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 96, ATTIKOS_L6, ATTIKOS_R48, "%48", "%49", "%50",    \
                TAIL, ATTIKOS_NO_EXTRA);                                                           \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 112, ATTIKOS_L7, ATTIKOS_R56, "%56", "%57", "%58",   \
                TAIL, ATTIKOS_NO_EXTRA);                                                           \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 128, ATTIKOS_L8, ATTIKOS_R64, "%64", "%65", "%66",   \
                TAIL, ATTIKOS_NO_EXTRA);                                                           \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 144, ATTIKOS_L9, ATTIKOS_R72, "%72", "%73", "%74",   \
                TAIL, ATTIKOS_NO_EXTRA);                                                           \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 160, ATTIKOS_L10, ATTIKOS_R80, "%80", "%81", "%82",  \
                TAIL, ATTIKOS_NO_EXTRA);                                                           \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 176, ATTIKOS_L11, ATTIKOS_R88, "%88", "%89", "%90",  \
                TAIL, ATTIKOS_NO_EXTRA);                                                           \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 192, ATTIKOS_L12, ATTIKOS_R96, "%96", "%97", "%98",  \
                TAIL, ATTIKOS_NO_EXTRA);                                                           \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 208, ATTIKOS_L13, ATTIKOS_R104, "%104", "%105",      \
                "%106", TAIL, ATTIKOS_NO_EXTRA);                                                   \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 224, ATTIKOS_L14, ATTIKOS_R112, "%112", "%113",      \
                "%114", TAIL, ATTIKOS_NO_EXTRA);                                                   \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 240, ATTIKOS_L15, ATTIKOS_R120, "%120", "%121",      \
                "%122", TAIL, ATTIKOS_NO_EXTRA);                                                   \
  ATTIKOS_WGMMA(TA, TB, "k32", TYPES, ACC, C, 256, ATTIKOS_L16, ATTIKOS_R128, "%128", "%129",      \
                "%130", TAIL, ATTIKOS_NO_EXTRA)

ATTIKOS_WGMMA_16(__half, "f32.f16.f16");
ATTIKOS_WGMMA_16(__nv_bfloat16, "f32.bf16.bf16");
ATTIKOS_WGMMA_8(__nv_fp8_e4m3, __nv_fp8_e4m3, "f32.e4m3.e4m3", float, ATTIKOS_F, ", 1, 1");
ATTIKOS_WGMMA_8(__nv_fp8_e4m3, __nv_fp8_e5m2, "f32.e4m3.e5m2", float, ATTIKOS_F, ", 1, 1");
ATTIKOS_WGMMA_8(__nv_fp8_e5m2, __nv_fp8_e4m3, "f32.e5m2.e4m3", float, ATTIKOS_F, ", 1, 1");
ATTIKOS_WGMMA_8(__nv_fp8_e5m2, __nv_fp8_e5m2, "f32.e5m2.e5m2", float, ATTIKOS_F, ", 1, 1");
ATTIKOS_WGMMA_8(std::int8_t, std::int8_t, "s32.s8.s8", int, ATTIKOS_I, "");

#undef ATTIKOS_WGMMA
#undef ATTIKOS_WGMMA_16
#undef ATTIKOS_WGMMA_8
#undef ATTIKOS_NO_EXTRA
#undef ATTIKOS_TRANS_EXTRA

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
