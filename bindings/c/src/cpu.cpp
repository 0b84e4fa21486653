// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiled for every processor of the family (see CMakeLists.txt), with nothing of the standard
// library that other files might have instantiated for a newer one.
#include "cpu.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace attikos::c {
namespace {

char const* const names[] = {"sse3",        "ssse3",         "sse4.1",
                             "sse4.2",      "popcnt",        "cx16",
                             "movbe",       "lzcnt",         "bmi",
                             "bmi2",        "f16c",          "fma",
                             "avx",         "avx2",          "avx-vnni",
                             "gfni",        "avx512f",       "avx512cd",
                             "avx512dq",    "avx512bw",      "avx512vl",
                             "avx512-ifma", "avx512-vbmi",   "avx512-vbmi2",
                             "avx512-vnni", "avx512-bitalg", "avx512-vpopcntdq",
                             "avx512-bf16", "avx512-fp16",   "lse",
                             "fp16",        "dotprod",       "sve",
                             "sve2",        "bf16",          "i8mm"};
static_assert(sizeof names / sizeof *names == static_cast<int>(Cpu::count));

#if defined(__x86_64__)

/// Where CPUID says it, and which registers the operating system has to save for it (XCR0).
struct Place {
  Cpu feature;
  unsigned leaf, subleaf;
  int word;  ///< eax, ebx, ecx, edx
  int bit;
  unsigned state;
};
constexpr unsigned ymm = 0x6, zmm = 0xe6;
constexpr Place places[] = {
    {Cpu::sse3, 1, 0, 2, 0, 0},
    {Cpu::ssse3, 1, 0, 2, 9, 0},
    {Cpu::fma, 1, 0, 2, 12, ymm},
    {Cpu::cx16, 1, 0, 2, 13, 0},
    {Cpu::sse4_1, 1, 0, 2, 19, 0},
    {Cpu::sse4_2, 1, 0, 2, 20, 0},
    {Cpu::movbe, 1, 0, 2, 22, 0},
    {Cpu::popcnt, 1, 0, 2, 23, 0},
    {Cpu::avx, 1, 0, 2, 28, ymm},
    {Cpu::f16c, 1, 0, 2, 29, ymm},
    {Cpu::lzcnt, 0x80000001, 0, 2, 5, 0},
    {Cpu::bmi, 7, 0, 1, 3, 0},
    {Cpu::avx2, 7, 0, 1, 5, ymm},
    {Cpu::bmi2, 7, 0, 1, 8, 0},
    {Cpu::avx512f, 7, 0, 1, 16, zmm},
    {Cpu::avx512dq, 7, 0, 1, 17, zmm},
    {Cpu::avx512ifma, 7, 0, 1, 21, zmm},
    {Cpu::avx512cd, 7, 0, 1, 28, zmm},
    {Cpu::avx512bw, 7, 0, 1, 30, zmm},
    {Cpu::avx512vl, 7, 0, 1, 31, zmm},
    {Cpu::avx512vbmi, 7, 0, 2, 1, zmm},
    {Cpu::avx512vbmi2, 7, 0, 2, 6, zmm},
    {Cpu::gfni, 7, 0, 2, 8, 0},
    {Cpu::avx512vnni, 7, 0, 2, 11, zmm},
    {Cpu::avx512bitalg, 7, 0, 2, 12, zmm},
    {Cpu::avx512vpopcntdq, 7, 0, 2, 14, zmm},
    {Cpu::avx512fp16, 7, 0, 3, 23, zmm},
    {Cpu::avxvnni, 7, 1, 0, 4, ymm},
    {Cpu::avx512bf16, 7, 1, 0, 5, zmm},
};

std::uint64_t find_features() noexcept {
  unsigned words[4] = {};
  unsigned saved = 0;
  constexpr unsigned xsave_in_use = 1u << 27;
  if (__get_cpuid(1, &words[0], &words[1], &words[2], &words[3]) && (words[2] & xsave_in_use)) {
    unsigned high;
    asm volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(saved), "=d"(high) : "c"(0));  // xgetbv
  }
  std::uint64_t found = 0;
  for (Place const& place : places) {
    unsigned w[4] = {};
    if (__get_cpuid_count(place.leaf, place.subleaf, &w[0], &w[1], &w[2], &w[3]) &&
        (w[place.word] >> place.bit & 1u) && (saved & place.state) == place.state)
      found |= cpu_bit(place.feature);
  }
  return found;
}

#elif defined(__aarch64__) && defined(__linux__)

std::uint64_t find_features() noexcept {
  unsigned long const one = getauxval(AT_HWCAP), two = getauxval(AT_HWCAP2);
  std::uint64_t found = 0;
  auto const take = [&](unsigned long word, int bit, Cpu feature) {
    if (word >> bit & 1u) found |= cpu_bit(feature);
  };
  take(one, 8, Cpu::arm_lse);
  take(one, 10, Cpu::arm_fp16);
  take(one, 20, Cpu::arm_dotprod);
  take(one, 22, Cpu::arm_sve);
  take(two, 1, Cpu::arm_sve2);
  take(two, 13, Cpu::arm_i8mm);
  take(two, 14, Cpu::arm_bf16);
  return found;
}

#else

std::uint64_t find_features() noexcept { return ~std::uint64_t{0}; }  // nothing is known here

#endif

}  // namespace

std::uint64_t cpu_features() noexcept {
  static std::uint64_t const found = find_features();
  return found;
}

void name_cpu_features(std::uint64_t features, char* text, int size) noexcept {
  char* const last = text + size - 1;
  for (int i = 0; i < static_cast<int>(Cpu::count); ++i) {
    if ((features >> i & 1u) == 0) continue;
    char const* const parts[] = {features & ((std::uint64_t{1} << i) - 1) ? ", " : "", names[i]};
    for (char const* part : parts)
      while (*part != '\0' && text < last) *text++ = *part++;
  }
  *text = '\0';
}

}  // namespace attikos::c
