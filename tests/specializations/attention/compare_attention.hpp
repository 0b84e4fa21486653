// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Runs an attention kernel on a case and compares what it writes with float64.
#pragma once

#include "direct_attention.hpp"

namespace {

double worst_attention_ratio = 0;

inline std::string describe(Case const& t) {
  std::ostringstream text;
  text << "batch" << t.batch << " heads" << t.heads << "/" << t.heads_kv << " q" << t.len_q << " kv"
       << t.len_kv << " d" << t.d << "/" << t.dv << " causal" << t.causal << t.top_left
       << " window " << t.left << ' ' << t.right << " scale " << t.scale << " cap " << t.softcap
       << " alibi" << t.alibi << " sinks" << t.sinks << " bias" << t.bias << " order "
       << static_cast<int>(t.order) << static_cast<int>(t.order_out) << " lengths "
       << t.lengths_q.size() << ' ' << t.lengths_kv.size() << " packed " << t.cu_q.size() << ' '
       << t.cu_kv.size() << (t.wide ? " wide" : "") << " descale " << t.descale;
  return text.str();
}

/// A row's scores, later weights, of the keys that it sees; the largest of them, of their
/// magnitudes and of what float8 products drop.
struct ScoreRow {
  std::vector<std::pair<std::int64_t, double>> pairs;
  double top = -infinity, magnitude = 0, dropped = 0;
};
/// Weights of a row: their sum without and with the sink, and how far off one and all may be.
struct WeightRow {
  double sum, full, weight, sums, one_way;
};

/// The tensors of a case, what a kernel gets, and the comparison of what it writes with float64.
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
template <class T, class Kernel, class In>
class AttentionProblem {
 public:
  explicit AttentionProblem(Case const& problem) : t(problem) {
    add_means(v);
    keep(q, packed_q, true), keep(k, packed_kv, false), keep(v, packed_kv, false);
    for (int j : t.bad_keys) v.poison(0, 0, j, t.infinite, t.bad_feature);
    q.upload(), k.upload(), v.upload();
    out.forget(), lse.forget();
  }

  AttentionArgs arguments() const {
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
    g.softmax_scale = softmax_scale;
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
    return g;
  }

