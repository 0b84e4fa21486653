// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What all direct tests share: what stands before calls (shared memory full of NaN, strides that
/// must not count), hashed numbers, activations, kernels that a build leaves out.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <attikos/abi/attention.hpp>
#include <attikos/abi/gemm.hpp>
#include <attikos/abi/verdict.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <utility>

#define ASSERT_CUDA(call) ASSERT_EQ(call, cudaSuccess) << cudaGetErrorString(cudaPeekAtLastError())

/// Skips a test, or returns from a part of one, that calls kernels of which one was left out: of
/// the build by ATTIKOS_CUDA_LEAVE_OUT, or of a program for the kernels of one source.
#define SKIP_IF_LEFT_OUT(...)                                            \
  if (char const* const left_out = first_left_out<__VA_ARGS__>(nullptr)) \
  GTEST_SKIP() << left_out << " was left out"

/// Leaves 0xFF in the shared memory of every multiprocessor. With `others`, memory of the device,
/// first adds to it how many words were something else.
void poison_shared_memory(int* others = nullptr);

namespace {

template <class Args>
bool is_left_out(attikos::abi::Verdict (*accepts)(Args const&, attikos::abi::Device const&)) {
  char const* const reason = accepts(Args{}, attikos::abi::Device{}).reason;
  return std::strstr(reason, "was left out of this build") != nullptr;
}
/// Name of the first of the kernels that was left out; null if none was.
template <class... Kernels>
char const* first_left_out(char const* name) {
  (void)((is_left_out(&Kernels::accepts) && (name = Kernels::name, true)) || ...);
  return name;
}

/// Strides of dimensions of extent 1 do not count: they become such as no kernel could use.
inline void mislead(std::int64_t extent, std::initializer_list<std::int64_t*> strides) {
  std::int64_t junk = 977;
  for (auto* stride : strides)
    if (extent == 1) *stride = std::exchange(junk, -3);
}
inline void mislead(attikos::abi::GemmArgs& g) {
  mislead(g.batch, {&g.c_batch, &g.a_batch, &g.residual_batch});
  mislead(g.offsets == nullptr ? g.batch : g.groups, {&g.b_batch});
  mislead(g.m, {&g.a_m, &g.c_m, &g.residual_m});
  mislead(g.n, {&g.b_n, &g.c_n, &g.residual_n});
  mislead(g.k, {&g.a_k, &g.b_k});
  mislead(g.bias_along == attikos::BiasAlong::n ? g.n : g.m, {&g.bias_stride});
}
/// As for products. Of packed sequences the batch stride is 0.
inline void mislead(attikos::abi::AttentionArgs& g) {
  bool const packed_q = g.cu_seqlens_q.data != nullptr;
  bool const packed_kv = g.cu_seqlens_kv.data != nullptr, paged = g.page_table != nullptr;
  std::int64_t const q[] = {packed_q ? 0 : g.batch, g.heads_q, g.seqlen_q, g.head_dim};
  std::int64_t const kv[] = {packed_kv ? 0
                             : paged   ? g.num_pages
                                       : g.batch,
                             g.heads_kv, paged ? g.page_size : g.seqlen_kv, g.head_dim};
  std::int64_t const pairs[] = {g.batch, g.heads_q, g.seqlen_q, g.seqlen_kv};
  for (int r = 0; r < 4; ++r) {
    mislead(q[r], {&g.q_stride[r]});
    mislead(kv[r], {&g.k_stride[r]});
    mislead(r == 3 ? g.head_dim_v : q[r], {&g.out_stride[r]});
    mislead(r == 3 ? g.head_dim_v : kv[r], {&g.v_stride[r]});
    if (r < 3) mislead(q[r], {&g.lse_stride[r]});
    mislead(pairs[r], {&g.bias_stride[r], &g.mask_stride[r]});
  }
  if (paged) mislead(g.batch, {&g.page_table_stride[0]});
  if (paged) mislead(g.seqlen_kv / g.page_size, {&g.page_table_stride[1]});
}

inline std::uint32_t mix(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

inline double activate(attikos::Activation activation, double x) {
  if (activation == attikos::Activation::relu) return x > 0 ? x : 0;
  if (activation == attikos::Activation::gelu) return x / 2 * std::erfc(-x / std::sqrt(2.0));
  if (activation == attikos::Activation::silu) return x / (1 + std::exp(-x));
  if (activation == attikos::Activation::none) return x;
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

}  // namespace
