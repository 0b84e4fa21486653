// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Instruction sets of processors that host kernels choose among at run time, and which of them
/// this machine has.
///
/// What stands in host/ is compiled for an instruction set function by function, whatever the flags
/// of the file: every function that needs one names it in its own `target` attribute, and lives in
/// a namespace called after it. None of them calls an inline function from outside, of which the
/// linker might then give everybody the copy that was compiled here. So these headers include
/// neither Kokkos nor the standard library's templates.
#pragma once

#include <attikos/config.hpp>
#include <cstdint>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
/// Functions for x86 processors are compiled.
#define ATTIKOS_HOST_X86
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Instructions that host kernels use beyond those that they were compiled for. Each has all that
/// stands before it.
enum class HostIsa : std::uint8_t {
  compiled,     ///< none: the portable vector code as its flags made it
  avx512,       ///< AVX-512 F, BW, DQ, VL: products that sum in float32 or float64
  avx512_vnni,  ///< and VNNI: int8 products
  avx512_bf16,  ///< and AVX512-BF16: bfloat16 products
  amx,          ///< and AMX-TILE, AMX-INT8 and AMX-BF16: both of these last
};
inline constexpr int host_isa_count = 5;

/// The name that ATTIKOS_HOST_ISA knows it by, e.g. "avx512_bf16".
constexpr char const* host_isa_name(HostIsa isa) noexcept {
  constexpr char const* names[host_isa_count] = {"compiled", "avx512", "avx512_vnni", "avx512_bf16",
                                                 "amx"};
  return names[static_cast<int>(isa)];
}

namespace detail::host {

#if defined(ATTIKOS_HOST_X86)
struct CpuidWords {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

/// All 0 where the processor does not have the leaf.
inline CpuidWords cpuid(unsigned leaf, unsigned subleaf) {
  CpuidWords words;
  __get_cpuid_count(leaf, subleaf, &words.a, &words.b, &words.c, &words.d);
  return words;
}

/// Registers that the system saves when threads take turns, a bit each; 0 where it does not say.
inline std::uint64_t saved_registers() {
  if ((cpuid(1, 0).c >> 27 & 1u) == 0) return 0;
  std::uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

/// Whether the system lets this process use AMX's tiles, for which it has to be asked: it may say
/// no, and signal handlers need larger stacks afterwards.
inline bool may_use_tiles() {
#if defined(__linux__)
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}
#endif

/// The most that processor and system offer.
inline HostIsa machine_isa() {
#if defined(ATTIKOS_HOST_X86)
  auto const has = [](unsigned word, int bit) { return (word >> bit & 1u) != 0; };
  constexpr std::uint64_t vectors = 0xe6;  // xmm, ymm, mask registers, both halves of zmm
  constexpr std::uint64_t tiles = 0x60000;
  std::uint64_t const saved = saved_registers();
  if ((saved & vectors) != vectors) return HostIsa::compiled;
  CpuidWords const first = cpuid(7, 0), second = cpuid(7, 1);
  bool const avx512 =
      has(first.b, 16) && has(first.b, 17) && has(first.b, 30) && has(first.b, 31);  // F DQ BW VL
  if (!avx512 || !has(cpuid(1, 0).c, 12)) return HostIsa::compiled;                  // FMA
  if (!has(first.c, 11)) return HostIsa::avx512;                                     // VNNI
  if (!has(second.a, 5)) return HostIsa::avx512_vnni;                                // BF16
  bool const amx = has(first.d, 22) && has(first.d, 24) && has(first.d, 25);  // BF16 TILE INT8
  if (!amx || (saved & tiles) != tiles || !may_use_tiles()) return HostIsa::avx512_bf16;
  return HostIsa::amx;
#else
  return HostIsa::compiled;
#endif
}

}  // namespace detail::host
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
