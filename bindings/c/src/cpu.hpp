// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Instruction sets: those that the library was compiled for, and those of the processor at hand.
#pragma once

#include <cstdint>

namespace attikos::c {

/// Bit number in a set; names in cpu.cpp. Those that compilers use unasked.
enum class Cpu : int {
  sse3,
  ssse3,
  sse4_1,
  sse4_2,
  popcnt,
  cx16,
  movbe,
  lzcnt,
  bmi,
  bmi2,
  f16c,
  fma,
  avx,
  avx2,
  avxvnni,
  gfni,
  avx512f,
  avx512cd,
  avx512dq,
  avx512bw,
  avx512vl,
  avx512ifma,
  avx512vbmi,
  avx512vbmi2,
  avx512vnni,
  avx512bitalg,
  avx512vpopcntdq,
  avx512bf16,
  avx512fp16,
  arm_lse,
  arm_fp16,
  arm_dotprod,
  arm_sve,
  arm_sve2,
  arm_bf16,
  arm_i8mm,
  count
};

constexpr std::uint64_t cpu_bit(Cpu feature) {
  return std::uint64_t{1} << static_cast<int>(feature);
}

/// What the rest of the library was compiled for. A constant of a file that is compiled as the rest
/// is, and no code: see cpu_required.cpp.
extern std::uint64_t const required_cpu_features;

/// What the processor has and the operating system saves; found once.
std::uint64_t cpu_features() noexcept;

/// The names of `features`, with commas between them, cut off to `size` bytes.
void name_cpu_features(std::uint64_t features, char* text, int size) noexcept;

}  // namespace attikos::c
