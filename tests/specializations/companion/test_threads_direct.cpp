// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels whose launches ask for different shared memory, called by several host threads at once.
#include <atomic>
#include <attikos/abi/attention_cuda.hpp>
#include <attikos/abi/device.hpp>
#include <attikos/abi/gemm.hpp>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "direct_common.hpp"

namespace {

namespace abi = attikos::abi;
using attikos::DType;

/// What the threads have in common, and failed launches by their text.
struct Launches {
  abi::Device device = abi::query_device(abi::current_device());
  std::atomic<int> failed{0};
  std::atomic<int> status{0};

  /// Each of these launches on a thread and a stream of its own, many times.
  template <class... Launch>
  void race(Launch const&... launch) {
    std::atomic<int> waiting{static_cast<int>(sizeof...(launch))};
    std::vector<std::thread> threads;
    auto const start = [&](auto const& one) {
      threads.emplace_back([&, this] {
        cudaSetDevice(device.ordinal);
        cudaStream_t stream = nullptr;
        if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) ++failed;
        --waiting;
        while (waiting > 0) std::this_thread::yield();
        for (int i = 0; i < 10000; ++i)
          if (int const result = one(device, stream); result != 0) ++failed, status = result;
        if (cudaStreamSynchronize(stream) != cudaSuccess) ++failed;
        cudaStreamDestroy(stream);
      });
    };
    (start(launch), ...);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failed, 0) << "launches failed, the last with: "
                         << cudaGetErrorString(static_cast<cudaError_t>(status.load()));
  }
};

/// Memory of the device, all of one value.
template <class T>
struct Filled {
  std::int64_t size;
  T* data = nullptr;
  Filled(std::int64_t count, T value) : size(count) {
    std::vector<T> const host(static_cast<std::size_t>(count), value);
    if (cudaMalloc(&data, host.size() * sizeof(T)) != cudaSuccess ||
        cudaMemcpy(data, host.data(), host.size() * sizeof(T), cudaMemcpyDefault) != cudaSuccess)
      data = nullptr;
  }
  ~Filled() { cudaFree(data); }
  Filled(Filled const&) = delete;
  Filled& operator=(Filled const&) = delete;
  /// How many elements have another value.
  std::int64_t others(T value) const {
    std::vector<T> host(static_cast<std::size_t>(size));
    if (cudaMemcpy(host.data(), data, host.size() * sizeof(T), cudaMemcpyDefault) != cudaSuccess)
      return -1;
    std::int64_t count = 0;
    for (T const& element : host) count += std::memcmp(&element, &value, sizeof(T)) != 0;
    return count;
  }
};

TEST(ThreadsRuns, AttentionOfDifferentLengths) {
  using Kernel = abi::AttentionSm80ShortBf16;
  SKIP_IF_LEFT_OUT(Kernel);
  constexpr std::uint16_t one = 0x3f80, nan = 0xffff;  // bfloat16
  constexpr int heads = 8, head_dim = 128, length = 128;
  Filled<std::uint16_t> const ones(heads * length * head_dim, one);
  Filled<std::uint16_t> longer(heads * length * head_dim, nan);
  Filled<std::uint16_t> shorter(heads * 64 * head_dim, nan);
  auto const attention = [&](std::int64_t n, Filled<std::uint16_t>& out) {
    abi::AttentionArgs g;
    g.q = g.k = g.v = ones.data, g.out = out.data;
    g.type = g.type_out = DType::bfloat16;
    g.batch = 1, g.heads_q = g.heads_kv = heads, g.seqlen_q = g.seqlen_kv = n;
    g.head_dim = g.head_dim_v = head_dim;
    g.softmax_scale = 0.125;
    for (auto* s : {&g.q_stride, &g.k_stride, &g.v_stride, &g.out_stride})
      (*s)[0] = heads * n * head_dim, (*s)[1] = n * head_dim, (*s)[2] = head_dim, (*s)[3] = 1;
    return [g](abi::Device const& device, cudaStream_t stream) {
      return Kernel::launch(g, device, stream);
    };
  };
  Launches().race(attention(length, longer), attention(64, shorter));
  EXPECT_EQ(longer.others(one), 0) << "the mean of ones is one";
  EXPECT_EQ(shorter.others(one), 0) << "the mean of ones is one";
}

template <class T, class Kernel>
void small_products() {
  SKIP_IF_LEFT_OUT(Kernel);
  constexpr std::int64_t batch = 64, most = 32;
  Filled<T> const ones(batch * most * most, T(1));
  Filled<T> c(batch * most * most, T(-1)), other(batch * most * most, T(-1));
  auto const product = [&](std::int64_t n, Filled<T>& result) {
    abi::GemmArgs g;
    g.a = g.b = ones.data, g.c = result.data;
    g.type_a = g.type_b = g.type_c = std::is_same_v<T, float> ? DType::float32 : DType::float64;
    g.batch = batch, g.m = g.n = g.k = n;
    g.a_batch = g.b_batch = g.c_batch = n * n;
    g.a_m = g.b_k = g.c_m = n, g.a_k = g.b_n = g.c_n = 1;
    abi::Verdict const verdict = Kernel::accepts(g, abi::query_device(abi::current_device()));
    EXPECT_TRUE(verdict.ok) << verdict.reason;
    return [g](abi::Device const& device, cudaStream_t stream) {
      return Kernel::launch(g, device, stream);
    };
  };
  Launches().race(product(most, c), product(most / 2, other));
  EXPECT_EQ(c.others(T(most)), 0) << "a sum of 32 ones";
}

TEST(ThreadsRuns, SmallFloat32Products) { small_products<float, abi::GemmSm80SmallF32>(); }
TEST(ThreadsRuns, SmallFloat64Products) { small_products<double, abi::GemmSm80SmallF64>(); }

}  // namespace
