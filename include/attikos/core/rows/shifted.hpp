// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Neighbors that start between the places where packs of them are aligned: the packs that hold
/// them are loaded whole and shifted.
#pragma once

#include <attikos/core/fragments/unroll.hpp>
#include <attikos/core/rows/device_elements.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Elements that lie between `p` and the place before it where a pack of them is aligned.
template <class T, int Count>
KOKKOS_INLINE_FUNCTION int elements_past_boundary(T const* p) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(p) / sizeof(T)) &
         (pack_size<T, Count> - 1);
}

/// Moves what starts `elements` of T, less than `Words` - 1 words hold, behind the first word to
/// the front.
template <class T, int Pack, int Words>
KOKKOS_INLINE_FUNCTION void shift_words(std::uint32_t (&word)[Words], int elements) {
  int const bytes = elements * static_cast<int>(sizeof(T));
  // By powers of two, so that every index is a constant and words stay in registers.
  ATTIKOS_UNROLL_DEVICE
  for (int step = Pack / 2; step > 0; step /= 2)
    if ((bytes & (4 * step)) != 0) ATTIKOS_UNROLL_DEVICE
  for (int i = 0; i + step < Words; ++i) word[i] = word[i + step];
  if constexpr (sizeof(T) < 4) {
    int const bits = bytes % 4 * 8;
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i + 1 < Words; ++i)
      word[i] = static_cast<std::uint32_t>((std::uint64_t{word[i + 1]} << 32 | word[i]) >> bits);
  }
}

/// `Count` neighbors of a row, from element j on, which begin `past` elements behind a place where
/// a pack is aligned: the packs that hold them, at most one more than they fill. Begins as zeros.
template <class T, int Count>
struct Straddling {
  static constexpr int size = pack_size<T, Count>;  ///< elements of a pack
  static constexpr int words = size * static_cast<int>(sizeof(T)) / 4;
  static constexpr int packs = Count / size + 1;
  static_assert(words > 0);
  std::uint32_t word[packs * words];

  /// The packs that there are where `past` is 0, and the one more. Of a row of `length` at `p`;
  /// `inner`: all lie in it; `ends`: memory may end with it.
  KOKKOS_INLINE_FUNCTION void load(T const* p, std::int32_t j, std::int32_t length, int past,
                                   bool inner, bool ends) {
    ATTIKOS_UNROLL_DEVICE
    for (int k = 0; k + 1 < packs; ++k) load_pack(k, p, j, length, past, inner, ends);
  }
  KOKKOS_INLINE_FUNCTION void load_last(T const* p, std::int32_t j, std::int32_t length, int past,
                                        bool inner, bool ends) {
    if (past != 0) load_pack(packs - 1, p, j, length, past, inner, ends);
  }

  /// The neighbors alone; those in front of the row and behind it become 0.
  KOKKOS_INLINE_FUNCTION Loaded<T, Count> shifted(std::int32_t j, std::int32_t length, int past,
                                                  bool inner) {
    using Result = Loaded<T, Count>;
    static_assert(Result::per_word != 1 || sizeof(T) >= 4);
    if (past != 0) shift_words<T, words>(word, past);
    if (!inner && (j < 0 || j + Count > length)) clear_outside(j, length);
    Result result;
    constexpr int parts = size / Result::per_word;
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Count / Result::per_word; ++i) {
      auto& part = result.packs[i / parts].element[i % parts];
      if constexpr (sizeof(T) == 8)
        part = __builtin_bit_cast(T, std::uint64_t{word[2 * i + 1]} << 32 | word[2 * i]);
      else
        part = __builtin_bit_cast(typename Result::Word, word[i]);
    }
    return result;
  }

 private:
  /// Bits of an element within its word.
  static constexpr int bits = sizeof(T) < 4 ? 8 * static_cast<int>(sizeof(T)) : 32;

  KOKKOS_INLINE_FUNCTION void clear_outside(std::int32_t j, std::int32_t length) {
    ATTIKOS_UNROLL_DEVICE
    for (int w = 0; w < (packs - 1) * words; ++w) {
      std::uint32_t inside = 0;
      ATTIKOS_UNROLL_DEVICE
      for (int bit = 0; bit < 32; bit += bits) {
        std::int32_t const element = j + (32 * w + bit) / (8 * static_cast<int>(sizeof(T)));
        if (static_cast<std::uint32_t>(element) < static_cast<std::uint32_t>(length))
          inside |= (bits < 32 ? (1u << bits % 32) - 1u : ~0u) << bit;
      }
      word[w] &= inside;
    }
  }

  KOKKOS_INLINE_FUNCTION void load_pack(int k, T const* p, std::int32_t j, std::int32_t length,
                                        int past, bool inner, bool ends) {
    std::int32_t const first = j - past + k * size;
    if (!inner && ends && first < length && first + size > length) {
      load_elements(k, p, first, length);
    } else if (inner || (first + size > 0 && first < length)) {
      // What is read beside the row lies in the same 16 bytes as an element of it.
      auto const pack = *reinterpret_cast<Pack<std::uint32_t, words> const*>(p + first);
      ATTIKOS_UNROLL_DEVICE
      for (int w = 0; w < words; ++w) word[k * words + w] = pack.element[w];
    }
  }

  /// Seldom, hence short: one element after the other, in words that no index chooses.
  KOKKOS_INLINE_FUNCTION void load_elements(int k, T const* p, std::int32_t first,
                                            std::int32_t length) {
    using Bits = std::conditional_t<
        sizeof(T) == 8, std::uint64_t,
        std::conditional_t<sizeof(T) == 4, std::uint32_t,
                           std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>;
    std::uint64_t low = 0, high = 0;
    int at = 0;
    ATTIKOS_DO_NOT_UNROLL_DEVICE
    for (int i = 0; i < size; ++i) {
      std::uint64_t element = 0;
      if (first + i >= 0 && first + i < length)
        element = reinterpret_cast<Bits const*>(p)[first + i];
      (at < 64 ? low : high) |= element << at % 64;
      at += 8 * static_cast<int>(sizeof(T));
    }
    ATTIKOS_UNROLL_DEVICE
    for (int w = 0; w < words; ++w)
      word[k * words + w] = static_cast<std::uint32_t>((w < 2 ? low : high) >> (w % 2 * 32));
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
