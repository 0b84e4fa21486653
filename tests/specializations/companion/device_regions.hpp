// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Memory of the device for the calls of option_calls.hpp.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "direct_common.hpp"
#include "option_calls.hpp"

namespace {

namespace abi = attikos::abi;  // the standard library has a global ::abi
using attikos::DType;
using attikos::test::Regions;

/// A region for each kind of operand, with numbers that suit it.
class DeviceRegions {
 public:
  DeviceRegions() {
    constexpr std::size_t n = Regions::bytes / sizeof(float);
    constexpr std::size_t count = std::size_t{1} << 20;
    std::vector<float> floats(count);
    std::vector<std::int32_t> ascending(count), few(count);
    std::vector<std::uint8_t> flags(4 * count);
    for (std::size_t i = 0; i < count; ++i) {
      floats[i] = 0.25f + static_cast<float>(mix(static_cast<std::uint32_t>(i)) >> 8) * 0x1p-24f;
      ascending[i] = static_cast<std::int32_t>(std::min<std::size_t>(7 * (i + 1), 1u << 30));
      few[i] = 1 + static_cast<std::int32_t>((7 * i) % 15);  // pages of four sequences differ
    }
    for (std::size_t i = 0; i < flags.size(); ++i)
      flags[i] = static_cast<std::uint8_t>(mix(static_cast<std::uint32_t>(i)) >> 31);
    at.floats = filled(floats), at.ascending = filled(ascending), at.few = filled(few);
    at.flags = filled(flags);
    for (DType type : attikos::test::element_types) {
      auto const index = static_cast<std::size_t>(static_cast<int>(type));
      at.matrices[index] = filled(elements(type));
      at.pointers[index] = filled(addresses(at.matrices[index]));
    }
    at.results = allocated(), at.more_results = allocated(), at.workspace = allocated();
    at.result_pointers = filled(addresses(at.results));
    static_assert(n >= count);
  }

  Regions at;
  bool good() const { return good_; }

 private:
  struct Free {
    void operator()(void* memory) const { cudaFree(memory); }
  };

  std::uintptr_t allocated() {
    void* memory = nullptr;
    good_ = good_ && cudaMalloc(&memory, Regions::bytes) == cudaSuccess;
    memory_.emplace_back(memory);
    return reinterpret_cast<std::uintptr_t>(memory);
  }
  /// A region full of copies of these numbers.
  template <class T>
  std::uintptr_t filled(std::vector<T> const& numbers) {
    std::uintptr_t const address = allocated();
    std::size_t const part = numbers.size() * sizeof(T);
    if (!good_) return address;
    for (std::size_t done = 0; done < Regions::bytes; done += part)
      good_ = good_ && cudaMemcpy(reinterpret_cast<char*>(address) + done, numbers.data(),
                                  std::min(part, Regions::bytes - done),
                                  cudaMemcpyHostToDevice) == cudaSuccess;
    return address;
  }
  /// Elements in about [-1, 1], and small integers, as bytes.
  static std::vector<std::uint8_t> elements(DType type) {
    std::size_t const size = static_cast<std::size_t>(attikos::dtype_size(type));
    std::vector<std::uint8_t> bytes(std::size_t{1} << 21);
    for (std::size_t i = 0; i < bytes.size() / size; ++i) {
      std::uint32_t const random = mix(static_cast<std::uint32_t>(i) + 77);
      std::uint64_t bits = 0;
      float const x = static_cast<float>(random >> 8) * 0x1p-23f - 1;
      double const y = static_cast<double>(x);
      std::uint32_t const single = [&] {
        std::uint32_t word;
        std::memcpy(&word, &x, sizeof word);
        return word;
      }();
      switch (type) {  // narrower floats by what is left of the bits of wider ones
        case DType::float64:
          std::memcpy(&bits, &y, sizeof bits);
          break;
        case DType::float32:
          bits = single;
          break;
        case DType::bfloat16:
          bits = single >> 16;
          break;
        case DType::float16:  // exponents 0x0c00 to 0x3800: up to 1
          bits = (random & 0x83ffu) | (0x2c00u + ((random >> 10) % 4 << 10));
          break;
        case DType::float8_e4m3:
          bits = (random & 0x87u) | ((4 + (random >> 8) % 4) << 3);
          break;
        case DType::float8_e5m2:
          bits = (random & 0x83u) | ((12 + (random >> 8) % 4) << 2);
          break;
        default:
          bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(random % 15) - 7);
      }
      std::memcpy(bytes.data() + i * size, &bits, size);
    }
    return bytes;
  }
  /// Addresses 64 bytes apart in the first half of a region.
  static std::vector<std::uintptr_t> addresses(std::uintptr_t first) {
    std::vector<std::uintptr_t> list(std::size_t{1} << 20);
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = first + 64 * i;
    return list;
  }

  std::vector<std::unique_ptr<void, Free>> memory_;
  bool good_ = true;
};

/// Bytes that a call can write in each of the regions of results.
inline std::size_t written_bytes(abi::AttentionArgs const& g) {
  return static_cast<std::size_t>(g.batch * g.heads_q * g.seqlen_q * g.head_dim_v * 8);
}
inline std::size_t written_bytes(abi::AttentionBackwardArgs const&) {
  return attikos::test::more_gradients + (std::size_t{5} << 20);
}
inline std::size_t written_bytes(abi::AppendKvArgs const&) {
  return Regions::bytes / 2 + (1u << 20);
}
inline std::size_t written_bytes(abi::GemmArgs const& g) {
  return std::min(Regions::bytes, static_cast<std::size_t>(g.m * g.n * g.batch * 8));
}
inline std::size_t written_bytes(abi::GatedMlpArgs const& g) {
  return static_cast<std::size_t>(g.batch * g.tokens * g.intermediate * 4);
}

}  // namespace
