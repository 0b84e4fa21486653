// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Decode kernels, and attention kernels that read pages, called directly: cases over padded,
/// packed and paged caches, and their launches.
#pragma once

#include <attikos/abi/decode_cuda.hpp>
#include <memory>

#include "attention/direct_attention.hpp"

namespace {

using abi::DecodeArgs;

template <class T>
using DecodeFor =
    std::conditional_t<std::is_same_v<T, __half>, abi::DecodeSm80MmaF16, abi::DecodeSm80MmaBf16>;

/// Of log-sum-exps, and of all sums.
template <class T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// An attention kernel as the cases of decode call one: without parts and workspace.
template <class Kernel>
struct WithoutWorkspace : Kernel {
  static std::size_t workspace_bytes(DecodeArgs const&, Device const&) { return 0; }
};

/// A kernel on a card whose blocks may have `SharedBytes`.
template <class Kernel, int SharedBytes>
struct WithLessShared : Kernel {
  static Device card(Device device) {
    device.shared_memory_per_block_optin = SharedBytes;
    return device;
  }
  static abi::Verdict accepts(DecodeArgs const& g, Device const& device) {
    return Kernel::accepts(g, card(device));
  }
  static std::size_t workspace_bytes(DecodeArgs const& g, Device const& device) {
    return Kernel::workspace_bytes(g, card(device));
  }
  static int launch(DecodeArgs const& g, Device const& device, CUstream_st* stream) {
    return Kernel::launch(g, card(device), stream);
  }
};

struct DecodeCase {
  std::int64_t batch = 2, heads = 8, heads_kv = 2, len_q = 1, len_kv = 300, d = 128, dv = 128;
  std::int64_t page_size = 0;  ///< 0: not paged
  std::vector<std::int64_t> splits = {0, 1, 5};
  bool causal = false, top_left = false;
  std::int64_t left = -1, right = -1;
  double scale = 0, softcap = 0, amplitude = 2;
  bool alibi = false, sinks = false, lse = true, mask = false;
  int bias = 0;  ///< 1: bfloat16, [1, 1, q, kv]; 2: float32, full
  Order order = Order::heads_first, order_out = Order::heads_first;
  std::vector<int> lengths_q = {}, lengths_kv = {}, cu_q = {}, cu_kv = {};
  std::vector<int> bad_keys = {};  ///< whose values are NaN in the first sequence and head
  std::int64_t bad_feature = -1;   ///< the only one of theirs that is; -1: all
  bool infinite = false;           ///< instead of NaN: bad keys' values and what no sequence owns
  double units = 1;                ///< what the unit of roundings is multiplied by
  int descale = 0;                 ///< float8 factors; 1: one for all, 2: per batch and key head
  float factor_q = 1;              ///< on top of that of q
  bool coarse = false;             ///< float8 weights and sums as wgmma has them
  bool unrounded = false;          ///< weights are not rounded to the element type
};

inline std::string describe(DecodeCase const& t, bool half) {
  std::ostringstream text;
  text << "batch" << t.batch << " heads" << t.heads << "/" << t.heads_kv << " q" << t.len_q << " kv"
       << t.len_kv << " d" << t.d << "/" << t.dv << " page" << t.page_size << " causal" << t.causal
       << t.top_left << " window " << t.left << ' ' << t.right << " scale " << t.scale << " cap "
       << t.softcap << " alibi" << t.alibi << " sinks" << t.sinks << " bias" << t.bias << " mask"
       << t.mask << " order " << static_cast<int>(t.order) << static_cast<int>(t.order_out)
       << " lengths " << t.lengths_q.size() << ' ' << t.lengths_kv.size() << " packed "
       << t.cu_q.size() << ' ' << t.cu_kv.size() << (half ? " half" : " bfloat16") << " descale "
       << t.descale;
  return text.str();
}

double worst_decode_ratio = 0;

/// The tensors of a case, on both sides: q, k and v of `In`, out of `T`.
template <class T, class In = T>
struct DecodeProblem {
  DecodeCase t;
  bool packed_q, packed_kv, paged;
  std::int64_t batch, max_pages, num_pages;
  std::vector<Sequence> all;
  std::vector<int> table;
  Tensor4<In> q, k, v;
  Tensor4<T> out;
  Tensor4<SumOf<T>> lse;
  Tensor4<__nv_bfloat16> bias_16;
  Tensor4<float> bias_32;
  std::vector<float> slopes, sinks;
  std::vector<std::uint8_t> mask;  ///< [heads, q, kv]
  Factors factors;
  std::unique_ptr<DeviceArray<float>> alibi, sink;
  std::unique_ptr<DeviceArray<std::uint8_t>> mask_device;
  std::unique_ptr<DeviceArray<int>> lengths_q, lengths_kv, cu_q, cu_kv, pages;

