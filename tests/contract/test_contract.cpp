// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What every call promises beside its result: labels, the caller's instance, no fence, no
// allocation, the same bits again.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "../support/backends.hpp"
#include "operations.hpp"

namespace attikos::test {
namespace {

struct Event {
  std::string kind;
  std::string name;
  std::uint32_t device;
};
std::vector<Event> events;

void kernel_event(char const* name, std::uint32_t device, std::uint64_t*) {
  events.push_back({"kernel", name, device});
}
// Of nested regions only the outermost counts: an operation may call another.
int region_depth = 0;
void region_event(char const* name) {
  if (region_depth++ == 0) events.push_back({"region", name, 0});
}
void region_end_event() { --region_depth; }
void copy_event(Kokkos::Tools::SpaceHandle, char const* name, void const*,
                Kokkos::Tools::SpaceHandle, char const*, void const*, std::uint64_t) {
  events.push_back({"deep_copy", name, 0});
}
void fence_event(char const* name, std::uint32_t device, std::uint64_t*) {
  // Kokkos fences around callbacks for tools that want it, and Kokkos::Threads at each launch;
  // these are not the library's.
  std::string const text = name;
  if (text.find("Profile Tool Fence") == std::string::npos &&
      text.find("Kokkos::ThreadsInternal::fence") == std::string::npos)
    events.push_back({"fence", name, device});
}
void allocation_event(Kokkos::Tools::SpaceHandle, char const* name, void const*,
                      std::uint64_t bytes) {
  // Kokkos::Cuda "allocates" its team scratch of 0 bytes at each launch that needs none.
  if (bytes > 0) events.push_back({"allocation", name, 0});
}

/// Listens to Kokkos Tools while it lives.
class Listener {
 public:
  Listener() : before_(Kokkos::Tools::Experimental::get_callbacks()) {
    using namespace Kokkos::Tools::Experimental;
    events.clear();
    region_depth = 0;
    set_begin_parallel_for_callback(kernel_event);
    set_begin_parallel_reduce_callback(kernel_event);
    set_begin_parallel_scan_callback(kernel_event);
    set_push_region_callback(region_event);
    set_pop_region_callback(region_end_event);
    set_begin_deep_copy_callback(copy_event);
    set_begin_fence_callback(fence_event);
    set_allocate_data_callback(allocation_event);
  }
  Listener(Listener const&) = delete;
  Listener& operator=(Listener const&) = delete;
  ~Listener() { Kokkos::Tools::Experimental::set_callbacks(before_); }

 private:
  Kokkos::Tools::Experimental::EventSet before_;
};

std::size_t count(std::string const& kind) {
  return static_cast<std::size_t>(
      std::count_if(events.begin(), events.end(), [&](Event const& e) { return e.kind == kind; }));
}

std::string all_events() {
  std::string text;
  for (auto const& e : events)
    text += "\n  " + e.kind + ": " + e.name + " on " + std::to_string(e.device);
  return text;
}

template <class C>
class Contract : public testing::Test {};
using ContractTypes = List<float, bfloat16>;
TYPED_TEST_SUITE(Contract, Cases<ContractTypes>, CaseName);

TYPED_TEST(Contract, TheListenerHears) {
  using Exec = typename TypeParam::Exec;
  {
    Listener const listener;
    Kokkos::View<int*, typename Exec::memory_space> const view("heard", 5);
    Kokkos::fence("heard");
  }
  EXPECT_GE(count("allocation"), 1u) << all_events();
  EXPECT_GE(count("fence"), 1u) << all_events();
}

TYPED_TEST(Contract, KernelsAreLabelledAndRunOnTheGivenInstance) {
  using Exec = typename TypeParam::Exec;
  // Kokkos numbers the instances of Cuda; on the host all instances of a space have one number, and
  // only the space itself is proven.
  auto const instances = Kokkos::Experimental::partition_space(Exec(), 1, 1);
  for (auto const& operation : operations<Exec, typename TypeParam::T>()) {
    for (auto const& exec : instances) {
      {
        Listener const listener;
        operation.call(exec);
      }
      exec.fence();
      // Kernels of another library run inside a region that carries the label.
      EXPECT_GE(count("kernel") + count("region"), 1u) << operation.name << " launched nothing";
      std::string const prefix = "attikos::" + operation.name + "[";
      bool const region = count("region") > 0;
      for (auto const& e : events) {
        if (e.kind == "kernel") {
          EXPECT_EQ(e.device, Kokkos::Tools::Experimental::device_id(exec))
              << e.name << " ran on another instance";
        }
        if (e.kind == "region" || (e.kind == "kernel" && !region)) {
          EXPECT_EQ(e.name.rfind(prefix, 0), 0u) << e.name << " does not begin with " << prefix;
          EXPECT_EQ(e.name.back(), ']') << e.name;
        }
      }
    }
  }
}

/// Some label must be "attikos::operation[kernel]", or "…[kernel/stage]" where a kernel has stages.
/// A kernel that belongs to one operation already carries its name: "gemm/sm75_wmma_f16".
bool labelled_with(std::string const& operation, std::string const& kernel) {
  std::string const own = operation + "/";
  std::string const short_name = kernel.rfind(own, 0) == 0 ? kernel.substr(own.size()) : kernel;
  std::string const label = "attikos::" + operation + "[" + short_name;
  return std::any_of(events.begin(), events.end(), [&](Event const& e) {
    return e.name == label + "]" || e.name.rfind(label + "/", 0) == 0;
  });
}

TYPED_TEST(Contract, TheLabelNamesTheKernelThatExplainNames) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  Tensor<T, 2, Exec> a({20, 30}), b({30, 40}), c({20, 40});
  auto const product = explain(op::gemm, Exec(), a.view(), b.view(), c.view());
  {
    Listener const listener;
    gemm(Exec(), a.view(), b.view(), c.view());
  }
  Kokkos::fence("attikos_test");
  EXPECT_TRUE(labelled_with("gemm", product.kernel)) << product.to_string() << all_events();

