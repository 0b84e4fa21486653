// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Probes of copies and additions of contiguous bytes, and of the turns that blocks take at them:
// floats whose sum depends on the order in which they are added up, by blocks that dawdle.
#include <cmath>

#include "probe.hpp"
#include "ptx/bulk_copy.cuh"
#include "ptx/mbarrier.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

using ProbeBulkCopy = Probe;

constexpr int blocks = 32, tiles = 200, count = 512;

/// The turn of a block at a tile.
__host__ __device__ constexpr int turn_at(int block, int tile) {
  return (block + 7 * tile) % blocks;
}

/// Each block adds `count` floats of its own to every tile of `sums`, where the first stores them,
/// in the order that turn_at() says. One thread.
__global__ void turns_kernel(float const* source, float* sums, unsigned* counters) {
  __shared__ alignas(128) float staged[count];
  __shared__ std::uint64_t full;
  mbarrier_init(&full, 1);
  fence_mbarrier_init();
  int const block = static_cast<int>(blockIdx.x);
  for (int tile = 0; tile < tiles; ++tile) {
    auto const turn = static_cast<unsigned>(turn_at(block, tile));
    mbarrier_arrive_expect(&full, count * 4);
    bulk_load(staged, source + (tile * blocks + block) * count, count * 4, &full);
    dawdle(static_cast<std::uint32_t>(tile * blocks + block));
    mbarrier_wait(&full, static_cast<std::uint32_t>(tile % 2));
    float* const to = sums + tile * count;
    if (turn > 0) wait_for_turn(counters + tile, turn);
    if (turn == 0)
      bulk_store(to, staged, count * 4);
    else
      bulk_add(to, staged, count * 4);
    tma_store_commit();
    tma_store_wait_read<0>();
    tma_store_wait<0>();
    pass_turn(counters + tile);
  }
}

TEST_F(ProbeBulkCopy, AddsUpInTurn) {
  std::vector<float> source(std::size_t{blocks} * tiles * count);
  for (std::size_t i = 0; i < source.size(); ++i) {
    auto const bits = mix(static_cast<std::uint32_t>(i));
    source[i] = std::ldexp(static_cast<float>(bits % 2001) - 1000.0f, static_cast<int>(bits >> 28));
  }
  std::vector<float> expected(std::size_t{tiles} * count);
  int sensitive = 0;  // to the order
  for (std::size_t tile = 0; tile < tiles; ++tile)
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0, other = 0;
      for (int n = 0; n < blocks; ++n)
        for (int block = 0; block < blocks; ++block) {
          float const x = source[(tile * blocks + static_cast<std::size_t>(block)) * count + i];
          if (turn_at(block, static_cast<int>(tile)) == n) sum = n == 0 ? x : sum + x;
          if (block == n) other += x;
        }
      expected[tile * count + i] = sum;
      sensitive += sum != other;
    }
  ASSERT_GT(sensitive, tiles);
  DeviceArray<float> const from(source), sums(expected.size());
  DeviceArray<unsigned> const counters(std::vector<unsigned>(tiles, 0));
  turns_kernel<<<blocks, 1>>>(from.data(), sums.data(), counters.data());
  ASSERT_CUDA(cudaGetLastError());
  ASSERT_CUDA(cudaDeviceSynchronize());
  auto const got = sums.host();
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], expected[i]) << "tile " << i / count << ", element " << i % count;
  for (unsigned const turns : counters.host()) EXPECT_EQ(turns, unsigned{blocks});
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
