// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What vectors of a host need of x86's instructions by name, since the compiler's vector extension
/// has no word for it: conversions of binary16, the first lanes of a vector in memory, stores past
/// the caches. Each function is there where the flags allow it; `simd.hpp` does without elsewhere.
#pragma once

#include <attikos/abi/dtype.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#if defined(__x86_64__) && defined(__SSE2__)
#define ATTIKOS_SIMD_X86 1
#include <cpuid.h>
#include <immintrin.h>
#else
#define ATTIKOS_SIMD_X86 0
#endif

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail::host {

/// Bytes of the last cache as the processor tells them of the cores that share it; 0 where it does
/// not. (The C library's answer may be the sum over the package.)
inline std::size_t last_level_cache_of_processor() {
  std::size_t bytes = 0;
#if ATTIKOS_SIMD_X86
  for (unsigned const leaf : {0x8000001du, 4u}) {
    for (unsigned index = 0; index < 8; ++index) {
      unsigned a = 0, b = 0, c = 0, d = 0;
      if (__get_cpuid_count(leaf, index, &a, &b, &c, &d) == 0 || (a & 31u) == 0) break;
      bool const holds_data = (a & 31u) != 2;
      std::size_t const ways = (b >> 22) + 1, partitions = ((b >> 12) & 0x3ffu) + 1;
      std::size_t const line = (b & 0xfffu) + 1, sets = std::size_t{c} + 1;
      if (holds_data) bytes = ways * partitions * line * sets;  // levels come in their order
    }
    if (bytes != 0) break;
  }
#endif
  return bytes;
}

#if ATTIKOS_SIMD_X86 && defined(__AVX512F__)
/// The plain forms of conversions start from undefined registers, which GCC 12 warns of in users'
/// code.
inline constexpr __mmask16 all_lanes = 0xffff;
#endif

/// Whether memory of `Bytes` bytes, in lanes of `Lane` bytes, has loads and stores of its first
/// lanes alone.
template <int Bytes, int Lane>
constexpr bool has_first_lanes() {
#if ATTIKOS_SIMD_X86 && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
  return (Bytes == 64 && Lane >= 4) || (Bytes == 32 && Lane == 2) || (Bytes == 16 && Lane == 1);
#else
  return false;
#endif
}

/// The first `count` lanes from memory, zeros behind them; reads nothing else.
template <int Lane, class Bits>
inline Bits load_first_lanes([[maybe_unused]] void const* p, [[maybe_unused]] int count) {
  Bits bits{};
#if ATTIKOS_SIMD_X86 && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
  unsigned const mask = (1u << count) - 1u;
  if constexpr (Lane == 8) {
    __m512i const v = _mm512_maskz_loadu_epi64(static_cast<__mmask8>(mask), p);
    std::memcpy(&bits, &v, sizeof bits);
  } else if constexpr (Lane == 4) {
    __m512i const v = _mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask), p);
    std::memcpy(&bits, &v, sizeof bits);
  } else if constexpr (Lane == 2) {
    __m256i const v = _mm256_maskz_loadu_epi16(static_cast<__mmask16>(mask), p);
    std::memcpy(&bits, &v, sizeof bits);
  } else {
    __m128i const v = _mm_maskz_loadu_epi8(static_cast<__mmask16>(mask), p);
    std::memcpy(&bits, &v, sizeof bits);
  }
#endif
  return bits;
}

