// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiled with the flags of the library's kernels, whose instruction sets it writes down.
#include "cpu.hpp"

namespace attikos::c {

std::uint64_t const required_cpu_features = 0
#if defined(__SSE3__)
                                            | cpu_bit(Cpu::sse3)
#endif
#if defined(__SSSE3__)
                                            | cpu_bit(Cpu::ssse3)
#endif
#if defined(__SSE4_1__)
                                            | cpu_bit(Cpu::sse4_1)
#endif
#if defined(__SSE4_2__)
                                            | cpu_bit(Cpu::sse4_2)
#endif
#if defined(__POPCNT__)
                                            | cpu_bit(Cpu::popcnt)
#endif
#if defined(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16) && defined(__x86_64__)
                                            | cpu_bit(Cpu::cx16)
#endif
#if defined(__MOVBE__)
                                            | cpu_bit(Cpu::movbe)
#endif
#if defined(__LZCNT__)
                                            | cpu_bit(Cpu::lzcnt)
#endif
#if defined(__BMI__)
                                            | cpu_bit(Cpu::bmi)
#endif
#if defined(__BMI2__)
                                            | cpu_bit(Cpu::bmi2)
#endif
#if defined(__F16C__)
                                            | cpu_bit(Cpu::f16c)
#endif
#if defined(__FMA__)
                                            | cpu_bit(Cpu::fma)
#endif
#if defined(__AVX__)
                                            | cpu_bit(Cpu::avx)
#endif
#if defined(__AVX2__)
                                            | cpu_bit(Cpu::avx2)
#endif
#if defined(__AVXVNNI__)
                                            | cpu_bit(Cpu::avxvnni)
#endif
#if defined(__GFNI__)
                                            | cpu_bit(Cpu::gfni)
#endif
#if defined(__AVX512F__)
                                            | cpu_bit(Cpu::avx512f)
#endif
#if defined(__AVX512CD__)
                                            | cpu_bit(Cpu::avx512cd)
#endif
#if defined(__AVX512DQ__)
                                            | cpu_bit(Cpu::avx512dq)
#endif
#if defined(__AVX512BW__)
                                            | cpu_bit(Cpu::avx512bw)
#endif
#if defined(__AVX512VL__)
                                            | cpu_bit(Cpu::avx512vl)
#endif
#if defined(__AVX512IFMA__)
                                            | cpu_bit(Cpu::avx512ifma)
#endif
#if defined(__AVX512VBMI__)
                                            | cpu_bit(Cpu::avx512vbmi)
#endif
#if defined(__AVX512VBMI2__)
                                            | cpu_bit(Cpu::avx512vbmi2)
#endif
#if defined(__AVX512VNNI__)
                                            | cpu_bit(Cpu::avx512vnni)
#endif
#if defined(__AVX512BITALG__)
                                            | cpu_bit(Cpu::avx512bitalg)
#endif
#if defined(__AVX512VPOPCNTDQ__)
                                            | cpu_bit(Cpu::avx512vpopcntdq)
#endif
#if defined(__AVX512BF16__)
                                            | cpu_bit(Cpu::avx512bf16)
#endif
#if defined(__AVX512FP16__)
                                            | cpu_bit(Cpu::avx512fp16)
#endif
#if defined(__ARM_FEATURE_ATOMICS)
                                            | cpu_bit(Cpu::arm_lse)
#endif
#if defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
                                            | cpu_bit(Cpu::arm_fp16)
#endif
#if defined(__ARM_FEATURE_DOTPROD)
                                            | cpu_bit(Cpu::arm_dotprod)
#endif
#if defined(__ARM_FEATURE_SVE)
                                            | cpu_bit(Cpu::arm_sve)
#endif
#if defined(__ARM_FEATURE_SVE2)
                                            | cpu_bit(Cpu::arm_sve2)
#endif
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
                                            | cpu_bit(Cpu::arm_bf16)
#endif
#if defined(__ARM_FEATURE_MATMUL_INT8)
                                            | cpu_bit(Cpu::arm_i8mm)
#endif
    ;

}  // namespace attikos::c
