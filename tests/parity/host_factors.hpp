// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Factors for the blocks of host instructions, and AMX's tiles in memory.
#pragma once

#include <attikos/core/dtypes.hpp>
#include <attikos/host/amx.hpp>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../support/random.hpp"

#if defined(ATTIKOS_HOST_X86)

namespace attikos::test {

using detail::host::avx512::Factor;

template <class Kind>
double value_of(typename Kind::Element code) {
  if constexpr (sizeof(code) == 4) return __builtin_bit_cast(float, code);
  if constexpr (sizeof(code) == 2) return bfloat16::from_bits(code);
  if constexpr (sizeof(code) == 1) return static_cast<std::int8_t>(code);
}

/// A factor of `neighbors` × k elements in one of the layouts, among elements that would be seen:
/// NaN, or for integers a large number.
template <class Kind>
struct PackedFactor {
  using Element = typename Kind::Element;
  std::vector<Element> memory;
  std::int64_t neighbor_stride, k_stride;

  PackedFactor(Random& random, int neighbors, int k, int layout) {
    std::int64_t const padded_k = k + 3, padded_n = neighbors + 5;
    neighbor_stride = layout == 0 ? padded_k : layout == 1 ? 1 : 2 * padded_k;
    k_stride = layout == 0 ? 1 : layout == 1 ? padded_n : 2;
    Element const poison = sizeof(Element) == 4   ? Element(0x7fc00000u)
                           : sizeof(Element) == 2 ? Element(0x7fc0)
                                                  : Element(0x7f);
    memory.assign(static_cast<std::size_t>(2 * padded_k * padded_n), poison);
    for (int n = 0; n < neighbors; ++n)
      for (int p = 0; p < k; ++p) {
        auto const small = random.integer(-16, 16);
        if constexpr (sizeof(Element) == 4)
          at(n, p) = __builtin_bit_cast(Element, static_cast<float>(small));
        else if constexpr (sizeof(Element) == 2)
          at(n, p) = bfloat16(static_cast<float>(small)).bits;
        else
          at(n, p) = static_cast<Element>(random.integer(-128, 127));
      }
  }
  Element& at(int n, int p) {
    return memory[static_cast<std::size_t>(n * neighbor_stride + p * k_stride)];
  }
  Factor<Element> factor() const { return {memory.data(), neighbor_stride, k_stride}; }
};

/// AMX's tiles as Intel's manual describes them, in memory: what the blocks do with them is checked
/// on any machine. Sums start as garbage.
class EmulatedTiles {
 public:
  EmulatedTiles() {
    for (auto& tile : tiles_)
      for (auto& row : tile)
        for (std::uint32_t& word : row) word = 0x7fc12345u;
  }
  template <int Tile>
  void clear() {
    std::memset(tiles_[Tile], 0, sizeof tiles_[Tile]);
  }
  template <int Tile, class Word>
  void load(Word const* p, std::int64_t stride) {
    for (int i = 0; i < 16; ++i) std::memcpy(tiles_[Tile][i], p + i * stride, 64);
  }
  template <int Tile, class Word>
  void store(Word* p, std::int64_t stride) const {
    for (int i = 0; i < 16; ++i) std::memcpy(p + i * stride, tiles_[Tile][i], 64);
  }
  template <class Kind, int Sums, int Left, int Right>
  void dot() {
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 16; ++j) {
        typename Kind::Sum sum;
        std::memcpy(&sum, &tiles_[Sums][i][j], sizeof sum);
        for (int u = 0; u < 16; ++u) sum += unit<Kind>(tiles_[Left][i][u], tiles_[Right][u][j]);
        std::memcpy(&tiles_[Sums][i][j], &sum, sizeof sum);
      }
  }

 private:
  template <class Kind>
  static typename Kind::Sum unit(std::uint32_t a, std::uint32_t b) {
    constexpr int bits = 32 / Kind::values;
    typename Kind::Sum sum = 0;
    for (int v = 0; v < Kind::values; ++v) {
      auto const x = static_cast<typename Kind::Element>(a >> (bits * v));
      auto const y = static_cast<typename Kind::Element>(b >> (bits * v));
      if constexpr (Kind::values == 2)
        sum += static_cast<float>(value_of<Kind>(x) * value_of<Kind>(y));
      else
        sum += static_cast<std::uint32_t>(static_cast<std::int32_t>(static_cast<std::int8_t>(x)) *
                                          static_cast<std::int8_t>(y));
    }
    return sum;
  }
  std::uint32_t tiles_[8][16][16];
};

}  // namespace attikos::test

#endif  // ATTIKOS_HOST_X86