/// The first `count` lanes to memory; writes nothing else.
template <int Lane, class Bits>
inline void store_first_lanes([[maybe_unused]] void* p, [[maybe_unused]] int count,
                              [[maybe_unused]] Bits const& bits) {
#if ATTIKOS_SIMD_X86 && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
  unsigned const mask = (1u << count) - 1u;
  if constexpr (Lane >= 4) {
    __m512i v;
    std::memcpy(&v, &bits, sizeof v);
    if constexpr (Lane == 8)
      _mm512_mask_storeu_epi64(p, static_cast<__mmask8>(mask), v);
    else
      _mm512_mask_storeu_epi32(p, static_cast<__mmask16>(mask), v);
  } else if constexpr (Lane == 2) {
    __m256i v;
    std::memcpy(&v, &bits, sizeof v);
    _mm256_mask_storeu_epi16(p, static_cast<__mmask16>(mask), v);
  } else {
    __m128i v;
    std::memcpy(&v, &bits, sizeof v);
    _mm_mask_storeu_epi8(p, static_cast<__mmask16>(mask), v);
  }
#endif
}

/// Whether `Bytes` bytes have a store that goes past the caches.
template <int Bytes>
constexpr bool has_stores_past_caches() {
#if ATTIKOS_SIMD_X86
#if defined(__AVX512F__)
  if (Bytes == 64) return true;
#endif
#if defined(__AVX__)
  if (Bytes == 32) return true;
#endif
  return Bytes == 16;
#else
  return false;
#endif
}

/// Stores `bits` past the caches; `p` is aligned to their size. Other threads see them after
/// finish_stores_past_caches().
template <class Bits>
inline void store_past_caches([[maybe_unused]] void* p, [[maybe_unused]] Bits const& bits) {
#if ATTIKOS_SIMD_X86
#if defined(__AVX512F__)
  if constexpr (sizeof(Bits) == 64) {
    __m512i v;
    std::memcpy(&v, &bits, sizeof v);
    _mm512_stream_si512(static_cast<__m512i*>(p), v);
  }
#endif
#if defined(__AVX__)
  if constexpr (sizeof(Bits) == 32) {
    __m256i v;
    std::memcpy(&v, &bits, sizeof v);
    _mm256_stream_si256(static_cast<__m256i*>(p), v);
  }
#endif
  if constexpr (sizeof(Bits) == 16) {
    __m128i v;
    std::memcpy(&v, &bits, sizeof v);
    _mm_stream_si128(static_cast<__m128i*>(p), v);
  }
#endif
}

inline void finish_stores_past_caches() {
#if ATTIKOS_SIMD_X86
  _mm_sfence();
#endif
}

/// a·b + c rounded once, where vectors of `Bytes` bytes of float or double have an instruction for
/// it.
template <class T, int Bytes>
constexpr bool has_multiply_add() {
  if (!std::is_floating_point_v<T>) return false;
#if ATTIKOS_SIMD_X86 && defined(__FMA__)
#if defined(__AVX512F__)
  if (Bytes == 64) return true;
#endif
  return Bytes == 16 || Bytes == 32;
#else
  return false;
#endif
}
template <class V>
inline V multiply_add_instruction(V a, [[maybe_unused]] V b, [[maybe_unused]] V c) {
#if ATTIKOS_SIMD_X86 && defined(__FMA__)
  constexpr bool of_double = sizeof(a[0]) == sizeof(double);
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64 && of_double) return _mm512_fmadd_pd(a, b, c);
  if constexpr (sizeof(V) == 64 && !of_double) return _mm512_fmadd_ps(a, b, c);
#endif
  if constexpr (sizeof(V) == 32 && of_double) return _mm256_fmadd_pd(a, b, c);
  if constexpr (sizeof(V) == 32 && !of_double) return _mm256_fmadd_ps(a, b, c);
  if constexpr (sizeof(V) == 16 && of_double) return _mm_fmadd_pd(a, b, c);
  if constexpr (sizeof(V) == 16 && !of_double) return _mm_fmadd_ps(a, b, c);
#endif
  return a;
}

/// Square roots of a vector of float or double, where there is an instruction for it; false: there
/// is none.
template <class V>
inline bool square_root_instruction([[maybe_unused]] V& x) {
#if ATTIKOS_SIMD_X86
  constexpr bool of_double = sizeof(x[0]) == sizeof(double);
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64 && of_double) return x = _mm512_maskz_sqrt_pd(0xff, x), true;
  if constexpr (sizeof(V) == 64 && !of_double) return x = _mm512_maskz_sqrt_ps(all_lanes, x), true;
