// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lives of instances of execution spaces, of threads and processes that use them, and of Kokkos:
// support/lives.hpp says what a life is. Instances are checked by what operations of the contract
// suite compute on them, bit by bit.
#include <Kokkos_Core.hpp>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "instances.hpp"

namespace attikos::test {
namespace {

// --- instances and threads -----------------------------------------------------------------------

void thousands_of_instances() {
  Running const running;
  Held::listen();
  on_each_space([]<class Exec>(std::type_identity<Exec>) {
    std::uint64_t const kept = Held::bytes;
    Work<Exec> const work(4);
    std::uint64_t const of_default = Held::bytes;
    REQUIRE(of_default > kept);
    auto const some = [&](int from, int to) {
      in_threads(4, [&](int t) {
        for (int i = from + t; i < to; i += 4) {
          Own<Exec> const own;
          if (i % 16 == t) REQUIRE(work.is_right(*own, work.of_thread(t, i / 16)));
        }
      });
    };
    some(0, 500);
    long const before = resident();
    some(500, 2000);
    REQUIRE(resident() - before < 20000);
    REQUIRE(Held::bytes == of_default);
  });
}

/// Nobody says when these end, so that what was held for one is there for the next at its address.
void instances_at_addresses_of_earlier_ones() {
  Running const running;
  Held::listen();
  on_each_space([]<class Exec>(std::type_identity<Exec>) {
    Work<Exec> const work;
    Held::largest = 0;
    std::uint64_t const before = Held::bytes;
    std::set<void const*> addresses;
    for (std::size_t i = 0; i < 2 * work.size(); ++i) {
      Exec const exec = new_instance<Exec>(2);
      addresses.insert(detail::instance_key(exec));
      REQUIRE(work.is_right(exec, i));
    }
    // Blocks double, and products have their own.
    REQUIRE(Held::bytes - before <= 4 * Held::largest * addresses.size());
  });
}

void instances_of_threads_that_end() {
  Running const running;
  on_each_space([]<class Exec>(std::type_identity<Exec>) {
    std::unique_ptr<Work<Exec>> work;
    in_threads(1, [&](int) { work = std::make_unique<Work<Exec>>(4); });
    std::vector<std::unique_ptr<Own<Exec>>> made(4);
    in_threads(4, [&](int t) {
      made[sz(t)] = std::make_unique<Own<Exec>>();
      for (int i = 0; i < 4; ++i) REQUIRE(work->is_right(**made[sz(t)], work->of_thread(t, i)));
    });
    for (auto const& own : made) REQUIRE(work->all_are_right(**own));
    for (std::size_t i = 0; i < work->size(); ++i)
      in_threads(1, [&](int) {
        REQUIRE(work->is_right(**made[i % 4], i));
        REQUIRE(work->is_right(Exec(), i));
      });
    for (auto& own : made) in_threads(1, [&](int) { own.reset(); });
  });
}

void instances_of_thread_local_objects() {
  Running const running;
  Work<Default> const work(4);
  for (int round = 0; round < 10; ++round)
    in_threads(4, [&](int t) {
      thread_local Own<Default> const own;
      REQUIRE(work.is_right(*own, work.of_thread(t, round)));
    });
}

/// A device that is only described: how many multiprocessors it has, and an address that stands for
/// an instance.
struct Described {
  using execution_space = Described;
  using memory_space = Kokkos::HostSpace;
  using device_type = Kokkos::Device<Described, memory_space>;
  using scratch_memory_space = Kokkos::ScratchMemorySpace<Described>;
  using array_layout = Kokkos::LayoutRight;
  using size_type = std::size_t;

