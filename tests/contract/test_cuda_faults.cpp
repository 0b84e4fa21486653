// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls of CUDA's run time that fail, by count: the n-th one that an operation makes, for n = 0, 1,
// … until it makes fewer. Each time the operation throws an error of the library's or is right all
// the same, has written nothing if nothing was launched before and has left nothing behind, and the
// next call is right.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <cstdio>
#include <map>
#include <set>
#include <string>

#include "../support/failing_cuda.hpp"
#include "operations.hpp"

namespace attikos::test {
namespace {

// Not one of those at which Kokkos ends the process.
constexpr cudaError_t injected = cudaErrorLaunchOutOfResources;
constexpr long most_calls = 2000;

/// A stream of its own, for one fault. An instance of Kokkos 4.7 has ten places for the scratch of
/// teams, and a launch that throws keeps its place: the eleventh would wait for ever.
struct Instance {
  Kokkos::Cuda const exec = Kokkos::Experimental::partition_space(Kokkos::Cuda(), 1)[0];

  Instance() = default;
  ~Instance() {
    exec.fence();
    detail::forget_workspaces(exec);
  }
  Instance(Instance const&) = delete;
  Instance& operator=(Instance const&) = delete;
};

/// What a call met and what it threw.
struct Met {
  CudaCalls calls;
  std::string threw;