#endif
#if defined(__AVX__)
  if constexpr (sizeof(V) == 32 && of_double) return x = _mm256_sqrt_pd(x), true;
  if constexpr (sizeof(V) == 32 && !of_double) return x = _mm256_sqrt_ps(x), true;
#endif
  if constexpr (sizeof(V) == 16 && of_double) return x = _mm_sqrt_pd(x), true;
  if constexpr (sizeof(V) == 16 && !of_double) return x = _mm_sqrt_ps(x), true;
#endif
  return false;
}

/// Whether binary16 is converted by instructions, `W` elements at a time.
template <int W>
constexpr bool has_binary16_instructions() {
#if ATTIKOS_SIMD_X86 && defined(__AVX512F__)
  if (W == 16) return true;
#endif
#if ATTIKOS_SIMD_X86 && defined(__F16C__)
  return W == 8;
#else
  return false;
#endif
}

template <class Floats, class Codes>
inline Floats binary16_to_floats([[maybe_unused]] Codes const& codes) {
  Floats floats{};
#if ATTIKOS_SIMD_X86 && defined(__AVX512F__)
  if constexpr (sizeof(Codes) == 32) {
    __m256i in;
    std::memcpy(&in, &codes, sizeof in);
    __m512 const out = _mm512_maskz_cvtph_ps(all_lanes, in);
    std::memcpy(&floats, &out, sizeof floats);
  }
#endif
#if ATTIKOS_SIMD_X86 && defined(__F16C__)
  if constexpr (sizeof(Codes) == 16) {
    __m128i in;
    std::memcpy(&in, &codes, sizeof in);
    __m256 const out = _mm256_cvtph_ps(in);
    std::memcpy(&floats, &out, sizeof floats);
  }
#endif
  return floats;
}

/// Rounds to nearest, ties to even.
template <class Codes, class Floats>
inline Codes floats_to_binary16([[maybe_unused]] Floats const& floats) {
  Codes codes{};
#if ATTIKOS_SIMD_X86 && defined(__AVX512F__)
  if constexpr (sizeof(Codes) == 32) {
    __m512 in;
    std::memcpy(&in, &floats, sizeof in);
    __m256i const out = _mm512_maskz_cvtps_ph(all_lanes, in, _MM_FROUND_TO_NEAREST_INT);
    std::memcpy(&codes, &out, sizeof codes);
  }
#endif
#if ATTIKOS_SIMD_X86 && defined(__F16C__)
  if constexpr (sizeof(Codes) == 16) {
    __m256 in;
    std::memcpy(&in, &floats, sizeof in);
    __m128i const out = _mm256_cvtps_ph(in, _MM_FROUND_TO_NEAREST_INT);
    std::memcpy(&codes, &out, sizeof codes);
  }
#endif
  return codes;
}

/// Whether integers of 8 or 16 bits are widened to lanes of 32 and cut from them by instructions,
/// `W` at a time; the compiler's own conversion of vectors may take them one by one.
template <int W>
constexpr bool has_integer_conversions() {
#if ATTIKOS_SIMD_X86 && defined(__AVX512F__)
  if (W == 16) return true;
#endif
#if ATTIKOS_SIMD_X86 && defined(__AVX2__)
  return W == 8;
#else
  return false;
#endif
}

