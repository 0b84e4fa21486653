// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Runs decode kernels, and attention kernels that read pages, on a case and compares what they
/// write with float64.
#pragma once

#include "decode/decode_problem.hpp"

namespace {

/// What an element should be, and by how much it may be off.
struct Expected {
  std::size_t at;
  double value, bound;
  char const* what;
  test::ErrorParts parts = {};  ///< of out
  bool last = false;            ///< of its row
};

/// Every element of out and lse in float64.
///
/// With u = 2^-23, which covers the tensor cores' truncating additions (2^-52 of float64), and M
/// the largest |score| or sum |scale||q||k| plus the terms of a row: an exponent is off by at most
/// u(d + 40)M, so a weight by e = expm1 of that plus 16u (exp2 and its argument, here and where
/// parts are joined); rounding it to T adds unit(T), for float16 at least 2^-25 of the row's
/// largest. Sums of n weights or products add u(n + 32).
///
/// Weights beside float8 values are float16, or `coarse`, as run() has it. `unrounded` ones are as
/// sums. Roundings of weights are shared by a row (error_norms.hpp).
template <class T, class In>
std::vector<Expected> expect_decode(DecodeProblem<T, In> const& x) {
  DecodeCase const& t = x.t;
  std::vector<Expected> list;
  constexpr bool is_double = std::is_same_v<T, double>, float8 = std::is_same_v<In, E4>;
  double const u = t.units * (is_double ? 0x1p-52 : 0x1p-23), unit = rounding<T>();
  double const unit_weight = t.coarse      ? 0x1p-4
                             : t.unrounded ? 0
                             : float8      ? rounding<__half>()
                                           : unit;
  double const smallest_weight = t.coarse                                                ? 0x1p-17
                                 : is_double                                             ? 0x1p-1000
                                 : !t.unrounded && (std::is_same_v<T, __half> || float8) ? 0x1p-25
                                                                                         : 0x1p-126;
  double const dropped = t.coarse ? 33 * 0x1p-13 : 0;
  double const least = is_double ? 0x1p-1000 : 0x1p-25;  // neighbours of 0 are no further apart
  for (auto const& e : x.all) {
    std::int64_t const bq = x.packed_q ? 0 : e.batch;
    std::int64_t const off = t.top_left ? 0 : e.len_kv - e.len_q;
    for (std::int64_t h = 0; h < t.heads; ++h)
      for (std::int64_t i = 0; i < e.rows; ++i) {
        std::int64_t const hk = h / (t.heads / t.heads_kv), iq = e.begin_q + i;
        std::vector<std::pair<std::int64_t, double>> score;
        double top = -infinity, magnitude = 0, dropped_score = 0;
        double const scale = (t.scale == 0 ? 1 / std::sqrt(static_cast<double>(t.d)) : t.scale) *
                             x.factors(0, e.batch, hk) * x.factors(1, e.batch, hk);
        for (std::int64_t j = 0; i < e.len_q && j < e.len_kv; ++j) {
          if ((t.causal && j > i + off) || (t.left >= 0 && j < i + off - t.left) ||
              (t.right >= 0 && j > i + off + t.right) ||
              (t.mask && x.mask[static_cast<std::size_t>((h * t.len_q + i) * t.len_kv + j)] == 0))
            continue;
          auto const [outer, row] = x.place(e.batch, e.begin_kv, j);
          double s = 0, size = 0, before = 0, most = 0, lost = 0;
          for (std::int64_t c = 0; c < t.d; ++c) {
            double const y = x.q.value(bq, h, iq, c) * x.k.value(outer, hk, row, c);
            s += y, size += std::abs(y), most = std::max(most, std::abs(y));
            if (c % 32 != 31 && c + 1 != t.d) continue;
            lost += dropped * std::max({most, std::abs(before), std::abs(s)});
            before = s, most = 0;
          }
          s *= scale, size *= std::abs(scale);
          dropped_score = std::max(dropped_score, lost * std::abs(scale));
          if (t.softcap > 0) s = t.softcap * std::tanh(s / t.softcap);
          if (t.bias == 1) s += x.bias_16.value(0, 0, i, j), size += 3;
          if (t.bias == 2) s += x.bias_32.value(e.batch, h, i, j), size += 3;
          if (t.alibi) {
            double const away =
                x.slopes[static_cast<std::size_t>(h)] * std::abs(static_cast<double>(i + off - j));
            s -= away, size += away;
          }
          score.push_back({j, s});
          top = std::max(top, s), magnitude = std::max(magnitude, size);
        }
        double sum = 0, full = 0;
        for (auto& [j, s] : score) sum += s = std::exp(s - top);
        full = sum;
        if (t.sinks && !score.empty())
          full += std::exp(x.sinks[static_cast<std::size_t>(h)] - top), magnitude += 8;
        auto const n = static_cast<double>(score.size());
        double const weight =
            std::expm1(u * (static_cast<double>(t.d) + 40) * (magnitude + 1) + dropped_score) +
            16 * u;
        double const total = u * (n + 32);
        double const one_way = is_narrow(score, unit_weight) ? unit_weight : 0;
        if (t.lse) {
          double const expected = score.empty() ? -infinity : top + std::log(full);
          list.push_back({x.lse.offset(bq, h, iq, 0) * sizeof(SumOf<T>), expected,
                          weight + total + 8 * u * (std::abs(expected) + magnitude + 1), "lse"});
        }
        std::vector<double> y(static_cast<std::size_t>(t.dv)), size(y), largest(y), most(y), low(y),
            high(y), squares(y);
        for (auto const& [j, p] : score) {
          auto const [outer, row] = x.place(e.batch, e.begin_kv, j);
          for (std::int64_t c = 0; c < t.dv; ++c) {
            auto const n_ = static_cast<std::size_t>(c);
            double const z = x.factors(2, e.batch, hk) * x.v.value(outer, hk, row, c);
            y[n_] += p / full * z, size[n_] += p / full * std::abs(z),
                largest[n_] = std::max(largest[n_], std::abs(z));
            squares[n_] += p / full * z * (p / full * z);
            if (!t.coarse) continue;
            most[n_] = std::max(most[n_], p / full * std::abs(z));
            low[n_] = std::min(low[n_], y[n_]), high[n_] = std::max(high[n_], y[n_]);
          }
        }
        for (std::int64_t c = 0; c < t.dv; ++c) {
          auto const n_ = static_cast<std::size_t>(c);
          double bound = size[n_] * (weight + total + unit_weight) +
                         std::abs(y[n_]) * (weight + total + 8 * u) +
                         n * smallest_weight * largest[n_] / std::max(sum, 1.0);
          bound += dropped * static_cast<double>(e.len_kv / 32 + 8) *
                   std::max(most[n_], 2 * (high[n_] - low[n_])) * (1 + 0x1p-4);
          double const smallest = std::is_same_v<T, __half> ? 0x1p-25 : 0;
          double const steady = bound - size[n_] * unit_weight + one_way * std::abs(y[n_]);
          test::ErrorParts const parts{
              steady + smallest,
              test::rounding_variance(std::abs(y[n_]) + steady, unit, 2 * smallest),
              unit_weight * unit_weight / 3 * squares[n_]};
          bound += unit * (std::abs(y[n_]) + bound) + least;
          list.push_back(
              {x.out.offset(bq, h, iq, c) * sizeof(T), y[n_], bound, "out", parts, c + 1 == t.dv});
        }
      }
  }
  return list;
}

/// Runs a case for every number of splits it names, twice each, whose bits must agree, and compares
/// every element with float64.
template <class T, class Kernel, class In>
void run_decode(DecodeProblem<T, In>& x) {
  SKIP_IF_LEFT_OUT(Kernel);
  DecodeCase const& t = x.t;
  Device const device = abi::query_device(abi::current_device());
  ASSERT_NE(device.compute_major, 0) << "this suite needs a card";
  SCOPED_TRACE(describe(t, std::is_same_v<T, __half>));
  auto const expected = expect_decode(x);
  for (std::int64_t splits : t.splits) {
    SCOPED_TRACE("splits " + std::to_string(splits));
    std::vector<unsigned char> result, sums, again, again_sums;
    launch_decode<T, Kernel, In>(x, splits, device, result, sums);
    launch_decode<T, Kernel, In>(x, splits, device, again, again_sums);
    if (testing::Test::HasFailure()) return;
    EXPECT_EQ(result == again && sums == again_sums, true) << "bits changed from run to run";
    auto untouched = x.out.host, untouched_sums = x.lse.host;
    ResultNorms<T> norms;
    double worst = 0;
    for (auto const& e : expected) {
      bool const is_lse = e.what[0] == 'l';
      double got;
      if (is_lse) {
        SumOf<T> y;
        std::memcpy(&y, &sums[e.at], sizeof y);
        std::memcpy(&untouched_sums[e.at], &y, sizeof y);
        got = y;
      } else {
        T y;
        std::memcpy(&y, &result[e.at], sizeof y);
        std::memcpy(&untouched[e.at], &y, sizeof y);
        got = wide(y);
      }
      double ratio = std::abs(got - e.value) / e.bound;
      if (std::isnan(e.value) || std::isinf(e.value))
        ratio = (std::isnan(e.value) ? std::isnan(got) : got == e.value) ? 0 : 2;
      if (!(ratio <= 1)) {
        ADD_FAILURE() << e.what << " at byte " << e.at << " is " << got << ", expected " << e.value
                      << " ± " << e.bound;
        return;
      }
      worst = std::max(worst, ratio), worst_decode_ratio = std::max(worst_decode_ratio, ratio);
      if (!is_lse) norms.add(got, e.value, e.parts);
      if (e.last) norms.end_row();
    }
    norms.check(std::string("direct ") + Kernel::name, "out");
    test::keep_worst_ratio(std::string("direct ") + Kernel::name, worst);
    EXPECT_EQ(untouched == result, true) << "memory around out was written";
    EXPECT_EQ(!t.lse || untouched_sums == sums, true) << "memory around lse was written";
  }
}

template <class T, class Kernel = DecodeFor<T>, class In = T>
void run_decode(DecodeCase const& t) {
  SKIP_IF_LEFT_OUT(Kernel);
  DecodeProblem<T, In> x(t);
  add_means(x.v);
  x.v.upload();
  run_decode<T, Kernel>(x);
}

/// Makes q, k and v of two sequences of two heads and 256 positions hold every number of
/// float8_e4m3, subnormal ones included.
template <class T>
void fill_with_every_number(DecodeProblem<T, E4>& x) {
  std::uint32_t seed = 1;
  for (auto* tensor : {&x.q, &x.k, &x.v}) {
    for (std::int64_t s = 0; s < 256; ++s)
      for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t h = 0; h < 2; ++h)
          for (std::int64_t c = 0; c < tensor->extent[3]; ++c) {
            auto const n = static_cast<std::uint32_t>(s * (2 * b + 1) + c * 3 + h * 89);
            auto const code = static_cast<unsigned char>(n * seed);
            tensor->at(b, h, s, c).__x = code % 128 == 127 ? code - 1 : code;
          }
    tensor->upload();
    seed += 2;
  }
}

}  // namespace
