// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Attention kernels called directly: poisoned tensors, cases, and the comparison of a kernel's
/// result with float64.
#pragma once

#include <array>
#include <attikos/abi/attention_cuda.hpp>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "attention/weights_and_values.hpp"
#include "gemm/direct_matrix.hpp"

namespace {

using abi::AttentionArgs;

template <class T>
using AttentionFor = std::conditional_t<std::is_same_v<T, __half>, abi::AttentionSm90WgmmaF16,
                                        abi::AttentionSm90WgmmaBf16>;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// How a tensor [batch, heads, positions, features] lies in memory.
enum class Order { heads_first, positions_first, padded, odd };

/// A tensor in memory of which every other byte is 0xFF: NaN in every floating type.
template <class T>
struct Tensor4 {
  static constexpr std::int64_t unit = sizeof(T) == 1 ? 16 : 8;  ///< of aligned strides
  std::int64_t extent[4], stride[4], origin = unit;
  std::vector<unsigned char> host;
  unsigned char* device = nullptr;

  Tensor4(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d, Order order,
          std::uint32_t seed, double amplitude)
      : extent{b, h, s, d} {
    bool const odd = order == Order::odd;
    std::int64_t const row = odd                      ? d * 2 + 1
                             : order == Order::padded ? (d + unit - 1) / unit * unit + 3 * unit
                                                      : (d + unit - 1) / unit * unit;
    stride[3] = odd ? 2 : 1;
    if (order == Order::positions_first) {
      stride[2] = row * h, stride[1] = row, stride[0] = stride[2] * s;
    } else {
      stride[2] = row, stride[1] = row * (s + (order == Order::padded ? 3 : 0));
      stride[0] = stride[1] * h;
    }
    if (odd) origin = 3;
    host.assign(static_cast<std::size_t>(origin + b * h * (s + 3) * row + 64) * sizeof(T), 0xFF);
    for (std::int64_t i = 0; i < b; ++i)
      for (std::int64_t j = 0; j < h; ++j)
        for (std::int64_t k = 0; k < s; ++k)
          for (std::int64_t l = 0; l < d; ++l) {
            auto const n = static_cast<std::uint32_t>(((i * h + j) * s + k) * d + l);
            at(i, j, k, l) =
                T(static_cast<float>((mix(seed ^ mix(n)) % 4097 / 2048.0 - 1.0) * amplitude));
          }
  }
  Tensor4(Tensor4 const&) = delete;
  Tensor4& operator=(Tensor4 const&) = delete;
  ~Tensor4() { cudaFree(device); }

