// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Kernels of attention's gradients called directly: a case with what the forward pass would have
/// written. compare_gradients.hpp runs it.
#pragma once

#include <attikos/abi/attention_backward_cuda.hpp>
#include <memory>
#include <optional>

#include "attention/direct_attention.hpp"

namespace {

using abi::AttentionBackwardArgs;

/// What a kernel's tensors are made of. `units`: how many times those of IEEE arithmetic its errors
/// may be, and the oracle's with them.
template <class T, int Units = 1>
struct Arithmetic {
  using Element = T;
  static constexpr double units = Units;
};
template <class Kernel>
struct ArithmeticOf : Arithmetic<__nv_bfloat16> {};
template <>
struct ArithmeticOf<abi::AttentionBackwardSm90WgmmaF16> : Arithmetic<__half> {};
template <>
struct ArithmeticOf<abi::AttentionBackwardSm80MmaF16> : Arithmetic<__half> {};
template <>
struct ArithmeticOf<abi::AttentionBackwardSm80ShortF16> : Arithmetic<__half> {};
template <>
struct ArithmeticOf<abi::AttentionBackwardSm80SimtF32> : Arithmetic<float> {};
/// Each factor is off by 2^-21, what the tensor cores cut off of its lesser part, or 8 u, and the
/// lesser parts' product of up to 4 u is left out: 20 u of a product. Of each eight products three
/// sums are cut off by 2 u or less. Both together stay below twice (n + 10) u.
template <>
struct ArithmeticOf<abi::AttentionBackwardSm80MmaTf32x3> : Arithmetic<float, 2> {};
/// The oracle computes in float64 as well.
template <>
struct ArithmeticOf<abi::AttentionBackwardSm80MmaF64> : Arithmetic<double, 2> {};
template <class Kernel>
using ElementOf = typename ArithmeticOf<Kernel>::Element;

/// What calls for gradients have beside a case of attention.
struct Beside {
  bool ordered = true;
  /// A boolean mask: 1 of queries and keys, 2 of all, 3 of batch and keys. It hides all keys from
  /// some queries.
  int mask = 0;
  /// The type of the gradient of the bias, which then has all extents of the scores.
  std::optional<DType> d_bias = {};
  bool unscaled = false;  ///< the scale is 0
  int shared_bytes = 0;   ///< the most that a block may have; 0: as on the real device
};

/// As for attention.
inline void mislead(AttentionBackwardArgs& a) {
  AttentionArgs& g = a.forward;
  mislead(g);
  bool const packed_q = g.cu_seqlens_q.data != nullptr, packed_kv = g.cu_seqlens_kv.data != nullptr;
  std::int64_t const q[] = {packed_q ? 0 : g.batch, g.heads_q, g.seqlen_q, g.head_dim};
  std::int64_t const kv[] = {packed_kv ? 0 : g.batch, g.heads_kv, g.seqlen_kv, g.head_dim};
  std::int64_t const pairs[] = {g.batch, g.heads_q, g.seqlen_q, g.seqlen_kv};
  for (int r = 0; r < 4; ++r) {
    mislead(q[r], {&a.dq_stride[r]});
    mislead(kv[r], {&a.dk_stride[r]});
    mislead(r == 3 ? g.head_dim_v : q[r], {&a.dout_stride[r]});
    mislead(r == 3 ? g.head_dim_v : kv[r], {&a.dv_stride[r]});
    mislead(pairs[r], {&a.d_bias_stride[r]});
  }
}

/// Memory of the device that begins 8 bytes behind a multiple of 256, full of 0xFF, and what lies
/// behind it.
class DirectWorkspace {
 public:
  explicit DirectWorkspace(std::size_t bytes) : bytes_(bytes) {
    EXPECT_EQ(cudaMalloc(&memory_, bytes + 8 + guard), cudaSuccess);
    forget();
    EXPECT_EQ(cudaMemset(memory_ + 8 + bytes, 0xA5, guard), cudaSuccess);
  }
  DirectWorkspace(DirectWorkspace const&) = delete;
  DirectWorkspace& operator=(DirectWorkspace const&) = delete;
  ~DirectWorkspace() { cudaFree(memory_); }
  void* begin() const { return memory_ + 8; }
  void forget() { EXPECT_EQ(cudaMemset(memory_, 0xFF, bytes_ + 8), cudaSuccess); }
  bool is_kept() const {
    std::vector<unsigned char> behind(guard);
    EXPECT_EQ(cudaMemcpy(behind.data(), memory_ + 8 + bytes_, guard, cudaMemcpyDeviceToHost),
              cudaSuccess);
    return std::count(behind.begin(), behind.end(), 0xA5) == guard;
  }

