// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The sm_90a kernel of attention's gradients: a producer warpgroup and two of consumers.
#pragma once

#include "consumer.cuh"
#include "producer.cuh"
#include "ptx/cluster.cuh"
#include "wide_consumer.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    attention_backward_sm90(__grid_constant__ Sm90BackwardParams const p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  auto& signals = *reinterpret_cast<Sm90BackwardSignals<Config>*>(shared + Config::signals_at);
  if (threadIdx.x == 0) {
    constexpr int warps = 4 * Config::consumers;
    mbarrier_init(&signals.wanted, 1);
    mbarrier_init(&signals.full_kv, 1);
    mbarrier_init(&signals.empty_kv, warps);
    for (int s = 0; s < Config::q_stages; ++s) {
      mbarrier_init(&signals.full_q[s], 1);
      mbarrier_init(&signals.empty_q[s], Config::q_warps);
    }
    for (int s = 0; s < Config::dout_stages; ++s) {
      mbarrier_init(&signals.full_dout[s], 1);
      mbarrier_init(&signals.empty_dout[s], Config::dout_warps);
    }
    for (int c = 0; c < Config::consumers; ++c)
      for (int s = 0; s < Config::dq_stages; ++s) {
        mbarrier_init(&signals.full_dq[c][s], 4);
        mbarrier_init(&signals.empty_dq[c][s], 1);
      }
    for (int s = 0; s < 2; ++s) {
      mbarrier_init(&signals.full_ds[s], Config::ds_warps);
      mbarrier_init(&signals.empty_ds[s], warps);
    }
    mbarrier_init(&signals.full_weights, 4);
    for (int s = 0; s < Config::segments; ++s) {
      mbarrier_init(&signals.full_segment[s], 1);
      mbarrier_init(&signals.empty_segment[s], warps + Config::consumers + 1);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  allow_next_launch();
  wait_for_previous_launch();
  int const warpgroup = warpgroup_of_block();
  if (warpgroup == 0) {
    decrease_registers<Config::producer_registers>();
    int const warp = warp_of_block();
    if (warp == 3)
      find_tiles<Config>(p, signals);
    else if (threadIdx.x % 32 != 0)
      ;
    else if (warp == 0)
      load_tiles<Config>(p, shared, signals);
    else
      add_dq<Config>(p, shared, signals, warp - 1);
  } else {
    increase_registers<Config::consumer_registers>();
    if constexpr (Config::shares_keys) {
      WideBackwardConsumer<Config> const consumer(p, shared, signals, warpgroup - 1);
      if (warpgroup == 1)
        consumer.template run<true>();
      else
        consumer.template run<false>();
    } else {
      BackwardConsumer<Config>(p, shared, signals, warpgroup - 1).run();
    }
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
