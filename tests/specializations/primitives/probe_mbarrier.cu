// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Probes of barriers in shared memory and of named ones: rings of stages whose producers and
// consumers dawdle at random, for thousands of rounds. What is read in a round goes into a checksum
// that only the right words in the right order give.
#include <attikos/ptx/cp_async.hpp>

#include "common/tensor_map.cuh"
#include "probe.hpp"
#include "ptx/cluster.cuh"
#include "ptx/tma.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

using ProbeMbarrier = Probe;
using ProbeNamedBarrier = Probe;

constexpr int max_stages = 4, rounds = 3000;
using Word = std::uint32_t;

/// Counts stages and flips the parity with each lap.
struct Position {
  int stages, stage = 0;
  Word parity = 0;
  __device__ explicit Position(int stages_) : stages(stages_) {}
  __device__ void next() {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

__host__ __device__ constexpr Word with_round(Word sum, Word word) { return sum * 31 + word; }

/// Warp 0 writes 32 words a round, or has them copied from `source`, which has 32 for each; the
/// others read them; `out` has a checksum for each that reads.
__global__ void ring_kernel(int stages, Word const* source, Word* out) {
  __shared__ Word memory[max_stages][32];
  __shared__ std::uint64_t full[max_stages], empty[max_stages];
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int const consumers = static_cast<int>(blockDim.x) / 32 - 1;
  Word const seed = (blockIdx.x * 16 + static_cast<Word>(warp)) * rounds;
  if (threadIdx.x == 0)
    for (int s = 0; s < stages; ++s) {
      mbarrier_init(&full[s], 32);
      mbarrier_init(&empty[s], static_cast<Word>(consumers));
    }
  __syncthreads();
  Position at(stages);
  Word sum = 0;
  for (int round = 0; round < rounds; ++round, at.next()) {
    Word const key = seed + static_cast<Word>(round);
    if (warp == 0) {
      mbarrier_wait(&empty[at.stage], at.parity ^ 1);
      int const word = round * 32 + lane;
      if (source != nullptr)
        copy_async_four(shared_address(&memory[at.stage][lane]), source + word);
      else
        memory[at.stage][lane] = mix(static_cast<Word>(word));
      dawdle(key + static_cast<Word>(lane));
      if (source != nullptr)
        copy_async_arrive(&full[at.stage]);
      else
        mbarrier_arrive(&full[at.stage]);
    } else {
      mbarrier_wait(&full[at.stage], at.parity);
      dawdle(key);
      sum = with_round(sum, memory[at.stage][(lane + warp) % 32]);
      __syncwarp();
      if (lane == 0) mbarrier_arrive(&empty[at.stage]);
    }
  }
  if (warp != 0) out[blockIdx.x * (blockDim.x - 32) + threadIdx.x - 32] = sum;
}

/// What a reader of one word of every round comes to.
template <class WordOf>
Word checksum(WordOf const& word_of) {
  Word sum = 0;
  for (int round = 0; round < rounds; ++round) sum = with_round(sum, word_of(round));
  return sum;
}

void check_ring(Word const* source) {
  int const blocks = 16;
  for (int stages = 1; stages <= max_stages; ++stages)
    for (int consumers : {1, 3}) {
      DeviceArray<Word> const out(static_cast<std::size_t>(blocks * consumers * 32));
      ring_kernel<<<blocks, 32 * (1 + consumers)>>>(stages, source, out.data());
      std::vector<Word> expected;
      for (int b = 0; b < blocks; ++b)
        for (int warp = 1; warp <= consumers; ++warp)
          for (int lane = 0; lane < 32; ++lane)
            expected.push_back(checksum([&](int round) {
              return mix(static_cast<Word>(round * 32 + (lane + warp) % 32));
            }));
      SCOPED_TRACE(testing::Message() << stages << " stages, " << consumers << " consumers");
      expect_same(out.host(), expected, "checksums");
    }
}

TEST_F(ProbeMbarrier, RingOfOrdinaryStores) { check_ring(nullptr); }
TEST_F(ProbeMbarrier, RingOfAsynchronousCopies) {
  std::vector<Word> words;
  for (Word i = 0; i < rounds * 32; ++i) words.push_back(mix(i));
  DeviceArray<Word> const source(words);
  check_ring(source.data());
}

constexpr int max_cluster = 4, box_lines = 8, boxes = 61, consumer_warps = 2;

struct RingParams {
  CUtensorMap map;  // boxes for each block of a cluster, of 8 lines of 32 words
  int stages, cluster;
  Word* out;
};

/// The copy engine fills the stages: in each round every block of the cluster brings its share of
/// the lines into all of them, and may only where all have read what was there.
__global__ void copy_ring_kernel(__grid_constant__ RingParams const p) {
  __shared__ __align__(1024) Word memory[max_stages][max_cluster * box_lines * 32];
  __shared__ std::uint64_t full[max_stages], empty[max_stages];
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  Word const rank = cluster_rank(), seed = (blockIdx.x * 4 + static_cast<Word>(warp)) * rounds;
  if (threadIdx.x == 0) {
    for (int s = 0; s < p.stages; ++s) {
      mbarrier_init(&full[s], 1);
      mbarrier_init(&empty[s], static_cast<Word>(consumer_warps * p.cluster));
    }
    fence_mbarrier_init();
  }
  cluster_sync();
  int const lines = box_lines * p.cluster;
  Position at(p.stages);
  Word sum = 0;
  if (warp == 0) {
    if (elect_one()) {
      int const line = box_lines * static_cast<int>(rank);
      for (int round = 0; round < rounds; ++round, at.next()) {
        int const y = round % boxes * lines + line;
        Word* const to = memory[at.stage] + line * 32;
        mbarrier_wait(&empty[at.stage], at.parity ^ 1);
        dawdle(seed + static_cast<Word>(round));
        mbarrier_arrive_expect(&full[at.stage], static_cast<Word>(lines) * 128);
        if (p.cluster == 1)
          tma_load(to, &p.map, &full[at.stage], Keep::normal, 0, y, 0);
        else
          tma_load_multicast(to, &p.map, &full[at.stage],
                             static_cast<std::uint16_t>((1 << p.cluster) - 1), Keep::normal, 0, y,
                             0);
      }
    }
  } else {
    int const line = lane % lines, chunk = lane / 4 ^ line % 8;  // where its word of the line went
    for (int round = 0; round < rounds; ++round, at.next()) {
      mbarrier_wait(&full[at.stage], at.parity);
      dawdle(seed + static_cast<Word>(round));
      sum = with_round(sum, memory[at.stage][line * 32 + chunk * 4 + lane % 4]);
      __syncwarp();
      if (p.cluster == 1) {
        if (lane == 0) mbarrier_arrive(&empty[at.stage]);
      } else if (lane < p.cluster) {
        mbarrier_arrive_cluster(&empty[at.stage], static_cast<Word>(lane));
      }
    }
    p.out[(blockIdx.x * consumer_warps + static_cast<Word>(warp) - 1) * 32 +
          static_cast<Word>(lane)] = sum;
  }
  cluster_sync();  // no block goes while others still arrive at its barriers
}

TEST_F(ProbeMbarrier, RingOfTheCopyEngine) {
  std::vector<Word> source;
  for (Word i = 0; i < boxes * max_cluster * box_lines * 32; ++i) source.push_back(mix(i));
  DeviceArray<Word> const memory(source);
  int const blocks = 16;
  for (int cluster : {1, 2, 4})
    for (int stages : {1, 3, 4}) {
      RingParams p{};
      p.stages = stages, p.cluster = cluster;
      int const lines = box_lines * cluster;
      TensorMapSource const t{memory.data(),
                              TensorMapElement<float>::map,
                              4,
                              32,
                              boxes * max_cluster * box_lines,
                              1,
                              128,
                              0};
      ASSERT_CUDA(make_tensor_map(&p.map, t, 32, box_lines));
      DeviceArray<Word> const out(blocks * consumer_warps * 32);
      p.out = out.data();
      ASSERT_CUDA(launch_clusters(copy_ring_kernel, blocks, cluster, 32 * (1 + consumer_warps), 0,
                                  nullptr, p));
      ASSERT_CUDA(cudaDeviceSynchronize());
      std::vector<Word> expected;
      for (int i = 0; i < blocks * consumer_warps * 32; ++i)
        expected.push_back(checksum([&](int round) {
          int const line = round % boxes * lines + i % 32 % lines;
          return source[static_cast<std::size_t>(line * 32 + i % 32)];
        }));
      SCOPED_TRACE(testing::Message() << stages << " stages, cluster of " << cluster);
      expect_same(out.host(), expected, "checksums");
    }
}

/// Two halves of a block hand a buffer back and forth through the named barriers `filled` and
/// `filled` + 1; each pair of warps of the upper half meets at a barrier of its own besides.
__global__ void named_kernel(int filled, Word* out) {
  constexpr int half = 128;
  __shared__ Word memory[half], pairs[half];
  int const t = static_cast<int>(threadIdx.x) % half, warp = static_cast<int>(threadIdx.x) / 32;
  bool const writes = threadIdx.x < half;
  Word sum = 0;
  if (!writes) named_barrier_arrive(filled + 1, 2 * half);
  for (int round = 0; round < rounds; ++round) {
    dawdle(static_cast<Word>(round * 8 + warp));
    if (writes) {
      named_barrier_sync(filled + 1, 2 * half);
      memory[t] = mix(static_cast<Word>(round * half + t));
      named_barrier_arrive(filled, 2 * half);
      continue;
    }
    named_barrier_sync(filled, 2 * half);
    Word const word = memory[half - 1 - t];
    if (round + 1 < rounds) named_barrier_arrive(filled + 1, 2 * half);
    int const pair = t / 64 + (filled == 1 ? 3 : 1);
    pairs[t] = word;
    named_barrier_sync(pair, 64);
    sum = with_round(sum, pairs[t ^ 32]);
    named_barrier_sync(pair, 64);
  }
  if (!writes) out[t] = sum;
}

TEST_F(ProbeNamedBarrier, HandOverAndPairs) {
  for (int filled : {1, 6, 14}) {
    DeviceArray<Word> const out(128);
    named_kernel<<<1, 256>>>(filled, out.data());
    std::vector<Word> expected;
    for (int t = 0; t < 128; ++t)
      expected.push_back(checksum(
          [&](int round) { return mix(static_cast<Word>(round * 128 + 127 - (t ^ 32))); }));
    SCOPED_TRACE(testing::Message() << "barriers " << filled << " and the next");
    expect_same(out.host(), expected, "checksums");
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
