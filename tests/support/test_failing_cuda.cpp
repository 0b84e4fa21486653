// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions of failing_cuda.cpp over ones that only count, which needs neither a device nor a
// linker that wraps.
#include <cuda.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "failing_cuda.hpp"

namespace {
std::map<std::string, long> reached;  // calls that got through
int memory = 0, function = 0;
}  // namespace

#pragma GCC diagnostic ignored "-Wunused-parameter"
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {
#define ATTIKOS_CALL(name, parameters, arguments) \
  cudaError_t __wrap_##name parameters;           \
  cudaError_t __real_##name parameters {          \
    ++reached[#name];                             \
    return cudaSuccess;                           \
  }
#define ATTIKOS_LAUNCH ATTIKOS_CALL
#define ATTIKOS_OWN(name, parameters, arguments) cudaError_t __wrap_##name parameters;
#include "failing_cuda_functions.hpp"
#undef ATTIKOS_CALL
#undef ATTIKOS_LAUNCH
#undef ATTIKOS_OWN
cudaError_t __real_cudaMalloc(void** at, std::size_t bytes) {
  ++reached["cudaMalloc"];
  *at = bytes > 0 ? &memory : nullptr;
  return cudaSuccess;
}
cudaError_t __real_cudaFree(void*) { return cudaSuccess; }
cudaError_t __real_cudaGetDriverEntryPointByVersion(char const*, void** at, unsigned,
                                                    unsigned long long,
                                                    cudaDriverEntryPointQueryResult*) {
  *at = &function;
  return cudaSuccess;
}
cudaError_t __real_cudaPeekAtLastError() { return cudaSuccess; }
cudaError_t __real_cudaGetLastError() { return cudaSuccess; }
}
// NOLINTEND(bugprone-reserved-identifier)

namespace attikos::test {
namespace {

constexpr cudaError_t injected = cudaErrorLaunchOutOfResources;

/// A function, called with zeros.
struct Function {
  std::string name;
  cudaError_t (*call)();
  bool launches;
};
template <auto F, class... Parameters>
cudaError_t with_zeros(cudaError_t (*)(Parameters...)) {
  return F(Parameters{}...);
}
std::vector<Function> functions() {
  std::vector<Function> all;
#define ATTIKOS_CALL(name, parameters, arguments) \
  all.push_back({#name, [] { return with_zeros<&__wrap_##name>(&__wrap_##name); }, false});
#define ATTIKOS_LAUNCH(name, parameters, arguments) \
  all.push_back({#name, [] { return with_zeros<&__wrap_##name>(&__wrap_##name); }, true});
#define ATTIKOS_OWN(name, parameters, arguments)
#include "failing_cuda_functions.hpp"
#undef ATTIKOS_CALL
#undef ATTIKOS_LAUNCH
#undef ATTIKOS_OWN
  return all;
}

TEST(FailingCuda, FailsTheNthCallOfAnyFunction) {
  auto const all = functions();
  for (auto const& f : all) {
    for (long n : {0, 1, 3}) {
      SCOPED_TRACE(f.name + ", call " + std::to_string(n));
      reached.clear();
      fail_cuda_call(n, injected);
      for (long before = 0; before < n; ++before) EXPECT_EQ(f.call(), cudaSuccess);
      EXPECT_EQ(__wrap_cudaPeekAtLastError(), cudaSuccess);
      EXPECT_EQ(f.call(), injected);
      EXPECT_EQ(reached[f.name], n) << "what fails does nothing";
      EXPECT_EQ(__wrap_cudaPeekAtLastError(), injected);
      EXPECT_EQ(__wrap_cudaGetLastError(), injected);
      EXPECT_EQ(__wrap_cudaGetLastError(), cudaSuccess);
      EXPECT_EQ(f.call(), cudaSuccess) << "one call fails, not those after it";
      CudaCalls const calls = stop_failing_cuda_calls();
      EXPECT_EQ(calls.failed, f.name);
      EXPECT_EQ(calls.count, n);
      EXPECT_EQ(calls.failed_launch, f.launches);
      EXPECT_EQ(calls.launches, f.launches ? n : 0);
    }
  }
  EXPECT_GT(all.size(), 10u);
}

TEST(FailingCuda, CountsTheCallsOfAllFunctionsTogether) {
  auto const all = functions();
  fail_cuda_call(static_cast<long>(all.size()), injected);
  for (auto const& f : all) EXPECT_EQ(f.call(), cudaSuccess) << f.name;
  CudaCalls const calls = stop_failing_cuda_calls();
  EXPECT_EQ(calls.count, static_cast<long>(all.size()));
  EXPECT_EQ(calls.failed, "");
  for (auto const& f : all) EXPECT_EQ(f.call(), cudaSuccess) << f.name << " still fails";
}

TEST(FailingCuda, CountsSomeFunctionsAlone) {
  auto const all = functions();
  for (auto const& wanted : all) {
    fail_cuda_call(1, injected, {wanted.name, "no other"});
    for (int round = 0; round < 2; ++round)
      for (auto const& f : all)
        EXPECT_EQ(f.call(), &f == &wanted && round == 1 ? injected : cudaSuccess) << f.name;
    EXPECT_EQ(stop_failing_cuda_calls().failed, wanted.name);
    EXPECT_EQ(__wrap_cudaGetLastError(), injected);
  }
}

TEST(FailingCuda, KnowsWhatIsAllocated) {
  void *some = nullptr, *none = nullptr;
  long const before = device_allocations();
  EXPECT_EQ(__wrap_cudaMalloc(&some, 8), cudaSuccess);
  EXPECT_EQ(device_allocations(), before + 1);
  fail_cuda_call(0, injected);
  EXPECT_EQ(__wrap_cudaMalloc(&none, 0), cudaSuccess) << "nothing was asked for";
  EXPECT_EQ(__wrap_cudaMalloc(&none, 8), injected);
  EXPECT_EQ(stop_failing_cuda_calls().failed, "cudaMalloc");
  EXPECT_EQ(__wrap_cudaGetLastError(), injected);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(__wrap_cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(device_allocations(), before + 1);
  EXPECT_EQ(__wrap_cudaFree(some), cudaSuccess);
  EXPECT_EQ(device_allocations(), before);
}

TEST(FailingCuda, ReachesWhatTheDriverDescribesTensorsBy) {
  void* found = nullptr;
  EXPECT_EQ(
      __wrap_cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, 0, nullptr),
      cudaSuccess);
  ASSERT_NE(found, &function) << "the driver's own function was handed on";
  fail_cuda_call(0, injected);
  EXPECT_EQ(reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
                nullptr, {}, 0, nullptr, nullptr, nullptr, nullptr, nullptr, {}, {}, {}, {}),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(stop_failing_cuda_calls().failed, "cuTensorMapEncodeTiled");
  EXPECT_EQ(__wrap_cudaGetLastError(), cudaSuccess) << "the driver has no last error";
}

}  // namespace
}  // namespace attikos::test