 private:
  static constexpr std::ptrdiff_t guard = 256;
  std::size_t bytes_;
  unsigned char* memory_ = nullptr;
};

/// The gradient of a bias, of one of four types, or none.
struct BiasGradient {
  std::optional<Tensor4<float>> f32;
  std::optional<Tensor4<__half>> f16;
  std::optional<Tensor4<__nv_bfloat16>> bf16;
  std::optional<Tensor4<double>> f64;

  BiasGradient(Case const& t, std::optional<DType> type, std::int64_t batch) {
    auto const make = [&](auto& x, DType of) {
      if (type != of) return;
      x.emplace(batch, t.heads, t.len_q, t.len_kv, t.order_out, 11, 1);
      x->forget(), x->upload();
    };
    make(f32, DType::float32), make(f16, DType::float16), make(bf16, DType::bfloat16);
    make(f64, DType::float64);
  }
  /// Calls `f` with the one there is, if any.
  template <class F>
  void visit(F const& f) const {
    auto const call = [&](auto const& x) {
      if (x) f(*x);
    };
    call(f32), call(f16), call(bf16), call(f64);
  }
};

/// Which pairs a boolean mask leaves, anything but 0 in one byte each; what lies around is not 0.
struct MaskTensor {
  int kind;
  std::optional<Tensor4<std::int8_t>> bytes;

  MaskTensor(Case const& t, int which, std::int64_t batch) : kind(which) {
    if (kind == 0) return;
    Order const order = kind == 1 ? Order::odd : Order::padded;
    auto& x = bytes.emplace(kind == 1 ? 1 : batch, kind == 2 ? t.heads : 1, kind == 3 ? 1 : t.len_q,
                            t.len_kv, order, 12, 0);
    std::uint32_t n = 0;
    for (std::int64_t b = 0; b < x.extent[0]; ++b)
      for (std::int64_t h = 0; h < x.extent[1]; ++h)
        for (std::int64_t i = 0; i < x.extent[2]; ++i)
          for (std::int64_t j = 0; j < t.len_kv; ++j) {
            std::uint32_t const random = mix(++n + 77);
            bool const out = random % 4 == 0 || (kind != 3 && i % 41 == 3);
            x.at(b, h, i, j) = static_cast<std::int8_t>(out ? 0 : 1 + random % 100);
          }
    x.upload();
  }
  bool leaves(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return kind == 0 ||
           bytes->value(kind == 1 ? 0 : b, kind == 2 ? h : 0, kind == 3 ? 0 : i, j) != 0;
  }
  void pass_to(AttentionArgs& g) const {
    if (!bytes) return;
    g.mask = reinterpret_cast<std::uint8_t const*>(bytes->begin());
    for (int r = 0; r < 4; ++r)
      g.mask_stride[r] = bytes->extent[r] == 1 && r < 3 ? 0 : bytes->stride[r];
  }
};

/// A score as the oracle has it: how large the numbers are that it comes of, and its derivative by
/// scale times q·k.
struct Score {
  double value, terms, derivative;
};

/// A case of which out and lse are what the forward pass stores. `order` is that of q, k, v and
/// dout, `order_out` that of out, lse and the gradients.
template <class T>
struct BackwardProblem {
  using Lse = std::conditional_t<std::is_same_v<T, double>, double, float>;

  Case t;
  Beside beside;
  bool packed_q, packed_kv;
  std::int64_t batch;
  std::vector<Sequence> all;
  std::vector<float> sinks, slopes;
  Tensor4<T> q, k, v, dout, out, dq, dk, dv;
  Tensor4<Lse> lse;
  Tensor4<float> d_sinks;
  BiasTensor bias;
  BiasGradient d_bias;
  MaskTensor mask;
  DeviceArray<float> sink, alibi;
  DeviceArray<int> lengths_q, lengths_kv, cu_q, cu_kv;
  DeviceArray<std::int64_t> wide_q, wide_kv;

