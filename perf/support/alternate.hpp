// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The measurement itself: ours and its peers take turns inside one benchmark.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <attikos/perf/statistics.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <support/settings.hpp>
#include <support/text.hpp>
#include <support/timer.hpp>
#include <thread>
#include <vector>

namespace attikos::measure {

using attikos::perf::median;
using attikos::perf::quantile;

/// One of those who do the same work. `run` gets the number of the operand set to use.
struct Side {
  std::string name;
  std::function<void(std::size_t)> run;
};

/// How much one call does, and in what it is counted: operations with "GFLOP/s", bytes with "GB/s".
struct Work {
  double amount;
  char const* unit;
};

/// Runs the sides alternately; the first is ours. Each iteration of the benchmark is a round, whose
/// time is ours.
///
/// In a round each side makes a block of calls, not one: a thread pool (OpenMP's, OpenBLAS's) goes
/// on spinning for some milliseconds after its last call and would take the cores from a side with
/// another pool. So each block begins with a pause in which the others' threads fall asleep
/// (OpenBLAS's spin for 2^26 ticks) and, if calls are short, with some that are not counted, which
/// wake the side's own threads and let them spread over the cores. Every other round goes in the
/// opposite order.
///
/// Counters: the rate at the median time and at p20 and p80 of the rate, for each side;
/// `<peer>:ratio` is our rate over the peer's.
inline void alternate(benchmark::State& state, Exec const& exec, std::vector<Side> const& sides,
                      std::size_t sets, Work const& work) {
  constexpr double block_seconds = 0.1;
  constexpr auto pause = std::chrono::milliseconds(on_host ? 40 : 0);
  Timer timer(exec);
  std::size_t set = 0;
  std::vector<std::size_t> calls;
  std::vector<std::vector<double>> seconds(sides.size());
  auto const once = [&](Side const& side) {
    side.run(set);
    set = (set + 1) % sets;
  };
  for (Side const& side : sides) {
    std::this_thread::sleep_for(pause);
    double const estimate = timer.seconds(2, [&] { once(side); }).back();
    calls.push_back(static_cast<std::size_t>(std::clamp(block_seconds / estimate, 1.0, 100.0)));
  }
  bool forward = true;
  for ([[maybe_unused]] auto _ : state) {
    double ours = 0;
    for (std::size_t turn = 0; turn < sides.size(); ++turn) {
      std::size_t const s = forward ? turn : sides.size() - 1 - turn;
      if (sides.size() > 1) std::this_thread::sleep_for(pause);
      for (std::size_t i = 0; i < calls[s] / 10 + (calls[s] > 1 ? 1 : 0); ++i) once(sides[s]);
      auto const block = timer.seconds(calls[s], [&] { once(sides[s]); });
      seconds[s].insert(seconds[s].end(), block.begin(), block.end());
      if (s == 0) ours = median(block);
    }
    forward = !forward;
    state.SetIterationTime(ours);
  }
  for (std::size_t s = 0; s < sides.size(); ++s) {
    std::string const prefix = s == 0 ? text(work.unit) : text(sides[s].name, ":", work.unit);
    double const middle = median(seconds[s]);
    state.counters[prefix] = 1e-9 * work.amount / middle;
    state.counters[prefix + ":p20"] = 1e-9 * work.amount / quantile(seconds[s], 0.8);
    state.counters[prefix + ":p80"] = 1e-9 * work.amount / quantile(seconds[s], 0.2);
    if (s > 0) state.counters[sides[s].name + ":ratio"] = middle / median(seconds[0]);
  }
  state.counters["median_ms"] = 1e3 * median(seconds[0]);
  state.counters["calls"] = static_cast<double>(seconds[0].size());
  state.counters["operand_sets"] = static_cast<double>(sets);
}

/// Registers a case that runs `body(state)`. What it throws becomes the case's error; the others go
/// on.
template <class Body>
void add_case(Settings const& settings, std::string const& name, Body body) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [body](benchmark::State& state) {
                                 try {
                                   body(state);
                                 } catch (std::exception const& error) {
                                   state.SkipWithError(error.what());
                                 }
                               })
      ->Iterations(settings.rounds)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

/// `gemm/sm75_wmma_f16` and `portable/flash` as one part of a case's name.
inline std::string kernel_part(std::string kernel, std::string const& operation) {
  if (kernel.rfind(operation + "/", 0) == 0) kernel.erase(0, operation.size() + 1);
  std::replace(kernel.begin(), kernel.end(), '/', '_');
  return kernel;
}

}  // namespace attikos::measure