  explicit DecodeProblem(DecodeCase const& c)
      : t(c),
        packed_q(!c.cu_q.empty()),
        packed_kv(!c.cu_kv.empty()),
        paged(c.page_size > 0),
        batch(packed_q ? static_cast<std::int64_t>(c.cu_q.size()) - 1 : c.batch),
        max_pages(paged ? (c.len_kv + c.page_size - 1) / c.page_size : 0),
        num_pages(batch * max_pages + 3),
        q(packed_q ? 1 : batch, c.heads, c.len_q, c.d, c.order, 1, c.amplitude),
        k(paged       ? num_pages
          : packed_kv ? 1
                      : batch,
          c.heads_kv, paged ? c.page_size : c.len_kv, c.d, c.order, 2, 1),
        v(paged       ? num_pages
          : packed_kv ? 1
                      : batch,
          c.heads_kv, paged ? c.page_size : c.len_kv, c.dv, c.order, 3, 1),
        out(packed_q ? 1 : batch, c.heads, c.len_q, c.dv, c.order_out, 4, 1),
        lse(packed_q ? 1 : batch, c.heads, c.len_q, 1, Order::padded, 5, 1),
        bias_16(1, 1, c.len_q, c.len_kv, Order::odd, 6, 3),
        bias_32(c.bias == 2 ? batch : 1, c.bias == 2 ? c.heads : 1, c.len_q, c.len_kv,
                Order::padded, 7, 3),
        factors(c, batch) {
    Case like;
    like.batch = batch, like.len_q = t.len_q, like.len_kv = capacity();
    like.lengths_q = t.lengths_q, like.lengths_kv = t.lengths_kv;
    like.cu_q = t.cu_q, like.cu_kv = t.cu_kv;
    all = sequences(like);
    // Pages of a sequence lie backwards and between those of the others; entries past a length are
    // no numbers of pages.
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t n = 0; n < max_pages; ++n)
        table.push_back(n * t.page_size < length_kv(b)
                            ? static_cast<int>(1 + b + (max_pages - 1 - n) * batch)
                        : (b + n) % 2 == 0 ? -7
                                           : 1 << 30);
    poison_unowned();
    for (int j : t.bad_keys) {
      auto const [outer, row] = place(0, 0, j);
      v.poison(outer, 0, row, t.infinite, t.bad_feature);
    }
    for (std::int64_t h = 0; h < t.heads; ++h) {
      slopes.push_back(0.25f / static_cast<float>(h + 1));
      sinks.push_back(static_cast<float>(h) * 1.5f - 1.0f);
    }
    for (std::int64_t n = 0; t.mask && n < t.heads * t.len_q * t.len_kv; ++n)
      mask.push_back(mix(static_cast<std::uint32_t>(n) * 31u) % 4 != 0);
    alibi = std::make_unique<DeviceArray<float>>(slopes);
    sink = std::make_unique<DeviceArray<float>>(sinks);
    mask_device = std::make_unique<DeviceArray<std::uint8_t>>(mask);
    lengths_q = std::make_unique<DeviceArray<int>>(t.lengths_q);
    lengths_kv = std::make_unique<DeviceArray<int>>(t.lengths_kv);
    cu_q = std::make_unique<DeviceArray<int>>(t.cu_q);
    cu_kv = std::make_unique<DeviceArray<int>>(t.cu_kv);
    pages = std::make_unique<DeviceArray<int>>(table);
    q.upload(), k.upload(), v.upload(), bias_16.upload(), bias_32.upload();
    out.forget(), lse.forget();
  }

