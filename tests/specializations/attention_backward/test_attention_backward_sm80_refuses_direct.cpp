// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What attention_backward/sm80_mma_* refuse, and how much memory they ask for. Needs no GPU.
#include "plain_backward_call.hpp"

namespace {

using Args = AttentionArgs;
using Back = AttentionBackwardArgs;

/// What blocks may have on sm_86, on sm_80 and on sm_90.
constexpr int shared_bytes[] = {99 * 1024, 163 * 1024, 227 * 1024};

void ask_d_bias(Args& g, Back& a) {
  std::int64_t const extent[] = {g.batch, g.heads_q, g.seqlen_q, g.seqlen_kv};
  std::copy_n(extent, 4, a.d_bias_extent);
  g.bias = g.q, a.d_bias = a.dq;
}

TEST(AttentionBackwardSm80Refuses, WhatItCannotDo) {
  using Kernel = abi::AttentionBackwardSm80MmaBf16;
  SKIP_IF_LEFT_OUT(Kernel);
  auto const with = [](auto change, int major = 8) {
    Device d = hopper;
    d.compute_major = major;
    return refusal<Kernel>(change, d);
  };
  auto const bytes = [](void const* p) { return static_cast<char const*>(p); };
  for (int major : {8, 9, 10, 12}) EXPECT_EQ(with([](Args&, Back&) {}, major), "");
  EXPECT_EQ(with([](Args&, Back&) {}, 7), "it needs compute capability 8.0");
  EXPECT_EQ(with([](Args&, Back&) {}, 0), "no CUDA device");
  EXPECT_EQ(with([](Args& g, Back&) { g.type = DType::float16; }), "it takes other element types");
  EXPECT_EQ(with([](Args& g, Back&) { g.type_out = DType::float32; }),
            "it takes out in the element type of q only");
  EXPECT_EQ(with([](Args& g, Back&) {
              g.page_table = static_cast<int const*>(g.q), g.page_size = 16, g.num_pages = 4;
            }),
            "it reads no pages");
  EXPECT_EQ(with([](Args& g, Back&) { g.descale_q = static_cast<float const*>(g.q); }),
            "it has no factors of float8 tensors");
  EXPECT_EQ(with([](Args& g, Back&) { g.attention_chunk = 8; }), "it has no attention_chunk");
  for (DType type : {DType::float32, DType::float16, DType::bfloat16})
    EXPECT_EQ(with([=](Args& g, Back&) { g.bias = g.q, g.type_bias = type; }), "");
  EXPECT_EQ(with([](Args& g, Back&) { g.bias = g.q, g.type_bias = DType::float64; }),
            "it does not read the bias's element type");
  for (DType type : {DType::float32, DType::float16, DType::bfloat16, DType::float64})
    EXPECT_EQ(with([=](Args& g, Back& a) { ask_d_bias(g, a), a.type_d_bias = type; }), "");
  for (int r = 0; r < 4; ++r)
    EXPECT_EQ(with([=](Args& g, Back& a) { ask_d_bias(g, a), a.d_bias_extent[r] = 1; }),
              "the bias is broadcast, and its gradient a sum of many");
  EXPECT_EQ(with([](Args& g, Back&) { g.lse = nullptr; }), "lse is a null pointer");
  for (auto tensor : {&Args::q, &Args::k, &Args::v})
    EXPECT_EQ(with([=](Args& g, Back&) { g.*tensor = nullptr; }), "a tensor is a null pointer");
  for (auto tensor : {&Back::dq, &Back::dk, &Back::dv})
    EXPECT_EQ(with([=](Args&, Back& a) { a.*tensor = nullptr; }), "a tensor is a null pointer");
  EXPECT_EQ(with([](Args& g, Back&) { g.out = nullptr; }), "a tensor is a null pointer");
  EXPECT_EQ(with([](Args&, Back& a) { a.dout = nullptr; }), "a tensor is a null pointer");
  EXPECT_EQ(with([](Args& g, Back&) { g.head_dim = 256; }), "");
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
  for (double scale : {0.0, -0.3})
    EXPECT_EQ(with([=](Args& g, Back&) { g.softmax_scale = scale; }), "");
  EXPECT_EQ(with([=](Args& g, Back& a) {
              g.q = bytes(g.q) + 2, g.k = bytes(g.k) + 2, a.dout = bytes(a.dout) + 2;
              g.q_stride[3] = 2, g.k_stride[2] = 65, g.v_stride[1] = 1031, a.dout_stride[0] = 4099;
              g.out_stride[2] = 65, a.dq_stride[3] = 2, a.dk_stride[1] = 1031, a.dv_stride[2] = 67;
              g.lse_stride[2] = 3;
            }),
            "");
}

// The workspace follows from what is known before there are tensors, and holds dq in float32.
TEST(AttentionBackwardSm80Refuses, WorkspaceFollowsFromTheProblem) {
  using Kernel = abi::AttentionBackwardSm80MmaBf16;
  SKIP_IF_LEFT_OUT(Kernel);
  for (int shared : shared_bytes)
    for (int d : {64, 128, 256}) {
      SCOPED_TRACE(testing::Message() << "shared " << shared << ", head_dim " << d);
      auto const bytes = [=](auto change) {
        AttentionBackwardArgs a = plain_call();
        a.forward.seqlen_q = 1000, a.forward.head_dim = a.forward.head_dim_v = d;
        change(a.forward, a);
        Device device = hopper;
        device.shared_memory_per_block_optin = shared;
        return Kernel::workspace_bytes(a, device);
      };
      auto const size = static_cast<std::size_t>(d);
      std::size_t const plain = bytes([](Args&, Back&) {});
      EXPECT_GE(plain, 2 * 4 * 1000 * (size + 2) * 4);
      EXPECT_LE(plain, 2 * 4 * 1024 * (size + 3) * 4 + 1024);
      EXPECT_EQ(plain % 8, 0u);
      EXPECT_EQ(bytes([](Args& g, Back& a) {
                  g.q = g.k = g.v = a.dout = nullptr, g.out = g.lse = a.dq = a.dk = a.dv = nullptr;
                  g.q_stride[3] = 7, a.dq_stride[2] = 1, a.ordered = false;
                  g.softmax_scale = -1;
                }),
                plain);
      EXPECT_EQ(
          bytes([](Args& g, Back&) { g.seqlen_kv = 100000, g.causal = true, g.window_left = 3; }),
          plain);
      if (d < 256) {
        EXPECT_GT(bytes([](Args& g, Back&) { g.head_dim_v = g.head_dim + 8; }), plain);
      }
      EXPECT_EQ(bytes([](Args& g, Back&) { g.head_dim = 264; }), 0u);
      EXPECT_EQ(bytes([](Args& g, Back&) { g.attention_chunk = 1; }), 0u);
      EXPECT_EQ(bytes([](Args& g, Back&) { g.type = g.type_out = DType::float16; }), 0u);
      EXPECT_EQ(bytes([](Args& g, Back&) { g.seqlen_q = 0; }), 0u);
    }
}

/// Why a kernel of other elements refuses the same call of its own, with something changed.
template <class Kernel, class Change>
std::string refusal_of(DType type, Change change, int bytes = 232448) {
  Device d = hopper;
  d.shared_memory_per_block_optin = bytes;
  return refusal<Kernel>(
      [&](Args& g, Back& a) {
        g.type = g.type_out = type, g.compute = abi::Compute::tf32x3;
        change(g, a);
      },
      d);
}
constexpr auto same = [](Args&, Back&) {};

TEST(AttentionBackwardSm80Refuses, WhatFloat64CannotDo) {
  using Kernel = abi::AttentionBackwardSm80MmaF64;
  SKIP_IF_LEFT_OUT(Kernel);
  auto const with = [](auto change, int bytes = 232448) {
    return refusal_of<Kernel>(DType::float64, change, bytes);
  };
  EXPECT_EQ(with(same), "");
  EXPECT_EQ(refusal_of<Kernel>(DType::float32, same), "it takes other element types");
  EXPECT_EQ(with([](Args& g, Back&) { g.head_dim = 129; }), "head_dim is above 128");
  EXPECT_EQ(with([](Args& g, Back&) { g.head_dim_v = 129; }), "head_dim is above 128");
  for (DType type : {DType::float32, DType::float16, DType::bfloat16, DType::float64})
    EXPECT_EQ(with([=](Args& g, Back&) { g.bias = g.q, g.type_bias = type; }), "");
  auto const wide = [](Args& g, Back&) { g.head_dim = 128; };
  EXPECT_EQ(with(wide, shared_bytes[1]), "");
  EXPECT_EQ(with(wide, shared_bytes[0]), "a block needs more shared memory than the device has");
  EXPECT_EQ(with(same, shared_bytes[0]), "");
}

TEST(AttentionBackwardSm80Refuses, WhatFloat32CannotDo) {
  using Split = abi::AttentionBackwardSm80MmaTf32x3;
  using Simt = abi::AttentionBackwardSm80SimtF32;
  SKIP_IF_LEFT_OUT(Split, Simt);
  constexpr DType type = DType::float32;
  EXPECT_EQ(refusal_of<Split>(type, same), "");
  EXPECT_EQ(refusal_of<Simt>(type, same), "");
  auto const ieee = [](Args& g, Back&) { g.compute = abi::Compute::ieee; };
  EXPECT_EQ(refusal_of<Simt>(type, ieee), "");
  EXPECT_EQ(refusal_of<Split>(type, ieee),
            "it drops the lowest bits of products, which compute = tf32x3 allows");
  auto const of_128 = [](Args& g, Back&) { g.head_dim = 128; };
  auto const of_256 = [](Args& g, Back&) { g.head_dim_v = 256; };
  auto const of_257 = [](Args& g, Back&) { g.head_dim_v = 257; };
  EXPECT_EQ(refusal_of<Split>(type, of_128), "");
  EXPECT_EQ(refusal_of<Split>(type, of_256), "head_dim is above 128");
  EXPECT_EQ(refusal_of<Simt>(type, of_256), "");
  EXPECT_EQ(refusal_of<Simt>(type, of_257), "head_dim is above 256");
  char const* const small = "a block needs more shared memory than the device has";
  EXPECT_EQ(refusal_of<Split>(type, same, shared_bytes[0]), "");
  EXPECT_EQ(refusal_of<Split>(type, of_128, shared_bytes[1]), small);
  EXPECT_EQ(refusal_of<Simt>(type, of_128, shared_bytes[0]), "");
  EXPECT_EQ(refusal_of<Simt>(type, of_256, shared_bytes[0]), small);
  EXPECT_EQ(refusal_of<Simt>(type, of_256, shared_bytes[1]), "");
  EXPECT_EQ(
      refusal_of<Simt>(type, [](Args& g, Back&) { g.bias = g.q, g.type_bias = DType::float64; }),
      "it does not read the bias's element type");
}

}  // namespace
