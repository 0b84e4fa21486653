// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// CUDA calls that fail, by count: the n-th call of every kernel's launch, for n = 0, 1, … until the
// launch makes fewer. Each time the launch returns that failure, leaves no error behind and, if no
// kernel was launched before, nothing written; the next one works. Suites that are not called Runs
// need no GPU.
#include <attikos/abi/device.hpp>
#include <map>
#include <string>
#include <vector>

#include "../../support/failing_cuda.hpp"
#include "device_regions.hpp"
#include "direct_common.hpp"
#include "option_calls.hpp"

namespace {

using namespace attikos;
using test::CudaCalls;

/// What a call cannot be answered by; the driver's failures to describe a tensor have one status.
constexpr cudaError_t injected = cudaErrorLaunchOutOfResources;

struct Memory {
  Regions const& at;
  std::size_t bytes;

  void clear() const {
    for (std::uintptr_t region : {at.results, at.more_results})
      EXPECT_EQ(cudaMemset(reinterpret_cast<void*>(region), 0x3f, bytes), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  std::vector<std::uint8_t> read() const {
    std::vector<std::uint8_t> all(2 * bytes);
    std::size_t begin = 0;
    for (std::uintptr_t region : {at.results, at.more_results}) {
      EXPECT_EQ(cudaMemcpy(all.data() + begin, reinterpret_cast<void const*>(region), bytes,
                           cudaMemcpyDeviceToHost),
                cudaSuccess);
      begin += bytes;
    }
    return all;
  }
};

/// How often each function failed, over all kernels.
std::map<std::string, long>& failures() {
  static std::map<std::string, long> all;
  return all;
}

/// Every call of one launch fails in turn. What a first launch alone asks for, such as the limit of
/// shared memory, fails here too, since nothing has been launched before.
template <class Kernel, class Args>
void expect_failures(Args const& g, Regions const& at, abi::Device const& device) {
  Memory const memory{at, written_bytes(g)};
  memory.clear();
  auto const before = memory.read();
  for (long n = 0; !testing::Test::HasFailure(); ++n) {
    ASSERT_LT(n, 100) << "there is no end of calls";
    memory.clear();
    test::fail_cuda_call(n, injected);
    int const status = Kernel::launch(g, device, nullptr);
    CudaCalls const calls = test::stop_failing_cuda_calls();
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "an error was left behind";
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    auto const written = memory.read();
    if (calls.failed.empty()) {
      EXPECT_EQ(status, cudaSuccess);
      EXPECT_GT(calls.launches, 0);
      EXPECT_FALSE(written == before) << "nothing was written";
      return;
    }
    SCOPED_TRACE(calls.failed + ", call " + std::to_string(n));
    ++failures()[calls.failed];
    EXPECT_EQ(status, calls.failed == "cuTensorMapEncodeTiled" ? cudaErrorInvalidValue : injected);
    EXPECT_TRUE(calls.launches > 0 || written == before) << "something was written";
  }
}

/// The next call after each failure gives what a call gives that has met none, and an error that
/// was there before stays.
template <class Kernel, class Args>
void expect_recovery(Args const& g, Regions const& at, abi::Device const& device) {
  Memory const memory{at, written_bytes(g)};
  memory.clear();
  ASSERT_EQ(Kernel::launch(g, device, nullptr), cudaSuccess);
  auto const right = memory.read();
  for (long n = 0; !testing::Test::HasFailure(); ++n) {
    ASSERT_LT(n, 100);
    test::fail_cuda_call(n, injected);
    (void)Kernel::launch(g, device, nullptr);
    if (test::stop_failing_cuda_calls().failed.empty()) break;
    memory.clear();
    ASSERT_EQ(Kernel::launch(g, device, nullptr), cudaSuccess) << "after a failure of call " << n;
    EXPECT_TRUE(memory.read() == right) << "after a failure of call " << n;
  }
  int nothing = 0;
  ASSERT_NE(cudaDeviceGetAttribute(&nothing, cudaDevAttrWarpSize, 1000), cudaSuccess);
  cudaError_t const pending = cudaPeekAtLastError();
  ASSERT_NE(pending, cudaSuccess);
  test::fail_cuda_call(0, injected);
  EXPECT_EQ(Kernel::launch(g, device, nullptr), injected);
  test::stop_failing_cuda_calls();
  EXPECT_NE(cudaGetLastError(), cudaSuccess) << "the caller's own error is gone";
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

/// A call of each type of those that a kernel takes.
template <class Kernels, class Args>
void expect_all() {
  abi::Device const device = abi::query_device(0);
  if (device.compute_major == 0) GTEST_SKIP() << "no CUDA device";
  DeviceRegions const memory;
  ASSERT_TRUE(memory.good());
  auto const all = test::plain_calls(std::type_identity<Args>{}, memory.at);
  int kernels = 0;
  Kernels::each([&]<class Kernel>() {
    if (first_left_out<Kernel>(nullptr) != nullptr) return;
    SCOPED_TRACE(Kernel::name);
    auto const calls = test::taken_calls<Kernel>(all, device);
    if (calls.empty()) return;
    ++kernels;
    for (std::size_t i : {std::size_t{0}, calls.size() - 1}) {
      expect_failures<Kernel>(calls[i], memory.at, device);
      expect_recovery<Kernel>(calls[i], memory.at, device);
    }
  });
  for (auto const& [name, count] : failures())
    testing::Test::RecordProperty(name, std::to_string(count));
  std::printf("  %d kernels\n", kernels);
  for (auto const& [name, count] : failures())
    std::printf("  %5ld failures of %s\n", count, name.c_str());
}

TEST(FaultsRuns, Attention) { expect_all<test::AttentionKernels, abi::AttentionArgs>(); }
TEST(FaultsRuns, AttentionBackward) {
  expect_all<test::AttentionBackwardKernels, abi::AttentionBackwardArgs>();
}
TEST(FaultsRuns, Decode) { expect_all<test::DecodeKernels, abi::DecodeArgs>(); }
TEST(FaultsRuns, AppendKv) { expect_all<test::AppendKvKernels, abi::AppendKvArgs>(); }
TEST(FaultsRuns, Gemm) { expect_all<test::GemmKernels, abi::GemmArgs>(); }
TEST(FaultsRuns, GatedMlp) { expect_all<test::GatedMlpKernels, abi::GatedMlpArgs>(); }

/// Questions about a device are answered by nothing known, never by half of it.
TEST(FaultsRuns, QuestionsAboutDevices) {
  abi::Device const right = abi::query_device(0);
  if (right.compute_major == 0) GTEST_SKIP() << "no CUDA device";
  long n = 0;
  for (;; ++n) {
    ASSERT_LT(n, 100);
    test::fail_cuda_call(n, injected);
    abi::Device const device = abi::query_device(0);
    bool const failed = !test::stop_failing_cuda_calls().failed.empty();
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    abi::Device const wanted = failed ? abi::Device{} : right;
    EXPECT_EQ(device.ordinal, wanted.ordinal);
    EXPECT_EQ(device.compute_major, wanted.compute_major);
    EXPECT_EQ(device.compute_minor, wanted.compute_minor);
    EXPECT_EQ(device.sm_count, wanted.sm_count);
    EXPECT_EQ(device.shared_memory_per_block_optin, wanted.shared_memory_per_block_optin);
    EXPECT_EQ(device.l2_bytes, wanted.l2_bytes);
    EXPECT_EQ(static_cast<int>(device.architecture), static_cast<int>(wanted.architecture));
    if (!failed) break;
  }
  EXPECT_GE(n, 6);
  test::fail_cuda_call(0, injected);
  EXPECT_EQ(abi::current_device(), -1);
  EXPECT_EQ(test::stop_failing_cuda_calls().failed, "cudaGetDevice");
  test::fail_cuda_call(0, cudaErrorStreamCaptureImplicit);
  EXPECT_TRUE(abi::stream_is_capturing(nullptr));
  test::stop_failing_cuda_calls();
  test::fail_cuda_call(0, injected);
  EXPECT_FALSE(abi::stream_is_capturing(nullptr));
  test::stop_failing_cuda_calls();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

/// Without a device, too: the functions in the companion's objects are the ones that fail.
TEST(Faults, ReachTheCompanion) {
  test::fail_cuda_call(0, injected);
  EXPECT_EQ(abi::query_device(0).compute_major, 0);
  EXPECT_EQ(test::stop_failing_cuda_calls().failed, "cudaGetDeviceCount");
  test::fail_cuda_call(0, injected);
  EXPECT_EQ(abi::current_device(), -1);
  EXPECT_EQ(test::stop_failing_cuda_calls().failed, "cudaGetDevice");
  (void)cudaGetLastError();  // without a device the run time's own is there
}

}  // namespace