  /// `same`: another problem of this case, from which out and lse are taken.
  explicit BackwardProblem(Case const& problem, Beside const& more = {},
                           BackwardProblem const* same = nullptr)
      : t(problem),
        beside(more),
        packed_q(!t.cu_q.empty()),
        packed_kv(!t.cu_kv.empty()),
        batch(packed_q ? static_cast<std::int64_t>(t.cu_q.size()) - 1 : t.batch),
        all(sequences(t)),
        sinks(some_sinks(t.heads)),
        slopes(some_slopes(t.heads)),
        q(packed_q ? 1 : batch, t.heads, t.len_q, t.d, t.order, 1, t.amplitude),
        k(packed_kv ? 1 : batch, t.heads_kv, t.len_kv, t.d, t.order, 2, 1),
        v(packed_kv ? 1 : batch, t.heads_kv, t.len_kv, t.dv, t.order, 3, 1),
        dout(packed_q ? 1 : batch, t.heads, t.len_q, t.dv, t.order, 4, 1),
        out(packed_q ? 1 : batch, t.heads, t.len_q, t.dv, t.order_out, 5, 1),
        dq(packed_q ? 1 : batch, t.heads, t.len_q, t.d, t.order_out, 6, 1),
        dk(packed_kv ? 1 : batch, t.heads_kv, t.len_kv, t.d, t.order_out, 7, 1),
        dv(packed_kv ? 1 : batch, t.heads_kv, t.len_kv, t.dv, t.order_out, 8, 1),
        lse(packed_q ? 1 : batch, t.heads, t.len_q, 1, t.order_out, 9, 1),
        d_sinks(1, 1, t.heads, 1, t.order_out, 10, 1),
        bias(t, batch),
        d_bias(t, beside.d_bias, batch),
        mask(t, beside.mask, batch),
        sink(sinks),
        alibi(slopes),
        lengths_q(t.lengths_q),
        lengths_kv(t.lengths_kv),
        cu_q(t.cu_q),
        cu_kv(t.cu_kv),
        wide_q(wide_offsets(t.cu_q)),
        wide_kv(wide_offsets(t.cu_kv)) {
    out.forget(), lse.forget();
    for (auto* x : {&dq, &dk, &dv}) x->forget();
    d_sinks.forget();
    // What no sequence owns is NaN.
    keep(q, packed_q, true), keep(dout, packed_q, true);
    keep(k, packed_kv, false), keep(v, packed_kv, false);
    if (same == nullptr)
      forward();
    else
      out.host = same->out.host, lse.host = same->lse.host;
    for (auto* x : {&q, &k, &v, &dout, &out, &dq, &dk, &dv}) x->upload();
    lse.upload(), d_sinks.upload();
  }

  static std::vector<float> some_sinks(std::int64_t heads) {
    std::vector<float> all;
    for (std::int64_t h = 0; h < heads; ++h) all.push_back(static_cast<float>(h % 3) * 2.5f - 1.0f);
    return all;
  }
  static std::vector<float> some_slopes(std::int64_t heads) {
    std::vector<float> all;
    for (std::int64_t h = 0; h < heads; ++h) all.push_back(0.25f / static_cast<float>(h + 1));
    return all;
  }

  void keep(Tensor4<T>& x, bool packed, bool of_q) const {
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
  }

