// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Probes of accesses to device memory: what stores leave behind, and what prefetches save.
#include <algorithm>

#include "probe.hpp"
#include "ptx/global_memory.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

using ProbeGlobal = Probe;

using Word = std::uint32_t;
constexpr std::size_t threads = 64;

/// Each thread has four words in `fours` and two each in `words` and `pairs`, of which it stores
/// the second where its number is a multiple of 3; else it has no address either.
__global__ void store_kernel(Word const* values, Word* fours, Word* words, Word* pairs) {
  Word const t = threadIdx.x, *const v = values + 4 * t;
  store_global_16(fours + 4 * t, make_float4(__uint_as_float(v[0]), __uint_as_float(v[1]),
                                             __uint_as_float(v[2]), __uint_as_float(v[3])));
  bool const wanted = t % 3 == 0;
  store_global_if(wanted, wanted ? words + 2 * t + 1 : nullptr, __uint_as_float(v[1]));
  store_global_if(wanted, wanted ? pairs + 4 * t + 2 : nullptr, make_uint2(v[2], v[3]));
}

TEST_F(ProbeGlobal, Stores) {
  std::vector<Word> values;
  for (Word i = 0; i < 4 * threads; ++i) values.push_back(mix(i) >> 2);  // no NaN
  std::vector<Word> word(2 * threads, ~0u), pair(4 * threads, ~0u);
  for (std::size_t t = 0; t < threads; t += 3) {
    word[2 * t + 1] = values[4 * t + 1];
    pair[4 * t + 2] = values[4 * t + 2], pair[4 * t + 3] = values[4 * t + 3];
  }
  DeviceArray<Word> const from(values), fours(values.size()), words(word.size()),
      pairs(pair.size());
  store_kernel<<<1, threads>>>(from.data(), fours.data(), words.data(), pairs.data());
  expect_same(fours.host(), values, "16 bytes");
  expect_same(words.host(), word, "4 bytes where wanted");
  expect_same(pairs.host(), pair, "8 bytes where wanted");
}

constexpr int lines = 128, apart = 4096;  // bytes from one line to the next

/// Block b reads a word of line b and notes how long it took. Blocks of even number fetch the line
/// ahead, by `Level`, and all wait for long enough.
template <int Level>
__global__ void prefetch_kernel(unsigned char const* from, Word* out, long long* cycles) {
  __shared__ Word volatile taken;
  Word const* const line = reinterpret_cast<Word const*>(from + std::size_t{blockIdx.x} * apart);
  if (blockIdx.x % 2 == 0) {
    if constexpr (Level == 1)
      prefetch_l1(line);
    else
      prefetch_l2(line);
  }
  long long const begin = clock64();
  while (clock64() - begin < 20000) {
  }
  long long const before = clock64();
  taken = Level == 1 ? __ldca(line) : __ldcg(line);  // the clock is read after this store
  cycles[blockIdx.x] = clock64() - before;
  out[blockIdx.x] = taken;
}

template <int Level>
void check_prefetch() {
  std::vector<unsigned char> bytes;
  for (Word i = 0; i < lines * apart; ++i) bytes.push_back(static_cast<unsigned char>(mix(i)));
  std::vector<Word> expected(lines);
  for (std::size_t b = 0; b < lines; ++b) std::memcpy(&expected[b], &bytes[b * apart], 4);
  DeviceArray<unsigned char> const from(bytes);
  DeviceArray<Word> const out(lines);
  DeviceArray<long long> const cycles(lines);
  DeviceArray<unsigned char> const crowd(std::size_t{256} << 20);  // written, it fills L2
  ASSERT_CUDA(cudaDeviceSynchronize());
  prefetch_kernel<Level><<<lines, 1>>>(from.data(), out.data(), cycles.data());
  expect_same(out.host(), expected, "words");
  auto const all = cycles.host();
  std::vector<long long> ahead, cold;
  for (std::size_t b = 0; b < lines; ++b) (b % 2 == 0 ? ahead : cold).push_back(all[b]);
  auto const median = [](std::vector<long long>& x) {
    std::nth_element(x.begin(), x.begin() + lines / 4, x.end());
    return x[lines / 4];
  };
  long long const with = median(ahead), without = median(cold);
  EXPECT_LT(4 * with, 3 * without) << with << " cycles for " << without;
}

TEST_F(ProbeGlobal, PrefetchesToL1) { check_prefetch<1>(); }
TEST_F(ProbeGlobal, PrefetchesToL2) { check_prefetch<2>(); }

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
