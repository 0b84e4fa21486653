// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Neighboring elements of a row as one device thread moves them: up to 16 bytes a load or store,
/// converted by the device's own instructions where it has them.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/dtypes.hpp>
#include <attikos/ptx/math.hpp>
#include <cstdint>
#include <type_traits>
#if defined(KOKKOS_ENABLE_CUDA)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#endif

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// What a device moves at once.
inline constexpr int widest_access = 16;

/// `Count` elements that lie side by side and are loaded or stored at once.
template <class T, int Count>
struct alignas(sizeof(T) * Count) Pack {
  static_assert(sizeof(T) * Count <= widest_access);
  T element[Count];
};

/// Number of accesses for `Count` elements, and how many elements each of them holds.
template <class T, int Count>
inline constexpr int pack_size = static_cast<int>(sizeof(T)) * Count <= widest_access
                                     ? Count
                                     : widest_access / static_cast<int>(sizeof(T));

/// An element as the number it stands for. Exact, as the element's own conversion is.
template <class Acc, class T>
KOKKOS_INLINE_FUNCTION Acc element_value(T x) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, float16>) {
    return static_cast<Acc>(__half2float(__half(__half_raw{x.bits})));
  } else if constexpr (std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2>) {
    return static_cast<Acc>(__half2float(__half(
        __nv_cvt_fp8_to_halfraw(x.bits, std::is_same_v<T, float8_e4m3> ? __NV_E4M3 : __NV_E5M2))));
  } else
#endif
    return static_cast<Acc>(x);
}

/// The element nearest to a number, ties to even, as the element's own conversion gives it; of a
/// NaN some NaN.
template <class T, class Acc>
KOKKOS_INLINE_FUNCTION T nearest_element(Acc x) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, bfloat16> && std::is_same_v<Acc, float>) {
    T result;
    result.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
    return result;
  } else if constexpr (std::is_same_v<T, float16> && std::is_same_v<Acc, float>) {
    T result;
    result.bits = __half_as_ushort(__float2half_rn(x));
    return result;
  } else
#endif
    return static_cast<T>(x);
}

/// Two elements of 16 bits nearest to numbers, as they lie side by side in a word.
template <class T>
KOKKOS_INLINE_FUNCTION std::uint32_t pair_of(float first, float second) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, bfloat16>)
    return __builtin_bit_cast(
        std::uint32_t, static_cast<__nv_bfloat162_raw>(__floats2bfloat162_rn(first, second)));
  else
    return __builtin_bit_cast(std::uint32_t,
                              static_cast<__half2_raw>(__floats2half2_rn(first, second)));
#else
  return __builtin_bit_cast(std::uint32_t,
                            (Pack<T, 2>{{static_cast<T>(first), static_cast<T>(second)}}));
#endif
}

/// e^x to |x| + 2 ulps, for sums of weights up to 1 and for results of 16 bits. A device's own
/// instruction, where it has one, gives 0 for what is no normal number.
template <class Acc>
KOKKOS_INLINE_FUNCTION Acc quick_exp(Acc x) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<Acc, float>) return cuda::power_of_2(x * 1.4426950408889634f);
#endif
  return Kokkos::exp(x);
}

/// 2^x likewise.
template <class Acc>
KOKKOS_INLINE_FUNCTION Acc quick_exp2(Acc x) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<Acc, float>) return cuda::power_of_2(x);
#endif
  return Kokkos::exp2(x);
}

/// `Count` neighbors as they came from memory. Small elements stay in the words that they came in,
/// from which a device takes them apart with an instruction each; as elements of their own they
/// would take two more.
template <class T, int Count>
struct Loaded {
  static constexpr int size = pack_size<T, Count>;
  static constexpr int per_word =
      sizeof(T) < 4 && sizeof(T) * size % 4 == 0 ? 4 / static_cast<int>(sizeof(T)) : 1;
  using Word = std::conditional_t<per_word != 1, std::uint32_t, T>;
  Pack<Word, size / per_word> packs[Count / size];

  /// `p` is aligned as a pack of `size` elements is.
  KOKKOS_INLINE_FUNCTION void load(T const* p) {
    for (int i = 0; i < Count / size; ++i)
      packs[i] = reinterpret_cast<Pack<Word, size / per_word> const*>(p)[i];
  }
  template <class Acc>
  KOKKOS_INLINE_FUNCTION Acc value(int i) const {
    Word const word = packs[i / size].element[i % size / per_word];
    if constexpr (per_word == 1) {
      return element_value<Acc>(word);
    } else {
      using Bits = std::conditional_t<sizeof(T) == 1, std::uint8_t, std::uint16_t>;
      return element_value<Acc>(__builtin_bit_cast(
          T, static_cast<Bits>(word >> (i % per_word * 8 * static_cast<int>(sizeof(T))))));
    }
  }
};

/// Bytes of registers that an element of `Count` neighbors takes as it came from memory.
template <class T, int Count>
inline constexpr int bytes_held = Loaded<T, Count>::per_word == 1 && sizeof(T) < 4
                                      ? 4
                                      : static_cast<int>(sizeof(T));

/// `Count` neighbors at `p`, which is aligned as a pack of them is.
template <class Acc, int Count, class T>
KOKKOS_INLINE_FUNCTION void load_neighbors(T const* p, Acc (&values)[Count]) {
  constexpr int size = pack_size<T, Count>;
  Pack<T, size> packs[Count / size];
  for (int i = 0; i < Count / size; ++i) packs[i] = reinterpret_cast<Pack<T, size> const*>(p)[i];
  for (int i = 0; i < Count; ++i) values[i] = element_value<Acc>(packs[i / size].element[i % size]);
}

template <class T, int Count>
KOKKOS_INLINE_FUNCTION void store_neighbors(T* p, T const (&elements)[Count]) {
  constexpr int size = pack_size<T, Count>;
  for (int i = 0; i < Count / size; ++i) {
    Pack<T, size> pack;
    for (int e = 0; e < size; ++e) pack.element[e] = elements[i * size + e];
    reinterpret_cast<Pack<T, size>*>(p)[i] = pack;
  }
}

/// Stores the elements nearest to `Count` numbers; two at a time where the device rounds so. Pairs
/// are words: of a pack of structures compilers store every member by itself.
template <class T, class Acc, int Count>
KOKKOS_INLINE_FUNCTION void store_nearest(T* p, Acc const (&values)[Count]) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<Acc, float> && Count % 2 == 0 &&
                (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>)) {
    std::uint32_t words[Count / 2];
    for (int i = 0; i < Count / 2; ++i) words[i] = pair_of<T>(values[2 * i], values[2 * i + 1]);
    store_neighbors(reinterpret_cast<std::uint32_t*>(p), words);
  } else
#endif
  {
    T elements[Count];
    for (int i = 0; i < Count; ++i) elements[i] = nearest_element<T>(values[i]);
    store_neighbors(p, elements);
  }
}

/// Whether `Count` neighbors may be moved at once wherever a multiple of `Count` elements has gone
/// before them in a row.
template <int Count, class T>
bool moves_at_once(T const* data, std::int64_t stride) {
  constexpr std::uintptr_t alignment = sizeof(T) * pack_size<T, Count>;
  return stride == 1 && reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