  std::int64_t capacity() const { return paged ? max_pages * t.page_size : t.len_kv; }
  std::int64_t length_kv(std::int64_t b) const {
    return t.lengths_kv.empty() ? capacity() : t.lengths_kv[static_cast<std::size_t>(b)];
  }
  /// Where key j of a sequence lies: first and third index.
  std::pair<std::int64_t, std::int64_t> place(std::int64_t b, std::int64_t begin,
                                              std::int64_t j) const {
    if (!paged) return {packed_kv ? 0 : b, begin + j};
    return {table[static_cast<std::size_t>(b * max_pages + j / t.page_size)], j % t.page_size};
  }
  /// What no sequence owns is NaN: rows of q, positions of the cache, whole pages.
  void poison_unowned() {
    std::vector<bool> owned_q(static_cast<std::size_t>(q.extent[0] * t.len_q));
    std::vector<bool> owned(static_cast<std::size_t>(k.extent[0] * k.extent[2]));
    for (auto const& e : all) {
      if (e.batch < 0) continue;
      for (std::int64_t i = 0; i < e.len_q; ++i)
        owned_q[static_cast<std::size_t>((packed_q ? 0 : e.batch) * t.len_q + e.begin_q + i)] =
            true;
      for (std::int64_t j = 0; j < e.len_kv; ++j) {
        auto const [outer, row] = place(e.batch, e.begin_kv, j);
        owned[static_cast<std::size_t>(outer * k.extent[2] + row)] = true;
      }
    }
    for (std::size_t n = 0; n < owned_q.size(); ++n)
      for (std::int64_t h = 0; h < t.heads && !owned_q[n]; ++h)
        q.poison(static_cast<std::int64_t>(n) / t.len_q, h, static_cast<std::int64_t>(n) % t.len_q,
                 t.infinite);
    for (std::size_t n = 0; n < owned.size(); ++n)
      for (std::int64_t h = 0; h < t.heads_kv && !owned[n]; ++h) {
        auto const at = static_cast<std::int64_t>(n);
        k.poison(at / k.extent[2], h, at % k.extent[2], t.infinite);
        v.poison(at / k.extent[2], h, at % k.extent[2], t.infinite);
      }
  }

  DecodeArgs arguments() const {
    DecodeArgs g;
    g.q = q.begin(), g.k = k.begin(), g.v = v.begin();
    g.type = dtype_of<In>(), g.type_out = dtype_of<T>();
    factors.pass_to(g);
    g.batch = batch, g.heads_q = t.heads, g.heads_kv = t.heads_kv;
    g.seqlen_q = t.len_q, g.seqlen_kv = capacity(), g.head_dim = t.d, g.head_dim_v = t.dv;
    for (int r = 0; r < 4; ++r) {
      g.q_stride[r] = q.stride[r], g.k_stride[r] = k.stride[r], g.v_stride[r] = v.stride[r];
      g.out_stride[r] = out.stride[r];
      if (t.bias != 0) g.bias_stride[r] = t.bias == 1 ? bias_16.stride[r] : bias_32.stride[r];
      if (r < 3) g.lse_stride[r] = lse.stride[r];
    }
    if (packed_q) g.q_stride[0] = g.out_stride[0] = g.lse_stride[0] = 0;
    if (packed_kv) g.k_stride[0] = g.v_stride[0] = 0;
    if (t.bias == 1)
      g.bias = bias_16.begin(), g.type_bias = DType::bfloat16,
      g.bias_stride[0] = g.bias_stride[1] = 0;
    if (t.bias == 2) g.bias = bias_32.begin();
    if (t.mask) {
      g.mask = mask_device->data;
      g.mask_stride[1] = t.len_q * t.len_kv, g.mask_stride[2] = t.len_kv, g.mask_stride[3] = 1;
    }
    g.softmax_scale = t.scale == 0 ? 1 / std::sqrt(static_cast<double>(t.d)) : t.scale;
    g.softcap = t.softcap, g.causal = t.causal;
    g.causal_alignment = t.top_left ? CausalAlignment::top_left : CausalAlignment::bottom_right;
    g.window_left = t.left, g.window_right = t.right;
    g.lengths_q = lengths_q->data, g.lengths_kv = lengths_kv->data;
    g.lengths_q_stride[0] = g.lengths_kv_stride[0] = 1;
    g.cu_seqlens_q.data = cu_q->data, g.cu_seqlens_kv.data = cu_kv->data;
    if (paged)
      g.page_table = pages->data, g.page_table_stride[0] = max_pages, g.page_table_stride[1] = 1,
      g.page_size = t.page_size, g.num_pages = num_pages;
    if (t.alibi) g.alibi = alibi->data, g.alibi_stride[1] = 1;
    if (t.sinks) g.sinks = sink->data, g.sinks_stride = 1;
    mislead(g);
    return g;
  }
};

