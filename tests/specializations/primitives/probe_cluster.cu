// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Probes of clusters, of launches that overlap, of registers that move between warpgroups, and of
// the election of a lane.
#include "common/tensor_map.cuh"
#include "probe.hpp"
#include "ptx/cluster.cuh"
#include "ptx/wgmma.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

using ProbeCluster = Probe;
using ProbeLaunch = Probe;
using ProbeRegisters = Probe;
using ProbeElect = Probe;

using Word = std::uint32_t;
constexpr int cluster_rounds = 200, words = 8;

struct ClusterParams {
  Word* out;  // [blocks][rounds][size][words]
  int size;
};

/// In each round every block writes words of its own, dawdles, and reads those of all others in the
/// three ways there are.
__global__ void cluster_kernel(ClusterParams const p) {
  __shared__ __align__(16) Word memory[words];
  Word const rank = cluster_rank();
  for (int round = 0; round < cluster_rounds; ++round) {
    dawdle((blockIdx.x * cluster_rounds + static_cast<Word>(round)) * 32 + threadIdx.x);
    if (threadIdx.x < words)
      memory[threadIdx.x] =
          mix((rank * cluster_rounds + static_cast<Word>(round)) * words + threadIdx.x) >> 2;
    cluster_sync();
    Word const from = threadIdx.x;
    if (from < static_cast<Word>(p.size)) {
      Word* const out = p.out + ((blockIdx.x * cluster_rounds + static_cast<Word>(round)) *
                                     static_cast<Word>(p.size) +
                                 from) *
                                    words;
      for (int i = 0; i < 2; ++i) {
        out[i] = static_cast<Word>(load_cluster(reinterpret_cast<int const*>(memory + i), from));
        out[2 + i] =
            __float_as_uint(load_cluster(reinterpret_cast<float const*>(memory + 2 + i), from));
      }
      float4 const four = load_cluster_four(shared_address(memory + 4), from);
      out[4] = __float_as_uint(four.x), out[5] = __float_as_uint(four.y);
      out[6] = __float_as_uint(four.z), out[7] = __float_as_uint(four.w);
    }
    cluster_sync();
  }
}

TEST_F(ProbeCluster, EveryBlockReadsAllOthers) {
  for (int size : {1, 2, 4, 8}) {
    std::vector<Word> expected;
    for (int block = 0; block < 16; ++block)
      for (int round = 0; round < cluster_rounds; ++round)
        for (int i = 0; i < size * words; ++i)
          expected.push_back(
              mix(static_cast<Word>((i / words * cluster_rounds + round) * words + i % words)) >>
              2);
    DeviceArray<Word> const out(expected.size());
    ASSERT_CUDA(
        launch_clusters(cluster_kernel, 16, size, 32, 0, nullptr, ClusterParams{out.data(), size}));
    SCOPED_TRACE(testing::Message() << "cluster of " << size);
    expect_same(out.host(), expected, "words");
  }
}

constexpr int chain = 64, chain_blocks = 8;

struct ChainParams {
  Word const* from;
  Word* to;
};

/// Steps of a chain: word i comes from the word of another block in the launch before. The next
/// launch is let in first of all and must still find everything.
__global__ void chain_kernel(ChainParams const p) {
  allow_next_launch();
  wait_for_previous_launch();
  Word const i = blockIdx.x * blockDim.x + threadIdx.x;
  Word const before = p.from[(i + blockDim.x) % (gridDim.x * blockDim.x)];
  for (Word k = 0; k < 8; ++k) dawdle(before + k);
  p.to[i] = before * 31 + i;
}

TEST_F(ProbeLaunch, WaitsForTheOneBefore) {
  Word const count = chain_blocks * 64;
  std::vector<Word> values(count, 1);
  DeviceArray<Word> const even(values), odd(count);
  ASSERT_CUDA(cudaDeviceSynchronize());
  for (int step = 0; step < chain; ++step) {
    ChainParams const p =
        step % 2 == 0 ? ChainParams{even.data(), odd.data()} : ChainParams{odd.data(), even.data()};
    ASSERT_CUDA(launch_clusters(chain_kernel, chain_blocks, 1, 64, 0, nullptr, p));
    std::vector<Word> next(count);
    for (Word i = 0; i < count; ++i) next[i] = values[(i + 64) % count] * 31 + i;
    values.swap(next);
  }
  expect_same(even.host(), values, "words after the last step");
}

constexpr int held = 200, turns = 3;

struct RegisterParams {
  Word const* from;
  Word* out;        // [256][held]
  long long* when;  // [3]: when warpgroup 0 gave, when 1 and 2 had got
};

/// Three warpgroups begin with 168 registers a thread. Two take 240, and hold 200 words in them,
/// which cannot be before the other has gone down to 24.
__global__ void __launch_bounds__(384, 1) registers_kernel(RegisterParams const p) {
  int const group = static_cast<int>(threadIdx.x) / 128, t = static_cast<int>(threadIdx.x) % 128;
  if (group == 0) {
    long long const begin = clock64();
    while (clock64() - begin < 100000) {
    }
    if (t == 0) p.when[0] = clock64();
    __syncwarp();
    decrease_registers<24>();
  } else {
    increase_registers<240>();
    if (t == 0) p.when[group] = clock64();
    __syncwarp();
    Word v[held];
#pragma unroll
    for (int i = 0; i < held; ++i) v[i] = p.from[i * 128 + t];
    pin(v);
#pragma unroll 1
    for (int turn = 0; turn < turns; ++turn) {
#pragma unroll
      for (int i = 0; i < held; ++i) v[i] = v[i] * 31 + v[(i + 1) % held];
      pin(v);
    }
#pragma unroll
    for (int i = 0; i < held; ++i) p.out[((group - 1) * held + i) * 128 + t] = v[i];
  }
}

TEST_F(ProbeRegisters, TakenAfterTheyWereGiven) {
  std::vector<Word> from, expected;
  for (Word i = 0; i < held * 128; ++i) from.push_back(mix(i));
  std::vector<Word> v = from;
  for (int turn = 0; turn < turns; ++turn)
    for (std::size_t i = 0; i < held; ++i)
      for (std::size_t t = 0; t < 128; ++t)
        v[i * 128 + t] = v[i * 128 + t] * 31 + v[(i + 1) % held * 128 + t];
  for (int group = 0; group < 2; ++group) expected.insert(expected.end(), v.begin(), v.end());
  DeviceArray<Word> const input(from), out(expected.size());
  DeviceArray<long long> const when(3);
  registers_kernel<<<1, 384>>>({input.data(), out.data(), when.data()});
  expect_same(out.host(), expected, "words");
  auto const clock = when.host();
  EXPECT_GT(clock[1], clock[0]);
  EXPECT_GT(clock[2], clock[0]);
}

__global__ void elect_kernel(int* out) { out[threadIdx.x] = elect_one() ? 1 : 0; }

TEST_F(ProbeElect, OneLaneOfEachWarp) {
  DeviceArray<int> const out(256);
  elect_kernel<<<1, 256>>>(out.data());
  auto const chosen = out.host();
  for (std::size_t warp = 0; warp < 8; ++warp) {
    int count = 0;
    for (std::size_t lane = 0; lane < 32; ++lane) count += chosen[warp * 32 + lane];
    EXPECT_EQ(count, 1) << "warp " << warp;
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