  Tensor<T, 4, Exec> q({1, 2, 3, 8}), k({1, 2, 5, 8}), v({1, 2, 5, 8}), out({1, 2, 3, 8});
  for (auto algorithm :
       {AttentionAlgorithm::flash, AttentionAlgorithm::tiled, AttentionAlgorithm::naive}) {
    AttentionOptions const options{.algorithm = algorithm};
    auto const explanation =
        explain(op::attention, Exec(), q.view(), k.view(), v.view(), out.view(), options);
    {
      Listener const listener;
      attention(Exec(), q.view(), k.view(), v.view(), out.view(), options);
    }
    Kokkos::fence("attikos_test");
    EXPECT_TRUE(labelled_with("attention", explanation.kernel))
        << explanation.to_string() << all_events();
  }

  Tensor<T, 4, Exec> keys({1, 2, 1500, 8}), one({1, 2, 1, 8}), row({1, 2, 1, 8});
  auto const few = explain(op::attention, Exec(), one.view(), keys.view(), keys.view(), row.view());
  if (few.kernel == "portable/split") {
    {
      Listener const listener;
      attention(Exec(), one.view(), keys.view(), keys.view(), row.view());
    }
    Kokkos::fence("attikos_test");
    EXPECT_TRUE(labelled_with("attention", few.kernel)) << all_events();
  }
}

TYPED_TEST(Contract, WarmCallsDoNotFenceAllocateOrCopy) {
  using Exec = typename TypeParam::Exec;
  Exec const exec;
  for (auto const& operation : operations<Exec, typename TypeParam::T>()) {
    operation.call(exec);
    exec.fence();
    {
      Listener const listener;
      operation.call(exec);
    }
    EXPECT_EQ(count("fence"), 0u) << operation.name << all_events();
    EXPECT_EQ(count("allocation"), 0u) << operation.name << all_events();
    EXPECT_EQ(count("deep_copy"), 0u) << operation.name << all_events();
    exec.fence();
  }
}

TYPED_TEST(Contract, RepeatedCallsGiveTheSameBits) {
  using Exec = typename TypeParam::Exec;
  Exec const exec;
  for (auto const& operation : operations<Exec, typename TypeParam::T>()) {
    operation.call(exec);
    auto const first = operation.output.bytes();
    for (int run = 0; run < 5; ++run) {
      operation.output.clear();
      operation.call(exec);
      EXPECT_EQ(operation.output.bytes(), first) << operation.name << " run " << run;
    }
  }
}

// Without a workspace the memory comes from a pool: the first call may allocate, the next does not.
TYPED_TEST(Contract, StoredScoresComeFromAPool) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  auto q = filled<T, 4, Exec>({1, 2, 30, 16}, 1), k = filled<T, 4, Exec>({1, 2, 90, 16}, 2);
  auto v = filled<T, 4, Exec>({1, 2, 90, 16}, 3), out = filled<T, 4, Exec>({1, 2, 30, 16}, 4);
  Exec const exec;
  for (auto algorithm : {AttentionAlgorithm::tiled, AttentionAlgorithm::naive}) {
    auto const call = [&] {
      attention(exec, q->view(), k->view(), v->view(), out->view(),
                AttentionOptions{.algorithm = algorithm});
    };
    call();
    exec.fence();
    {
      Listener const listener;
      call();
    }
    EXPECT_EQ(count("fence"), 0u) << all_events();
    EXPECT_EQ(count("allocation"), 0u) << all_events();
    exec.fence();
  }
}

}  // namespace
}  // namespace attikos::test
