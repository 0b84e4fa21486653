// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What attention_backward/sm90_wgmma_* refuse, and how much memory they ask for. Needs no GPU.
#include "plain_backward_call.hpp"

namespace {

TEST(AttentionBackwardSm90Refuses, WhatItCannotDo) {
  using Kernel = abi::AttentionBackwardSm90WgmmaBf16;
  SKIP_IF_LEFT_OUT(Kernel);
  auto const with = [](auto change, int major = 9) {
    Device d = hopper;
    d.compute_major = major;
    return refusal<Kernel>(change, d);
  };
  using Args = AttentionArgs;
  using Back = AttentionBackwardArgs;
  auto const bytes = [](void const* p) { return static_cast<char const*>(p); };
  EXPECT_EQ(with([](Args&, Back&) {}), "");
  EXPECT_EQ(with([](Args&, Back&) {}, 8), "its machine code runs on sm_90 only");
  EXPECT_EQ(with([](Args&, Back&) {}, 10), "its machine code runs on sm_90 only");
  EXPECT_EQ(with([](Args&, Back&) {}, 0), "no CUDA device");
  EXPECT_EQ(with([](Args& g, Back&) { g.type = DType::float16; }), "it takes other element types");
  EXPECT_EQ(with([](Args& g, Back&) { g.type_out = DType::float32; }),
            "it takes out in the element type of q only");
  EXPECT_EQ(with([](Args& g, Back&) { g.mask = static_cast<std::uint8_t const*>(g.q); }),
            "it has no boolean mask");
  EXPECT_EQ(with([](Args& g, Back&) { g.bias = g.q; }), "it has no bias");
  EXPECT_EQ(with([](Args& g, Back&) { g.attention_chunk = 8; }), "it has no attention_chunk");
  EXPECT_EQ(with([](Args& g, Back&) { g.softcap = 30; }), "");
  EXPECT_EQ(with([](Args& g, Back&) { g.alibi = static_cast<float const*>(g.q); }), "");
  EXPECT_NE(with([](Args& g, Back&) {
              g.page_table = static_cast<int const*>(g.q), g.page_size = 16, g.num_pages = 4;
            }),
            "");
  EXPECT_NE(with([](Args& g, Back&) { g.descale_q = static_cast<float const*>(g.q); }), "");
  EXPECT_EQ(with([](Args&, Back& a) { a.d_bias = a.dq; }), "the gradient of a bias has no bias");
  EXPECT_EQ(with([](Args& g, Back&) { g.softmax_scale = 0; }), "its scale is positive");
  EXPECT_EQ(with([](Args& g, Back&) { g.softmax_scale = -0.3; }), "its scale is positive");
  EXPECT_EQ(with([](Args& g, Back&) { g.softmax_scale = std::nan(""); }), "its scale is positive");
  EXPECT_EQ(with([](Args& g, Back&) { g.lse = nullptr; }), "lse is a null pointer");
  EXPECT_EQ(with([](Args& g, Back&) { g.head_dim = 257; }), "head_dim is above 256");
  EXPECT_EQ(with([](Args& g, Back&) { g.head_dim_v = 264; }), "head_dim is above 256");
  EXPECT_EQ(with([](Args& g, Back&) { g.head_dim = 0; }), "head_dim is 0");
  EXPECT_EQ(with([](Args& g, Back&) { g.head_dim_v = 0; }), "head_dim is 0");
  for (auto extent : {&Args::batch, &Args::seqlen_q, &Args::seqlen_kv}) {
    EXPECT_EQ(with([=](Args& g, Back&) { g.*extent = 0; }),
              "there are no pairs of queries and keys");
    EXPECT_EQ(with([=](Args& g, Back&) { g.*extent = -1; }), "an extent is negative");
    EXPECT_EQ(with([=](Args& g, Back&) { g.*extent = std::int64_t{1} << 29; }),
              "an extent is too large");
  }
  EXPECT_EQ(with([](Args& g, Back&) { g.heads_q = g.heads_kv = 0; }),
            "there are no pairs of queries and keys");
  EXPECT_EQ(with([](Args& g, Back&) { g.batch = 1 << 20, g.seqlen_q = 1 << 17; }),
            "there are too many tiles for one launch");
  EXPECT_EQ(with([=](Args& g, Back&) { g.q = bytes(g.q) + 2; }),
            "q's address is not a multiple of 16 bytes");
  EXPECT_EQ(with([=](Args& g, Back&) { g.k = bytes(g.k) + 8; }),
            "k's address is not a multiple of 16 bytes");
  EXPECT_EQ(with([=](Args& g, Back&) { g.v = bytes(g.v) + 2; }),
            "v's address is not a multiple of 16 bytes");
  EXPECT_EQ(with([=](Args&, Back& a) { a.dout = bytes(a.dout) + 4; }),
            "dout's address is not a multiple of 16 bytes");
  EXPECT_EQ(with([](Args& g, Back&) { g.q_stride[2] = 65; }),
            "a stride of q is not a multiple of 16 bytes");
  EXPECT_EQ(with([](Args&, Back& a) { a.dout_stride[0] = 4100; }),
            "a stride of dout is not a multiple of 16 bytes");
  EXPECT_EQ(with([](Args& g, Back&) { g.k_stride[3] = 2; }), "k has no unit stride along head_dim");
  EXPECT_EQ(with([](Args& g, Back&) { g.v_stride[3] = 2; }), "v has no unit stride along head_dim");
  // What it writes, out and lse may lie anyhow; heads and batches of what it reads may be shared.
  EXPECT_EQ(with([=](Args& g, Back& a) {
              g.out_stride[2] = 65, a.dq_stride[3] = 2, a.dk_stride[1] = 1031, a.dv_stride[2] = 67;
              g.lse_stride[2] = 3, g.k_stride[0] = g.v_stride[1] = a.dout_stride[0] = 0;
              g.out = const_cast<char*>(bytes(g.out) + 2),
              a.dq = const_cast<char*>(bytes(a.dq) + 2);
            }),
            "");
}

// The workspace follows from what is known before there are tensors, and holds dq in float32.
TEST(AttentionBackwardSm90Refuses, WorkspaceFollowsFromTheProblem) {
  using Kernel = abi::AttentionBackwardSm90WgmmaBf16;
  SKIP_IF_LEFT_OUT(Kernel);
  auto const bytes = [](auto change) {
    AttentionBackwardArgs a = plain_call();
    a.forward.seqlen_q = 1000;
    change(a.forward, a);
    return Kernel::workspace_bytes(a, hopper);
  };
  using Args = AttentionArgs;
  using Back = AttentionBackwardArgs;
  std::size_t const plain = bytes([](Args&, Back&) {});
  EXPECT_GE(plain, std::size_t{2 * 4 * 1000} * (64 + 2) * 4);
  EXPECT_LE(plain, std::size_t{2 * 4 * 1024} * (64 + 3) * 4 + 1024);
  EXPECT_EQ(plain % 8, 0u);
  EXPECT_EQ(bytes([](Args& g, Back& a) {
              g.q = g.k = g.v = a.dout = nullptr, g.out = g.lse = a.dq = a.dk = a.dv = nullptr;
              g.q_stride[3] = 7, a.dq_stride[2] = 1, a.ordered = false;
            }),
            plain);
  EXPECT_EQ(bytes([](Args& g, Back&) { g.seqlen_kv = 100000, g.causal = true, g.window_left = 3; }),
            plain);
  EXPECT_GT(bytes([](Args& g, Back&) { g.head_dim_v = 72; }), plain);
  // dq has the features of q, and of v where the kernel works with as many.
  std::size_t const wide = bytes([](Args& g, Back&) { g.head_dim = 192, g.head_dim_v = 128; });
  EXPECT_GE(wide, std::size_t{2 * 4 * 1000} * (192 + 2) * 4);
  EXPECT_LE(wide, std::size_t{2 * 4 * 1024} * (192 + 3) * 4 + 1024);
  EXPECT_GT(bytes([](Args& g, Back&) { g.head_dim = 192, g.head_dim_v = 200; }), wide);
  // One key head has too few tiles of keys: the query heads that share it are divided, and their
  // sums of dk and dv lie there, too; not those of packed sequences, nor of many tiles.
  auto const shared = [](Args& g) { g.heads_q = 8, g.heads_kv = 1, g.seqlen_kv = 512; };
  std::size_t const divided = bytes([&](Args& g, Back&) { shared(g); });
  EXPECT_GE(divided + 4096, 2 * plain + std::size_t{2 * 8 * 2 * 512} * 64 * 4);
  EXPECT_LE(divided, 2 * plain + std::size_t{2 * 8 * 2 * 512} * 64 * 4 + 4096);
  EXPECT_LE(bytes([&](Args& g, Back&) {
              shared(g);
              g.cu_seqlens_q.data = g.cu_seqlens_kv.data = &g;
            }),
            divided / 2);
  EXPECT_EQ(bytes([&](Args& g, Back&) {
              shared(g);
              g.seqlen_kv = 100000;
            }),
            bytes([&](Args& g, Back&) {
              shared(g);
              g.heads_kv = 8;
            }));
  EXPECT_EQ(bytes([](Args& g, Back&) { g.head_dim = 264; }), 0u);
  EXPECT_EQ(bytes([](Args& g, Back&) { g.attention_chunk = 1; }), 0u);
  EXPECT_EQ(bytes([](Args& g, Back&) { g.type = g.type_out = DType::float16; }), 0u);
  EXPECT_EQ(bytes([](Args& g, Back&) { g.seqlen_q = 0; }), 0u);
}

}  // namespace