  double scale() const {
    if (beside.unscaled) return 0;
    return t.scale == 0 ? 1 / std::sqrt(static_cast<double>(t.d)) : t.scale;
  }
  std::int64_t ahead(Sequence const& e, std::int64_t i, std::int64_t j) const {
    return j - i - (t.top_left ? 0 : e.len_kv - e.len_q);
  }
  bool sees(Sequence const& e, std::int64_t h, std::int64_t i, std::int64_t j) const {
    std::int64_t const by = ahead(e, i, j);
    return !(t.causal && by > 0) && !(t.left >= 0 && by < -t.left) &&
           !(t.right >= 0 && by > t.right) && mask.leaves(e.batch, h, i, j) &&
           (t.bias == 0 || bias.value(e.batch, h, i, j) != -infinity);
  }
  /// Of a pair that is seen, whose product times the scale is `x`.
  Score score(Sequence const& e, std::int64_t h, std::int64_t i, std::int64_t j, double x) const {
    Score s{x, 0, 1};
    if (t.softcap > 0) {
      double const capped = std::tanh(x / t.softcap);
      s = {t.softcap * capped, 0, 1 - capped * capped};
    }
    s.terms = std::abs(s.value);
    if (t.bias != 0) {
      double const b = bias.value(e.batch, h, i, j);
      s.value += b, s.terms += std::abs(b);
    }
    if (t.alibi) {
      double const away =
          slopes[static_cast<std::size_t>(h)] * std::abs(static_cast<double>(ahead(e, i, j)));
      s.value -= away, s.terms += away;
    }
    return s;
  }

  /// Rows [begin, begin + count) of a head, one after the other.
  template <class Element>
  static std::vector<double> rows(Tensor4<Element> const& x, std::int64_t b, std::int64_t h,
                                  std::int64_t begin, std::int64_t count) {
    std::vector<double> values;
    for (std::int64_t s = begin; s < begin + count; ++s)
      for (std::int64_t c = 0; c < x.extent[3]; ++c) values.push_back(x.value(b, h, s, c));
    return values;
  }
  /// Sum of the products of rows i and j, and of their magnitudes.
  static std::pair<double, double> dot(std::vector<double> const& x, std::int64_t i,
                                       std::vector<double> const& y, std::int64_t j,
                                       std::int64_t width) {
    // Four sums that do not wait for one another: much of what the tests take is taken here.
    double sum[4] = {}, size[4] = {};
    auto const* const a = &x[static_cast<std::size_t>(i * width)];
    auto const* const b = &y[static_cast<std::size_t>(j * width)];
    auto const add = [&](int to, std::int64_t c) {
      double const product = a[c] * b[c];
      sum[to] += product, size[to] += std::abs(product);
    };
    std::int64_t c = 0;
    for (; c + 4 <= width; c += 4) add(0, c), add(1, c + 1), add(2, c + 2), add(3, c + 3);
    for (; c < width; ++c) add(0, c);
    return {(sum[0] + sum[1]) + (sum[2] + sum[3]), (size[0] + size[1]) + (size[2] + size[3])};
  }

  /// out and lse, rounded as they are stored.
  void forward() {
    for (auto const& e : all)
      for (std::int64_t h = 0; e.batch >= 0 && h < t.heads; ++h) {
        std::int64_t const bq = packed_q ? 0 : e.batch, bk = packed_kv ? 0 : e.batch;
        std::int64_t const hk = h / (t.heads / t.heads_kv);
        auto const qs = rows(q, bq, h, e.begin_q, e.len_q),
                   ks = rows(k, bk, hk, e.begin_kv, e.len_kv),
                   vs = rows(v, bk, hk, e.begin_kv, e.len_kv);
        for (std::int64_t i = 0; i < e.len_q; ++i) {
          std::vector<double> weights(static_cast<std::size_t>(e.len_kv), -infinity);
          double top = -infinity, sum = 0;
          for (std::int64_t j = 0; j < e.len_kv; ++j)
            if (sees(e, h, i, j))
              top = std::max(top,
                             weights[static_cast<std::size_t>(j)] =
                                 score(e, h, i, j, dot(qs, i, ks, j, t.d).first * scale()).value);
          bool const empty = top == -infinity;
          for (double& w : weights) sum += w = empty ? 0 : std::exp(w - top);
          if (t.sinks && !empty) sum += std::exp(sinks[static_cast<std::size_t>(h)] - top);
          lse.at(bq, h, e.begin_q + i, 0) =
              empty ? -std::numeric_limits<Lse>::infinity() : static_cast<Lse>(top + std::log(sum));
          std::vector<double> y(static_cast<std::size_t>(t.dv));
          auto const* value = vs.data();
          for (double const w : weights)
            for (double& sum_of : y) sum_of += w * *value++;
          for (std::int64_t c = 0; c < t.dv; ++c)
            out.at(bq, h, e.begin_q + i, c) =
                T(static_cast<Lse>(empty ? 0 : y[static_cast<std::size_t>(c)] / sum));
        }
      }
  }

