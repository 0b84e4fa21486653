// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Probes of what moves and selects registers, and of the numbers of threads and blocks.
#include "probe.hpp"
#include "ptx/registers.cuh"
#include "ptx/thread_index.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

using ProbeSelect = Probe;

using Word = std::uint32_t;
constexpr int count = 24;

/// Thread t takes number t % count of an array, as words, as float64 and by way of copies that are
/// overwritten behind them; and all of its numbers as the compiler must not know them.
__global__ void select_kernel(Word const* from, Word* words, double* doubles, Word* copies,
                              double* opaque) {
  int const t = static_cast<int>(threadIdx.x), wanted = t % count;
  Word v[count], copied[count], word = 0, copy = 0;
  double x[count], selected = 0;
#pragma unroll
  for (int i = 0; i < count; ++i) v[i] = from[t * count + i], x[i] = v[i] + 0.5;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    copied[i] = copy_register(v[i]);
    v[i] += 1;
    make_opaque(v[i]);
  }
#pragma unroll
  for (int i = 0; i < count; ++i) {
    take_if_equal(word, v[i], wanted, i);
    take_if_equal(selected, x[i], wanted, i);
    take_if_equal(copy, copied[i], wanted, i);
  }
  words[t] = word, doubles[t] = selected, copies[t] = copy;
  auto single = static_cast<float>(t);
  double twice = t + 0.25;
  int number = t;
  Word const* at = from + t;
  make_opaque(single), make_opaque(twice), make_opaque(number), make_opaque(at);
  opaque[t] = single + twice + number + static_cast<double>(*at);
}

TEST_F(ProbeSelect, OneOfManyRegisters) {
  std::vector<Word> from, word, copy;
  std::vector<double> selected, opaque;
  for (Word i = 0; i < 64 * count; ++i) from.push_back(mix(i));
  for (std::size_t t = 0; t < 64; ++t) {
    Word const x = from[t * count + t % count];
    word.push_back(x + 1), copy.push_back(x), selected.push_back(x + 0.5);
    opaque.push_back(3 * static_cast<double>(t) + 0.25 + from[t]);
  }
  DeviceArray<Word> const input(from), words(64), copies(64);
  DeviceArray<double> const doubles(64), values(64);
  select_kernel<<<1, 64>>>(input.data(), words.data(), doubles.data(), copies.data(),
                           values.data());
  expect_same(words.host(), word, "words");
  expect_same(doubles.host(), selected, "float64");
  expect_same(copies.host(), copy, "copies");
  expect_same(values.host(), opaque, "opaque");
}

__global__ void numbers_kernel(int* out) {
  int const at = fresh_block() * static_cast<int>(blockDim.x) + fresh_thread();
  out[blockIdx.x * blockDim.x + threadIdx.x] = at;
}

TEST_F(ProbeSelect, NumbersOfThreadsAndBlocks) {
  DeviceArray<int> const out(7 * 96);
  numbers_kernel<<<7, 96>>>(out.data());
  std::vector<int> expected;
  for (int i = 0; i < 7 * 96; ++i) expected.push_back(i);
  expect_same(out.host(), expected, "numbers");
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
