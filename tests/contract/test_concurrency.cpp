// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Eight host threads on instances of their own, each in another operation, whose scratch has
// another size, and then all in the same, at the same time: every operation gives the bits that it
// gives alone. Kokkos's Threads back end has one instance, which one host thread may use. And which
// threads a call takes.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <barrier>
#include <cstddef>
#include <thread>
#include <type_traits>
#include <vector>
#if defined(_OPENMP)
#include <omp.h>
#endif

#include "../support/backends.hpp"
#include "operations.hpp"

#if !defined(KOKKOS_ENABLE_THREADS)
namespace attikos::test {
namespace {

constexpr std::size_t thread_count = 8;
constexpr int calls_at_once = 3;  ///< in a row, so that threads meet in more than their beginnings

/// Of OpenMP by turns of one thread and of two, which a partition of few cores would not give.
template <class Exec>
std::vector<Exec> own_instances() {
#if defined(KOKKOS_ENABLE_OPENMP)
  if constexpr (std::is_same_v<Exec, Kokkos::OpenMP>) {
    std::vector<Exec> instances;
    for (std::size_t t = 0; t < thread_count; ++t)
      instances.emplace_back(static_cast<int>(t % 2 + 1));
    return instances;
  }
#endif
  return Kokkos::Experimental::partition_space(Exec(), std::vector<int>(thread_count, 1));
}

template <class C>
class Concurrency : public testing::Test {};
using ConcurrencyTypes = List<float, bfloat16>;
TYPED_TEST_SUITE(Concurrency, Cases<ConcurrencyTypes>, CaseName);

TYPED_TEST(Concurrency, EightThreadsOnTheirInstances) {
  using Exec = typename TypeParam::Exec;
  using Operations = std::vector<Operation<Exec>>;
  auto const instances = own_instances<Exec>();
  ASSERT_EQ(instances.size(), thread_count);

  std::vector<Operations> of_thread;
  for (std::size_t t = 0; t < thread_count; ++t)
    of_thread.push_back(operations<Exec, typename TypeParam::T>());
  std::size_t const count = of_thread[0].size();
  std::vector<std::vector<std::byte>> alone;
  for (auto const& operation : of_thread[0]) {
    operation.output.clear();
    operation.call(Exec());
    alone.push_back(operation.output.bytes());
  }

  // In step s thread t is in operation s + 5 t: a whole round brings each together with others.
  // Then a round brings each together with itself: what is its own alone is seen by no other.
  std::size_t const steps = 2 * count;
  auto const operation_of = [&](std::size_t step, std::size_t t) {
    return step < count ? (step + 5 * t) % count : step - count;
  };
  std::barrier begin(thread_count + 1), end(thread_count + 1);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < thread_count; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t step = 0; step < steps; ++step) {
        begin.arrive_and_wait();
        auto const& operation = of_thread[t][operation_of(step, t)];
        for (int i = 0; i < calls_at_once; ++i) operation.call(instances[t]);
        instances[t].fence();
        end.arrive_and_wait();
      }
    });
  for (std::size_t step = 0; step < steps; ++step) {
    for (std::size_t t = 0; t < thread_count; ++t)
      of_thread[t][operation_of(step, t)].output.clear();
    Kokkos::fence();
    begin.arrive_and_wait();
    end.arrive_and_wait();
    for (std::size_t t = 0; t < thread_count; ++t) {
      std::size_t const which = operation_of(step, t);
      EXPECT_EQ(of_thread[t][which].output.bytes() == alone[which], true)
          << of_thread[t][which].name << ", operation " << which << ", of thread " << t
          << ": other bits than alone";
    }
  }
  for (auto& thread : threads) thread.join();
}

#if defined(KOKKOS_ENABLE_OPENMP)
/// An epilogue that counts the elements that threads of OpenMP's take.
struct CountElements {
  int* of_threads;
  KOKKOS_INLINE_FUNCTION float operator()(float value, std::int64_t, std::int64_t,
                                          std::int64_t) const {
    KOKKOS_IF_ON_HOST((if (omp_in_parallel() != 0) Kokkos::atomic_inc(of_threads);))
    return value;
  }
};

// A call of few operations wakes no thread; the same products in large numbers do.
TEST(CallingThread, DoesSmallProblemsItself) {
  if (Kokkos::OpenMP().concurrency() == 1) GTEST_SKIP() << "OpenMP has one thread";
  using Matrices = Kokkos::View<float***, Kokkos::LayoutRight, Kokkos::HostSpace>;
  for (std::int64_t batch : {1, 20, 4096}) {
    Matrices a("a", batch, 8, 8), b("b", batch, 8, 8), c("c", batch, 8, 8);
    int of_threads = 0;
    gemm(Kokkos::OpenMP(), a, b, c, GemmOptions{}, epilogue(CountElements{&of_threads}));
    EXPECT_EQ(of_threads, batch == 4096 ? batch * 64 : 0) << batch;
  }
}
#endif

}  // namespace
}  // namespace attikos::test
#endif