  /// Runs for devices of all, 1 and 3 multiprocessors, alone and beside other kernels, whose bits
  /// must agree.
  void run(Device const& real) {
    AttentionArgs g = arguments();
    int const schedules[][2] = {{real.sm_count, 0}, {1, 0}, {3, 0}, {real.sm_count, 8}, {1, 8}};
    for (auto const& [sm_count, sm_margin] : schedules) {
      SCOPED_TRACE("multiprocessors " + std::to_string(sm_count) + " margin " +
                   std::to_string(sm_margin));
      Device d = real;
      d.sm_count = sm_count, g.sm_margin = sm_margin;
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
  }

  void compare() {
    untouched = out.host, untouched_lse = lse.host;
    for (auto const& e : all)
      for (std::int64_t h = 0; h < t.heads; ++h)
        for (std::int64_t i = 0; i < e.rows; ++i, norms.end_row()) compare_row(e, h, i);
    norms.check(std::string("direct ") + Kernel::name, "out");
    test::keep_worst_ratio(std::string("direct ") + Kernel::name, worst);
    worst_attention_ratio = std::max(worst_attention_ratio, worst);
    EXPECT_EQ(untouched == first, true) << "memory around out was written";
    EXPECT_EQ(!t.lse || untouched_lse == first_lse, true) << "memory around lse was written";
  }

 private:
  static constexpr bool float8 = std::is_same_v<In, E4>;
  static constexpr double u = 0x1p-23, dropped = float8 ? 33 * 0x1p-13 : 0,
                          smallest = std::is_same_v<T, __half> ? 0x1p-25 : 0,
                          smallest_weight = float8                      ? 0x1p-17
                                            : std::is_same_v<T, __half> ? 0x1p-25
                                                                        : 0x1p-126;
  double const unit = rounding<T>(), unit_weight = float8 ? 0x1p-4 : unit;

  Case const& t;
  bool const packed_q = !t.cu_q.empty(), packed_kv = !t.cu_kv.empty();
  std::vector<Sequence> const all = sequences(t);
  std::int64_t const batch = packed_q ? static_cast<std::int64_t>(t.cu_q.size()) - 1 : t.batch;
  Tensor4<In> q{packed_q ? 1 : batch, t.heads, t.len_q, t.d, t.order, 1, t.amplitude};
  Tensor4<In> k{packed_kv ? 1 : batch, t.heads_kv, t.len_kv, t.d, t.order, 2, 1};
  Tensor4<In> v{packed_kv ? 1 : batch, t.heads_kv, t.len_kv, t.dv, t.order, 3, 1};
  Tensor4<T> out{packed_q ? 1 : batch, t.heads, t.len_q, t.dv, t.order_out, 4, 1};
  Tensor4<float> lse{packed_q ? 1 : batch, t.heads, t.len_q, 1, Order::padded, 5, 1};
  BiasTensor const bias{t, batch};
  std::vector<float> const slopes = some_slopes(t.heads), sinks = some_sinks(t.heads);
  Factors const factors{t, batch};
  DeviceArray<float> const alibi{slopes}, sink{sinks};
  DeviceArray<int> const lengths_q{t.lengths_q}, lengths_kv{t.lengths_kv}, cu_q{t.cu_q},
      cu_kv{t.cu_kv};
  DeviceArray<std::int64_t> const wide_q{wide_offsets(t.cu_q)}, wide_kv{wide_offsets(t.cu_kv)};
  double const softmax_scale = t.scale == 0 ? 1 / std::sqrt(static_cast<double>(t.d)) : t.scale;

  std::vector<unsigned char> first, first_lse, untouched, untouched_lse;
  double worst = 0;
  ResultNorms<T> norms;

  static std::vector<float> some_slopes(std::int64_t heads) {
    std::vector<float> slopes;
    for (std::int64_t h = 0; h < heads; ++h) slopes.push_back(0.25f / static_cast<float>(h + 1));
    return slopes;
  }
  static std::vector<float> some_sinks(std::int64_t heads) {
    std::vector<float> sinks;
    for (std::int64_t h = 0; h < heads; ++h) sinks.push_back(static_cast<float>(h) * 2.5f - 1.0f);
    return sinks;
  }
  /// What no sequence owns is NaN.
  void keep(Tensor4<In>& x, bool packed, bool of_q) const {
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

  void check(double got, double expected, double bound, char const* what, std::int64_t b,
             std::int64_t h, std::int64_t i, std::int64_t c) {
    double ratio = std::abs(got - expected) / bound;
    if (std::isnan(expected) || std::isinf(expected))
      ratio = (std::isnan(expected) ? std::isnan(got) : got == expected) ? 0 : 2;
    if (!(ratio <= 1) && !testing::Test::HasFailure())
      ADD_FAILURE() << what << " [" << b << ", " << h << ", " << i << ", " << c << "] is " << got
                    << ", expected " << expected << " ± " << bound;
    if (!(ratio <= worst)) worst = std::isnan(ratio) ? infinity : ratio;
  }

  ScoreRow scores_of(Sequence const& e, std::int64_t h, std::int64_t i) const {
    std::int64_t const bq = packed_q ? 0 : e.batch, bk = packed_kv ? 0 : e.batch;
    std::int64_t const off = t.top_left ? 0 : e.len_kv - e.len_q;
    std::int64_t const hk = h / (t.heads / t.heads_kv), iq = e.begin_q + i;
    double const scale = softmax_scale * factors(0, e.batch, hk) * factors(1, e.batch, hk);
    ScoreRow row;
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
      row.dropped = std::max(row.dropped, lost * std::abs(scale));
      if (t.softcap > 0) s = t.softcap * std::tanh(s / t.softcap);
      if (t.bias != 0) s += bias.value(e.batch, h, i, j), size += 3;
      if (s == -infinity) continue;
      if (t.alibi) {
        double const away =
            slopes[static_cast<std::size_t>(h)] * std::abs(static_cast<double>(i + off - j));
        s -= away, size += away;
      }
      row.pairs.push_back({j, s});
      row.top = std::max(row.top, s), row.magnitude = std::max(row.magnitude, size);
    }
    return row;
  }

  /// Scores become weights.
  WeightRow weights_of(ScoreRow& row, std::int64_t h) const {
    auto& score = row.pairs;
    double sum = 0, full = 0;
    for (auto& [j, s] : score) sum += s = std::exp(s - row.top);
    full = sum;
    if (t.sinks && !score.empty())
      full += std::exp(sinks[static_cast<std::size_t>(h)] - row.top), row.magnitude += 8;
    double const weight =
        std::expm1(u * (static_cast<double>(t.d) + 24) * (row.magnitude + 1) + row.dropped) + 8 * u;
    return {sum, full, weight, u * (static_cast<double>(score.size()) + 8),
            is_narrow(score, unit_weight) ? unit_weight : 0};
  }

  void compare_row(Sequence const& e, std::int64_t h, std::int64_t i) {
    std::int64_t const bq = packed_q ? 0 : e.batch, iq = e.begin_q + i;
    ScoreRow row = scores_of(e, h, i);
    WeightRow const w = weights_of(row, h);
    if (t.lse) {
      double const expected = row.pairs.empty() ? -infinity : row.top + std::log(w.full);
      std::size_t const at = lse.offset(bq, h, iq, 0) * sizeof(float);
      float got;
      std::memcpy(&got, &first_lse[at], sizeof got);
      std::memcpy(&untouched_lse[at], &got, sizeof got);
      check(got, expected, w.weight + w.sums + 8 * u * (std::abs(expected) + row.magnitude + 1),
            "lse", e.batch, h, i, 0);
    }
    for (std::int64_t c = 0; c < t.dv; ++c) compare_feature(e, h, i, c, row, w);
  }

  void compare_feature(Sequence const& e, std::int64_t h, std::int64_t i, std::int64_t c,
                       ScoreRow const& row, WeightRow const& w) {
    std::int64_t const bq = packed_q ? 0 : e.batch, bk = packed_kv ? 0 : e.batch;
    std::int64_t const hk = h / (t.heads / t.heads_kv), iq = e.begin_q + i;
    double const value_scale = factors(2, e.batch, hk);
    auto const& [sum, full, weight, sums, one_way] = w;
    auto const n = static_cast<double>(row.pairs.size());
    double y = 0, size = 0, largest = 0, low = 0, high = 0, most = 0, squares = 0;
    for (auto const& [j, p] : row.pairs) {
      double const x = value_scale * v.value(bk, hk, e.begin_kv + j, c);
      y += p / full * x, size += p / full * std::abs(x), largest = std::max(largest, std::abs(x));
      squares += p / full * x * (p / full * x);
      most = std::max(most, p / full * std::abs(x));
      low = std::min(low, y), high = std::max(high, y);
    }
    double bound = size * (weight + sums + unit_weight) + std::abs(y) * (weight + sums + 4 * u) +
                   n * smallest_weight * largest / std::max(sum, 1.0);
    double const steady = bound - size * (sums + unit_weight) + one_way * std::abs(y) +
                          (sums + dropped * static_cast<double>(e.len_kv / 32 + 8) * (1 + 0x1p-4)) *
                              std::max(most, 2 * (high - low));
    bound += dropped * static_cast<double>(e.len_kv / 32 + 8) * std::max(most, 2 * (high - low)) *
             (1 + 0x1p-4);
    bound += unit * (std::abs(y) + bound) + 0x1p-25;
    std::size_t const at = out.offset(bq, h, iq, c) * sizeof(T);
    T got;
    std::memcpy(&got, &first[at], sizeof got);
    std::memcpy(&untouched[at], &got, sizeof got);
    check(wide(got), y, bound, "out", e.batch, h, i, c);
    norms.add(wide(got), y,
              {steady + smallest, test::rounding_variance(std::abs(y) + steady, unit, 2 * smallest),
               unit_weight * unit_weight / 3 * squares});
  }
};

/// Runs a case and compares every element with float64.
template <class T, class Kernel = AttentionFor<T>, class In = T>
void run(Case const& t) {
  SKIP_IF_LEFT_OUT(Kernel);
  Device const real = abi::query_device(abi::current_device());
  ASSERT_GE(real.compute_major, 8) << "this suite needs a card of compute capability 8.0";
  SCOPED_TRACE(describe(t) + (std::is_same_v<T, __half> ? " half" : " bfloat16"));
  AttentionProblem<T, Kernel, In> problem(t);
  problem.run(real);
  if (testing::Test::HasFatalFailure()) return;
  problem.compare();
}

}  // namespace