  std::size_t offset(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) const {
    return static_cast<std::size_t>(origin + b * stride[0] + h * stride[1] + s * stride[2] +
                                    d * stride[3]);
  }
  T& at(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) {
    return reinterpret_cast<T*>(host.data())[offset(b, h, s, d)];
  }
  double value(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) const {
    T const& x = reinterpret_cast<T const*>(host.data())[offset(b, h, s, d)];
    if constexpr (sizeof(T) == 1) {  // the conversion is slow on a host
      static auto const codes = [] {
        std::array<double, 256> all;
        for (std::size_t n = 0; n < 256; ++n) {
          auto const code = static_cast<unsigned char>(n);
          T stored;
          std::memcpy(static_cast<void*>(&stored), &code, 1);
          all[n] = wide(stored);
        }
        return all;
      }();
      unsigned char code;
      std::memcpy(&code, static_cast<void const*>(&x), 1);
      return codes[code];
    } else {
      return wide(x);
    }
  }
  /// A position becomes NaN, or infinite, in one feature or, -1, all.
  void poison(std::int64_t b, std::int64_t h, std::int64_t s, bool infinite = false,
              std::int64_t feature = -1) {
    for (std::int64_t d = 0; d < extent[3]; ++d) {
      if (feature >= 0 && d != feature) continue;
      if (infinite)
        at(b, h, s, d) = T(std::numeric_limits<float>::infinity());
      else
        std::memset(static_cast<void*>(&at(b, h, s, d)), 0xFF, sizeof(T));
    }
  }
  void forget() { std::fill(host.begin(), host.end(), 0xFF); }
  void upload() {
    if (device == nullptr) {
      ASSERT_CUDA(cudaMalloc(&device, host.size()));
    }
    ASSERT_CUDA(cudaMemcpy(device, host.data(), host.size(), cudaMemcpyHostToDevice));
  }
  T* begin() const { return reinterpret_cast<T*>(device) + origin; }
};

template <class T>
struct DeviceArray {
  T* data = nullptr;
  explicit DeviceArray(std::vector<T> const& values) {
    if (values.empty()) return;
    EXPECT_EQ(cudaMalloc(&data, values.size() * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  DeviceArray(DeviceArray const&) = delete;
  DeviceArray& operator=(DeviceArray const&) = delete;
  ~DeviceArray() { cudaFree(data); }
};

/// Offsets of 64 bits between others that nobody may read.
inline std::vector<std::int64_t> wide_offsets(std::vector<int> const& offsets) {
  std::vector<std::int64_t> all;
  for (int offset : offsets) all.insert(all.end(), {offset, -1});
  return all;
}

struct Case {
  std::int64_t batch = 1, heads = 2, heads_kv = 1, len_q = 100, len_kv = 100, d = 64, dv = 64;
  bool causal = false, top_left = false;
  std::int64_t left = -1, right = -1;
  double scale = 0, softcap = 0, amplitude = 2;
  bool alibi = false, sinks = false, lse = true;
  int bias = 0;  ///< number in bias_kinds, 0: none
  Order order = Order::heads_first, order_out = Order::heads_first;
  std::vector<int> lengths_q = {}, lengths_kv = {}, cu_q = {}, cu_kv = {};
  bool wide = false;               ///< offsets of 64 bits, of which every other one counts
  std::vector<int> bad_keys = {};  ///< whose values are NaN in the first head
  std::int64_t bad_feature = -1;   ///< the only one of theirs that is; -1: all
  bool infinite = false;           ///< instead of NaN: bad keys' values and what no sequence owns
  int descale = 0;                 ///< float8 factors; 1: one for all, 2: per batch and key head
  float factor_q = 1;              ///< on top of that of q
};

/// One sequence as the oracle sees it: where it lies and which pairs it has.
struct Sequence {
  std::int64_t batch, begin_q, begin_kv, rows, len_q, len_kv;
};

inline std::vector<Sequence> sequences(Case const& t) {
  std::vector<Sequence> all;
  std::int64_t const count =
      t.cu_q.empty() ? t.batch : static_cast<std::int64_t>(t.cu_q.size()) - 1;
  std::int64_t at = 0;
  for (std::int64_t b = 0; b < count; ++b) {
    auto const n = static_cast<std::size_t>(b);
    Sequence s{b, 0, 0, t.len_q, t.len_q, t.len_kv};
    if (!t.cu_q.empty()) {
      s.begin_q = t.cu_q[n], s.rows = s.len_q = t.cu_q[n + 1] - t.cu_q[n];
      if (s.begin_q > at) all.push_back({-1, at, 0, s.begin_q - at, 0, 0});
      at = t.cu_q[n + 1];
    }
    if (!t.cu_kv.empty()) s.begin_kv = t.cu_kv[n], s.len_kv = t.cu_kv[n + 1] - t.cu_kv[n];
    if (!t.lengths_q.empty()) s.len_q = t.lengths_q[n];
    if (!t.lengths_kv.empty()) s.len_kv = t.lengths_kv[n];
    all.push_back(s);
  }
  if (!t.cu_q.empty() && at < t.len_q) all.push_back({-1, at, 0, t.len_q - at, 0, 0});
  return all;
}

/// A bias's element type, what it has of its own, and how it lies in memory. `excludes`: some of it
/// is -inf, all of some rows.
struct BiasKind {
  DType type;
  bool batches, heads, queries;
  Order order;
  bool excludes = false;
};
constexpr BiasKind bias_kinds[] = {
    {DType::float32, false, false, false, Order::odd},  // stands for none
    {DType::bfloat16, false, false, true, Order::odd},
    {DType::float32, true, true, true, Order::padded},
    {DType::bfloat16, false, false, true, Order::heads_first},
    {DType::float16, false, true, true, Order::padded},
    {DType::bfloat16, true, false, true, Order::padded},
    {DType::float32, false, true, true, Order::heads_first, true},
    {DType::bfloat16, true, true, false, Order::padded},
    {DType::float16, true, true, true, Order::positions_first, true},
    {DType::float16, false, false, true, Order::odd, true},
    {DType::float32, true, false, false, Order::odd, true},
    {DType::float16, false, true, false, Order::odd, true}};
constexpr int last_bias = static_cast<int>(std::size(bias_kinds)) - 1;

/// The bias of a case; what no pair of a sequence owns is NaN.
struct BiasTensor {
  BiasKind kind;
  std::optional<Tensor4<float>> f32;
  std::optional<Tensor4<__half>> f16;
  std::optional<Tensor4<__nv_bfloat16>> bf16;

  BiasTensor(Case const& t, std::int64_t batch) : kind(bias_kinds[t.bias]) {
    if (t.bias == 0) return;
    auto const make = [&](auto& tensor) {
      auto& x = tensor.emplace(kind.batches ? batch : 1, kind.heads ? t.heads : 1,
                               kind.queries ? t.len_q : 1, t.len_kv, kind.order, 6, 3);
      for (auto const& e : sequences(t)) {
        if (e.batch < 0 || !(kind.batches || kind.excludes)) continue;
        std::int64_t const b = kind.batches ? e.batch : 0;
        for (std::int64_t h = 0; h < x.extent[1]; ++h)
          for (std::int64_t i = 0; i < x.extent[2]; ++i)
            for (std::int64_t j = 0; j < t.len_kv; ++j) {
              auto& at = x.at(b, h, i, j);
              if (kind.excludes &&
                  (i % 37 == 5 || mix(static_cast<std::uint32_t>(i * 999 + j)) % 5 == 0))
                at = std::decay_t<decltype(at)>(-std::numeric_limits<float>::infinity());
              if (kind.batches && ((kind.queries && i >= e.len_q) || j >= e.len_kv))
                std::memset(static_cast<void*>(&at), 0xFF, sizeof at);
            }
      }
      x.upload();
    };
    if (kind.type == DType::float32) make(f32);
    if (kind.type == DType::float16) make(f16);
    if (kind.type == DType::bfloat16) make(bf16);
  }
  double value(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    auto const of = [&](auto const& x) {
      return x->value(kind.batches ? b : 0, kind.heads ? h : 0, kind.queries ? i : 0, j);
    };
    return f32 ? of(f32) : f16 ? of(f16) : bf16 ? of(bf16) : 0;
  }
  void pass_to(AttentionArgs& g) const {
    auto const pass = [&](auto const& x) {
      if (!x) return;
      g.bias = x->begin(), g.type_bias = kind.type;
      for (int r = 0; r < 4; ++r) g.bias_stride[r] = x->extent[r] == 1 && r < 3 ? 0 : x->stride[r];
    };
    pass(f32), pass(f16), pass(bf16);
  }
};

/// What float8 elements of q, k and v of a case stand for.
struct Factors {
  int kind;  ///< 0: themselves; 1: a factor for all; 2: for each batch and key head
  std::int64_t heads_kv;
  std::vector<float> all[3];
  std::optional<DeviceArray<float>> device[3];

  template <class C>
  Factors(C const& t, std::int64_t batch) : kind(t.descale), heads_kv(t.heads_kv) {
    for (std::size_t n = 0; n < 3; ++n) {
      for (std::int64_t e = 0; kind != 0 && e < (kind == 1 ? 1 : batch * heads_kv); ++e)
        all[n].push_back(0.5f + 0.25f * static_cast<float>((e * 5 + static_cast<int>(n)) % 7));
      if (n == 0)
        for (float& x : all[0]) x *= t.factor_q;
      device[n].emplace(all[n]);
    }
  }
  double operator()(std::size_t n, std::int64_t b, std::int64_t h_kv) const {
    if (kind == 0 || b < 0) return 1;
    return all[n][kind == 1 ? 0 : static_cast<std::size_t>(b * heads_kv + h_kv)];
  }
  void pass_to(AttentionArgs& g) const {
    g.descale_q = device[0]->data, g.descale_k = device[1]->data, g.descale_v = device[2]->data;
    if (kind == 2)
      for (auto* stride : {&g.descale_q_stride, &g.descale_k_stride, &g.descale_v_stride})
        (*stride)[0] = heads_kv, (*stride)[1] = 1;
  }
};

}  // namespace
