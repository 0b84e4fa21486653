// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// perf::runner(): timing of callables that work on an execution space instance, and their
/// comparison. Not part of attikos.hpp.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/concepts.hpp>
#include <attikos/core/device_info.hpp>
#include <attikos/core/error.hpp>
#include <attikos/perf/measurement.hpp>
#include <attikos/perf/memory.hpp>
#include <attikos/perf/report.hpp>
#include <chrono>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace perf {

/// How often a callable is called.
struct RunnerOptions {
  int warmup = 3;        ///< calls before the first that is timed; memory is observed in them
  int repetitions = 20;  ///< timed repetitions
  int calls = 1;         ///< calls in a repetition; its time is divided by them
};

/// Times callables one after another and keeps what it measured.
///
/// A repetition is: fence of the instance, clock, `calls` calls, fence of the instance, clock (the
/// steady clock). On a GPU the time of a repetition therefore holds one launch and one fence beside
/// the kernel, some ten microseconds: raise `calls` where a kernel is shorter than that. Data stay
/// where the last call left them, so caches are warm.
///
/// The peak of memory is what the warm-up calls allocate in the instance's memory space through
/// Kokkos (see MemoryPeak), so that timed calls run without callbacks. Memory that an earlier call
/// left in a pool is not allocated again and not counted.
template <ExecutionSpace Exec>
class Runner {
 public:
  /// Throws Error unless repetitions and calls are 1 or more and warmup is 0 or more.
  explicit Runner(Exec exec = {}, RunnerOptions const& options = {})
      : exec_(std::move(exec)), options_(options) {
    auto const check = [](char const* name, int value, int least) {
      if (value < least)
        attikos::detail::raise<Error>("perf::runner: ", name, " is ", value, "; expected ", least,
                                      " or more");
    };
    check("warmup", options.warmup, 0);
    check("repetitions", options.repetitions, 1);
    check("calls", options.calls, 1);
  }

  /// Measures `callable()` or `callable(exec)`. What it throws becomes the measurement's error, and
  /// the next case can go on.
  template <class Callable>
  Measurement run(Case what, Callable&& callable) {
    Measurement m;
    m.what = std::move(what);
    try {
      measure(m, callable);
    } catch (std::exception const& error) {
      m.seconds.clear();
      m.error = error.what();
      if (m.error.empty()) m.error = "an exception without a text";
    }
    measurements_.push_back(m);
    return m;
  }

  std::vector<Measurement> const& measurements() const { return measurements_; }

  /// Library, Kokkos, machine and options of this run.
  Context context() const {
    auto const info = device_info(exec_);
    auto const version = [](int number) {
      return std::to_string(number / 10000) + '.' + std::to_string(number / 100 % 100) + '.' +
             std::to_string(number % 100);
    };
    return {{"attikos", ATTIKOS_VERSION_STRING},
            {"kokkos", version(KOKKOS_VERSION)},
            {"execution_space", info.execution_space},
            {"device", info.name},
            {"architecture", architecture_name(info.architecture)},
            {"simd", simd_name(info.simd)},
            {"host_isa", host_isa_name(info.host_isa)},
            {"threads", std::to_string(info.threads)},
            {"warmup", std::to_string(options_.warmup)},
            {"repetitions", std::to_string(options_.repetitions)},
            {"calls", std::to_string(options_.calls)}};
  }

  std::string table() const { return to_table(measurements_); }
  std::string json() const { return to_json(measurements_, context()); }
  std::string csv() const { return to_csv(measurements_); }

 private:
  template <class Callable>
  void measure(Measurement& m, Callable& callable) {
    auto const call = [&] {
      if constexpr (std::is_invocable_v<Callable&, Exec const&>) {
        callable(exec_);
      } else {
        callable();
      }
    };
    if (options_.warmup > 0) {
      MemoryPeak<typename Exec::memory_space> const peak;
      for (int i = 0; i < options_.warmup; ++i) call();
      exec_.fence("attikos::perf::runner: warm-up");
      m.peak_bytes = peak.bytes();
    }
    using Clock = std::chrono::steady_clock;
    for (int i = 0; i < options_.repetitions; ++i) {
      exec_.fence("attikos::perf::runner: before");
      auto const start = Clock::now();
      for (int c = 0; c < options_.calls; ++c) call();
      exec_.fence("attikos::perf::runner: after");
      m.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count() /
                          options_.calls);
    }
  }

  Exec exec_;
  RunnerOptions options_;
  std::vector<Measurement> measurements_;
};

/// A Runner for an instance: `auto bench = perf::runner(exec, {.repetitions = 50});`.
template <ExecutionSpace Exec>
Runner<Exec> runner(Exec const& exec, RunnerOptions const& options = {}) {
  return Runner<Exec>(exec, options);
}

/// The same for the default execution space.
inline Runner<Kokkos::DefaultExecutionSpace> runner(RunnerOptions const& options = {}) {
  return Runner<Kokkos::DefaultExecutionSpace>(Kokkos::DefaultExecutionSpace{}, options);
}

}  // namespace perf
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
