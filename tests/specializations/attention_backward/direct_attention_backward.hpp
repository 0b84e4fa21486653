// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Kernels of attention's gradients called directly: a case with what the forward pass would have
/// written, and the comparison of a kernel's gradients with float64.
#pragma once

#include <attikos/abi/attention_backward_cuda.hpp>
#include <memory>

#include "attention/direct_attention.hpp"

namespace {

using abi::AttentionBackwardArgs;

template <class T>
using BackwardFor =
    std::conditional_t<std::is_same_v<T, __half>, abi::AttentionBackwardSm90WgmmaF16,
                       abi::AttentionBackwardSm90WgmmaBf16>;

/// As for attention.
inline void mislead(AttentionBackwardArgs& a) {
  AttentionArgs& g = a.forward;
  mislead(g);
  bool const packed_q = g.cu_seqlens_q.data != nullptr, packed_kv = g.cu_seqlens_kv.data != nullptr;
  std::int64_t const q[] = {packed_q ? 0 : g.batch, g.heads_q, g.seqlen_q, g.head_dim};
  std::int64_t const kv[] = {packed_kv ? 0 : g.batch, g.heads_kv, g.seqlen_kv, g.head_dim};
  for (int r = 0; r < 4; ++r) {
    mislead(q[r], {&a.dq_stride[r]});
    mislead(kv[r], {&a.dk_stride[r]});
    mislead(r == 3 ? g.head_dim_v : q[r], {&a.dout_stride[r]});
    mislead(r == 3 ? g.head_dim_v : kv[r], {&a.dv_stride[r]});
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

/// A case of which out and lse are what the forward pass stores. `order` is that of q, k, v and
/// dout, `order_out` that of out, lse and the gradients.
template <class T>
struct BackwardProblem {
  Case t;
  bool packed_q, packed_kv;
  std::int64_t batch;
  std::vector<Sequence> all;
  std::vector<float> sinks;
  Tensor4<T> q, k, v, dout, out, dq, dk, dv;
  Tensor4<float> lse, d_sinks;
  DeviceArray<float> sink;
  DeviceArray<int> lengths_q, lengths_kv, cu_q, cu_kv;
  DeviceArray<std::int64_t> wide_q, wide_kv;

  explicit BackwardProblem(Case const& problem)
      : t(problem),
        packed_q(!t.cu_q.empty()),
        packed_kv(!t.cu_kv.empty()),
        batch(packed_q ? static_cast<std::int64_t>(t.cu_q.size()) - 1 : t.batch),
        all(sequences(t)),
        sinks(some_sinks(t.heads)),
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
        sink(sinks),
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
    forward();
    for (auto* x : {&q, &k, &v, &dout, &out, &dq, &dk, &dv}) x->upload();
    lse.upload(), d_sinks.upload();
  }

  static std::vector<float> some_sinks(std::int64_t heads) {
    std::vector<float> all;
    for (std::int64_t h = 0; h < heads; ++h) all.push_back(static_cast<float>(h % 3) * 2.5f - 1.0f);
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

  double scale() const { return t.scale == 0 ? 1 / std::sqrt(static_cast<double>(t.d)) : t.scale; }
  bool sees(Sequence const& e, std::int64_t i, std::int64_t j) const {
    std::int64_t const ahead = j - i - (t.top_left ? 0 : e.len_kv - e.len_q);
    return !(t.causal && ahead > 0) && !(t.left >= 0 && ahead < -t.left) &&
           !(t.right >= 0 && ahead > t.right);
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
    double sum = 0, size = 0;
    for (std::int64_t c = 0; c < width; ++c) {
      double const product =
          x[static_cast<std::size_t>(i * width + c)] * y[static_cast<std::size_t>(j * width + c)];
      sum += product, size += std::abs(product);
    }
    return {sum, size};
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
            if (sees(e, i, j))
              top = std::max(top, weights[static_cast<std::size_t>(j)] =
                                      dot(qs, i, ks, j, t.d).first * scale());
          bool const empty = top == -infinity;
          for (double& w : weights) sum += w = empty ? 0 : std::exp(w - top);
          if (t.sinks && !empty) sum += std::exp(sinks[static_cast<std::size_t>(h)] - top);
          lse.at(bq, h, e.begin_q + i, 0) = empty ? -std::numeric_limits<float>::infinity()
                                                  : static_cast<float>(top + std::log(sum));
          for (std::int64_t c = 0; c < t.dv; ++c) {
            double y = 0;
            for (std::int64_t j = 0; j < e.len_kv; ++j)
              y +=
                  weights[static_cast<std::size_t>(j)] * vs[static_cast<std::size_t>(j * t.dv + c)];
            out.at(bq, h, e.begin_q + i, c) = T(static_cast<float>(empty ? 0 : y / sum));
          }
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
    g.softmax_scale = scale(), g.causal = t.causal;
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
    return a;
  }

  /// Gradients as they lie on the device, dq, dk, dv and d_sinks one after the other.
  std::vector<std::vector<unsigned char>> results() const {
    std::vector<std::vector<unsigned char>> all;
    auto const get = [&](auto const& x) {
      all.emplace_back(x.host.size());
      EXPECT_EQ(cudaMemcpy(all.back().data(), x.device, x.host.size(), cudaMemcpyDeviceToHost),
                cudaSuccess);
    };
    get(dq), get(dk), get(dv), get(d_sinks);
    return all;
  }
  void forget_results() { dq.upload(), dk.upload(), dv.upload(), d_sinks.upload(); }
};

/// A number and how far off a kernel's may be.
struct Inexact {
  double value, error;
};

/// One element of a gradient as the oracle adds it up.
struct GradientSum {
  double value = 0, magnitude = 0, inherited = 0, terms = 0;
  void add(Inexact const& a, double b) {
    value += a.value * b, magnitude += std::abs(a.value * b), inherited += a.error * std::abs(b);
    terms += 1;
  }
};

double worst_backward_ratio = 0;

/// Compares results() with float64.
///
/// With u = 2^-24, u_T half the spacing of T at 1 and t_T half its smallest number: scores have an
/// error of (d + 13) u sum|scale||q||k|, as tensor cores cut off at most 10.5 u for each 16
/// products that they begin with; the exponent s - lse, in units of log2(e), 3 u |lse| + u |s -
/// lse| more, and exp2 with its argument 12 u. Weights p and then p (dout·v - dout·out) are rounded
/// to T, an error of u_T and t_T each, on top of those of the sums, (dv + 10) u sum|dout||v| and
/// (dv + 10) u sum|dout||out|, and of the difference and the product, u each. A gradient of n terms
/// inherits their errors, adds (n + 10) u of their magnitudes, 3 u for the scale, and is rounded.
template <class T>
void compare_gradients(BackwardProblem<T> const& x,
                       std::vector<std::vector<unsigned char>> const& got) {
  Case const& t = x.t;
  double const u = 0x1p-24, unit = rounding<T>(),
               smallest = std::is_same_v<T, __half> ? 0x1p-25 : 0x1p-134, tiny = 0x1p-126;
  double const scale = x.scale(), d = static_cast<double>(t.d), dv = static_cast<double>(t.dv);
  auto const at = [](auto const& tensor, std::int64_t b, std::int64_t h, std::int64_t s) {
    return static_cast<std::size_t>(((b * tensor.extent[1] + h) * tensor.extent[2] + s) *
                                    tensor.extent[3]);
  };
  auto const sums_of = [](auto const& tensor) {
    std::size_t n = 1;
    for (auto e : tensor.extent) n *= static_cast<std::size_t>(e);
    return std::vector<GradientSum>(n);
  };
  auto dq = sums_of(x.dq), dk = sums_of(x.dk), dv_sums = sums_of(x.dv),
       d_sinks = sums_of(x.d_sinks);
  auto const round = [&](Inexact a) {
    return Inexact{a.value, a.error + unit * (std::abs(a.value) + a.error) + smallest};
  };
  for (auto const& e : x.all)
    for (std::int64_t h = 0; e.batch >= 0 && h < t.heads; ++h) {
      std::int64_t const bq = x.packed_q ? 0 : e.batch, bk = x.packed_kv ? 0 : e.batch;
      std::int64_t const hk = h / (t.heads / t.heads_kv);
      auto const q = x.rows(x.q, bq, h, e.begin_q, e.len_q),
                 dout = x.rows(x.dout, bq, h, e.begin_q, e.len_q),
                 out = x.rows(x.out, bq, h, e.begin_q, e.len_q),
                 k = x.rows(x.k, bk, hk, e.begin_kv, e.len_kv),
                 v = x.rows(x.v, bk, hk, e.begin_kv, e.len_kv);
      for (std::int64_t i = 0; i < e.len_q; ++i) {
        double const lse = x.lse.value(bq, h, e.begin_q + i, 0);
        if (lse == -infinity) continue;
        auto const [delta, delta_size] = x.dot(dout, i, out, i, t.dv);
        double const delta_error = (dv + 10) * u * delta_size;
        if (t.sinks) {
          double const s = x.sinks[static_cast<std::size_t>(h)], p = std::exp(s - lse);
          double const error =
              p * std::expm1(3 * u * (std::abs(s) + std::abs(lse) + std::abs(s - lse)) + 12 * u);
          d_sinks[static_cast<std::size_t>(h)].add({-p, error + tiny}, delta);
          d_sinks[static_cast<std::size_t>(h)].inherited += (p + error) * delta_error;
        }
        for (std::int64_t j = 0; j < e.len_kv; ++j) {
          if (!x.sees(e, i, j)) continue;
          auto const [raw, size] = x.dot(q, i, k, j, t.d);
          auto const [product, product_size] = x.dot(dout, i, v, j, t.dv);
          double const s = raw * scale, p = std::exp(s - lse);
          double const exponent = (d + 13) * u * std::abs(scale) * size + 3 * u * std::abs(lse) +
                                  u * std::abs(s - lse) + 12 * u;
          Inexact const weight = round({p, p * std::expm1(exponent) + tiny});
          double const difference = product - delta;
          double off = (dv + 10) * u * product_size + delta_error;
          off += u * (std::abs(difference) + off);
          double error = p * off + weight.error * (std::abs(difference) + off);
          error += u * (std::abs(p * difference) + error) + tiny;
          Inexact const gradient = round({p * difference, error});
          std::size_t const row = static_cast<std::size_t>(i * t.d),
                            col = static_cast<std::size_t>(j * t.d);
          GradientSum* const to_q = &dq[at(x.dq, bq, h, e.begin_q + i)];
          GradientSum* const to_k = &dk[at(x.dk, bk, hk, e.begin_kv + j)];
          for (std::size_t c = 0; c < static_cast<std::size_t>(t.d); ++c)
            to_q[c].add(gradient, k[col + c]), to_k[c].add(gradient, q[row + c]);
          GradientSum* const to_v = &dv_sums[at(x.dv, bk, hk, e.begin_kv + j)];
          for (std::size_t c = 0; c < static_cast<std::size_t>(t.dv); ++c)
            to_v[c].add(weight, dout[static_cast<std::size_t>(i * t.dv) + c]);
        }
      }
    }
  auto const check = [&](auto const& tensor, std::vector<GradientSum> const& sums,
                         std::vector<unsigned char> const& bytes, double factor, double unit_out,
                         double smallest_out, char const* what) {
    using Element = std::remove_cvref_t<decltype(*tensor.begin())>;
    auto untouched = tensor.host;
    std::size_t n = 0;
    for (std::int64_t b = 0; b < tensor.extent[0]; ++b)
      for (std::int64_t h = 0; h < tensor.extent[1]; ++h)
        for (std::int64_t s = 0; s < tensor.extent[2]; ++s)
          for (std::int64_t c = 0; c < tensor.extent[3]; ++c) {
            GradientSum const& sum = sums[n++];
            std::size_t const place = tensor.offset(b, h, s, c) * sizeof(Element);
            Element stored;
            std::memcpy(static_cast<void*>(&stored), &bytes[place], sizeof stored);
            std::memcpy(&untouched[place], &bytes[place], sizeof stored);
            double const value = wide(stored), expected = sum.value * factor;
            double bound =
                sum.inherited + (sum.terms + 10) * u * (sum.magnitude + sum.inherited) + tiny;
            bound = std::abs(factor) * (bound + 3 * u * (std::abs(sum.value) + bound));
            bound += unit_out * (std::abs(expected) + bound) + smallest_out;
            if (sum.terms == 0) bound = 0;
            double const off = std::abs(value - expected);
            double const ratio = off == 0 ? 0 : bound == 0 ? infinity : off / bound;
            if (!(ratio <= 1) && !testing::Test::HasFailure())
              ADD_FAILURE() << what << " [" << b << ", " << h << ", " << s << ", " << c << "] is "
                            << value << ", expected " << expected << " ± " << bound;
            if (!(ratio <= worst_backward_ratio))
              worst_backward_ratio = std::isnan(ratio) ? infinity : ratio;
          }
    EXPECT_EQ(untouched == bytes, true) << "memory around " << what << " was written";
  };
  check(x.dq, dq, got[0], scale, unit, smallest, "dq");
  check(x.dk, dk, got[1], scale, unit, smallest, "dk");
  check(x.dv, dv_sums, got[2], 1, unit, smallest, "dv");
  if (t.sinks)
    check(x.d_sinks, d_sinks, got[3], 1, u, tiny, "d_sinks");
  else
    EXPECT_EQ(got[3] == x.d_sinks.host, true) << "d_sinks was written";
}

inline std::string describe(Case const& t) {
  std::ostringstream text;
  text << "batch" << t.batch << " heads" << t.heads << "/" << t.heads_kv << " q" << t.len_q << " kv"
       << t.len_kv << " d" << t.d << "/" << t.dv << " causal" << t.causal << t.top_left
       << " window " << t.left << ' ' << t.right << " scale " << t.scale << " sinks" << t.sinks
       << " order " << static_cast<int>(t.order) << static_cast<int>(t.order_out) << " lengths "
       << t.lengths_q.size() << ' ' << t.lengths_kv.size() << " packed " << t.cu_q.size() << ' '
       << t.cu_kv.size() << (t.wide ? " wide" : "");
  return text.str();
}

/// Runs a case for devices of all multiprocessors, of 1 and of 3, and once more with strides of no
/// account that no kernel could use, and compares every element with float64. Ordered, all bits
/// must agree.
template <class T, class Kernel = BackwardFor<T>>
void run_backward(Case const& t, bool ordered = true) {
  SKIP_IF_LEFT_OUT(Kernel);
  Device const real = abi::query_device(abi::current_device());
  ASSERT_EQ(real.compute_major, 9) << "this suite needs a Hopper card";
  SCOPED_TRACE(describe(t) + (std::is_same_v<T, __half> ? " half" : " bfloat16") +
               (ordered ? "" : " unordered"));
  BackwardProblem<T> x(t);
  AttentionBackwardArgs a = x.arguments();
  a.ordered = ordered;
  DirectWorkspace memory(Kernel::workspace_bytes(a, real));
  a.workspace = memory.begin();
  std::vector<std::vector<unsigned char>> first;
  for (int sm_count : {real.sm_count, 1, 3, real.sm_count}) {
    SCOPED_TRACE("multiprocessors " + std::to_string(sm_count));
    Device d = real;
    d.sm_count = sm_count;
    if (sm_count == 3) mislead(a);
    x.forget_results();
    memory.forget();
    poison_shared_memory();
    ASSERT_STREQ(Kernel::accepts(a, d).reason, "");
    ASSERT_EQ(Kernel::workspace_bytes(a, d), Kernel::workspace_bytes(a, real));
    ASSERT_EQ(Kernel::launch(a, d, nullptr), cudaSuccess);
    ASSERT_CUDA(cudaDeviceSynchronize());
    auto const results = x.results();
    EXPECT_TRUE(memory.is_kept()) << "memory behind the workspace was written";
    if (first.empty() || !ordered) compare_gradients(x, results);
    if (first.empty()) first = results;
    if (ordered) {
      ASSERT_EQ(results == first, true) << "bits depend on the device, or on the run";
    }
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
