// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Where sequences begin and end, as device memory says. What does not fit the tensors is cut off.
#pragma once

#include <attikos/abi/attention.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

__device__ __forceinline__ int clamped(std::int64_t x, int low, int high) {
  return static_cast<int>(x < low ? low : x > high ? high : x);
}

/// Boundary `e` of the segments of packed sequences: positions before the first sequence, each
/// sequence, positions after the last.
__device__ __forceinline__ int packed_boundary(abi::AttentionArgs const& g, int e) {
  int const total = static_cast<int>(g.seqlen_q);
  return e <= 0 ? 0 : e > g.batch + 1 ? total : clamped(g.cu_seqlens_q[e - 1], 0, total);
}

/// Where the positions of a sequence begin, and how many there are.
struct SequenceSpan {
  int begin, length;
};

/// The span of sequence `b`: all `total` positions unless sequences are packed.
__device__ __forceinline__ SequenceSpan sequence_span(abi::Offsets const& offsets, std::int64_t b,
                                                      int total) {
  if (offsets.data == nullptr) return {0, total};
  int const begin = clamped(offsets[b], 0, total);
  return {begin, clamped(offsets[b + 1], begin, total) - begin};
}

/// Cuts the keys of sequence `b` down to what packed sequences and lengths leave of them: `length`
/// from `begin` on, at first all of `seqlen_kv`.
__device__ __forceinline__ void cut_keys(abi::AttentionArgs const& g, int b, int h_kv,
                                         int seqlen_kv, int& begin, int& length) {
  if (g.cu_seqlens_kv.data != nullptr) {
    SequenceSpan const span = sequence_span(g.cu_seqlens_kv, b, seqlen_kv);
    begin = span.begin, length = span.length;
  }
  if (g.lengths_kv != nullptr)
    length = clamped(g.lengths_kv[b * g.lengths_kv_stride[0] + h_kv * g.lengths_kv_stride[1]], 0,
                     length);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