  bool fault() const { return !calls.failed.empty(); }
};

/// How often each function failed, over all tests.
std::map<std::string, long>& failures() {
  static std::map<std::string, long> all;
  return all;
}

/// The call with its n-th function failing, of `functions` alone if there are any; `usual` is what
/// it throws where none fails. It throws what it should, and leaves neither an error nor another
/// mode of captures to the thread.
template <class Call>
Met meet(long n, Call const& call, std::string const& usual = "",
         std::set<std::string> const& functions = {}) {
  Met met;
  fail_cuda_call(n, injected, functions);
  try {
    call();
  } catch (DeviceError const&) {
    met.threw = "DeviceError";
  } catch (ResourceError const&) {
    met.threw = "ResourceError";
  } catch (ShapeError const&) {
    met.threw = "ShapeError";
  } catch (std::exception const& error) {
    met.threw = error.what();
  }
  met.calls = stop_failing_cuda_calls();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "an error was left behind";
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  if (!met.fault()) {
    EXPECT_EQ(met.threw, usual);
    return met;
  }
  ++failures()[met.calls.failed];
  if (met.calls.failed != "cudaThreadExchangeStreamCaptureMode")
    EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
  if (met.calls.failed_launch) {
    EXPECT_EQ(met.threw, "DeviceError");
  } else if (met.calls.failed == "cudaMalloc" || met.calls.failed == "cudaUserObjectCreate" ||
             met.calls.failed == "cudaGraphRetainUserObject") {
    EXPECT_EQ(met.threw, "ResourceError");
  } else if (met.threw != usual) {
    EXPECT_TRUE(met.threw == "DeviceError" || met.threw == "ResourceError") << met.threw;
  }
  return met;
}

std::string nth_call(Met const& met, long n) {
  return "after a fault of call " + std::to_string(n) + ", " + met.calls.failed;
}

class CudaFaults : public testing::Test {
 protected:
  static void TearDownTestSuite() {
    for (auto const& [name, count] : failures())
      std::printf("  %6ld failures of %s\n", count, name.c_str());
  }
};

/// What the first launch of a kernel alone asks for, apart from all else: a call that gets over
/// some other fault would have asked for all of it.
void meet_at_first(Operation<Kokkos::Cuda> const& operation) {
  operation.output.clear();
  auto const untouched = operation.output.bytes();
  // What was answered is not asked again: of what is left the first question fails, then the
  // second.
  for (long attempt = 0; !testing::Test::HasFailure(); ++attempt) {
    ASSERT_LT(attempt, most_calls) << "there is no end of calls";
    Instance const instance;
    long const n = attempt % 2;
    Met const met = meet(n, [&] { operation.call(instance.exec); }, "",
                         {"cudaFuncGetAttributes", "cudaMemcpyToSymbol", "cudaFuncSetAttribute",
                          "cudaGetDriverEntryPointByVersion"});
    instance.exec.fence();
    SCOPED_TRACE(nth_call(met, n));
    if (met.calls.launches == 0 && !met.threw.empty())
      EXPECT_TRUE(operation.output.bytes() == untouched) << "something was written";
    operation.output.clear();
    if (!met.fault() && n == 0) return;
  }
}

void meet_when_warm(Operation<Kokkos::Cuda> const& operation) {
  operation.output.clear();
  auto const untouched = operation.output.bytes();
  operation.call(Kokkos::Cuda());
  auto const right = operation.output.bytes();
  for (long n = 0; !testing::Test::HasFailure(); ++n) {
    ASSERT_LT(n, most_calls) << "there is no end of calls";
    Instance const instance;
    operation.call(instance.exec);
    instance.exec.fence();
    detail::forget_workspaces(instance.exec);  // so that the call wants memory
    operation.output.clear();
    long const before = device_allocations();
    Met const met = meet(n, [&] { operation.call(instance.exec); });
    instance.exec.fence();
    auto const written = operation.output.bytes();
    SCOPED_TRACE(nth_call(met, n));
    if (met.threw.empty()) {
      EXPECT_TRUE(written == right) << "no error was thrown, but the result is wrong";
    } else {
      EXPECT_TRUE(met.calls.launches > 0 || written == untouched) << "something was written";
    }
    if (!met.fault()) {
      EXPECT_GT(met.calls.launches, 0);
      return;
    }
    detail::forget_workspaces(instance.exec);
    EXPECT_EQ(device_allocations(), before) << "memory was left behind";
    operation.output.clear();
    operation.call(instance.exec);
    EXPECT_TRUE(operation.output.bytes() == right) << "the next call is wrong";
  }
}

template <class T>
void meet_in_every_operation() {
  for (auto const& operation : operations<Kokkos::Cuda, T>()) {
    SCOPED_TRACE(operation.name);
    meet_at_first(operation);
    meet_when_warm(operation);
    if (testing::Test::HasFailure()) return;
  }
}

TEST_F(CudaFaults, LeaveEverythingAsItWasFloat32) { meet_in_every_operation<float>(); }
TEST_F(CudaFaults, LeaveEverythingAsItWasBfloat16) {
  long const before = failures()["cudaFuncGetAttributes"];
  meet_in_every_operation<bfloat16>();
  EXPECT_GT(failures()["cudaFuncGetAttributes"], before) << "its kernels were launched before";
}

/// A graph of what `body` does with a stream, which is null where capturing failed.
class Captured {
 public:
  template <class Body>
  Captured(cudaStream_t stream, Body const& body) {
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    body();
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph_), cudaSuccess);
  }
  ~Captured() {
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  Captured(Captured const&) = delete;
  Captured& operator=(Captured const&) = delete;

  void replay(cudaStream_t stream) const {
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph_, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  }

 private:
  cudaGraph_t graph_ = nullptr;
};

void meet_in_captures(Operation<Kokkos::Cuda> const& operation) {
  operation.output.clear();
  operation.call(Kokkos::Cuda());
  auto const right = operation.output.bytes();
  for (long n = 0; !testing::Test::HasFailure(); ++n) {
    ASSERT_LT(n, most_calls) << "there is no end of calls";
    Instance const instance;
    cudaStream_t const stream = instance.exec.cuda_stream();
    operation.call(instance.exec);
    instance.exec.fence();
    operation.output.clear();
    Met met;
    auto const attempt = [&] {
      Captured const graph(stream, [&] { met = meet(n, [&] { operation.call(instance.exec); }); });
      SCOPED_TRACE(nth_call(met, n));
      if (!met.threw.empty()) return;
      graph.replay(stream);
      EXPECT_TRUE(operation.output.bytes() == right) << "no error was thrown";
    };
    attempt();
    if (!met.fault()) return;
    SCOPED_TRACE(nth_call(met, n));
    if (met.calls.failed == "cudaUserObjectCreate") {
      // Memory that no graph got serves the next.
      long const before = device_allocations();
      attempt();
      EXPECT_EQ(device_allocations(), before);
    }
    operation.output.clear();
    Captured const graph(stream, [&] { operation.call(instance.exec); });
    graph.replay(stream);
    EXPECT_TRUE(operation.output.bytes() == right) << "the next capture is wrong";
  }
}

TEST_F(CudaFaults, OfCapturesLeaveEverythingAsItWas) {
  for (auto const& operation : operations<Kokkos::Cuda, float>()) {
    SCOPED_TRACE(operation.name);
    meet_in_captures(operation);
    if (HasFailure()) return;
  }
}

/// A validation that could not look has found nothing, which does not make its tensor valid.
TEST_F(CudaFaults, OfValidationsAreNotTakenForValidity) {
  Tensor<std::int32_t, 1, Kokkos::Cuda> lengths({2});
  lengths(0) = 3, lengths(1) = 500;
  lengths.upload();
  Instance const instance;
  auto const validate = [&] { validate_lengths(instance.exec, lengths.const_view(), 300); };
  EXPECT_THROW(validate(), ShapeError);  // Kokkos's scratch has grown
  for (long n = 0; meet(n, validate, "ShapeError").fault() && !HasFailure(); ++n)
    ASSERT_LT(n, most_calls) << "there is no end of calls";
}

TEST_F(CudaFaults, OfTheModeOfCapturesLeaveItAsItWas) {
  fail_cuda_call(0, injected);
  { detail::OutsideCapture const outside; }
  EXPECT_EQ(stop_failing_cuda_calls().failed, "cudaThreadExchangeStreamCaptureMode");
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

/// An error from before a launch is the caller's to find, and no failure of the launch.
TEST_F(CudaFaults, FromBeforeALaunchStay) {
  auto const all = operations<Kokkos::Cuda, float>();
  auto const& operation = all.front();
  Instance const instance;
  operation.output.clear();
  operation.call(instance.exec);
  auto const right = operation.output.bytes();
  operation.output.clear();
  ASSERT_NE(cudaSetDevice(100000), cudaSuccess);
  ASSERT_NE(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_NO_THROW(operation.call(instance.exec));
  EXPECT_NE(cudaGetLastError(), cudaSuccess) << "the caller's own error is gone";
  EXPECT_TRUE(operation.output.bytes() == right);
}

}  // namespace
}  // namespace attikos::test
