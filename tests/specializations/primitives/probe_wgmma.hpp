// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// One kernel for every product of a warpgroup: operands that the host has laid out in shared
/// memory, descriptors moved on by what the host says, each k-step by itself and then all of them.
#pragma once

#include "probe.hpp"
#include "ptx/wgmma.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

constexpr int max_steps = 8, start_value = 3;
constexpr int probe_rows = 128;  // two blocks of the 64 that an instruction takes

struct ProductParams {
  uint4 const* image;  // A, then B, as they lie in shared memory
  int chunks;          // 16-byte chunks of it
  std::uint32_t begin_b, leading_a, leading_b;
  int steps;
  std::uint32_t step_a[max_steps], step_b[max_steps];  // bytes from the operands' begin
  int wave;                                            // block of 64 rows of A
  unsigned char const* rows_a;                         // A row by row, for fragments in registers
  int pitch_a;                                         // bytes
};

/// The wrapper under test and where its operands come from.
using WarpgroupKernel = void (*)(ProductParams, float*);

/// Writes each thread's registers of D: what each k-step alone puts in place of start_value, then
/// start_value plus all of them. Every sum is an integer that float32 holds.
template <class Product>
__global__ void __launch_bounds__(128, 1) warpgroup_kernel(ProductParams const p, float* out) {
  extern __shared__ __align__(1024) uint4 memory[];
  for (int i = static_cast<int>(threadIdx.x); i < p.chunks; i += 128) memory[i] = p.image[i];
  fence_proxy_async();
  __syncthreads();

  constexpr int count = Product::n / 2;
  typename Product::Acc d[count];
  Product product(p, memory);
  for (int part = 0; part <= p.steps; ++part) {
    bool const all = part == p.steps;
#pragma unroll
    for (int e = 0; e < count; ++e) d[e] = static_cast<typename Product::Acc>(start_value);
    pin(d);
    for (int step = all ? 0 : part; step < (all ? p.steps : part + 1); ++step) {
      product.load(step);
      wgmma_fence();
      product.multiply(d, step, all);
      wgmma_commit();
      // The next step's fragments of A take the place of this one's.
      wgmma_wait<Product::from_registers ? 0 : 1>();
    }
    wgmma_wait<0>();
    pin(d);
    float* const to = out + (part * 128 + static_cast<int>(threadIdx.x)) * count;
#pragma unroll
    for (int e = 0; e < count; ++e) to[e] = static_cast<float>(d[e]);
  }
}

/// Shared memory that begins with A, its bases multiples of 1024.
inline Bytes joined(Bytes a, Bytes const& b, std::uint32_t& begin_b) {
  a.resize((a.size() + 1023) / 1024 * 1024, 0xFF);
  begin_b = static_cast<std::uint32_t>(a.size());
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Where k-step `step` of an operand of `rows` rows begins.
inline std::uint32_t step_begin(bool mn_major, int rows, int step) {
  if (mn_major) return static_cast<std::uint32_t>(step * 16 * 128);
  return static_cast<std::uint32_t>(step / 4 * rows * 128 + step % 4 * 32);
}

/// D[64, n] as the threads' registers: d[j + 2 i + 4 b] of thread 32 w + 4 g + q is row
/// 16 w + g + 8 i, column 8 b + 2 q + j.
inline std::vector<double> fragments(std::vector<double> const& d, int n, int (*row_of)(int)) {
  std::vector<double> registers;
  for (int t = 0; t < 128; ++t)
    for (int b = 0; b < n / 8; ++b)
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) {
          int const row = t / 32 * 16 + t % 32 / 4 + 8 * i, column = 8 * b + t % 4 * 2 + j;
          registers.push_back(d[static_cast<std::size_t>(row_of(row) * n + column)]);
        }
  return registers;
}

/// Runs a product over a[128, depth] · b[n, depth]ᵀ and compares D of every step and of all.
/// `row_of`: which row of a block of 64 the product gives as its row r.
inline void check_warpgroup(WarpgroupKernel kernel, Integers const& a, Integers const& b,
                            Bytes const& rows, Bytes const& image, ProductParams p,
                            int (*row_of)(int), char const* name) {
  int const n = b.rows, per_step = a.columns / p.steps;
  std::vector<uint4> chunks(image.size() / 16);
  std::memcpy(chunks.data(), image.data(), image.size());
  DeviceArray<uint4> const memory(chunks);
  DeviceArray<unsigned char> const rows_a(rows);
  p.image = memory.data();
  p.chunks = static_cast<int>(chunks.size());
  p.rows_a = rows_a.data();
  p.pitch_a = static_cast<int>(rows.size()) / a.rows;
  ASSERT_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(image.size())));
  for (p.wave = 0; p.wave < probe_rows / 64; ++p.wave) {
    DeviceArray<float> const d(static_cast<std::size_t>((p.steps + 1) * 64 * n));
    kernel<<<1, 128, image.size()>>>(p, d.data());
    ASSERT_CUDA(cudaDeviceSynchronize());
    auto const got = d.host();
    for (int part = 0; part <= p.steps; ++part) {
      bool const all = part == p.steps;
      auto const plain = product(a, b, 64 * p.wave, 64, all ? 0 : part * per_step,
                                 all ? a.columns : (part + 1) * per_step, all ? start_value : 0);
      SCOPED_TRACE(testing::Message() << name << ", N " << n << ", rows from " << 64 * p.wave
                                      << ", step " << part << " of " << p.steps);
      expect_same(got.data() + static_cast<std::size_t>(part) * 64 * n, fragments(plain, n, row_of),
                  "D");
    }
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