  int multiprocessors;
  void const* instance;
  int concurrency() const { return 2048 * multiprocessors; }
  void const* impl_internal_space_instance() const { return instance; }
};

/// What a call on one device comes to does not depend on calls on the other, and each has memory of
/// its own.
void second_device_that_is_described() {
  Running const running;
  Held::listen();
  static char const addresses[2] = {};
  Described const devices[] = {{132, addresses}, {20, addresses + 1}};
  abi::AttentionArgs args{};
  args.batch = 1, args.heads_q = args.heads_kv = 8, args.seqlen_q = 1, args.seqlen_kv = 8192;
  args.head_dim = args.head_dim_v = 64;
  auto const splits_on = [&](Described const& device) {
    return detail::decode_fragment_plan<Described, float>(device, args, 0).splits;
  };
  std::int64_t const splits[] = {splits_on(devices[0]), splits_on(devices[1])};
  REQUIRE(splits[0] > splits[1]);
  in_threads(4, [&](int t) {
    for (int i = 0; i < 1000; ++i) REQUIRE(splits_on(devices[(i + t) % 2]) == splits[(i + t) % 2]);
  });

  using Pool = detail::InstancePool<Described>;
  auto const memory_of = [&](int i, std::size_t bytes) {
    return Pool::get("test", devices[i], bytes).data;
  };
  void* const first = memory_of(0, 1000);
  std::memset(first, 1, 1000);
  for (std::size_t bytes : {1000, 2000, 100000}) std::memset(memory_of(1, bytes), 2, bytes);
  REQUIRE(memory_of(0, 1000) == first);
  Pool::forget(devices[1]);
  REQUIRE(memory_of(0, 1000) == first && Held::bytes == 1000);
  for (int i = 0; i < 1000; ++i) REQUIRE(static_cast<char*>(first)[i] == 1);
}

void second_device() {
#if defined(KOKKOS_ENABLE_CUDA)
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count < 2) skip("there is one device");
  Running const running;
  Work<Kokkos::Cuda> const work;
  for (int round = 0; round < 2; ++round)
    for (int device : {1, 0}) {
      REQUIRE(cudaSetDevice(device) == cudaSuccess);
      cudaStream_t stream = nullptr;
      REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
      Kokkos::Cuda const exec(stream);
      REQUIRE(exec.cuda_device() == device);
      // Operands are the first device's.
      int reached = 1;
      if (device == 1) cudaDeviceCanAccessPeer(&reached, 1, 0);
      if (reached == 0) skip("the second device cannot read the first one's memory");
      if (device == 1) static_cast<void>(cudaDeviceEnablePeerAccess(0, 0)), cudaGetLastError();
      for (std::size_t i = 0; i < work.size(); ++i) {
        work.operation(i).call(exec);
        exec.fence();
        int current = -1;
        REQUIRE(cudaGetDevice(&current) == cudaSuccess && current == device);
      }
      detail::forget_workspaces(exec);
    }
  REQUIRE(work.all_are_right(Kokkos::Cuda()));
#else
  skip("Kokkos has no device");
#endif
}

// --- ends of Kokkos ------------------------------------------------------------------------------

void work_again() { REQUIRE(kept_work<Default>().all_are_right(*Own<Default>())); }
/// Initializes Kokkos and uses the library, and leaves the end to somebody else.
void begin_and_work() {
  initialize();
  work_again();
}
void work_and_finalize() {
  work_again();
  Kokkos::finalize();
}

void no_finalize() { begin_and_work(); }
void finalize_in_a_handler_before_the_library() {
  REQUIRE(std::atexit(work_and_finalize) == 0);  // runs last
  begin_and_work();
}
void finalize_in_a_handler_behind_the_library() {
  begin_and_work();
  REQUIRE(std::atexit(work_and_finalize) == 0);
}
struct FinalizesAtEnd {
  ~FinalizesAtEnd() { work_and_finalize(); }
};
void finalize_by_a_static_object() {
  static FinalizesAtEnd const last;
  begin_and_work();
}
void finalize_by_a_thread_local_object() {
  thread_local FinalizesAtEnd const last;
  static_cast<void>(last);  // exists from here on
  begin_and_work();
}
void finalize_in_another_thread() {
  begin_and_work();
  in_threads(1, [](int) { work_and_finalize(); });
}
void finalize_while_instances_are_left() {
#if defined(KOKKOS_ENABLE_CUDA)
  skip("instances of Kokkos's CUDA end before it does");
#else
  initialize();
  on_each_space([]<class Exec>(std::type_identity<Exec>) {
    // Ends when the process does, after Kokkos.
    static Own<Exec> const last;
    thread_local Own<Exec> const of_thread;
    Work<Exec> const work(4);
    REQUIRE(work.all_are_right(*last) && work.all_are_right(*of_thread));
  });
  Kokkos::finalize();
#endif
}

std::atomic<int> hooks_run{0};
void hooks_around_the_library() {
  initialize();
  REQUIRE(std::atexit([] { REQUIRE(hooks_run == 2); }) == 0);
  auto const hook = [] {
    ++hooks_run;
    work_again();
  };
  Kokkos::push_finalize_hook(hook);
  work_again();
  Kokkos::push_finalize_hook(hook);
  Kokkos::finalize();
}

void calls_after_finalize() {
  initialize();
  std::vector<std::function<void()>> calls;
  on_each_space([&]<class Exec>(std::type_identity<Exec>) {
    // Never destroyed: Views must not be after Kokkos is finalized.
    auto const& work = *new Work<Exec>();
    Exec const exec;
    for (std::size_t i = 0; i < work.size(); ++i)
      calls.emplace_back([&work, exec, i] { work.operation(i).call(exec); });
  });
  Kokkos::finalize();
  for (auto const& call : calls) {
    bool refused = false;
    try {
      call();
    } catch (DeviceError const& error) {
      refused = std::string(error.what()).find("Kokkos was finalized") != std::string::npos;
    }
    REQUIRE(refused);
  }
}

// --- ends of processes ---------------------------------------------------------------------------

/// Threads that compute on instances of their own until the process ends.
void work_forever(int count) {
  static std::atomic<int> busy{0};
  auto const& work = kept_work<Default>();
  for (int t = 0; t < count; ++t)
    std::thread([&work, t] {
      auto const& own = *new Own<Default>();
      for (int i = 0;; ++i) {
        REQUIRE(is_right_by_itself(work, *own, work.of_thread(t, i)));
        if (i == 0) ++busy;
      }
    }).detach();
  while (busy < count) std::this_thread::yield();
}
/// LLVM's OpenMP run time (14) asserts that none of its threads work when a process ends.
void skip_where_openmp_aborts() {
#if defined(_OPENMP) && defined(__clang__)
  skip("this OpenMP run time aborts a process that ends while its threads work");
#endif
}
void exit_under_load() {
  skip_where_openmp_aborts();
  initialize();
  work_forever(3);
}
void exit_of_a_thread_under_load() {
  skip_where_openmp_aborts();
  initialize();
  work_forever(3);
  std::thread([] { std::exit(0); }).join();
}
void exit_before_calls_have_ended() {
  Running const running;
  auto const& work = kept_work<Default>();
  Default const exec;
  for (std::size_t i = 0; i < 5 * work.size(); ++i) work.operation(i).call(exec);
}

void fork_before_initialize() {
  for (void (*const end)(int) : std::initializer_list<void (*)(int)>{std::exit, _exit})
    in_child(
        [] {
          begin_and_work();
          Kokkos::finalize();
        },
        end);
  begin_and_work();
  Kokkos::finalize();
}
#if defined(KOKKOS_ENABLE_SERIAL) && !defined(ATTIKOS_TEST_FEW_CASES)
using InChild = Kokkos::Serial;
#else
using InChild = Kokkos::DefaultHostExecutionSpace;
#endif
/// A child has its parent's memory but none of its threads: Serial computes there.
void forks_under_load() {
#if defined(KOKKOS_ENABLE_CUDA)
  skip("CUDA does not survive a fork");
#else
  initialize();
  Work<InChild> const work(4);
  work_forever(2);
  for (int i = 0; i < 2; ++i) {
    for (std::size_t n = 0; n < work.size(); ++n) work.operation(n).output.clear();
    auto const compute = [&] {
      // Where an instance ends, Kokkos waits for threads that are not here.
      auto const& own = *new InChild(new_instance<InChild>());
      for (std::size_t n = 0; n < work.size(); ++n) REQUIRE(is_right_by_itself(work, own, n));
      detail::forget_workspaces(own);
    };
    in_child(compute, i % 2 == 0 ? std::exit : _exit);
    REQUIRE(work.all_are_right(InChild()));
  }
#endif
}
void spawns_under_load() {
  skip_where_openmp_aborts();
  initialize();
  work_forever(2);
  expect_end(start("no_finalize"));
}

Life const lives[] = {LIFE(thousands_of_instances),
                      LIFE(instances_at_addresses_of_earlier_ones),
                      LIFE(instances_of_threads_that_end),
                      LIFE(instances_of_thread_local_objects),
                      LIFE(second_device_that_is_described),
                      LIFE(second_device),
                      LIFE(no_finalize),
                      LIFE(finalize_in_a_handler_before_the_library),
                      LIFE(finalize_in_a_handler_behind_the_library),
                      LIFE(finalize_by_a_static_object),
                      LIFE(finalize_by_a_thread_local_object),
                      LIFE(finalize_in_another_thread),
                      LIFE(finalize_while_instances_are_left),
                      LIFE(hooks_around_the_library),
                      LIFE(calls_after_finalize),
                      LIFE(exit_under_load),
                      LIFE(exit_of_a_thread_under_load),
                      LIFE(exit_before_calls_have_ended),
                      LIFE(fork_before_initialize),
                      LIFE(forks_under_load),
                      LIFE(spawns_under_load)};

}  // namespace
}  // namespace attikos::test

int main(int argc, char** argv) {
#if defined(KOKKOS_ENABLE_THREADS)
  attikos::test::skip("Kokkos's Threads has one instance, which one host thread may use");
#endif
  return attikos::test::run_lives(argc, argv, attikos::test::lives, 2);
}
