// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Direct tests of gradients that are computed again and again: the same bits, replayed graphs.
#pragma once

#include <memory>

#include "attention_backward_cases.hpp"
#include "companion/direct_replay.hpp"

namespace {

/// The same bits again and again, beside other work that disturbs what runs when; on several
/// streams at once, each with a workspace of its own.
template <class Kernel>
void repeat(Case const& t) {
  using T = ElementOf<Kernel>;
  SKIP_IF_LEFT_OUT(Kernel);
  Device const device = abi::query_device(abi::current_device());
  constexpr std::size_t streams = 3;
  std::vector<std::unique_ptr<BackwardProblem<T>>> problems;
  std::vector<std::unique_ptr<DirectWorkspace>> memory;
  std::array<cudaStream_t, streams> stream{};
  for (auto& one : stream) {
    ASSERT_CUDA(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    problems.push_back(std::make_unique<BackwardProblem<T>>(
        t, Beside{}, problems.empty() ? nullptr : problems[0].get()));
    memory.push_back(std::make_unique<DirectWorkspace>(
        Kernel::workspace_bytes(problems.back()->arguments(), device)));
  }
  std::vector<std::vector<unsigned char>> first;
  for (int round = 0; round < 100; ++round) {
    Device d_ = device;
    d_.sm_count = round % 4 == 3 ? 97 : device.sm_count;
    // Next to none, or what the queries of one head take.
    if (round % 3 != 0) d_.l2_bytes = round % 3 == 1 ? 1 : static_cast<int>(8 * t.len_q * t.d);
    for (auto& x : problems) x->forget_results();
    for (std::size_t n = 0; n < streams; ++n) {
      AttentionBackwardArgs a = problems[n]->arguments();
      a.workspace = memory[n]->begin();
      ASSERT_EQ(Kernel::launch(a, d_, stream[n]), cudaSuccess);
    }
    ASSERT_CUDA(cudaDeviceSynchronize());
    for (std::size_t n = 0; n < streams; ++n) {
      auto const results = problems[n]->results();
      if (first.empty()) first = results;
      ASSERT_EQ(results == first, true) << "round " << round << ", stream " << n;
    }
  }
  compare_gradients(*problems[0], first, ArithmeticOf<Kernel>::units);
  for (auto& one : stream) cudaStreamDestroy(one);
}

template <class Kernel>
void repeat(std::int64_t d, bool causal) {
  repeat<Kernel>({.batch = 1,
                  .heads = 6,
                  .heads_kv = 3,
                  .len_q = 1000,
                  .len_kv = 1100,
                  .d = d,
                  .dv = d,
                  .causal = causal});
}

/// Captured into a graph and replayed while queries and lengths change on the device. `t` has three
/// sequences.
template <class Kernel>
void replay_gradients(Case const& t) {
  using T = ElementOf<Kernel>;
  SKIP_IF_LEFT_OUT(Kernel);
  Device const device = abi::query_device(abi::current_device());
  BackwardProblem<T> x(t);
  AttentionBackwardArgs a = x.arguments();
  DirectWorkspace const memory(Kernel::workspace_bytes(a, device));
  a.workspace = memory.begin();
  captured_equals(
      {{x.dq.device, x.dq.host.size()},
       {x.dk.device, x.dk.host.size()},
       {x.dv.device, x.dv.host.size()}},
      [&](cudaStream_t stream) { return Kernel::launch(a, device, stream); },
      [&](int round) {
        Tensor4<T> const next(t.batch, t.heads, t.len_q, t.d, t.order,
                              100 + static_cast<std::uint32_t>(round), t.amplitude);
        ASSERT_CUDA(
            cudaMemcpy(x.q.device, next.host.data(), next.host.size(), cudaMemcpyHostToDevice));
        auto const all = static_cast<int>(t.len_q);
        std::vector<int> const lengths{all - 30 * round, 64 * round, all};
        ASSERT_CUDA(cudaMemcpy(x.lengths_q.data, lengths.data(), 12, cudaMemcpyHostToDevice));
      });
}

template <class Kernel>
void replay_gradients(std::int64_t d) {
  replay_gradients<Kernel>({.batch = 3,
                            .heads = 4,
                            .heads_kv = 2,
                            .len_q = 300,
                            .len_kv = 400,
                            .d = d,
                            .dv = d,
                            .causal = true,
                            .lengths_q = {300, 200, 1},
                            .lengths_kv = {400, 300, 129}});
}

}  // namespace