/// `Bytes` of each lane in memory; lanes without a sign get zeros, others copies of it.
template <int Bytes, bool Signed, class Wide, class Narrow>
inline Wide widen_integers([[maybe_unused]] Narrow const& narrow) {
  Wide wide{};
#if ATTIKOS_SIMD_X86 && defined(__AVX512F__)
  if constexpr (sizeof(Wide) == 64) {
    __m512i out;
    if constexpr (Bytes == 2) {
      __m256i in;
      std::memcpy(&in, &narrow, sizeof in);
      out = Signed ? _mm512_maskz_cvtepi16_epi32(all_lanes, in)
                   : _mm512_maskz_cvtepu16_epi32(all_lanes, in);
    } else {
      __m128i in;
      std::memcpy(&in, &narrow, sizeof in);
      out = Signed ? _mm512_maskz_cvtepi8_epi32(all_lanes, in)
                   : _mm512_maskz_cvtepu8_epi32(all_lanes, in);
    }
    std::memcpy(&wide, &out, sizeof wide);
  }
#endif
#if ATTIKOS_SIMD_X86 && defined(__AVX2__)
  if constexpr (sizeof(Wide) == 32) {
    __m128i in = _mm_setzero_si128();
    std::memcpy(&in, &narrow, sizeof narrow);
    __m256i out;
    if constexpr (Bytes == 2)
      out = Signed ? _mm256_cvtepi16_epi32(in) : _mm256_cvtepu16_epi32(in);
    else
      out = Signed ? _mm256_cvtepi8_epi32(in) : _mm256_cvtepu8_epi32(in);
    std::memcpy(&wide, &out, sizeof wide);
  }
#endif
  return wide;
}

/// The lower `Bytes` of each lane; where there is no AVX-512, of lanes that hold no more than them.
template <int Bytes, class Narrow, class Wide>
inline Narrow narrow_integers([[maybe_unused]] Wide const& wide) {
  Narrow narrow{};
#if ATTIKOS_SIMD_X86 && defined(__AVX512F__)
  if constexpr (sizeof(Wide) == 64) {
    __m512i in;
    std::memcpy(&in, &wide, sizeof in);
    if constexpr (Bytes == 2) {
      __m256i const out = _mm512_maskz_cvtepi32_epi16(all_lanes, in);
      std::memcpy(&narrow, &out, sizeof narrow);
    } else {
      __m128i const out = _mm512_maskz_cvtepi32_epi8(all_lanes, in);
      std::memcpy(&narrow, &out, sizeof narrow);
    }
  }
#endif
#if ATTIKOS_SIMD_X86 && defined(__AVX2__)
  if constexpr (sizeof(Wide) == 32) {
    __m256i in;
    std::memcpy(&in, &wide, sizeof in);
    __m128i out = _mm_packus_epi32(_mm256_castsi256_si128(in), _mm256_extracti128_si256(in, 1));
    if constexpr (Bytes == 1) out = _mm_packus_epi16(out, out);
    std::memcpy(&narrow, &out, sizeof narrow);
  }
#endif
  return narrow;
}

/// Whether floats are rounded to bfloat16 by an instruction, `W` at a time.
template <int W>
constexpr bool has_bfloat16_instructions() {
#if ATTIKOS_SIMD_X86 && defined(__AVX512BF16__) && defined(__AVX512DQ__)
  return W == 16;
#else
  return false;
#endif
}

/// Rounds to nearest, ties to even; `otherwise(floats)` where one is subnormal, which the
/// instruction takes for 0.
template <class Codes, class Floats, class F>
inline Codes floats_to_bfloat16(Floats const& floats, F const& otherwise) {
#if ATTIKOS_SIMD_X86 && defined(__AVX512BF16__) && defined(__AVX512DQ__)
  constexpr int subnormal = 0x20;
  __m512 in;
  std::memcpy(&in, &floats, sizeof in);
  if (__builtin_expect(_mm512_fpclass_ps_mask(in, subnormal) == 0, 1)) {
    __m256bh const out = _mm512_cvtneps_pbh(in);
    Codes codes;
    std::memcpy(&codes, &out, sizeof codes);
    return codes;
  }
#endif
  return otherwise(floats);
}

}  // namespace detail::host
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
