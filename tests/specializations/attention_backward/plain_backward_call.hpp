// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// A call for attention's gradients that every kernel of its type takes; nothing reads or writes
/// its addresses.
#pragma once

#include <attikos/abi/attention_backward_cuda.hpp>
#include <string>

#include "gemm/direct_matrix.hpp"

namespace {

using abi::AttentionArgs;
using abi::AttentionBackwardArgs;

Device const hopper{0, 9, 0, abi::Architecture::hopper, 132, 232448};

inline AttentionBackwardArgs plain_call() {
  alignas(16) static float somewhere[4];
  AttentionBackwardArgs a;
  AttentionArgs& g = a.forward;
  g.q = g.k = g.v = a.dout = somewhere;
  g.out = g.lse = a.dq = a.dk = a.dv = somewhere;
  g.type = g.type_out = DType::bfloat16;
  g.batch = 2, g.heads_q = g.heads_kv = 4, g.seqlen_q = g.seqlen_kv = 16;
  g.head_dim = g.head_dim_v = 64, g.softmax_scale = 0.125;
  for (auto* s : {&g.q_stride, &g.k_stride, &g.v_stride, &g.out_stride, &a.dout_stride,
                  &a.dq_stride, &a.dk_stride, &a.dv_stride})
    (*s)[0] = 4096, (*s)[1] = 1024, (*s)[2] = 64, (*s)[3] = 1;
  g.lse_stride[0] = 64, g.lse_stride[1] = 16, g.lse_stride[2] = 1;
  return a;
}
/// Why a kernel refuses that call with something changed; empty if it takes it.
template <class Kernel, class Change>
std::string refusal(Change change, Device const& device = hopper) {
  AttentionBackwardArgs a = plain_call();
  change(a.forward, a);
  abi::Verdict const verdict = Kernel::accepts(a, device);
  EXPECT_EQ(verdict.ok, verdict.reason[0] == '\0');
  return verdict.reason;
}

}  // namespace