  AttentionBackwardArgs arguments() const {
    AttentionBackwardArgs a;
    AttentionArgs& g = a.forward;
    g.q = q.begin(), g.k = k.begin(), g.v = v.begin(), g.out = out.begin(), g.lse = lse.begin();
    a.dout = dout.begin(), a.dq = dq.begin(), a.dk = dk.begin(), a.dv = dv.begin();
    g.type = g.type_out = dtype_of<T>();
    g.batch = batch, g.heads_q = t.heads, g.heads_kv = t.heads_kv;
    g.seqlen_q = t.len_q, g.seqlen_kv = t.len_kv, g.head_dim = t.d, g.head_dim_v = t.dv;
    for (int r = 0; r < 4; ++r) {
      g.q_stride[r] = q.stride[r], g.k_stride[r] = k.stride[r], g.v_stride[r] = v.stride[r];
      g.out_stride[r] = out.stride[r], a.dout_stride[r] = dout.stride[r];
      a.dq_stride[r] = dq.stride[r], a.dk_stride[r] = dk.stride[r], a.dv_stride[r] = dv.stride[r];
      if (r < 3) g.lse_stride[r] = lse.stride[r];
    }
    if (packed_q)
      g.q_stride[0] = g.out_stride[0] = g.lse_stride[0] = a.dout_stride[0] = a.dq_stride[0] = 0;
    if (packed_kv) g.k_stride[0] = g.v_stride[0] = a.dk_stride[0] = a.dv_stride[0] = 0;
    g.softmax_scale = scale(), g.softcap = t.softcap, g.causal = t.causal;
    g.causal_alignment = t.top_left ? CausalAlignment::top_left : CausalAlignment::bottom_right;
    g.window_left = t.left, g.window_right = t.right;
    g.lengths_q = lengths_q.data, g.lengths_kv = lengths_kv.data;
    g.lengths_q_stride[0] = g.lengths_kv_stride[0] = 1;
    g.cu_seqlens_q.data = cu_q.data, g.cu_seqlens_kv.data = cu_kv.data;
    if (t.wide) g.cu_seqlens_q = {wide_q.data, true, 2}, g.cu_seqlens_kv = {wide_kv.data, true, 2};
    if (t.sinks) {
      g.sinks = sink.data, g.sinks_stride = 1;
      a.d_sinks = d_sinks.begin(), a.d_sinks_stride = d_sinks.stride[2];
    }
    if (t.alibi) g.alibi = alibi.data, g.alibi_stride[1] = 1;
    bias.pass_to(g), mask.pass_to(g);
    d_bias.visit([&](auto const& x) {
      a.d_bias = x.begin(), a.type_d_bias = *beside.d_bias;
      for (int r = 0; r < 4; ++r)
        a.d_bias_extent[r] = x.extent[r], a.d_bias_stride[r] = x.stride[r];
    });
    a.ordered = beside.ordered;
    g.compute = abi::Compute::tf32x3;  // which allows IEEE arithmetic, too
    return a;
  }

  /// Gradients as they lie on the device, dq, dk, dv, d_sinks and d_bias one after the other.
  std::vector<std::vector<unsigned char>> results() const {
    std::vector<std::vector<unsigned char>> all;
    auto const get = [&](auto const& x) {
      all.emplace_back(x.host.size());
      EXPECT_EQ(cudaMemcpy(all.back().data(), x.device, x.host.size(), cudaMemcpyDeviceToHost),
                cudaSuccess);
    };
    get(dq), get(dk), get(dv), get(d_sinks);
    d_bias.visit(get);
    return all;
  }
  void forget_results() {
    auto const forget = [](auto const& x) {
      EXPECT_EQ(cudaMemcpy(x.device, x.host.data(), x.host.size(), cudaMemcpyHostToDevice),
                cudaSuccess);
    };
    forget(dq), forget(dk), forget(dv), forget(d_sinks);
    d_bias.visit(forget);
  }
};

}  // namespace
