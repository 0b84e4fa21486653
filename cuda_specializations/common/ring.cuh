// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rings of stages in shared memory, which producers fill and consumers empty.
///
/// Everyone who passes along a ring has a position of its own in registers. Stage s has two
/// barriers: `full[s]`, at which producers arrive and the copy engine counts bytes, and `empty[s]`,
/// at which consumers arrive once they have read it. Rings of cp.async have a number for a position
/// and the block's barrier for both.
#pragma once

#include "ptx/mbarrier.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// The numbers that follow and precede in a ring of `Stages`.
template <int Stages>
__device__ __forceinline__ constexpr int next_in_ring(int stage) {
  return stage + 1 == Stages ? 0 : stage + 1;
}
template <int Stages>
__device__ __forceinline__ constexpr int previous_in_ring(int stage) {
  return stage == 0 ? Stages - 1 : stage - 1;
}

/// Passes over `Count` stages, no more than there are: the parity of the round changes where the
/// ring begins anew.
template <int Stages, int Count>
__device__ __forceinline__ void advance_in_ring(int& stage, std::uint32_t& phase) {
  stage += Count;
  if (Count == 1 ? stage == Stages : stage >= Stages) {
    stage = Count == 1 ? 0 : stage - Stages;
    phase ^= 1;
  }
}

/// A position in a ring of stages: a stage, and the parity of the round.
template <int Stages>
struct RingPosition {
  int stage = 0;
  std::uint32_t phase = 0;

  __device__ __forceinline__ void next() { advance_in_ring<Stages, 1>(stage, phase); }
  /// Passes over any number.
  __device__ __forceinline__ void pass(int count) {
    int const at = stage + count;
    phase ^= at / Stages & 1;
    stage = at % Stages;
  }
};

/// Stage and parity of number n of what passes through a ring, for those who count instead: one
/// register, cheap where `Stages` is a power of two.
template <int Stages, class N>
__device__ __forceinline__ constexpr N stage_of(N n) {
  return n % Stages;
}
template <int Stages, class N>
__device__ __forceinline__ constexpr N parity_of(N n) {
  return n / Stages % 2;
}

/// A ring's barriers.
template <int Stages>
struct Ring {
  using Position = RingPosition<Stages>;

  std::uint64_t *full, *empty;

  /// By one thread: so many arrivals fill a stage, or empty it. A fence_mbarrier_init() follows.
  __device__ __forceinline__ void init(std::uint32_t fill, std::uint32_t release) const {
    for (int s = 0; s < Stages; ++s) {
      mbarrier_init(&full[s], fill);
      mbarrier_init(&empty[s], release);
    }
  }
  /// For producers: waits until a stage is empty.
  __device__ __forceinline__ void acquire(Position const& at) const {
    mbarrier_wait(&empty[at.stage], at.phase ^ 1);
  }
  /// For consumers: waits until a stage is full.
  __device__ __forceinline__ void wait(Position const& at) const {
    mbarrier_wait(&full[at.stage], at.phase);
  }
  /// The same, and goes on; returns the stage, which the caller releases.
  __device__ __forceinline__ int take(Position& at) const {
    int const stage = at.stage;
    mbarrier_wait(&full[stage], at.phase);
    at.next();
    return stage;
  }
  /// For consumers: arrives once a stage has been read, as one of those that init() counts.
  __device__ __forceinline__ void release(int stage) const { mbarrier_arrive(&empty[stage]); }
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