/// Poisoned memory of `bytes` bytes, and a check that nothing behind them was written.
struct DecodeWorkspace {
  unsigned char* data = nullptr;
  std::size_t bytes;
  explicit DecodeWorkspace(std::size_t size) : bytes(size) {
    EXPECT_EQ(cudaMalloc(&data, bytes + 8 + 64), cudaSuccess);
    EXPECT_EQ(cudaMemset(data, 0xFF, bytes + 8 + 64), cudaSuccess);
  }
  DecodeWorkspace(DecodeWorkspace const&) = delete;
  DecodeWorkspace& operator=(DecodeWorkspace const&) = delete;
  ~DecodeWorkspace() { cudaFree(data); }
  void* begin() const { return data + 8; }
  bool intact() const {
    std::vector<unsigned char> behind(64);
    EXPECT_EQ(cudaMemcpy(behind.data(), data + 8 + bytes, 64, cudaMemcpyDeviceToHost), cudaSuccess);
    return std::count(behind.begin(), behind.end(), 0xFF) == 64;
  }
};

/// One launch over poisoned results; their bytes.
template <class T, class Kernel = DecodeFor<T>, class In = T>
void launch_decode(DecodeProblem<T, In>& x, std::int64_t splits, Device const& device,
                   std::vector<unsigned char>& result, std::vector<unsigned char>& sums) {
  SKIP_IF_LEFT_OUT(Kernel);
  DecodeArgs g = x.arguments();
  g.splits = splits;
  DecodeWorkspace const workspace(Kernel::workspace_bytes(g, device));
  g.workspace = workspace.begin();
  x.out.upload(), x.lse.upload();
  poison_shared_memory();
  g.out = x.out.begin(), g.lse = x.t.lse ? x.lse.begin() : nullptr;
  ASSERT_STREQ(Kernel::accepts(g, device).reason, "");
  ASSERT_EQ(Kernel::launch(g, device, nullptr), cudaSuccess);
  ASSERT_CUDA(cudaDeviceSynchronize());
  result.resize(x.out.host.size()), sums.resize(x.lse.host.size());
  ASSERT_CUDA(cudaMemcpy(result.data(), x.out.device, result.size(), cudaMemcpyDeviceToHost));
  ASSERT_CUDA(cudaMemcpy(sums.data(), x.lse.device, sums.size(), cudaMemcpyDeviceToHost));
  EXPECT_EQ(workspace.intact(), true) << "memory behind the workspace was written";
}

/// The grid's order follows the device; the bits do not.
template <class T, class Kernel, class In = T>
void expect_same_bits_on_any_device(DecodeCase const& t) {
  SKIP_IF_LEFT_OUT(Kernel);
  DecodeProblem<T, In> x(t);
  Device device = abi::query_device(abi::current_device());
  std::vector<unsigned char> first, first_sums, again, sums;
  launch_decode<T, Kernel, In>(x, 0, device, first, first_sums);
  for (int round = 0; round < 30; ++round) {
    device.sm_count = 1 + 7 * round;
    launch_decode<T, Kernel, In>(x, 0, device, again, sums);
    if (testing::Test::HasFailure()) return;
    EXPECT_EQ(again == first && sums == first_sums, true) << "round " << round;
  }
}

}  // namespace
