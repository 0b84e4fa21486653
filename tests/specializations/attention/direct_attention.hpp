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
std::vector<std::int64_t> wide_offsets(std::vector<int> const& offsets) {
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

std::vector<Sequence> sequences(Case const& t) {
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

double worst_attention_ratio = 0;

/// Runs a case for devices of 1, 3 and all multiprocessors, whose bits must agree, and compares
/// every element with float64.
///
/// With u = 2^-23, which covers the tensor cores' truncating additions, and M the largest |score|
/// or sum |scale||q||k| plus the terms of a row: an exponent is off by at most u(d + 24)M, so a
/// weight by e = expm1 of that plus 8u (exp2, its argument); rounding it to T adds unit(T), for
/// float16 at least 2^-25 of the row's largest. Sums of n weights or products add u(n + 8).
///
/// Float8 weights, 2^7 at a reference that is not above the row's largest, have 4 bits and lose at
/// most 2^-17 of the largest. An instruction aligns its 32 products and the sum so far to the
/// largest of these, M, and drops what is below 2^-13 M: 33·2^-13·M. Of values, blocks of keys come
/// last first, so that a sum so far is one over two runs of keys.
///
/// Of norms (error_norms.hpp) weights' roundings are shared, and sums no larger than over two runs
/// of keys: their error is u(n + 8) of that, or of the largest term.
template <class T, class Kernel = AttentionFor<T>, class In = T>
void run(Case const& t) {
  SKIP_IF_LEFT_OUT(Kernel);
  Device const real = abi::query_device(abi::current_device());
  ASSERT_GE(real.compute_major, 8) << "this suite needs a card of compute capability 8.0";
  std::ostringstream text;
  text << "batch" << t.batch << " heads" << t.heads << "/" << t.heads_kv << " q" << t.len_q << " kv"
       << t.len_kv << " d" << t.d << "/" << t.dv << " causal" << t.causal << t.top_left
       << " window " << t.left << ' ' << t.right << " scale " << t.scale << " cap " << t.softcap
       << " alibi" << t.alibi << " sinks" << t.sinks << " bias" << t.bias << " order "
       << static_cast<int>(t.order) << static_cast<int>(t.order_out) << " lengths "
       << t.lengths_q.size() << ' ' << t.lengths_kv.size() << " packed " << t.cu_q.size() << ' '
       << t.cu_kv.size() << (t.wide ? " wide" : "")
       << (std::is_same_v<T, __half> ? " half" : " bfloat16") << " descale " << t.descale;
  SCOPED_TRACE(text.str());
  bool const packed_q = !t.cu_q.empty(), packed_kv = !t.cu_kv.empty();
  auto const all = sequences(t);
  std::int64_t const batch = packed_q ? static_cast<std::int64_t>(t.cu_q.size()) - 1 : t.batch;
  Tensor4<In> q(packed_q ? 1 : batch, t.heads, t.len_q, t.d, t.order, 1, t.amplitude);
  Tensor4<In> k(packed_kv ? 1 : batch, t.heads_kv, t.len_kv, t.d, t.order, 2, 1);
  Tensor4<In> v(packed_kv ? 1 : batch, t.heads_kv, t.len_kv, t.dv, t.order, 3, 1);
  add_means(v);
  Tensor4<T> out(packed_q ? 1 : batch, t.heads, t.len_q, t.dv, t.order_out, 4, 1);
  Tensor4<float> lse(packed_q ? 1 : batch, t.heads, t.len_q, 1, Order::padded, 5, 1);
  BiasTensor const bias(t, batch);
  // What no sequence owns is NaN.
  auto const keep = [&](Tensor4<In>& x, bool packed, bool of_q) {
    for (std::int64_t b = 0; b < x.extent[0]; ++b)
      for (std::int64_t s = 0; s < x.extent[2]; ++s) {
        bool owned = false;
        for (auto const& e : all) {
          std::int64_t const begin = of_q ? e.begin_q : e.begin_kv;
          std::int64_t const length = of_q ? e.len_q : e.len_kv;
          owned = owned ||
                  (e.batch >= 0 && (packed || e.batch == b) && s >= begin && s < begin + length);
        }
        if (!owned)
          for (std::int64_t h = 0; h < x.extent[1]; ++h) x.poison(b, h, s, t.infinite);
      }
  };
  keep(q, packed_q, true), keep(k, packed_kv, false), keep(v, packed_kv, false);
  for (int j : t.bad_keys) v.poison(0, 0, j, t.infinite, t.bad_feature);
  std::vector<float> slopes, sinks;
  for (std::int64_t h = 0; h < t.heads; ++h) {
    slopes.push_back(0.25f / static_cast<float>(h + 1));
    sinks.push_back(static_cast<float>(h) * 2.5f - 1.0f);
  }
  Factors const factors(t, batch);
  DeviceArray<float> const alibi(slopes), sink(sinks);
  DeviceArray<int> const lengths_q(t.lengths_q), lengths_kv(t.lengths_kv), cu_q(t.cu_q),
      cu_kv(t.cu_kv);
  DeviceArray<std::int64_t> const wide_q(wide_offsets(t.cu_q)), wide_kv(wide_offsets(t.cu_kv));
  q.upload(), k.upload(), v.upload();
  out.forget(), lse.forget();

  AttentionArgs g;
  g.q = q.begin(), g.k = k.begin(), g.v = v.begin();
  g.type = dtype_of<In>(), g.type_out = dtype_of<T>();
  factors.pass_to(g);
  g.batch = batch, g.heads_q = t.heads, g.heads_kv = t.heads_kv;
  g.seqlen_q = t.len_q, g.seqlen_kv = t.len_kv, g.head_dim = t.d, g.head_dim_v = t.dv;
  for (int r = 0; r < 4; ++r) {
    g.q_stride[r] = q.stride[r], g.k_stride[r] = k.stride[r], g.v_stride[r] = v.stride[r];
    g.out_stride[r] = out.stride[r];
    if (r < 3) g.lse_stride[r] = lse.stride[r];
  }
  if (packed_q) g.q_stride[0] = g.out_stride[0] = g.lse_stride[0] = 0;
  if (packed_kv) g.k_stride[0] = g.v_stride[0] = 0;
  bias.pass_to(g);
  g.softmax_scale = t.scale == 0 ? 1 / std::sqrt(static_cast<double>(t.d)) : t.scale;
  g.softcap = t.softcap, g.causal = t.causal;
  g.causal_alignment = t.top_left ? CausalAlignment::top_left : CausalAlignment::bottom_right;
  g.window_left = t.left, g.window_right = t.right;
  g.lengths_q = lengths_q.data, g.lengths_kv = lengths_kv.data;
  g.lengths_q_stride[0] = g.lengths_kv_stride[0] = 1;
  g.cu_seqlens_q.data = cu_q.data, g.cu_seqlens_kv.data = cu_kv.data;
  if (t.wide) g.cu_seqlens_q = {wide_q.data, true, 2}, g.cu_seqlens_kv = {wide_kv.data, true, 2};
  if (t.alibi) g.alibi = alibi.data, g.alibi_stride[1] = 1;
  if (t.sinks) g.sinks = sink.data, g.sinks_stride = 1;
  mislead(g);

  std::vector<unsigned char> first, first_lse;
  for (int sm_count : {real.sm_count, 1, 3}) {
    SCOPED_TRACE("multiprocessors " + std::to_string(sm_count));
    Device d = real;
    d.sm_count = sm_count;
    out.upload(), lse.upload();
    poison_shared_memory();
    g.out = out.begin(), g.lse = t.lse ? lse.begin() : nullptr;
    ASSERT_STREQ(Kernel::accepts(g, d).reason, "");
    ASSERT_EQ(Kernel::launch(g, d, nullptr), cudaSuccess);
    ASSERT_CUDA(cudaDeviceSynchronize());
    std::vector<unsigned char> result(out.host.size()), sums(lse.host.size());
    ASSERT_CUDA(cudaMemcpy(result.data(), out.device, result.size(), cudaMemcpyDeviceToHost));
    ASSERT_CUDA(cudaMemcpy(sums.data(), lse.device, sums.size(), cudaMemcpyDeviceToHost));
    if (!first.empty()) {
      ASSERT_EQ(result == first && sums == first_lse, true) << "bits depend on the device";
      continue;
    }
    first = result, first_lse = sums;
  }
  auto untouched = out.host, untouched_lse = lse.host;
  constexpr bool float8 = std::is_same_v<In, E4>;
  double const u = 0x1p-23, unit = rounding<T>(), dropped = float8 ? 33 * 0x1p-13 : 0;
  double const unit_weight = float8 ? 0x1p-4 : unit;
  double const smallest = std::is_same_v<T, __half> ? 0x1p-25 : 0;
  double const smallest_weight = float8 ? 0x1p-17 : std::is_same_v<T, __half> ? 0x1p-25 : 0x1p-126;
  double worst = 0;
  auto const check = [&](double got, double expected, double bound, char const* what,
                         std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t c) {
    double ratio = std::abs(got - expected) / bound;
    if (std::isnan(expected) || std::isinf(expected))
      ratio = (std::isnan(expected) ? std::isnan(got) : got == expected) ? 0 : 2;
    if (!(ratio <= 1) && !testing::Test::HasFailure())
      ADD_FAILURE() << what << " [" << b << ", " << h << ", " << i << ", " << c << "] is " << got
                    << ", expected " << expected << " ± " << bound;
    if (!(ratio <= worst)) worst = std::isnan(ratio) ? infinity : ratio;
  };
  ResultNorms<T> norms;
  for (auto const& e : all) {
    std::int64_t const bq = packed_q ? 0 : e.batch, bk = packed_kv ? 0 : e.batch;
    std::int64_t const off = t.top_left ? 0 : e.len_kv - e.len_q;
    for (std::int64_t h = 0; h < t.heads; ++h)
      for (std::int64_t i = 0; i < e.rows; ++i, norms.end_row()) {
        std::int64_t const hk = h / (t.heads / t.heads_kv), iq = e.begin_q + i;
        std::vector<std::pair<std::int64_t, double>> score;
        double const scale = g.softmax_scale * factors(0, e.batch, hk) * factors(1, e.batch, hk);
        double const value_scale = factors(2, e.batch, hk);
        double top = -infinity, magnitude = 0, dropped_score = 0;
        for (std::int64_t j = 0; i < e.len_q && j < e.len_kv; ++j) {
          if ((t.causal && j > i + off) || (t.left >= 0 && j < i + off - t.left) ||
              (t.right >= 0 && j > i + off + t.right))
            continue;
          double s = 0, size = 0, before = 0, most = 0, lost = 0;
          for (std::int64_t c = 0; c < t.d; ++c) {
            double const x = q.value(bq, h, iq, c) * k.value(bk, hk, e.begin_kv + j, c);
            s += x, size += std::abs(x), most = std::max(most, std::abs(x));
            if (c % 32 != 31 && c + 1 != t.d) continue;
            lost += dropped * std::max({most, std::abs(before), std::abs(s)});
            before = s, most = 0;
          }
          s *= scale, size *= std::abs(scale);
          dropped_score = std::max(dropped_score, lost * std::abs(scale));
          if (t.softcap > 0) s = t.softcap * std::tanh(s / t.softcap);
          if (t.bias != 0) s += bias.value(e.batch, h, i, j), size += 3;
          if (s == -infinity) continue;
          if (t.alibi) {
            double const away =
                slopes[static_cast<std::size_t>(h)] * std::abs(static_cast<double>(i + off - j));
            s -= away, size += away;
          }
          score.push_back({j, s});
          top = std::max(top, s), magnitude = std::max(magnitude, size);
        }
        double sum = 0, full = 0;
        for (auto& [j, s] : score) sum += s = std::exp(s - top);
        full = sum;
        if (t.sinks && !score.empty())
          full += std::exp(sinks[static_cast<std::size_t>(h)] - top), magnitude += 8;
        auto const n = static_cast<double>(score.size());
        double const weight =
            std::expm1(u * (static_cast<double>(t.d) + 24) * (magnitude + 1) + dropped_score) +
            8 * u;
        double const sums = u * (n + 8);
        double const one_way = is_narrow(score, unit_weight) ? unit_weight : 0;
        if (t.lse) {
          double const expected = score.empty() ? -infinity : top + std::log(full);
          std::size_t const at = lse.offset(bq, h, iq, 0) * sizeof(float);
          float got;
          std::memcpy(&got, &first_lse[at], sizeof got);
          std::memcpy(&untouched_lse[at], &got, sizeof got);
          check(got, expected, weight + sums + 8 * u * (std::abs(expected) + magnitude + 1), "lse",
                e.batch, h, i, 0);
        }
        for (std::int64_t c = 0; c < t.dv; ++c) {
          double y = 0, size = 0, largest = 0, low = 0, high = 0, most = 0, squares = 0;
          for (auto const& [j, p] : score) {
            double const x = value_scale * v.value(bk, hk, e.begin_kv + j, c);
            y += p / full * x, size += p / full * std::abs(x),
                largest = std::max(largest, std::abs(x));
            squares += p / full * x * (p / full * x);
            most = std::max(most, p / full * std::abs(x));
            low = std::min(low, y), high = std::max(high, y);
          }
          double bound = size * (weight + sums + unit_weight) +
                         std::abs(y) * (weight + sums + 4 * u) +
                         n * smallest_weight * largest / std::max(sum, 1.0);
          double const steady =
              bound - size * (sums + unit_weight) + one_way * std::abs(y) +
              (sums + dropped * static_cast<double>(e.len_kv / 32 + 8) * (1 + 0x1p-4)) *
                  std::max(most, 2 * (high - low));
          bound += dropped * static_cast<double>(e.len_kv / 32 + 8) *
                   std::max(most, 2 * (high - low)) * (1 + 0x1p-4);
          bound += unit * (std::abs(y) + bound) + 0x1p-25;
          std::size_t const at = out.offset(bq, h, iq, c) * sizeof(T);
          T got;
          std::memcpy(&got, &first[at], sizeof got);
          std::memcpy(&untouched[at], &got, sizeof got);
          check(wide(got), y, bound, "out", e.batch, h, i, c);
          norms.add(
              wide(got), y,
              {steady + smallest, test::rounding_variance(std::abs(y) + steady, unit, 2 * smallest),
               unit_weight * unit_weight / 3 * squares});
        }
      }
  }
  norms.check(std::string("direct ") + Kernel::name, "out");
  test::keep_worst_ratio(std::string("direct ") + Kernel::name, worst);
  worst_attention_ratio = std::max(worst_attention_ratio, worst);
  EXPECT_EQ(untouched == first, true) << "memory around out was written";
  EXPECT_EQ(!t.lse || untouched_lse == first_lse, true) << "memory around lse was written";
}

}  // namespace
